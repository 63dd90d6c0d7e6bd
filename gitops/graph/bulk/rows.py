"""Arrow batches as rows of a table: strict like records of JSON, and column by column where that is possible.

A value is accepted when it means the same in the column's type: a whole number that fits, a float of another width, a time with
a zone. Texts are not parsed. Numbers that are not finite, nulls inside lists and invalid UTF-8 are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.clock import IdSource
from gitops.graph.bulk.cells import column_cells
from gitops.graph.tables import arrow_field, arrow_schema, raw_columns
from gitops.graph.values import CellError
from gitops.graph.write.records import RecordProblems
from gitops.graph.write.rules import cell_faults, find_mismatches, node_id, pattern_fault
from gitops.language.schema import EdgeType, NodeType, PropType, Scalar

__all__ = ["RowMaker", "end_columns", "input_columns"]

_SHOWN = 80
_PRESENT = object()
_INTEGERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def end_columns(declared: EdgeType) -> tuple[str, str]:
    """The columns with the ends of edges: `from` and `to`, or `src` and `dst` where a property has one of these names."""
    return ("src", "dst") if {"from", "to"} & declared.properties.keys() else ("from", "to")


def input_columns(declared: NodeType | EdgeType) -> Mapping[str, bool]:
    """The columns that batches for a table may have, and whether each must be there."""
    own = {name: not kind.nullable for name, kind in declared.properties.items()}
    if isinstance(declared, EdgeType):
        return {**dict.fromkeys(end_columns(declared), True), **own, "id": False}
    return {**own, "id": False}


class RowMaker:
    """Makes rows of one table; problems are noted with the number of the row, counted over all batches."""

    def __init__(self, declared: NodeType | EdgeType, ids: IdSource, problems: RecordProblems) -> None:
        """`ids` makes the ids that rows do not have."""
        self._declared = declared
        self._schema = arrow_schema(declared)
        self._columns = input_columns(declared)
        self._ids = ids
        self._problems = problems
        self.count = 0
        self.fresh = isinstance(declared, EdgeType) or declared.key is None
        """Whether all ids were made here."""

    def rows(self, batch: pa.RecordBatch) -> pa.Table:
        """The rows of a batch, none if there is a problem with any. Raises LoadError when there are too many problems."""
        before, start = self._problems.total, self.count
        self.count += batch.num_rows
        if self._check_columns(batch):
            cells = {name: self._cells(batch, name, kind, start) for name, kind in self._declared.properties.items()}
            if self._problems.total == before:
                self._check_rows(cells, start)
            if self._problems.total == before:
                head = self._id_columns(batch, cells, start)
                if self._problems.total == before:
                    return self._table(head, cells)
        return self._schema.empty_table()

    def _check_columns(self, batch: pa.RecordBatch) -> bool:
        names = batch.schema.names
        odd = next((name for name in names if name not in self._columns or names.count(name) > 1), None)
        missing = next((name for name, needed in self._columns.items() if needed and name not in names), None)
        name = self._declared.name
        if odd is not None:
            self._problems.add(0, f"{name} has no property {odd[:_SHOWN]!r}, or the column is there twice")
        elif missing is not None:
            self._problems.add(0, f"column {missing!r} of {name} is missing")
        self._problems.settle()
        return bool(batch.num_rows)

    def _cells(self, batch: pa.RecordBatch, name: str, kind: PropType, start: int) -> pa.Array:
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, _cell_type(kind))
        return self._column(
            batch.column(name), f"strict property {self._declared.name}.{name} expects {kind}", kind, start
        )

    def _column(self, column: pa.Array, expects: str, kind: PropType, start: int) -> pa.Array:
        """The cells of a column. If one does not fit, each is looked at, to say which."""
        try:
            return column_cells(column, kind)
        except CellError as error:
            fault: CellError = error
        for at in range(len(column)):
            try:
                column_cells(column.slice(at, 1), kind)
            except CellError as error:
                self._problems.add(start + at + 1, f"{expects}: {str(error)[:_SHOWN]}")
        if not self._problems.total:
            self._problems.add(start + 1, f"{expects}: {str(fault)[:_SHOWN]}")
        return pa.nulls(len(column), _cell_type(kind))

    def _check_rows(self, cells: Mapping[str, pa.Array], start: int) -> None:
        """What must hold of each row by itself. Rows that may be wrong are found by columns, and looked at as records are."""
        declared, suspects = self._declared, set[int]()
        bounds = {bound.property_name for bound in declared.ranges} if isinstance(declared, NodeType) else set()
        looked: dict[str, list[Any]] = {}
        for name, kind in declared.properties.items():
            column = cells[name]
            if not kind.nullable and column.null_count:
                suspects.update(pc.indices_nonzero(column.is_null()).to_pylist())
            if kind.enum_values is not None or name in bounds:
                looked[name] = raw_columns(pa.table({name: column}))[name]
                suspects.update(_suspect_rows(column, kind, bounded=name in bounds))
        for at in sorted(suspects):
            row = {
                name: looked[name][at] if name in looked else _PRESENT if cells[name].is_valid()[at].as_py() else None
                for name in declared.properties
            }
            for fault in cell_faults(declared, row):
                self._problems.add(start + at + 1, fault)
        for check in declared.checks if isinstance(declared, NodeType) else ():
            for at in find_mismatches(check, cells[check.property_name]):
                self._problems.add(start + at + 1, pattern_fault(declared, check))

    def _id_columns(self, batch: pa.RecordBatch, cells: Mapping[str, pa.Array], start: int) -> dict[str, pa.Array]:
        """The columns `id`, `src` and `dst`."""
        given = self._given_ids(batch, start)
        if isinstance(self._declared, EdgeType):
            ends = {
                name: self._read_ends(batch.column(member), member, start)
                for name, member in zip(("src", "dst"), end_columns(self._declared), strict=True)
            }
            return {"id": self._complete_ids(given, batch.num_rows), **ends}
        if self._declared.key is None:
            return {"id": self._complete_ids(given, batch.num_rows)}
        own = _key_ids(self._declared, cells)
        if given is not None:
            # A null id is not compared: the key makes the id.
            for at in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, own), False)).to_pylist():
                shown, made = given[at].as_py()[:_SHOWN], own[at].as_py()[:_SHOWN]
                text = f"'id' is {shown!r} and the key of {self._declared.name} makes it {made!r}"
                self._problems.add(start + at + 1, text)
        return {"id": own}

    def _given_ids(self, batch: pa.RecordBatch, start: int) -> pa.Array | None:
        if "id" not in batch.schema.names:
            return None
        given = self._column(batch.column("id"), "'id' expects a text", PropType(Scalar.STRING), start)
        odd = pc.or_(pc.equal(given, ""), pc.match_substring(given, "\0"))
        for at in pc.indices_nonzero(pc.fill_null(odd, False)).to_pylist():
            self._problems.add(start + at + 1, "'id' is not a text that can be an id")
        return given

    def _read_ends(self, column: pa.Array, member: str, start: int) -> pa.Array:
        ends = self._column(column, f"{member!r} expects a text", PropType(Scalar.STRING), start)
        for at in pc.indices_nonzero(ends.is_null()).to_pylist() if ends.null_count else ():
            self._problems.add(start + at + 1, f"edge missing '{member}'")
        return ends

    def _complete_ids(self, given: pa.Array | None, count: int) -> pa.Array:
        """The ids that are given, and new ones where none is."""
        if given is None:
            return pa.array([self._ids.ulid() for _ in range(count)], pa.string())
        self.fresh = self.fresh and given.null_count == len(given)
        return pa.array([own or self._ids.ulid() for own in given.to_pylist()], pa.string())

    def _table(self, head: Mapping[str, pa.Array], cells: Mapping[str, pa.Array]) -> pa.Table:
        blobs = {name for name, kind in self._declared.properties.items() if kind.scalar is Scalar.BLOB}
        columns = {**head, **{name: _blob(cells[name]) if name in blobs else cells[name] for name in cells}}
        return pa.Table.from_arrays([columns[field.name] for field in self._schema], schema=self._schema)


def _cell_type(kind: PropType) -> pa.DataType:
    """The type of a column of cells; that of a blob is bytes until it is stored."""
    return pa.large_binary() if kind.scalar is Scalar.BLOB else arrow_field("cells", kind).type


def _blob(cells: pa.Array) -> pa.Array:
    return lance.blob_array(cells.to_pylist())


def _suspect_rows(column: pa.Array, kind: PropType, *, bounded: bool) -> Iterator[int]:
    """Rows that may break an enum or a range."""
    if bounded or kind.is_list:
        yield from range(len(column))
        return
    odd = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, pa.array(kind.enum_values or (), pa.string()))))
    yield from pc.indices_nonzero(odd).to_pylist()


def _key_ids(declared: NodeType, cells: Mapping[str, pa.Array]) -> pa.Array:
    """The ids that the keys make. Texts and whole numbers are their own canonical texts; others are made one by one."""
    key: Sequence[str] = declared.key or ()
    kinds = declared.properties
    if len(key) == 1 and kinds[key[0]].scalar is Scalar.STRING:
        return cells[key[0]]
    if len(key) == 1 and kinds[key[0]].scalar in _INTEGERS:
        return cells[key[0]].cast(pa.string())
    columns = raw_columns(pa.table({name: cells[name] for name in key}))
    made: Callable[[dict[str, Any]], str | None] = lambda row: node_id(declared, row)  # noqa: E731 - one expression
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return pa.array([made(row) for row in rows], pa.string())
