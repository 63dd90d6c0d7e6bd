"""An approval of a ledger folder permits one delete, also after a crash and the loss of the state, and not for ever."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.ledger.layout import STATE
from tests.support.cluster import Cluster, FailAt

_WITH, _WITHOUT = {"knowledge": {}, "old": {}}, {"knowledge": {}}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
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
def test_a_spent_approval_permits_nothing_after_a_crash_and_the_loss_of_the_state(cluster: Cluster, point: str) -> None:
    """The run ends at a point of its commit, the state is lost, an import begins again, and the same delete is asked for."""
    assert cluster.approve("graph.old").ok
    cluster.apply(faults=FailAt(point))
    assert not _exists(cluster)
    cluster.plant(STATE, None)
    assert cluster.import_().ok
    _declare(cluster, _WITH)
    assert cluster.apply().ok
    assert _exists(cluster)
    _declare(cluster, _WITHOUT)
    assert not cluster.apply().converged
    assert _exists(cluster)
    assert cluster.sidecars == []


def test_a_run_after_a_crash_marks_what_was_used(cluster: Cluster) -> None:
    assert cluster.approve("graph.old").ok
    cluster.apply(faults=FailAt("ledger.approval.before_mark"))
    (sidecar,) = cluster.sidecars
    assert sidecar["graph_id"] == "old"
    assert cluster.apply().converged
    assert cluster.sidecars == []
    (name,) = cluster.files("__cluster/approvals")
    assert b'"consumed_at": "2' in (cluster.stored(name) or b"")


@pytest.mark.parametrize(("days", "permits"), [(6.9, True), (7, False), (300, False), (-7, False)])
def test_an_approval_of_a_folder_expires_after_seven_days(cluster: Cluster, days: float, permits: bool) -> None:
    assert cluster.approve("graph.old").ok
    cluster.clock.advance(timedelta(days=days))
    outcome = cluster.apply()
    assert _exists(cluster) is not permits
    assert ("approval_expired" in [d.code for d in outcome.diagnostics]) is not permits
    if not permits:
        assert cluster.approve("graph.old").ok
        assert cluster.apply().converged


@pytest.mark.parametrize("dated", ["soon", "", "2026-06-11"])
def test_an_approval_without_a_time_does_not_count(cluster: Cluster, dated: str) -> None:
    assert cluster.approve("graph.old").ok
    (name,) = cluster.files("__cluster/approvals")
    cluster.plant(name, (cluster.stored(name) or b"").replace(b"2026-06-11T08:00:00Z", dated.encode()))
    assert "approval_expired" in [d.code for d in cluster.apply().diagnostics]
    assert _exists(cluster)


def test_an_approval_of_a_program_that_records_no_rows_permits_nothing_and_says_why(cluster: Cluster) -> None:
    assert cluster.approve("graph.old").ok
    (name,) = cluster.files("__cluster/approvals")
    document = json.loads(cluster.stored(name) or b"")
    del document["seen"]
    cluster.plant(name, json.dumps(document | {"bound_config_digest": "31" * 32}).encode())
    problems = [(each.code, each.path) for each in cluster.plan().diagnostics]
    assert problems == [("approval_data_unknown", "graph.old")]
    assert not cluster.apply().converged
    assert _exists(cluster)
