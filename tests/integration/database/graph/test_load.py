"""Loading records: every problem is found and named, and nothing half is published."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.checkpoints import LoadSource
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import list_branches
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.results import StepProgress
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write import intake
from tests.support.clock import FixedClock
from tests.support.histories import SCHEMA as LOAD_AND_MIGRATION_SCHEMA
from tests.support.histories import History, lives, person, town
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK as LOAD_MODES_CLOCK
from tests.support.mutations import WrittenGraph, no_pause
from tests.support.pages import ROOT

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
SCHEMA = b"""
node P {
  k: String @key
  i: I32?  u: U64?  f: F32?  d: F64?  b: Bool?
  day: Date?  at: DateTime?  vec: Vector(2)?  doc: Blob?
  e: enum(x, in-progress)?  tags: [String]?  days: [Date]?  times: [DateTime]?
  code: String? @unique
  @range(i, 0..10)
  @check(code, "^[a-z]+$")
}
node Free { n: I32 }
node Two { b: I32  a: String  @key(a, b) }
node Num { at: DateTime @key }
edge E: P -> P @card(1..2) { w: I32?  @unique(src, w) }
edge One: P -> Free @card(0..1)
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    root = str(tmp_path / "g.omni")
    LanceEngine(CLOCK, SequentialIds()).prepare_create(root, SCHEMA, actor=None).publish()
    return root


def load(uri: str, *lines: object, mode: LoadMode = LoadMode.MERGE, start: int = 1_000) -> dict[str, int]:
    raw = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return dict(load_records(LoadRequest(uri, io.BytesIO(raw), mode), WriteContext(CLOCK, SequentialIds(start))).rows)


def refusals(uri: str, *lines: object, mode: LoadMode = LoadMode.MERGE) -> list[str]:
    before = read.describe_graph(uri)
    with pytest.raises(LoadError) as failure:
        load(uri, *lines, mode=mode)
    assert failure.value.code == "graph_data_invalid"
    assert read.describe_graph(uri) == before
    return [problem.message for problem in failure.value.problems]


def node(**data: object) -> dict[str, object]:
    return {"type": "P", "data": {"k": "a", **data}}


def edge(source: str, target: str, **data: object) -> dict[str, object]:
    return {"edge": "e", "from": source, "to": target, "data": data}


FULL = {
    "k": "é",
    "i": 10,
    "u": 2**64 - 1,
    "f": 0.1,
    "d": 1e300,
    "b": False,
    "day": "1969-12-31",
    "at": "1969-12-31T23:59:59.999Z",
    "vec": [1.5, -0.1],
    "doc": "base64:AAE=",
    "e": "in-progress",
    "tags": ["x", ""],
    "days": ["0001-01-01", "9999-12-31"],
    "times": ["2026-01-02T03:04:05.006Z"],
    "code": "abc",
}


def test_every_type_reads_back_as_it_was_written(uri: str) -> None:
    assert load(uri, {"type": "P", "data": FULL}, node()) == {"node:P": 2}
    empty = dict.fromkeys(FULL) | {"k": "a", "id": "a"}
    assert sorted(read.read_rows(uri, "P", 10), key=lambda r: r["id"]) == [empty, FULL | {"id": "é"}]


def test_other_spellings_of_times(uri: str) -> None:
    spellings = ["2026-01-02", "2026-01-02 03:04:05", "2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.123456789Z", 0]
    load(uri, node(times=spellings, days=[0, "2000-02-29"]))
    (row,) = read.read_rows(uri, "P", 1)
    assert row["times"] == [
        "2026-01-02T00:00:00.000Z",
        "2026-01-02T03:04:05.000Z",
        "2026-01-02T01:04:05.000Z",
        "2026-01-02T03:04:05.123Z",
        "1970-01-01T00:00:00.000Z",
    ]
    assert row["days"] == ["1970-01-01", "2000-02-29"]


