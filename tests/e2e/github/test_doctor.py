"""`gitops doctor` against a GitHub: what rulesets hold is seen, what a token may not see stays unknown, gaps name their menu."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gitops.cli.main import main
from tests.support.forges.github_forms import FULL_NAME
from tests.support.forges.hub import APP, Hub, token_of
from tests.support.forges.server import REST

pytestmark = pytest.mark.e2e

Look = Callable[..., Mapping[str, dict[str, Any]]]
HELD: Mapping[str, dict[str, Any] | None] = {"deletion": None, "non_fast_forward": None}
ON_TARGET: Mapping[str, dict[str, Any] | None] = {
    **HELD,
    "pull_request": None,
    "required_status_checks": {
        "strict_required_status_checks_policy": False,
        "required_status_checks": [{"context": "gitops/plan/brain"}],
    },
}


@pytest.fixture
def look(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Look:
    """The command in alice's clone, with a token; the findings about the forge, by check."""
    for name in [name for name in os.environ if name.startswith(("GIT", "CI"))]:
        monkeypatch.delenv(name)
    for name, value in hub.loop.environment("alice").items():
        monkeypatch.setenv(name, value)
    place = hub.loop.home("alice") / "clone"
    hub.loop.program("alice", "git", "clone", "-q", str(hub.loop.server), str(place), at=hub.loop.folder)
    hub.loop.program("alice", "git", "config", "gitops.forgeUrl", hub.server.base + REST, at=place)

    def run(token: str | None = token_of(APP)) -> Mapping[str, dict[str, Any]]:
        monkeypatch.setenv("GITHUB_REPOSITORY", FULL_NAME)
        if token is not None:
            monkeypatch.setenv("GITOPS_TOKEN", token)
        main(["doctor", "--repo", str(place), "--forge", "github", "--no-probe", "--json"])
        text = capsys.readouterr().out
        assert token is None or token not in text
        found = json.loads(text)["findings"]
        return {each["check"]: each for each in found if each["check"].startswith(("forge.", "jobs."))}

    return run


def _healths(found: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    return {check: each["health"] for check, each in found.items() if each["health"] != "good"}


def test_a_repository_without_rules_is_open_and_told_so(look: Look) -> None:
    found = look()
    assert _healths(found) == {
        "jobs.present": "warning",
        "forge.target.force-push": "warning",
        "forge.target.deletion": "warning",
        "forge.target.request": "warning",
        "forge.target.check": "warning",
        "forge.ledger.force-push": "error",
        "forge.ledger.deletion": "error",
        "forge.ledger.pushers": "error",
        "forge.approvals.force-push": "warning",
        "forge.approvals.deletion": "warning",
        "forge.revocations.force-push": "warning",
        "forge.revocations.deletion": "warning",
        "forge.countersignatures.force-push": "warning",
        "forge.countersignatures.deletion": "warning",
    }
    assert "Settings > Rules > Rulesets" in found["forge.ledger.deletion"]["fix"]
    assert "gitops/plan/brain" in found["forge.target.check"]["fix"]


def test_rulesets_close_the_gaps(hub: Hub, look: Look) -> None:
    hub.world.habits.shows_rules = True
    hub.world.protect("main", "main", ON_TARGET)
    hub.world.protect("gitops", "gitops/**", HELD)
    assert _healths(look()) == {"jobs.present": "warning", "forge.ledger.pushers": "unknown"}
    hub.world.protect("ledger", "gitops/ledger/**", {"update": None}, APP)
    assert _healths(look()) == {"jobs.present": "warning"}


def test_a_ledger_that_takes_requests_alone_is_seen_before_any_apply(hub: Hub, look: Look) -> None:
    hub.world.habits.shows_rules = True
    hub.world.protect("all", "gitops/**", {**HELD, "pull_request": None})
    found = look()
    assert found["forge.ledger.pushers"]["health"] == "error"
    assert found["forge.approvals.pushers"]["health"] == "error"


def test_a_merge_queue_that_nobody_answers_is_an_error(hub: Hub, look: Look) -> None:
    hub.world.habits.shows_rules = True
    hub.world.protect("main", "main", {**ON_TARGET, "merge_queue": None})
    assert look()["forge.target.queue"]["health"] == "error"


def test_who_may_only_read_is_told_so(hub: Hub, look: Look) -> None:
    hub.world.accounts["carol"].permission = "read"
    assert look(token_of("carol"))["forge.permission"]["health"] == "error"


def test_without_a_token_nothing_is_called_good(look: Look) -> None:
    found = look(None)
    assert {each["health"] for check, each in found.items() if check.startswith("forge.")} == {"unknown"}


def test_a_token_that_is_not_taken_is_an_error(look: Look) -> None:
    found = look("ghs_nobody")
    assert found["forge.token"]["health"] == "error"
