"""Merges that are prepared beside earlier ones: which ones, and what interrupted and slow runs leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.changesets.stream import newest_attempt
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.cluster.model.outcome import Course
from gitops.cluster.plan.leftovers import Interrupted
from gitops.core.cancel import Cancellation
from tests.support.cluster import COMMENTED, OTHER_QUERY, SCHEMA, WIDER, Cluster, codes
from tests.support.faults import DoAt, FailAt
from tests.support.merges import MergeLine

Edit = Callable[[Cluster], object]

GRAPHS = ("alpha", "beta")


def widen(graph: str) -> Edit:
    return lambda cluster: cluster.write(f"{graph}.pg", WIDER)


def create(graph: str) -> Edit:
    def edit(cluster: Cluster) -> None:
        cluster.graphs[graph] = {}
        cluster.save()

    return edit


def ask(graph: str, text: str = OTHER_QUERY) -> Edit:
    def edit(cluster: Cluster) -> None:
        cluster.write(f"{graph}.gq", text)
        cluster.graphs[graph]["find_person"] = f"{graph}.gq"
        cluster.save()

    return edit


def bind(policy: str, scope: str) -> Edit:
    def edit(cluster: Cluster) -> None:
        cluster.bind(policy, [scope])
        cluster.save()

    return edit


def unbind(cluster: Cluster) -> None:
    cluster.policies = {}
    cluster.save()


def drop(graph: str) -> Edit:
    def edit(cluster: Cluster) -> None:
        del cluster.graphs[graph]
        cluster.save()

    return edit


def both(*edits: Edit) -> Edit:
    return lambda cluster: [edit(cluster) for edit in edits]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Two graphs, the first with a policy, and two queries of the second."""
    made = Cluster(tmp_path)
    made.graphs = {name: {} for name in GRAPHS}
    made.policies = {"base": ["alpha"]}
    made.save()
    made.converge()
    return made


def line_of(cluster: Cluster, *edits: Edit) -> MergeLine:
    line = MergeLine(cluster)
    for edit in edits:
        line.merge(edit)
    return line


def records(cluster: Cluster) -> list[Changeset]:
    """The open ones, oldest first."""
    return list(cluster.ledger().changesets().open)


TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
PAIRS = {
    "two graphs": (widen("alpha"), widen("beta"), 2),
    "a graph that is new": (widen("alpha"), create("gamma"), 2),
    "a pivot takes its turn": (widen("alpha"), lambda c: c.write("beta.pg", TALL), 2),
    "a query beside a migration of another graph": (widen("alpha"), ask("beta"), 2),
    "a policy of another graph": (widen("alpha"), bind("staff", "beta"), 2),
    "the same graph": (widen("alpha"), ask("alpha"), 1),
    "the same schema": (widen("alpha"), lambda c: c.write("alpha.pg", COMMENTED), 1),
    "a policy of the graph": (widen("alpha"), bind("staff", "alpha"), 1),
    "a query of a graph that is created": (create("gamma"), ask("gamma"), 1),
    "a policy of a graph that is created": (create("gamma"), bind("staff", "gamma"), 1),
    "a policy that leaves the graph": (widen("alpha"), unbind, 1),
    "the scope of one policy for another": (
        both(widen("beta"), bind("staff", "cluster")),
        bind("base", "cluster"),
        1,
    ),
    "a delete, which has a gate": (widen("alpha"), drop("beta"), 1),
    "what follows a gate": (drop("beta"), widen("alpha"), 0),
    "a first merge that takes no time": (ask("alpha"), widen("beta"), 0),
    "no change at all": (widen("alpha"), lambda _: None, 1),
}


@pytest.mark.parametrize("case", PAIRS)
def test_merges_that_share_anything_wait_for_each_other(cluster: Cluster, case: str) -> None:
    first, second, together = PAIRS[case]
    line = line_of(cluster, first, second)
    assert line.prepare() == together
    assert [each.source.merge_commit for each in records(cluster)] == [m.commit for m in line.merges[:together]]
    for merge in line.merges:
        outcome = line.land(merge)
        assert outcome.converged or "gate" in case
    line.close()
    assert not cluster.locked
    assert not cluster.sidecars


def test_a_merge_with_an_approval_waits_as_well(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), drop("beta"))
    assert cluster.approve("graph.beta").ok
    assert line.prepare() == 1
    assert all(line.land(merge).converged for merge in line.merges)


def test_a_changeset_that_no_longer_fits_takes_back_those_beside_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare()
    one, two = records(cluster)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupted, "fits", lambda *_: False)
        assert line.land(line.merges[0]).converged
    assert records(cluster) == []
    assert line.awaited[-2:] == [one.key, two.key]
    assert cluster.live("beta") == SCHEMA
    assert line.land(line.merges[1]).converged


