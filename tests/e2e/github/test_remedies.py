"""What a person copies and runs on GitHub: remedies and approve commands of comments, and what the doctor says of rules."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from tests.e2e.github.conftest import WithConfig
from tests.e2e.github.stories import good, retire
from tests.support.forges.github_forms import FULL_NAME
from tests.support.forges.hub import APP, Hub, token_of
from tests.support.forges.runner import Runner
from tests.support.forges.server import REST
from tests.support.loop import APPROVALS, CONFIG, DELETE_LEGACY, MAIN, Done, printed_command
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e


def _printed(hub: Hub, number: int, program: str) -> list[str]:
    """The only command of the comment that begins so, as words."""
    (found,) = re.findall(rf"`({program} [^`]+)`", html.unescape(hub.comment(number)))
    return shlex.split(found)


def _clone(hub: Hub, who: str, place: Path) -> Path:
    url = hub.server.git_url.replace("//", f"//{who}:{token_of(who)}@", 1)
    hub.loop.program(who, "git", "clone", "-q", url, str(place), at=place.parent)
    return place


def _unknown(hub: Hub, runner: Runner) -> int:
    """Carol, whom no rule lists, proposes a delete without a signature; returns the number of her request."""
    head = hub.loop.commit("carol", DELETE_LEGACY, hub.tip(), key=None)
    hub.world.move("refs/heads/retire", head, "carol")
    number = hub.world.open_pull("carol", "retire").number
    hub.approve("bob", "graph.legacy", request=number)
    runner.settle()
    assert "approval_authors_unknown" in hub.comment(number)
    return number


def test_the_printed_remedy_gives_commits_of_a_request_their_authors(hub: Hub, runner: Runner, tmp_path: Path) -> None:
    number = _unknown(hub, runner)
    clone = _clone(hub, "carol", tmp_path / "clone")
    hub.loop.program("carol", "git", "switch", "-q", "retire", at=clone)
    # The target has moved on since the clone.
    hub.world.move(MAIN, hub.loop.commit("alice", {"cluster/README.md": b"Other words.\n"}, hub.tip()), "alice")
    for command in ("git fetch", "git rebase", "git push"):
        hub.loop.program("carol", *_printed(hub, number, command), at=clone)
    runner.settle()
    hub.approve("bob", "graph.legacy", request=number)
    hub.say("carol", number, "/gitops plan")
    good(runner)
    hub.merge("carol", number)
    good(runner)
    assert not hub.loop.graph("legacy").exists()


def test_an_approval_that_cannot_count_is_refused_with_the_next_step_of_the_author(
    hub: Hub, runner: Runner, tmp_path: Path
) -> None:
    """In a clone, which cannot ask who pushed, as soon as the bot has planned this head."""
    number = _unknown(hub, runner)
    before = hub.loop.store.refs(APPROVALS.rstrip("/"))
    line = f"gitops approve graph.legacy --request {number}"
    first = "nothing that you sign counts before the author has done this: update the target: git fetch origin; "
    step = "sign the commits: git rebase --exec 'git commit --amend --no-edit -S' origin/main; then push it: git push "
    for place, command in (("named", line), ("all", f"gitops approve --all --request {number}")):
        refused = _run(hub, "bob", tmp_path / place, command)
        assert refused.code != 0
        assert "approval_authors_unknown" in refused.text
        assert "it is not signed" in refused.text
        assert first + step in refused.text
    assert hub.loop.store.refs(APPROVALS.rstrip("/")) == before

    # As soon as the head is another one, the stored plan says nothing about it.
    hub.world.move("refs/heads/retire", hub.loop.commit("alice", DELETE_LEGACY, hub.tip()), "alice")
    approved = _run(hub, "bob", tmp_path / "later", f"{line} --rows 1")
    assert "approval_authors_unknown" not in approved.text


def test_the_printed_remedy_takes_back_what_is_merged(hub: Hub, runner: Runner, tmp_path: Path) -> None:
    number = _unknown(hub, runner)
    merged = hub.merge("alice", number, "squash")
    runner.settle()
    command = _printed(hub, number, "git revert")
    clone = _clone(hub, "alice", tmp_path / "clone")
    hub.loop.program("alice", *[merged if word == "COMMIT" else word for word in command], "--no-edit", at=clone)
    hub.loop.program("alice", "git", "push", "-q", at=clone)
    good(runner)

    # Proposed again, by commits that are signed.
    hub.loop.program("alice", "git", "switch", "-q", "-c", "again", at=clone)
    hub.loop.program("alice", "git", "revert", "--no-edit", "HEAD", at=clone)
    hub.loop.program("alice", "git", "push", "-q", "origin", "again", at=clone)
    again = hub.world.open_pull("alice", "again").number
    assert hub.approve("bob", "graph.legacy", request=again).ok
    hub.merge("carol", again)
    good(runner)
    assert not hub.loop.graph("legacy").exists()


KIND = "forge: {kind: github}\n"


def _run(hub: Hub, who: str, place: Path, command: str, *clone: str) -> Done:
    """Run a printed command in a fresh clone of a person, over HTTP."""
    url = hub.server.git_url.replace("//", f"//{who}:{token_of(who)}@", 1)
    hub.loop.program(who, "git", "clone", "-q", *clone, url, str(place), at=place.parent)
    return hub.loop.program(who, *PROGRAM, *shlex.split(command)[1:], at=place, check=False)


@pytest.mark.parametrize("config", ["", KIND])
def test_the_printed_command_approves_from_a_clone(with_config: WithConfig, tmp_path: Path, config: str) -> None:
    runner = with_config(config)
    hub = runner.hub
    retire(runner)
    hub.calls()
    done = _run(hub, "bob", tmp_path / "clone", printed_command(hub.comment(1)))
    assert done.code == 0, done.text
    assert hub.calls() == []
    assert len(hub.loop.store.refs(APPROVALS.rstrip("/"))) == 1
    hub.say("carol", 1, "/gitops plan")
    good(runner)
    assert hub.status(hub.world.pull(1).head, "plan").startswith("success")


@pytest.mark.parametrize("kind", ["--bare", "--mirror"])
def test_the_printed_command_approves_from_a_bare_clone(with_config: WithConfig, tmp_path: Path, kind: str) -> None:
    """The approval goes to the forge, not into the clone."""
    runner = with_config(KIND)
    hub = runner.hub
    retire(runner)
    done = _run(hub, "bob", tmp_path / "clone.git", printed_command(hub.comment(1)), kind)
    assert done.code == 0, done.text
    assert len(hub.loop.store.refs(APPROVALS.rstrip("/"))) == 1


def test_what_the_author_pushed_after_the_comment_is_not_signed(planned: Runner, tmp_path: Path) -> None:
    hub = planned.hub
    rules = CONFIG.replace("carol@people.example]", "carol@people.example, mallory@people.example]")
    hub.push("alice", "retire", {"gitops.yaml": rules.encode()})
    done = _run(hub, "bob", tmp_path / "clone", printed_command(hub.comment(1)))
    assert (done.code, "approval_not_required" in done.text) == (1, True)
    assert "list the changes that need approval: gitops plan --request 1 --cluster brain\n" in done.text
    assert hub.loop.store.refs(APPROVALS.rstrip("/")) == {}


def test_a_request_that_does_not_exist_is_named_with_a_remedy(with_config: WithConfig, tmp_path: Path) -> None:
    runner = with_config(KIND)
    refused = _run(runner.hub, "bob", tmp_path / "clone", "gitops plan --request 99")
    assert (refused.code, "request_not_found" in refused.text, "GITOPS_TOKEN" in refused.text) == (1, True, True)


def test_a_bare_clone_that_cannot_know_its_forge_says_what_to_add(planned: Runner, tmp_path: Path) -> None:
    refused = _run(planned.hub, "bob", tmp_path / "clone.git", printed_command(planned.hub.comment(1)), "--bare")
    assert (refused.code, "--remote origin" in refused.text) == (1, True)
    command = printed_command(planned.hub.comment(1)) + " --remote origin"
    assert planned.hub.loop.program("bob", *PROGRAM, *shlex.split(command)[1:], at=tmp_path / "clone.git").code == 0


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
