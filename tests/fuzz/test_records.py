"""Reading by columns accepts nothing that the strict reader refuses, and makes no other cell.

Traps, guards that were taken away, and a sample of the fuzzer.
"""

from __future__ import annotations

import random
import types
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.write import columns, intake
from gitops.database.language.schema import compile_schema
from tests.fuzz.records import difference, lines, read, schema
from tests.support.effort import cases

CATALOG = compile_schema(
    b"""
node N {
  t: String?  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?  day: Date?  at: DateTime?
  v: Vector(2)?  e: enum(x, y)?  ts: [String]?  ds: [F64]?  days: [Date]?  r: I32?  c: String?
  @range(r, 0..7)  @check(c, "^a+$")
}
node K { k: String @key  must: I32 }
node F { k: F64 @key }
node B { blob: Blob? }
node T { type: String? }
edge E: N -> N { w: I32? }
"""
).catalog


def node(members: str) -> bytes:
    return b'{"type":"N","data":{' + members.encode() + b"}}"


def keyed(members: str) -> bytes:
    return b'{"type":"K","data":{' + members.encode() + b"}}"


def edge(rest: str, name: str = "E") -> bytes:
    return f'{{"edge":"{name}",{rest}}}'.encode()


CLEAN = {
    "every scalar": node(
        '"t":"\\u00e9\\ud83d\\ude00","b":true,"i":-2147483648,"l":9223372036854775807,"u":4294967295,"w":18446744073709551615,'
        '"f":0.1,"d":-0.0,"day":"0001-01-01","at":"9999-12-31T23:59:59.999Z","v":[1,-0.5],"e":"x","r":7,"c":"aa"'
    ),
    "lists": node('"ts":["a",""],"ds":[],"days":["2024-02-29"]'),
    "nulls": node('"t":null,"f":null,"day":null,"v":null,"ts":null'),
    "nothing": b'{"type":"N","data":{}}',
    "no data": b'{"type":"N"}',
    "an id": node('"id":"n1"'),
    "a key": keyed('"k":"a","must":1,"id":"a"'),
    "a key of floats": b'{"type": "F", "data": {"k": 1.50}}',
    "an edge": edge('"from":"a","to":"b"'),
    "an edge with data": edge('"from":"a","to":"b","data":{"w":1,"id":"e1"}'),
    "spaces": b'{"type": "N", "data": {"t": "a", "ts": [ ]} }',
}

