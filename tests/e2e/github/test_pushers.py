"""Whose work a change is, where the commits do not say it: who pushed, and who wrote what was squashed. Only the forge knows."""

from __future__ import annotations

import pytest

from gitops.bot import apply_clusters
from gitops.repository import authors
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, MAIN

pytestmark = pytest.mark.e2e


def _by_nobody(hub: Hub, *parents: str, message: str = "Not mine\n") -> str:
    """A commit that deletes a graph and names somebody who may nothing anyway."""
    return hub.loop.commit("mallory", DELETE_LEGACY, *(parents or (hub.tip(),)), message=message)


def test_so_is_who_pushes_there_without_a_run(hub: Hub, runner: Runner) -> None:
    hub.world.move(MAIN, _by_nobody(hub, message="Not mine [skip ci]\n"), "alice")
    assert runner.settle() == []
    hub.approve("alice", "graph.legacy")
    runner.tick("sweep")
    assert hub.loop.graph("legacy").exists()


def test_so_is_who_pushes_to_the_request_of_somebody_else(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.world.move("refs/heads/topic", _by_nobody(hub, pull.head), "alice")
    runner.settle()
    hub.approve("alice", "graph.legacy", request=pull.number)
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("since", [0, 55])
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


def test_who_merged_is_not_taken_for_the_author_of_what_nobody_was_asked_about(
    hub: Hub, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forge names who pressed the button; whose work it was is in the request, and that is too far back."""
    for module in (apply_clusters, authors):
        monkeypatch.setattr(module, "MOST_ASKED", 3)
    mine = hub.loop.commit("alice", DELETE_LEGACY, hub.tip(), message="Mine\n")
    hub.world.move("refs/heads/topic", hub.loop.commit("bob", {"cluster/README.md": b"His.\n"}, mine), "bob")
    hub.merge("carol", hub.world.open_pull("bob", "topic").number, "squash", title="Topic [skip ci]")
    # All that waits is brought in at once, so that there is more of it than is asked about.
    config = (hub.loop.file(hub.tip(), "gitops.yaml") or b"") + b"apply: {queue: coalesce}\n"
    at = hub.loop.commit("bob", {"gitops.yaml": config}, message="More [skip ci]\n")
    for number in range(3):
        at = hub.loop.commit("bob", {"cluster/README.md": b"%d" % number}, at, message="More [skip ci]\n")
    hub.world.move(MAIN, at, "bob")
    runner.cancel()
    hub.approve("alice", "graph.legacy")
    assert "approval_authors_unknown" in runner.tick("sweep").text
    assert hub.loop.graph("legacy").exists()


def test_so_is_who_pushes_to_a_request_from_a_fork(hub: Hub, runner: Runner) -> None:
    pull = hub.propose_from_fork("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.push_to_fork("alice", "bob", "topic", DELETE_LEGACY, pull.head)
    runner.settle()
    hub.approve("alice", "graph.legacy", request=pull.number)
    hub.merge("carol", pull.number, "squash")
    runner.settle()
    assert "approval_self" in hub.comment(pull.number)
    assert hub.loop.graph("legacy").exists()


def test_a_list_of_pushes_with_a_gap_keeps_gates_shut(hub: Hub, runner: Runner) -> None:
    """The plan says so before the merge, and how it goes on; nothing else of the change is held up."""
    pull = hub.propose("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.world.move("refs/heads/topic", _by_nobody(hub, pull.head), "alice")
    hub.world.activities = [a for a in hub.world.activities if a.after != pull.head]
    assert hub.approve("carol", "graph.legacy", request=pull.number).ok
    runner.settle()
    assert "approval_authors_unknown" in hub.comment(pull.number)
    assert hub.status(pull.head, "plan").startswith("failure")
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()
    assert hub.loop.graph("notes").exists()


def test_a_push_that_is_too_new_for_the_list_waits(hub: Hub, runner: Runner) -> None:
    hub.push("bob", "main", {"README.md": b"Listed.\n"})
    runner.settle()
    known = list(hub.world.activities)
    hub.world.move(MAIN, _by_nobody(hub, message="Not mine [skip ci]\n"), "bob")
    full, hub.world.activities = hub.world.activities, known
    assert hub.approve("alice", "graph.legacy").ok
    early = runner.tick("sweep")
    assert "the forge does not list the push" in early.text
    assert [d.statuses[-1]["description"] for d in hub.world.deployments.values()][-1] == "pushers_pending"
    assert hub.loop.graph("legacy").exists()
    hub.world.activities = full
    runner.tick("sweep")
    assert not hub.loop.graph("legacy").exists()


def test_the_forge_is_asked_who_pushed_only_if_that_matters(hub: Hub, runner: Runner) -> None:
    """Where a gate is, because the plan names who may approve; once for a plan, and the budget of a plan is kept."""
    hub.world.habits.be_prompt()
    hub.propose("alice", "words", {"cluster/README.md": b"Words.\n"})
    runner.settle()
    assert not any("/activity" in call for call in hub.calls())
    pull = hub.propose("alice", "topic", DELETE_LEGACY)
    runner.settle()
    assert sum("/activity" in call for call in hub.calls()) == 1
    assert hub.approve("bob", "graph.legacy", request=pull.number).ok
    again = hub.loop.commit("alice", {"README.md": b"More.\n"}, pull.head)
    hub.calls()
    hub.world.move("refs/heads/topic", again, "alice")
    runner.settle()
    made = [call for call in hub.calls() if "/labels" not in call]
    assert sum("/activity" in call for call in made) == 1
    # One more than a plan has that no approval opens.
    assert len(made) <= 7, made
