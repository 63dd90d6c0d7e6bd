"""Whose work a change is, where the commits do not say it: who pushed, and who wrote what was squashed. Only the forge knows."""

from __future__ import annotations

import pytest

from tests.support.github.hub import Hub
from tests.support.github.runner import Runner
from tests.support.loop import DELETE_LEGACY, MAIN

pytestmark = pytest.mark.e2e

UNKNOWN = "the adapter does not ask GitHub for the activities of a branch, which name who pushed"

MANY = pytest.mark.xfail(strict=True, reason="only the requests of the newest fifty commits are asked for")


def _by_nobody(hub: Hub, *parents: str, message: str = "Not mine\n") -> str:
    """A commit that deletes a graph and names somebody who may nothing anyway."""
    return hub.loop.commit("mallory", DELETE_LEGACY, *(parents or (hub.tip(),)), message=message)


def test_who_pushes_to_the_target_branch_is_an_author(hub: Hub, runner: Runner) -> None:
    hub.world.move(MAIN, _by_nobody(hub), "alice")
    runner.settle()
    own = hub.approve("alice", "graph.legacy")
    assert [d.code for d in own.diagnostics if d.severity == "error"] == ["approval_self"]
    assert runner.tick("sweep").code == 3
    assert hub.loop.graph("legacy").exists()


@pytest.mark.xfail(strict=True, reason=UNKNOWN)
def test_so_is_who_pushes_there_without_a_run(hub: Hub, runner: Runner) -> None:
    hub.world.move(MAIN, _by_nobody(hub, message="Not mine [skip ci]\n"), "alice")
    assert runner.settle() == []
    hub.approve("alice", "graph.legacy")
    runner.tick("sweep")
    assert hub.loop.graph("legacy").exists()


@pytest.mark.xfail(strict=True, reason=UNKNOWN)
def test_so_is_who_pushes_to_the_request_of_somebody_else(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.world.move("refs/heads/topic", _by_nobody(hub, pull.head), "alice")
    runner.settle()
    hub.approve("alice", "graph.legacy", request=pull.number)
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("since", [0, pytest.param(55, marks=MANY)])
def test_who_is_hidden_by_a_squash_stays_an_author(hub: Hub, runner: Runner, since: int) -> None:
    """Alice's commit lands in bob's request, however many commits have come on top of it by the time of the apply."""
    mine = hub.loop.commit("alice", DELETE_LEGACY, hub.tip(), message="Mine\n")
    hub.world.move("refs/heads/topic", hub.loop.commit("bob", {"cluster/README.md": b"His.\n"}, mine), "bob")
    pull = hub.world.open_pull("bob", "topic")
    hub.merge("carol", pull.number, "squash", title="Topic [skip ci]")
    at = hub.tip()
    for number in range(since):
        at = hub.loop.commit("bob", {"README.md": b"%d" % number}, at, message="More [skip ci]\n")
    hub.world.move(MAIN, at, "bob")
    runner.cancel()
    hub.approve("alice", "graph.legacy")
    assert "approval_self" in runner.tick("sweep").text
    assert hub.loop.graph("legacy").exists()
