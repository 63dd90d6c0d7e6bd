"""Reads records column by column, which is many times faster than reading them line by line.

This reader accepts only records that the strict line reader (`gitops.database.graph.write.intake.RecordReader`)
accepts, and produces the same cells. It can reject valid records, and it has no error messages: if any part of the
stream is unusual, the strict reader reads it.

Arrow's parser reads the columns of one type. It rejects repeated members, unknown members and values of another JSON
type. The other invalid records are rejected here, before and after parsing:

1. `line_starts` and `lines_by_type` check that each line begins with `{` and ends with `}`, that there are as many
   values as lines (so each line is one value), that no line is long enough for too many brackets, and that the text is
   UTF-8.
2. `_PARSED` checks for each value type that numbers are finite and exact, and that times are in a common format.
3. `read_rows` distinguishes missing members from nulls where it matters, and checks ids, lists, enums, ranges and
   patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from gitops.core.clock import IdSource
from gitops.database.graph.tables import arrow_field, arrow_schema, raw_columns
from gitops.database.graph.values import DAYS, MOMENTS
from gitops.database.graph.write.keys import Numbers
from gitops.database.graph.write.rules import find_mismatches, node_id
from gitops.database.language.schema import INTEGERS, Catalog, EdgeType, NodeType, PropType, Scalar

MOST_LINE_BYTES = 128 * 1024
"""Longest line for this reader. The strict reader reads longer lines, and counts their brackets, commas and colons."""

_BLOCK_BYTES = 512 * 1024
_MOST_TYPES = 64
_HEAD = re.compile(rb'\{"(type|edge)": ?"([^"\\\n]*)"')
_WHOLE_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
_ESCAPED_ID, _ESCAPED_DATA = re.compile(rb"\\u006[49]"), re.compile(rb"\\u00(?:64|61|74)")
_EXACT = 2.0**53
_UTC = r":\d\d:\d\d(?:\.\d+)?Z\z"
"""The end of a time with seconds in UTC. Arrow checks the rest of the time."""


class OddError(Exception):
    """Raised if a part of the stream must be read line by line."""


class ColumnRows(NamedTuple):
    """Rows of one table, with their record numbers.

    `given` is a mask of the ids from records or keys, or None if all ids are new; `bytes` is the total line length.
    """

    key: str
    rows: pa.Table
    records: Numbers
    given: Numbers | None
    bytes: int


def line_starts(piece: bytes) -> Numbers:
    """Return the offset of each line and the end of the last line. Raises OddError."""
    if not piece.isascii():
        try:
            piece.decode()
        except UnicodeDecodeError:
            raise OddError from None
    data = np.frombuffer(piece, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not piece.endswith(b"\n"):
        ends = np.append(ends, data.size)
    starts = np.append(0, ends + 1)
    if (data[ends - 1] != ord("}")).any() or (ends - starts[:-1]).max() > MOST_LINE_BYTES:
        raise OddError
    return starts


def lines_by_type(piece: bytes, starts: Numbers, catalog: Catalog) -> Iterator[tuple[NodeType | EdgeType, Numbers]]:
    """Yield each type with the positions of its lines, using each line's first member. Raises OddError."""
    data, left = np.frombuffer(piece, np.uint8), np.arange(starts.size - 1)
    seen = set[tuple[bytes, str]]()
    for _ in range(_MOST_TYPES):
        head = _HEAD.match(piece, int(starts[left[0]]))
        if head is None:
            raise OddError
        sort, name = head[1], head[2].decode()
        declared = catalog.nodes.get(name) if sort == b"type" else catalog.edge(name)
        if declared is None or (sort, declared.name) in seen:
            # If a type is spelled in two ways, its rows would lose their order.
            raise OddError
        seen.add((sort, declared.name))
        shown = np.frombuffer(head[0], np.uint8)
        # The bytes after a shorter line belong to the next line; those after the last are repeated and match no head.
        places = np.minimum(starts[left, None] + np.arange(shown.size), data.size - 1)
        mine = (data[places] == shown).all(axis=1)
        yield declared, left[mine]
        left = left[~mine]
        if not left.size:
            return
    raise OddError


def is_columnar(declared: NodeType | EdgeType, *, embeds: bool) -> bool:
    """Return whether the type's rows can be read by columns: it has no blobs, and no vectors must be computed."""
    made = embeds and isinstance(declared, NodeType) and declared.embeds
    return not made and all(kind.scalar in _PARSED for kind in declared.properties.values())


