"""`apply --dry-run`: what an apply would do, in its order and with its events, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.dry_run import dry_run
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import NodeOutcome, RunEvent
from gitops.cluster.session.workspace import Stores, Workspace
from tests.support.audited import WIDER as WIDER_NOTES
from tests.support.audited import Life
from tests.support.cluster import OTHER_QUERY, SCHEMA, WIDER, Cluster, codes, found, remove_graph, rulings
from tests.support.faults import Death, EndAt
from tests.support.governed import alone, made, waiting

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BARE = "node Person {\n  handle: String @key\n}\n"
_LEDGER = "acquire release break_lock begin commit retire arm disarm amend put_blob record_approval"
_ENGINE = "prepare_create prepare_migration restore fence delete finish_delete delete_tree"
WRITES = frozenset(f"{_LEDGER} {_ENGINE}".split())


class Reader:
    """A ledger or an engine that refuses every call that writes."""

    def __init__(self, whole: object) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        assert name not in WRITES, f"a dry run called {name}"
        return getattr(self._whole, name)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.graphs["old"] = {}
    made.save()
    made.converge()
    return made


def rehearse(workspace: Workspace, events: list[RunEvent] | None = None) -> ApplyOutcome:
    """A dry run with stores that cannot be written."""

    def opened(storage: str | None) -> Stores:
        stores = workspace.open_stores(storage)
        return replace(stores, ledger=Reader(stores.ledger), engine=Reader(stores.engine))

    heard = [] if events is None else events
    return dry_run(replace(workspace, open_stores=opened, on_event=heard.append))


def look(cluster: Cluster) -> object:
    """Everything that a run could change."""
    files = {path: path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()}
    return files, {key: cluster.stored(key) for key in cluster.files()}, cluster.twin.dump()


def trace(events: list[RunEvent]) -> list[tuple[object, ...]]:
    """What happened, without times, and without how nodes ended and the words for it."""
    left_out = ("waited_ms", "duration_ms", "outcome", "outputs", "counts", "status", "message", "diagnostics")
    return [(e.seq, e.type, e.node, {k: v for k, v in e.facts.items() if k not in left_out}) for e in events]


def change_everything(cluster: Cluster) -> None:
    """A change of each class: `old` goes, `new` comes, a migration, a text, and a policy."""
    remove_graph(cluster, "old")
    cluster.graphs["new"] = {}
    cluster.policies["staff"] = ["new"]
    cluster.write("knowledge.pg", WIDER)
    cluster.write("people.gq", OTHER_QUERY)
    cluster.save()
    assert cluster.approve("graph.old").ok


def compared(cluster: Cluster, *, atomic: bool) -> tuple[ApplyOutcome, ApplyOutcome]:
    """The outcomes of a dry run, which touches nothing, and of an apply after it, which has the same events."""
    before, dry, real = look(cluster), list[RunEvent](), list[RunEvent]()
    rehearsed = rehearse(replace(cluster.workspace(), atomic=atomic), dry)
    assert look(cluster) == before
    carried_out = apply(replace(cluster.workspace(), atomic=atomic, on_event=real.append))
    assert trace(dry) == trace(real)
    assert rehearsed.dry_run is not None
    assert [node.id for node in rehearsed.dry_run] == [e.node for e in real if e.type == "node_started"]
    assert rulings(rehearsed.changes) == rulings(carried_out.changes)
    assert (rehearsed.ok, rehearsed.converged) == (carried_out.ok, carried_out.converged)
    assert not rehearsed.state_written
    return rehearsed, carried_out


@pytest.mark.parametrize("atomic", [False, True])
def test_30_order_and_events_are_those_of_the_real_run_and_nothing_is_touched(cluster: Cluster, atomic: bool) -> None:
    change_everything(cluster)
    rehearsed, _ = compared(cluster, atomic=atomic)
    assert {result.outcome for result in rehearsed.results} == {NodeOutcome.DRY_RUN}
    assert rehearsed.converged


def test_the_last_event_says_that_it_was_a_dry_run(cluster: Cluster) -> None:
    change_everything(cluster)
    events: list[RunEvent] = []
    outcome = rehearse(replace(cluster.workspace(), workers=4), events)
    ends = [event for event in events if event.type == "node_finished"]
    assert {event.facts["outcome"] for event in ends} == {NodeOutcome.DRY_RUN}
    assert (events[0].facts["limit"], events[-1].facts["status"]) == (4, "dry_run")
    assert {node.id for node in outcome.dry_run or ()} == {event.node for event in ends}


@pytest.mark.parametrize("atomic", [False, True])
def test_a_closed_gate_is_shown_as_an_apply_shows_it(cluster: Cluster, atomic: bool) -> None:
    remove_graph(cluster, "old")
    rehearsed, carried_out = compared(cluster, atomic=atomic)
    assert rulings(rehearsed.changes)["graph.old"] == "delete blocked:approval_required"
    assert codes(rehearsed) == codes(carried_out)
    assert all(node.kind == "barrier" for node in rehearsed.dry_run or ())


@pytest.mark.parametrize("atomic", [False, True])
def test_what_a_graph_refuses_fails_as_it_does_in_an_apply(cluster: Cluster, atomic: bool) -> None:
    cluster.graphs |= {"alpha": {}, "beta": {"find_person": "people.gq"}}
    cluster.save()
    cluster.make_graph("beta", BARE)
    rehearsed, carried_out = compared(cluster, atomic=atomic)
    assert not rehearsed.ok
    assert found(rehearsed, "graph_create_failed").path == found(carried_out, "graph_create_failed").path
    ended = {result.node_id: result.outcome for result in rehearsed.results}
    assert (ended["graph.beta"], ended["graph.alpha"]) == (NodeOutcome.FAILED, NodeOutcome.DRY_RUN)
    assert ended["query.beta.find_person"] is NodeOutcome.BLOCKED


def test_a_plan_in_parts_is_carried_out_in_the_same_parts(cluster: Cluster) -> None:
    cluster.write("knowledge.pg", TALL)
    cluster.write("old.pg", TALL)
    cluster.write("people.gq", OTHER_QUERY.replace("Person", "Human"))
    cluster.graphs["alpha"] = {}
    cluster.save()
    rehearsed, carried_out = compared(cluster, atomic=True)
    assert len(carried_out.changesets) == 2
    assert rehearsed.converged


@pytest.mark.parametrize("point", ["changeset.commit.before_write", "changeset.commit.after_write"])
def test_what_an_interrupted_run_left_is_foreseen(cluster: Cluster, point: str) -> None:
    change_everything(cluster)
    with pytest.raises(Death):
        cluster.apply(atomic=True, faults=EndAt(point))
    rehearsed, _ = compared(cluster, atomic=True)
    assert "cluster_recovery_pending" in codes(rehearsed)


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_dead_run_that_lands_what_it_can_is_settled_first(cluster: Cluster, point: str) -> None:
    cluster.graphs["alpha"] = {}
    cluster.save()
    with pytest.raises(Death):
        cluster.apply(faults=EndAt(f"cluster_apply.{point}_graph_create"))
    compared(cluster, atomic=False)


def test_the_ledger_is_read_as_it_is_while_another_command_holds_the_lock(cluster: Cluster) -> None:
    nodes = rehearse(cluster.workspace()).dry_run
    cluster.hold_lock()
    change = look(cluster)
    outcome = rehearse(cluster.workspace())
    assert (outcome.ok, outcome.dry_run, outcome.observations.held.held) == (True, nodes, True)
    assert "gitops force-unlock 01JZ0000000000000000000CCC" in found(outcome, "state_lock_held").message
    assert look(cluster) == change


def refs(life: Life) -> object:
    return life.git.refs("refs/"), life.engine.dump()


def governed(life: Life, act: Callable[[], object] = lambda: None) -> tuple[ApplyOutcome, ApplyOutcome]:
    """A dry run and an apply on a branch ledger."""
    act()
    before, dry, real = refs(life), list[RunEvent](), list[RunEvent]()
    rehearsed = rehearse(replace(life.workspace(), atomic=True), dry)
    assert refs(life) == before
    carried_out = apply(replace(life.workspace(), atomic=True, on_event=real.append))
    assert trace(dry) == trace(real)
    assert rulings(rehearsed.changes) == rulings(carried_out.changes)
    assert [d.code for d in rehearsed.diagnostics] == [d.code for d in carried_out.diagnostics]
    return rehearsed, carried_out


def test_a_ledger_branch_is_not_written(tmp_path: Path) -> None:
    life = waiting(tmp_path)
    rehearsed, _ = governed(life)
    assert rulings(rehearsed.changes)["graph.legacy"] == "delete blocked:approval_required"
    rehearsed, _ = governed(life, lambda: life.approve("ada", "graph.legacy"))
    assert (rehearsed.converged, rehearsed.entry_id) == (True, None)


def test_an_open_debt_ends_a_dry_run_as_it_ends_an_apply(tmp_path: Path) -> None:
    life = waiting(tmp_path)
    made(alone(life))
    assert life.apply().ok
    life.change("dora", {"cluster/notes.pg": WIDER_NOTES})
    rehearsed, carried_out = governed(life)
    assert (rehearsed.ok, carried_out.ok) == (False, False)
    assert "debt_open" in codes(rehearsed)
