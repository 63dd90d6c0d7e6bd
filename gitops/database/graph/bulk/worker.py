"""The worker of a bulk load: writes Arrow batches of one table to data files that belong to no version.

Batches are strict like records of JSON, and checked column by column where that is possible. A value is accepted when it means
the same in the column's type: a whole number that fits, a float of another width, a time with a zone. Texts are not parsed.
Numbers that are not finite, nulls inside lists and invalid UTF-8 are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError, system_reason
from gitops.database.graph.bulk.cells import cell_type, column_cells
from gitops.database.graph.bulk.plan import BulkPart, BulkTask
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.tables import arrow_schema, declared_type, raw_columns, stage_rows
from gitops.database.graph.values import CellError
from gitops.database.graph.write.intake import FILE_BYTES
from gitops.database.graph.write.records import RecordProblems
from gitops.database.graph.write.rules import cell_faults, find_mismatches, node_id, pattern_fault
from gitops.database.language.schema import INTEGERS, EdgeType, NodeType, PropType, Scalar

__all__ = ["input_columns", "remove_files", "write_part"]

_BATCH_ROWS = 1 << 14
_SHOWN = 80
_PRESENT = object()


def write_part(task: BulkTask, batches: Iterable[pa.RecordBatch] | pa.Table, ids: IdSource) -> BulkPart:
    """Check each row by itself and write it; the part is durable, and not visible to readers.

    `batches` has a column per property, which may be missing where the property may be; `id` where the type has no key; and for
    edges `from` and `to`, the ids of their ends (`src` and `dst` if properties have these names). `ids` makes ids that are not
    given. Memory is bounded by the larger of a batch and a data file of 64 MiB.

    Raises LoadError with the rows that do not fit, counted from 1, and nothing stays; as `BulkTask.open`; RemoteError.
    """
    snapshot = task.open()
    folder, entry = snapshot.folder, snapshot.manifest.tables[task.key]
    problems = RecordProblems()
    declared = declared_type(snapshot.schema().catalog, task.key)
    # The driver reads columns of a file that belongs to no version only as far as no Blob column comes before them.
    blob = next((name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB), None)
    for name in (name for group in declared.unique for name in group if name in declared.properties):
        if blob is not None and blob < name:
            detail = f"{declared.name}.{name} is unique and its column follows the Blob {blob}: use gitops graph load"
            raise UsageError(Code.USAGE_ERROR, detail)
    maker = _RowMaker(declared, ids, problems)
    known = folder.begin(task.path)
    staged: list[FragmentMetadata] = []
    waiting: list[pa.Table] = []
    try:
        for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                waiting.append(maker.rows(batch.slice(start, _BATCH_ROWS)))
                if problems.total:
                    waiting.clear()
                if sum(table.nbytes for table in waiting) >= FILE_BYTES:
                    staged += stage_rows(folder, entry, pa.concat_tables(waiting))
                    waiting.clear()
        problems.settle()
        if sum(table.num_rows for table in waiting):
            staged += stage_rows(folder, entry, pa.concat_tables(waiting))
        if staged:
            folder.settle(task.path, known)
    except OSError as error:
        remove_files(folder, task.path, staged)
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, snapshot.root.location)) from error
    except BaseException:
        remove_files(folder, task.path, staged)
        raise
    fragments = tuple(json.dumps(fragment.to_json()) for fragment in staged)
    return BulkPart(task.bulk, task.key, task.path, maker.count, maker.fresh, fragments)


def remove_files(folder: GraphFolder, path: str, staged: Iterable[FragmentMetadata]) -> None:
    """Remove data files that no version names; stops at the first failure, and gc removes the rest."""
    for file in (file for fragment in staged for file in fragment.files):
        try:
            folder.remove(f"{path}/data/{file.path}")
            folder.remove(f"{path}/data/{file.path.removesuffix('.lance')}")
        except (OSError, RemoteError):
            return


def input_columns(declared: NodeType | EdgeType) -> Mapping[str, bool]:
    """The columns that batches for a table may have, and whether each must be there."""
    ends = dict.fromkeys(_end_columns(declared), True) if isinstance(declared, EdgeType) else {}
    return {**ends, **{name: not kind.nullable for name, kind in declared.properties.items()}, "id": False}


def _end_columns(declared: EdgeType) -> tuple[str, str]:
    """The columns with the ends of edges: `from` and `to`, or `src` and `dst` where a property has one of these names."""
    return ("src", "dst") if {"from", "to"} & declared.properties.keys() else ("from", "to")


class _RowMaker:
    """Makes rows of one table; problems are noted with the number of the row, counted over all batches."""

    def __init__(self, declared: NodeType | EdgeType, ids: IdSource, problems: RecordProblems) -> None:
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
        declared, before, start = self._declared, self._problems.total, self.count
        self.count += batch.num_rows
        names = batch.schema.names
        odd = next((name for name in names if name not in self._columns or names.count(name) > 1), None)
        missing = next((name for name, needed in self._columns.items() if needed and name not in names), None)
        if odd is not None:
            self._problems.add(0, f"{declared.name} has no property {odd[:_SHOWN]!r}, or the column appears twice")
        elif missing is not None:
            self._problems.add(0, f"column {missing!r} of {declared.name} is missing")
        self._problems.settle()
        columns: dict[str, pa.Array] = {}
        for name, kind in declared.properties.items():
            columns[name] = pa.nulls(batch.num_rows, cell_type(kind))
            if name in names:
                expects = f"strict property {declared.name}.{name} expects {kind}"
                columns[name] = self._column(batch.column(name), expects, kind, start)
        if self._problems.total == before:
            self._check_rows(columns, start)
        if self._problems.total == before:
            head = self._id_columns(batch, columns, start)
        if self._problems.total > before:
            return self._schema.empty_table()
        for name, kind in declared.properties.items():
            if kind.scalar is Scalar.BLOB:
                columns[name] = lance.blob_array(columns[name].to_pylist())
        columns = head | columns
        return pa.Table.from_arrays([columns[field.name] for field in self._schema], schema=self._schema)

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
        return pa.nulls(len(column), cell_type(kind))

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
            if name in bounds or (kind.enum_values is not None and kind.is_list):
                suspects.update(range(len(column)))
            elif kind.enum_values is not None:
                odd = pc.invert(pc.is_in(column, pa.array(kind.enum_values, pa.string())))
                suspects.update(pc.indices_nonzero(pc.and_(column.is_valid(), odd)).to_pylist())
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
        """The columns `id`, `src` and `dst`; ids that are not given are made, of the key if there is one."""
        declared, text, given = self._declared, PropType(Scalar.STRING), None
        if "id" in batch.schema.names:
            given = self._column(batch.column("id"), "'id' expects a text", text, start)
            odd = pc.or_(pc.equal(given, ""), pc.match_substring(given, "\0"))
            for at in pc.indices_nonzero(pc.fill_null(odd, False)).to_pylist():
                self._problems.add(start + at + 1, "'id' is not a text that can be an id")
        head: dict[str, pa.Array] = {}
        if isinstance(declared, EdgeType):
            for name, member in zip(("src", "dst"), _end_columns(declared), strict=True):
                ends = head[name] = self._column(batch.column(member), f"{member!r} expects a text", text, start)
                for at in pc.indices_nonzero(ends.is_null()).to_pylist() if ends.null_count else ():
                    self._problems.add(start + at + 1, f"edge missing '{member}'")
        elif declared.key is not None:
            own = _key_ids(declared, declared.key, cells)
            if given is not None:
                # A null id is not compared: the key makes the id.
                for at in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, own), False)).to_pylist():
                    shown, made = given[at].as_py()[:_SHOWN], own[at].as_py()[:_SHOWN]
                    fault = f"'id' is {shown!r} and the key of {declared.name} makes it {made!r}"
                    self._problems.add(start + at + 1, fault)
            return {"id": own}
        if given is not None:
            self.fresh = self.fresh and given.null_count == len(given)
        known = [None] * batch.num_rows if given is None else given.to_pylist()
        return {"id": pa.array([own or self._ids.ulid() for own in known], pa.string()), **head}


def _key_ids(declared: NodeType, key: Sequence[str], cells: Mapping[str, pa.Array]) -> pa.Array:
    """The ids that the keys make. Texts and whole numbers are their own canonical texts; others are made one by one."""
    kind = declared.properties[key[0]]
    if len(key) == 1 and kind.scalar is Scalar.STRING:
        return cells[key[0]]
    if len(key) == 1 and kind.scalar in INTEGERS:
        return cells[key[0]].cast(pa.string())
    columns = raw_columns(pa.table({name: cells[name] for name in key}))
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return pa.array([node_id(declared, row) for row in rows], pa.string())
