"""Loading records: every problem is found and named, and nothing half is published."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write import intake
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
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
    ("id", "b", "'id' is 'b' and the key of P makes it 'a'"),
    ("id", 7, "'id' is not a text"),
    ("id", "", "'id' is not a text"),
    ("id", None, "'id' is not a text"),
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
    (b'{"type":"P","data":{"k":"a","k":"b"}}', "given twice"),
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


def test_of_repeated_edge_ids_the_last_wins_in_a_merge(uri: str) -> None:
    assert load(uri, node(), edge("a", "a", id="1", w=1), edge("a", "a", id="1", w=2)) == {"edge:E": 1, "node:P": 1}
    assert [row["w"] for row in read.read_rows(uri, "E", 9)] == [2]
    assert (
        "@unique violation on E.id"
        in refusals(uri, edge("a", "a", id="9"), edge("a", "a", id="9"), mode=LoadMode.APPEND)[0]
    )


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