BAD_VALUES = [
    ("i", "1", 'strict property P.i expects I32?, got "1"'),
    ("i", 1.0, "expects I32?"),
    ("i", True, "expects I32?"),
    ("i", 2**31, "expects I32?"),
    ("i", 10**400, "expects I32?"),
    ("i", 11, "@range violation on P.i"),
    ("i", -1, "@range violation on P.i"),
    ("u", -1, "expects U64?"),
    ("u", 2**64, "expects U64?"),
    ("f", 1e39, "expects F32?"),
    ("f", "NaN", "expects F32?"),
    ("d", 10**400, "expects F64?"),
    ("d", 2**53 + 1, "cannot convert 9007199254740993 to F64? exactly"),
    ("f", 2**24 + 1, "cannot convert 16777217 to F32? exactly"),
    ("b", 1, "expects Bool?"),
    ("day", "2026-02-30", "invalid Date literal"),
    ("day", "20260101", "invalid Date literal"),
    ("day", 10**9, "invalid Date literal"),
    ("day", "2026-01-01\n", "invalid Date literal"),
    ("at", "2026-01-01T25:00:00Z", "invalid DateTime literal"),
    ("at", "0001-01-01T00:00:00+23:00", "invalid DateTime literal"),
    ("at", 10**18, "invalid DateTime literal"),
    ("vec", [1], "expects 2 dimensions"),
    ("vec", [1, "x"], "expects Vector(2)?"),
    ("vec", [1, 1e39], "expects Vector(2)?"),
    ("doc", "s3://bucket/key", "outside references are not followed"),
    ("doc", "base64:!", "expects Blob?"),
    ("e", "z", "invalid enum value 'z' for P.e (expected: in-progress, x)"),
    ("tags", "x", "expects a JSON array"),
    ("tags", ["x", None], "expects [String]?"),
    ("tags", [["x"]], "expects [String]?"),
    ("code", "ABC", "@check violation on P.code"),
    ("code", "\ud800", "surrogate"),
    ("nope", 1, "P has no property 'nope'"),
    ("src", "a", "P has no property 'src'"),
    ("_rowid", 1, "P has no property '_rowid'"),
    ("id", "b", "'id' is 'b', but the key of P requires 'a'"),
    ("id", 7, "'id' is not a valid id"),
    ("id", "", "'id' is not a valid id"),
    ("id", None, "'id' is not a valid id"),
    ("k", None, "P.k is required"),
]


@pytest.mark.parametrize(
    ("name", "value", "fragment"), BAD_VALUES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(BAD_VALUES)]
)
def test_a_value_that_does_not_fit_is_refused(uri: str, name: str, value: object, fragment: str) -> None:
    messages = refusals(uri, node(k="other"), node(**{name: value}))
    assert messages[0].startswith("record 2: ")
    assert fragment in messages[0]


BAD_LINES = [
    (b"{", "invalid JSON at record 1"),
    (b"[]", "is not a JSON object"),
    (b'{"type":"P","data":{"k":"a","k":"b"}}', "appears twice"),
    (b'{"type":"P","data":{"k":"a","f":NaN}}', "not a JSON number"),
    (b'{"type":"P","data":{"k":"a","f":1e999}}', "expects F32?"),
    (b'{"type":"P","data":{"k":"a"},"more":1}', "unknown member 'more'"),
    (b'{"type":"P","edge":"E","data":{}}', "expected either 'type', for a node, or 'edge'"),
    (b'{"data":{}}', "expected either 'type', for a node, or 'edge'"),
    (b'{"type":"P","data":[]}', "'data' is not an object"),
    (b'{"type":"Q"}', "unknown node type 'Q'"),
    (b'{"type":["P"]}', "unknown node type"),
    (b'{"edge":"zz","from":"a","to":"b"}', "unknown edge type 'zz'"),
    (b'{"edge":"e","to":"b"}', "edge missing 'from'"),
    (b'{"edge":"e","from":"b","to":1}', "edge missing 'to'"),
    (b'{"edge":"e","from":"a","to":"a","data":{"src":"b"}}', "E has no property 'src'"),
    (b'{"type":"P"}', "P.k is required"),
    (b'{"type":"P","data":{"k":"\xff"}}', "is not UTF-8 at byte 25"),
    (b'{"type":"P","data":' + b"[" * 100_000, "invalid JSON at record 1"),
    (b'{"type":"P","data":{"k":' + b"9" * 5_000 + b"}}", "invalid JSON at record 1"),
    (b'{"type":"P","data":{"k":"a","tags":[' + b"1," * 140_000 + b"1]}}", "structural slots"),
]


