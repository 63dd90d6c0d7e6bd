"""Atomic runs that die, are interrupted or given up: the next one goes on with them, takes them back, or finishes them."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import Changeset, ChangesetState, RuntimeState
from gitops.cluster.model.outcome import ApplyOutcome, Course
from gitops.cluster.session.changesets import Steering
from gitops.core.cancel import Cancellation
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import Faults
from gitops.database.graph.port import DeleteOrder, Existence
from gitops.render.text import apply_counts
from tests.support.cluster import QUERY, SCHEMA, SCHEMA_ADDRESS, WIDER, Cluster, codes, found, lance_engine
from tests.support.faults import Death, DoAt, EndAt, FailAt, fail, visits

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BARE = "node Person {\n  handle: String @key\n}\n"


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
    scene, faults = Scene(tmp_path), EndAt()
    cluster = scene.copy()
    die(cluster, faults)
    require_whole(cluster)
    points = visits(faults.reached)
    assert ("changeset.commit.before_write", 1) in points
    for at in points:
        cluster = scene.copy()
        die(cluster, EndAt(*at))
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
    scene, faults = Scene(tmp_path), EndAt()
    die(scene.copy(), faults)
    before = [
        p
        for p in dict.fromkeys(faults.reached)
        if p.startswith(("cluster_apply.", "changeset.commit.before")) and "delete" not in p
    ]
    assert "cluster_apply.after_graph_create" in before
    for point in before:
        cluster = scene.copy()
        die(cluster, EndAt(point))
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
    die(cluster, EndAt("cluster_apply.after_graph_create"))
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
    die(cluster, EndAt(point))
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
        die(cluster, EndAt(at))
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
    die(cluster, EndAt("changeset.commit.before_write"))
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
    die(cluster, EndAt("cluster_apply.after_graph_create"))
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
    die(cluster, EndAt("changeset.commit.after_write"))
    cluster.twin.load(cluster.uri("old"), 100_000)
    assert "graph_grown" in codes(apply_as_planned(cluster))


MOVED = "// where, not when\nnode Person {\n  handle: String @key\n  city: String?\n}\n"
BOTH = "node Person {\n    born: I32?\n    city: String?\n    handle: String @key\n}\n"
BY_CITY = QUERY.replace("{ $p.handle }", "{ $p.city }")
BEFORE_COMMIT, AFTER_COMMIT = "changeset.commit.before_write", "changeset.commit.after_write"
MIGRATION = "cluster_apply.before_schema_apply"


@pytest.fixture
def moving(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.converge()
    declare(made)
    return made


def declare(cluster: Cluster, schema: str = MOVED, query: str = BY_CITY) -> None:
    cluster.write("knowledge.pg", schema)
    cluster.write("people.gq", query)


def newest(cluster: Cluster) -> Changeset:
    ledger = cluster.ledger()
    records = [ledger.changeset(key) for key in ledger.changeset_keys()]
    for record in records:
        assert record is not None
        assert replay(ledger.events(key=record.key)) == record
    return max((record for record in records if record is not None), key=lambda record: record.created_at)


def require_landed(cluster: Cluster) -> None:
    assert cluster.live("knowledge") == MOVED
    reading, seen = (
        cluster.engine.read(cluster.uri("knowledge")),
        cluster.state.observations[graph_address("knowledge")],
    )
    assert (seen["rows"], seen["manifest_version"]) == (reading.rows, reading.manifest_version)
    assert seen["schema_digest"] == cluster.state.resources[SCHEMA_ADDRESS].digest
    assert seen["schema_matches_desired"] is True
    assert not cluster.sidecars
    assert cluster.ledger().changesets().open == ()
    assert newest(cluster).state is ChangesetState.FINALIZED
    assert not cluster.plan().plan.changes  # type: ignore[union-attr]


class Watching:
    """Notes the live schema at each visit of the points that matter, and then does what other faults do."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.live: list[tuple[str, str]] = []
        self.applied = ""

    def reach(self, point: str) -> None:
        if point in (MIGRATION, BEFORE_COMMIT, AFTER_COMMIT):
            self.live.append((point, self._cluster.live("knowledge")))
            self.applied = self._cluster.state.applied_digest


def test_readers_find_what_goes_until_the_commit_and_what_comes_with_it(moving: Cluster) -> None:
    watching = Watching(moving)
    outcome = moving.apply(atomic=True, faults=watching)
    assert outcome.converged, [d.message for d in outcome.diagnostics]
    assert watching.live == [(MIGRATION, SCHEMA), (BEFORE_COMMIT, BOTH), (AFTER_COMMIT, BOTH), (MIGRATION, BOTH)]
    (record,) = outcome.changesets
    assert record.base.state_revision + 2 == moving.state.revision
    assert moving.state.applied_digest == watching.applied
    (member,) = (each for each in record.members if each.address == SCHEMA_ADDRESS)
    assert (member.action, member.effect, member.expanded) == (Action.UPDATE, Effect.STAGE, digest(BOTH.encode()))
    assert member.runtime.state is RuntimeState.CANONICAL
    require_landed(moving)


