"""Bulk loads: many processes, on one or more machines, write rows, and one process publishes them.

1. `plan_bulk` fixes the version that workers start from and protects their files from gc.
2. `write_part` runs anywhere. It converts Arrow batches to data files for one table without changing a manifest or
   version.
3. `publish_bulk` checks all parts together and publishes one version of the graph. `discard_bulk` cancels the load.

The driver and the workers exchange plans, tasks and parts as plain JSON:

1. A plan is a lease on its base version. Until it expires, gc keeps that version, all later versions of its tables, and
   the files that workers write.
2. A plan expires after six days. The Lance driver keeps files without a version for seven days, so a part's files exist
   as long as its plan is valid. After that, gc removes them.
3. Plans, tasks and parts contain no credentials; every process reads them from its own environment.

A worker writes Arrow batches for one table to data files that do not belong to a version. Batches are checked as
strictly as JSON records, column by column where possible. A value is accepted if it keeps its meaning in the column's
type: an integer that fits, a float of a different width, a time with a zone. Strings are not parsed. Non-finite
numbers, nulls inside lists and invalid UTF-8 are rejected.

Workers check single rows. Publishing checks the rules that involve several rows, across all parts and the current
graph: ids and unique groups must not clash, edges must have both ends, and cardinalities must be in bounds. This is the
second pass of a load (`gitops.database.graph.load`), and it reads only the keys back from the data files.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gitops.core.clock import IdSource, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.documents.forms import BOOLEAN, OBJECT, TEXT, ULID, Form, list_of, record
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import GitopsError, IntegrityError, RemoteError, UsageError, system_reason
from gitops.database.graph import layout
from gitops.database.graph.layout import MAIN
from gitops.database.graph.lines import read_floor
from gitops.database.graph.load import CommitId, LoadError, LoadMode, LoadPublisher, LoadRequest
from gitops.database.graph.manifest import NAME, TIME, find_manifest, number, read_json
from gitops.database.graph.results import LoadResult
from gitops.database.graph.snapshot import ReadTarget, Snapshot, kept_versions, open_snapshot
from gitops.database.graph.staged import (
    WriteContext,
    hold_lease,
    precise_timestamp,
    read_leases,
    retry_until_published,
    sleep_jittered,
    take_lease,
)
from gitops.database.graph.tables import (
    StagedFragment,
    arrow_field,
    arrow_schema,
    data_files,
    declared_type,
    open_table,
    raw_columns,
    remove_files,
    stage_rows,
    table_form,
)
from gitops.database.graph.values import DAYS, MOMENTS, CellError
from gitops.database.graph.write.columns import fill_ids, key_ids, list_column, vector_column
from gitops.database.graph.write.intake import FILE_BYTES, LoadIntake, RecordProblems
from gitops.database.graph.write.rules import cell_faults, find_mismatches, pattern_fault
from gitops.database.language.schema import FLOATS, INTEGERS, EdgeType, NodeType, PropType, Scalar

TERM = timedelta(days=6)
_FILE = re.compile(r"[0-9A-Za-z_-]+\.lance")

_FORMS: Mapping[str, Form[Any]] = {
    "bulk": ULID,
    "version": number(1),
    "tables": OBJECT,
    "expires_at": TIME,
    "rows": number(0),
    "fresh": BOOLEAN,
    "fragments": list_of(TEXT),
}


class _Exchanged:
    """A dataclass that converts to and from plain JSON, with one member per field."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain JSON."""
        form = asdict(self)  # type: ignore[call-overload] # every subclass is a dataclass
        return {name: list(value) if isinstance(value, tuple) else value for name, value in form.items()}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`. Raises IntegrityError `graph_unreadable`."""
        declared = {each.name: _FORMS.get(each.name, NAME) for each in fields(cls)}  # type: ignore[arg-type] # as above
        return read_json(record(cls, declared), form, f"the {cls.__name__.removeprefix('Bulk').lower()}")


@dataclass(frozen=True, slots=True)
class BulkTask(_Exchanged):
    """A worker's input for one table: the graph, the version, and the schema that the rows must match."""

    bulk: str
    uri: str
    graph_id: str
    branch: str
    version: int
    schema_ir: str
    key: str
    path: str

    def open(self) -> Snapshot:
        """Open the task's version.

        Raises GitopsError `graph_conflict` if the root contains a different graph, and the same errors as
        `open_snapshot`.
        """
        snapshot = open_snapshot(self.uri, ReadTarget(self.branch, version=self.version))
        entry = snapshot.manifest.tables.get(self.key)
        same = snapshot.identity.graph_id == self.graph_id and snapshot.manifest.schema_ir == self.schema_ir
        if not same or entry is None or entry.path != self.path:
            detail = (
                f"version {self.version} at {snapshot.root.location} is not the version that the bulk load began with"
            )
            raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self.uri)
        return snapshot


@dataclass(frozen=True, slots=True)
class BulkPlan(_Exchanged):
    """A bulk load in progress: its id, its base version, and each table's folder and columns.

    The id becomes the commit id of the published version, so a plan can be published only once.
    """

    bulk: str
    uri: str
    graph_id: str
    branch: str
    version: int
    schema_ir: str
    tables: Mapping[str, Mapping[str, Any]]
    expires_at: str

    def task(self, key: str) -> BulkTask:
        """Return a worker's input for a table, given the table's key (`node:Person`, `edge:Knows`).

        Raises UsageError `usage_error`.
        """
        if key not in self.tables:
            known = ", ".join(sorted(self.tables))[:300]
            raise UsageError(Code.USAGE_ERROR, f"the graph has no table {key[:80]!r}; it has {known}")
        shared = (self.bulk, self.uri, self.graph_id, self.branch, self.version, self.schema_ir)
        return BulkTask(*shared, key=key, path=self.tables[key]["path"])


@dataclass(frozen=True, slots=True)
class BulkPart(_Exchanged):
    """Rows of one table in data files. `fragments` describes the files as the Lance driver's JSON.

    `fresh` means that all ids were generated for these rows, so they cannot clash.
    """

    bulk: str
    key: str
    path: str
    rows: int
    fresh: bool
    fragments: tuple[str, ...]

    def staged(self) -> list[StagedFragment]:
        """Convert the fragments to driver objects. Raises IntegrityError `graph_unreadable`."""
        found = []
        for text in self.fragments:
            try:
                fragment = StagedFragment.from_json(json.dumps(parse(text.encode())))
                sound = all(_FILE.fullmatch(file.path) for file in fragment.files)
            except (KeyError, TypeError, ValueError, AttributeError):
                sound = False
            if not sound:
                place = f"the part of {self.key}"
                raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: a fragment is not well formed", path=place)
            found.append(fragment)
        return found


def plan_bulk(uri: str, context: WriteContext, branch: str = layout.MAIN) -> BulkPlan:
    """Begin a bulk load into a branch. Other writers are not blocked. Only a schema change invalidates the load.

    Raises the same errors as `open_snapshot`; GitopsError `graph_version_gone` if gc has already removed the version.
    """
    snapshot = open_snapshot(uri, ReadTarget(branch))
    manifest = snapshot.manifest
    lease = take_lease(snapshot, context, TERM)
    return BulkPlan(
        bulk=lease.id,
        uri=uri,
        graph_id=snapshot.identity.graph_id,
        branch=branch,
        version=manifest.n,
        schema_ir=manifest.schema_ir,
        tables={key: table_form(entry) for key, entry in manifest.tables.items()},
        expires_at=lease.expires_at,
    )


_DAY_MS = 86_400_000
_ACCEPTED: Mapping[Scalar, tuple[Callable[[pa.DataType], bool], ...]] = {
    Scalar.STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    Scalar.BOOL: (pa.types.is_boolean,),
    **dict.fromkeys(INTEGERS, (pa.types.is_integer,)),
    **dict.fromkeys(FLOATS, (pa.types.is_integer, pa.types.is_floating)),
    Scalar.DATE: (pa.types.is_date,),
    Scalar.DATETIME: (pa.types.is_integer, pa.types.is_date64),
    Scalar.BLOB: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
}


def cell_type(kind: PropType) -> pa.DataType:
    """Return the Arrow type of a column of cells. Blobs are bytes until they are stored."""
    return pa.large_binary() if kind.scalar is Scalar.BLOB else arrow_field("cells", kind).type


def column_cells(column: pa.Array, kind: PropType) -> pa.Array:
    """Convert a column to cells of the property's type. Nulls stay null, and blobs are bytes. Raises CellError."""
    try:
        column.validate(full=True)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), cell_type(kind))
        if kind.is_list:
            return _lists(column, kind)
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return _vectors(plain, kind) if kind.scalar is Scalar.VECTOR else _plain_cells(plain, kind.scalar)
    except CellError:
        raise
    except (pa.ArrowException, ValueError, NotImplementedError) as error:
        # Arrow raises any of these for a value that it cannot convert.
        raise CellError(str(error).partition("\n")[0]) from error


def _lists(column: pa.Array, kind: PropType) -> pa.Array:
    items, lengths = _items(column)
    if items.null_count:
        raise CellError("a list holds a null")
    cells = column_cells(items, PropType(kind.scalar, enum_values=kind.enum_values))
    return list_column(cells, lengths, kind)


def _items(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the items of all lists in one array, and the length of each list (null for a null list)."""
    listed = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in listed):
        raise CellError(f"got {column.type}")
    return column.flatten(), pc.list_value_length(column).cast(pa.int32())


def _plain_cells(column: pa.Array, scalar: Scalar) -> pa.Array:
    """Convert a scalar column to cells.

    A time without a zone is read as UTC. Times are truncated to milliseconds.
    """
    if scalar is Scalar.DATE and pa.types.is_integer(column.type):
        column = column.cast(pa.int32()).cast(pa.date32())
    elif scalar is Scalar.DATETIME and pa.types.is_timestamp(column.type):
        floored = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit)), unit="millisecond")
        column = floored.cast(pa.timestamp("ms")).cast(pa.int64())
    elif scalar is Scalar.DATETIME and pa.types.is_date32(column.type):
        column = pc.multiply_checked(column.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    if not any(accepts(column.type) for accepts in _ACCEPTED[scalar]):
        raise CellError(f"got {column.type}")
    if scalar is Scalar.DATETIME:
        numbers = column.cast(pa.int64())
        _require_between(numbers, MOMENTS)
        return pa.Array.from_buffers(pa.date64(), len(numbers), numbers.buffers(), offset=numbers.offset)
    cells = column.cast(cell_type(PropType(scalar)), safe=scalar not in FLOATS)
    if scalar in FLOATS and not pc.all(pc.is_finite(cells), min_count=0).as_py():
        raise CellError("a number is not finite, or too large")
    if scalar is Scalar.DATE:
        _require_between(cells.cast(pa.int32()), DAYS)
    return cells


def _require_between(numbers: pa.Array, bounds: tuple[int, int]) -> None:
    low, high = bounds
    if not pc.all(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)), min_count=0).as_py():
        raise CellError("the time is not within the years 1 to 9999")


def _vectors(column: pa.Array, kind: PropType) -> pa.Array:
    items, lengths = _items(column)
    dimension = kind.dimension or 0
    if not pc.all(pc.equal(lengths, dimension), min_count=0).as_py():
        odd = next(each for each in lengths.to_pylist() if each not in (None, dimension))
        raise CellError(f"got {odd} dimensions")
    if items.null_count:
        raise CellError("a vector holds a null")
    numbers = column_cells(items, PropType(Scalar.F32))
    return vector_column(numbers, lengths, kind)


_BATCH_ROWS = 1 << 14
_SHOWN = 80
_PRESENT = object()


def write_part(task: BulkTask, batches: Iterable[pa.RecordBatch] | pa.Table, ids: IdSource) -> BulkPart:
    """Check single rows and write them to data files. The part is durable but not visible to readers.

    `batches` has one column per property (optional properties can be missing), `id` if the type has no key, and for
    edges `from` and `to` with the ids of their ends (`src` and `dst` if properties have these names). `ids` generates
    missing ids. Memory is bounded by one batch or one data file (64 MiB), whichever is larger.

    Raises LoadError with the invalid rows, counted from 1, after removing the files; the same errors as
    `BulkTask.open`; RemoteError.
    """
    snapshot = task.open()
    folder, entry = snapshot.folder, snapshot.manifest.tables[task.key]
    problems = RecordProblems()
    declared = declared_type(snapshot.schema().catalog, task.key)
    # In a file without a version, the driver can read only the columns before the first Blob column.
    blob = next((name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB), None)
    for name in (name for group in declared.unique for name in group if name in declared.properties):
        if blob is not None and blob < name:
            detail = f"{declared.name}.{name} is unique and its column follows the Blob {blob}: use gitops graph load"
            raise UsageError(Code.USAGE_ERROR, detail)
    maker = RowMaker(declared, ids, problems)
    staged: list[StagedFragment] = []
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
            folder.settle(task.path, [f"data/{file.path}" for fragment in staged for file in fragment.files])
    except OSError as error:
        remove_files(folder, task.path, staged)
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, snapshot.root.location)) from error
    except BaseException:
        remove_files(folder, task.path, staged)
        raise
    fragments = tuple(json.dumps(fragment.to_json()) for fragment in staged)
    return BulkPart(task.bulk, task.key, task.path, maker.count, maker.fresh, fragments)


def input_columns(declared: NodeType | EdgeType) -> Mapping[str, bool]:
    """Return the columns that a table's batches can have, and whether each one is required."""
    ends = dict.fromkeys(_end_columns(declared), True) if isinstance(declared, EdgeType) else {}
    return {**ends, **{name: not kind.nullable for name, kind in declared.properties.items()}, "id": False}


def _end_columns(declared: EdgeType) -> tuple[str, str]:
    """Return the names of the edge end columns: `from` and `to`, or `src` and `dst` if a property has one of these names."""
    return ("src", "dst") if {"from", "to"} & declared.properties.keys() else ("from", "to")


class RowMaker:
    """Converts batches to rows of one table and records problems, with row numbers counted across batches."""

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
        """Return a batch's rows, or no rows if any row has a problem.

        Raises LoadError if there are too many problems.
        """
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
        """Return the cells of a column. If a cell does not match, check each cell to find it."""
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
        """Check the rules that apply to single rows.

        Suspicious rows are found column by column and then checked in the same way as records.
        """
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
        """Return the columns `id`, `src` and `dst`; missing ids are made from the key, or generated if there is no key."""
        declared, text, given = self._declared, PropType(Scalar.STRING), None
        if "id" in batch.schema.names:
            given = self._column(batch.column("id"), "'id' expects a text", text, start)
            odd = pc.or_(pc.equal(given, ""), pc.match_substring(given, "\0"))
            for at in pc.indices_nonzero(pc.fill_null(odd, False)).to_pylist():
                self._problems.add(start + at + 1, "'id' is not a valid id")
        head: dict[str, pa.Array] = {}
        if isinstance(declared, EdgeType):
            for name, member in zip(("src", "dst"), _end_columns(declared), strict=True):
                ends = head[name] = self._column(batch.column(member), f"{member!r} expects a text", text, start)
                for at in pc.indices_nonzero(ends.is_null()).to_pylist() if ends.null_count else ():
                    self._problems.add(start + at + 1, f"edge missing '{member}'")
        elif declared.key is not None:
            own = key_ids(declared, declared.key, cells)
            if given is not None:
                # A null id is not compared because the id is made from the key.
                for at in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, own), False)).to_pylist():
                    shown, made = given[at].as_py()[:_SHOWN], own[at].as_py()[:_SHOWN]
                    fault = f"'id' is {shown!r}, but the key of {declared.name} requires {made!r}"
                    self._problems.add(start + at + 1, fault)
            return {"id": own}
        if given is not None:
            self.fresh = self.fresh and given.null_count == len(given)
        known = pa.nulls(batch.num_rows, pa.string()) if given is None else given
        return {"id": fill_ids(known, self._ids), **head}


def publish_bulk(
    plan: BulkPlan, parts: Sequence[BulkPart], context: WriteContext, mode: LoadMode = LoadMode.MERGE
) -> LoadResult:
    """Check all parts together and publish them as one version of the plan's branch. Empty parts are ignored.

    Can be called again after a failure or crash. A plan is published only once, and later calls return the same result.

    Raises LoadError with the invalid parts and rows (`parts[0].rows[17]`); UsageError for duplicate parts, or parts of
    a different plan; GitopsError `graph_version_gone` if the plan has expired or was discarded, `graph_conflict` if the
    schema has changed since, or other writers published first 32 times; RemoteError `storage_failed`, also if a part's
    file has changed since it was written.
    """
    given = [part for part in parts if part.rows]
    staged = _read_fragments(plan, given)
    snapshot = open_snapshot(plan.uri, ReadTarget(plan.branch))
    require_same_schema(plan, snapshot)
    published = find_published(plan, snapshot, given)
    if published is not None:
        end_lease(plan, snapshot)
        return published
    mark_begun(plan, snapshot, context)
    with hold_lease(snapshot, context), _PartIntake(snapshot, given) as intake:
        for part, fragments in zip(given, staged, strict=True):
            intake.take(part, fragments)
        if not intake.tables:
            end_lease(plan, snapshot)
            return LoadResult(snapshot.manifest.n, {})
        request = LoadRequest(plan.uri, io.BytesIO(), mode, plan.branch)
        publisher = LoadPublisher(replace(context, ids=CommitId(plan.bulk)), request, snapshot, intake)
        publisher.check(snapshot)
        result = retry_until_published(publisher.attempt, sleep_jittered)
    end_lease(plan, snapshot)
    return result


def require_same_schema(plan: BulkPlan, snapshot: Snapshot) -> None:
    """Raise GitopsError `graph_conflict` if the schema or the graph has changed since the load was planned."""
    manifest = snapshot.manifest
    tables = {key: table_form(entry) for key, entry in manifest.tables.items()}
    if snapshot.identity.graph_id != plan.graph_id or manifest.schema_ir != plan.schema_ir or tables != plan.tables:
        detail = f"the schema of {snapshot.root.location} changed since the bulk load began"
        raise GitopsError(Code.GRAPH_CONFLICT, detail, path=plan.uri)


def discard_bulk(plan: BulkPlan, parts: Sequence[BulkPart]) -> None:
    """Discard a bulk load: remove its plan and its parts' files, except files that a version uses.

    If a worker crashed before it returned its part, gc removes its files after seven days. Raises the same errors as
    `publish_bulk`.
    """
    staged = _read_fragments(plan, parts)
    snapshot = open_snapshot(plan.uri, ReadTarget())
    if snapshot.identity.graph_id != plan.graph_id:
        return
    for path in sorted({part.path for part in parts}):
        kept = data_files(snapshot.folder, path)
        for part, fragments in zip(parts, staged, strict=True):
            if part.path == path:
                free = [each for each in fragments if not kept.intersection(file.path for file in each.files)]
                remove_files(snapshot.folder, path, free)
    end_lease(plan, snapshot)


class _PartProblems(RecordProblems):
    """Problems whose records are identified by part and row."""

    def __init__(self, parts: Sequence[BulkPart]) -> None:
        super().__init__()
        self._starts = [sum(part.rows for part in parts[:at]) for at in range(len(parts))]

    def place(self, record: int) -> tuple[str, str, SourceRef | None]:
        at = bisect_right(self._starts, record - 1) - 1
        row = record - self._starts[at]
        return f"parts[{at}].rows[{row}]", f"part {at}, row {row}", None


class _PartIntake(LoadIntake):
    """An intake for rows that are already in data files; reads only their keys."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[BulkPart]) -> None:
        super().__init__(snapshot, None)
        self.problems = _PartProblems(parts)
        self._record = 0

    def take(self, part: BulkPart, fragments: Sequence[StagedFragment]) -> None:
        """Record the keys of a part in row order. Raises RemoteError `storage_failed`.

        The ids of a fresh part cannot clash and are not recorded.
        """
        records = np.arange(self._record + 1, self._record + part.rows + 1)
        self._record += part.rows
        self.take_staged(part.key, fragments, records, None if part.fresh else np.ones(part.rows, np.bool_))


def _read_fragments(plan: BulkPlan, parts: Sequence[BulkPart]) -> list[list[StagedFragment]]:
    """Return the fragments of each part. Raises UsageError for a duplicate part, or a part of a different plan."""
    staged, seen = [], set[str]()
    for at, part in enumerate(parts):
        if part.bulk != plan.bulk or part.key not in plan.tables or part.path != plan.tables[part.key]["path"]:
            raise UsageError(Code.USAGE_ERROR, f"part {at} does not belong to the bulk load {plan.bulk}")
        fragments = part.staged()
        names = {file.path for fragment in fragments for file in fragment.files}
        if seen & names or sum(fragment.physical_rows for fragment in fragments) != part.rows:
            raise UsageError(
                Code.USAGE_ERROR, f"part {at} is given twice, or differs from the part that the worker returned"
            )
        seen |= names
        staged.append(fragments)
    return staged


def find_published(plan: BulkPlan, snapshot: Snapshot, parts: Sequence[BulkPart]) -> LoadResult | None:
    """Return the earlier result of this bulk load, or None if it was not published.

    A result is found by its commit id, which is the plan's id. Raises UsageError for a part that is not in the
    published version.

    Raises UsageError for a part that is not in the published version.
    """
    store, line = snapshot.store, snapshot.line
    for holder, n in kept_versions(store, line):
        if n <= plan.version:
            break
        manifest = find_manifest(store, n, holder)
        if manifest is not None and manifest.txn_id == plan.bulk:
            for at, part in enumerate(parts):
                dataset = open_table(snapshot.folder, manifest.tables[part.key])
                held = {file.path for each in dataset.get_fragments() for file in each.metadata.files}
                if any(file.path not in held for fragment in part.staged() for file in fragment.files):
                    detail = f"the bulk load {plan.bulk} was published as version {n}, without part {at}"
                    raise UsageError(Code.USAGE_ERROR, detail)
            rows = Counter[str]()
            for part in parts:
                rows[part.key] += part.rows
            return LoadResult(n, dict(rows), manifest)
    return None


def mark_begun(plan: BulkPlan, snapshot: Snapshot, context: WriteContext) -> None:
    """Record that publishing the plan has begun, or return the earlier record.

    The mark is a lease that ends one second earlier. Raises GitopsError `graph_version_gone` if the plan has expired,
    or if it was marked earlier and gc has removed the versions that would show whether it was published.
    """
    store, until = snapshot.store, parse_timestamp(plan.expires_at)
    lease = next((each for each in read_leases(store) if each.id == plan.bulk), None)
    if until is None or lease is None or until <= context.now():
        detail = f"the bulk load {plan.bulk} expired at {plan.expires_at}, or was discarded: begin a new one"
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=plan.uri)
    marked = replace(lease, expires_at=precise_timestamp(until - timedelta(seconds=1)))
    if lease != marked:
        store.write(layout.lease_key(lease.id), marked.to_bytes())
    elif read_floor(store, snapshot.line.id) > plan.version:
        detail = (
            f"it is unknown whether the bulk load {plan.bulk} was published: versions since it began are no longer kept"
        )
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=plan.uri)


def end_lease(plan: BulkPlan, snapshot: Snapshot) -> None:
    """End a plan's lease. If this fails, the lease expires later."""
    with contextlib.suppress(RemoteError):
        snapshot.store.delete(layout.lease_key(plan.bulk))


def load_parquet(
    uri: str,
    files: Sequence[tuple[str, Path]],
    context: WriteContext,
    mode: LoadMode = LoadMode.MERGE,
    branch: str = MAIN,
) -> LoadResult:
    """Load Parquet files, one type per file, and publish them all at once.

    Raises the same errors as `write_part` (with the file name) and `publish_bulk` (parts are the files, from 0);
    UsageError for an unknown type or an unreadable file.
    """
    catalog = open_snapshot(uri, ReadTarget(branch)).schema().catalog
    keys = []
    for name, _ in files:
        edge = catalog.edge(name)
        if name not in catalog.nodes and edge is None:
            raise UsageError(Code.USAGE_ERROR, f"the graph has no type {name[:80]!r}")
        keys.append(f"node:{name}" if name in catalog.nodes or edge is None else f"edge:{edge.name}")
    plan = plan_bulk(uri, context, branch)
    parts: list[BulkPart] = []
    try:
        for key, (_, file) in zip(keys, files, strict=True):
            try:
                parts.append(write_part(plan.task(key), _batches(file), context.ids))
            except LoadError as error:
                found = Diagnostics()
                for problem in error.problems:
                    found.add(problem.code, problem.path, f"{file.name}, {problem.message}")
                raise LoadError(found, error.total) from None
        return publish_bulk(plan, parts, context, mode)
    except BaseException:
        discard_bulk(plan, parts)
        raise


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0][:200]
        fix = "use a Parquet file; to load a JSON Lines file, omit --parquet: gitops graph load GRAPH FILE"
        detail = f"cannot read {file} as Parquet: {reason}"
        raise UsageError(Code.USAGE_ERROR, detail, path=str(file), fix=fix) from error