def test_what_is_prepared_is_not_done_again(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    assert line.prepare() == 2
    for each in line.prepared:
        assert each.wait()
    assert (cluster.live("alpha"), cluster.live("beta")) == (WIDER, WIDER)
    assert (
        cluster.state.digests()[line.prepared[1].record.members[0].address] != line.prepared[1].record.members[0].after
    )
    migrated = cluster.twin.calls["prepare_migration"]
    for merge in line.merges:
        assert line.land(merge).converged
    assert cluster.twin.calls["prepare_migration"] == migrated


def test_the_lock_is_kept_from_the_first_to_the_last(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare()
    for merge, locked in zip(line.merges, (True, False), strict=True):
        assert codes(cluster.apply(atomic=True)) == ["state_lock_held"]
        assert line.land(merge).converged
        line.close() if not line.prepared else None
        assert cluster.locked is locked


def test_a_lock_that_was_broken_meanwhile_is_taken_again_unless_another_run_has_it(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare()
    cluster.plant(LOCK, None)
    cluster.hold_lock()
    assert "state_lock_held" in codes(line.land(line.merges[0]))
    line.close()
    assert cluster.locked
    cluster.plant(LOCK, None)
    assert all(line.land(merge).converged for merge in line.merges)
    line.close()
    assert not cluster.locked


def test_a_change_that_cannot_be_prepared_is_tried_again_in_its_turn(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare(line.merges[:1])
    line.prepare(line.merges[1:], FailAt("cluster_apply.before_schema_apply"))
    assert len(line.prepared) == 2
    for merge in line.merges:
        assert line.land(merge).converged


def test_an_earlier_merge_that_fails_takes_back_what_was_prepared_on_it(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"), create("gamma"))
    assert line.prepare(faults=FailAt("cluster_apply.before_schema_apply")) == 3
    outcome = line.land(line.merges[0], FailAt("cluster_apply.before_schema_apply"))
    assert outcome.changesets[0].state is ChangesetState.FAILED
    prepared = [each.key for each in records(cluster)]
    assert len(prepared) == 2
    assert line.land(line.merges[1]).converged
    assert line.awaited[-2:] == prepared
    ledger = cluster.ledger()
    taken_back = [record for key in prepared if (record := ledger.changeset(key))]
    assert {record.state for record in taken_back} == {ChangesetState.FAILED}
    # Who waits for one of these merges goes on waiting.
    assert newest_attempt(taken_back) == ()
    assert records(cluster) == []
    assert line.prepared == []
    assert cluster.live("alpha") == WIDER
    assert line.land(line.merges[2]).converged
    line.close()
    assert not cluster.locked


def test_a_stop_leaves_what_the_next_run_continues(cluster: Cluster) -> None:
    cancel = Cancellation()
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare()
    cancel.request()
    stopped = apply(replace(line.workspace(line.merges[0]), cancel=cancel))
    assert "apply_interrupted" in codes(stopped)
    line.close()
    one, two = records(cluster)
    assert not cluster.locked
    later = MergeLine(cluster, line.merges)
    foreseen = later.foresee(line.merges[0])
    assert [(each.key, each.course) for each in foreseen] == [(one.key, Course.RESUMED), (two.key, Course.WAITS)]
    for merge, record in zip(later.merges, (one, two), strict=True):
        outcome = later.land(merge)
        assert [each.key for each in outcome.changesets] == [record.key]
        assert outcome.converged


def test_a_run_of_something_else_takes_back_all_of_them(cluster: Cluster) -> None:
    line = line_of(cluster, widen("alpha"), widen("beta"))
    line.prepare()
    line.close()
    cluster.write("alpha.pg", SCHEMA)
    cluster.write("beta.pg", SCHEMA)
    create("gamma")(cluster)
    assert {each.course for each in cluster.plan().interrupted} == {Course.TAKEN_BACK}
    assert cluster.apply(atomic=True).converged
    assert records(cluster) == []
    assert (cluster.live("alpha"), cluster.live("beta")) == (SCHEMA, SCHEMA)


@pytest.mark.parametrize(
    ("graph", "edit", "point"),
    [
        ("beta", widen("beta"), "cluster_apply.before_schema_apply"),
        ("gamma", create("gamma"), "cluster_apply.before_graph_create"),
    ],
)
def test_a_slow_run_whose_lock_was_broken_changes_nothing_any_more(
    cluster: Cluster, graph: str, edit: Edit, point: str
) -> None:
    """It is about to change a graph while another run settles its changeset, and applies what came later."""
    reached, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        reached.set()
        assert go_on.wait(60)

    line = line_of(cluster, widen("alpha"), edit)
    line.merge(lambda c: c.write(f"{graph}.pg", WIDER.replace("city", "town")))
    line.prepare(line.merges[:1])
    line.prepare(line.merges[1:2], DoAt(point, stop))
    assert len(line.prepared) == 2
    assert reached.wait(60)
    cluster.plant(LOCK, None)
    other = MergeLine(cluster, line.merges)
    for merge in other.merges:
        assert other.land(merge).converged
    live, state = cluster.live(graph), cluster.state
    go_on.set()
    assert line.prepared[1].wait()
    assert (cluster.live(graph), cluster.state) == (live, state)
    assert not cluster.plan().plan.changes  # type: ignore[union-attr]
