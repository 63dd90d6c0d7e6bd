"""A merge queue: a group lands only if it does what was reviewed."""

from __future__ import annotations

import pytest

from gitops.bot.dispatch import run_verb
from gitops.forge.events import ManualEvent, QueueEvent
from gitops.git.port import NewCommit, Person
from gitops.repository.results import RunResult
from tests.support.bot_stage import QUERY, Stage, said, verdict
from tests.support.loop import DELETE_LEGACY, MAIN, Loop

pytestmark = pytest.mark.e2e

SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


@pytest.fixture
def stage(known: Loop) -> Stage:
    return Stage(known)


def _planned(stage: Stage, number: int) -> None:
    list(run_verb(stage.bot(), "plan", ManualEvent((("request", str(number)),))))


def _group(stage: Stage, base: str, number: int) -> QueueEvent:
    """What a queue builds: the request squashed on top of `base`."""
    store = stage.loop.store
    tree = store.merge(base, stage.loop.request(number).head).tree
    assert tree is not None
    queue = Person("queue", "queue@forge.example", 1)
    head = store.write_commit(NewCommit(tree, (base,), queue, f"Merge request {number}\n"), signing_key=None)
    return QueueEvent(head, base, MAIN)


def test_an_unrelated_commit_in_front_changes_nothing(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _planned(stage, 1)
    base = stage.loop.commit("carol", {"README.md": b"Elsewhere.\n"})
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE


def test_a_related_commit_in_front_makes_another_plan(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _planned(stage, 1)
    base = stage.loop.commit("carol", {"cluster/legacy.pg": SCHEMA})
    event = _group(stage, base, 1)
    notes = stage.handle(event)
    assert verdict(notes) is RunResult.PROBLEMS
    assert "queue_plan_differs" in said(notes)
    assert stage.loop.status(event.head, "plan") == "failure: 1 error"
    # The one in front has landed and is applied; the new plan was looked at.
    stage.loop.move(MAIN, base)
    _planned(stage, 1)
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE


def test_a_missing_approval_keeps_a_group_out(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    _planned(stage, 1)
    event = _group(stage, stage.loop.tip(), 1)
    assert verdict(stage.handle(event)) is RunResult.WAITS
    assert stage.loop.status(event.head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    assert verdict(stage.handle(event)) is RunResult.DONE


def test_a_group_of_nobody_known_does_not_pass(stage: Stage) -> None:
    base = stage.loop.tip()
    head = stage.loop.commit("mallory", {"cluster/notes.gq": QUERY})
    notes = stage.handle(QueueEvent(head, base, MAIN))
    assert verdict(notes) is RunResult.PROBLEMS
    assert "queue_plan_differs" in said(notes)


def test_a_plan_that_nobody_kept_is_made_again(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    base = stage.loop.tip()
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE
    other = stage.loop.commit("carol", {"cluster/legacy.pg": SCHEMA})
    assert verdict(stage.handle(_group(stage, other, 1))) is RunResult.PROBLEMS


def test_a_group_that_leaves_the_cluster_alone_passes(stage: Stage) -> None:
    stage.propose("alice", "elsewhere", {"README.md": b"Elsewhere.\n"})
    event = _group(stage, stage.loop.tip(), 1)
    assert verdict(stage.handle(event)) is RunResult.DONE
    assert stage.loop.status(event.head, "plan") == "success: does not touch the cluster"


def test_a_group_waits_for_the_forges_own_verdict(judged: Loop) -> None:
    stage = Stage(judged)
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _planned(stage, 1)
    assert verdict(stage.handle(_group(stage, stage.loop.tip(), 1))) is RunResult.WAITS
