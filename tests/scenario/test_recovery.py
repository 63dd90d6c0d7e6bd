"""Stories of interruption: runs that die at a fault point, sidecars found by the next run, and what the sweep makes of them.

Every story runs over a ledger folder on disk and over the ledger in memory.
"""

from __future__ import annotations

import pytest

from gitops.cluster.ledger.documents import write_intent
from gitops.cluster.ledger.layout import intent_key
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.core.canonical import digest
from tests.support.cluster import (
    GRAPH,
    QUERY_ADDRESS,
    SCHEMA,
    SCHEMA_ADDRESS,
    WIDER,
    Cluster,
    FailAt,
    codes,
    found,
    rulings,
    statuses,
)

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
