"""Groups of rows, in the order in which they are first seen, and aggregates over them (§3.5).

Sums are exact and rounded once, at the end, so they do not depend on the order of the rows; an average of floats is the
rounded sum divided by the count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from gitops.graph.query.bindings import distinct_rows
from gitops.graph.query.order import NULL, ranks
from gitops.language.query import AggregateFunction

__all__ = ["Groups", "aggregate", "group"]


@dataclass(frozen=True, slots=True)
class Groups:
    """`firsts` is the first row of each group, `of_row` the group of each row."""

    firsts: np.ndarray
    of_row: np.ndarray

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.firsts)


def group(keys: Sequence[pa.Array], count: int) -> Groups:
    """Group `count` rows by keys, nulls together; without a key all rows, even none, are one group."""
    if not keys:
        return Groups(np.zeros(1, np.int64), np.zeros(count, np.int64))
    firsts, which = distinct_rows([ranks(key) for key in keys], count)
    order = np.argsort(firsts)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return Groups(firsts[order], places[which])


def aggregate(function: AggregateFunction, column: pa.Array, groups: Groups) -> pa.Array:
    """One cell per group; nulls of the column do not count."""
    valid = np.asarray(column.is_valid())
    counts = np.bincount(groups.of_row[valid], minlength=groups.count)
    if function is AggregateFunction.COUNT:
        return pa.array(counts, pa.int64())
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        return _extreme(column, groups, smallest=function is AggregateFunction.MIN)
    sums = _sums(column.drop_null(), groups.of_row[valid], groups.count)
    average = function is AggregateFunction.AVG
    cells = [
        None if not count else _rounded(total / int(count) if average else total)
        for total, count in zip(sums, counts, strict=True)
    ]
    return pa.array(cells, pa.float64())


def _extreme(column: pa.Array, groups: Groups, *, smallest: bool) -> pa.Array:
    """The first row with the least or greatest value of each group, then its cell."""
    places = ranks(column)
    order = np.lexsort((places if smallest else -places, groups.of_row))
    order = order[places[order] != NULL]
    present, firsts = np.unique(groups.of_row[order], return_index=True)
    at = np.full(groups.count, -1, np.int64)
    at[present] = order[firsts]
    return column.take(pa.array(at, mask=at < 0))


def _sums(column: pa.Array, of_row: np.ndarray, count: int) -> list[Fraction]:
    """The exact sum of each group."""
    values = np.asarray(column)
    if values.dtype.kind == "f":
        ordered = values.astype(np.float64)[np.argsort(of_row, kind="stable")]
        stops = np.cumsum(np.bincount(of_row, minlength=count)).tolist()
        parts = (ordered[start:stop].tolist() for start, stop in zip([0, *stops], stops, strict=False))
        return [_exact(part) for part in parts]
    wide = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64)
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(low, of_row, (wide & wide.dtype.type(2**32 - 1)).astype(np.int64))
    np.add.at(high, of_row, (wide >> wide.dtype.type(32)).astype(np.int64))
    return [Fraction((top << 32) + bottom) for top, bottom in zip(high.tolist(), low.tolist(), strict=True)]


def _exact(values: list[float]) -> Fraction:
    """The sum of finite floats, rounded at most once."""
    try:
        return Fraction(math.fsum(values))
    except OverflowError:
        return sum(map(Fraction, values), Fraction())


def _rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
