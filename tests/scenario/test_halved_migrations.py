"""A migration that adds and drops, in an atomic run: what it adds comes before the commit, what it drops goes after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import Changeset, ChangesetState, RuntimeState
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError, RemoteError
from tests.scenario.test_changeset_deaths import Dying, copy_of, die
from tests.support.cluster import QUERY, SCHEMA, SCHEMA_ADDRESS, Cluster, DoAt, FailAt, codes, found, lance_engine

MOVED = "// where, not when\nnode Person {\n  handle: String @key\n  city: String?\n}\n"
BOTH = "node Person {\n    born: I32?\n    city: String?\n    handle: String @key\n}\n"
BY_CITY = QUERY.replace("{ $p.handle }", "{ $p.city }")
BEFORE_COMMIT, AFTER_COMMIT = "changeset.commit.before_write", "changeset.commit.after_write"
MIGRATION = "cluster_apply.before_schema_apply"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
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


def test_readers_find_what_goes_until_the_commit_and_what_comes_with_it(cluster: Cluster) -> None:
    watching = Watching(cluster)
    outcome = cluster.apply(atomic=True, faults=watching)
    assert outcome.converged, [d.message for d in outcome.diagnostics]
    assert watching.live == [(MIGRATION, SCHEMA), (BEFORE_COMMIT, BOTH), (AFTER_COMMIT, BOTH), (MIGRATION, BOTH)]
    (record,) = outcome.changesets
    assert record.base.state_revision + 2 == cluster.state.revision
    assert cluster.state.applied_digest == watching.applied
    (member,) = (each for each in record.members if each.address == SCHEMA_ADDRESS)
    assert (member.action, member.effect, member.expanded) == (Action.UPDATE, Effect.STAGE, digest(BOTH.encode()))
    assert member.runtime.state is RuntimeState.CANONICAL
    require_landed(cluster)


def test_run_that_lands_what_it_can_takes_one_step(cluster: Cluster) -> None:
    watching = Watching(cluster)
    assert cluster.apply(faults=watching).converged
    assert watching.live == [(MIGRATION, SCHEMA)]
    assert all(member.expanded is None for member in newest(cluster).members)
    require_landed(cluster)


def test_what_was_added_is_taken_back_when_something_fails(cluster: Cluster) -> None:
    cluster.graphs["beta"] = {}
    cluster.save()
    before = cluster.state.applied_digest
    outcome = cluster.apply(atomic=True, faults=FailAt("changeset.commit.before_write"))
    assert codes(outcome).count("changeset_rolled_back") == 1
    assert cluster.live("knowledge") == SCHEMA
    assert (newest(cluster).state, newest(cluster).orphaned) == (ChangesetState.FAILED, ())
    assert cluster.state.applied_digest == before
    assert not cluster.sidecars
    assert cluster.apply(atomic=True).converged
    require_landed(cluster)


def test_graph_that_was_written_to_keeps_what_was_added_and_says_so(cluster: Cluster) -> None:
    def write() -> None:
        cluster.migrate_graph("knowledge", BOTH)
        raise GitopsError("injected_failpoint", "a test fails this run")

    cluster.apply(atomic=True, faults=DoAt(BEFORE_COMMIT, write))
    (orphan,) = newest(cluster).orphaned
    assert (orphan.address, orphan.reason) == (SCHEMA_ADDRESS, "the graph was written to after its migration")
    assert cluster.live("knowledge") == BOTH
    # Only the rest is left to do, once the ledger records what is live.
    cluster.refresh()
    assert cluster.apply(atomic=True).converged
    require_landed(cluster)


def test_drop_that_fails_after_the_commit_is_tried_again(cluster: Cluster) -> None:
    class Failing:
        def reach(self, point: str) -> None:
            if point == MIGRATION and cluster.live("knowledge") == BOTH:
                raise GitopsError("injected_failpoint", "a test fails this run")

    outcome = cluster.apply(atomic=True, faults=Failing())
    assert not outcome.converged
    record = newest(cluster)
    (member,) = (each for each in record.members if each.address == SCHEMA_ADDRESS)
    assert (record.state, record.needs_attention, member.runtime.state) == (
        ChangesetState.DRAINED,
        True,
        RuntimeState.FAILED,
    )
    assert cluster.state.resources[SCHEMA_ADDRESS].digest == digest(MOVED.encode())
    assert cluster.apply(atomic=True).ok
    require_landed(cluster)


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
    die(cluster, Dying((AFTER_COMMIT, 1)))
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
            assert problem.fix.startswith("record what is live: gitops refresh; then")
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
    die(cluster, Dying((AFTER_COMMIT, 1)))
    cluster.plant(LOCK, None)
    cluster.migrate_graph("knowledge", EXTRA)
    kept, cluster.graphs, cluster.policies = cluster.graphs, {}, {}
    cluster.save()
    fix = found(cluster.apply(atomic=True), "schema_apply_failed").fix or ""
    assert fix.startswith("declare its graph again, then record what is live: gitops refresh")
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

    class Failing:
        def reach(self, point: str) -> None:
            if point == "ledger.commit.before_state" and failures and cluster.live("knowledge") == MOVED:
                raise failures.pop()

    outcome = cluster.apply(atomic=True, faults=Failing())
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
    faults = Dying()
    die(copy_of(scene, tmp_path / "whole"), faults)
    reached = {point: visits for point, visits in faults.visits.items() if point.startswith(near)}
    points = [(point, visit) for point, visits in reached.items() for visit in range(1, visits + 1)]
    assert (MIGRATION, 2) in points
    for number, at in enumerate(points):
        for again in ("same", "before"):
            cluster = copy_of(scene, tmp_path / f"{number}{again}")
            die(cluster, Dying(at))
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
