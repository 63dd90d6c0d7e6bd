"""Joins of rows by equal values, and distinct rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.query.bindings import Bindings, ascending, spread
from gitops.graph.query.conditions import Condition
from gitops.graph.query.tables import look_up
from gitops.language.query import ComparisonOperator
from gitops.language.query.typed import PropertyValue
from gitops.language.schema import Scalar

__all__ = ["distinct_rows", "equal_pairs", "joinable"]

_SPARSE = 8
# Types whose values are equal exactly when their bytes are.
_HASHED = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE, Scalar.DATETIME)


def joinable(condition: Condition, left: Bindings, right: Bindings) -> bool:
    """Whether the condition says that a property of one side equals one of the other, by values that can be hashed."""
    one, other = condition.left, condition.right
    if (
        not isinstance(one, PropertyValue)
        or not isinstance(other, PropertyValue)
        or condition.sign is not ComparisonOperator.EQ
    ):
        return False
    if one.type.scalar is not other.type.scalar or one.type.scalar not in _HASHED:
        return False
    across = (one.variable in left.columns, other.variable in left.columns)
    known = all(side.variable in left.columns or side.variable in right.columns for side in (one, other))
    return known and across in ((True, False), (False, True))


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