@pytest.mark.parametrize(("line", "fragment"), BAD_LINES, ids=[str(i) for i in range(len(BAD_LINES))])
def test_a_line_that_is_no_record_is_refused(uri: str, line: bytes, fragment: str) -> None:
    assert fragment in refusals(uri, line)[0]


def test_punctuation_in_texts_is_no_structure(uri: str) -> None:
    text = '[,:{\\"' * 30_000
    load(uri, node(tags=[text]))
    assert read.read_rows(uri, "P", 1)[0]["tags"] == [text]


def test_a_line_over_the_limit_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_LINE_BYTES", 50)
    assert "longer than 50 bytes" in refusals(uri, node(), node(code="x" * 50))[0]


def test_all_problems_come_at_once_but_not_more_than_a_hundred(uri: str) -> None:
    assert len(refusals(uri, node(i="x", f="y"), node(k="b", b=0))) == 3
    assert len(refusals(uri, *(node(k=str(n), i="x") for n in range(300)))) == 100


def test_blank_lines_and_carriage_returns_are_tolerated(uri: str) -> None:
    assert load(uri, b'\r\n  \r\n{"type":"P","data":{"k":"a"}}\r\n') == {"node:P": 1}


def test_a_load_of_nothing_publishes_nothing(uri: str) -> None:
    assert load(uri, b"\n") == {}
    assert read.describe_graph(uri).manifest_version == 1


def test_ids_come_from_keys_or_are_new(uri: str) -> None:
    load(
        uri,
        {"type": "Two", "data": {"a": "A", "b": 7}},
        {"type": "Num", "data": {"at": "1970-01-01T00:00:00.005Z"}},
        {"type": "Free", "data": {"n": 1, "id": "mine"}},
        {"type": "Free", "data": {"n": 2}},
    )
    assert [row["id"] for row in read.read_rows(uri, "Two", 9)] == ['["A","7"]']
    assert [row["id"] for row in read.read_rows(uri, "Num", 9)] == ["5"]
    assert sorted(len(row["id"]) for row in read.read_rows(uri, "Free", 9)) == [4, 26]


def test_merge_replaces_the_whole_row(uri: str) -> None:
    load(uri, node(i=1, tags=["x"]))
    load(uri, node(i=2))
    (row,) = read.read_rows(uri, "P", 9)
    assert (row["i"], row["tags"]) == (2, None)


def test_append_refuses_an_id_that_exists(uri: str) -> None:
    load(uri, node(), mode=LoadMode.APPEND)
    assert "key_conflict" in refusals(uri, node(k="b"), node(), mode=LoadMode.APPEND)[0]


def test_keys_and_unique_groups_hold_over_the_resulting_table(uri: str) -> None:
    assert "@unique violation on P.k: value a" in refusals(uri, node(), node())[0]
    load(uri, node(code="one"), node(k="b", code="two"))
    assert "@unique violation on P.code: value one" in refusals(uri, node(k="c", code="one"))[0]
    load(uri, node(code="two"), node(k="b", code="one"))
    load(uri, edge("a", "b", w=1), edge("a", "b"), start=5)
    assert "@unique violation on E.src, w: value (a, 1)" in refusals(uri, edge("a", "a", w=1))[0]


def test_endpoints_are_incoming_or_committed(uri: str) -> None:
    load(uri, edge("a", "b"), node(), node(k="b"))
    load(uri, edge("b", "a"))
    assert refusals(uri, edge("a", "zz"))[0] == "record 1: edge E: dst 'zz' not found in P"
    assert "dst 'a' not found in Free" in refusals(uri, {"edge": "One", "from": "a", "to": "a"})[0]