def read_rows(
    declared: NodeType | EdgeType, lines: bytes, count: int, ids: IdSource
) -> tuple[pa.Table, Numbers | None]:
    """Parse lines of one type.

    Return the rows, and a mask of the ids that are given or made from keys (None if there are none). Raises OddError.
    """
    edge = isinstance(declared, EdgeType)
    kinds = declared.properties
    data = [("id", pa.string()), *((name, _json_type(kind)) for name, kind in kinds.items())]
    heads = ["edge", "from", "to"] if edge else ["type"]
    schema = pa.schema([*((name, pa.string()) for name in heads), ("data", pa.struct(data))])
    try:
        parsed = pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(block_size=_BLOCK_BYTES),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        ).combine_chunks()
    except pa.ArrowException:
        raise OddError from None
    _require(parsed.num_rows == count)
    members = _whole(parsed.column("data"))
    if members.null_count:
        # Missing in all of these lines, and never null.
        _require(lines.count(b'"data"') == count - members.null_count and not _ESCAPED_DATA.search(lines))
    given, *values = members.flatten()
    if given.null_count:
        _require(lines.count(b'"id"') == count - given.null_count and not _ESCAPED_ID.search(lines))
    cells = {name: _cells(column, kind, lines) for (name, kind), column in zip(kinds.items(), values, strict=True)}
    _check_rules(declared, cells)
    ends = {name: _whole(parsed.column(member)) for name, member in (("src", "from"), ("dst", "to")) if edge}
    _require(not any(each.null_count for each in ends.values()))
    own, known = _row_ids(declared, cells, given, ids)
    columns = {"id": own, **ends, **cells}
    table = arrow_schema(declared)
    return pa.Table.from_arrays([columns[name] for name in table.names], schema=table), known


def _check_rules(declared: NodeType | EdgeType, cells: Mapping[str, pa.Array]) -> None:
    for name, kind in declared.properties.items():
        column = cells[name]
        _require(kind.nullable or not column.null_count)
        if kind.enum_values is not None:
            _require(_all(pc.is_in(column.drop_null(), pa.array(kind.enum_values, pa.string()))))
    for bound in declared.ranges if isinstance(declared, NodeType) else ():
        # Compare as Python numbers, because Arrow would first convert both to one type.
        found = pc.min_max(cells[bound.property_name]).as_py()
        low, high = found["min"], found["max"]
        _require(low is None or bound.low is None or low >= bound.low)
        _require(high is None or bound.high is None or high <= bound.high)
    for check in declared.checks if isinstance(declared, NodeType) else ():
        _require(not find_mismatches(check, cells[check.property_name]))


def _row_ids(
    declared: NodeType | EdgeType, cells: Mapping[str, pa.Array], given: pa.Array, ids: IdSource
) -> tuple[pa.Array, Numbers | None]:
    if isinstance(declared, NodeType) and declared.key is not None:
        own = key_ids(declared, declared.key, cells)
        _require(_all(pc.equal(given, own)))
        return own, np.ones(len(own), np.bool_)
    known = given.is_valid().to_numpy(zero_copy_only=False)
    if given.null_count < len(given):
        _require(not pc.any(pc.or_(pc.equal(given, ""), pc.match_substring(given, "\0"))).as_py())
    return fill_ids(given, ids), known if known.any() else None


def fill_ids(given: pa.Array, ids: IdSource) -> pa.Array:
    """Return the ids, with nulls replaced by new ids."""
    if not given.null_count:
        return given
    return pc.replace_with_mask(given, given.is_null(), pa.array(ids.ulids(given.null_count), pa.string()))


def key_ids(declared: NodeType, key: Sequence[str], cells: Mapping[str, pa.Array]) -> pa.Array:
    """Return the ids made from these keys.

    Strings and integers are converted by column, and other keys one by one.
    """
    kind = declared.properties[key[0]]
    if len(key) == 1 and kind.scalar is Scalar.STRING:
        return cells[key[0]]
    if len(key) == 1 and kind.scalar in INTEGERS:
        return cells[key[0]].cast(pa.string())
    columns = raw_columns(pa.table({name: cells[name] for name in key}))
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return pa.array([node_id(declared, row) for row in rows], pa.string())


