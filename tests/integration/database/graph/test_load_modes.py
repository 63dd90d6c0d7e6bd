"""Loads as a whole: their modes, their size, what they leave behind, and other writers beside them."""

from __future__ import annotations

import io
import json
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import list_branches
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write import intake
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, WrittenGraph, no_pause

SCHEMA = """
node P { k: String @key  n: I32?  code: String? @unique  @check(code, "^[a-z]+$")  @range(n, 0..) }
node Q { name: String? }
node Must { text: String  vec: Vector(2) @embed("text") }
edge E: P -> P @card(0..2) { w: I32? }
edge Two: P -> Q @card(2..)
"""


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    return WrittenGraph(tmp_path / "g.omni").create(SCHEMA)


def node(k: str, **data: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": k, **data}}


def edge(source: str, target: str, name: str = "E", **data: Any) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": data}


def problems(graph: WrittenGraph, rows: Sequence[object], mode: LoadMode = LoadMode.MERGE) -> LoadError:
    before = graph.lines(), graph.version
    with pytest.raises(LoadError) as failure:
        graph.load(rows, mode)
    assert (graph.lines(), graph.version) == before
    return failure.value


def keys(graph: WrittenGraph) -> list[str]:
    return [row["data"]["k"] for row in graph.rows("P")]


def test_overwrite_replaces_the_tables_that_the_records_name_and_no_other(graph: WrittenGraph) -> None:
    graph.load([node("a", n=1), node("b"), {"type": "Q", "data": {"id": "q"}}, edge("a", "b")])
    assert graph.load([node("a", code="x"), node("c"), edge("a", "c"), edge("c", "c")], LoadMode.OVERWRITE) == {
        "edge:E": 2,
        "node:P": 2,
    }
    assert [row["data"] for row in graph.rows("P")] == [{"id": "a", "k": "a", "code": "x"}, {"id": "c", "k": "c"}]
    assert [(row["from"], row["to"]) for row in graph.rows("E")] == [("a", "c"), ("c", "c")]
    assert graph.counts() == {"P": 2, "Q": 1, "Must": 0, "E": 2, "Two": 0}


def test_overwrite_may_use_every_value_that_it_removes(graph: WrittenGraph) -> None:
    graph.load([node("a", code="x"), node("b", code="y")])
    graph.load([node("a", code="y"), node("c", code="x")], LoadMode.OVERWRITE)
    assert keys(graph) == ["a", "c"]
    assert "@unique violation" in problems(graph, [node("a", code="y"), node("b", code="y")], LoadMode.OVERWRITE).detail


def test_overwrite_leaves_no_edge_without_its_ends(graph: WrittenGraph) -> None:
    graph.load([node("a"), node("b"), edge("a", "b", id="1")])
    error = problems(graph, [node("a"), node("c")], LoadMode.OVERWRITE)
    assert error.detail == "orphan edge E: its dst 'b' would be gone from P"
    assert "dst 'b' not found in P" in problems(graph, [node("a"), edge("a", "b")], LoadMode.OVERWRITE).detail
    graph.load([edge("b", "b")], LoadMode.OVERWRITE)
    graph.load([node("b")], LoadMode.OVERWRITE)
    assert keys(graph) == ["b"]


def test_overwrite_refuses_an_id_that_comes_twice(graph: WrittenGraph) -> None:
    graph.load([node("a")])
    rows = [edge("a", "a", id="1"), edge("a", "a", id="1")]
    assert "@unique violation on E.id: value 1" in problems(graph, rows, LoadMode.OVERWRITE).detail


def test_an_appended_id_that_exists_has_a_code_of_its_own(graph: WrittenGraph) -> None:
    graph.load([node("a"), edge("a", "a", id="1")])
    error = problems(graph, [node("b"), node("a"), edge("b", "b", id="1")], LoadMode.APPEND)
    assert error.problems.codes() == ("key_conflict", "key_conflict")
    assert [problem.path for problem in error.problems] == ["records[2]", "records[3]"]


def test_a_merge_that_takes_an_edge_away_counts_at_its_old_source(graph: WrittenGraph) -> None:
    graph.load([node("a"), node("b"), {"type": "Q", "data": {"id": "q"}}])
    graph.load([edge(source, "q", "Two", id=f"{source}{n}") for source in "ab" for n in "12"])
    error = problems(graph, [edge("b", "q", "Two", id="a1")])
    assert error.detail == "@card violation on edge Two: source 'a' has 1 edges (min 2)"
    error = problems(graph, [edge("b", "q", "Two", id="a1"), edge("b", "q", "Two", id="a2")])
    assert error.detail == "@card violation on edge Two: source 'a' has 0 edges (min 2)"
    graph.load([edge("a", "q", "Two", id="a3"), edge("b", "q", "Two", id="a1")])
    assert sorted(row["from"] for row in graph.rows("Two")) == ["a", "a", "b", "b", "b"]


def test_problems_name_their_record_and_their_line(graph: WrittenGraph) -> None:
    rows = [b"", json.dumps(node("a")).encode(), b"  ", b"", b'{"type":"P"}', b"{", json.dumps(node("a")).encode()]
    error = problems(graph, rows)
    shown = [(problem.path, problem.source.line if problem.source else 0) for problem in error.problems]
    assert shown == [("records[2]", 5), ("records[3]", 6)]


def test_problems_are_counted_beyond_those_that_are_shown(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    error = problems(graph, [node(str(n), n=-1) for n in range(250)])
    assert (len(error.problems), error.total) == (100, 250)
    assert error.detail.endswith("(and 249 more)")
    monkeypatch.setattr(intake, "MAX_PROBLEMS", 120)
    assert problems(graph, [node(str(n), n=-1) for n in range(250)]).total == 120


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"P","data":{"k":"a\x00"}}', "invalid JSON"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b'\xef\xbb\xbf{"type":"P","data":{"k":"a"}}', "invalid JSON"),
        (b'{"type":"P","data":{"k":"a"}', "invalid JSON"),
        (b'{"type":"P","data":{"k":"a"}} {"type":"P","data":{"k":"b"}}', "invalid JSON"),
        (b'{"type":"P","type":"P","data":{"k":"a"}}', "given twice"),
        (b'{"type":"P","data":{"k":"a","n":' + b"1" * 4_301 + b"}}", "invalid JSON"),
        (b'{"type":"P","data":{"k":"a","n":-Infinity}}', "not a JSON number"),
        (b'{"type":"P","data":{"k":{"a":1}}}', "expects String"),
        (b'{"type":"Must","data":{"text":"a","vec":[1e999,1]}}', "expects Vector(2)"),
        (b'{"type":"Must","data":{"text":"a","vec":[1,' + b"9" * 400 + b"]}}", "expects Vector(2)"),
        (b'{"type":"Must","data":{"text":"a","vec":[true,1]}}', "expects Vector(2)"),
        (b'{"edge":"E","from":"a","to":"\\ud800"}', "edge missing 'to'"),
        (b"null", "is not a JSON object"),
    ],
)
def test_a_line_of_another_kind_is_refused_and_the_graph_is_unchanged(
    graph: WrittenGraph, line: bytes, said: str
) -> None:
    error = problems(graph, [json.dumps(node("z")), line])
    assert said in error.detail
    assert [problem.path for problem in error.problems] == ["records[2]"]


