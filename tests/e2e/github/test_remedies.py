"""The remedies that comments print, copied and run: a commit whose author is unknown gets one."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest

from tests.e2e.github.stories import good
from tests.support.forges.hub import Hub, token_of
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY

pytestmark = pytest.mark.e2e


def _printed(hub: Hub, number: int, program: str) -> list[str]:
    """The command of the comment that begins so, as words."""
    (found,) = set(re.findall(rf"`({program} [^`]+)`", html.unescape(hub.comment(number))))
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
    hub.loop.program("carol", *_printed(hub, number, "git rebase"), at=clone)
    hub.loop.program("carol", "git", "push", "-q", "--force", at=clone)
    runner.settle()
    hub.approve("bob", "graph.legacy", request=number)
    hub.say("carol", number, "/gitops plan")
    good(runner)
    hub.merge("carol", number)
    good(runner)
    assert not hub.loop.graph("legacy").exists()


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