def test_cardinality_counts_the_resulting_edges(uri: str) -> None:
    load(uri, node(), node(k="b"), edge("a", "b", id="1"))
    load(uri, edge("a", "a", id="2"))
    assert "source 'a' has 3 edges (max 2)" in refusals(uri, edge("a", "b", id="3"))[0]
    load(uri, edge("b", "b", id="2"))
    load(uri, edge("a", "b", id="3"))
    assert len(read.read_rows(uri, "E", 9)) == 3
    # Edges that are there already may have been added by the same load, run before.
    for source, advice in (("a", "each load adds edges without an id again"), ("c", None)):
        with pytest.raises(LoadError, match=f"source '{source}' has [34] edges") as failure:
            load(uri, node(k="c"), *(edge(source, "b") for _ in range(3 if source == "c" else 2)), start=50)
        (problem,) = failure.value.problems
        assert problem.fix is advice or str(problem.fix).startswith(str(advice))


def test_of_repeated_edge_ids_the_last_wins_in_a_merge(uri: str) -> None:
    assert load(uri, node(), edge("a", "a", id="1", w=1), edge("a", "a", id="1", w=2)) == {"edge:E": 1, "node:P": 1}
    assert [row["w"] for row in read.read_rows(uri, "E", 9)] == [2]
    # The others may lack an end, clash with the last, and be too many.
    others = [edge("zz", "zz", id="1"), *(edge("a", "a", id="1", w=3) for _ in range(3))]
    assert load(uri, *others, edge("a", "a", id="1", w=3)) == {"edge:E": 1}
    assert (
        "@unique violation on E.id"
        in refusals(uri, edge("a", "a", id="9"), edge("a", "a", id="9"), mode=LoadMode.APPEND)[0]
    )


@pytest.mark.parametrize(("piece", "least"), [(1 << 22, 1), (200, 1), (1 << 22, 1 << 14)])
@pytest.mark.parametrize("group", [1 << 23, 300])
def test_the_last_wins_whatever_is_read_at_once(
    uri: str, monkeypatch: pytest.MonkeyPatch, piece: int, least: int, group: int
) -> None:
    sizes = {"_PIECE_BYTES": piece, "_LEAST_BYTES": least, "GROUP_BYTES": group, "FILE_BYTES": group}
    for name, value in sizes.items():
        monkeypatch.setattr(intake, name, value)
    # Lines that begin with a space are read one by one.
    lines = [(b" " * (n % 7 == 3)) + json.dumps(edge("a", "a", id=str(n % 2), w=n)).encode() for n in range(100)]
    assert load(uri, node(), *lines) == {"edge:E": 2, "node:P": 1}
    assert {row["id"]: row["w"] for row in read.read_rows(uri, "E", 9)} == {"0": 98, "1": 99}


def test_racing_loads_take_turns_and_lose_nothing(uri: str) -> None:
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            for turn in range(4):
                load(uri, {"type": "Free", "data": {"n": 10 * number + turn}}, start=10_000 * (number + 1) + 10 * turn)
        except Exception as failure:  # noqa: BLE001 - a thread has no other way to tell
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(row["n"] for row in read.read_rows(uri, "Free", 99)) == [
        10 * n + t for n in range(4) for t in range(4)
    ]
    assert read.describe_graph(uri).manifest_version == 17


def test_without_turns_racing_loads_conflict_and_lose_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is for progress only: safety is the manifest's number and the exact table versions."""
    monkeypatch.setattr(LocalRoot, "lease", lambda _root: contextlib.nullcontext())
    told: list[int] = []

    def run(number: int) -> None:
        for turn in range(12):
            with contextlib.suppress(GitopsError):
                load(uri, {"type": "Free", "data": {"n": 100 * number + turn}}, start=10_000 * (number + 1) + 10 * turn)
                told.append(100 * number + turn)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["n"] for row in read.read_rows(uri, "Free", 99)) == sorted(told)
    assert read.describe_graph(uri).manifest_version == 1 + len(told)


