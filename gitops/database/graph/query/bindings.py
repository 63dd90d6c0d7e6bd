"""Rows during execution: each variable has a column of stable row ids, all with the same length. Rows can repeat.

Also columns that are kept to find rows: the groups of equal cells, and sorted cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass
from gitops.database.graph.tables import raw_type

_SPARSE = 8


@dataclass(frozen=True, slots=True)
class Bindings:
    """A set of `count` rows. Rows exist even without variables, and a product multiplies them."""

    count: int
    columns: Mapping[str, np.ndarray]

    @classmethod
    def unit(cls) -> Bindings:
        """Return one row without variables, which is where a match starts."""
        return cls(1, {})

    @property
    def nbytes(self) -> int:
        """The memory usage of the columns in bytes."""
        return sum(column.nbytes for column in self.columns.values())

    def take(self, rows: np.ndarray) -> Bindings:
        """Return the rows at these positions, in this order. Positions can repeat."""
        return Bindings(len(rows), {name: column[rows] for name, column in self.columns.items()})

    def keep(self, mask: np.ndarray) -> Bindings:
        """Return the rows for which the mask is true."""
        kept = int(np.count_nonzero(mask))
        if kept == self.count:
            return self
        return Bindings(kept, {name: column[mask] for name, column in self.columns.items()})

    def head(self, count: int) -> Bindings:
        """Return the first `count` rows."""
        return self if count >= self.count else self.slice(0, count)

    def slice(self, start: int, stop: int) -> Bindings:
        """Return the rows from `start` to before `stop`."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Bindings(max(0, min(stop, self.count) - start), columns)

    def bind(self, name: str, column: np.ndarray) -> Bindings:
        """Return the same rows with an additional variable."""
        return Bindings(self.count, {**self.columns, name: column})

    def only(self, names: Iterable[str]) -> Bindings:
        """Return the same rows with only these variables."""
        return Bindings(self.count, {name: self.columns[name] for name in names})

    def product(self, other: Bindings) -> Bindings:
        """Combine every row with every row of `other`. The left row varies slowest."""
        columns = {name: np.repeat(column, other.count) for name, column in self.columns.items()}
        columns.update({name: np.tile(column, self.count) for name, column in other.columns.items()})
        return Bindings(self.count * other.count, columns)


def ascending(values: np.ndarray) -> bool:
    """Return whether the values are strictly ascending."""
    return bool(np.all(values[:-1] < values[1:]))


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values in ascending order, and each value's index among them."""
    if ascending(values):
        return values, np.arange(len(values))
    return np.unique(values, return_inverse=True)


