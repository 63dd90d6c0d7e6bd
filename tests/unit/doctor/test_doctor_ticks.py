"""What the doctor sees of the jobs that carry out ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.doctor.findings import Health
from gitops.doctor.jobs import interval_of, tick_findings
from tests.support.actions.scaffolds import made
from tests.support.strategies import rules

FORGES = ["github", "gitea"]


def _rules(variable: str = "MZ_URL", **declared: Mapping[str, Any]) -> dict[str, list[ComputeRules]]:
    strategies = tuple(rules(declared or {"target_size": {"target_size": "50cc"}}))
    return {"brain": [ComputeRules("serving", ComputeTarget("prod", variable), "serving", strategies)]}


def _seen(kind: str, files: Mapping[str, bytes], declared: dict[str, list[ComputeRules]]) -> list[tuple[Health, str]]:
    findings = list(tick_findings(kind, files, declared))
    assert all(each.fix for each in findings if each.health is not Health.GOOD)
    return [(each.health, each.detail) for each in findings]


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [
        ("*/5 * * * *", 300),
        ("*/7 * * * *", 420),
        ("17 * * * *", 3600),
        ("0,20,30 * * * *", 1800),
        ("0-30/10 * * * *", 1800),
        ("3/20 * * * *", 1200),
        ("* * * * *", 60),
        ("*/5 8-18 * * *", None),
        ("*/5 * * *", None),
        ("@hourly", None),
        ("x * * * *", None),
        ("75 * * * *", None),
        ("", None),
    ],
)
def test_how_often_a_schedule_runs(cron: str, seconds: int | None) -> None:
    assert interval_of(cron) == seconds


@pytest.mark.parametrize("forge", FORGES)
def test_what_init_makes_ticks_often_enough(forge: str) -> None:
    (found,) = _seen(forge, made(forge, strategies=True), _rules(idle_suspend={"idle_after_s": 600}))
    assert found == (Health.GOOD, "ticks come every 300 s")


@pytest.mark.parametrize("forge", [*FORGES, "gitlab"])
def test_strategies_without_a_job_for_ticks_are_seen(forge: str) -> None:
    (found,) = _seen(forge, made(forge), _rules())
    assert found == (Health.WARNING, "clusters have strategies, and no job carries out ticks")


def test_without_strategies_no_ticks_are_missed() -> None:
    assert list(tick_findings("github", made("github"), {"brain": []})) == []


def test_a_suspension_that_comes_before_the_next_tick_is_seen() -> None:
    (found,) = _seen("github", made("github", strategies=True), _rules(idle_suspend={"idle_after_s": 599}))
    assert found[0] is Health.WARNING
    assert "suspends after 599 s" in found[1]


def test_a_variable_that_the_job_does_not_get_is_seen() -> None:
    found = _seen("github", made("github", strategies=True), _rules("PROD_URL"))
    assert (Health.WARNING, "the job does not get PROD_URL, the URL of a target") in found


def test_what_cannot_be_seen_from_here_is_not_called_good() -> None:
    files = made("github", strategies=True)
    path = ".github/workflows/gitops-strategies.yml"
    odd = {path: files[path].replace(b"*/5 * * * *", b"*/5 8-18 * * *")}
    for kind, given in (("gitlab", made("gitlab", strategies=True)), ("local", {}), ("github", odd)):
        assert [health for health, _ in _seen(kind, given, _rules())] == [Health.UNKNOWN], kind
