"""Rows during execution: for each variable a column of stable row ids, all of one length. Rows may be equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Bindings", "ascending", "distinct", "spread"]


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
