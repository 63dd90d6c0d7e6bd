"""Laws of the classes of an atomic run, over random graphs whose nodes have random classes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph
from gitops.cluster.plan.classes import BARRIERS, COMMITTED, DRAINED, PREPARED, atomic_graph
from gitops.cluster.plan.layers import serial_order, validate

KINDS = ("graph", "schema", "query", "policy")


@st.composite
def graphs(draw: st.DrawFn) -> ExecutionGraph:
    """Acyclic, with every class anywhere: also where no plan of today puts it."""
    count = draw(st.integers(0, 14))
    effects = [draw(st.sampled_from(list(Effect))) for _ in range(count)]
    nodes = tuple(
        ExecNode(
            f"n{index:02}",
            draw(st.sampled_from(KINDS)),
            Action.UPDATE,
            index,
            effect=effect,
            expanded="d" * 64 if effect is Effect.STAGE and draw(st.booleans()) else None,
        )
        for index, effect in enumerate(effects)
    )
    pairs = draw(st.sets(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=30))
    edges = {ExecEdge(f"n{a:02}", f"n{b:02}", "reference") for a, b in pairs if a < b < count}
    return ExecutionGraph(nodes, tuple(sorted(edges)))


@given(graphs())
def test_class_never_decreases_along_an_edge_and_barriers_close_no_cycle(graph: ExecutionGraph) -> None:
    found = atomic_graph(graph)
    assert validate(found) == ()
    nodes = {node.id: node for node in found.nodes}
    for edge in found.edges:
        if edge.before not in BARRIERS and edge.after not in BARRIERS:
            assert nodes[edge.before].phase.rank <= nodes[edge.after].phase.rank
    assert [node.position for node in found.nodes] == list(range(len(nodes)))
    assert list(serial_order(found)) == [node.id for node in found.nodes]


@given(graphs())
def test_nothing_finishes_before_the_commit_and_nothing_is_staged_behind_it(graph: ExecutionGraph) -> None:
    found = atomic_graph(graph)
    order = list(serial_order(found))
    before = {barrier: order[: order.index(barrier)] for barrier in BARRIERS}
    for node in found.nodes:
        if node.id in BARRIERS:
            continue
        assert (node.id in before[PREPARED]) == (node.phase is Effect.STAGE)
        assert (node.id in before[COMMITTED]) == (node.phase is not Effect.FINISH)
        assert (node.id in before[DRAINED]) == (node.phase is not Effect.FINISH)
        # What is taken back if the run fails is never behind the commit.
        assert not node.lifted or node.effect is Effect.STAGE
    # The rest of what is staged in halves, and of nothing else, is behind the commit.
    halved = {node.id for node in found.nodes if node.expanded is not None}
    assert halved == {node.of for node in found.nodes if node.of}
    assert all(
        node.effect is (Effect.FINISH if node.of else Effect.STAGE) for node in found.nodes if node.of or node.expanded
    )


@given(graphs(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(graph: ExecutionGraph, chance: object) -> None:
    nodes, edges = list(graph.nodes), list(graph.edges)
    chance.shuffle(nodes)  # type: ignore[attr-defined]
    chance.shuffle(edges)  # type: ignore[attr-defined]
    assert atomic_graph(replace(graph, nodes=tuple(nodes), edges=tuple(edges))) == atomic_graph(graph)
