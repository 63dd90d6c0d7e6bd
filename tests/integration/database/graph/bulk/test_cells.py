"""What Arrow brings is taken when it means the same as JSON would, and refused by name of row and property otherwise."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.bulk import column_cells, input_columns, plan_bulk, publish_bulk, write_part
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.values import CellError, json_to_cell
from gitops.database.language.schema import PropType, Scalar
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.ids import SequentialIds

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
SCHEMA = b"""
node P {
  k: String @key
  i: I32?  u: U64?  f: F32?  d: F64?  b: Bool?
  day: Date?  at: DateTime?  vec: Vector(2)?  doc: Blob?
  e: enum(x, in-progress)?  tags: [String]?  days: [Date]?  times: [DateTime]?
  code: String?
  @range(i, 0..10)
  @check(code, "^[a-z]+$")
}
node Free { n: I32 }
node Two { b: I32  a: String  @key(a, b) }
node Num { at: DateTime @key }
node Odd { a: Blob?  z: String @unique }
edge E: P -> P { w: I32? }
edge Way: P -> P { from: String?  to: String? }
"""


class Place:
    """A graph that takes columns."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.ids = SequentialIds()
        LanceEngine(CLOCK, self.ids).prepare_create(uri, SCHEMA, actor=None).publish()

    def put(self, key: str, columns: Mapping[str, Any]) -> None:
        work = WriteContext(CLOCK, self.ids)
        plan = plan_bulk(self.uri, work)
        publish_bulk(plan, [write_part(plan.task(key), pa.table(dict(columns)), self.ids)], work)

    def load(self, *records: object) -> None:
        raw = "\n".join(map(json.dumps, records)).encode()
        load_records(LoadRequest(self.uri, io.BytesIO(raw), LoadMode.MERGE), WriteContext(CLOCK, self.ids))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return sorted(read.read_rows(self.uri, name, 100), key=lambda row: str(row["id"]))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "g.omni"))


NOON = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def test_every_type_becomes_what_a_record_becomes(place: Place) -> None:
    columns = {
        "k": pa.array(["é", "a"]).dictionary_encode(),
        "i": pa.array([10, None], pa.uint64()),
        "u": pa.array([2**64 - 1, None], pa.uint64()),
        "f": pa.array([0.1, None], pa.float64()),
        "d": pa.array([7, None], pa.int8()),
        "b": pa.array([False, None]),
        "day": pa.array([date(1969, 12, 31), None], pa.date64()),
        "at": pa.array([MOMENT, None], pa.timestamp("us", "Europe/Oslo")),
        "vec": pa.array([[1.5, -0.1], None], pa.large_list(pa.float64())),
        "doc": pa.array([b"\x00\x01", None], pa.large_binary()),
        "e": pa.array(["in-progress", None], pa.large_string()),
        "tags": pa.array([["x", ""], None], pa.list_(pa.large_string())),
        "days": pa.array([[date(1, 1, 1), date(9999, 12, 31)], None], pa.large_list(pa.date32())),
        "times": pa.array([[NOON], None], pa.list_(pa.timestamp("ns"))),
        "code": pa.nulls(2),
    }
    record = {
        "k": "é", "i": 10, "u": 2**64 - 1, "f": 0.1, "d": 7, "b": False, "day": "1969-12-31",
        "at": "1969-12-31T23:59:59.999Z", "vec": [1.5, -0.1], "doc": "base64:AAE=", "e": "in-progress", "tags": ["x", ""],
        "days": ["0001-01-01", "9999-12-31"], "times": ["2026-01-02T03:04:05.006Z"], "code": None,
    }  # fmt: skip
    place.put("node:P", columns)
    taken = place.rows("P")
    place.load({"type": "P", "data": record}, {"type": "P", "data": {"k": "a"}})
    assert taken == place.rows("P") == [dict.fromkeys(record) | {"k": "a", "id": "a"}, record | {"id": "é"}]


BAD = [
    ("i", pa.array(["1"]), "strict property P.i expects I32?: got string"),
    ("i", pa.array([1.0]), "expects I32?: got double"),
    ("i", pa.array([True]), "expects I32?: got bool"),
    ("i", pa.array([2**31]), "expects I32?: Integer value 2147483648 not in range"),
    ("i", pa.array([11]), "@range violation on P.i: 11 is not in 0..10"),
    ("u", pa.array([-1]), "expects U64?"),
    ("f", pa.array([1e39]), "expects F32?: a number is not finite, or too large"),
    ("d", pa.array([float("nan")]), "expects F64?: a number is not finite"),
    ("b", pa.array([1]), "expects Bool?: got int64"),
    ("day", pa.array(["2026-01-01"]), "expects Date?: got string"),
    ("day", pa.array([10**9]), "expects Date?: the time is not within the years 1 to 9999"),
    ("day", pa.array([MOMENT]), "expects Date?: got timestamp"),
    ("at", pa.array([10**18]), "expects DateTime?: the time is not within"),
    ("at", pa.array(["2026"]), "expects DateTime?: got string"),
    ("vec", pa.array([[1.0]]), "expects Vector(2)?: got 1 dimensions"),
    ("vec", pa.array([[1.0, None]]), "expects Vector(2)?: a vector holds a null"),
    ("vec", pa.array([[1.0, 1e39]]), "expects Vector(2)?: a number is not finite"),
    ("vec", pa.array([1.0]), "expects Vector(2)?: got double"),
    ("doc", pa.array(["s3://bucket/key"]), "expects Blob?: got string"),
    ("e", pa.array(["z"]), "invalid enum value 'z' for P.e (expected: in-progress, x)"),
    ("tags", pa.array(["x"]), "expects [String]?: got string"),
    ("tags", pa.array([["x", None]]), "expects [String]?: a list holds a null"),
    ("tags", pa.array([[["x"]]]), "expects [String]?: got list"),
    ("code", pa.array(["ABC"]), "@check violation on P.code"),
    ("code", pa.array([b"\xff"]).view(pa.string()), "expects String?: Invalid UTF8"),
    ("id", pa.array(["b"]), "'id' is 'b' and the key of P makes it 'a'"),
    ("id", pa.array([7]), "'id' expects a text: got int64"),
    ("id", pa.array([""]), "'id' is not a text that can be an id"),
    ("nope", pa.array([1]), "P has no property 'nope'"),
    ("src", pa.array(["a"]), "P has no property 'src'"),
]


