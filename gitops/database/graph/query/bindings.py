"""Rows during execution: for each variable a column of stable row ids, all of one length. Rows may be equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.tables import look_up

__all__ = ["Bindings", "ascending", "distinct", "distinct_rows", "equal_pairs", "spread"]

_SPARSE = 8


@dataclass(frozen=True, slots=True)
class Bindings:
    """`count` rows; with no variable there are still rows, which a product multiplies."""

    count: int
    columns: Mapping[str, np.ndarray]

    @classmethod
    def unit(cls) -> Bindings:
        """One row that binds nothing: where a match begins."""
        return cls(1, {})

    @property
    def nbytes(self) -> int:
        """What the columns take."""
        return sum(column.nbytes for column in self.columns.values())

    def take(self, rows: np.ndarray) -> Bindings:
        """The rows at these positions, in that order, each as often as it is named."""
        return Bindings(len(rows), {name: column[rows] for name, column in self.columns.items()})

    def keep(self, mask: np.ndarray) -> Bindings:
        """The rows for which the mask is true."""
        kept = int(np.count_nonzero(mask))
        if kept == self.count:
            return self
        return Bindings(kept, {name: column[mask] for name, column in self.columns.items()})

    def head(self, count: int) -> Bindings:
        """The first rows."""
        return self if count >= self.count else self.slice(0, count)

    def slice(self, start: int, stop: int) -> Bindings:
        """The rows from `start` to before `stop`."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Bindings(max(0, min(stop, self.count) - start), columns)

    def bind(self, name: str, column: np.ndarray) -> Bindings:
        """The same rows with one variable more."""
        return Bindings(self.count, {**self.columns, name: column})

    def only(self, names: Iterable[str]) -> Bindings:
        """The same rows with these variables."""
        return Bindings(self.count, {name: self.columns[name] for name in names})

    def product(self, other: Bindings) -> Bindings:
        """Every row with every row of the other, the left one moving slowest."""
        columns = {name: np.repeat(column, other.count) for name, column in self.columns.items()}
        columns.update({name: np.tile(column, self.count) for name, column in other.columns.items()})
        return Bindings(self.count * other.count, columns)


def ascending(values: np.ndarray) -> bool:
    """Whether each value is greater than the one before."""
    return bool(np.all(values[:-1] < values[1:]))


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, ascending, and where each value is among them."""
    if ascending(values):
        return values, np.arange(len(values))
    return np.unique(values, return_inverse=True)


def spread(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For runs given by start and length: the number of the run and the position of every element."""
    runs = np.repeat(np.arange(len(counts)), counts)
    if not len(runs):
        return runs, runs
    before = np.cumsum(counts) - counts
    return runs, np.arange(len(runs)) + np.repeat(starts - before, counts)


def equal_pairs(left: pa.Array, right: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The positions of every pair of equal values, the left ones ascending, then the right ones; a null equals nothing."""
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
    """Of rows of equal columns the first one, and for each row which of these it equals."""
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
    """Equal numbers for equal values, from 0 without gaps, and how many there are; without sorting where possible."""
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
