"""What the checks of workflows see: each case is a workflow file that says in its first lines what has to be found in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gitops.doctor.findings import Health
from gitops.doctor.jobs import answers_queue, job_findings
from tests.support.actions.scaffolds import made
from tests.support.pages import ROOT

CASES = sorted((ROOT / "tests/data/doctor/jobs").glob("*.yml"))
FOLDERS = (".github/workflows/", ".gitea/workflows/", ".gitlab-ci.yml", ".gitlab/")


def _seen(kind: str, files: Mapping[str, bytes]) -> list[str]:
    return [f"{f.health} {f.check}" for f in job_findings(kind, files) if f.health is not Health.GOOD]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_gaps_of_a_workflow_are_found_and_nothing_else(case: Path) -> None:
    text = case.read_text(encoding="utf-8")
    kind = re.findall(r"^# kind: (.+)$", text, re.MULTILINE)[0]
    expected = re.findall(r"^# expect: (.+)$", text, re.MULTILINE)
    assert sorted(_seen(kind, {case.name: text.encode()})) == sorted(expected)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_every_gap_names_its_way_out(case: Path) -> None:
    for finding in job_findings("github", {case.name: case.read_bytes()}):
        assert finding.fix or finding.health in (Health.GOOD, Health.UNKNOWN), finding


@pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
@pytest.mark.parametrize("strategies", [False, True])
def test_what_init_makes_has_no_gap(forge: str, strategies: bool) -> None:
    files = {path: text for path, text in made(forge, strategies=strategies).items() if path.startswith(FOLDERS)}
    assert files
    assert _seen(forge, files) == []


def test_only_a_job_that_verifies_groups_answers_a_merge_queue() -> None:
    sound = (ROOT / "tests/data/doctor/jobs/sound.yml").read_bytes()
    assert not answers_queue({"a.yml": sound})
    verify = sound.replace(b"pull_request:", b"merge_group:").replace(b"bot plan", b"bot verify")
    assert answers_queue({"a.yml": verify})
    assert answers_queue(made("github"))


def test_a_bare_repository_needs_no_jobs() -> None:
    assert list(job_findings("local", {})) == []
