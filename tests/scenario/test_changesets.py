"""Changesets: a merge lands whole or not at all. The numbers are those of the scenarios of the design note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.changesets.lifecycle import Journal, replay
from gitops.cluster.ledger.changesets import EVENT
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Changeset, ChangesetState, Created, EventDraft, RollingBack, RuntimeState
from gitops.cluster.model.ledger import AppliedResource, Status, StatusRecord
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.core.errors import ConflictError
from tests.support.cluster import QUERY, SCHEMA, WIDER, Cluster, DoAt, FailAt, codes

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BORN = "query born($h: String) {\n  match { $p: Person { handle: $h } }\n  return { $p.born }\n}\n"
BARE = "node Person {\n  handle: String @key\n}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.converge()
    return made


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


def test_1_a_query_is_staged_made_ready_and_committed(cluster: Cluster) -> None:
    add_query(cluster)
    before = cluster.state.revision
    outcome = cluster.apply(atomic=True)
    assert outcome.ok
    assert outcome.converged
    record = changeset(outcome)
    assert event_types(cluster, record.key) == [
        "changeset_created",
        "resource_staged",
        "resource_runtime_updated",
        "changeset_prepared",
        "changeset_committed",
        "changeset_drained",
        "changeset_finalized",
    ]
    assert cluster.state.revision == before + 1
    assert stored(cluster, record.key) == record
    assert record.result is not None
    assert dict(record.result.counts) == {"applied": 1, "failed": 0, "skipped": 0, "deleted": 0}
    assert run_of(cluster, record) == {"query.knowledge.born": "done", "barrier.prepared": "done"}


def test_1_a_run_that_lands_what_it_can_records_the_same(cluster: Cluster) -> None:
    add_query(cluster)
    record = changeset(cluster.apply())
    assert stored(cluster, record.key).state is ChangesetState.FINALIZED
    assert not record.atomic
    assert run_of(cluster, record) == {"query.knowledge.born": "done"}


def test_3_what_is_ready_is_taken_back_when_something_fails(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    add_graph(cluster, "beta")
    add_query(cluster)
    cluster.make_graph("beta", BARE)
    before = cluster.state.applied_digest
    outcome = cluster.apply(atomic=True)
    record = stored(cluster, changeset(outcome).key)
    assert record.state is ChangesetState.FAILED
    assert (record.error or "").startswith("graph.beta: graph_create_failed: ")
    runtimes = {member.address: member.runtime.state for member in record.members}
    assert runtimes["graph.alpha"] is RuntimeState.COMPENSATED
    assert runtimes["graph.beta"] is RuntimeState.FAILED
    run = run_of(cluster, record)
    assert (run["graph.alpha"], run["graph.beta"], run["barrier.finalized"]) == ("done", "failed", "blocked")
    assert cluster.state.applied_digest == before
    assert "changeset_rolled_back" in codes(outcome)
    assert cluster.uri("alpha") not in cluster.twin.dump()
    assert not cluster.sidecars
    assert outcome.applied_count == 0


def test_4_the_fix_brings_in_what_failed_as_well(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    add_graph(cluster, "beta")
    cluster.make_graph("beta", BARE)
    failed = changeset(cluster.apply(atomic=True))
    del cluster.graphs["beta"]
    add_query(cluster)
    outcome = cluster.apply(atomic=True)
    assert outcome.converged
    assert failed.addresses & changeset(outcome).addresses >= {"graph.alpha", "schema.alpha"}
    assert cluster.live("alpha") == SCHEMA


def test_migration_that_only_adds_is_taken_back_with_everything_else(cluster: Cluster) -> None:
    cluster.write("knowledge.pg", WIDER)
    add_graph(cluster, "beta")
    cluster.make_graph("beta", BARE)
    outcome = cluster.apply(atomic=True)
    assert changeset(outcome).state is ChangesetState.FAILED
    assert cluster.live("knowledge") == SCHEMA


def test_graph_that_was_used_meanwhile_is_left_and_listed(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    add_query(cluster)

    class Use:
        def reach(self, point: str) -> None:
            if point == "changeset.commit.before_write":
                cluster.twin.load(cluster.uri("alpha"), 3)
                FailAt(point).reach(point)

    outcome = cluster.apply(atomic=True, faults=Use())
    record = stored(cluster, changeset(outcome).key)
    assert [(o.address, o.reason) for o in record.orphaned] == [("graph.alpha", "it holds 3 rows")]
    assert "changeset_orphaned" in codes(outcome)
    assert cluster.twin.read(cluster.uri("alpha")).rows == 3


def test_5_what_is_committed_cannot_be_failed(cluster: Cluster) -> None:
    add_query(cluster)
    record = changeset(cluster.apply(atomic=True))
    journal = Journal(lambda: "2026-06-11T09:00:00Z", stored(cluster, record.key))
    with pytest.raises(ConflictError) as refused:
        journal.add(RollingBack("a person wants it", None))
    assert refused.value.code == "changeset_state_invalid"


def test_6_a_removal_alone_is_prepared_once(cluster: Cluster) -> None:
    add_query(cluster)
    cluster.converge()
    del cluster.graphs["knowledge"]["born"]
    cluster.save()
    record = changeset(cluster.apply(atomic=True))
    assert not record.members
    assert [removal.address for removal in record.removals] == ["query.knowledge.born"]
    assert stored(cluster, record.key).state is ChangesetState.FINALIZED
    assert event_types(cluster, record.key).count("changeset_prepared") == 1
    assert "query.knowledge.born" not in cluster.state.resources


def test_7_a_delete_without_approval_is_left_out_and_the_rest_lands(cluster: Cluster) -> None:
    add_graph(cluster, "old")
    cluster.converge()
    del cluster.graphs["old"]
    add_query(cluster)
    record = changeset(cluster.apply(atomic=True))
    assert record.state is ChangesetState.FINALIZED
    assert {member.address for member in record.members} == {"query.knowledge.born"}
    assert ("graph.old", "approval_required") in {(each.address, each.reason) for each in record.excluded}
    assert "approval_required" in event_types(cluster, record.key)
    assert cluster.live("old") == SCHEMA
    assert record.result is not None
    assert not record.result.converged


def test_8_an_approval_does_not_count_after_the_configuration_has_changed(cluster: Cluster) -> None:
    add_graph(cluster, "old")
    cluster.converge()
    del cluster.graphs["old"]
    cluster.save()
    assert cluster.approve("graph.old").ok
    add_query(cluster)
    outcome = cluster.apply(atomic=True)
    assert "approval_stale" in codes(outcome)
    assert cluster.live("old") == SCHEMA


def delete_graph(cluster: Cluster, name: str = "old") -> None:
    """Declare a graph, apply it, and approve its delete."""
    add_graph(cluster, name)
    cluster.converge()
    del cluster.graphs[name]
    cluster.save()
    assert cluster.approve(f"graph.{name}").ok


def test_a_graph_leaves_the_applied_state_before_its_data_are_deleted(cluster: Cluster) -> None:
    delete_graph(cluster)
    seen: list[bool] = []

    class Look:
        def reach(self, point: str) -> None:
            if point == "cluster_apply.before_graph_delete":
                seen.append("graph.old" in cluster.state.resources)

    outcome = cluster.apply(atomic=True, faults=Look())
    record = stored(cluster, changeset(outcome).key)
    assert outcome.converged
    assert seen == [False]
    assert event_types(cluster, record.key)[-4:] == [
        "changeset_drained",
        "resource_removed",
        "resource_removed",
        "changeset_finalized",
    ]
    assert cluster.uri("old") not in cluster.twin.dump()
    assert not cluster.sidecars


def test_20_a_delete_that_fails_is_tried_again_by_the_next_run(cluster: Cluster) -> None:
    delete_graph(cluster)
    outcome = cluster.apply(atomic=True, faults=FailAt("cluster_apply.before_graph_delete"))
    record = stored(cluster, changeset(outcome).key)
    assert not outcome.ok
    assert record.state is ChangesetState.DRAINED
    assert record.needs_attention
    assert run_of(cluster, record)["graph.old"] == "failed"
    assert "graph.old" not in cluster.state.resources
    assert cluster.live("old") == SCHEMA
    again = cluster.apply(atomic=True)
    assert again.ok
    assert stored(cluster, record.key).state is ChangesetState.FINALIZED
    assert not stored(cluster, record.key).needs_attention
    assert cluster.uri("old") not in cluster.twin.dump()
    assert not cluster.sidecars


def test_12_a_change_of_another_writer_stays_and_the_changeset_is_taken_back(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    foreign = replace(
        cluster.state,
        revision=cluster.state.revision + 1,
        resources={**cluster.state.resources, Address("query.knowledge.x"): AppliedResource("a" * 64)},
    )

    def write() -> None:
        cluster.put_state(foreign)

    outcome = cluster.apply(atomic=True, faults=DoAt("changeset.commit.before_write", write))
    record = stored(cluster, changeset(outcome).key)
    assert "state_conflict" in codes(outcome)
    assert record.state is ChangesetState.FAILED
    assert cluster.state == foreign
    assert cluster.uri("alpha") not in cluster.twin.dump()


def test_race_that_leaves_the_applied_state_is_run_again(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    status = {Address("graph.knowledge"): StatusRecord(Status.DRIFTED)}

    def write() -> None:
        cluster.put_state(replace(cluster.state, revision=cluster.state.revision + 1, statuses=status))

    outcome = cluster.apply(atomic=True, faults=DoAt("changeset.commit.before_write", write))
    assert outcome.converged
    assert cluster.state.statuses["graph.knowledge"].status is Status.DRIFTED
    assert cluster.live("alpha") == SCHEMA


def rename(cluster: Cluster) -> None:
    """Declare a migration that cannot be taken back, and a query that needs it."""
    cluster.write("knowledge.pg", TALL)
    cluster.write("people.gq", QUERY.replace("Person", "Human"))


def test_pivot_runs_after_everything_else_is_prepared(cluster: Cluster) -> None:
    rename(cluster)
    add_graph(cluster, "alpha")
    outcome = cluster.apply(atomic=True)
    record = changeset(outcome)
    assert outcome.converged
    assert cluster.live("knowledge") == TALL
    types = event_types(cluster, record.key)
    updates = [e.happening for e in cluster.ledger().events(key=record.key)]
    pivot = next(i for i, what in enumerate(updates) if getattr(what, "address", "") == "schema.knowledge")
    assert types.index("changeset_prepared") < pivot < types.index("changeset_committed")


def test_failed_pivot_takes_back_what_is_staged(cluster: Cluster) -> None:
    rename(cluster)
    add_graph(cluster, "alpha")
    before = cluster.state.applied_digest
    outcome = cluster.apply(atomic=True, faults=FailAt("cluster_apply.before_schema_apply"))
    record = changeset(outcome)
    assert (record.state, cluster.live("knowledge")) == (ChangesetState.FAILED, SCHEMA)
    assert (record.error or "").startswith("schema.knowledge: ")
    assert cluster.uri("alpha") not in cluster.twin.dump()
    assert cluster.state.applied_digest == before


def test_20_drops_that_fail_are_tried_again(cluster: Cluster) -> None:
    cluster.write("knowledge.pg", BARE)
    outcome = cluster.apply(atomic=True, faults=FailAt("cluster_apply.before_schema_apply"))
    record = stored(cluster, changeset(outcome).key)
    assert (record.state, record.needs_attention, cluster.live("knowledge")) == (ChangesetState.DRAINED, True, SCHEMA)
    assert cluster.apply(atomic=True).ok
    assert stored(cluster, record.key).state is ChangesetState.FINALIZED
    assert cluster.live("knowledge") == BARE


class Death(BaseException):
    """The end of a process."""


def die() -> None:
    raise Death


def dead(cluster: Cluster, point: str) -> None:
    """An atomic run that ends at a point, as a process that is killed."""
    with pytest.raises(Death):
        cluster.apply(atomic=True, faults=DoAt(point, die))


def test_2_a_second_changeset_waits_for_the_one_that_is_prepared(cluster: Cluster) -> None:
    add_query(cluster)
    dead(cluster, "changeset.commit.before_write")
    ledger = cluster.ledger()
    (first,) = ledger.changesets().open
    second = replace(first, key="chs-aaaaaaaaaaaaaaaa")
    with pytest.raises(ConflictError) as refused:
        ledger.begin(ledger.view(), (), None, [EventDraft(second.key, first.created_at, Created(second))])
    assert (refused.value.code, refused.value.path) == ("changeset_active", first.key)


def test_9_a_run_that_died_behind_its_pivot_is_gone_on_with(cluster: Cluster) -> None:
    rename(cluster)
    add_graph(cluster, "alpha")
    dead(cluster, "changeset.commit.before_write")
    (open_one,) = cluster.ledger().changesets().open
    assert (open_one.state, cluster.live("knowledge")) == (ChangesetState.PREPARED, TALL)
    migrated = cluster.twin.calls["prepare_migration"]
    outcome = cluster.apply(atomic=True)
    assert outcome.converged
    assert changeset(outcome).key == open_one.key
    assert stored(cluster, open_one.key).state is ChangesetState.FINALIZED
    assert cluster.twin.calls["prepare_migration"] == migrated
    assert not cluster.sidecars


def test_10_what_an_interrupted_run_has_staged_is_not_done_again(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    add_query(cluster)
    dead(cluster, "changeset.commit.before_write")
    made = cluster.twin.calls["prepare_create"]
    outcome = cluster.apply()
    assert outcome.converged
    assert cluster.twin.calls["prepare_create"] == made
    assert {r.node_id: r.outcome.value for r in outcome.results}["graph.alpha"] == "unchanged"
    assert changeset(outcome).atomic


def test_a_run_that_lands_what_it_can_and_died_has_failed(cluster: Cluster) -> None:
    add_graph(cluster, "alpha")
    with pytest.raises(Death):
        cluster.apply(faults=DoAt("cluster_apply.before_graph_create", die))
    (open_one,) = cluster.ledger().changesets().open
    outcome = cluster.apply()
    assert outcome.converged
    assert stored(cluster, open_one.key).state is ChangesetState.FAILED
    assert changeset(outcome).key != open_one.key
    assert cluster.ledger().changesets().open == ()


def two_pivots(cluster: Cluster) -> None:
    cluster.graphs["second"] = {}
    cluster.save()
    cluster.converge()
    rename(cluster)
    cluster.write("second.pg", TALL)
    add_graph(cluster, "alpha")


def test_two_pivots_are_two_parts_of_one_apply(cluster: Cluster) -> None:
    two_pivots(cluster)
    outcome = cluster.apply(atomic=True)
    assert outcome.converged
    assert [(each.part, each.state.value) for each in outcome.changesets] == [
        ("1/2", "finalized"),
        ("2/2", "finalized"),
    ]
    assert [sum(m.effect == "pivot" for m in each.members) for each in outcome.changesets] == [1, 1]
    assert outcome.applied_count == 5
    assert not cluster.plan().plan.changes  # type: ignore[union-attr]


def test_second_part_that_fails_leaves_the_first_one_applied(cluster: Cluster) -> None:
    two_pivots(cluster)
    cluster.make_graph("alpha", BARE)
    outcome = cluster.apply(atomic=True)
    assert not outcome.ok
    assert [(each.part, each.state.value) for each in outcome.changesets] == [("1/2", "finalized"), ("2/2", "failed")]
    assert (cluster.live("knowledge"), cluster.live("second")) == (TALL, SCHEMA)


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
        "pivot": FailSecond("cluster_apply.before_schema_apply"),
    }[what]
    outcome = cluster.apply(atomic=True, faults=faults)
    assert not outcome.ok
    assert changeset(outcome).state is ChangesetState.FAILED
    assert cluster.state_bytes == before
    assert {name: cluster.live(name) for name in ("knowledge", "wide")} == {"knowledge": SCHEMA, "wide": SCHEMA}
    assert not {cluster.uri("alpha"), cluster.uri("beta")} & cluster.twin.dump().keys()
    assert cluster.apply(atomic=True).converged


class FailSecond(FailAt):
    """Lets a run fail at the second visit of a point: the migration that only adds comes before the one that is a pivot."""

    def reach(self, point: str) -> None:
        if point in self.reached:
            super().reach(point)
        self.reached.append(point)
