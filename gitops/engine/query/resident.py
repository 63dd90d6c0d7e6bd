"""Columns that stay in memory between queries, once asking for cells has cost about what reading the whole column costs.

A version of a table never changes, so a kept column is as good as one that is read. It lives in the cache of the caller, counts
there by its bytes, and goes when the cache is full. What a query gets does not depend on any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

__all__ = ["Residents", "Shelf"]

# What asking costs, in cells of a column that is read from end to end: a call, and each row of it.
_CALL, _ROW = 5_000, 40
_EAGER = 4
_ROW_IDS = "_rowid"


class Shelf:
    """Where the columns of one table version lie: two functions of the cache."""

    def __init__(
        self, find: Callable[[str], pa.Array | np.ndarray | None], put: Callable[[str, pa.Array | np.ndarray], None]
    ) -> None:
        """`find` gives what was `put` by this name, unless it is gone."""
        self.find = find
        self.put = put


class Residents:
    """The columns of one table version that are kept, and the account of what others cost so far.

    Threads may share it: the account is a guess, and what is kept is complete when it is put.
    """

    def __init__(self, shelf: Shelf, rows: int, most_bytes: int) -> None:
        """No column of more than `most_bytes` is kept."""
        self._shelf = shelf
        self._rows = rows
        self._most = most_bytes
        self._paid: dict[str, int] = {}
        self._width: dict[str, float] = {}

    def find(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]] | None:
        """The row ids, ascending, and these columns beside them, if all of them are here."""
        ids = self._shelf.find(_ROW_IDS)
        if ids is None:
            return None
        columns = {name: self._shelf.find(name) for name in names}
        return None if any(column is None for column in columns.values()) else (ids, columns)

    def pay(self, names: Sequence[str], rows: int) -> None:
        """Note that `rows` cells of each of these columns were asked for."""
        for name in names:
            self._paid[name] = self._paid.get(name, 0) + _CALL + _ROW * rows

    def measure(self, columns: dict[str, pa.Array], rows: int) -> None:
        """Note how large cells are."""
        for name, column in columns.items():
            self._width[name] = max(self._width.get(name, 0.0), column.nbytes / max(1, rows))

    def worth(self, names: Sequence[str], types: Sequence[pa.DataType]) -> bool:
        """Whether it is time to read these columns as a whole."""
        return all(
            _plain(kind)
            and _EAGER * self._paid.get(name, 0) >= self._rows
            and self._width.get(name, self._most) * self._rows <= self._most
            for name, kind in zip(names, types, strict=True)
        )

    def keep(self, ids: np.ndarray, columns: dict[str, pa.Array]) -> None:
        """Keep what was read as a whole, by row id, as far as it is small."""
        if ids.nbytes > self._most:
            return
        self._shelf.put(_ROW_IDS, ids)
        for name, column in columns.items():
            if _plain(column.type) and column.nbytes <= self._most:
                self._shelf.put(name, column)


def _plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_large_binary(kind) and not pa.types.is_binary(kind)
