"""The order of result rows, their groups, and aggregates over these, by whole numbers that order just as the values do.

Order (§3.6): by keys, nulls first going up and last going down; then by ids, so that it is total. Groups (§3.5): in the order in
which they are first seen. Sums are exact and rounded once, at the end, so they do not depend on the order of the rows; an
average of floats is the rounded sum divided by the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.bindings import distinct_rows
from gitops.database.language.query import AggregateFunction

__all__ = ["aggregate", "first_rows", "group", "ranks"]

NULL = -1
_FEW_TIMES = 8


def ranks(column: pa.Array) -> np.ndarray:
    """A number per cell: 0 for the smallest value and so on, equal for equal ones, `NULL` for null.

    Texts by code point, false before true, 0.0 equal to -0.0, lists item by item with null items first.
    """
    kind = column.type
    if pa.types.is_nested(kind):
        cells = [None if cell is None else tuple(map(_item, cell)) for cell in column.to_pylist()]
        place_of = {cell: place for place, cell in enumerate(sorted({cell for cell in cells if cell is not None}))}
        return np.array([NULL if cell is None else place_of[cell] for cell in cells], np.int64)
    if pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        order = np.asarray(pc.array_sort_indices(encoded.dictionary))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        at = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
        return np.where(at < 0, NULL, places[at] if len(places) else NULL)
    present = column.drop_null()
    values: np.ndarray
    if pa.types.is_boolean(kind):
        values = np.asarray(present).astype(np.int8)
    elif pa.types.is_date(kind):
        values = np.asarray(present.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
    else:
        values = np.asarray(present)
        # Adding zero makes 0.0 of -0.0.
        values = values + 0.0 if values.dtype.kind == "f" else values
    found = np.full(len(column), NULL, np.int64)
    found[np.asarray(column.is_valid())] = np.unique(values, return_inverse=True)[1]
    return found


def _item(item: Any) -> tuple[bool, Any]:
    return (False, 0) if item is None else (True, item)


def first_rows(
    keys: Sequence[tuple[pa.Array, bool]],
    count: int,
    limit: int | None,
    ties: Callable[[np.ndarray], Sequence[pa.Array]] | None,
) -> np.ndarray:
    """The positions of the first `limit` of `count` rows, in order.

    `keys` are columns with whether they descend. `ties` gives further columns, ascending, for the positions it is asked
    about, and is only asked about rows that the keys leave equal; without it such rows stay in the order they have.
    """
    if limit is not None and keys and 0 < limit * _FEW_TIMES < count:
        likely = _candidates(*keys[0], limit)
        if likely is not None and len(likely) < count:
            places = pa.array(likely)
            fewer = [(column.take(places), descending) for column, descending in keys]
            asked = None if ties is None else lambda positions: ties(likely[positions])
            chosen: np.ndarray = likely[first_rows(fewer, len(likely), limit, asked)]
            return chosen
    # A null ranks below 0, so negated it is above all: first going up, last going down.
    columns = [-ranks(column) if descending else ranks(column) for column, descending in keys]
    order = np.lexsort(columns[::-1])
    wanted = count if limit is None else min(limit, count)
    if ties is None or not wanted:
        return order[:wanted]
    fresh = np.zeros(count, bool)
    fresh[0] = True
    for column in columns:
        fresh[1:] |= column[order[1:]] != column[order[:-1]]
    later = np.flatnonzero(fresh[wanted:])
    end = wanted + int(later[0]) if len(later) else count
    head, run = order[:end], np.cumsum(fresh[:end]) - 1
    tied = np.flatnonzero(np.bincount(run)[run] > 1)
    if not len(tied):
        return order[:wanted]
    breakers = []
    for column in ties(head[tied]):
        breaker = np.zeros(end, np.int64)
        breaker[tied] = ranks(column)
        breakers.append(breaker)
    return head[np.lexsort((*breakers[::-1], run))][:wanted]


def _candidates(column: pa.Array, descending: bool, limit: int) -> np.ndarray | None:
    """The positions of the rows that can be among the first `limit` by a column of numbers, ties included; None for others."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    valid = np.asarray(column.is_valid())
    present = np.asarray(column.drop_null())
    wanted = limit if descending else limit - (len(column) - len(present))
    if wanted <= 0:
        return np.flatnonzero(~valid)
    if wanted >= len(present):
        return None
    place = len(present) - wanted if descending else wanted - 1
    bound = np.partition(present, place)[place]
    near = np.zeros(len(column), bool) if descending else ~valid
    near[valid] = present >= bound if descending else present <= bound
    return np.flatnonzero(near)


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
    cells: list[float | None] = []
    for total, count in zip(sums, counts.tolist(), strict=True):
        try:
            cells.append(None if not count else float(total / count if average else total))
        except OverflowError:
            cells.append(math.inf if total > 0 else -math.inf)
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