def test_run_that_lands_what_it_can_takes_one_step(moving: Cluster) -> None:
    watching = Watching(moving)
    assert moving.apply(faults=watching).converged
    assert watching.live == [(MIGRATION, SCHEMA)]
    assert all(member.expanded is None for member in newest(moving).members)
    require_landed(moving)


def test_what_was_added_is_taken_back_when_something_fails(moving: Cluster) -> None:
    moving.graphs["beta"] = {}
    moving.save()
    before = moving.state.applied_digest
    outcome = moving.apply(atomic=True, faults=FailAt("changeset.commit.before_write"))
    assert codes(outcome).count("changeset_rolled_back") == 1
    assert moving.live("knowledge") == SCHEMA
    assert (newest(moving).state, newest(moving).orphaned) == (ChangesetState.FAILED, ())
    assert moving.state.applied_digest == before
    assert not moving.sidecars
    assert moving.apply(atomic=True).converged
    require_landed(moving)


def test_graph_that_was_written_to_keeps_what_was_added_and_says_so(moving: Cluster) -> None:
    def write() -> None:
        moving.migrate_graph("knowledge", BOTH)
        raise GitopsError("injected_failpoint", "a test fails this run")

    moving.apply(atomic=True, faults=DoAt(BEFORE_COMMIT, write))
    (orphan,) = newest(moving).orphaned
    assert (orphan.address, orphan.reason) == (SCHEMA_ADDRESS, "the graph was written to after its migration")
    assert moving.live("knowledge") == BOTH
    # Only the rest is left to do, once the ledger records what is live.
    moving.refresh()
    assert moving.apply(atomic=True).converged
    require_landed(moving)


def test_drop_that_fails_after_the_commit_is_tried_again(moving: Cluster) -> None:
    def fail_at_the_drop() -> None:
        if moving.live("knowledge") == BOTH:
            fail(MIGRATION)

    outcome = moving.apply(atomic=True, faults=DoAt(MIGRATION, fail_at_the_drop))
    assert not outcome.converged
    record = newest(moving)
    (member,) = (each for each in record.members if each.address == SCHEMA_ADDRESS)
    assert (record.state, record.needs_attention, member.runtime.state) == (
        ChangesetState.DRAINED,
        True,
        RuntimeState.FAILED,
    )
    assert moving.state.resources[SCHEMA_ADDRESS].digest == digest(MOVED.encode())
    assert moving.apply(atomic=True).ok
    require_landed(moving)


EXTRA = BOTH.replace("    city", "    nick: String?\n    city")
PUT_BACK = "// as it was\n" + BOTH


@pytest.mark.parametrize(
    ("by_hand", "differs"),
    [
        (EXTRA, "it has Person.nick"),
        (MOVED.replace("city", "town"), "it has Person.town; it lacks Person.born, Person.city"),
        (BOTH.replace("born: I32?", 'born: I32? @description("a year")'), "it changes Person.born"),
        (PUT_BACK, ""),
    ],
    ids=["more", "less", "other", "same"],
)
def test_drop_from_a_schema_that_a_person_changed_since_the_commit(tmp_path: Path, by_hand: str, differs: str) -> None:
    """Nothing is dropped that was not planned; what the message says to do brings the cluster to what is declared."""
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.converge()
    declare(cluster)
    die(cluster, EndAt(AFTER_COMMIT))
    cluster.plant(LOCK, None)
    cluster.migrate_graph("knowledge", by_hand)
    planned = cluster.plan()
    (pending,) = (each.message for each in planned.diagnostics if each.code == "cluster_recovery_pending")
    assert pending.endswith(
        f"cannot finish it, because of {SCHEMA_ADDRESS}" if differs else "the next apply finishes it"
    )
    if differs:
        stopped = planned.obstacles
        outcome = cluster.apply(atomic=True)
        assert not outcome.converged
        for problems in (stopped, outcome.diagnostics):
            (problem,) = (each for each in problems if each.code == "schema_apply_failed")
            assert problem.path == SCHEMA_ADDRESS
            assert problem.message.endswith(f"its live schema is not the one that the commit left: {differs}")
            assert problem.fix is not None
            assert problem.fix.startswith("record the live state: gitops refresh; then")
        assert cluster.live("knowledge") == by_hand
        assert newest(cluster).state is ChangesetState.DRAINED
        assert cluster.refresh().ok
    outcome = cluster.apply(atomic=True)
    assert outcome.ok, [d.message for d in outcome.diagnostics]
    assert outcome.converged
    require_landed(cluster)