@pytest.mark.parametrize("name", ["industry-intel", "pharma-intel"])
def test_a_real_cluster_loads(tmp_path: Path, name: str) -> None:
    folder = ROOT.parent / "shared" / "examples" / name
    if not folder.is_dir():
        pytest.skip("the example clusters are not beside this checkout")
    uri, seed = str(tmp_path / "g.omni"), (folder / "seed.jsonl").read_bytes()
    source = (folder / "schema.pg").read_bytes()
    LanceEngine(CLOCK, SequentialIds()).prepare_create(uri, source, actor=None).publish()
    taken = load(uri, seed, start=9_000)
    assert sum(taken.values()) == sum(1 for line in seed.splitlines() if line.strip())
    counts = {key: table["rows"] for key, table in read.describe_graph(uri).tables.items()}
    assert {key: count for key, count in counts.items() if count} == taken


LOAD_MODES_SCHEMA = """
node P { k: String @key  n: I32?  code: String? @unique  @check(code, "^[a-z]+$")  @range(n, 0..) }
node Q { name: String? }
node Must { text: String  vec: Vector(2) @embed("text") }
edge E: P -> P @card(0..2) { w: I32? }
edge Two: P -> Q @card(2..)
"""


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    return WrittenGraph(tmp_path / "g.omni").create(LOAD_MODES_SCHEMA)


