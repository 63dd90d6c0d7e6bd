"""One table at one version, as the executor reads it: by filter, by row id, by key.

Row ids are the driver's stable ones: a row keeps its id through updates, compaction, changes of columns and restored
versions, and ids are dense enough to index arrays with. They are int64 everywhere in this package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import ColumnOrdering, LanceDataset

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.resident import ResidentColumns
from gitops.database.graph.tables import DRIVER_ERRORS, driver_message, service_failure

__all__ = ["PushedFilter", "ReadTable", "RowOrder", "TableRows", "look_up"]

_ROW_ID = "_rowid"
_PROBE = 1000
_MOST = 16


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Order rows by columns, each ascending or not, nulls first when ascending; keep the first `limit`."""

    columns: Sequence[tuple[str, bool]]
    limit: int


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """A filter that the driver tests while it reads, and the columns that it names."""

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def all_of(cls, filters: Sequence[PushedFilter]) -> PushedFilter:
        """All of some filters, as a balanced tree: what the driver is sent doubles with each level of an expression."""
        if len(filters) == 1:
            return filters[0]
        left, right = cls.all_of(filters[: len(filters) // 2]), cls.all_of(filters[len(filters) // 2 :])
        return cls(left.expression & right.expression, (*left.columns, *right.columns))


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table: their ids, and columns beside them."""

    ids: np.ndarray
    columns: Mapping[str, pa.Array]

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return int(self.ids.nbytes + sum(column.nbytes for column in self.columns.values()))

    def keep(self, mask: np.ndarray) -> TableRows:
        """The rows for which the mask is true."""
        if mask.all():
            return self
        chosen = pa.array(mask)
        return TableRows(self.ids[mask], {name: column.filter(chosen) for name, column in self.columns.items()})


class ReadTable:
    """A dataset at the version that a manifest names. Safe to share between threads."""

    def __init__(self, key: str, dataset: LanceDataset, rows: int, residents: ResidentColumns | None = None) -> None:
        """`key` is the manifest's (`node:T`, `edge:E`); `rows` what the manifest counts, for estimates only.

        `residents` keeps columns in memory that are asked for often; without it none is kept.
        """
        self._residents = residents
        self.key = key
        self.dataset = dataset
        self.rows = rows
        self.types: Mapping[str, pa.DataType] = {field.name: field.type for field in dataset.schema}
        items = [kind.value_type for kind in self.types.values() if pa.types.is_list(kind)]
        self.filters = not any(pa.types.is_date64(kind) or pa.types.is_unsigned_integer(kind) for kind in items)
        """Whether the driver takes filters for this table: it needs to understand the types of all columns for any of them.

        The form in which filters travel (Substrait, as of pylance 14) cannot express some items of lists."""

    @cached_property
    def indexed(self) -> frozenset[str]:
        """The columns that have a BTREE of their own."""
        with self._reading():
            return frozenset(
                index.field_names[0]
                for index in self.dataset.describe_indices()
                if index.index_type.casefold() == "btree" and len(index.field_names) == 1
            )

    def scan(
        self, columns: Sequence[str], budget: Budget, filter_: PushedFilter | None = None, order: RowOrder | None = None
    ) -> Iterator[TableRows]:
        """Batches of rows, in the order asked for, else in any. An order goes with a filter only where the table `filters`.

        Raises GitopsError `query_failed`; as `Budget.check`.
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
        """Batches in one piece, by row id unless `sort` is false."""
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
        """All rows, by row id."""
        found = self.held(columns)
        if found is None:
            found = self.collect(columns, self.scan(columns, budget), budget)
            if self._residents is not None:
                self._residents.keep(found.ids, dict(found.columns))
        return found

    def held(self, columns: Sequence[str]) -> TableRows | None:
        """All rows, by row id, if these columns are in memory."""
        found = None if self._residents is None else self._residents.find(columns)
        return None if found is None else TableRows(*found)

    def settles(self, columns: Sequence[str], rows: int, budget: Budget) -> TableRows | None:
        """All rows, if these columns are in memory, or if asking for so many rows makes it worth while to read them."""
        found = self.held(columns)
        if found is not None or self._residents is None:
            return found
        worth = self._residents.worth({name: self.types[name] for name in columns}, rows)
        return self._load(self._residents, columns, budget) if worth else None

    def _load(self, residents: ResidentColumns, columns: Sequence[str], budget: Budget) -> TableRows | None:
        """All rows with columns that stay in memory; None where they are too large for it, or for the memory of the query."""
        try:
            unknown = [name for name in columns if not residents.measured(name)]
            if unknown:
                few = next(self.scan([], budget), None)
                if few is not None:
                    self._fetch(few.ids[:_PROBE], unknown, budget)
            small = all(map(residents.small, columns)) and budget.affords(2 * residents.size(columns))
            return self.whole(columns, budget) if small else None
        except GitopsError as error:
            if error.code is not Code.QUERY_MEMORY_EXCEEDED:
                raise
            # The cells are larger than was known.
            residents.forbid(columns)
            return None

    def equal(self, name: str, text: str, budget: Budget) -> np.ndarray | None:
        """The row ids, ascending, of the rows with a text in a column, where that is in memory; None to ask the driver."""
        if self._residents is None:
            return None
        texts = self._residents.texts(name)
        if texts is None and self._residents.worth_sorting(name):
            rows = self._load(self._residents, [name], budget)
            if rows is not None:
                texts = self._residents.sort(name, rows.ids, rows.columns[name])
        return None if texts is None else texts.find(text)

    def take(self, row_ids: np.ndarray, columns: Sequence[str], budget: Budget) -> dict[str, pa.Array]:
        """The columns of rows that exist, one cell per row id asked for, in that order. Raises GitopsError `query_failed`."""
        if not len(row_ids):
            return {name: pa.array([], self.types[name]) for name in columns}
        many = len(row_ids) > _PROBE and len(row_ids) * _MOST > self.rows
        kept = self.whole(columns, budget) if many else self.settles(columns, len(row_ids), budget)
        if kept is not None:
            at = pa.array(self._positions(kept.ids, row_ids))
            return {name: kept.columns[name].take(at) for name in columns}
        return self._fetch(row_ids, columns, budget)

    def _fetch(self, row_ids: np.ndarray, columns: Sequence[str], budget: Budget) -> dict[str, pa.Array]:
        """The columns of rows, asked for from the driver, and how large their cells are noted."""
        budget.check()
        with self._reading():
            # The one call that takes stable row ids; it is not public in this release of the driver.
            found = self.dataset._take_rows(row_ids.tolist(), columns=list(columns))  # noqa: SLF001
        if found.num_rows != len(row_ids):
            raise self._lost()
        budget.need(found.nbytes, f"reading {self.key}")
        taken = {name: _joined(found.column(name).chunks) for name in columns}
        if self._residents is not None:
            self._residents.measure(taken, len(row_ids))
        return taken

    def locate(self, ids: pa.Array, budget: Budget, *, whole: bool = False) -> np.ndarray:
        """The row id of each node id, -1 where there is none. `ids` has no null; `whole` reads all rather than asking."""
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

    def _positions(self, order: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
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
            # A service may echo the request, with its signature: its documents are left out.
            reason = driver_message(error).partition("<")[0][:300]
            raise GitopsError(Code.QUERY_FAILED, f"table {self.key} cannot be read: {reason}") from error


def look_up(values: pa.Array, among: pa.Array) -> np.ndarray:
    """The position of each value in an array of distinct ones, -1 where it is not there."""
    found: np.ndarray = np.asarray(pc.fill_null(pc.index_in(values, value_set=among), -1)).astype(np.int64)
    return found


def _joined(pieces: Sequence[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
