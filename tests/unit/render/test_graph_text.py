"""An execution graph as text and as a diagram; hostile names stay inert in both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.cluster.plan.classes import atomic_graph
from gitops.render.graph import ARROW, to_mermaid, to_text

NODES = (
    ExecNode("schema.kb", "schema", Action.UPDATE, 0, (LockClaim("graph:kb"),), effect=Effect.PIVOT),
    ExecNode("query.kb.find", "query", Action.CREATE, 1, (LockClaim("graph:kb", LockMode.SHARED),), lifted=True),
    ExecNode("barrier.catalog", "barrier", Action.UPDATE, 2, effect=Effect.COMMIT),
    ExecNode("graph.old", "graph", Action.DELETE, 3, (LockClaim("graph:old"),), effect=Effect.FINISH),
)
GRAPH = ExecutionGraph(
    NODES,
    (
        ExecEdge("barrier.catalog", "graph.old", "finish_barrier"),
        ExecEdge("query.kb.find", "barrier.catalog", "stage_barrier"),
        ExecEdge("schema.kb", "barrier.catalog", "stage_barrier"),
        ExecEdge("schema.kb", "query.kb.find", "explicit_dependency"),
        ExecEdge("schema.kb", "query.kb.find", "schema_query", "kb"),
    ),
)
HOSTILE = 'query.kb.a"]\n```<script>%%{init}%%\x1b[2J\u202e\ud800;click n0 "javascript:x"'


def test_text():
    assert to_text(GRAPH) == (
        "Execution graph: 4 nodes, 5 edges, 4 layers, 0 cycles\n"
        "\n"
        "Edges:\n"
        "  barrier.catalog -> graph.old [finish_barrier]\n"
        "  query.kb.find -> barrier.catalog [stage_barrier]\n"
        "  schema.kb -> barrier.catalog [stage_barrier]\n"
        "  schema.kb -> query.kb.find [explicit_dependency]\n"
        "  schema.kb -> query.kb.find [schema_query: kb]\n"
        "\n"
        "Layer 1:\n"
        "  update schema.kb [pivot]\n"
        "\n"
        "Layer 2:\n"
        "  create query.kb.find [stage, behind the pivot]\n"
        "\n"
        "Layer 3:\n"
        "  barrier.catalog\n"
        "\n"
        "Layer 4:\n"
        "  delete graph.old [finish]\n"
    )
    assert to_text(ExecutionGraph()) == "Execution graph: 0 nodes, 0 edges, 0 layers, 0 cycles\n"


def test_text_shows_the_locks_that_keep_nodes_apart():
    shared, alone = LockClaim("graph:kb", LockMode.SHARED), LockClaim("graph:kb")
    claims = ((shared,), (shared,), (LockClaim("blob:1"), LockClaim("graph:old")), (LockClaim("blob:1"),))
    nodes = tuple(ExecNode(f"query.kb.q{i}", "query", Action.UPDATE, i, locks) for i, locks in enumerate(claims))
    assert to_text(ExecutionGraph(nodes)).split("\n\n")[-1] == "Locks:\n  blob:1: query.kb.q2, query.kb.q3\n"
    moved = (*nodes, ExecNode("schema.kb", "schema", Action.UPDATE, 4, (alone,)))
    line = "  graph:kb: query.kb.q0 (shared), query.kb.q1 (shared), schema.kb\n"
    assert line in to_text(ExecutionGraph(moved))
    # Where edges keep the nodes apart, a lock adds nothing.
    edges = (ExecEdge("schema.kb", "query.kb.q0", "x"), ExecEdge("query.kb.q0", "query.kb.q1", "x"))
    assert line in to_text(ExecutionGraph(moved, edges[:1]))
    assert line not in to_text(ExecutionGraph(moved, edges))


def test_text_folds_queries_that_are_only_published_again():
    graph = _queries(2, 20)
    quiet = {node.id for node in graph.nodes if node.kind == "query" and node.id != "query.g1.q0"}
    assert to_text(graph, quiet=quiet) == (
        "Execution graph: 42 nodes, 40 edges, 2 layers, 0 cycles\n"
        "\n"
        "Edges:\n"
        "  schema.g0 -> 20 queries of g0 [query_uses_schema]\n"
        "  schema.g1 -> query.g1.q0 [query_uses_schema]\n"
        "  schema.g1 -> 19 queries of g1 [query_uses_schema]\n"
        "\n"
        "Layer 1:\n"
        "  update schema.g0\n"
        "  update schema.g1\n"
        "\n"
        "Layer 2:\n"
        "  re-publish 20 queries of g0\n"
        "  create query.g1.q0\n"
        "  re-publish 19 queries of g1\n"
    )


def test_text_folds_who_holds_a_lock_and_says_one_of_each():
    claims = (LockClaim("graph:kb", LockMode.SHARED),)
    again = tuple(ExecNode(f"query.kb.q{i}", "query", Action.UPDATE, i, claims) for i in range(3))
    moved = (*again, ExecNode("schema.kb", "schema", Action.UPDATE, 3, (LockClaim("graph:kb"),)))
    assert to_text(ExecutionGraph(moved), quiet={node.id for node in again}).endswith(
        "\nLocks:\n  graph:kb: 3 queries of kb (shared), schema.kb\n"
    )
    one = ExecutionGraph(again[:1])
    assert to_text(one, quiet={again[0].id}) == (
        "Execution graph: 1 node, 0 edges, 1 layer, 0 cycles\n\nLayer 1:\n  re-publish 1 query of kb\n"
    )


def test_text_shows_the_edges_of_a_cycle():
    nodes = tuple(ExecNode(n, "query", Action.UPDATE, i) for i, n in enumerate("abc"))
    loop = ExecutionGraph(nodes, (ExecEdge("a", "b", "x"), ExecEdge("b", "a", "x"), ExecEdge("b", "c", "x")))
    text = to_text(loop)
    assert text.startswith(
        "Execution graph: 3 nodes, 3 edges, 0 layers, 1 cycle\n\nCycle:\n  a -> b [x]\n  b -> a [x]\n\n"
    )


def test_mermaid_frames_each_graph():
    assert to_mermaid(GRAPH) == (
        "flowchart LR\n"
        '  subgraph g0["kb"]\n'
        '    n0["update schema"]\n'
        '    n1["create query find"]\n'
        "  end\n"
        '  n2{{"catalog"}}\n'
        '  subgraph g2["old"]\n'
        '    n3["delete graph"]\n'
        "  end\n"
        '  n2 -->|"finish_barrier"| n3\n'
        '  n1 -->|"stage_barrier"| n2\n'
        '  n0 -->|"stage_barrier"| n2\n'
        '  n0 -->|"explicit_dependency, schema_query"| n1\n'
    )


def _queries(graphs: int, queries: int) -> ExecutionGraph:
    """A schema that is migrated in each graph, and queries that come after it."""
    nodes, edges = [], []
    for graph in range(graphs):
        nodes.append(ExecNode(f"schema.g{graph}", "schema", Action.UPDATE, len(nodes)))
        for query in range(queries):
            nodes.append(ExecNode(f"query.g{graph}.q{query}", "query", Action.CREATE, len(nodes)))
            edges.append(ExecEdge(f"schema.g{graph}", nodes[-1].id, "query_uses_schema"))
    return ExecutionGraph(tuple(nodes), tuple(edges))


def test_a_small_picture_has_every_node_and_no_reasons():
    assert to_mermaid(_queries(1, 1), reasons=False) == (
        'flowchart LR\n  subgraph g0["g0"]\n    n0["update schema"]\n    n1["create query q0"]\n  end\n  n0 --> n1\n'
    )


def test_thirty_leaves_are_one_box():
    assert to_mermaid(_queries(1, 30), reasons=False) == (
        'flowchart LR\n  subgraph g0["g0"]\n    n0["update schema"]\n    n1["create 30 queries"]\n  end\n  n0 --> n1\n'
    )


def test_many_graphs_are_a_box_each_and_the_rest_one():
    few, many = to_mermaid(_queries(15, 4), reasons=False), to_mermaid(_queries(100, 1), reasons=False)
    assert few.count("\n") == 16
    assert '  n14["5 changes of g14"]\n' in few
    assert many.count("\n") == 21
    assert '  n19["162 changes of 81 more graphs"]\n' in many
    assert "subgraph" not in few + many


def _atomic(graphs: int, queries: int, *, deletes: bool) -> ExecutionGraph:
    """New queries in each graph, whose schema is renamed in if a graph is deleted afterwards; all or nothing."""
    graph = _queries(graphs, queries)
    pivot = replace(graph.nodes[0], effect=Effect.PIVOT)
    gone = ExecNode("graph.old", "graph", Action.DELETE, len(graph.nodes), effect=Effect.FINISH)
    staged = tuple(node for node in graph.nodes if node.kind == "query")
    return atomic_graph(ExecutionGraph((pivot, *staged, gone) if deletes else staged))


def test_a_picture_has_no_barrier_that_keeps_nothing_apart():
    assert ARROW not in to_mermaid(_atomic(1, 3, deletes=False), reasons=False)
    assert to_mermaid(_atomic(1, 1, deletes=True), reasons=False).splitlines()[1:] == [
        '  subgraph g0["g0"]',
        '    n0["create query q0"]',
        '    n2["update schema"]',
        "  end",
        '  n1{{"prepared"}}',
        '  n3{{"drained"}}',
        '  subgraph g2["old"]',
        '    n4["delete graph"]',
        "  end",
        "  n3 --> n4",
        "  n1 --> n2",
        "  n0 --> n1",
        "  n2 --> n3",
    ]


@pytest.mark.parametrize(("graphs", "queries"), [(1, 30), (10, 3)])
def test_a_barrier_has_its_own_box_in_a_large_picture(graphs, queries):
    lines = to_mermaid(_atomic(graphs, queries, deletes=True), reasons=False).splitlines()
    boxes = [line for line in lines if "-->" not in line and line.strip().startswith("n")]
    assert [line.strip().partition("{{")[2] for line in boxes if "{{" in line] == ['"prepared"}}', '"drained"}}']
    assert len(boxes) <= 20
    forward = [tuple(int(name[1:]) for name in line.split(ARROW)) for line in map(str.strip, lines) if ARROW in line]
    assert not {(after, before) for before, after in forward} & set(forward)


def test_a_picture_of_whole_graphs_has_no_barriers():
    """Changes of one graph come before a barrier and after it."""
    lines = to_mermaid(_atomic(30, 2, deletes=True), reasons=False).splitlines()
    assert lines[-1] == '  n19["23 changes of 12 more graphs"]'
    assert len(lines) == 21


def test_hostile_names_stay_inert():
    claim = LockClaim(HOSTILE)
    graph = ExecutionGraph(
        (ExecNode(HOSTILE, "query", Action.DELETE, 0, (claim,)), NODES[0], replace(NODES[3], locks=(claim,))),
        (ExecEdge(HOSTILE, "schema.kb", HOSTILE, HOSTILE), ExecEdge("nowhere", HOSTILE, "x")),
    )
    text = to_text(graph)
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == 15
    diagram = to_mermaid(graph)
    assert diagram.isascii()
    assert len(diagram.splitlines()) == 9
    for bad in ("`", "<", "%", "\x1b", '"]\n`', 'javascript:x"'):
        assert bad not in diagram
    assert "#34;#93;#10;#96;" in diagram
