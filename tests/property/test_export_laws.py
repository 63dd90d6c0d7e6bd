"""The law of export: what is exported loads to an equal graph, in merge and in overwrite mode, whatever it holds."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph import read as export_module
from gitops.database.graph.load import LoadMode
from gitops.database.graph.read import export_records
from gitops.database.graph.snapshot import open_snapshot
from tests.support.effort import cases
from tests.support.mutations import WrittenGraph

SCHEMA = """
node P {
  k: String @key
  b: Bool?  i: I32?  j: I64?  u: U32?  v: U64?  f: F32?  d: F64?
  day: Date?  at: DateTime?  vec: Vector(3)? @embed("text")  doc: Blob?  text: String?
  tags: [String]?  nums: [F32]?  moments: [DateTime]?  flags: [Bool]?
  e: enum(x, in-progress)?
}
node Free { n: I32? }
node Pair { a: String  b: F64  @key(a, b) }
edge E: P -> P { w: F64?  day: Date? }
edge F: Free -> Pair
"""
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
DAY = st.dates().map(lambda day: day.isoformat())
MOMENT = st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")
BLOB = st.sampled_from(["base64:", "base64:AA==", "base64:" + "AAAA" * 100])


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


DATA = st.fixed_dictionaries(
    {
        "b": some(st.booleans()),
        "i": some(st.integers(-(2**31), 2**31 - 1)),
        "j": some(st.integers(-(2**63), 2**63 - 1)),
        "u": some(st.integers(0, 2**32 - 1)),
        "v": some(st.integers(0, 2**64 - 1)),
        "f": some(SINGLE),
        "d": some(DOUBLE),
        "day": some(DAY),
        "at": some(MOMENT),
        "vec": some(st.lists(SINGLE, min_size=3, max_size=3)),
        "doc": some(BLOB),
        "text": some(TEXT),
        "tags": some(st.lists(TEXT, max_size=2)),
        "nums": some(st.lists(SINGLE, max_size=2)),
        "moments": some(st.lists(MOMENT, max_size=2)),
        "flags": some(st.lists(st.booleans(), max_size=2)),
        "e": some(st.sampled_from(["x", "in-progress"])),
    }
)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    keys = draw(st.lists(TEXT, min_size=1, max_size=6, unique=True))
    rows: list[dict[str, Any]] = [{"type": "P", "data": {"k": key, **draw(DATA)}} for key in keys]
    rows += [{"type": "Free", "data": {"id": f"f{n}", "n": n}} for n in range(draw(st.integers(0, 2)))]
    for source, target in draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(keys)), max_size=5)):
        rows.append(
            {"edge": "e", "from": source, "to": target, "data": {"w": draw(some(DOUBLE)), "day": draw(some(DAY))}}
        )
    return rows


def described(graph: WrittenGraph) -> dict[str, list[dict[str, Any]]]:
    return {name: graph.shown(name) for name in graph.counts()}


@settings(max_examples=cases(25))
@given(graphs(), st.sampled_from([LoadMode.MERGE, LoadMode.OVERWRITE]), st.sampled_from([1, 300, 1 << 24]))
def test_what_is_exported_loads_to_an_equal_graph(rows: list[dict[str, Any]], mode: LoadMode, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_module, "RANGE_BYTES", size)
        first = WrittenGraph(Path(folder) / "a.omni").create(SCHEMA)
        first.load(rows)
        lines = first.lines()
        second = WrittenGraph(Path(folder) / "b.omni", 5_000).create(SCHEMA)
        second.load(lines)
        assert described(second) == described(first)
        assert second.lines() == lines
        first.load(lines, mode)
        assert first.lines() == lines


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    found = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    found.load(
        [
            {"edge": "e", "from": "b", "to": "a", "data": {"id": "2"}},
            {"edge": "E", "from": "a", "to": "b", "data": {"id": "10", "w": 0.5}},
            {"type": "P", "data": {"k": "b", "text": "x"}},
            {"type": "P", "data": {"k": "a", "f": 0.1, "vec": [0.1, 1e-7, 2]}},
            {"type": "Free", "data": {"id": "z"}},
        ]
    )
    return found


def test_edges_come_first_and_rows_by_id(graph: WrittenGraph) -> None:
    assert graph.lines() == [
        '{"edge":"E","from":"a","to":"b","data":{"id":"10","w":0.5}}',
        '{"edge":"E","from":"b","to":"a","data":{"id":"2"}}',
        '{"type":"Free","data":{"id":"z"}}',
        '{"type":"P","data":{"id":"a","f":0.1,"k":"a","vec":[0.1,1e-07,2.0]}}',
        '{"type":"P","data":{"id":"b","k":"b","text":"x","vec":null}}',
    ]


def test_types_and_tables_are_chosen_by_name(graph: WrittenGraph) -> None:
    snapshot = open_snapshot(graph.uri)
    assert [json.loads(line).get("type") for line in export_records(snapshot, ["Free", "node:P"])] == ["Free", "P", "P"]
    assert len(list(export_records(snapshot, ["edge:E"]))) == 2
    assert list(export_records(snapshot, [])) == []
    for unknown in ("Q", "node:E", "e", ""):
        with pytest.raises(GitopsError) as failure:
            export_records(snapshot, [unknown])
        assert failure.value.code == "graph_type_unknown"


def test_an_export_is_of_its_snapshot_whatever_is_written_meanwhile(graph: WrittenGraph) -> None:
    lines = graph.lines()
    reading = export_records(open_snapshot(graph.uri))
    begun = list(itertools.islice(reading, 2))
    graph.mutate('delete P where k = "a"')
    assert begun + list(reading) == lines


def test_large_tables_are_read_in_ranges_of_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "RANGE_BYTES", 1)
    graph = WrittenGraph(tmp_path / "g.omni").create("node T { k: String @key  n: I32 }")
    graph.load({"type": "T", "data": {"k": f"{n * 7919 % 5000:04}", "n": n}} for n in range(5000))
    assert [row["data"]["k"] for row in graph.rows("T")] == [f"{n:04}" for n in range(5000)]


def test_long_texts_make_the_ranges_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def record_lines(table: Any, declared: Any, rows: Any) -> Iterator[str]:
        sizes.append(rows.nbytes)
        yield from original(table, declared, rows)

    original = export_module._record_lines
    monkeypatch.setattr(export_module, "_record_lines", record_lines)
    monkeypatch.setattr(export_module, "RANGE_BYTES", 2**20)
    graph = WrittenGraph(tmp_path / "g.omni").create("node T { k: String @key  text: String }")
    graph.load({"type": "T", "data": {"k": f"{n:03}", "text": "x" * 20_000}} for n in range(400))
    assert [row["data"]["k"] for row in graph.rows("T")] == [f"{n:03}" for n in range(400)]
    assert sum(sizes) > 400 * 20_000
    assert max(sizes) < 3 * 2**20
