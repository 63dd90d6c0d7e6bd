"""Stories of runs that die or fail at a fault point: what they leave, and that the next run finishes it.

Most run over a ledger folder on disk and over the ledger in memory.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.ledger.documents import write_state
from gitops.cluster.ledger.layout import STATE
from gitops.cluster.model.ledger import IntentKind, LedgerState
from gitops.cluster.model.plan import NodeOutcome
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph.port import DeleteOrder, Existence
from tests.scenario.test_recovery import (
    SUBTREE,
    plant_intent,
    remove_everything,
)
from tests.support.cluster import (
    GRAPH,
    QUERY,
    SCHEMA,
    SCHEMA_ADDRESS,
    WIDER,
    Cluster,
    DoAt,
    FailAt,
    codes,
    found,
    rulings,
)
from tests.support.memory_engine import MemoryEngine


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