def test_drop_of_a_graph_that_is_declared_no_longer_says_so_where_its_schema_was_changed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.converge()
    declare(cluster)
    die(cluster, EndAt(AFTER_COMMIT))
    cluster.plant(LOCK, None)
    cluster.migrate_graph("knowledge", EXTRA)
    kept, cluster.graphs, cluster.policies = cluster.graphs, {}, {}
    cluster.save()
    fix = found(cluster.apply(atomic=True), "schema_apply_failed").fix or ""
    assert fix.startswith("declare its graph again, then record the live state: gitops refresh")
    cluster.graphs, cluster.policies = kept, {"base": ["knowledge"]}
    cluster.save()
    assert cluster.refresh().ok
    assert cluster.apply(atomic=True).converged
    require_landed(cluster)


@pytest.mark.parametrize("times", [1, 2])
def test_end_that_cannot_be_recorded_is_reported_and_recorded_later(tmp_path: Path, times: int) -> None:
    cluster = Cluster(tmp_path)
    cluster.converge()
    declare(cluster)
    failures = [RemoteError("state_write_error", "the storage does not answer")] * times

    def fail_at_the_end() -> None:
        if failures and cluster.live("knowledge") == MOVED:
            raise failures.pop()

    outcome = cluster.apply(atomic=True, faults=DoAt("ledger.commit.before_state", fail_at_the_end))
    assert codes(outcome) == ["state_write_error"] * times
    assert not outcome.converged
    assert outcome.changesets[0].state is newest(cluster).state is ChangesetState.DRAINED
    assert cluster.apply(atomic=True).converged
    require_landed(cluster)


NEAR = ("cluster_apply.", "changeset.commit.", "ledger.sidecar.after")


@pytest.mark.parametrize("near", [NEAR, pytest.param("", marks=pytest.mark.slow)], ids=["near", "anywhere"])
def test_run_that_dies_is_gone_on_with_or_taken_back(tmp_path: Path, near: str | tuple[str, ...]) -> None:
    """At each point once; the next run finds the same declared, or what was applied before."""
    (tmp_path / "scene").mkdir()
    scene = Cluster(tmp_path / "scene")
    scene.converge()
    declare(scene)
    faults = EndAt()
    die(copy_of(scene, tmp_path / "whole"), faults)
    points = visits(point for point in faults.reached if point.startswith(near))
    assert (MIGRATION, 2) in points
    for number, at in enumerate(points):
        for again in ("same", "before"):
            cluster = copy_of(scene, tmp_path / f"{number}{again}")
            die(cluster, EndAt(*at))
            # A lock is released by a person, as after every death.
            cluster.plant(LOCK, None)
            live, recorded = cluster.live("knowledge"), cluster.state.resources[SCHEMA_ADDRESS].digest
            assert live in ((SCHEMA, BOTH) if recorded == digest(SCHEMA.encode()) else (BOTH, MOVED)), at
            if again == "before":
                declare(cluster, SCHEMA, QUERY)
            outcome = cluster.apply(atomic=True)
            if again == "before" and recorded == digest(MOVED.encode()) and live == BOTH:
                # A folder keeps no text of an earlier schema, so the rest waits until it is declared again.
                assert "schema_apply_failed" in codes(outcome), at
                declare(cluster)
                cluster.apply(atomic=True)
                declare(cluster, SCHEMA, QUERY)
                outcome = cluster.apply(atomic=True)
            assert outcome.converged, (at, again, [d.message for d in outcome.diagnostics])
            assert cluster.live("knowledge") == (MOVED if again == "same" else SCHEMA), (at, again)
            assert not cluster.sidecars, (at, again)
            assert cluster.ledger().changesets().open == (), (at, again)
            assert newest(cluster).ended
            if again == "same":
                # A run that settles an operation gives its graph a version: the recorded one may be older.
                assert cluster.state.observations[graph_address("knowledge")]["schema_matches_desired"], at
            assert not cluster.plan().plan.changes, (at, again)  # type: ignore[union-attr]


RENAMED = 'node Human @rename_from("Person") {\n  handle: String @key\n  born: I32?\n}\n'
OF_HUMANS = "query find_person($h: String) {\n  match { $p: Human { handle: $h } }\n  return { $p.handle }\n}\n"


def interrupted(cluster: Cluster, point: str) -> ApplyOutcome:
    """An atomic apply that a signal asks to stop when it is at a point."""
    cancel = Cancellation()
    workspace = cluster.workspace(None, DoAt(point, cancel.request))
    return apply(replace(workspace, atomic=True, cancel=cancel))


def test_a_running_pivot_is_finished_and_committed(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RENAMED)
    cluster.write("people.gq", OF_HUMANS)
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
    cluster.write("people.gq", OF_HUMANS)
    cluster.save()
    old = cluster.live("knowledge")
    assert not cluster.apply(atomic=True, faults=DoAt("cluster_apply.after_graph_create", lambda: give_up(cluster))).ok
    assert cluster.live("knowledge") == old
    outcome = cluster.apply(atomic=True)
    assert "changeset_rolled_back" in codes(outcome)
    assert outcome.converged
