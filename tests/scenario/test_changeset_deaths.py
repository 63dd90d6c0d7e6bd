"""An atomic run that dies anywhere: the next one goes on with it, takes it back, or finishes it, as a plan says before.

The run dies by an exception that nothing catches, at every point that it reaches: nothing is written after that.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.outcome import ApplyOutcome, Course
from gitops.core.faults import Faults
from gitops.database.graph.port import DeleteOrder, Existence
from gitops.render.text import apply_counts
from tests.support.cluster import QUERY, SCHEMA, WIDER, Cluster, DoAt, FailAt, codes

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BARE = "node Person {\n  handle: String @key\n}\n"


class Death(BaseException):
    """The end of a process."""


class Dying:
    """Dies at one visit of a point, or only notes what is reached."""

    def __init__(self, at: tuple[str, int] | None = None) -> None:
        self._at = at
        self.visits: dict[str, int] = {}

    def reach(self, point: str) -> None:
        visit = self.visits[point] = self.visits.get(point, 0) + 1
        if self._at == (point, visit):
            raise Death


def stage_everything(cluster: Cluster, queries: int = 0) -> None:
    """Every class at once: graphs and texts, a migration that adds, one that cannot be taken back, drops, and a delete.

    `queries` are how many more of them the new graph has.
    """
    for name in ("old", "wide", "slim"):
        cluster.graphs[name] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["old"]
    cluster.graphs["fresh"] = {f"q{number}": f"q{number}.gq" for number in range(queries)}
    for name, file in cluster.graphs["fresh"].items():
        cluster.write(file, QUERY.replace("find_person", name))
    cluster.write("wide.pg", WIDER)
    cluster.write("slim.pg", BARE)
    cluster.write("knowledge.pg", TALL)
    cluster.write("people.gq", QUERY.replace("Person", "Human"))
    cluster.save()
    assert cluster.approve("graph.old").ok


def die(cluster: Cluster, faults: Faults) -> None:
    with suppress(Death):
        cluster.apply(atomic=True, faults=faults)


def require_whole(cluster: Cluster) -> None:
    """Everything is as declared, nothing is open, and every record is what its events give."""
    assert not cluster.sidecars
    assert {name: cluster.live(name) for name in ("fresh", "wide", "slim", "knowledge")} == {
        "fresh": SCHEMA,
        "wide": WIDER,
        "slim": BARE,
        "knowledge": TALL,
    }
    assert cluster.engine.exists(cluster.uri("old")) is Existence.ABSENT
    ledger = cluster.ledger()
    assert ledger.changesets().open == ()
    for key in ledger.changeset_keys():
        record = ledger.changeset(key)
        assert record is not None
        assert record.ended
        assert replay(ledger.events(key=key)) == record
    assert all(approval.consumed_at for approval in ledger.approvals().documents)
    assert not cluster.plan().plan.changes  # type: ignore[union-attr]


ENDS = {
    Course.RESUMED: ChangesetState.FINALIZED,
    Course.FINISHED: ChangesetState.FINALIZED,
    Course.TAKEN_BACK: ChangesetState.FAILED,
}


ASIDE = {"changeset_rolled_back", "changeset_orphaned", "approval_stale", "cluster_recovery_rolled_forward"}
"""What an apply reports that does not keep it from landing."""


def apply_as_planned(cluster: Cluster) -> ApplyOutcome:
    """Apply after a death, and hold the plan before it to what happens. A person releases the lock, as after every death."""
    cluster.plant(LOCK, None)
    before = {record.key for record in cluster.ledger().changesets().open}
    planned = cluster.plan()
    outcome = cluster.apply(atomic=True)
    assert planned.lands is (outcome.ok and outcome.converged)
    reported = {(d.path, d.code) for d in outcome.diagnostics if d.code not in ASIDE}
    assert {(d.path, d.code) for d in planned.obstacles} == reported
    ledger, foretold = cluster.ledger(), {each.key for each in planned.interrupted}
    assert foretold == before or "cluster_recovery_pending" in codes(outcome)
    for each in planned.interrupted:
        record = ledger.changeset(each.key)
        assert record is not None
        left_open = each.course is Course.FINISHED and not outcome.ok
        assert record.state is (ChangesetState.DRAINED if left_open else ENDS[each.course])
        assert record.orphaned == each.orphaned
        assert (each.key, "cluster_recovery_pending") in {(d.path, d.code) for d in planned.diagnostics}
        finished = each.course is Course.FINISHED and record.ended
        assert finished is (
            (each.key, "cluster_recovery_rolled_forward") in {(d.path, d.code) for d in outcome.diagnostics}
        )
        assert finished is (", 1 interrupted operation finished" in apply_counts(outcome))
    return outcome


class Scene:
    """A cluster on which everything is staged, to be copied as often as a run is to die on it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._copies = folder / "scene", 0
        self._folder.mkdir()
        self._cluster = Cluster(self._folder)
        self._cluster.converge()
        stage_everything(self._cluster)

    def copy(self) -> Cluster:
        self._copies += 1
        return copy_of(self._cluster, self._folder.parent / str(self._copies))


