"""The approve command of a comment, copied and run by a person who has a clone and no token of the forge."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.e2e.github.conftest import WithConfig
from tests.e2e.github.stories import good, retire
from tests.support.forges.hub import Hub, token_of
from tests.support.forges.runner import Runner
from tests.support.loop import APPROVALS, CONFIG, Done, printed_command
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e

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
