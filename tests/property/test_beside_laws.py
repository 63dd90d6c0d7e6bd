"""Merges that are prepared beside each other end as if each had waited for the one before it, and so does every death."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger.layout import LOCK
from gitops.core.faults import Faults
from gitops.database.graph.port import Existence
from tests.support.cluster import COMMENTED, OTHER_QUERY, QUERY, SCHEMA, WIDER, Cluster
from tests.support.effort import cases as tries
from tests.support.faults import Death, EndAt, visits
from tests.support.merges import MergeLine

GRAPHS = ("alpha", "beta", "gamma")
TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BARE = "node Person {\n  handle: String @key\n}\n"
Edit = Callable[[Cluster], object]


def _schema(graph: str, text: str) -> Edit:
    return lambda cluster: cluster.write(f"{graph}.pg", text) if graph in cluster.graphs else None


def _graph(cluster: Cluster, graph: str) -> None:
    cluster.graphs.setdefault(graph, {})
    cluster.save()


def _no_graph(cluster: Cluster, graph: str) -> None:
    cluster.graphs.pop(graph, None)
    cluster.policies = {name: [g for g in bound if g != graph] for name, bound in cluster.policies.items()}
    cluster.policies = {name: bound for name, bound in cluster.policies.items() if bound}
    cluster.save()


def _query(cluster: Cluster, graph: str, text: str | None) -> None:
    if graph not in cluster.graphs:
        return
    cluster.graphs[graph].pop("find_person", None)
    if text is not None and (cluster.folder / f"{graph}.pg").read_text() in (SCHEMA, WIDER, COMMENTED):
        cluster.write(f"{graph}.gq", text)
        cluster.graphs[graph]["find_person"] = f"{graph}.gq"
    cluster.save()


def _bind(cluster: Cluster, policy: str, scope: str) -> None:
    if scope == "cluster" or scope in cluster.graphs:
        cluster.bind(policy, [scope])
        cluster.save()


def _edits() -> st.SearchStrategy[Edit]:
    graphs = st.sampled_from(GRAPHS)
    new = st.sampled_from(("delta", "epsilon"))
    return st.one_of(
        st.builds(_schema, graphs, st.sampled_from((WIDER, COMMENTED, SCHEMA, TALL, BARE))),
        st.builds(lambda graph: lambda cluster: _graph(cluster, graph), new),
        st.builds(lambda graph: lambda cluster: _no_graph(cluster, graph), st.one_of(graphs, new)),
        st.builds(
            lambda graph, text: lambda cluster: _query(cluster, graph, text),
            graphs,
            st.sampled_from((QUERY, OTHER_QUERY, None)),
        ),
        st.builds(
            lambda policy, scope: lambda cluster: _bind(cluster, policy, scope),
            st.sampled_from(("base", "staff")),
            st.one_of(graphs, st.just("cluster")),
        ),
    )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Cluster]:
    """A cluster with three graphs, copied for each run."""
    folder = tmp_path_factory.mktemp("beside")
    cluster = Cluster(folder)
    cluster.graphs = {name: {} for name in GRAPHS}
    cluster.policies = {"base": ["alpha"]}
    cluster.save()
    cluster.converge()

    def copied() -> Cluster:
        made, place = copy.copy(cluster), tmp_path_factory.mktemp("copy") / "cluster"
        shutil.copytree(folder, place)
        made.folder, made.clock, made.ids = place, copy.copy(cluster.clock), copy.copy(cluster.ids)
        made.graphs = {name: dict(queries) for name, queries in cluster.graphs.items()}
        made.policies = {name: list(bound) for name, bound in cluster.policies.items()}
        made.twin = made.engine = cluster.twin.moved(str(folder), str(place))
        return made

    return copied


def _line(cluster: Cluster, edits: list[list[Edit]]) -> MergeLine:
    line = MergeLine(cluster)
    for together in edits:
        line.merge(lambda cluster, together=together: [edit(cluster) for edit in together])  # type: ignore[misc]
    return line


def _applied(cluster: Cluster) -> tuple[object, ...]:
    """The applied state. Its revision counts writes, and a death can cause further ones."""
    state = cluster.state
    return state.resources, state.config_digest, state.statuses


def _live(cluster: Cluster) -> dict[str, str]:
    """The graphs. A graph of a merge that is prepared is ahead of the applied state."""
    graphs = ("delta", "epsilon", *GRAPHS)
    return {g: cluster.live(g) for g in graphs if cluster.engine.exists(cluster.uri(g)) is Existence.PRESENT}


def _require_settled(cluster: Cluster) -> None:
    """Nothing is open or announced, and each record is what its events give."""
    ledger = cluster.ledger()
    assert ledger.changesets().open == ()
    assert not cluster.sidecars
    assert not cluster.locked
    for key in ledger.changeset_keys():
        record = ledger.changeset(key)
        assert record is not None
        assert record.ended
        assert replay(ledger.events(key=key)) == record


_BROKEN_BY_A_RENAME: list[list[Edit]] = [
    [_schema("alpha", WIDER), lambda cluster: _query(cluster, "alpha", QUERY)],
    [_schema("alpha", TALL)],
]
"""The second folder has an error: its query names a type that is called otherwise now."""


@settings(max_examples=tries(150), deadline=None)
@example(_BROKEN_BY_A_RENAME)
@given(edits=st.lists(st.lists(_edits(), min_size=1, max_size=2), min_size=2, max_size=5))
def test_each_merge_leaves_what_it_leaves_in_order(scene: Callable[[], Cluster], edits: list[list[Edit]]) -> None:
    """After each of them, the state, its revision and the graphs are the same, and so is the record of each plan."""
    waiting, beside = _line(scene(), edits), _line(scene(), edits)
    for number, (one, other) in enumerate(zip(waiting.merges, beside.merges, strict=True)):
        first = waiting.land(one)
        if not beside.prepared:
            beside.prepare(beside.merges[number:])
        second = beside.land(other)
        assert (first.ok, first.converged) == (second.ok, second.converged)
        assert [c for c in first.changes if c.seen is None] == [c for c in second.changes if c.seen is None]
        assert [(r.plan.digest, r.state, r.part, r.covers) for r in first.changesets] == [
            (r.plan.digest, r.state, r.part, r.covers) for r in second.changesets
        ]
        assert _applied(waiting.cluster) == _applied(beside.cluster)
        assert waiting.cluster.state.revision == beside.cluster.state.revision
    assert _live(waiting.cluster) == _live(beside.cluster)
    beside.close()
    _require_settled(beside.cluster)


_DISJOINT: list[list[Edit]] = [
    [_schema("alpha", WIDER)],
    [_schema("beta", TALL), lambda cluster: _graph(cluster, "delta")],
]
"""A migration that adds, one that cannot be rolled back, and a graph that is created."""


def _die(line: MergeLine, faults: Faults) -> None:
    """Prepare and land everything until the process dies."""
    with suppress(Death):
        for number, merge in enumerate(line.merges):
            if not line.prepared:
                line.prepare(line.merges[number:], faults)
            line.land(merge, faults)
    for each in line.prepared:
        with suppress(Death):
            each.wait()


def _next_runs(line: MergeLine) -> MergeLine:
    """What another process does, after a person released the lock: it applies what is not committed, or the newest again."""
    line.cluster.plant(LOCK, None)
    later, ledger = MergeLine(line.cluster, line.merges), line.cluster.ledger()
    records = map(ledger.changeset, ledger.changeset_keys())
    committed = {r.source.merge_commit for r in records if r is not None and r.phase == "committed"}
    first = max((n for n, merge in enumerate(line.merges, start=1) if merge.commit in committed), default=0)
    for merge in later.merges[first:] or later.merges[-1:]:
        outcome = later.land(merge)
        assert outcome.ok, [d.message for d in outcome.diagnostics]
        assert outcome.converged, (merge.commit, [d.message for d in outcome.diagnostics])
    return later


@pytest.mark.slow
def test_a_death_anywhere_is_settled_by_the_next_runs(scene: Callable[[], Cluster]) -> None:
    faults = EndAt()
    whole = _line(scene(), _DISJOINT)
    _die(whole, faults)
    whole.close()
    _require_settled(whole.cluster)
    expected = _applied(whole.cluster), _live(whole.cluster)
    points = visits(faults.reached)
    assert len(points) > 20
    for at in points:
        line = _line(scene(), _DISJOINT)
        _die(line, EndAt(*at))
        later = _next_runs(line)
        _require_settled(later.cluster)
        assert (_applied(later.cluster), _live(later.cluster)) == expected, at