def _cells(column: pa.Array, kind: PropType, lines: bytes) -> pa.Array:
    """Convert a parsed column to cells. Raises OddError."""
    scalar, (_, make) = kind.scalar, _PARSED[kind.scalar]
    if not kind.is_list and scalar is not Scalar.VECTOR:
        return make(column, scalar, lines)
    items, lengths = column.flatten(), pc.list_value_length(column)
    _require(not items.null_count)
    if kind.is_list:
        return list_column(make(items, scalar, lines), lengths, kind)
    _require(_all(pc.equal(lengths, kind.dimension)))
    return vector_column(make(items, scalar, lines), lengths, kind)


def list_column(items: pa.Array, lengths: pa.Array, kind: PropType) -> pa.Array:
    """Build a column of lists from items and lengths. A null length results in a null list."""
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, items, type=arrow_field("cells", kind).type, mask=lengths.is_null())


def vector_column(numbers: pa.Array, lengths: pa.Array, kind: PropType) -> pa.Array:
    """Build a column of vectors from numbers and lengths. A null length means a null, all others are the dimension."""
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=arrow_field("cells", kind).type)
    if not lengths.null_count:
        return vectors
    taken = pc.cumulative_sum(lengths.is_valid().cast(pa.int64()))
    return vectors.take(pc.if_else(lengths.is_valid(), pc.subtract(taken, 1), pa.scalar(None, pa.int64())))


def _unchanged(column: pa.Array, scalar: Scalar, lines: bytes) -> pa.Array:
    del scalar, lines
    return column


def _floats(column: pa.Array, scalar: Scalar, lines: bytes) -> pa.Array:
    """Convert to floats of any width. The parser reads doubles, and rounds integers that doubles cannot represent."""
    read = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        cells = read if scalar is Scalar.F64 else read.astype(np.float32)
    _require(np.isfinite(cells).all())
    if scalar is not Scalar.VECTOR:
        # 2**53 itself may have been read from 2**53 + 1.
        _require((np.abs(read) < _EXACT).all())
    if scalar is Scalar.F32:
        _require(not ((cells != read) & (read == np.trunc(read))).any())
    if (np.signbit(read) & (read == 0)).any():
        # The JSON integer -0 is 0, not -0.0.
        _require(not _WHOLE_MINUS_ZERO.search(lines))
    return pa.array(cells, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None)


def _dates(column: pa.Array, scalar: Scalar, lines: bytes) -> pa.Array:
    del scalar, lines
    cells = _times_as(column, pa.date32())
    _require_between(cells.cast(pa.int32()), DAYS)
    return cells


def _moments(column: pa.Array, scalar: Scalar, lines: bytes) -> pa.Array:
    del scalar, lines
    _require(_all(pc.match_substring_regex(column, _UTC)))
    numbers = _times_as(column, pa.timestamp("ms", "UTC")).cast(pa.int64())
    _require_between(numbers, MOMENTS)
    return numbers.view(pa.date64())


def _times_as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowException:
        raise OddError from None


def _require_between(numbers: pa.Array, bounds: tuple[int, int]) -> None:
    _require(_all(pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))))


_TEXT, _DOUBLE = pa.string(), pa.float64()
_Reader = Callable[[pa.Array, Scalar, bytes], pa.Array]
_PARSED: Mapping[Scalar, tuple[pa.DataType, _Reader]] = {
    Scalar.STRING: (_TEXT, _unchanged),
    Scalar.BOOL: (pa.bool_(), _unchanged),
    Scalar.I32: (pa.int32(), _unchanged),
    Scalar.I64: (pa.int64(), _unchanged),
    Scalar.U32: (pa.uint32(), _unchanged),
    Scalar.U64: (pa.uint64(), _unchanged),
    Scalar.F32: (_DOUBLE, _floats),
    Scalar.F64: (_DOUBLE, _floats),
    Scalar.VECTOR: (_DOUBLE, _floats),
    Scalar.DATE: (_TEXT, _dates),
    Scalar.DATETIME: (_TEXT, _moments),
}
"""Arrow parsing type and conversion to cells for each value type. The strict reader reads all other types."""


def _json_type(kind: PropType) -> pa.DataType:
    parsed, _ = _PARSED[kind.scalar]
    return pa.list_(parsed) if kind.is_list or kind.scalar is Scalar.VECTOR else parsed


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _all(truths: pa.Array) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())


def _require(sound: object) -> None:
    if not sound:
        raise OddError
