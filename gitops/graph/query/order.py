"""The order of result rows (§3.6): by keys, nulls first going up and last going down; then by ids, so that it is total."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from gitops.graph.query.ranks import ranks

__all__ = ["first_rows"]

_FEW_TIMES = 8


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