TRAPS = {
    "a repeated member": node('"t":"a","t":"b"'),
    "a repeated member, escaped": node('"t":"a","\\u0074":"b"'),
    "a repeated member, null": node('"t":"a","t":null'),
    "a repeated member, of the record": b'{"type":"N","data":{},"data":{}}',
    "a repeated type": b'{"type":"N","type":"K","data":{}}',
    "an unknown member": b'{"type":"N","data":{},"x":1}',
    "an unknown property": node('"x":null'),
    "type and edge": b'{"type":"N","edge":"E","data":{}}',
    "an unknown type": b'{"type":"Z","data":{}}',
    "a type after the data": b'{"data":{"t":"a"},"type":"N"}',
    "a list as data": b'{"type":"N","data":[]}',
    "null as data": b'{"type":"N","data":null}',
    "null as escaped data": b'{"type":"N","d\\u0061ta":null}',
    "null as data, escaped at its first letter": b'{"type":"N","\\u0064ata":null}',
    "null as data, escaped at its third letter": b'{"type":"N","da\\u0074a":null}',
    "a line that is null": b"null",
    "a line that is a number": b"1",
    "two values on a line": node('"id":"1"') + b" " + node('"id":"2"'),
    "two values on a line, one on none": node('"i":1') + node('"i":2') + b"\n{}",
    "a value over two lines": b'{"type":"N",\n"data":{"i":1}}',
    "a value over two lines, and two values on one": b'{"type":"T","data":\n{"type":"T"}}\n'
    + b'{"type":"T","data":{}}' * 2,
    "a mark of byte order": b"\xef\xbb\xbf" + node('"i":1'),
    "a blank line": node('"i":1') + b"\n\n" + node('"i":2'),
    "a carriage return": node('"i":1') + b"\r",
    "a space before": b" " + node('"i":1'),
    "a NUL after": node('"i":1') + b"\0}",
    "text after": node('"i":1') + b"x}",
    "a comment": b'{"type":"N",/**/"data":{}}',
    "a comma at the end": node('"ts":["a",]'),
    "not UTF-8": b'{"type":"N","data":{"t":"\xff"}}',
    "half a surrogate, as bytes": b'{"type":"N","data":{"t":"\xed\xa0\x80"}}',
    "half a surrogate": node('"t":"\\ud800"'),
    "half a surrogate as an end": edge('"from":"a","to":"\\ud800"'),
    "a control character": node('"t":"\x01"'),
    "a deep list": node('"ts":' + "[" * 60_000 + "]" * 60_000),
    "a deep list of no property": node('"x":' + "[" * 60_000 + "]" * 60_000),
    "deep objects": b'{"type":"N","data":' + b'{"t":' * 20_000 + b"1" + b"}" * 20_001,
    "a deep list as data": b'{"type":"N","data":' + b"[" * 60_000 + b"]" * 60_000 + b"}",
    "too many commas": node('"ds":[' + "0," * 131_073 + "0]"),
    "NaN": node('"d":NaN'),
    "an infinity": node('"d":-Infinity'),
    "an infinity in a list": node('"ds":[1,Infinity]'),
    "an infinity, short": node('"f":Inf'),
    "a double that is too large": node('"d":1e309'),
    "a float that is too large": node('"f":1e39'),
    "a component that is too large": node('"v":[1e39,0]'),
    "a number of 5000 digits": node('"d":' + "1" * 5000),
    "a fraction of 5000 digits": node('"d":0.' + "1" * 5000),
    "an integer that is no double": node('"d":9007199254740993'),
    "an integer that is no double, in a list": node('"ds":[-9007199254740993]'),
    "an integer that is no double, for a float": node('"f":9007199254740993'),
    "an integer that is no float": node('"f":16777217'),
    "a decimal between two floats": node('"f":1.00000005960464477539062500001'),
    "minus zero, a whole number": node('"d":-0'),
    "minus zero, a whole number, for a float": node('"f":-0'),
    "minus zero, a whole number, in a vector": node('"v":[-0,-0.0]'),
    "minus zero, a whole number, in a list": node('"ds":[-0]'),
    "minus zero, a decimal": node('"d":-0.0,"f":-0e1'),
    "a decimal for an integer": node('"i":1.0'),
    "an exponent for an integer": node('"l":1e2'),
    "a text for an integer": node('"i":"1"'),
    "a truth for an integer": node('"i":true'),
    "an integer for a truth": node('"b":1'),
    "an integer for a text": node('"t":1'),
    "below I32": node('"i":-2147483649'),
    "below I64": node('"l":-9223372036854775809'),
    "above I32": node('"i":2147483648'),
    "above I64": node('"l":9223372036854775808'),
    "below U32": node('"u":-1'),
    "above U32": node('"u":4294967296'),
    "above U64": node('"w":18446744073709551616'),
    "minus zero for U64": node('"w":-0'),
    "null in a list": node('"ts":["a",null]'),
    "null in a list of times": node('"days":[null]'),
    "null in a vector": node('"v":[1,null]'),
    "a short vector": node('"v":[1]'),
    "an empty vector": node('"v":[]'),
    "a text in a vector": node('"v":[1,"2"]'),
    "a value for a list": node('"ts":"a"'),
    "a day without zeros": node('"day":"2026-1-1"'),
    "a day that is none": node('"day":"2026-02-30"'),
    "a day of the year 0": node('"day":"0000-12-31"'),
    "a day in a list that is none": node('"days":["2026-02-30"]'),
    "a day as a number": node('"day":1'),
    "a day with a line break": node('"day":"2026-01-01\\n"'),
    "a day with a time": node('"day":"2026-01-01T03:04:05Z"'),
    "a moment without a zone": node('"at":"2026-01-01T03:04:05"'),
    "a moment with an offset": node('"at":"2026-01-01T03:04:05+02:00"'),
    "a moment with a space": node('"at":"2026-01-01 03:04:05Z"'),
    "a moment of 24 hours": node('"at":"2026-01-01T24:00:00Z"'),
    "a moment of 60 seconds": node('"at":"2026-01-01T03:04:60Z"'),
    "a moment in microseconds": node('"at":"2026-01-01T03:04:05.123456Z"'),
    "a moment without seconds": node('"at":"2026-01-01T03:04Z"'),
    "a moment with an offset without a colon": node('"at":"2026-01-01T03:04:05+0200"'),
    "a moment of the year 0": node('"at":"0000-12-31T00:00:00Z"'),
    "a moment with a line break": node('"at":"2026-01-01T03:04:05Z\\n"'),
    "a moment as a day": node('"at":"2026-01-01"'),
    "no member of the enum": node('"e":"z"'),
    "below the range": node('"r":-1'),
    "above the range": node('"r":8'),
    "a text that does not match": node('"c":"b"'),
    "a missing value": keyed('"k":"a"'),
    "a null that is required": keyed('"k":"a","must":null'),
    "a key that is null": keyed('"k":null,"must":1'),
    "an id beside another key": keyed('"k":"a","must":1,"id":"b"'),
    "an id of null": node('"id":null'),
    "an escaped id of null": node('"\\u0069d":null'),
    "an id of null, escaped at its second letter": node('"i\\u0064":null'),
    "an id of null beside a text of id": node('"id":null,"t":"id"'),
    "an id of null beside a key": keyed('"k":"a","must":1,"id":null'),
    "an empty id": node('"id":""'),
    "an id with NUL": node('"id":"a\\u0000b"'),
    "a number as id": node('"id":1'),
    "an id of an edge of null": edge('"from":"a","to":"b","data":{"id":null}'),
    "no end": edge('"from":"a"'),
    "a null end": edge('"from":"a","to":null'),
    "a number as end": edge('"from":1,"to":"b"'),
    "an edge by another spelling": b"\n".join(edge(f'"from":"{at}","to":"b"', name) for at, name in enumerate("EeE")),
    "a blob": b'{"type":"B","data":{"blob":"base64:AAE="}}',
    "a blob that is none": b'{"type":"B","data":{"blob":"x"}}\n' + node('"i":1'),
}