def copy_of(cluster: Cluster, folder: Path) -> Cluster:
    """A cluster with its graphs and its ledger, in another folder."""
    shutil.copytree(cluster.folder, folder)
    made = copy.copy(cluster)
    made.graphs = dict(made.graphs)
    made.folder, made.clock, made.ids = folder, copy.copy(made.clock), copy.copy(made.ids)
    made.twin = made.engine = cluster.twin.moved(str(cluster.folder), str(folder))
    return made


def test_run_that_dies_anywhere_lands_whole_with_the_next_one(tmp_path: Path) -> None:
    scene, faults = Scene(tmp_path), Dying()
    cluster = scene.copy()
    die(cluster, faults)
    require_whole(cluster)
    points = [(point, visit) for point, visits in faults.visits.items() for visit in range(1, visits + 1)]
    assert ("changeset.commit.before_write", 1) in points
    for at in points:
        cluster = scene.copy()
        die(cluster, Dying(at))
        outcome = apply_as_planned(cluster)
        assert outcome.ok, (at, [d.message for d in outcome.diagnostics])
        assert outcome.converged, at
        require_whole(cluster)


def test_document_of_an_approval_that_could_not_be_marked_is_marked_by_the_next_run(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.converge()
    stage_everything(cluster)
    cluster.apply(atomic=True, faults=FailAt("ledger.approval.before_mark"))
    assert [approval.consumed_at for approval in cluster.ledger().approvals().documents] == [None]
    assert cluster.apply(atomic=True).converged
    require_whole(cluster)


def test_run_that_died_is_taken_back_where_something_else_is_declared(tmp_path: Path) -> None:
    scene, faults = Scene(tmp_path), Dying()
    die(scene.copy(), faults)
    before = [
        p for p in faults.visits if p.startswith(("cluster_apply.", "changeset.commit.before")) and "delete" not in p
    ]
    assert "cluster_apply.after_graph_create" in before
    for point in before:
        cluster = scene.copy()
        die(cluster, Dying((point, 1)))
        del cluster.graphs["fresh"]
        cluster.save()
        outcome = apply_as_planned(cluster)
        if "cluster_recovery_pending" in codes(outcome):
            # The pivot is done: nothing else is applied until the changeset has landed.
            assert cluster.live("knowledge") == TALL, point
            assert "graph.fresh" not in cluster.state.resources
            cluster.graphs["fresh"] = {}
            cluster.save()
            assert cluster.apply(atomic=True).converged, point
            require_whole(cluster)
            continue
        # The approval of the delete was for the folder as it was; everything else has landed.
        waiting = {change.address for change in outcome.changes if change.disposition != "applied"}
        assert waiting <= {"graph.old", "schema.old", "graph.knowledge", "graph.slim", "graph.wide"}, point
        assert cluster.live("knowledge") == TALL, point
        assert cluster.engine.exists(cluster.uri("fresh")) is Existence.ABSENT, point
        assert cluster.ledger().changesets().open == ()


def grown(cluster: Cluster, uri: str) -> None:
    cluster.twin.load(uri, 1_000_000)


def replaced(cluster: Cluster, uri: str) -> None:
    cluster.twin.delete_tree(uri)
    cluster.twin.prepare_create(uri, SCHEMA.encode(), actor=None, fence=0).publish()


@pytest.mark.parametrize(
    ("queries", "refuse"), [(0, grown), (0, replaced), pytest.param(200, grown, marks=pytest.mark.slow)]
)
def test_delete_that_the_engine_refuses_is_tried_again_while_all_else_is_applied(
    tmp_path: Path, queries: int, refuse: Callable[[Cluster, str], None]
) -> None:
    cluster = Cluster(tmp_path)
    cluster.converge()
    stage_everything(cluster, queries)
    old = cluster.uri("old")
    outcome = cluster.apply(atomic=True, faults=DoAt("changeset.commit.after_write", lambda: refuse(cluster, old)))
    applied = cluster.state_bytes
    assert cluster.state.digests() == cluster.desired().digests()
    planned, again = cluster.plan(), cluster.apply(atomic=True)
    assert (codes(outcome), codes(again)) == (["graph_delete_failed"], [f"graph_{refuse.__name__}"])
    # It has left the cluster, so that no approval can be asked for.
    for told in (outcome.diagnostics, planned.obstacles, again.diagnostics):
        (problem,) = (each for each in told if each.path == "graph.old")
        assert f"remove {old}, then apply again: gitops apply" in (problem.fix or "")
    (record,) = cluster.ledger().changesets().open
    assert (record.state, record.needs_attention) == (ChangesetState.DRAINED, True)
    assert cluster.state_bytes == applied
    assert cluster.live("old") == SCHEMA
    cluster.twin.delete_tree(old)
    assert cluster.apply(atomic=True).converged
    require_whole(cluster)


def test_graph_whose_removal_was_cut_short_is_gone_with_the_next_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    cluster = scene.copy()
    die(cluster, Dying(("cluster_apply.after_graph_create", 1)))
    uri = cluster.uri("fresh")
    cluster.twin.cut_delete_short(uri, DeleteOrder(cluster.twin.read(uri).incarnation, 0, 9))
    del cluster.graphs["fresh"]
    cluster.save()
    outcome = apply_as_planned(cluster)
    assert "changeset_rolled_back" in codes(outcome)
    assert "changeset_orphaned" not in codes(outcome)
    assert cluster.engine.exists(uri) is Existence.ABSENT
    assert cluster.live("knowledge") == TALL


@pytest.mark.parametrize(
    ("graph", "point"), [("fresh", "cluster_apply.after_graph_create"), ("old", "changeset.commit.after_write")]
)
def test_files_of_a_removal_that_died_at_a_free_root_are_gone_with_the_next_run(
    tmp_path: Path, graph: str, point: str
) -> None:
    cluster = Scene(tmp_path).copy()
    die(cluster, Dying((point, 1)))
    cluster.twin.cut_removal_short(cluster.uri(graph))
    if graph == "fresh":
        del cluster.graphs["fresh"]
        cluster.save()
    assert apply_as_planned(cluster).ok
    assert cluster.twin.left == set()


def test_graph_that_is_deleted_after_a_death_ends_its_changeset_and_comes_back_from_a_backup(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for graph, at in {
        "wide": "cluster_apply.after_schema_apply",
        "knowledge": "changeset.commit.before_write",
        "slim": "changeset.commit.after_write",
    }.items():
        cluster = scene.copy()
        restore = cluster.twin.back_up(cluster.uri(graph))
        die(cluster, Dying((at, 1)))
        cluster.twin.delete_tree(cluster.uri(graph))
        cluster.plant(LOCK, None)
        outcome = cluster.apply(atomic=True)
        assert cluster.ledger().changesets().open == (), graph
        assert any("restore its folder from a backup" in (problem.fix or "") for problem in outcome.diagnostics), graph
        restore()
        assert cluster.refresh().ok, graph
        assert cluster.apply(atomic=True).converged, graph
        require_whole(cluster)


def test_graph_that_is_half_deleted_after_a_death_is_given_up_when_its_root_is_removed(tmp_path: Path) -> None:
    cluster = Scene(tmp_path).copy()
    die(cluster, Dying(("changeset.commit.before_write", 1)))
    uri = cluster.uri("knowledge")
    cluster.twin.cut_delete_short(uri, DeleteOrder(cluster.twin.read(uri).incarnation, 0, 9))
    cluster.plant(LOCK, None)
    outcome = cluster.apply(atomic=True)
    assert cluster.ledger().changesets().open == ()
    (failed,) = (each for each in outcome.diagnostics if each.code == "schema_apply_failed")
    assert "remove its root, then run: gitops refresh" in (failed.fix or "")
    cluster.twin.delete_tree(uri)
    assert "graph_vanished" in codes(cluster.refresh())
    assert cluster.approve("graph.knowledge").ok
    assert cluster.approve("graph.old").ok
    assert cluster.apply(atomic=True).converged
    require_whole(cluster)


def test_graph_that_has_rows_by_now_is_left_behind_and_planned_so(tmp_path: Path) -> None:
    cluster = Scene(tmp_path).copy()
    die(cluster, Dying(("cluster_apply.after_graph_create", 1)))
    cluster.plant(LOCK, None)
    cluster.twin.load(cluster.uri("fresh"), 3)
    del cluster.graphs["fresh"]
    cluster.save()
    assert cluster.approve("graph.old", "kim").ok
    assert apply_as_planned(cluster).converged
    (record,) = (r for r in map(cluster.ledger().changeset, cluster.ledger().changeset_keys()) if r and r.orphaned)
    assert [each.address for each in record.orphaned] == ["graph.fresh"]
    cluster.graphs["fresh"] = {}
    cluster.save()
    assert [each.code for each in cluster.plan().obstacles] == ["graph_exists"]


def test_delete_that_is_refused_after_the_commit_is_planned_so(tmp_path: Path) -> None:
    cluster = Scene(tmp_path).copy()
    die(cluster, Dying(("changeset.commit.after_write", 1)))
    cluster.twin.load(cluster.uri("old"), 100_000)
    assert "graph_grown" in codes(apply_as_planned(cluster))