def node_of_load_modes(k: str, **data: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": k, **data}}


def edge_of_load_modes(source: str, target: str, name: str = "E", **data: Any) -> dict[str, Any]:
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
    graph.load(
        [
            node_of_load_modes("a", n=1),
            node_of_load_modes("b"),
            {"type": "Q", "data": {"id": "q"}},
            edge_of_load_modes("a", "b"),
        ]
    )
    assert graph.load(
        [
            node_of_load_modes("a", code="x"),
            node_of_load_modes("c"),
            edge_of_load_modes("a", "c"),
            edge_of_load_modes("c", "c"),
        ],
        LoadMode.OVERWRITE,
    ) == {
        "edge:E": 2,
        "node:P": 2,
    }
    assert [row["data"] for row in graph.rows("P")] == [{"id": "a", "k": "a", "code": "x"}, {"id": "c", "k": "c"}]
    assert [(row["from"], row["to"]) for row in graph.rows("E")] == [("a", "c"), ("c", "c")]
    assert graph.counts() == {"P": 2, "Q": 1, "Must": 0, "E": 2, "Two": 0}


def test_overwrite_may_use_every_value_that_it_removes(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a", code="x"), node_of_load_modes("b", code="y")])
    graph.load([node_of_load_modes("a", code="y"), node_of_load_modes("c", code="x")], LoadMode.OVERWRITE)
    assert keys(graph) == ["a", "c"]
    assert (
        "@unique violation"
        in problems(
            graph, [node_of_load_modes("a", code="y"), node_of_load_modes("b", code="y")], LoadMode.OVERWRITE
        ).detail
    )


def test_overwrite_leaves_no_edge_without_its_ends(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a"), node_of_load_modes("b"), edge_of_load_modes("a", "b", id="1")])
    error = problems(graph, [node_of_load_modes("a"), node_of_load_modes("c")], LoadMode.OVERWRITE)
    assert error.detail == "orphan edge E: its dst 'b' would be missing from P"
    assert (
        "dst 'b' not found in P"
        in problems(graph, [node_of_load_modes("a"), edge_of_load_modes("a", "b")], LoadMode.OVERWRITE).detail
    )
    graph.load([edge_of_load_modes("b", "b")], LoadMode.OVERWRITE)
    graph.load([node_of_load_modes("b")], LoadMode.OVERWRITE)
    assert keys(graph) == ["b"]


def test_overwrite_refuses_an_id_that_comes_twice(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a")])
    rows = [edge_of_load_modes("a", "a", id="1"), edge_of_load_modes("a", "a", id="1")]
    assert "@unique violation on E.id: value 1" in problems(graph, rows, LoadMode.OVERWRITE).detail


def test_an_appended_id_that_exists_has_a_code_of_its_own(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a"), edge_of_load_modes("a", "a", id="1")])
    error = problems(
        graph, [node_of_load_modes("b"), node_of_load_modes("a"), edge_of_load_modes("b", "b", id="1")], LoadMode.APPEND
    )
    assert error.problems.codes() == ("key_conflict", "key_conflict")
    assert [problem.path for problem in error.problems] == ["records[2]", "records[3]"]


def test_a_merge_that_takes_an_edge_away_counts_at_its_old_source(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a"), node_of_load_modes("b"), {"type": "Q", "data": {"id": "q"}}])
    graph.load([edge_of_load_modes(source, "q", "Two", id=f"{source}{n}") for source in "ab" for n in "12"])
    error = problems(graph, [edge_of_load_modes("b", "q", "Two", id="a1")])
    assert error.detail == "@card violation on edge Two: source 'a' has 1 edges (min 2)"
    error = problems(
        graph, [edge_of_load_modes("b", "q", "Two", id="a1"), edge_of_load_modes("b", "q", "Two", id="a2")]
    )
    assert error.detail == "@card violation on edge Two: source 'a' has 0 edges (min 2)"
    error = problems(graph, [edge_of_load_modes("a", "q", "Two", id="b2")])
    assert error.detail == "@card violation on edge Two: source 'b' has 1 edges (min 2)"
    graph.load([edge_of_load_modes("a", "q", "Two", id="a3"), edge_of_load_modes("b", "q", "Two", id="a1")])
    assert sorted(row["from"] for row in graph.rows("Two")) == ["a", "a", "b", "b", "b"]


def test_problems_name_their_record_and_their_line(graph: WrittenGraph) -> None:
    rows = [
        b"",
        json.dumps(node_of_load_modes("a")).encode(),
        b"  ",
        b"",
        b'{"type":"P"}',
        b"{",
        json.dumps(node_of_load_modes("a")).encode(),
    ]
    error = problems(graph, rows)
    shown = [(problem.path, problem.source.line if problem.source else 0) for problem in error.problems]
    assert shown == [("records[2]", 5), ("records[3]", 6)]


def test_problems_are_counted_beyond_those_that_are_shown(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    error = problems(graph, [node_of_load_modes(str(n), n=-1) for n in range(250)])
    assert (len(error.problems), error.total) == (100, 250)
    assert error.detail.endswith("(and 249 more)")
    monkeypatch.setattr(intake, "MAX_PROBLEMS", 120)
    assert problems(graph, [node_of_load_modes(str(n), n=-1) for n in range(250)]).total == 120


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"P","data":{"k":"a\x00"}}', "invalid JSON"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b'\xef\xbb\xbf{"type":"P","data":{"k":"a"}}', "invalid JSON"),
        (b'{"type":"P","data":{"k":"a"}', "invalid JSON"),
        (b'{"type":"P","data":{"k":"a"}} {"type":"P","data":{"k":"b"}}', "invalid JSON"),
        (b'{"type":"P","type":"P","data":{"k":"a"}}', "appears twice"),
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
    error = problems(graph, [json.dumps(node_of_load_modes("z")), line])
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
        load_records(LoadRequest(graph.uri, io.BufferedReader(stream)), WriteContext(LOAD_MODES_CLOCK, SequentialIds()))
    assert stream.taken < 3 << 20


def test_a_line_of_exactly_the_limit_is_read(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(node_of_load_modes("a")).encode()
    monkeypatch.setattr(intake, "MAX_LINE_BYTES", len(line))
    graph.load([line + b"\r", line.replace(b'"a"', b'"b"')])
    assert keys(graph) == ["a", "b"]
    assert "longer than" in problems(graph, [line + b" "]).detail


def test_a_load_of_many_groups_is_whole(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys on disk, many groups and many data files change nothing."""
    monkeypatch.setattr(intake, "KEY_BYTES", 1)
    monkeypatch.setattr(intake, "GROUP_BYTES", 512)
    monkeypatch.setattr(intake, "FILE_BYTES", 2048)
    rows = [node_of_load_modes(f"{n:03}", n=n) for n in range(200)] + [
        edge_of_load_modes(f"{n:03}", f"{(n + 1) % 200:03}", id=str(n)) for n in range(200)
    ]
    assert graph.load(reversed(rows)) == {"edge:E": 200, "node:P": 200}
    assert [row["data"]["n"] for row in graph.rows("P")] == list(range(200))
    graph.load([node_of_load_modes(f"{n:03}", n=n + 1) for n in range(0, 200, 2)])
    assert sum(row["data"]["n"] for row in graph.rows("P")) == sum(range(200)) + 100
    assert (
        "value 007"
        in problems(graph, [*(node_of_load_modes(f"{n:03}") for n in range(100)), node_of_load_modes("007")]).detail
    )


def test_a_load_leaves_nothing_in_the_temporary_folder(
    graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(intake, "KEY_BYTES", 1)
    graph.load(node_of_load_modes(str(n)) for n in range(50))
    problems(graph, [*(node_of_load_modes(str(n)) for n in range(50)), b"{"])
    assert list(folder.iterdir()) == []


def data_files(graph: WrittenGraph) -> set[str]:
    return {str(path) for path in Path(graph.uri).rglob("data/*") if path.is_file()}


def test_a_load_that_is_refused_leaves_no_data_file(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load([node_of_load_modes("a")])
    monkeypatch.setattr(intake, "GROUP_BYTES", 1)
    monkeypatch.setattr(intake, "FILE_BYTES", 1)
    before = data_files(graph)
    problems(graph, [node_of_load_modes("b"), node_of_load_modes("c"), edge_of_load_modes("b", "zz")])
    problems(graph, [node_of_load_modes("b"), b"{"])
    assert data_files(graph) == before


def test_progress_covers_each_step_and_all_records(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_PIECE_BYTES", 2048)
    told: list[StepProgress] = []
    rows = [node_of_load_modes(str(n)) for n in range(2500)]
    size = len("\n".join(map(json.dumps, rows)))
    graph.load(rows, progress=told.append, source=LoadSource("records", size, 0))
    assert [(each.step, each.rows // 1000) for each in told] == [
        ("reading", 1),
        ("reading", 2),
        ("reading", 2),
        ("checking", 2),
        ("publishing", 2),
    ]
    assert told[2] == StepProgress("reading", 2500, size, size, "bytes")


class Meanwhile(io.BytesIO):
    """Does something when all was read."""

    def __init__(self, data: bytes, deed: Callable[[], object]) -> None:
        super().__init__(data)
        self._deed: Callable[[], object] | None = deed

    def read(self, size: int | None = -1, /) -> bytes:
        line = super().read(size)
        if not line and self._deed is not None:
            deed, self._deed = self._deed, None
            deed()
        return line


def load_while(graph: WrittenGraph, rows: Sequence[object], mode: LoadMode, deed: Callable[[], object]) -> None:
    stream = Meanwhile("\n".join(map(json.dumps, rows)).encode(), deed)
    load_records(
        LoadRequest(graph.uri, stream, mode), WriteContext(LOAD_MODES_CLOCK, SequentialIds(7_000)), pause=no_pause
    )


def test_what_others_publish_while_records_are_read_is_checked_against(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a")])
    load_while(
        graph,
        [node_of_load_modes("b"), edge_of_load_modes("b", "new")],
        LoadMode.APPEND,
        lambda: graph.mutate('insert P { k: "new", n: 3 }'),
    )
    assert keys(graph) == ["a", "b", "new"]
    with pytest.raises(LoadError, match="key_conflict"):
        load_while(graph, [node_of_load_modes("c")], LoadMode.APPEND, lambda: graph.mutate('insert P { k: "c" }'))
    with pytest.raises(LoadError, match="not found in P"):
        load_while(
            graph, [edge_of_load_modes("a", "c")], LoadMode.MERGE, lambda: graph.mutate('delete P where k = "c"')
        )
    load_while(
        graph,
        [node_of_load_modes("a", n=9)],
        LoadMode.MERGE,
        lambda: graph.mutate('update P set { n: 1 } where k = "a"'),
    )
    assert graph.rows("P")[0]["data"]["n"] == 9


def test_a_schema_that_changes_while_records_are_read_refuses_the_load(graph: WrittenGraph) -> None:
    wider = (LOAD_MODES_SCHEMA + "node New {}").encode()
    with pytest.raises(GitopsError) as failure:
        load_while(
            graph,
            [node_of_load_modes("a")],
            LoadMode.MERGE,
            lambda: LanceEngine(LOAD_MODES_CLOCK, graph.ids).prepare_migration(graph.uri, wider, actor=None).publish(),
        )
    assert failure.value.code == "graph_conflict"
    assert keys(graph) == []


def test_records_go_to_a_branch_that_is_made_for_them(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes("a")])
    with pytest.raises(GitopsError) as failure:
        graph.load([node_of_load_modes("b")], branch="fresh")
    assert failure.value.code == "graph_branch_missing"
    with pytest.raises(LoadError):
        graph.load([edge_of_load_modes("a", "zz")], branch="fresh", base="main")
    assert [info.name for info in list_branches(graph.uri)] == ["main"]
    graph.load([node_of_load_modes("b"), edge_of_load_modes("b", "a")], branch="fresh", base="main")
    graph.load([node_of_load_modes("c"), edge_of_load_modes("c", "b")], branch="fresh", base="main")
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
    return WrittenGraph(f"{s3.root}/graphs/g.omni").create(LOAD_MODES_SCHEMA)


def test_a_bucket_takes_loads_and_mutations(bucket_graph: WrittenGraph) -> None:
    graph = bucket_graph
    graph.load([node_of_load_modes("a", n=1), node_of_load_modes("b"), edge_of_load_modes("a", "b", id="1")])
    graph.mutate('update P set { n: 5 } where k = "a"  insert P { k: "c" }  insert E { from: "c", to: "a" }')
    graph.load([node_of_load_modes("a", n=7), node_of_load_modes("d")])
    assert "orphan" in problems(graph, [node_of_load_modes("a")], LoadMode.OVERWRITE).detail
    assert graph.mutate('delete P where k = "b"').affected_edges == 1
    assert [row["data"].get("n") for row in graph.rows("P")] == [7, None, None]
    assert graph.counts()["E"] == 1
    graph.load([edge_of_load_modes("d", "d")], LoadMode.OVERWRITE)
    assert [(row["from"], row["to"]) for row in graph.rows("E")] == [("d", "d")]
    assert open_snapshot(graph.uri).manifest.n == 6


def test_problems_come_in_the_order_of_the_records(graph: WrittenGraph) -> None:
    graph.load([node_of_load_modes(f"k{at}", code=chr(97 + at)) for at in range(20)])
    found = problems(graph, [node_of_load_modes(f"n{at}", code=chr(97 + at)) for at in range(20)] * 2, LoadMode.APPEND)
    lines = [problem.source.line for problem in found.problems if problem.source is not None]
    assert lines == sorted(lines)
    assert len(lines) == 60


class LoadAndMigrationMeanwhile(io.BytesIO):
    """A stream at whose end a property is dropped and declared again, which makes it another column."""

    def __init__(self, data: bytes, history: History) -> None:
        super().__init__(data)
        self._history = history

    def read(self, size: int | None = -1, /) -> bytes:
        line = super().read(size)
        if not line:
            for source in (LOAD_AND_MIGRATION_SCHEMA.replace(b" since: I32? ", b""), LOAD_AND_MIGRATION_SCHEMA):
                engine = LanceEngine(self._history.clock, self._history.ids)
                engine.prepare_migration(self._history.uri, source, actor=None).publish()
        return line


def test_a_column_that_went_and_came_again_is_another_one(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"))
    people = [person("ann"), person("bob")]
    history.put(
        "main", {"node:Person": people, "node:Town": [town("oslo")], "edge:Lives": [lives("l", "bob", "oslo", 1)]}
    )
    records = LoadAndMigrationMeanwhile(
        b'{"edge": "Lives", "from": "ann", "to": "oslo", "data": {"since": 2019}}\n', history
    )
    with pytest.raises(GitopsError) as failure:
        load_records(LoadRequest(history.uri, records), WriteContext(history.clock, history.ids))
    assert failure.value.code == "graph_conflict"
    assert history.rows("edge:Lives") == [lives("l", "bob", "oslo")]