@pytest.fixture(autouse=True)
def by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lines are read by columns, too."""
    monkeypatch.setattr(intake, "_LEAST_BYTES", 1)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_line_is_read_by_columns(name: str) -> None:
    stream = b"\n".join([CLEAN[name]] * 3)
    assert read(CATALOG, stream, strict=False).columnar == 3
    assert difference(CATALOG, stream) is None


def surrounded(trap: bytes) -> bytes:
    """A trap as the first line, in the middle, and as the last."""
    clean = b"\n".join(CLEAN.values())
    return b"\n".join((trap, clean, trap, clean, trap))


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_makes_no_difference(name: str) -> None:
    assert difference(CATALOG, TRAPS[name] + b"\n") is None
    assert difference(CATALOG, surrounded(TRAPS[name])) is None


PLANTED = [
    ("if not piece.isascii():", "if False:", "not UTF-8"),
    ('(data[ends - 1] != ord("}")).any()', "False", "a value over two lines, and two values on one"),
    ("(ends - starts[:-1]).max() > MOST_LINE_BYTES", "False", "too many commas"),
    ("(sort, declared.name) in seen", "False", "an edge by another spelling"),
    ('unexpected_field_behavior="error"', 'unexpected_field_behavior="ignore"', "an unknown property"),
    ("_require(parsed.num_rows == count)", "pass", "two values on a line"),
    ("lines.count(b'\"data\"') == count - members.null_count", "True", "null as data"),
    ("_ESCAPED_DATA.search(lines)", "False", "null as escaped data"),
    ("lines.count(b'\"id\"') == count - given.null_count", "True", "an id of null"),
    ("_ESCAPED_ID.search(lines)", "False", "an escaped id of null"),
    (r"\\u006[49]", r"\\u0069", "an id of null, escaped at its second letter"),
    (r"\\u006[49]", r"\\u0064", "an escaped id of null"),
    ("(?:64|61|74)", "(?:64|74)", "null as escaped data"),
    ("(?:64|61|74)", "(?:64|61)", "null as data, escaped at its third letter"),
    ("-0(?![.0-9eE])", "-0[,}]", "minus zero, a whole number, in a list"),
    ("any(each.null_count for each in ends.values())", "False", "no end"),
    ("_require(kind.nullable or not column.null_count)", "pass", "a missing value"),
    ("if kind.enum_values is not None:", "if False:", "no member of the enum"),
    ("low >= bound.low", "True", "below the range"),
    ("high <= bound.high", "True", "above the range"),
    ("not find_mismatches(check, cells[check.property_name])", "True", "a text that does not match"),
    ("_require(_all(pc.equal(given, own)))", "pass", "an id beside another key"),
    ('pc.equal(given, "")', "pa.scalar(False)", "an empty id"),
    ('pc.match_substring(given, "\\0")', "pa.scalar(False)", "an id with NUL"),
    ("_require(not items.null_count)", "pass", "null in a list"),
    ("_require(_all(pc.equal(lengths, kind.dimension)))", "pass", "a short vector"),
    ("_require(np.isfinite(cells).all())", "pass", "a component that is too large"),
    ("np.abs(read) < _EXACT", "np.abs(read) <= _EXACT", "an integer that is no double"),
    ("_require(not ((cells != read) & (read == np.trunc(read))).any())", "pass", "an integer that is no float"),
    ("_require(not _WHOLE_MINUS_ZERO.search(lines))", "pass", "minus zero, a whole number"),
    ("Scalar.F32: (_DOUBLE, _floats)", "Scalar.F32: (pa.float32(), _floats)", "a decimal between two floats"),
    ("_require(_all(pc.match_substring_regex(column, _UTC)))", "pass", "a moment without seconds"),
    ("_require_between(cells.cast(pa.int32()), DAYS)", "pass", "a day of the year 0"),
    ("_require_between(numbers, MOMENTS)", "pass", "a moment of the year 0"),
]
"""A guard, what stands there instead, and a trap that is then noticed."""


@pytest.mark.parametrize(("guard", "instead", "name"), PLANTED, ids=[name for _, _, name in PLANTED])
def test_a_trap_is_noticed_without_its_guard(
    guard: str, instead: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(columns.__file__).read_text(encoding="utf-8")
    assert source.count(guard) == 1
    planted = types.ModuleType("planted")
    exec(compile(source.replace(guard, instead), "planted", "exec"), planted.__dict__)  # noqa: S102 - the source of this package
    for each in ("OddError", "is_columnar", "line_starts", "lines_by_type", "read_rows"):
        monkeypatch.setattr(intake, each, getattr(planted, each))
    try:
        found = read(CATALOG, TRAPS[name] + b"\n", strict=False)
    except (ValueError, pa.ArrowException):
        return  # What is no column of cells fails later.
    strict = read(CATALOG, TRAPS[name] + b"\n", strict=True)
    assert found.columnar
    assert (found.tables, found.problems) != (strict.tables, strict.problems) or name == "a text that does not match"


def test_rows_whose_vectors_are_computed_are_read_one_by_one() -> None:
    catalog = compile_schema(b"node D { t: String  v: Vector(2) @embed(t) }").catalog
    stream = b'{"type":"D","data":{"t":"a","v":[0,1]}}\n' * 3
    assert read(catalog, stream, strict=False).columnar == 3
    assert read(catalog, stream, strict=False, embeds=True).columnar == 0


@settings(max_examples=cases(900))
@given(st.integers(0, 2**64 - 1))
def test_any_records_are_read_as_line_by_line(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same inputs for the same seed
    catalog = compile_schema(schema(chance).encode()).catalog
    stream = lines(catalog, chance)
    assert difference(catalog, stream) is None, stream
