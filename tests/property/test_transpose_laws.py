"""Laws of the way back through an execution graph, over random graphs."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.plan import ExecutionGraph
from gitops.cluster.plan.layers import neighbours, order_test, restricted, serial_order, transposed
from tests.property.test_scheduler_laws import graphs
from tests.support.effort import cases


def _reached(graph: ExecutionGraph) -> dict[str, set[str]]:
    after, _ = neighbours(graph)
    found: dict[str, set[str]] = {}
    for name in reversed(serial_order(graph)):
        found[name] = {other for target in after[name] for other in ({target} | found[target])}
    return found


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_the_transpose_of_the_transpose_is_the_graph(graph: ExecutionGraph) -> None:
    assert transposed(transposed(graph)) == graph


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_what_depends_on_a_change_is_undone_before_it(graph: ExecutionGraph) -> None:
    back = serial_order(transposed(graph))
    assert sorted(back) == sorted(node.id for node in graph.nodes)
    place = {name: at for at, name in enumerate(back)}
    assert all(place[edge.after] < place[edge.before] for edge in graph.edges)


@settings(max_examples=cases(40))
@given(graphs(largest=12), st.data())
def test_what_is_left_out_loses_no_order_and_adds_none(graph: ExecutionGraph, data: st.DataObject) -> None:
    keep = set(data.draw(st.lists(st.sampled_from([n.id for n in graph.nodes]), unique=True))) if graph.nodes else set()
    kept = restricted(graph, keep)
    assert [node for node in graph.nodes if node.id in keep] == list(kept.nodes)
    direct = {(edge.before, edge.after) for edge in graph.edges}
    for edge in kept.edges:
        between = edge.detail.split(" > ") if edge.reason == "via_unchanged" else []
        assert keep.isdisjoint(between)
        assert direct.issuperset(pairwise([edge.before, *between, edge.after]))
    before, after = _reached(graph), _reached(kept)
    assert {name: reached & keep for name, reached in before.items() if name in keep} == after
    assert transposed(transposed(kept)) == kept
    assert _reached(transposed(kept)) == _reached(restricted(transposed(graph), keep))


@settings(max_examples=cases(20))
@given(graphs(largest=12))
def test_nothing_changes_if_all_is_kept(graph: ExecutionGraph) -> None:
    assert restricted(graph, {node.id for node in graph.nodes}) == graph


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_two_nodes_are_ordered_if_one_reaches_the_other(graph: ExecutionGraph) -> None:
    behind, ordered = _reached(graph), order_test(graph)
    for one, other in product(behind, repeat=2):
        assert ordered(one, other) is (one in behind[other] or other in behind[one])
