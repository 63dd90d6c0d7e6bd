"""Columns that stay in memory between queries, once asking for cells has cost about what reading the whole column costs.

A version of a table never changes, so a kept column equals the stored column. It lives in the cache of the caller, counts
there by its bytes, and goes when the cache is full. What a query gets does not depend on any of this.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass

__all__ = ["ResidentColumns", "SortedTexts"]

# What asking costs, in cells of a column that is read from end to end: a call, each row of it, and a search by an index.
_CALL, _ROW, _SEARCH = 5_000, 40, 20_000
# What sorting costs per cell.
_SORT = 15
_EAGER = 4
_ROW_IDS = "_rowid"
_SORTED = "sorted "


@dataclass(frozen=True, slots=True)
class SortedTexts:
    """The texts of a column in order, by code point, and the row id of each; nulls are left out."""

    cells: pa.StringArray
    row_ids: np.ndarray

    @classmethod
    def of(cls, row_ids: np.ndarray, column: pa.StringArray) -> SortedTexts:
        """Sort a column."""
        order = pc.array_sort_indices(column).slice(0, len(column) - column.null_count)
        return cls(column.take(order), row_ids[np.asarray(order)])

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return int(self.cells.nbytes + self.row_ids.nbytes)

    def find(self, text: str) -> np.ndarray:
        """The row ids, ascending, of the rows with this text."""
        places, key = range(len(self.cells)), lambda at: self.cells[at].as_py()
        start = bisect_left(places, text, key=key)
        return np.sort(self.row_ids[start : bisect_right(places, text, lo=start, key=key)])


@dataclass(slots=True)
class ResidentColumns:
    """The columns of one table version that are kept, and the account of what others cost so far.

    `get` gives what was `put` by this name, None if it is gone. No column of more than `most_bytes` is kept. Threads may share
    it: the account is a guess, and what is kept is complete when it is put.
    """

    get: Callable[[str], Any]
    put: Callable[[str, pa.Array | np.ndarray | SortedTexts], None]
    rows: int
    most_bytes: int
    _paid: dict[str, int] = field(default_factory=dict)
    _width: dict[str, float] = field(default_factory=dict)

    def find(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]] | None:
        """The row ids, ascending, and these columns beside them, if all of them are here."""
        ids = self.get(_ROW_IDS)
        if ids is None:
            return None
        columns = {name: self.get(name) for name in names}
        return None if any(column is None for column in columns.values()) else (ids, columns)

    def measure(self, columns: dict[str, pa.Array], rows: int) -> None:
        """Note how large cells are."""
        for name, column in columns.items():
            self._width[name] = max(self._width.get(name, 0.0), column.nbytes / max(1, rows))

    def worth(self, types: Mapping[str, pa.DataType], rows: int) -> bool:
        """Note that `rows` cells of each of these columns are asked for; whether it is time to read them as a whole."""
        for name in types:
            self._paid[name] = self._paid.get(name, 0) + _CALL + _ROW * rows
        return all(
            _plain(kind) and _EAGER * self._paid[name] >= self.rows and self.small(name) for name, kind in types.items()
        )

    def texts(self, name: str) -> SortedTexts | None:
        """A column in the order of its texts, if it is here."""
        found: SortedTexts | None = self.get(_SORTED + name)
        return found

    def worth_sorting(self, name: str) -> bool:
        """Note that a text is looked for in a column; whether it is time to sort it, if it is small enough."""
        paid = self._paid[_SORTED + name] = self._paid.get(_SORTED + name, 0) + _SEARCH
        return _EAGER * paid >= _SORT * self.rows

    def sort(self, name: str, ids: np.ndarray, column: pa.StringArray) -> SortedTexts | None:
        """Sort a column and keep it, unless it is too large."""
        texts = SortedTexts.of(ids, column) if column.nbytes <= self.most_bytes else None
        if texts is not None:
            self.put(_SORTED + name, texts)
        return texts

    def measured(self, name: str) -> bool:
        """Whether it is known how large cells of a column are."""
        return name in self._width

    def small(self, name: str) -> bool:
        """Whether a column is small enough to be kept, as far as is known."""
        return self._width.get(name, self.most_bytes) * self.rows <= self.most_bytes

    def size(self, names: Sequence[str]) -> int:
        """The bytes of these columns and of the row ids, as far as is known; a column that is not known counts as the largest."""
        return int(self.rows * (8 + sum(self._width.get(name, self.most_bytes / max(1, self.rows)) for name in names)))

    def forbid(self, names: Sequence[str]) -> None:
        """Keep none of these columns: they are larger than was known."""
        self._width.update(dict.fromkeys(names, math.inf))

    def keep(self, ids: np.ndarray, columns: dict[str, pa.Array]) -> None:
        """Keep what was read as a whole, by row id, as far as it is small."""
        self.measure(columns, len(ids))
        if ids.nbytes > self.most_bytes:
            return
        self.put(_ROW_IDS, ids)
        for name, column in columns.items():
            if _plain(column.type) and column.nbytes <= self.most_bytes:
                self.put(name, column)


def _plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_large_binary(kind) and not pa.types.is_binary(kind)
