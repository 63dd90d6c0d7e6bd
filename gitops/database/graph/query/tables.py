"""Reads one table version for the executor, by filter, by row id or by key.

Row ids are the driver's stable row ids. A row keeps its id through updates, compaction, column changes and restored
versions, and ids are dense enough for array indexes. They are int64 everywhere in this package.

A column stays in memory between queries once reading single cells has cost about as much as reading the whole column. A
table version never changes, so a cached column equals the stored one. It is kept in the caller's cache, counts towards
the cache's size in bytes, and is evicted when the cache is full. A new version of a table uses the previous version's
cached columns if only a few rows differ. Results never depend on any of this.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import ColumnOrdering, LanceDataset
from lance.fragment import LanceFragment

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.bindings import Groups, SortedCells, look_up, sorted_cells
from gitops.database.graph.query.options import Budget
from gitops.database.graph.search import VectorMatrix
from gitops.database.graph.tables import (
    DRIVER_ERRORS,
    deletions_of,
    driver_message,
    files_of,
    service_failure,
)

# Cost of a request, in cells of a full column scan: one call, each requested row, and one index search.
_CALL, _ROW, _SEARCH = 5_000, 40, 20_000
# Cost of sorting one cell, in the same unit.
_SORT = 15
_EAGER = 4
_ROW_ID = "_rowid"
_SORTED, _GROUPED, _VECTORS = "sorted ", "groups ", "vectors "


@dataclass(slots=True)
class ResidentColumns:
    """One table version's cached columns, and the reading cost of other columns so far.

    `get` returns the value that was `put` under a name, or None if it was evicted. `count` sets the size of the data
    that the table itself holds. Columns larger than `most_bytes` and vectors larger than `most_vector_bytes` are not
    kept. This is thread-safe, because the cost is only an estimate and a value is complete when it is put.
    """

    get: Callable[[str], Any]
    put: Callable[[str, pa.Array | np.ndarray | SortedCells | Groups | VectorMatrix], None]
    rows: int
    most_bytes: int
    most_vector_bytes: int = 0
    count: Callable[[int], None] = lambda _: None
    _paid: dict[str, int] = field(default_factory=dict)
    _width: dict[str, float] = field(default_factory=dict)
    _reads: threading.Lock = field(default_factory=threading.Lock)

    def find(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]] | None:
        """Return the row ids in ascending order and these columns, if all of the columns are cached."""
        ids = self.get(_ROW_ID)
        if ids is None:
            return None
        columns = {name: self.get(name) for name in names}
        return None if any(column is None for column in columns.values()) else (ids, columns)

    def measure(self, columns: dict[str, pa.Array], rows: int) -> None:
        """Record the cell sizes of columns that were read."""
        for name, column in columns.items():
            self._width[name] = max(self._width.get(name, 0.0), column.nbytes / max(1, rows))

    def worth(self, types: Mapping[str, pa.DataType], rows: int) -> bool:
        """Record a request for `rows` cells in each of these columns.

        Return whether to read the whole columns now.
        """
        for name in types:
            self._paid[name] = self._paid.get(name, 0) + _CALL + _ROW * rows
        return all(
            _plain(kind) and _EAGER * self._paid[name] >= self.rows and self.small(name) for name, kind in types.items()
        )

    def sorted(self, name: str) -> SortedCells | None:
        """Return a column's sorted cells if they are cached."""
        found: SortedCells | None = self.get(_SORTED + name)
        return found

    def worth_sorting(self, name: str) -> bool:
        """Record a search in a column. Return whether the column is small enough and should be sorted now."""
        paid = self._paid[_SORTED + name] = self._paid.get(_SORTED + name, 0) + _SEARCH
        return _EAGER * paid >= _SORT * self.rows

    def sort(self, name: str, ids: np.ndarray, column: pa.Array) -> SortedCells | None:
        """Sort a column's cells, and cache them unless they are too large."""
        cells = sorted_cells(ids, column) if column.nbytes <= self.most_bytes else None
        if cells is not None:
            self.put(_SORTED + name, cells)
        return cells

    def groups(self, name: str, column: pa.Array) -> Groups:
        """Return the groups of equal cells, and cache them if the column is cached and they are small enough."""
        if self.get(name) is not column:
            return Groups.of(column)
        found: Groups | None = self.get(_GROUPED + name)
        if found is None:
            found = Groups.of(column)
            if found.nbytes <= self.most_bytes:
                self.put(_GROUPED + name, found)
        return found

    def vectors(self, name: str, dimension: int, read: Callable[[int], VectorMatrix | None]) -> VectorMatrix | None:
        """Return a column's vectors if they are cached.

        On the second request, vectors that fit are loaded with `read`, which is given their size. Other threads do not
        find them until they are loaded.
        """
        found: VectorMatrix | None = self.get(_VECTORS + name)
        size = VectorMatrix.size(self.rows, dimension)
        if found is not None or size > self.most_vector_bytes or not self._reads.acquire(blocking=False):
            return found
        try:
            found = self.get(_VECTORS + name)
            if found is None and self._paid.get(_VECTORS + name):
                found = read(size)
                if found is not None:
                    self.put(_VECTORS + name, found)
            self._paid[_VECTORS + name] = 1
        finally:
            self._reads.release()
        return found

    def measured(self, name: str) -> bool:
        """Return whether the cell size of a column is known."""
        return name in self._width

    def small(self, name: str) -> bool:
        """Return whether a column is small enough to be cached, according to the known sizes."""
        return self._width.get(name, self.most_bytes) * self.rows <= self.most_bytes

    def size(self, names: Sequence[str]) -> int:
        """Return the bytes of these columns and the row ids, if known. An unknown column counts as the largest one."""
        return int(self.rows * (8 + sum(self._width.get(name, self.most_bytes / max(1, self.rows)) for name in names)))

    def forbid(self, names: Sequence[str]) -> None:
        """Never cache these columns, because they are larger than expected."""
        self._width.update(dict.fromkeys(names, math.inf))

    def keep(self, ids: np.ndarray, columns: dict[str, pa.Array]) -> None:
        """Cache whole columns, sorted by row id, if they are small enough."""
        self.measure(columns, len(ids))
        if ids.nbytes > self.most_bytes:
            return
        self.put(_ROW_ID, ids)
        for name, column in columns.items():
            if _plain(column.type) and column.nbytes <= self.most_bytes:
                self.put(name, column)


