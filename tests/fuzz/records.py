"""Record lines against each other: read by columns, and one by one by the strict reader, they are the same rows and problems.

`python -m tests.fuzz.records [--inputs N] [--seed N]`. Exits 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from unittest.mock import patch

from gitops.database.graph.tables import arrow_schema, arrow_table, declared_type, raw_columns
from gitops.database.graph.write import intake
from gitops.database.graph.write.columns import ColumnRows
from gitops.database.graph.write.intake import IncomingRow, LoadError, RecordProblems, RecordReader
from gitops.database.language.schema import Catalog, compile_schema
from tests.support.ids import SequentialIds

_SCALARS = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Vector(2)", "enum(x, y)")
_LISTED = _SCALARS[:-2]
_GOOD = {
    "String": (
        '"a"',
        '""',
        '"é"',
        '"a\\"b\\\\"',
        '"\\u00e9\\u0000"',
        '"\\ud83d\\ude00"',
        '"null"',
        '"id"',
        '"-0"',
        '"\x7f\u2028"',
    ),
    "Bool": ("true", "false"),
    "I32": ("0", "-1", "7", "2147483647", "-2147483648"),
    "I64": ("0", "-1", "7", "9223372036854775807", "-9223372036854775808", "9007199254740993"),
    "U32": ("0", "7", "4294967295"),
    "U64": ("0", "7", "18446744073709551615", "9007199254740993"),
    "F32": ("0", "1", "0.1", "-0.0", "1e10", "16777216", "1E-50", "-1e-50", "3.4028235e38", "-7.25"),
    "F64": ("0", "1", "0.1", "-0.0", "1e300", "9007199254740992", "5e-324", "1.7976931348623157e308", "-7.25"),
    "Date": ('"2026-01-02"', '"0001-01-01"', '"9999-12-31"', '"1969-12-31"', '"2024-02-29"'),
    "DateTime": (
        '"2026-01-02T03:04:05Z"',
        '"2026-01-02T03:04:05.006Z"',
        '"1969-12-31T23:59:59.9Z"',
        '"0001-01-01T00:00:00Z"',
    ),
    "Vector(2)": ("[0,1]", "[-0.0,1e-50]", "[0.1, 16777217]", "[9007199254740993,1e10]"),
    "enum(x, y)": ('"x"', '"y"'),
    "Blob": ('"base64:AAE="',),
}
_ODD = (
    *(
        "null",
        "true",
        '"1"',
        '"x"',
        '"z"',
        '"\\ud800"',
        '"\\ud800x"',
        '"a\x01"',
        '"a\tb"',
        '"a\\qb"',
        "'a'",
        '"',
        "{}",
        '{"a":1}',
        "[]",
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "1e309",
        "-1e309",
        "3.5e38",
        "1e39",
        "1" * 400,
        "0." + "1" * 400,
        "1" * 5000,
    ),
    *("-0", "-0e1", "1.0", "1e2", "1.5", "01", "1.", ".5", "+1", "-", "0x1", "1e", "1_0", "--1"),
    *("2147483648", "-2147483649", "4294967296", "9223372036854775808", "18446744073709551616", "-9223372036854775809"),
    *("9007199254740993", "-9007199254740993", "16777217", "16777217.0", "33554433", "9007199254740993.0", "1e16"),
    *(
        '"2026-1-1"',
        '"2026-02-30"',
        '"0000-01-01"',
        '"20260101"',
        '"2026-01-01\\n"',
        '" 2026-01-01"',
        '"10000-01-01"',
        "0",
        "-719163",
    ),
    *(
        '"2026-01-01T03:04:05"',
        '"2026-01-01T03:04:05+02:00"',
        '"2026-01-01 03:04:05Z"',
        '"2026-01-01T24:00:00Z"',
        '"2026-01-01t03:04:05z"',
    ),
    *(
        '"2026-01-01T03:04:60Z"',
        '"2026-01-01T03:04:05.1234Z"',
        '"2026-01-01T03:04:05.Z"',
        '"2026-01-01T03:04Z"',
        '"2026-02-29T00:00:00Z"',
    ),
    *(
        '"0001-01-01T00:00:00+01:00"',
        '"0000-12-31T00:00:00Z"',
        '"2026-01-01T25:00:00Z"',
        '"2026-01-01T03:04:05.006Z\\n"',
    ),
    *(
        "[1]",
        "[1,2,3]",
        "[1,null]",
        "[null]",
        "[1,-0]",
        "[1,NaN]",
        "[1,1e39]",
        '["x","z"]',
        '["x",null]',
        "[[1]]",
        "[true,1]",
        "[1,2,]",
    ),
)
_FRAMES = (
    *(
        b"",
        b" ",
        b"\r",
        b"null",
        b"1",
        b'"{"',
        b"{}",
        b"[]",
        b"{",
        b"}",
        b"\xef\xbb\xbf",
        b"\x00",
        b"//",
        b"{}{}",
        b"\xff",
    ),
)
_IDS = ('"1"', '"2"', '"3"', '"é"', '"a"', "null", '""', '"\\u0000"', '"a\\u0000b"', "1", '"\\ud800"', "[]", "{}")


def schema(chance: random.Random) -> str:
    """A schema of nodes with a key, without one, with a check, of a type that has no columns, and of two edges."""

    def properties(count: int) -> str:
        found = []
        for at in range(count):
            listed = chance.random() < 0.2
            kind = chance.choice(_LISTED if listed else _SCALARS)
            found.append(f"p{at}: {f'[{kind}]' if listed else kind}{chance.choice(('', '?', '?', '?'))}")
        return "  ".join(found)

    key = chance.choice(("String", "I64", "U32", "F64", "F32", "Date", "DateTime", "Bool", "enum(x, y)"))
    pair = chance.choice(("@key(k, l)", "@key(k)"))
    return "\n".join(
        (
            f"node Keyed {{ k: {key}  l: I32  {properties(chance.randrange(4))}  {pair}  @range(l, -1..7) }}",
            f"node Free {{ {properties(chance.randrange(1, 5))}  r: F32?  @range(r, ..0.1) }}",
            f'node Held {{ c: String?  @check(c, "^a?$")  {properties(chance.randrange(2))} }}',
            f"node Other {{ b: Blob?  {properties(1)} }}",
            f"edge Plain: Keyed -> Free {{ {properties(chance.randrange(3))} }}",
            "edge Bare: Free -> Free",
        )
    )


def lines(catalog: Catalog, chance: random.Random) -> bytes:
    """A few records of the schema, all of them good, or a few or many odd."""
    odd = chance.choice((0.0, 0.0, 0.02, 0.02, 0.1))
    names = [*catalog.nodes, *catalog.edges]
    kept = chance.sample(names, chance.randint(1, 3))
    compact, break_ = chance.random() < 0.5, chance.choice((b"\n", b"\n", b"\n", b"\r\n"))
    found = []
    for _ in range(chance.randint(1, 25)):
        found.append(_line(catalog, chance.choice(kept), chance, odd, compact=compact).encode("utf-8", "surrogatepass"))
        if chance.random() < odd:
            found.append(chance.choice(_FRAMES))
        if chance.random() < odd / 4:
            at = chance.randrange(len(found[-1]) + 1)
            found[-1] = found[-1][:at] + chance.choice((*_FRAMES, b" ", b",", b"\n", b'"')) + found[-1][at:]
    return break_.join(found) + chance.choice((break_, break_, b""))


def _line(catalog: Catalog, name: str, chance: random.Random, odd: float, *, compact: bool) -> str:
    def rarely(share: float = 1.0) -> bool:
        return chance.random() < odd * share

    node = name in catalog.nodes
    declared = catalog.nodes[name] if node else catalog.edges[name]
    data: list[tuple[str, str]] = []
    for each, kind in declared.properties.items():
        if rarely() or (kind.nullable and chance.random() < 0.3):
            if chance.random() < 0.5:
                data.append((each, "null"))
            continue
        data.append((each, _value(str(kind).removesuffix("?"), chance, rarely)))
    if (chance.random() < 0.2 and getattr(declared, "key", None) is None) or rarely():
        data.append(("id", chance.choice(_IDS if rarely(9) else _IDS[:5])))
    if rarely(0.5) and data:
        data.append((chance.choice(data)[0], chance.choice(("null", "1", '"a"'))))
    if rarely(0.5):
        data.append((chance.choice(("x", "data", "type", "from")), "1"))
    chance.shuffle(data)
    sort = "type" if node else "edge"
    form = [(sort, f'"{name.lower() if not node and chance.random() < 0.1 else name}"')]
    if not node:
        form += [
            (end, chance.choice(("null", "1", '"\\ud800"')) if rarely() else f'"{chance.choice("abé")}"')
            for end in ("from", "to")
        ]
        if rarely():
            form.pop()
    if data or chance.random() < 0.5:
        form.append(
            (
                "data",
                "{" + (", ", ",")[compact].join(_member(each, value, rarely, compact) for each, value in data) + "}",
            )
        )
    if rarely():
        form[-1] = ("data", chance.choice(("null", "[]", '"a"', "{}")))
    if rarely(0.5):
        form.append(chance.choice((("type", '"Free"'), ("edge", '"Bare"'), ("x", "1"), ("data", "{}"), ("to", '"a"'))))
    if rarely():
        chance.shuffle(form)
    return "{" + (", ", ",")[compact].join(_member(each, value, rarely, compact) for each, value in form) + "}"


def _value(kind: str, chance: random.Random, rarely: Any) -> str:
    if rarely():
        return chance.choice(_ODD)
    if kind.startswith("["):
        item = kind[1:-1]
        return "[" + ",".join(_value(item, chance, rarely) for _ in range(chance.randrange(4))) + "]"
    # An enum is printed with its members in order.
    return chance.choice(_GOOD["enum(x, y)" if kind.startswith("enum") else kind])


def _member(name: str, value: str, rarely: Any, compact: bool) -> str:
    if rarely(0.3):
        name = f"\\u{ord(name[0]):04x}{name[1:]}"
    return f'"{name}":{value}' if compact else f'"{name}": {value}'


@dataclass
class Read:
    """What a reader made of a stream: rows by table, numbers of records, and problems; and how many rows came by columns."""

    tables: dict[str, list[str]] = field(default_factory=dict)
    problems: list[tuple[object, ...]] = field(default_factory=list)
    counts: tuple[int, int] = (0, 0)
    columnar: int = 0


def read(catalog: Catalog, stream: bytes, *, strict: bool, embeds: bool = False) -> Read:
    """Read a stream by one of the readers, as a load without pattern checks of strict rows does."""
    problems, found = RecordProblems(), Read()
    reader = RecordReader(catalog, SequentialIds(), problems, embeds)
    rows: Iterable[IncomingRow | ColumnRows] = reader._rows(BytesIO(stream)) if strict else reader.read(BytesIO(stream))
    try:
        for each in rows:
            held = found.tables.setdefault(each.key, [])
            if isinstance(each, ColumnRows):
                found.columnar += each.rows.num_rows
                given = each.records > 10**9 if each.given is None else each.given
                made, records = each.rows, each.records.tolist()
            else:
                declared = declared_type(catalog, each.key)
                made = arrow_table(declared, {name: [each.row[name]] for name in arrow_schema(declared).names})
                given, records = [not each.new], [each.record]
            cells = raw_columns(made)
            for record, known, *row in zip(records, given, *cells.values(), strict=True):
                # -0.0 has a spelling of its own; ids that were made differ.
                held.append(repr((record, row if known else row[1:])))
        problems.settle()
    except LoadError as error:
        found.problems = [(each.code, each.path, each.message, each.source, each.fix) for each in error.problems]
        found.problems.append((error.total,))
    found.counts = reader.records, reader.bytes_read
    return found


def difference(catalog: Catalog, stream: bytes) -> str | None:
    """The first thing that the readers make different of a stream, read in pieces of a few sizes."""
    one = read(catalog, stream, strict=True)
    for largest, least in ((1 << 22, 1), (200, 1), (1 << 22, 1 << 14)):
        with patch.object(intake, "_PIECE_BYTES", largest), patch.object(intake, "_LEAST_BYTES", least):
            other = read(catalog, stream, strict=False)
        for name in ("problems", "counts"):
            if getattr(one, name) != getattr(other, name):
                return f"{name}: {getattr(one, name)} != {getattr(other, name)}"
        # Of a load with problems no row is kept.
        if not one.problems and one.tables != other.tables:
            return f"rows: {one.tables} != {other.tables}"
    return None


def main() -> int:
    """Run all inputs and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.records")
    parser.add_argument("--inputs", type=int, default=15_000, help="streams of records")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other inputs")
    options = parser.parse_args()
    began, columnar, failures = time.monotonic(), 0, []
    for number in range(options.inputs):
        chance = random.Random(f"{options.seed}:{number}")  # noqa: S311 - the same inputs for the same seed
        source = schema(chance)
        catalog = compile_schema(source.encode()).catalog
        stream = lines(catalog, chance)
        found = difference(catalog, stream)
        with patch.object(intake, "_LEAST_BYTES", 1):
            columnar += read(catalog, stream, strict=False).columnar > 0
        if found is not None:
            failures.append((len(stream), source, stream, found))
    for _, source, stream, found in sorted(failures)[:5]:
        print(f"{source}\n{stream!r}\n    {found[:1500]}")  # noqa: T201 - a program
    print(  # noqa: T201 - a program
        f"{options.inputs} inputs, {columnar} of them by columns, {len(failures)} differences, {time.monotonic() - began:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