class Endless(io.RawIOBase):
    """A line that never ends, and a count of what was taken of it."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_a_line_without_end_is_not_read_to_its_end(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_LINE_BYTES", 1 << 20)
    stream = Endless()
    with pytest.raises(LoadError, match="longer than 1048576 bytes"):
        load_records(LoadRequest(graph.uri, io.BufferedReader(stream)), WriteContext(CLOCK, SequentialIds()))
    assert stream.taken < 3 << 20


def test_a_line_of_exactly_the_limit_is_read(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(node("a")).encode()
    monkeypatch.setattr(intake, "MAX_LINE_BYTES", len(line))
    graph.load([line + b"\r", line.replace(b'"a"', b'"b"')])
    assert keys(graph) == ["a", "b"]
    assert "longer than" in problems(graph, [line + b" "]).detail


def test_a_load_of_many_groups_is_whole(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys on disk, many groups and many data files change nothing."""
    monkeypatch.setattr(intake, "CHUNK", 16)
    monkeypatch.setattr(intake, "GROUP_BYTES", 512)
    monkeypatch.setattr(intake, "FILE_BYTES", 2048)
    rows = [node(f"{n:03}", n=n) for n in range(200)] + [
        edge(f"{n:03}", f"{(n + 1) % 200:03}", id=str(n)) for n in range(200)
    ]
    assert graph.load(reversed(rows)) == {"edge:E": 200, "node:P": 200}
    assert [row["data"]["n"] for row in graph.rows("P")] == list(range(200))
    graph.load([node(f"{n:03}", n=n + 1) for n in range(0, 200, 2)])
    assert sum(row["data"]["n"] for row in graph.rows("P")) == sum(range(200)) + 100
    assert "value 007" in problems(graph, [*(node(f"{n:03}") for n in range(100)), node("007")]).detail


