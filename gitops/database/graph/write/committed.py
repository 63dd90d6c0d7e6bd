"""Finds one table's rows in a snapshot by ids and values.

Tests on columns become filters for the driver. A filter passes every row that the test passes, and sometimes more rows,
because the caller checks each row again exactly. So conditions that the driver cannot express are left out here.
Filters are written in the driver's filter language, because Arrow expressions do not work for tables with a Blob column
or for columns of some types. In a string literal, the only special character is the single quote, which ends it. Tests
verify this with the driver.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.tables import (
    DRIVER_ERRORS,
    arrow_field,
    key_columns,
    open_table,
    raw_columns,
    service_failure,
)
from gitops.database.graph.values import COMPARE, nearest_single
from gitops.database.graph.write.memory import Files, TableMemory
from gitops.database.language.query import ComparisonOperator
from gitops.database.language.schema import FLOATS, INTEGERS, NUMERIC, EdgeType, NodeType, PropType, Scalar

MAX_PROBES = 4096
"""Above this number of values, reading the whole column is cheaper than looking up each value."""

NEVER = "false"
"""The filter that no row passes."""

_ORDERED = (*NUMERIC, Scalar.STRING, Scalar.DATE, Scalar.DATETIME)
_RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def comparison_holds(cell: Any, sign: ComparisonOperator, operand: Any) -> bool:
    """Return whether a comparison is true.

    Numbers of all types compare exactly, and strings compare by code point. A comparison with null is never true.
    """
    return cell is not None and operand is not None and bool(COMPARE[sign](cell, operand))


def membership_filter(name: str, kind: PropType, cells: Collection[Any]) -> str | None:
    """Return a filter for rows whose column equals one of the cells, or None if there are no cells."""
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return None
    if kind.scalar in FLOATS and 0 in cells:
        cells = [*cells, 0.0, -0.0]
    return f"`{name}` in ({', '.join(_literal(kind, cell) for cell in cells)})"


def id_range_filter(low: str | None, high: str | None) -> str | None:
    """Return a filter for rows with `low` <= id < `high`, or None if both ends are open."""
    text = PropType(Scalar.STRING)
    ends = [] if low is None else [_comparison("id", text, ComparisonOperator.GE, low)]
    ends += [] if high is None else [_comparison("id", text, ComparisonOperator.LT, high)]
    return " and ".join(ends) or None


def comparison_filter(name: str, kind: PropType, sign: ComparisonOperator, operand: Any) -> str | None:
    """Return a filter for rows whose column passes this comparison, or None if the driver cannot express it."""
    if operand is None:
        return NEVER
    if kind.is_list or kind.scalar not in _ORDERED:
        usable = kind.scalar is Scalar.BOOL and sign is ComparisonOperator.EQ and not kind.is_list
        return _comparison(name, kind, sign, operand) if usable else None
    if kind.scalar not in NUMERIC:
        return _comparison(name, kind, sign, operand)
    floor, below = _floor(kind.scalar, operand), sign in (ComparisonOperator.LT, ComparisonOperator.LE)
    if floor != operand:
        # No cell can equal the operand, so compare with the greatest possible number below it, if there is one.
        if sign is ComparisonOperator.EQ or (floor is None and below):
            return NEVER
        if floor is None or sign is ComparisonOperator.NE:
            return None
        sign = ComparisonOperator.LE if below else ComparisonOperator.GT
    if kind.scalar in FLOATS and floor == 0:
        # The driver treats 0.0 and -0.0 as different; the test does not.
        if sign is ComparisonOperator.NE:
            return None
        if sign is ComparisonOperator.EQ:
            return membership_filter(name, kind, [0.0])
        floor = 0.0 if below else -0.0
    return _comparison(name, kind, sign, floor)


def _comparison(name: str, kind: PropType, sign: ComparisonOperator, cell: Any) -> str:
    return f"`{name}` {sign.value} {_literal(kind, cell)}"


def _floor(scalar: Scalar, number: float) -> float | None:
    """Return the greatest value of the type up to the number; None if all values are above it."""
    if scalar in INTEGERS:
        low, high = _RANGES[scalar]
        whole = math.floor(number)
        return None if whole < low else min(whole, high)
    try:
        found = nearest_single(number) if scalar is Scalar.F32 else float(number)
    except OverflowError:
        found = math.inf if number > 0 else -math.inf
    if found <= number:
        return None if math.isinf(found) else found
    if scalar is Scalar.F64:
        return math.nextafter(found, -math.inf)
    return float(np.nextafter(np.float32(found), np.float32(-np.inf)))


def _literal(kind: PropType, cell: Any) -> str:
    """Return the cell as a literal of the filter language."""
    if kind.scalar is Scalar.STRING:
        return "'" + str(cell).replace("'", "''") + "'"
    if kind.scalar is Scalar.BOOL:
        return "true" if cell else "false"
    if kind.scalar in FLOATS:
        return f"arrow_cast({float(cell)!r}, '{'Float32' if kind.scalar is Scalar.F32 else 'Float64'}')"
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return f"arrow_cast({int(cell)}, '{'Date32' if kind.scalar is Scalar.DATE else 'Date64'}')"
    number = int(cell)
    # The filter language parses the minus sign separately, and this number has no positive counterpart.
    return f"arrow_cast('{number}', 'Int64')" if number == -(2**63) else str(number)


ADDRESS = "_rowaddr"
"""The driver's column with the address of a row in this version, an input of `TableWriter.exchange`."""

