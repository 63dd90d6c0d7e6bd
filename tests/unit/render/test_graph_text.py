"""An execution graph in text and JSON, and the progress of its run."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cli.progress import PATIENCE, LineLog
from gitops.cluster.apply.runner import run_graph
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import (
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    LockMode,
    NodeOutcome,
    NodeResult,
    RunEvent,
)
from gitops.cluster.plan.classes import atomic_graph
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.database.graph import results
from gitops.database.graph.results import (
    GcResult,
    GraphDescription,
    GraphOutcome,
    GraphReport,
    LoadRefusal,
    LoadResult,
    PurgeResult,
    RowList,
    VerifyFinding,
    VerifyFindingCode,
    VerifyReport,
)
from gitops.render.graph import ARROW, to_mermaid, to_text
from gitops.render.graph_data import graph_form, graph_text
from gitops.render.progress import RunProgress, event_form
from tests.support.clock import FixedClock

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
        "    direction LR\n"
        '    n0["update schema"]\n'
        '    n1["create query find"]\n'
        "  end\n"
        '  n2{{"catalog"}}\n'
        '  subgraph g2["old"]\n'
        "    direction LR\n"
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
        'flowchart LR\n  subgraph g0["g0"]\n    direction LR\n'
        '    n0["update schema"]\n    n1["create query q0"]\n  end\n  n0 --> n1\n'
    )


@pytest.mark.parametrize(("queries", "boxes"), [(4, 5), (5, 2), (15, 2)])
def test_a_picture_in_a_comment_shows_at_most_four_alike_one_by_one(queries, boxes):
    """With more, a comment is too narrow to read it. The command, whose picture has no such bound, shows each."""
    small, whole = (to_mermaid(_queries(1, queries), reasons=reasons) for reasons in (False, True))
    assert [len(re.findall(r"^    n", drawn, re.MULTILINE)) for drawn in (small, whole)] == [boxes, queries + 1]


def test_thirty_leaves_are_one_box():
    assert to_mermaid(_queries(1, 30), reasons=False) == (
        'flowchart LR\n  subgraph g0["g0"]\n    direction LR\n'
        '    n0["update schema"]\n    n1["create 30 queries"]\n  end\n  n0 --> n1\n'
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
        "    direction LR",
        '    n0["create query q0"]',
        '    n2["update schema"]',
        "  end",
        '  n1{{"prepared"}}',
        '  n3{{"drained"}}',
        '  subgraph g2["old"]',
        "    direction LR",
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
    assert len(diagram.splitlines()) == 11
    for bad in ("`", "<", "%", "\x1b", '"]\n`', 'javascript:x"'):
        assert bad not in diagram
    assert "#34;#93;#10;#96;" in diagram


REPORT = VerifyReport(False, 2, 3, (VerifyFinding(VerifyFindingCode.ROWS_MISMATCH, "nodes/x", "3 rows\x1b"),))


def outcomes() -> set[type]:
    """Every kind of result that a command has."""
    named = vars(results).values()
    found = {each for each in named if isinstance(each, type) and issubclass(each, GraphOutcome)}
    return found - {GraphOutcome, GraphReport}


@pytest.mark.parametrize("kind", sorted(outcomes(), key=lambda kind: kind.__name__))
def test_every_result_has_a_text(kind):
    # Without its fields: a result that has no text is refused before they are looked at.
    with suppress(AttributeError):
        assert graph_text(object.__new__(kind), "brain")


def test_a_result_without_a_text_is_an_error():
    with pytest.raises(TypeError, match="no text for GraphOutcome"):
        graph_text(GraphOutcome(), "brain")


def test_the_envelope_has_the_result_between_its_state_and_its_problems():
    assert graph_form(LoadResult(3, {"node:P": 1})) == {
        "ok": True,
        "manifest_version": 3,
        "rows": {"node:P": 1},
        "commit": None,
        "problems": [],
    }
    assert list(graph_form(REPORT)) == ["ok", "deep", "manifests", "table_versions", "findings", "problems"]
    assert not REPORT.ok


def test_a_refused_load_shows_its_problems():
    problems = Diagnostics()
    problems.add(Code.GRAPH_DATA_INVALID, "records[1]", "record 1: 'id' is not a text")
    refusal = LoadRefusal(problems)
    first, second = graph_text(refusal, "brain").splitlines()
    assert first == "graph load failed: nothing was loaded"
    assert second.startswith("ERROR graph_data_invalid records[1]: record 1:")
    assert graph_form(refusal) == {"ok": False, "problems": problems.to_json()}


def test_descriptions_and_rows_have_the_envelope():
    tables = {"node:P": {"rows": 2, "columns": {"name": "String"}}}
    description = GraphDescription("g", "2026-01-01T00:00:00Z", "main", "c", 4, "d", tables, ("node:Q",))
    assert graph_text(description, "brain") == "graph brain: manifest version 4\n  node:P: 2 rows: name"
    assert list(graph_form(description)) == [
        "ok",
        "graph_id",
        "created_at",
        "branch",
        "commit",
        "manifest_version",
        "schema_digest",
        "tables",
        "dropped",
        "problems",
    ]
    assert graph_form(RowList([{"id": "a"}])) == {"ok": True, "rows": [{"id": "a"}], "problems": []}
    assert graph_text(RowList([]), "brain") == "no rows"


def test_nothing_acts_on_the_terminal():
    assert graph_text(REPORT, "brain").splitlines()[1] == r"  problem rows_mismatch: nodes/x: 3 rows\x1b"


def test_a_dry_run_says_that_nothing_was_removed():
    assert "would free about 1.0 MiB" in graph_text(GcResult(True, 1, {"nodes/x": (1, 2)}, (), 2**20), "brain")
    purged = graph_text(PurgeResult(True, 3, ("node:P",), {"node:Q": ("a", "b")}), "brain")
    assert purged == (
        "graph purge: would permanently remove 3 dropped types and properties of brain\n  node:P\n  node:Q: a, b"
    )


START = datetime(2026, 1, 2, tzinfo=UTC)
PROGRESS_HOSTILE = "query.g.\x1b[2J\u202eevil"


def graph(*names: str, edges: str = "", lock: str = "") -> ExecutionGraph:
    claims = (LockClaim(lock),) if lock else ()
    nodes = tuple(ExecNode(n, "query", Action.CREATE, i, claims) for i, n in enumerate(names))
    return ExecutionGraph(nodes, tuple(ExecEdge(*e.split(">"), "explicit_dependency") for e in edges.split()))


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


def failing(node: ExecNode) -> NodeResult:
    if node.id.endswith("bad"):
        raise GitopsError(Code.STORAGE_FAILED, "the disk is full\n\x1b[31m")
    return done(node)


def lines(what: ExecutionGraph, execute=done, *, step: float = 1.0, patience: timedelta = timedelta()) -> list[str]:
    """What a log has of a run in which every reading of the clock takes `step` seconds."""
    written: list[str] = []
    clock = FixedClock(START, timedelta(seconds=step))
    run_graph(what, execute, clock=clock, on_event=LineLog(written.append, patience))
    return written


def test_a_line_for_each_change_that_ended_with_times_and_numbers():
    assert lines(graph("query.g.a", "query.g.b")) == [
        "apply 0:04 1/2 create query.g.a, 1.0 s",
        "apply 0:06 2/2 create query.g.b, 1.0 s",
        "apply 0:07 2 done of 2",
    ]


def test_a_failure_says_why_and_what_was_left_out_is_counted():
    found = lines(graph("query.g.bad", "query.g.b", edges="query.g.bad>query.g.b"), failing)
    assert found[0].startswith("apply 0:03 1/2 create query.g.bad, 1.0 s, FAILED: storage_failed: the disk is full")
    assert found[1:] == ["apply 0:04 0 done, 1 failed, 1 skipped of 2"]


def test_nothing_of_a_name_or_a_message_acts_on_a_terminal():
    for line in lines(graph(PROGRESS_HOSTILE, "query.g.bad"), failing):
        assert line.isprintable()
    assert any("query.g.\\x1b[2J\\u202eevil" in line for line in lines(graph(PROGRESS_HOSTILE)))


def test_a_short_run_has_no_lines_and_a_longer_one_has_them_all():
    assert lines(graph("query.g.a", "query.g.b"), step=0.1, patience=PATIENCE) == []
    slow = lines(graph("query.g.a", "query.g.b"), step=0.5, patience=PATIENCE)
    assert [line.split()[2] for line in slow] == ["1/2", "2/2", "2"]


def test_a_barrier_is_not_a_change():
    plain = graph("query.g.a", "barrier.catalog")
    barrier = ExecNode("barrier.catalog", "barrier", Action.UPDATE, 1)
    found = lines(ExecutionGraph((plain.nodes[0], barrier), ()))
    assert [line.split()[2] for line in found] == ["1/1", "1"]


def events(*given: tuple[str, str | None, dict]) -> list[RunEvent]:
    node = {"action": Action.UPDATE, "kind": "schema"}
    at = (START + timedelta(seconds=n) for n in range(100))
    return [
        RunEvent(seq, when, kind, name, facts if name is None else node | facts)
        for seq, (when, (kind, name, facts)) in enumerate(zip(at, given, strict=False), start=1)
    ]


BEGIN = ("apply_started", None, {"nodes": 9, "changes": 9, "limit": 4, "fail_fast": False})


def test_the_view_shows_what_runs_and_what_waits_for_whom():
    first, *rest = events(
        BEGIN,
        ("node_started", "schema.a", {"worker": 1, "locks": ()}),
        ("node_lock_wait", "schema.b", {"locks": ("graph:g",), "holders": ("schema.a",)}),
        *(("node_lock_wait", f"schema.w{n}", {"locks": ("graph:g",), "holders": ("schema.a",)}) for n in range(4)),
        ("node_started", "schema.c", {"worker": 2, "locks": ()}),
        ("node_finished", "schema.c", {"worker": 2, "duration_ms": 1000}),
    )
    progress = RunProgress(first)
    for event in rest:
        progress.take(event)
    assert list(progress.view().lines(START + timedelta(minutes=1, seconds=5))) == [
        "apply 1:05 1 of 9 done, 1 running, 5 waiting",
        "  1:04 update schema.a",
        "  waits update schema.b for graph:g, held by schema.a",
        "  waits update schema.w0 for graph:g, held by schema.a",
        "  waits update schema.w1 for graph:g, held by schema.a",
        "  waits 2 more",
    ]


def test_a_run_that_was_asked_to_stop_says_what_it_waits_for_and_what_to_do():
    first, started, asked, lost = events(
        BEGIN,
        ("node_started", "schema.a", {"worker": 1, "locks": ()}),
        ("apply_stopping", None, {"running": ("schema.a",), "grace_ms": 10_000}),
        ("node_indeterminate", "schema.a", {"worker": 1, "duration_ms": 2000, "diagnostics": ()}),
    )
    heard: list[str] = []
    log = LineLog(heard.append, PATIENCE)
    log(first)
    log(started)
    assert heard == []
    log(asked)
    stopping = "apply 0:02 interrupted: starts nothing more, waits for 1 running; interrupt again to stop waiting"
    assert heard == [stopping]
    log(lost)
    assert heard[1:] == ["apply 0:03 1/9 update schema.a, 2.0 s, INDETERMINATE"]


def test_an_interrupted_run_says_so():
    first, last = events(BEGIN, ("apply_finished", None, {"counts": {}, "interrupted": True}))
    assert RunProgress(first).take(last) == "apply 0:01 0 done of 9, then broken off"


def test_an_event_is_plain_json():
    heard: list[RunEvent] = []
    what = graph("query.g.bad", lock="blob:1")
    run_graph(what, failing, clock=FixedClock(START, timedelta(milliseconds=250)), on_event=heard.append)
    forms = [json.loads(json.dumps(event_form(event))) for event in heard]
    assert [form["seq"] for form in forms] == list(range(1, len(forms) + 1))
    started, failed = (next(f for f in forms if f["type"] == kind) for kind in ("node_started", "node_failed"))
    assert started == {
        "v": 1,
        "seq": 3,
        "at": "2026-01-02T00:00:00.500Z",
        "type": "node_started",
        "data": {
            "node": "query.g.bad",
            "action": "create",
            "kind": "query",
            "class": "stage",
            "layer": 1,
            "position": 0,
            "worker": 1,
            "locks": [{"key": "blob:1", "mode": "exclusive"}],
            "waited_ms": 250,
        },
    }
    assert (failed["data"]["outcome"], failed["data"]["code"]) == ("failed", "storage_failed")
    assert failed["data"]["diagnostics"][0]["code"] == "storage_failed"
    assert forms[-1]["data"]["counts"]["failed"] == 1