def test_a_load_leaves_nothing_in_the_temporary_folder(
    graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(intake, "CHUNK", 2)
    graph.load(node(str(n)) for n in range(50))
    problems(graph, [*(node(str(n)) for n in range(50)), b"{"])
    assert list(folder.iterdir()) == []


def data_files(graph: WrittenGraph) -> set[str]:
    return {str(path) for path in Path(graph.uri).rglob("data/*") if path.is_file()}


def test_a_load_that_is_refused_leaves_no_data_file(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load([node("a")])
    monkeypatch.setattr(intake, "GROUP_BYTES", 1)
    monkeypatch.setattr(intake, "FILE_BYTES", 1)
    before = data_files(graph)
    problems(graph, [node("b"), node("c"), edge("b", "zz")])
    problems(graph, [node("b"), b"{"])
    assert data_files(graph) == before


def test_progress_is_told_and_ends_at_the_end(graph: WrittenGraph) -> None:
    told: list[tuple[int, int]] = []
    graph.load((node(str(n)) for n in range(2500)), progress=lambda count, size: told.append((count, size)))
    assert [count for count, _ in told] == [1000, 2000, 2500]
    assert told[-1][1] == len("\n".join(json.dumps(node(str(n))) for n in range(2500)))


class Meanwhile(io.BytesIO):
    """Does something when the last line was read."""

    def __init__(self, data: bytes, deed: Callable[[], object]) -> None:
        super().__init__(data)
        self._deed: Callable[[], object] | None = deed

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line and self._deed is not None:
            deed, self._deed = self._deed, None
            deed()
        return line


def load_while(graph: WrittenGraph, rows: Sequence[object], mode: LoadMode, deed: Callable[[], object]) -> None:
    stream = Meanwhile("\n".join(map(json.dumps, rows)).encode(), deed)
    load_records(LoadRequest(graph.uri, stream, mode), WriteContext(CLOCK, SequentialIds(7_000)), pause=no_pause)


def test_what_others_publish_while_records_are_read_is_checked_against(graph: WrittenGraph) -> None:
    graph.load([node("a")])
    load_while(
        graph, [node("b"), edge("b", "new")], LoadMode.APPEND, lambda: graph.mutate('insert P { k: "new", n: 3 }')
    )
    assert keys(graph) == ["a", "b", "new"]
    with pytest.raises(LoadError, match="key_conflict"):
        load_while(graph, [node("c")], LoadMode.APPEND, lambda: graph.mutate('insert P { k: "c" }'))
    with pytest.raises(LoadError, match="not found in P"):
        load_while(graph, [edge("a", "c")], LoadMode.MERGE, lambda: graph.mutate('delete P where k = "c"'))
    load_while(graph, [node("a", n=9)], LoadMode.MERGE, lambda: graph.mutate('update P set { n: 1 } where k = "a"'))
    assert graph.rows("P")[0]["data"]["n"] == 9


def test_a_schema_that_changes_while_records_are_read_refuses_the_load(graph: WrittenGraph) -> None:
    wider = (SCHEMA + "node New {}").encode()
    with pytest.raises(GitopsError) as failure:
        load_while(
            graph,
            [node("a")],
            LoadMode.MERGE,
            lambda: LanceEngine(CLOCK, graph.ids).prepare_migration(graph.uri, wider, actor=None).publish(),
        )
    assert failure.value.code == "graph_conflict"
    assert keys(graph) == []


def test_records_go_to_a_branch_that_is_made_for_them(graph: WrittenGraph) -> None:
    graph.load([node("a")])
    with pytest.raises(GitopsError) as failure:
        graph.load([node("b")], branch="fresh")
    assert failure.value.code == "graph_branch_missing"
    with pytest.raises(LoadError):
        graph.load([edge("a", "zz")], branch="fresh", base="main")
    assert [info.name for info in list_branches(graph.uri)] == ["main"]
    graph.load([node("b"), edge("b", "a")], branch="fresh", base="main")
    graph.load([node("c"), edge("c", "b")], branch="fresh", base="main")
    assert keys(graph) == ["a"]
    assert [row["data"]["k"] for row in graph.rows("P", "fresh")] == ["a", "b", "c"]


class Lengths:
    """A maker of vectors that counts characters."""

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        return [[float(len(text))] * dimension for text in texts]


def test_vectors_are_made_for_records_that_leave_them_out(graph: WrittenGraph) -> None:
    rows: list[object] = [{"type": "Must", "data": {"id": str(n), "text": "x" * n}} for n in range(1, 4)]
    rows.append({"type": "Must", "data": {"id": "given", "text": "x", "vec": [0, 0.5]}})
    assert "Must.vec is required" in problems(graph, rows).detail
    graph.load(rows, embedder=Lengths())
    assert [row["data"]["vec"] for row in graph.rows("Must")] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [0.0, 0.5]]
    null = {"type": "Must", "data": {"text": "x", "vec": None}}
    with pytest.raises(LoadError, match=r"Must.vec is required"):
        graph.load([null], embedder=Lengths())


@pytest.fixture
def bucket_graph(s3: Any) -> WrittenGraph:
    return WrittenGraph(f"{s3.root}/graphs/g.omni").create(SCHEMA)


def test_a_bucket_takes_loads_and_mutations(bucket_graph: WrittenGraph) -> None:
    graph = bucket_graph
    graph.load([node("a", n=1), node("b"), edge("a", "b", id="1")])
    graph.mutate('update P set { n: 5 } where k = "a"  insert P { k: "c" }  insert E { from: "c", to: "a" }')
    graph.load([node("a", n=7), node("d")])
    assert "orphan" in problems(graph, [node("a")], LoadMode.OVERWRITE).detail
    assert graph.mutate('delete P where k = "b"').affected_edges == 1
    assert [row["data"].get("n") for row in graph.rows("P")] == [7, None, None]
    assert graph.counts()["E"] == 1
    graph.load([edge("d", "d")], LoadMode.OVERWRITE)
    assert [(row["from"], row["to"]) for row in graph.rows("E")] == [("d", "d")]
    assert open_snapshot(graph.uri).manifest.n == 6


def test_all_edges_of_one_node_are_checked_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "CHUNK", 1024)
    hub = intake.Spill()
    for at in range(100_000):
        hub.add("hub" + "b" * (at == 0), at)
    tracemalloc.start()
    try:
        counted = sum(1 for number in range(intake.PARTS) for _ in hub.part(number))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        hub.close()
    assert counted == 100_000
    assert peak < 2_000_000


def test_problems_come_in_the_order_of_the_records(graph: WrittenGraph) -> None:
    graph.load([node(f"k{at}", code=chr(97 + at)) for at in range(20)])
    found = problems(graph, [node(f"n{at}", code=chr(97 + at)) for at in range(20)] * 2, LoadMode.APPEND)
    lines = [problem.source.line for problem in found.problems if problem.source is not None]
    assert lines == sorted(lines)
    assert len(lines) == 60