ROW_ID = "_rowid"
"""The driver's column with the row id of a row, which `TableWriter.exchange` can keep."""

_TEXT = PropType(Scalar.STRING)
_PROBES_AT_ONCE = 1024
Columns = dict[str, list[Any]]


@dataclass(slots=True)
class CommittedTable:
    """Reads one table at the entry's version. The table is opened on the first read unless it is already `opened`.

    With a `memory`, rows are looked up in its indexes.
    """

    folder: GraphFolder
    entry: TableEntry
    declared: NodeType | EdgeType
    opened: lance.LanceDataset | None = None
    memory: TableMemory | None = None
    held: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Prefetched rows by id, with address and row id and without blobs; None for absent rows."""
    _files: Files | None = None

    def kind(self, column: str) -> PropType:
        """Return a column's type, including those of `id`, `src` and `dst`."""
        return self.declared.properties.get(column, _TEXT)

    def open(self) -> None:
        """Open the table, if it has rows. Raises the same errors as `open_table`."""
        if self.opened is None and self.entry.rows:
            self.opened = open_table(self.folder, self.entry)

    def scan(self, columns: Sequence[str], where: Any = None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows that pass the driver's filter, with their addresses, up to an optional limit.

        Raises RemoteError; the errors of `open_table`.
        """
        if not self.entry.rows or where == NEVER:
            return
        with self._reading() as dataset:
            yield from dataset.scanner(
                columns=list(columns), filter=where, with_row_address=True, limit=limit
            ).to_batches()

    def find(self, column: str, cells: Collection[Any], columns: Sequence[str]) -> Iterator[Columns]:
        """Yield batches of rows whose column has one of the cells, as columns of cells with addresses."""
        if not cells or not self.entry.rows:
            return
        kind = self.kind(column)
        known = self.known(column, cells)
        if known is not None:
            for batch in self.scan(list(dict.fromkeys((*columns, column))), known):
                found = _within(batch, column, kind, cells)
                if found.num_rows:
                    yield raw_columns(found)
            return
        if len(cells) <= MAX_PROBES and membership_filter(column, kind, list(cells)[:1]) is not None:
            wanted = list(cells)
            for start in range(0, len(wanted), _PROBES_AT_ONCE):
                part = wanted[start : start + _PROBES_AT_ONCE]
                for batch in self.scan(columns, membership_filter(column, kind, part)):
                    yield raw_columns(batch)
            return
        for batch in self.scan(list(dict.fromkeys((*columns, column)))):
            found = _within(batch, column, kind, cells)
            if found.num_rows:
                yield raw_columns(found)

    def known(self, column: str, cells: Collection[Any]) -> str | None:
        """Return a filter for the few rows that may have one of the cells, or None if no index can find them.

        Raises RemoteError; the errors of `open_table`.
        """
        many = len(cells) > MAX_PROBES or self.kind(column).scalar in (Scalar.BLOB, Scalar.VECTOR)
        if self.memory is None or many or not self.entry.rows:
            return None
        with self._reading() as dataset:
            if self._files is None:
                self._files = {each.metadata.files[0].path: each for each in dataset.get_fragments()}
            found = self.memory.places(dataset, self._files, self.entry.fields[column], column, cells)
        if found is None or len(found) > MAX_PROBES:
            return None
        return f"{ADDRESS} in ({', '.join(map(str, found))})" if found else NEVER

    def wrote(self, staged: Sequence[FragmentMetadata], rows: Sequence[Mapping[str, Any]]) -> None:
        """Record in the memory where rows were written. `rows` are in the order of the staged files."""
        if self.memory is None:
            return
        start = 0
        for each in staged:
            self.memory.wrote(each.files[0].path, self.entry.fields, rows[start : start + each.physical_rows])
            start += each.physical_rows

    def first_findable(self, group: Sequence[str], sample: Sequence[Any]) -> int:
        """Return the index of the first column in a group that the driver can look up, or 0 if there is none.

        `sample` has example cells from the group.
        """
        names = enumerate(zip(group, sample, strict=True))
        return next(
            (at for at, (name, cell) in names if membership_filter(name, self.kind(name), [cell]) is not None), 0
        )

    def addresses(self, ids: Collection[str]) -> dict[str, int]:
        """Map these ids to row addresses. Absent ids are left out."""
        return {row_id: address for row_id, (address, _) in self.places(ids).items()}

    def hold(self, ids: Collection[str]) -> None:
        """Prefetch the rows with these ids. Raises the same errors as `find`."""
        kinds = self.declared.properties.items()
        plain = [*key_columns(self.declared), ROW_ID, *(name for name, kind in kinds if kind.scalar is not Scalar.BLOB)]
        self.held = dict.fromkeys(ids)
        for columns in self.find("id", ids, plain):
            for cells in zip(*columns.values(), strict=True):
                row = dict(zip(columns, cells, strict=True))
                self.held[row["id"]] = row

    def places(self, ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Map these ids to addresses and row ids. Absent ids are left out."""
        found: dict[str, tuple[int, int]] = {}
        for row in (self.held.get(each) for each in ids):
            if row is not None:
                found[row["id"]] = row[ADDRESS], row[ROW_ID]
        for columns in self.find("id", [each for each in ids if each not in self.held], ["id", ROW_ID]):
            found.update(zip(columns["id"], zip(columns[ADDRESS], columns[ROW_ID], strict=True), strict=True))
        return found

    def blobs(self, names: Sequence[str], addresses: Sequence[int]) -> Mapping[str, list[bytes | None]]:
        """Return the blobs of the rows at these addresses, in the same order. A scan returns only blob addresses."""
        if not addresses:
            return {name: [] for name in names}
        with self._reading() as dataset:
            return {
                name: [
                    None if file is None else file.readall()
                    for file in dataset.take_blobs(name, addresses=list(addresses))
                ]
                for name in names
            }

    @contextlib.contextmanager
    def _reading(self) -> Iterator[lance.LanceDataset]:
        if self.opened is None:
            self.opened = open_table(self.folder, self.entry)
        try:
            yield self.opened
        except DRIVER_ERRORS as error:
            place = self.folder.dataset(self.entry.path)
            if (refused := service_failure(place.uri, error)) is not None:
                raise refused from None
            raise RemoteError(Code.STORAGE_FAILED, f"{place.uri} is not readable") from error


def _within(batch: pa.RecordBatch, column: str, kind: PropType, cells: Collection[Any]) -> pa.RecordBatch:
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        wanted = {tuple(cell) for cell in cells}
        rows = raw_columns(batch.select([column]))[column]
        return batch.filter(pa.array([cell is not None and tuple(cell) in wanted for cell in rows], pa.bool_()))
    values = pa.array(list(cells), arrow_field(column, PropType(kind.scalar)).type)
    return batch.filter(pc.is_in(batch.column(column), values))
