"""Changesets: a merge lands whole or not at all, and what a run leaves by a rule. The numbers are those of the design note."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.changesets.lifecycle import Journal, replay
from gitops.cluster.ledger.changesets import EVENT
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetState,
    Created,
    Drained,
    EventDraft,
    RollingBack,
    RuntimeState,
)
from gitops.cluster.model.ledger import AppliedResource, Status, StatusRecord
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.core.cancel import Cancellation
from gitops.core.errors import ConflictError
from tests.support.cluster import GRAPH, QUERY, SCHEMA, WIDER, Cluster, codes, found, remove_graph
from tests.support.faults import Death, DoAt, EndAt, FailAt, fail

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BORN = "query born($h: String) {\n  match { $p: Person { handle: $h } }\n  return { $p.born }\n}\n"
BARE = "node Person {\n  handle: String @key\n}\n"


def event_types(cluster: Cluster, key: str) -> list[str]:
    return [EVENT.form(event)["type"] for event in cluster.ledger().events(key=key)]


def changeset(outcome: ApplyOutcome) -> Changeset:
    (record,) = outcome.changesets
    return record


def stored(cluster: Cluster, key: str) -> Changeset:
    record = cluster.ledger().changeset(key)
    assert record is not None
    assert replay(cluster.ledger().events(key=key)) == record
    return record


def run_of(cluster: Cluster, record: Changeset) -> dict[str, str]:
    """How the nodes of its run ended, as the ledger says."""
    run = cluster.ledger().run_of(record.key)
    assert run is not None
    return {node.id: node.outcome.value for node in run.nodes}


def add_query(cluster: Cluster) -> None:
    cluster.write("born.gq", BORN)
    cluster.graphs["knowledge"]["born"] = "born.gq"
    cluster.save()


def add_graph(cluster: Cluster, name: str = "extra") -> None:
    cluster.graphs[name] = {}
    cluster.save()


def test_1_a_query_is_staged_made_ready_and_committed(converged: Cluster) -> None:
    add_query(converged)
    before = converged.state.revision
    outcome = converged.apply(atomic=True)
    assert outcome.ok
    assert outcome.converged
    record = changeset(outcome)
    assert event_types(converged, record.key) == [
        "changeset_created",
        "resource_staged",
        "resource_runtime_updated",
        "changeset_prepared",
        "changeset_committed",
        "changeset_drained",
        "changeset_finalized",
    ]
    assert converged.state.revision == before + 1
    assert stored(converged, record.key) == record
    assert record.result is not None
    assert dict(record.result.counts) == {"applied": 1, "failed": 0, "skipped": 0, "deleted": 0}
    assert run_of(converged, record) == {"query.knowledge.born": "done", "barrier.prepared": "done"}


def test_1_a_run_that_lands_what_it_can_records_the_same(converged: Cluster) -> None:
    add_query(converged)
    record = changeset(converged.apply())
    assert stored(converged, record.key).state is ChangesetState.FINALIZED
    assert not record.atomic
    assert run_of(converged, record) == {"query.knowledge.born": "done"}


def test_3_what_is_ready_is_taken_back_when_something_fails(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    add_graph(converged, "beta")
    add_query(converged)
    converged.make_graph("beta", BARE)
    before = converged.state.applied_digest
    outcome = converged.apply(atomic=True)
    record = stored(converged, changeset(outcome).key)
    assert record.state is ChangesetState.FAILED
    assert (record.error or "").startswith("graph.beta: graph_create_failed: ")
    runtimes = {member.address: member.runtime.state for member in record.members}
    assert runtimes["graph.alpha"] is RuntimeState.COMPENSATED
    assert runtimes["graph.beta"] is RuntimeState.FAILED
    run = run_of(converged, record)
    assert (run["graph.alpha"], run["graph.beta"], run["barrier.finalized"]) == ("done", "failed", "blocked")
    assert converged.state.applied_digest == before
    assert "changeset_rolled_back" in codes(outcome)
    assert converged.uri("alpha") not in converged.twin.dump()
    assert not converged.sidecars
    assert outcome.applied_count == 0


def test_4_the_fix_brings_in_what_failed_as_well(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    add_graph(converged, "beta")
    converged.make_graph("beta", BARE)
    failed = changeset(converged.apply(atomic=True))
    del converged.graphs["beta"]
    add_query(converged)
    outcome = converged.apply(atomic=True)
    assert outcome.converged
    assert failed.addresses & changeset(outcome).addresses >= {"graph.alpha", "schema.alpha"}
    assert converged.live("alpha") == SCHEMA


def test_migration_that_only_adds_is_taken_back_with_everything_else(converged: Cluster) -> None:
    converged.write("knowledge.pg", WIDER)
    add_graph(converged, "beta")
    converged.make_graph("beta", BARE)
    outcome = converged.apply(atomic=True)
    assert changeset(outcome).state is ChangesetState.FAILED
    assert converged.live("knowledge") == SCHEMA


def test_graph_that_was_used_meanwhile_is_left_and_listed(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    add_query(converged)

    def use() -> None:
        converged.twin.load(converged.uri("alpha"), 3)
        fail("changeset.commit.before_write")

    outcome = converged.apply(atomic=True, faults=DoAt("changeset.commit.before_write", use))
    record = stored(converged, changeset(outcome).key)
    assert [(o.address, o.reason) for o in record.orphaned] == [("graph.alpha", "it holds 3 rows")]
    assert "changeset_orphaned" in codes(outcome)
    assert converged.twin.read(converged.uri("alpha")).rows == 3


def test_5_what_is_committed_cannot_be_failed(converged: Cluster) -> None:
    add_query(converged)
    record = changeset(converged.apply(atomic=True))
    journal = Journal(lambda: "2026-06-11T09:00:00Z", stored(converged, record.key))
    with pytest.raises(ConflictError) as refused:
        journal.add(RollingBack("a person wants it", None))
    assert refused.value.code == "changeset_state_invalid"


def test_6_a_removal_alone_is_prepared_once(converged: Cluster) -> None:
    add_query(converged)
    converged.converge()
    del converged.graphs["knowledge"]["born"]
    converged.save()
    record = changeset(converged.apply(atomic=True))
    assert not record.members
    assert [removal.address for removal in record.removals] == ["query.knowledge.born"]
    assert stored(converged, record.key).state is ChangesetState.FINALIZED
    assert event_types(converged, record.key).count("changeset_prepared") == 1
    assert "query.knowledge.born" not in converged.state.resources


def test_7_a_delete_without_approval_is_left_out_and_the_rest_lands(converged: Cluster) -> None:
    add_graph(converged, "old")
    converged.converge()
    del converged.graphs["old"]
    add_query(converged)
    record = changeset(converged.apply(atomic=True))
    assert record.state is ChangesetState.FINALIZED
    assert {member.address for member in record.members} == {"query.knowledge.born"}
    assert ("graph.old", "approval_required") in {(each.address, each.reason) for each in record.excluded}
    assert "approval_required" in event_types(converged, record.key)
    assert converged.live("old") == SCHEMA
    assert record.result is not None
    assert not record.result.converged


def test_8_an_approval_does_not_count_after_the_configuration_has_changed(converged: Cluster) -> None:
    add_graph(converged, "old")
    converged.converge()
    del converged.graphs["old"]
    converged.save()
    assert converged.approve("graph.old").ok
    add_query(converged)
    outcome = converged.apply(atomic=True)
    assert "approval_stale" in codes(outcome)
    assert converged.live("old") == SCHEMA


def delete_graph(cluster: Cluster, name: str = "old") -> None:
    """Declare a graph, apply it, and approve its delete."""
    add_graph(cluster, name)
    cluster.converge()
    del cluster.graphs[name]
    cluster.save()
    assert cluster.approve(f"graph.{name}").ok


def test_a_graph_leaves_the_applied_state_before_its_data_are_deleted(converged: Cluster) -> None:
    delete_graph(converged)
    seen: list[bool] = []

    def look() -> None:
        seen.append("graph.old" in converged.state.resources)

    outcome = converged.apply(atomic=True, faults=DoAt("cluster_apply.before_graph_delete", look))
    record = stored(converged, changeset(outcome).key)
    assert outcome.converged
    assert seen == [False]
    assert event_types(converged, record.key)[-4:] == [
        "changeset_drained",
        "resource_removed",
        "resource_removed",
        "changeset_finalized",
    ]
    assert converged.uri("old") not in converged.twin.dump()
    assert not converged.sidecars


def test_20_a_delete_that_fails_is_tried_again_by_the_next_run(converged: Cluster) -> None:
    delete_graph(converged)
    outcome = converged.apply(atomic=True, faults=FailAt("cluster_apply.before_graph_delete"))
    record = stored(converged, changeset(outcome).key)
    assert not outcome.ok
    assert record.state is ChangesetState.DRAINED
    assert record.needs_attention
    assert run_of(converged, record)["graph.old"] == "failed"
    assert "graph.old" not in converged.state.resources
    assert converged.live("old") == SCHEMA
    again = converged.apply(atomic=True)
    assert again.ok
    assert stored(converged, record.key).state is ChangesetState.FINALIZED
    assert not stored(converged, record.key).needs_attention
    assert converged.uri("old") not in converged.twin.dump()
    assert not converged.sidecars


def test_12_a_change_of_another_writer_stays_and_the_changeset_is_taken_back(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    foreign = replace(
        converged.state,
        revision=converged.state.revision + 1,
        resources={**converged.state.resources, Address("query.knowledge.x"): AppliedResource("a" * 64)},
    )

    def write() -> None:
        converged.put_state(foreign)

    outcome = converged.apply(atomic=True, faults=DoAt("changeset.commit.before_write", write))
    record = stored(converged, changeset(outcome).key)
    assert "state_conflict" in codes(outcome)
    assert record.state is ChangesetState.FAILED
    assert converged.state == foreign
    assert converged.uri("alpha") not in converged.twin.dump()


def test_race_that_leaves_the_applied_state_is_run_again(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    status = {Address("graph.knowledge"): StatusRecord(Status.DRIFTED)}

    def write() -> None:
        converged.put_state(replace(converged.state, revision=converged.state.revision + 1, statuses=status))

    outcome = converged.apply(atomic=True, faults=DoAt("changeset.commit.before_write", write))
    assert outcome.converged
    assert converged.state.statuses["graph.knowledge"].status is Status.DRIFTED
    assert converged.live("alpha") == SCHEMA


def rename(cluster: Cluster) -> None:
    """Declare a migration that cannot be taken back, and a query that needs it."""
    cluster.write("knowledge.pg", TALL)
    cluster.write("people.gq", QUERY.replace("Person", "Human"))


def test_pivot_runs_after_everything_else_is_prepared(converged: Cluster) -> None:
    rename(converged)
    add_graph(converged, "alpha")
    outcome = converged.apply(atomic=True)
    record = changeset(outcome)
    assert outcome.converged
    assert converged.live("knowledge") == TALL
    types = event_types(converged, record.key)
    updates = [e.happening for e in converged.ledger().events(key=record.key)]
    pivot = next(i for i, what in enumerate(updates) if getattr(what, "address", "") == "schema.knowledge")
    assert types.index("changeset_prepared") < pivot < types.index("changeset_committed")


def test_failed_pivot_takes_back_what_is_staged(converged: Cluster) -> None:
    rename(converged)
    add_graph(converged, "alpha")
    before = converged.state.applied_digest
    outcome = converged.apply(atomic=True, faults=FailAt("cluster_apply.before_schema_apply"))
    record = changeset(outcome)
    assert (record.state, converged.live("knowledge")) == (ChangesetState.FAILED, SCHEMA)
    assert (record.error or "").startswith("schema.knowledge: ")
    assert converged.uri("alpha") not in converged.twin.dump()
    assert converged.state.applied_digest == before


def test_20_drops_that_fail_are_tried_again(converged: Cluster) -> None:
    converged.write("knowledge.pg", BARE)
    outcome = converged.apply(atomic=True, faults=FailAt("cluster_apply.before_schema_apply"))
    record = stored(converged, changeset(outcome).key)
    assert (record.state, record.needs_attention, converged.live("knowledge")) == (ChangesetState.DRAINED, True, SCHEMA)
    assert converged.apply(atomic=True).ok
    assert stored(converged, record.key).state is ChangesetState.FINALIZED
    assert converged.live("knowledge") == BARE


def dead(cluster: Cluster, point: str) -> None:
    """An atomic run that ends at a point, as a process that is killed."""
    with pytest.raises(Death):
        cluster.apply(atomic=True, faults=EndAt(point))


def test_2_a_second_changeset_waits_for_the_one_that_is_prepared(converged: Cluster) -> None:
    add_query(converged)
    dead(converged, "changeset.commit.before_write")
    ledger = converged.ledger()
    (first,) = ledger.changesets().open
    second = replace(first, key="chs-aaaaaaaaaaaaaaaa")
    with pytest.raises(ConflictError) as refused:
        ledger.begin(ledger.view(), (), None, [EventDraft(second.key, first.created_at, Created(second))])
    assert (refused.value.code, refused.value.path) == ("changeset_active", first.key)


def test_9_a_run_that_died_behind_its_pivot_is_gone_on_with(converged: Cluster) -> None:
    rename(converged)
    add_graph(converged, "alpha")
    dead(converged, "changeset.commit.before_write")
    (open_one,) = converged.ledger().changesets().open
    assert (open_one.state, converged.live("knowledge")) == (ChangesetState.PREPARED, TALL)
    migrated = converged.twin.calls["prepare_migration"]
    outcome = converged.apply(atomic=True)
    assert outcome.converged
    assert changeset(outcome).key == open_one.key
    assert stored(converged, open_one.key).state is ChangesetState.FINALIZED
    assert converged.twin.calls["prepare_migration"] == migrated
    assert not converged.sidecars


def test_10_what_an_interrupted_run_has_staged_is_not_done_again(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    add_query(converged)
    dead(converged, "changeset.commit.before_write")
    made = converged.twin.calls["prepare_create"]
    outcome = converged.apply()
    assert outcome.converged
    assert converged.twin.calls["prepare_create"] == made
    assert {r.node_id: r.outcome.value for r in outcome.results}["graph.alpha"] == "unchanged"
    assert changeset(outcome).atomic


def test_a_run_that_lands_what_it_can_and_died_has_failed(converged: Cluster) -> None:
    add_graph(converged, "alpha")
    with pytest.raises(Death):
        converged.apply(faults=EndAt("cluster_apply.before_graph_create"))
    (open_one,) = converged.ledger().changesets().open
    outcome = converged.apply()
    assert outcome.converged
    assert stored(converged, open_one.key).state is ChangesetState.FAILED
    assert changeset(outcome).key != open_one.key
    assert converged.ledger().changesets().open == ()


def two_pivots(cluster: Cluster) -> None:
    cluster.graphs["second"] = {}
    cluster.save()
    cluster.converge()
    rename(cluster)
    cluster.write("second.pg", TALL)
    add_graph(cluster, "alpha")


def test_two_pivots_are_two_parts_of_one_apply(converged: Cluster) -> None:
    two_pivots(converged)
    outcome = converged.apply(atomic=True)
    assert outcome.converged
    assert [(each.part, each.state.value) for each in outcome.changesets] == [
        ("1/2", "finalized"),
        ("2/2", "finalized"),
    ]
    assert [sum(m.effect == "pivot" for m in each.members) for each in outcome.changesets] == [1, 1]
    assert outcome.applied_count == 5
    assert not converged.plan().plan.changes  # type: ignore[union-attr]


def test_second_part_that_fails_leaves_the_first_one_applied(converged: Cluster) -> None:
    two_pivots(converged)
    converged.make_graph("alpha", BARE)
    outcome = converged.apply(atomic=True)
    assert not outcome.ok
    assert [(each.part, each.state.value) for each in outcome.changesets] == [("1/2", "finalized"), ("2/2", "failed")]
    assert (converged.live("knowledge"), converged.live("second")) == (TALL, SCHEMA)


@pytest.mark.parametrize("size", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["graph", "text", "adds", "pivot"])
def test_failure_of_any_class_leaves_what_is_applied_byte_for_byte(tmp_path: Path, size: int, what: str) -> None:
    cluster = Cluster(tmp_path)
    cluster.graphs["wide"] = {}
    cluster.save()
    cluster.converge()
    for number in range(size):
        cluster.write(f"q{number}.gq", BORN.replace("born(", f"q{number}("))
        cluster.graphs["wide"][f"q{number}"] = f"q{number}.gq"
    cluster.graphs["alpha"] = cluster.graphs["beta"] = {}
    cluster.write("wide.pg", WIDER)
    rename(cluster)
    cluster.save()
    before = cluster.state_bytes
    faults = {
        "graph": FailAt("cluster_apply.before_graph_create"),
        "text": FailAt("ledger.blob.before_write"),
        "adds": FailAt("cluster_apply.before_schema_apply"),
        # The migration that only adds comes before the one that is a pivot.
        "pivot": DoAt("cluster_apply.before_schema_apply", partial(fail, "the second migration"), 2),
    }[what]
    outcome = cluster.apply(atomic=True, faults=faults)
    assert not outcome.ok
    assert changeset(outcome).state is ChangesetState.FAILED
    assert cluster.state_bytes == before
    assert {name: cluster.live(name) for name in ("knowledge", "wide")} == {"knowledge": SCHEMA, "wide": SCHEMA}
    assert not {cluster.uri("alpha"), cluster.uri("beta")} & cluster.twin.dump().keys()
    assert cluster.apply(atomic=True).converged


def kept(cluster: Cluster, point: str) -> Changeset:
    """An atomic apply that fails at a point, and is to keep what it staged."""
    workspace = replace(cluster.workspace(faults=FailAt(point)), atomic=True, keeps_staged=True)
    (record,) = apply(workspace).changesets
    assert record.state is ChangesetState.FAILED
    return record


def test_what_is_staged_stays_and_is_listed(converged: Cluster) -> None:
    converged.graphs["second"] = {"find_person": "people.gq"}
    converged.save()
    before = converged.state.digests()
    record = kept(converged, "changeset.commit.before_write")
    assert converged.live("second") == SCHEMA
    left = {orphan.address: orphan.reason for orphan in record.orphaned}
    assert set(left) == {"graph.second", "schema.second", "query.second.find_person"}
    assert set(left.values()) == {"kept for inspection (on_failure: keep)"}
    assert converged.state.digests() == before
    assert not converged.sidecars
    happened = [event.happening for event in converged.ledger().events(key=record.key)]
    assert [each.on_failure for each in happened if isinstance(each, RollingBack)] == ["keep"]


def test_what_was_kept_is_in_the_way_as_every_orphan_is(converged: Cluster) -> None:
    converged.graphs["second"] = {}
    converged.save()
    kept(converged, "changeset.commit.before_write")
    planned = converged.plan()
    assert [(each.path, each.code) for each in planned.obstacles] == [("graph.second", "graph_exists")]
    assert not planned.interrupted
    assert not converged.apply(atomic=True).ok
    converged.twin.delete_tree(converged.uri("second"))
    assert converged.plan().lands
    assert converged.apply(atomic=True).converged


def test_a_migration_that_was_kept_is_what_the_next_apply_records(converged: Cluster) -> None:
    converged.write("knowledge.pg", WIDER)
    record = kept(converged, "changeset.commit.before_write")
    assert [orphan.address for orphan in record.orphaned] == ["schema.knowledge"]
    assert converged.live("knowledge") == WIDER
    assert converged.plan().lands
    assert converged.apply(atomic=True).converged


def test_what_failed_without_any_effect_is_not_listed(converged: Cluster) -> None:
    converged.graphs["second"] = {}
    converged.save()
    assert kept(converged, "cluster_apply.before_graph_create").orphaned == ()


class Waiting(Cancellation):
    """Lets the time of a cluster pass instead of waiting, or asks the run to stop meanwhile."""

    def __init__(self, cluster: Cluster, *, stop: bool = False) -> None:
        super().__init__()
        self._cluster, self._stop = cluster, stop
        self.waited = 0.0

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        if self._stop:
            self.request()
        else:
            self._cluster.clock.advance(timedelta(seconds=seconds))


def delete(cluster: Cluster, cancel: Cancellation) -> ApplyOutcome:
    workspace = replace(cluster.workspace(), atomic=True, drain_grace=timedelta(seconds=30), cancel=cancel)
    return apply(workspace)


@pytest.fixture
def leaving(converged: Cluster) -> Cluster:
    """A graph is to be deleted, with its approval."""
    remove_graph(converged)
    assert converged.approve(GRAPH).ok
    return converged


def test_data_are_deleted_when_their_time_is_over(leaving: Cluster) -> None:
    waiting = Waiting(leaving)
    outcome = delete(leaving, waiting)
    assert outcome.converged
    assert waiting.waited == 30
    (record,) = outcome.changesets
    (drained,) = (e.happening for e in leaving.ledger().events(key=record.key) if isinstance(e.happening, Drained))
    assert (drained.waited_ms, drained.evidence) == (
        30_000,
        "30 s have passed since the commit; no server is known to serve the cluster",
    )
    assert leaving.uri("knowledge") not in leaving.twin.dump()


def test_a_run_that_is_stopped_meanwhile_leaves_the_rest_to_the_next_one(leaving: Cluster) -> None:
    outcome = delete(leaving, Waiting(leaving, stop=True))
    (record,) = outcome.changesets
    assert record.state is ChangesetState.COMMITTED
    assert found(outcome, "cluster_recovery_pending").path == record.key
    assert "apply_interrupted" in codes(outcome)
    assert GRAPH not in leaving.state.resources
    assert leaving.live("knowledge") == SCHEMA
    # Of the time that is left then, only the rest is waited for.
    leaving.clock.advance(timedelta(seconds=20))
    waiting = Waiting(leaving)
    assert delete(leaving, waiting).converged
    assert waiting.waited == 10
    ended = leaving.ledger().changeset(record.key)
    assert ended is not None
    assert ended.state is ChangesetState.FINALIZED
    assert leaving.uri("knowledge") not in leaving.twin.dump()


def test_a_later_run_that_is_stopped_while_it_waits_changes_nothing(leaving: Cluster) -> None:
    delete(leaving, Waiting(leaving, stop=True))
    outcome = delete(leaving, Waiting(leaving, stop=True))
    assert codes(outcome) == ["apply_interrupted"]
    (record,) = leaving.ledger().changesets().open
    assert record.state is ChangesetState.COMMITTED
    assert leaving.live("knowledge") == SCHEMA
    assert not leaving.locked


def test_a_merge_that_deletes_no_data_waits_for_nothing(converged: Cluster) -> None:
    converged.graphs["knowledge"] = {}
    converged.save()
    waiting = Waiting(converged)
    assert delete(converged, waiting).converged
    assert waiting.waited == 0
