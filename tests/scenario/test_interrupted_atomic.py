"""An interrupt in the middle of a run that lands whole or not at all, and a person who gives it up."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.changesets import Steering
from gitops.core.cancel import Cancellation
from tests.support.cluster import Cluster, DoAt, codes

RENAMED = 'node Human @rename_from("Person") {\n  handle: String @key\n  born: I32?\n}\n'
QUERY = "query find_person($h: String) {\n  match { $p: Human { handle: $h } }\n  return { $p.handle }\n}\n"


def interrupted(cluster: Cluster, point: str) -> ApplyOutcome:
    """An atomic apply that a signal asks to stop when it is at a point."""
    cancel = Cancellation()
    workspace = cluster.workspace(None, DoAt(point, cancel.request))
    return apply(replace(workspace, atomic=True, cancel=cancel))


def test_a_running_pivot_is_finished_and_committed(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RENAMED)
    cluster.write("people.gq", QUERY)
    outcome = interrupted(cluster, "cluster_apply.before_schema_apply")
    (record,) = outcome.changesets
    assert record.state is ChangesetState.FINALIZED, (record, codes(outcome))
    assert cluster.state.digests() == cluster.desired().digests()
    assert cluster.sidecars == []
    assert not cluster.locked


def test_what_is_staged_is_taken_back_and_the_applied_state_stays(cluster):
    cluster.converge()
    before = cluster.state.digests()
    cluster.graphs["second"] = {"find_person": "people.gq"}
    cluster.save()
    outcome = interrupted(cluster, "cluster_apply.before_graph_create")
    (record,) = outcome.changesets
    assert (record.state, record.error) == (ChangesetState.FAILED, "the run was interrupted")
    assert "apply_interrupted" in codes(outcome)
    assert cluster.state.digests() == before
    assert cluster.sidecars == []
    assert not cluster.locked
    assert cluster.apply().converged


def give_up(cluster: Cluster) -> None:
    ledger = cluster.ledger()
    (record,) = ledger.changesets().open
    Steering(ledger, cluster.clock, cluster.ids, "sam").fail(record.key, "the disk is full")


def test_a_run_at_work_that_is_given_up_takes_back_what_it_has_staged(cluster):
    cluster.converge()
    before = cluster.state_bytes
    cluster.graphs["second"] = {"find_person": "people.gq"}
    cluster.save()
    outcome = cluster.apply(atomic=True, faults=DoAt("changeset.commit.before_write", lambda: give_up(cluster)))
    (record,) = outcome.changesets
    assert (record.state, record.error) == (ChangesetState.FAILED, "the disk is full")
    assert codes(outcome) == ["state_conflict", "changeset_rolled_back"]
    assert cluster.state_bytes == before
    assert cluster.uri("second") not in cluster.twin.dump()
    assert cluster.sidecars == []
    assert cluster.apply(atomic=True).converged


def test_a_run_that_is_given_up_before_its_pivot_does_not_begin_it(cluster):
    cluster.converge()
    cluster.graphs["second"] = {}
    cluster.write("knowledge.pg", RENAMED)
    cluster.write("people.gq", QUERY)
    cluster.save()
    old = cluster.live("knowledge")
    assert not cluster.apply(atomic=True, faults=DoAt("cluster_apply.after_graph_create", lambda: give_up(cluster))).ok
    assert cluster.live("knowledge") == old
    outcome = cluster.apply(atomic=True)
    assert "changeset_rolled_back" in codes(outcome)
    assert outcome.converged