def _plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_large_binary(kind) and not pa.types.is_binary(kind)


_NO_ROWS = np.empty(0, np.int64)
# Format of a file with few deletions: one column of offsets.
_LIST = "array"
_PROBE = 1000
_MOST = 16
# "Few" rows of a table: up to this share of all rows, or this many.
_SHARE, _LEAST = 100, 1_000


@dataclass(frozen=True, slots=True)
class RowOrder:
    """A sort order: columns, each ascending (nulls first) or descending. Only the first `limit` rows are kept."""

    columns: Sequence[tuple[str, bool]]
    limit: int


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """A filter that the driver tests while it reads, and the columns that it uses."""

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def all_of(cls, filters: Sequence[PushedFilter]) -> PushedFilter:
        """Combine filters with AND in a balanced tree.

        Each level of an expression doubles the number of bytes sent to the driver.
        """
        if len(filters) == 1:
            return filters[0]
        left, right = cls.all_of(filters[: len(filters) // 2]), cls.all_of(filters[len(filters) // 2 :])
        return cls(left.expression & right.expression, (*left.columns, *right.columns))


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table: their row ids, and columns in the same order."""

    ids: np.ndarray
    columns: Mapping[str, pa.Array]

    @classmethod
    def of(cls, row_ids: Sequence[int], cells: pa.Table) -> TableRows:
        """Return rows by row id, with a table's columns that can be kept in memory."""
        order = np.argsort(np.array(row_ids, np.int64))
        kept = [name for name in cells.column_names if _plain(cells.schema.field(name).type)]
        columns = {name: _joined(cells.column(name).chunks).take(pa.array(order)) for name in kept}
        return cls(np.array(row_ids, np.int64)[order], columns)

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        return int(self.ids.nbytes + sum(column.nbytes for column in self.columns.values()))

    def keep(self, mask: np.ndarray) -> TableRows:
        """Return the rows for which the mask is true."""
        if mask.all():
            return self
        chosen = pa.array(mask)
        return TableRows(self.ids[mask], {name: column.filter(chosen) for name, column in self.columns.items()})


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A different table version with columns in memory, the row ids that are `gone` since, and the rows that `came`.

    A row that was rewritten under the same row id is in both sets. The rows in `came` have the columns that this object
    can return.
    """

    table: ReadTable
    gone: np.ndarray
    came: TableRows

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes, without the other version."""
        return int(self.gone.nbytes + self.came.nbytes)

    def then(self, gone: TableRows, came: TableRows) -> OtherVersion:
        """Return the differences after a further change."""
        lost = self.gone if not len(gone.ids) else np.union1d(self.gone, np.setdiff1d(gone.ids, self.came.ids))
        left = self.came.keep(~np.isin(self.came.ids, gone.ids))
        ids = np.concatenate([left.ids, came.ids])
        order = np.argsort(ids)
        columns = {
            name: _joined([left.columns[name], came.columns[name]]).take(pa.array(order))
            for name in left.columns.keys() & came.columns.keys()
        }
        return OtherVersion(self.table, lost, TableRows(ids[order], columns))

    def find(self, name: str, cell: Any) -> np.ndarray | None:
        """Return the row ids with a cell in a column, ascending, or None if the column is not in memory."""
        cells = self.table.sorted_cells(name)
        if cells is None or name not in self.came.columns:
            return None
        found = cells.find(cell)
        fresh = sorted_cells(np.arange(len(self.came.ids)), self.came.columns[name]).find(cell)
        return np.sort(np.concatenate([found[~np.isin(found, self.gone)], self.came.ids[fresh]]))

    def take(self, row_ids: np.ndarray, columns: Sequence[str]) -> dict[str, pa.Array] | None:
        """Return these rows' columns, or None if the columns are not in memory or a row is gone."""
        kept = self.table.held(columns)
        fresh = np.isin(row_ids, self.came.ids)
        known = row_ids[~fresh]
        if kept is None or not self.came.columns.keys() >= set(columns) or bool(np.any(np.isin(known, self.gone))):
            return None
        at = pa.array(self.table.positions(kept.ids, known))
        found = {name: kept.columns[name].take(at) for name in columns}
        if len(known) == len(row_ids):
            return found
        others = pa.array(np.searchsorted(self.came.ids, row_ids[fresh]))
        places = np.empty(len(row_ids), np.int64)
        places[np.concatenate([np.flatnonzero(~fresh), np.flatnonzero(fresh)])] = np.arange(len(row_ids))
        return {
            name: _joined([cells, self.came.columns[name].take(others)]).take(pa.array(places))
            for name, cells in found.items()
        }

    def whole(self, columns: Sequence[str]) -> TableRows | None:
        """Return all rows by row id, or None if the columns are not in memory."""
        kept = self.table.held(columns)
        if kept is None or not self.came.columns.keys() >= set(columns):
            return None
        left = kept.keep(~np.isin(kept.ids, self.gone))
        ids = np.concatenate([left.ids, self.came.ids])
        order = np.argsort(ids)
        joined = {name: _joined([left.columns[name], self.came.columns[name]]) for name in columns}
        return TableRows(ids[order], {name: cells.take(pa.array(order)) for name, cells in joined.items()})


class ReadTable:
    """A dataset at the version given in a manifest. Thread-safe."""

    def __init__(
        self,
        key: str,
        dataset: LanceDataset,
        rows: int,
        residents: ResidentColumns | None = None,
        previous: ReadTable | None = None,
    ) -> None:
        """Open the table.

        `key` is the manifest's (`node:T`, `edge:E`); `rows` is the manifest's count.

        `residents` caches frequently used columns; without it, no column is cached. If `previous`, another version, has
        columns in memory, they are used for the rows that both versions have.
        """
        self._residents = residents
        self._previous = previous
        self._was_read = False
        self.other: OtherVersion | None = None
        # By table and not by version number, which a restored graph uses again.
        self._differences = WeakKeyDictionary[ReadTable, tuple[TableRows, TableRows] | None]()
        self.most_changes = max(_LEAST, rows // _SHARE)
        """Up to so many rows that came or went, the memory of another version is used."""
        self.key = key
        self.dataset = dataset
        self.rows = rows
        self.types: Mapping[str, pa.DataType] = {field.name: field.type for field in dataset.schema}
        items = [kind.value_type for kind in self.types.values() if pa.types.is_list(kind)]
        self.filters = not any(pa.types.is_date64(kind) or pa.types.is_unsigned_integer(kind) for kind in items)
        """Whether the driver takes filters for this table: it needs to understand the types of all columns for any of them.

        The form in which filters travel (Substrait, as of pylance 14) cannot express some items of lists."""

    @cached_property
    def fields(self) -> Mapping[str, int]:
        """Each column's field id in the driver. A column that was dropped and declared again has a different id."""
        return {field.name(): field.id() for field in self.dataset.lance_schema.fields()}

    @cached_property
    def indexed(self) -> frozenset[str]:
        """The columns that have a BTREE index."""
        with self._reading():
            return frozenset(
                index.field_names[0]
                for index in self.dataset.describe_indices()
                if index.index_type.casefold() == "btree" and len(index.field_names) == 1
            )

    def scan(
        self, columns: Sequence[str], budget: Budget, filter_: PushedFilter | None = None, order: RowOrder | None = None
    ) -> Iterator[TableRows]:
        """Yield batches of rows in the requested order, or in any order if none is requested.

        An order together with a filter requires that `filters` is true for the table.

        Raises GitopsError `query_failed`; the errors of `Budget.check`.
        """
        there, here = (filter_, None) if self.filters else (None, filter_)
        budget.check()
        with self._reading():
            sort: list[ColumnOrdering | str] | None = None
            if order is not None:
                sort = [ColumnOrdering(name, ascending=up, nulls_first=up) for name, up in order.columns]
            scanner = self.dataset.scanner(
                columns=list(dict.fromkeys((*columns, *(here.columns if here is not None else ())))),
                filter=None if there is None else there.expression,
                order_by=sort,
                limit=order.limit if order else None,
                with_row_id=True,
            )
            for batch in scanner.to_reader():
                budget.check()
                if here is not None:
                    kept = pa.Table.from_batches([batch]).filter(here.expression).combine_chunks().to_batches()
                    batch = kept[0] if kept else batch.slice(0, 0)  # noqa: PLW2901 - what is left of it
                if batch.num_rows:
                    ids = batch.column(_ROW_ID).to_numpy().astype(np.int64)
                    yield TableRows(ids, {name: batch.column(name) for name in columns})

    def collect(
        self, columns: Sequence[str], batches: Iterator[TableRows], budget: Budget, *, sort: bool = True
    ) -> TableRows:
        """Combine batches, sorted by row id unless `sort` is false."""
        parts: list[TableRows] = []
        held = 0
        for batch in batches:
            parts.append(batch)
            held += batch.nbytes
            budget.need(2 * held, f"reading {self.key}")
        if not parts:
            return TableRows(np.empty(0, np.int64), {name: pa.array([], self.types[name]) for name in columns})
        ids = np.concatenate([part.ids for part in parts]) if len(parts) > 1 else parts[0].ids
        found = {name: _joined([part.columns[name] for part in parts]) for name in columns}
        if sort and len(ids) > 1 and not bool(np.all(ids[:-1] < ids[1:])):
            order = np.argsort(ids)
            ids, found = ids[order], {name: column.take(pa.array(order)) for name, column in found.items()}
        return TableRows(ids, found)

    def whole(self, columns: Sequence[str], budget: Budget) -> TableRows:
        """Read all rows of these columns, sorted by row id."""
        found = self.held(columns)
        if found is None:
            other = self.other_version(budget)
            found = None if other is None else other.whole(columns)
            found = found or self.collect(columns, self.scan(columns, budget), budget)
            if self._residents is not None:
                self._residents.keep(found.ids, dict(found.columns))
                self._was_read |= bool(columns)
        return found

    def held(self, columns: Sequence[str]) -> TableRows | None:
        """Return all rows, sorted by row id, if these columns are in memory."""
        found = None if self._residents is None else self._residents.find(columns)
        self._was_read |= found is not None and bool(columns)
        return None if found is None else TableRows(*found)

    def settles(self, columns: Sequence[str], rows: int, budget: Budget) -> TableRows | None:
        """Return all rows if these columns are in memory, or if a request for this many rows justifies reading all."""
        found = self.held(columns)
        if found is not None or self._residents is None:
            return found
        worth = self._residents.worth({name: self.types[name] for name in columns}, rows)
        return self._load(self._residents, columns, budget) if worth else None

    def _load(self, residents: ResidentColumns, columns: Sequence[str], budget: Budget) -> TableRows | None:
        """Read all rows of these columns and cache them.

        None if they are too large for the cache or for the query's memory limit.
        """
        try:
            unknown = [name for name in columns if not residents.measured(name)]
            if unknown:
                few = next(self.scan([], budget), None)
                if few is not None:
                    self.fetch(few.ids[:_PROBE], unknown, budget)
            small = all(map(residents.small, columns)) and budget.affords(2 * residents.size(columns))
            return self.whole(columns, budget) if small else None
        except GitopsError as error:
            if error.code is not Code.QUERY_MEMORY_EXCEEDED:
                raise
            # The cells are larger than estimated.
            residents.forbid(columns)
            return None

    def hand_on(self) -> ReadTable | None:
        """Return the version whose in-memory columns a later one can use: this one if it was read, else the previous.

        Afterwards, this version no longer refers to the previous one, so that no chain of versions stays open.
        """
        if self.other is None and not self._was_read:
            return self._previous
        self._previous = None
        return self

    def follow(self, before: ReadTable, rewritten: TableRows) -> None:
        """Reuse the cached columns of `before`. Each row in `rewritten` replaces the one with the same row id."""
        if self._previous is before and before.fields == self.fields and len(rewritten.ids) <= self.most_changes:
            names = [name for name in rewritten.columns if before.recalls(name) or name == "id"]
            came = TableRows(rewritten.ids, {name: rewritten.columns[name] for name in names})
            self._differences[before] = TableRows(came.ids, {"id": came.columns["id"]}), came
            self.other_version(Budget(None, None))

    def other_version(self, budget: Budget) -> OtherVersion | None:
        """Return the other version whose cached columns can be used, if only a few rows differ."""
        previous, self._previous = self._previous, None
        if previous is None:
            return self.other
        try:
            rows = self.difference(previous, budget)
        except GitopsError as error:
            # Gc may have removed the other version's files, or the query may have too little memory.
            if error.code not in (Code.QUERY_FAILED, Code.QUERY_MEMORY_EXCEEDED):
                raise
            rows = None
        if rows is not None:
            none = TableRows(_NO_ROWS, {name: cells.slice(0, 0) for name, cells in rows[1].columns.items()})
            other = (previous.other or OtherVersion(previous, _NO_ROWS, none)).then(*rows)
            if len(other.gone) + len(other.came.ids) <= self.most_changes:
                self.other = other
                self._count()
            else:
                self._adopt(other)
        return self.other

    def _adopt(self, other: OtherVersion) -> None:
        """Put the columns in memory of another version into this one, because too many rows differ."""
        residents = self._residents
        names = [name for name in other.came.columns if other.table.held((name,)) is not None]
        rows = other.whole(names)
        if rows is None or residents is None:
            return
        residents.keep(rows.ids, dict(rows.columns))
        for name in names:
            if other.table.sorted_cells(name) is not None:
                residents.sort(name, rows.ids, rows.columns[name])

    def _count(self) -> None:
        """Count the rows that differ from other versions in the caller's cache."""
        if self._residents is not None:
            parts: list[TableRows | OtherVersion] = [rows for pair in self._differences.values() for rows in pair or ()]
            parts += [self.other] if self.other is not None else []
            self._residents.count(sum(each.nbytes for each in parts))

    def recalls(self, name: str) -> bool:
        """Return whether a column is in memory, either here or in another version with known differences."""
        return self.held((name,)) is not None or (self.other is not None and name in self.other.came.columns)

    def sorted_cells(self, name: str) -> SortedCells | None:
        """Return a column's sorted cells if they are in memory."""
        return None if self._residents is None else self._residents.sorted(name)

    def equal(self, name: str, cell: Any, budget: Budget) -> np.ndarray | None:
        """Return the row ids with a cell in a `searchable` column, in ascending order, if that column is in memory.

        None means that the driver must be queried.
        """
        if self._residents is None:
            return None
        cells = self._residents.sorted(name)
        self._was_read |= cells is not None
        other = self.other_version(budget) if cells is None else None
        found = None if other is None else other.find(name, cell)
        if found is not None:
            return found
        if cells is None and self._residents.worth_sorting(name):
            rows = self._load(self._residents, [name], budget)
            if rows is not None:
                cells = self._residents.sort(name, rows.ids, rows.columns[name])
        return None if cells is None else cells.find(cell)

    def groups(self, name: str, column: pa.Array) -> Groups:
        """Return the groups of equal cells in a column that was read from this table."""
        return Groups.of(column) if self._residents is None else self._residents.groups(name, column)

    def vectors(self, name: str, budget: Budget) -> VectorMatrix | None:
        """Return all vectors of a column if they are in memory, or if frequent requests justify loading them now."""
        dimension = self.types[name].list_size

        def read(size: int) -> VectorMatrix | None:
            if not budget.affords(size):
                return None
            budget.need(size, f"reading {self.key}")
            with self._reading():
                count = self.dataset.count_rows()
            parts = ((rows.ids, rows.columns[name]) for rows in self.scan([name], budget))
            return VectorMatrix.of(parts, count, dimension)

        return None if self._residents is None else self._residents.vectors(name, dimension, read)

    def take(self, row_ids: np.ndarray, columns: Sequence[str], budget: Budget) -> dict[str, pa.Array]:
        """Return columns of existing rows, with one cell for each requested row id, in the order of these ids.

        Raises GitopsError `query_failed`.
        """
        if not len(row_ids):
            return {name: pa.array([], self.types[name]) for name in columns}
        other = self.other_version(budget) if self.held(columns) is None else None
        found = None if other is None else other.take(row_ids, columns)
        if found is not None:
            return found
        many = len(row_ids) > _PROBE and len(row_ids) * _MOST > self.rows
        kept = self.whole(columns, budget) if many else self.settles(columns, len(row_ids), budget)
        if kept is not None:
            at = pa.array(self.positions(kept.ids, row_ids))
            return {name: kept.columns[name].take(at) for name in columns}
        return self.fetch(row_ids, columns, budget)

    def fetch(self, row_ids: np.ndarray, columns: Sequence[str], budget: Budget) -> dict[str, pa.Array]:
        """Read columns of some rows from the driver, and record their cell sizes."""
        budget.check()
        with self._reading():
            # The only call that takes stable row ids; it is not public in this driver release.
            found = self.dataset._take_rows(row_ids.tolist(), columns=list(columns))  # noqa: SLF001
        if found.num_rows != len(row_ids):
            raise self._lost()
        budget.need(found.nbytes, f"reading {self.key}")
        taken = {name: _joined(found.column(name).chunks) for name in columns}
        if self._residents is not None:
            self._residents.measure(taken, len(row_ids))
        return taken

    def locate(self, ids: pa.Array, budget: Budget, *, whole: bool = False) -> np.ndarray:
        """Return each node id's row id, or -1 if there is none.

        `ids` must not contain nulls. `whole` reads the whole column instead of querying the driver.
        """
        distinct = pc.unique(ids)
        if whole or (len(distinct) > _PROBE and len(distinct) * _MOST > self.rows):
            batches = list(self.scan(["id"], budget))
        else:
            parts = (distinct.slice(start, _PROBE) for start in range(0, len(distinct), _PROBE))
            asked = [PushedFilter(pc.field("id").isin(part), ("id",)) for part in parts]
            batches = [rows for filter_ in asked for rows in self.scan(["id"], budget, filter_)]
        found: np.ndarray = np.full(len(distinct), -1, np.int64)
        for rows in batches:
            at = look_up(rows.columns["id"], distinct)
            hit = at >= 0
            found[at[hit]] = rows.ids[hit]
        placed: np.ndarray = found[look_up(ids, distinct)]
        return placed

    def difference(self, before: ReadTable, budget: Budget) -> tuple[TableRows, TableRows] | None:
        """Return the row ids from version `before` that are gone in this version, and the added rows.

        The added rows have their ids and ends, and the columns that the other version has in memory. Fragments with the
        same files have the same rows, except for deletions. Returns None if columns or many rows differ. Raises
        GitopsError `query_failed`; the errors of `Budget.check`.
        """
        if before not in self._differences:
            self._differences[before] = self._compare(before, budget)
            self._count()
        return self._differences[before]

    def _compare(self, before: ReadTable, budget: Budget) -> tuple[TableRows, TableRows] | None:
        if before.fields != self.fields:
            return None
        heads = ("id", "src", "dst") if self.key.startswith("edge:") else ("id",)
        names = [name for name in self.types if name in heads or before.recalls(name)]
        with self._reading():
            old, new = (
                {files_of(part): part for part in dataset.get_fragments()} for dataset in (before.dataset, self.dataset)
            )
            gone, come = [old[key] for key in old if key not in new], [new[key] for key in new if key not in old]
            pairs = [(part, new[key]) for key, part in old.items() if key in new]
            if any(one.metadata.row_id_meta != other.metadata.row_id_meta for one, other in pairs):
                # Both histories of a restored graph continued the same load.
                return None
            pairs = [pair for pair in pairs if len({deletions_of(part) for part in pair}) > 1]
            changed = sum(part.metadata.num_rows for part in (*gone, *come))
            if changed + sum(abs(one.num_deletions - other.num_deletions) for one, other in pairs) > self.most_changes:
                return None
            deleted, restored = [_NO_ROWS], [_NO_ROWS]
            for one, other in pairs:
                base = one.fragment_id << 32
                first, last = _deletions(before.dataset, one), _deletions(self.dataset, other)
                deleted.append(base + np.setdiff1d(last, first))
                restored.append(base + np.setdiff1d(first, last))
        return (
            before._rows_at(heads, gone, np.concatenate(deleted), budget),
            self._rows_at(names, come, np.concatenate(restored), budget),
        )

    def _rows_at(
        self, columns: Sequence[str], fragments: Sequence[LanceFragment], addresses: np.ndarray, budget: Budget
    ) -> TableRows:
        """Return the rows of some fragments, and the rows at some addresses."""

        def read() -> Iterator[TableRows]:
            chosen: list[dict[str, Any]] = [{"fragments": list(fragments)}] if fragments else []
            if len(addresses):
                chosen.append({"filter": f"_rowaddr IN ({','.join(map(str, addresses.tolist()))})"})
            for each in chosen:
                for batch in self.dataset.scanner(columns=list(columns), with_row_id=True, **each).to_reader():
                    ids = batch.column(_ROW_ID).to_numpy().astype(np.int64)
                    yield TableRows(ids, {name: batch.column(name) for name in columns})

        with self._reading():
            return self.collect(columns, read(), budget, sort=False)

    def positions(self, order: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
        """Return the positions of these row ids among all of the table's row ids. Raises GitopsError `query_failed`."""
        if not len(row_ids):
            return row_ids
        if len(order) and order[-1] == len(order) - 1 and 0 <= row_ids.min() <= row_ids.max() < len(order):
            return row_ids
        at = np.searchsorted(order, row_ids)
        if len(order) == 0 or at.max() == len(order) or not np.array_equal(order[at], row_ids):
            raise self._lost()
        return at

    def _lost(self) -> GitopsError:
        return GitopsError(Code.QUERY_FAILED, f"table {self.key} lacks rows that its edges or filters refer to")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            failure = service_failure(f"table {self.key}", error)
            if failure is not None:
                raise failure from error
            # A service can echo the request with its signature, so its documents are left out.
            reason = driver_message(error).partition("<")[0][:300]
            raise GitopsError(Code.QUERY_FAILED, f"table {self.key} cannot be read: {reason}") from error


def _deletions(dataset: LanceDataset, fragment: LanceFragment) -> np.ndarray:
    """Return the offsets of the deleted rows of a fragment."""
    file, path = fragment.metadata.deletion_file, deletions_of(fragment)
    if file is None or path is None:
        return _NO_ROWS
    if file.file_type == _LIST and file.base_id is None and "://" not in dataset.uri:
        with pa.OSFile(str(Path(dataset.uri) / path)) as opened:
            return np.asarray(pa.ipc.open_file(opened).read_all().column(0)).astype(np.int64)
    # The driver can read every format and location, but it returns only the remaining rows.
    left = dataset.scanner(columns=[], with_row_address=True, fragments=[fragment]).to_table().column("_rowaddr")
    return np.setdiff1d(np.arange(fragment.physical_rows), np.asarray(left).astype(np.int64) & 0xFFFFFFFF)


def _joined(pieces: Sequence[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
