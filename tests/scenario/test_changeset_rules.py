"""What an atomic run leaves as it is by a rule: what it staged when it fails, and for a time data that left the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.changeset import Changeset, ChangesetState, Drained, RollingBack
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.core.cancel import Cancellation
from tests.support.cluster import GRAPH, SCHEMA, WIDER, Cluster, FailAt, codes, found, remove_graph


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    made = Cluster(tmp_path)
    made.converge()
    return made


def kept(cluster: Cluster, point: str) -> Changeset:
    """An atomic apply that fails at a point, and is to keep what it staged."""
    workspace = replace(cluster.workspace(faults=FailAt(point)), atomic=True, keeps_staged=True)
    (record,) = apply(workspace).changesets
    assert record.state is ChangesetState.FAILED
    return record


def test_what_is_staged_stays_and_is_listed(cluster: Cluster) -> None:
    cluster.graphs["second"] = {"find_person": "people.gq"}
    cluster.save()
    before = cluster.state.digests()
    record = kept(cluster, "changeset.commit.before_write")
    assert cluster.live("second") == SCHEMA
    left = {orphan.address: orphan.reason for orphan in record.orphaned}
    assert set(left) == {"graph.second", "schema.second", "query.second.find_person"}
    assert set(left.values()) == {"kept for inspection (on_failure: keep)"}
    assert cluster.state.digests() == before
    assert not cluster.sidecars
    happened = [event.happening for event in cluster.ledger().events(key=record.key)]
    assert [each.on_failure for each in happened if isinstance(each, RollingBack)] == ["keep"]


def test_what_was_kept_is_in_the_way_as_every_orphan_is(cluster: Cluster) -> None:
    cluster.graphs["second"] = {}
    cluster.save()
    kept(cluster, "changeset.commit.before_write")
    planned = cluster.plan()
    assert [(each.path, each.code) for each in planned.obstacles] == [("graph.second", "graph_exists")]
    assert not planned.interrupted
    assert not cluster.apply(atomic=True).ok
    cluster.twin.delete_tree(cluster.uri("second"))
    assert cluster.plan().lands
    assert cluster.apply(atomic=True).converged


def test_a_migration_that_was_kept_is_what_the_next_apply_records(cluster: Cluster) -> None:
    cluster.write("knowledge.pg", WIDER)
    record = kept(cluster, "changeset.commit.before_write")
    assert [orphan.address for orphan in record.orphaned] == ["schema.knowledge"]
    assert cluster.live("knowledge") == WIDER
    assert cluster.plan().lands
    assert cluster.apply(atomic=True).converged


def test_what_failed_without_any_effect_is_not_listed(cluster: Cluster) -> None:
    cluster.graphs["second"] = {}
    cluster.save()
    assert kept(cluster, "cluster_apply.before_graph_create").orphaned == ()


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
def leaving(cluster: Cluster) -> Cluster:
    """A graph is to be deleted, with its approval."""
    remove_graph(cluster)
    assert cluster.approve(GRAPH).ok
    return cluster


def test_data_are_deleted_when_their_time_is_over(leaving: Cluster) -> None:
    waiting = Waiting(leaving)
    outcome = delete(leaving, waiting)
    assert outcome.converged
    assert waiting.waited == 30
    (record,) = outcome.changesets
    (drained,) = (e.happening for e in leaving.ledger().events(key=record.key) if isinstance(e.happening, Drained))
    assert (drained.waited_ms, drained.evidence) == (
        30_000,
        "30 s have passed since the commit; nothing is known to serve the cluster",
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


def test_a_merge_that_deletes_no_data_waits_for_nothing(cluster: Cluster) -> None:
    cluster.graphs["knowledge"] = {}
    cluster.save()
    waiting = Waiting(cluster)
    assert delete(cluster, waiting).converged
    assert waiting.waited == 0