@pytest.mark.parametrize(("name", "column", "message"), BAD)
def test_what_does_not_fit_is_named(place: Place, name: str, column: pa.Array, message: str) -> None:
    good = column if name in ("nope", "src") else pa.nulls(1, column.type)
    with pytest.raises(LoadError) as failure:
        place.put("node:P", {"k": ["good", "a"], name: pa.concat_arrays([good, column])})
    found = [problem.message for problem in failure.value.problems]
    assert any(message in text for text in found)
    assert all(text.startswith("record 2: ") == (name not in ("nope", "src")) for text in found[1:] or found)
    assert open_snapshot(place.uri).manifest.n == 1


FIRST, LAST = (datetime.fromisoformat(day) for day in ("0001-01-03", "9999-12-29"))


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.datetimes(
                FIRST,
                LAST,
                timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9))]),
            ),
        ),
        max_size=5,
    ),
    st.sampled_from(["us", "ms", "s"]),
)
@settings(max_examples=cases(100))
def test_moments_are_those_of_their_texts(moments: list[datetime | None], unit: str) -> None:
    places = {"us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    cut = [None if each is None else each.replace(microsecond=each.microsecond // places * places) for each in moments]
    kind = PropType(Scalar.DATETIME, nullable=True)
    cells = column_cells(pa.array(cut, pa.timestamp(unit, "UTC")), kind)
    expected = [None if each is None else json_to_cell(each.isoformat(), kind) for each in cut]
    assert raw_columns(pa.table({"x": cells}))["x"] == expected


@given(
    st.lists(st.one_of(st.none(), st.lists(st.floats(width=32), min_size=1, max_size=3)), max_size=6), st.integers(0, 3)
)
@settings(max_examples=cases(100))
def test_vectors_are_those_of_json(vectors: list[list[float] | None], skip: int) -> None:
    kind = PropType(Scalar.VECTOR, nullable=True, dimension=2)
    column = pa.array(vectors, pa.list_(pa.float32())).slice(skip)

    def cell(value: list[float] | None) -> Any:
        return None if value is None else json_to_cell(value, kind)

    try:
        expected = [cell(value) for value in vectors[skip:]]
    except CellError:
        with pytest.raises(CellError):
            column_cells(column, kind)
    else:
        assert column_cells(column, kind).to_pylist() == expected


def test_ids_are_those_of_records(place: Place) -> None:
    place.put("node:Two", {"a": ['"é', "x"], "b": pa.array([1, -2], pa.int16())})
    place.put("node:Num", {"at": pa.array([MOMENT], pa.timestamp("ms", "UTC"))})
    place.put("node:Free", {"n": [1, 2], "id": ["own", None]})
    taken = [place.rows(name) for name in ("Two", "Num")]
    place.load(
        {"type": "Two", "data": {"a": '"é', "b": 1}},
        {"type": "Two", "data": {"a": "x", "b": -2}},
        {"type": "Num", "data": {"at": "1969-12-31T23:59:59.999Z"}},
    )
    assert taken == [place.rows(name) for name in ("Two", "Num")]
    made, own = place.rows("Free")
    assert (own["id"], own["n"], made["n"], len(made["id"])) == ("own", 1, 2, 26)


def test_edges_name_their_ends(place: Place) -> None:
    place.put("node:P", {"k": ["a", "b"]})
    place.put("edge:E", {"id": ["1"], "from": ["a"], "to": ["b"], "w": [3]})
    place.put("edge:Way", {"id": ["1"], "src": ["a"], "dst": ["b"], "from": ["here"]})
    assert place.rows("E") == [{"id": "1", "src": "a", "dst": "b", "w": 3}]
    assert place.rows("Way") == [{"id": "1", "src": "a", "dst": "b", "from": "here", "to": None}]
    for columns, message in [
        ({"from": ["a"]}, "column 'to' of E is missing"),
        ({"from": ["a"], "to": pa.nulls(1, pa.string())}, "record 1: edge missing 'to'"),
        ({"from": ["a"], "to": [1]}, "'to' expects a text: got int64"),
    ]:
        with pytest.raises(LoadError) as failure:
            place.put("edge:E", columns)
        assert message in next(iter(failure.value.problems)).message


def test_the_columns_that_a_table_takes_can_be_asked_for(place: Place) -> None:
    catalog = open_snapshot(place.uri).schema().catalog
    assert input_columns(catalog.edges["E"]) == {"from": True, "to": True, "w": False, "id": False}
    assert input_columns(catalog.nodes["Two"]) == {"a": True, "b": True, "id": False}


def test_a_unique_property_behind_a_blob_is_refused_at_once(place: Place) -> None:
    with pytest.raises(GitopsError) as failure:
        place.put("node:Odd", {"z": ["x"]})
    assert failure.value.code == "usage_error"
