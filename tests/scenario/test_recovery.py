"""Runs that die or fail at a fault point: what they leave, what the sweep makes of it, and approvals of a folder afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.ledger.documents import write_intent, write_state
from gitops.cluster.ledger.layout import STATE, intent_key
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.model.plan import NodeOutcome
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph.port import DeleteOrder, Existence
from tests.support.cluster import (
    GRAPH,
    QUERY,
    QUERY_ADDRESS,
    SCHEMA,
    SCHEMA_ADDRESS,
    WIDER,
    Cluster,
    codes,
    found,
    rulings,
    statuses,
)
from tests.support.faults import DoAt, FailAt
from tests.support.memory_engine import MemoryEngine

OPERATION = "01JZ0000000000000000000DDD"
OTHER = "node Place {\n  name: String @key\n}\n"
SUBTREE = [GRAPH, QUERY_ADDRESS, SCHEMA_ADDRESS]


def plant_intent(cluster: Cluster, kind: IntentKind, wanted: str = SCHEMA, approval_id: str | None = None) -> None:
    desired = "" if kind is IntentKind.GRAPH_DELETE else digest(wanted.encode())
    intent = Intent(
        operation_id=OPERATION,
        started_at="2026-06-11T07:00:00Z",
        actor="sam",
        kind=kind,
        graph_id="knowledge",
        graph_uri="/elsewhere/knowledge.omni",
        observed_manifest_version=None,
        expected_manifest_version=None,
        desired_schema_digest=desired,
        state_cas_base=None,
        approval_id=approval_id,
    )
    cluster.plant(intent_key(OPERATION), write_intent(intent))


def remove_everything(cluster: Cluster) -> None:
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()


RECOVERED = {
    "kind": "schema_apply",
    "graph_id": "knowledge",
    "outcome": "rolled_forward",
    "recovered_at": "2026-06-11T08:00:00Z",
    "actor": "sam",
}


# The sweep.


def test_a_create_that_never_began_is_forgotten(cluster):
    cluster.put_state(LedgerState())
    plant_intent(cluster, IntentKind.GRAPH_CREATE)
    outcome = cluster.apply()
    assert outcome.converged
    assert codes(outcome) == []
    assert cluster.sidecars == []


@pytest.mark.parametrize("kind", [IntentKind.GRAPH_CREATE, IntentKind.SCHEMA_APPLY])
def test_an_operation_that_is_recorded_already_is_retired_without_a_record(cluster, kind):
    cluster.converge()
    plant_intent(cluster, kind)
    before = cluster.state_bytes
    outcome = cluster.apply()
    assert codes(outcome) == []
    assert cluster.sidecars == []
    assert cluster.state_bytes == before


def test_a_create_that_completed_is_rolled_forward_in_the_same_run(cluster):
    cluster.put_state(LedgerState())
    cluster.make_graph("knowledge")
    plant_intent(cluster, IntentKind.GRAPH_CREATE)
    outcome = cluster.apply()
    assert outcome.converged
    assert found(outcome, "cluster_recovery_rolled_forward").path == GRAPH
    assert rulings(outcome.changes) == {
        GRAPH: "update derived",
        "policy.base": "create applied",
        QUERY_ADDRESS: "create applied",
    }
    assert cluster.state.recovery_records == {OPERATION: {**RECOVERED, "kind": "graph_create"}}
    assert cluster.sidecars == []


def test_a_create_that_found_another_schema_is_not_guessed_about(cluster):
    cluster.put_state(LedgerState())
    cluster.make_graph("knowledge", OTHER)
    plant_intent(cluster, IntentKind.GRAPH_CREATE)
    outcome = cluster.apply()
    assert outcome.ok
    assert found(outcome, "cluster_recovery_pending").path == GRAPH
    assert len(cluster.sidecars) == 1
    assert statuses(cluster.state) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "drifted:actual_applied_state_pending")
    assert set(rulings(outcome.changes).values()) == {"create blocked:cluster_recovery_pending"}
    # Refresh records what is there; then the sidecar has nothing left to say.
    assert cluster.refresh().ok
    assert cluster.sidecars
    outcome = cluster.apply()
    assert cluster.sidecars == []
    assert rulings(outcome.changes)[SCHEMA_ADDRESS] == "update applied"


def test_a_create_that_left_a_partial_root_is_an_error_for_a_person(cluster):
    cluster.put_state(LedgerState())
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    plant_intent(cluster, IntentKind.GRAPH_CREATE)
    outcome = cluster.apply()
    assert not outcome.ok
    assert found(outcome, "graph_create_incomplete").path == GRAPH
    assert outcome.state_written
    assert set(rulings(outcome.changes).values()) == {"create blocked:cluster_recovery_pending"}
    assert statuses(cluster.state) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "error:graph_create_incomplete")
    assert cluster.twin.dump() == {cluster.uri("knowledge"): "partial root"}
    assert len(cluster.sidecars) == 1
    # The way out that the message names.
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert cluster.apply().converged
    assert cluster.sidecars == []


def test_a_migration_of_a_graph_that_does_not_open_waits(cluster):
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    outcome = cluster.apply()
    assert codes(outcome) == ["cluster_recovery_pending"]
    assert len(cluster.sidecars) == 1


def test_a_migration_of_a_graph_that_is_definitely_gone_is_retired(cluster):
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    assert codes(cluster.apply()) == ["graph_vanished"]
    assert cluster.sidecars == []


def test_a_migration_that_completed_is_rolled_forward(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", WIDER)
    cluster.write("knowledge.pg", WIDER)
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    outcome = cluster.apply()
    assert outcome.converged
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert cluster.state.recovery_records == {OPERATION: RECOVERED}
    assert statuses(cluster.state)[SCHEMA_ADDRESS] == "applied"
    assert cluster.state.digests() == cluster.desired().digests()


def test_a_migration_that_found_another_schema_blocks_the_next(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", OTHER)
    cluster.write("knowledge.pg", WIDER)
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    outcome = cluster.apply()
    assert outcome.ok
    assert rulings(outcome.changes)[SCHEMA_ADDRESS] == "update blocked:cluster_recovery_pending"
    assert cluster.live("knowledge") == OTHER
    assert len(cluster.sidecars) == 1
    assert statuses(cluster.state)[SCHEMA_ADDRESS] == "drifted:actual_applied_state_pending"


@pytest.mark.parametrize("kind", list(IntentKind))
def test_a_root_that_cannot_be_seen_is_not_taken_for_absent(cluster, kind):
    cluster.converge()
    cluster.twin.lose_sight_of(cluster.uri("knowledge"))
    plant_intent(cluster, kind, WIDER)
    resources = cluster.state.resources
    outcome = cluster.apply()
    assert found(outcome, "cluster_recovery_pending").path == GRAPH
    assert len(cluster.sidecars) == 1
    assert cluster.state.resources == resources


def test_a_delete_that_did_not_finish_is_finished_in_the_same_run(cluster):
    cluster.converge()
    remove_everything(cluster)
    approval = cluster.approve(GRAPH).approval
    plant_intent(cluster, IntentKind.GRAPH_DELETE, approval_id=approval.approval_id)
    outcome = cluster.apply()
    assert codes(outcome) == ["graph_delete_incomplete"]
    assert outcome.converged
    assert cluster.twin.dump() == {}
    assert cluster.sidecars == []


def test_a_delete_that_is_recorded_already_is_retired(cluster):
    remove_everything(cluster)
    cluster.put_state(LedgerState())
    plant_intent(cluster, IntentKind.GRAPH_DELETE)
    outcome = cluster.apply()
    assert codes(outcome) == []
    assert cluster.sidecars == []
    assert cluster.state.recovery_records == {}


def test_a_delete_that_completed_is_recorded_and_spends_its_approval(cluster):
    cluster.converge()
    remove_everything(cluster)
    approval_id = cluster.approve(GRAPH).approval.approval_id
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    plant_intent(cluster, IntentKind.GRAPH_DELETE, approval_id=approval_id)
    outcome = cluster.apply()
    assert outcome.converged
    state = cluster.state
    assert state.observations[GRAPH]["kind"] == "tombstone"
    assert state.observations[GRAPH]["approval_id"] == approval_id
    assert state.approval_records[approval_id]["consumed_by_operation"] == OPERATION
    assert state.recovery_records == {OPERATION: {**RECOVERED, "kind": "graph_delete"}}
    assert b'"consumed_at": "2026' in (cluster.stored(f"__cluster/approvals/{approval_id}.json") or b"")
    assert cluster.sidecars == []


def test_a_sidecar_that_outlived_its_delete_does_not_rewrite_how_the_approval_was_spent(cluster):
    cluster.converge()
    graphs = cluster.graphs
    remove_everything(cluster)
    approval_id = cluster.approve(GRAPH).approval.approval_id
    assert cluster.apply().converged
    spent = cluster.state.approval_records
    cluster.graphs = graphs
    cluster.save()
    cluster.converge()
    # The graph is lost, and a backup brings back the sidecar of the delete that is long over.
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    plant_intent(cluster, IntentKind.GRAPH_DELETE, approval_id=approval_id)
    outcome = cluster.apply()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert outcome.converged
    assert cluster.state.approval_records == spent


@pytest.mark.parametrize(
    ("document", "code"),
    [(b"{", "invalid_recovery_sidecar"), (b'{"schema_version": 2}', "unsupported_recovery_sidecar_version")],
)
def test_an_unusable_sidecar_is_left_alone_and_the_run_goes_on(cluster, document, code):
    cluster.put_state(LedgerState())
    cluster.plant(intent_key(OPERATION), document)
    outcome = cluster.apply()
    assert codes(outcome) == [code]
    assert outcome.converged
    assert cluster.stored(intent_key(OPERATION)) == document


def test_the_sweep_of_a_run_that_could_not_write_is_not_reported_as_done(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", WIDER)
    cluster.write("knowledge.pg", WIDER)
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    before = cluster.state_bytes
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_state_write"))
    assert not outcome.converged
    assert outcome.state == cluster.state
    assert cluster.state_bytes == before
    assert len(cluster.sidecars) == 1
    assert cluster.apply().converged


def dead_run(cluster: Cluster, point: str, actor: str | None = None):
    """A run that ends at a point as if it had died there: the state must not have moved, nor the lock be held."""
    before = cluster.state_bytes
    outcome = cluster.apply(actor, FailAt(f"cluster_apply.{point}"))
    assert not outcome.ok
    assert "injected_failpoint" in codes(outcome)
    assert (outcome.applied_count, outcome.deferred_count, outcome.state_written) == (0, 0, False)
    assert outcome.state == cluster.state
    assert cluster.state_bytes == before
    assert not cluster.locked
    return outcome


def test_death_after_the_payloads(cluster):
    cluster.seed()
    dead_run(cluster, "after_payload_phase")
    assert len(cluster.files("__cluster/resources")) == 2
    assert cluster.apply().converged


def test_another_writer_before_the_state_write(cluster):
    cluster.seed()
    theirs = write_state(replace(cluster.state, revision=41))
    point = DoAt("cluster_apply.before_state_write", lambda: cluster.plant(STATE, theirs))
    outcome = cluster.apply(faults=point)
    assert codes(outcome)[-1] == "state_cas_mismatch"
    assert not outcome.converged
    assert cluster.state_bytes == theirs
    assert cluster.apply().converged
    assert cluster.state.revision == 42


def test_failure_before_a_graph_is_created(cluster):
    cluster.put_state(LedgerState())
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_graph_create"))
    assert found(outcome, "injected_failpoint").path == GRAPH
    assert len(cluster.sidecars) == 1
    assert cluster.twin.dump() == {}
    assert cluster.state.resources == {}
    assert cluster.apply().converged
    assert cluster.sidecars == []


def test_death_after_a_graph_is_created(cluster):
    cluster.put_state(LedgerState())
    dead_run(cluster, "after_graph_create")
    (sidecar,) = cluster.sidecars
    assert (sidecar["kind"], sidecar["expected_manifest_version"]) == ("graph_create", 1)
    assert cluster.live("knowledge") == SCHEMA
    outcome = cluster.apply()
    assert "cluster_recovery_rolled_forward" in codes(outcome)
    assert outcome.converged
    assert cluster.sidecars == []


def test_after_a_death_no_further_graph_is_touched(cluster):
    cluster.graphs = {"alpha": {}, "beta": {}, "gamma": {}}
    cluster.policies = {}
    cluster.save()
    cluster.put_state(LedgerState())
    dead_run(cluster, "after_graph_create")
    assert list(cluster.twin.dump()) == [cluster.uri("alpha")]
    assert cluster.apply().converged


def test_failure_before_a_migration(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    outcome = cluster.apply("alex", FailAt("cluster_apply.before_schema_apply"))
    assert found(outcome, "schema_apply_failed").path == SCHEMA_ADDRESS
    (sidecar,) = cluster.sidecars
    assert (sidecar["kind"], sidecar["actor"], sidecar["observed_manifest_version"]) == ("schema_apply", "alex", 1)
    assert cluster.live("knowledge") == SCHEMA
    assert cluster.apply().converged
    assert cluster.sidecars == []


def test_death_after_a_migration(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    dead_run(cluster, "after_schema_apply")
    assert cluster.live("knowledge") == WIDER
    assert [s["expected_manifest_version"] for s in cluster.sidecars] == [2]
    outcome = cluster.apply()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert outcome.converged


def test_failure_before_a_delete(cluster):
    cluster.converge()
    remove_everything(cluster)
    approval_id = cluster.approve(GRAPH).approval.approval_id
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_graph_delete"))
    assert found(outcome, "graph_delete_failed").path == GRAPH
    assert cluster.live("knowledge") == SCHEMA
    assert cluster.state.approval_records == {}
    assert [s["approval_id"] for s in cluster.sidecars] == [approval_id]
    outcome = cluster.apply()
    assert codes(outcome) == ["graph_delete_incomplete"]
    assert outcome.converged


def test_death_after_a_delete(cluster):
    cluster.converge()
    remove_everything(cluster)
    approval_id = cluster.approve(GRAPH).approval.approval_id
    dead_run(cluster, "after_graph_delete")
    assert cluster.twin.dump() == {}
    assert [s["approval_id"] for s in cluster.sidecars] == [approval_id]
    outcome = cluster.apply()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert outcome.converged
    assert approval_id in cluster.state.approval_records
    assert cluster.state.observations[GRAPH]["approval_id"] == approval_id
    assert cluster.sidecars == []


class StubbornEngine(MemoryEngine):
    """Cannot remove what a delete left behind, until told that it can."""

    stubborn = True

    def delete(self, uri: str, order: DeleteOrder) -> None:
        if self.stubborn and self.exists(uri) is Existence.ABSENT:
            raise GitopsError("storage_failed", f"{uri}: the disk says no")
        super().delete(uri, order)


def test_a_delete_is_not_forgotten_while_its_remains_cannot_be_removed(tmp_path):
    engine = StubbornEngine()
    cluster = Cluster(tmp_path, engine=engine)
    cluster.converge()
    remove_everything(cluster)
    assert cluster.approve(GRAPH).ok
    dead_run(cluster, "after_graph_delete")
    outcome = cluster.apply()
    assert codes(outcome) == ["cluster_recovery_rolled_forward", "graph_delete_incomplete"]
    assert outcome.converged
    assert len(cluster.sidecars) == 1
    assert codes(cluster.apply()) == ["graph_delete_incomplete"]
    engine.stubborn = False
    assert codes(cluster.apply()) == []
    assert cluster.sidecars == []


def test_a_rolled_forward_graph_that_is_no_longer_wanted_is_an_ordinary_gated_delete(cluster):
    cluster.put_state(LedgerState())
    dead_run(cluster, "after_graph_create")
    remove_everything(cluster)
    outcome = cluster.apply()
    assert rulings(outcome.changes) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "delete blocked:approval_required")
    assert cluster.sidecars == []
    assert cluster.approve(GRAPH).ok
    assert cluster.apply().converged
    assert cluster.twin.dump() == {}


def test_refresh_sweeps_too(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    dead_run(cluster, "after_schema_apply")
    outcome = cluster.refresh()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert cluster.sidecars == []
    assert cluster.plan().plan.changes == ()


def test_import_sweeps_too(cluster):
    cluster.make_graph("knowledge")
    plant_intent(cluster, IntentKind.GRAPH_CREATE)
    assert codes(cluster.import_()) == ["cluster_recovery_rolled_forward"]
    assert cluster.sidecars == []
    assert cluster.apply().converged
    assert QUERY.encode() in [cluster.stored(key) for key in cluster.files("__cluster/resources")]


@pytest.mark.parametrize(
    "point", ["ledger.commit.before_state", "ledger.commit.after_state", "ledger.commit.after_retire"]
)
def test_death_inside_the_commit_of_a_delete(tmp_path, point):
    cluster = Cluster(tmp_path)
    cluster.converge()
    remove_everything(cluster)
    approval_id = cluster.approve(GRAPH).approval.approval_id
    assert not cluster.apply(faults=FailAt(point)).ok
    assert cluster.apply().converged
    assert cluster.sidecars == []
    assert cluster.state.resources == {}
    assert approval_id in cluster.state.approval_records
    # Whatever the document says, it covers nothing any more.
    cluster.graphs["knowledge"] = {"find_person": "people.gq"}
    cluster.save()
    cluster.converge()
    remove_everything(cluster)
    assert rulings(cluster.apply().changes) == dict.fromkeys(SUBTREE, "delete blocked:approval_required")


def _lost() -> None:
    raise RemoteError("storage_failed", "the connection was lost", retryable=True)


@pytest.mark.parametrize(
    ("point", "node"),
    [("engine.create.after_publish", "graph.knowledge"), ("engine.migrate.after_publish", "schema.knowledge")],
)
def test_a_connection_that_is_lost_during_an_effect_is_not_tried_again_blindly(cluster, point, node):
    if "migrate" in point:
        cluster.converge()
        cluster.write("knowledge.pg", WIDER)
    else:
        cluster.import_()
    live = cluster.twin
    live._faults = DoAt(point, _lost)
    outcome = cluster.apply()
    (lost,) = (result for result in outcome.results if result.node_id == node)
    assert lost.outcome is NodeOutcome.INDETERMINATE
    assert len(cluster.sidecars) == 1
    live._faults = NoFaults()
    before = dict(live.calls)
    # The next run looks first, finds that it had its effect, and makes nothing twice.
    again = cluster.apply()
    assert "cluster_recovery_rolled_forward" in codes(again)
    assert again.converged
    assert (live.calls["prepare_create"], live.calls["prepare_migration"]) == (
        before.get("prepare_create", 0),
        before.get("prepare_migration", 0),
    )
    assert cluster.sidecars == []


_WITH, _WITHOUT = {"knowledge": {}, "old": {}}, {"knowledge": {}}


@pytest.fixture
def deleting(tmp_path: Path) -> Cluster:
    """The delete of a graph is declared and waits."""
    cluster = Cluster(tmp_path)
    cluster.policies = {}
    _declare(cluster, _WITH)
    cluster.converge()
    _declare(cluster, _WITHOUT)
    return cluster


def _declare(cluster: Cluster, graphs: dict[str, dict[str, str]]) -> None:
    cluster.graphs = dict(graphs)
    cluster.save()


def _exists(cluster: Cluster) -> bool:
    return cluster.engine.exists(cluster.uri("old")) == "present"


@pytest.mark.parametrize(
    "point",
    [
        "cluster_apply.after_graph_delete",
        "ledger.commit.after_state",
        "ledger.approval.before_mark",
        "ledger.approval.after_mark",
        "ledger.commit.after_retire",
        "",
    ],
)
def test_a_spent_approval_permits_nothing_after_a_crash_and_the_loss_of_the_state(
    deleting: Cluster, point: str
) -> None:
    """The run ends at a point of its commit, the state is lost, an import begins again, and the same delete is asked for."""
    assert deleting.approve("graph.old").ok
    deleting.apply(faults=FailAt(point))
    assert not _exists(deleting)
    deleting.plant(STATE, None)
    assert deleting.import_().ok
    _declare(deleting, _WITH)
    assert deleting.apply().ok
    assert _exists(deleting)
    _declare(deleting, _WITHOUT)
    assert not deleting.apply().converged
    assert _exists(deleting)
    assert deleting.sidecars == []


def test_a_run_after_a_crash_marks_what_was_used(deleting: Cluster) -> None:
    assert deleting.approve("graph.old").ok
    deleting.apply(faults=FailAt("ledger.approval.before_mark"))
    (sidecar,) = deleting.sidecars
    assert sidecar["graph_id"] == "old"
    assert deleting.apply().converged
    assert deleting.sidecars == []
    (name,) = deleting.files("__cluster/approvals")
    assert b'"consumed_at": "2' in (deleting.stored(name) or b"")


@pytest.mark.parametrize(("days", "permits"), [(6.9, True), (7, False), (300, False), (-7, False)])
def test_an_approval_of_a_folder_expires_after_seven_days(deleting: Cluster, days: float, permits: bool) -> None:
    assert deleting.approve("graph.old").ok
    deleting.clock.advance(timedelta(days=days))
    outcome = deleting.apply()
    assert _exists(deleting) is not permits
    assert ("approval_expired" in [d.code for d in outcome.diagnostics]) is not permits
    if not permits:
        assert deleting.approve("graph.old").ok
        assert deleting.apply().converged


@pytest.mark.parametrize("dated", ["soon", "", "2026-06-11"])
def test_an_approval_without_a_time_does_not_count(deleting: Cluster, dated: str) -> None:
    assert deleting.approve("graph.old").ok
    (name,) = deleting.files("__cluster/approvals")
    deleting.plant(name, (deleting.stored(name) or b"").replace(b"2026-06-11T08:00:00Z", dated.encode()))
    assert "approval_expired" in [d.code for d in deleting.apply().diagnostics]
    assert _exists(deleting)


def test_an_approval_of_a_program_that_records_no_rows_permits_nothing_and_says_why(deleting: Cluster) -> None:
    assert deleting.approve("graph.old").ok
    (name,) = deleting.files("__cluster/approvals")
    document = json.loads(deleting.stored(name) or b"")
    del document["seen"]
    deleting.plant(name, json.dumps(document | {"bound_config_digest": "31" * 32}).encode())
    problems = [(each.code, each.path) for each in deleting.plan().diagnostics]
    assert problems == [("approval_data_unknown", "graph.old")]
    assert not deleting.apply().converged
    assert _exists(deleting)