def spread(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expand runs, given by start and length, to one item per element: its run's number and its position."""
    runs = np.repeat(np.arange(len(counts)), counts)
    if not len(runs):
        return runs, runs
    before = np.cumsum(counts) - counts
    return runs, np.arange(len(runs)) + np.repeat(starts - before, counts)


def equal_pairs(left: pa.Array, right: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of all pairs of equal values, ordered by the left position, then by the right one.

    A null does not equal anything.
    """
    distinct = pc.unique(right.drop_null())
    of_right = look_up(right, distinct)
    order = np.argsort(of_right, kind="stable")
    order = order[np.count_nonzero(of_right < 0) :]
    counts = np.bincount(of_right[of_right >= 0], minlength=len(distinct))
    starts = np.cumsum(counts) - counts
    of_left = look_up(left, distinct)
    hit = np.flatnonzero(of_left >= 0)
    runs, places = spread(starts[of_left[hit]], counts[of_left[hit]])
    return hit[runs], order[places]


def distinct_rows(columns: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first position of each distinct row, and each row's index among the distinct rows."""
    if len(columns) == 1 and ascending(columns[0]):
        return np.arange(count), np.arange(count)
    which, size = np.zeros(count, np.int64), min(count, 1)
    for column in columns:
        codes, width = _dense(column)
        which, size = (codes, width) if size <= 1 else _dense(which * width + codes)
    firsts = np.empty(size, np.int64)
    firsts[which[::-1]] = np.arange(count)[::-1]
    return firsts, which


def _dense(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the distinct values from 0 without gaps; return each value's number and the count. Sorts only if needed."""
    if not len(values):
        return values.astype(np.int64), 0
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > _SPARSE * len(values):
        distinct, codes = np.unique(values, return_inverse=True)
        return codes, len(distinct)
    present = np.zeros(span, bool)
    present[values - low] = True
    numbers = np.cumsum(present) - 1
    return numbers[values - low], int(numbers[-1]) + 1


def look_up(values: pa.Array, among: pa.Array) -> np.ndarray:
    """Return each value's position in an array of distinct values, or -1 if it is missing."""
    found: np.ndarray = np.asarray(pc.fill_null(pc.index_in(values, value_set=among), -1)).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of equal rows. `firsts` has each group's first row, ascending, and `of_row` has each row's group."""

    firsts: np.ndarray
    of_row: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> Groups:
        """Group equal cells. Nulls form one group, as do 0.0 and -0.0."""
        if pa.types.is_nested(column.type):
            seen: dict[Any, int] = {}
            cells = (None if cell is None else tuple(cell) for cell in column.to_pylist())
            return cls._of_codes(np.array([seen.setdefault(cell, len(seen)) for cell in cells], np.int64), len(seen))
        # Adding zero turns -0.0 into 0.0.
        plain = pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
        encoded = plain.dictionary_encode("encode")
        return cls._of_codes(np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary))

    @classmethod
    def of_numbers(cls, columns: Sequence[np.ndarray], count: int) -> Groups:
        """Group `count` rows with equal numbers in all of these columns."""
        firsts, which = distinct_rows(columns, count)
        if ascending(firsts):
            return cls(firsts, which)
        order = np.argsort(firsts)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return cls(firsts[order], places[which])

    @classmethod
    def _of_codes(cls, codes: np.ndarray, size: int) -> Groups:
        """Build groups from group numbers, which must be in order of first appearance."""
        firsts = np.empty(size, np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]
        return cls(firsts, codes)

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.firsts)

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        return int(self.firsts.nbytes + self.of_row.nbytes)


# Rows up to which a cell has an entry in a dictionary, and the size of an entry with its cell.
_MOST_ENTRIES, _ENTRY_BYTES = 100_000, 160


def _distinct(cells: pa.StringArray | np.ndarray, row_ids: np.ndarray) -> Mapping[Any, int]:
    """Return the row of each cell of a small column that has no cell twice."""
    if len(cells) > _MOST_ENTRIES:
        return {}
    found = dict(zip(cells.tolist(), row_ids.tolist(), strict=True))
    return found if len(found) == len(cells) else {}


@dataclass(frozen=True)
class SortedTexts:
    """A column's strings sorted by code point, with each one's row id. Nulls are left out."""

    cells: pa.StringArray
    row_ids: np.ndarray

    @classmethod
    def of(cls, row_ids: np.ndarray, column: pa.StringArray) -> SortedTexts:
        """Sort a column's strings."""
        order = pc.array_sort_indices(column).slice(0, len(column) - column.null_count)
        return cls(column.take(order), row_ids[np.asarray(order)])

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        own = len(self.cells) * _ENTRY_BYTES if len(self.cells) <= _MOST_ENTRIES else 0
        return int(self.cells.nbytes + self.row_ids.nbytes) + own

    def find_one(self, text: str) -> int | None:
        """Return the row id of the only row with this text if that is known without a search, otherwise None."""
        return self._distinct.get(text)

    @cached_property
    def _distinct(self) -> Mapping[str, int]:
        return _distinct(self.cells, self.row_ids)

    def find(self, text: str) -> np.ndarray:
        """Return the row ids of the rows with this text, in ascending order."""
        offsets, content = self._buffers
        wanted, places = text.encode(), range(len(self.cells))
        # Bytes of UTF-8 have the order of code points, and reading them is several times faster than reading cells.
        start = bisect_left(places, wanted, key=lambda at: content[offsets[at] : offsets[at + 1]].tobytes())
        end = start
        while end < len(places) and content[offsets[end] : offsets[end + 1]] == wanted:
            end += 1
        return self.row_ids[start:end] if end - start < 2 else np.sort(self.row_ids[start:end])  # noqa: PLR2004 - one row

    @cached_property
    def _buffers(self) -> tuple[memoryview, memoryview]:
        """The offsets of the texts, and their bytes."""
        _, offsets, content = self.cells.buffers()
        # As unsigned bytes, because a view of signed ones differs from equal bytes beyond ASCII.
        return memoryview(offsets).cast("i")[self.cells.offset :], memoryview(content or b"").cast("B")


@dataclass(frozen=True)
class SortedNumbers:
    """A column's whole numbers, days or milliseconds in ascending order, with each one's row id. Nulls are left out."""

    cells: np.ndarray
    row_ids: np.ndarray

    @classmethod
    def of(cls, row_ids: np.ndarray, column: pa.Array) -> SortedNumbers:
        """Sort a column's numbers."""
        cells = column.cast(raw_type(column.type)).drop_null().to_numpy(zero_copy_only=False)
        order = np.argsort(cells, kind="stable")
        return cls(cells[order], row_ids[np.asarray(column.is_valid())][order])

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        own = len(self.cells) * _ENTRY_BYTES if len(self.cells) <= _MOST_ENTRIES else 0
        return int(self.cells.nbytes + self.row_ids.nbytes) + own

    def find_one(self, number: int) -> int | None:
        """Return the row id of the only row with this number if that is known without a search, otherwise None."""
        return self._distinct.get(number)

    @cached_property
    def _distinct(self) -> Mapping[int, int]:
        return _distinct(self.cells, self.row_ids)

    def find(self, number: int) -> np.ndarray:
        """Return the row ids of the rows with this number, in ascending order. It may be outside the column's range."""
        bounds = np.iinfo(self.cells.dtype)
        if not bounds.min <= number <= bounds.max:
            return self.row_ids[:0]
        wanted = self.cells.dtype.type(number)
        start, end = (int(np.searchsorted(self.cells, wanted, side)) for side in ("left", "right"))
        return np.sort(self.row_ids[start:end])


SortedCells = SortedTexts | SortedNumbers


def sorted_cells(row_ids: np.ndarray, column: pa.Array) -> SortedCells:
    """Sort a column of a `searchable` type."""
    return (SortedTexts if pa.types.is_string(column.type) else SortedNumbers).of(row_ids, column)


def searchable(kind: pa.DataType) -> bool:
    """Return whether a column's cells can be sorted and found by their value: texts, whole numbers, dates and times."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(raw_type(kind)))
