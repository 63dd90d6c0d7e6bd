"""Conditions that the driver can test while it reads, as typed expressions: never text, so nothing can be injected.

Only what the driver decides exactly as this package would is handed down: whole numbers, texts, truth values and dates
against a constant. Floats are not handed down, since the driver treats 0.0 and -0.0 as different, and so do the types that it
cannot take in a filter.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.comparisons import COMPARE
from gitops.graph.query.cells import Cell
from gitops.graph.query.conditions import Condition
from gitops.language.query import ComparisonOperator
from gitops.language.query.typed import PropertyValue

__all__ = ["NEVER", "push_condition"]

_RANGES = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1)}


class _Never:
    """The condition holds for no row at all."""


NEVER = _Never()


def push_condition(condition: Condition, column: pa.DataType) -> pc.Expression | _Never | None:
    """The condition as a filter on a column of this type; None when it must be tested on the rows."""
    if not isinstance(condition.left, PropertyValue) or not isinstance(condition.right, Cell):
        return None
    value, sign = condition.right.value, condition.sign
    if value is None:
        return NEVER
    field = pc.field(condition.left.name)
    if column in _RANGES and sign in COMPARE:
        return _whole(field, sign, value, column)
    if pa.types.is_string(column):
        if sign is ComparisonOperator.CONTAINS:
            return pc.match_substring(field, value)
        if sign is ComparisonOperator.STARTS_WITH:
            return pc.starts_with(field, value)
        return COMPARE[sign](field, pa.scalar(value, column))
    if pa.types.is_date32(column) and sign in COMPARE:
        return COMPARE[sign](field, pa.scalar(value, pa.int32()).cast(column))
    if pa.types.is_boolean(column) and sign is ComparisonOperator.EQ:
        return field == pa.scalar(value, column)
    return None


def _whole(field: pc.Expression, sign: ComparisonOperator, value: float, column: pa.DataType) -> pc.Expression | _Never:
    """Compare whole numbers with any number: a fraction is replaced by its neighbour, and what no number reaches decides."""
    if not math.isfinite(value):
        return field.is_valid() if COMPARE[sign](0.0, value) else NEVER
    if value != math.floor(value):
        if sign is ComparisonOperator.EQ:
            return NEVER
        if sign is ComparisonOperator.NE:
            return field.is_valid()
        # Below 2.7 means up to 2; from 2.7 on means above 2.
        sign = (
            ComparisonOperator.LE if sign in (ComparisonOperator.LT, ComparisonOperator.LE) else ComparisonOperator.GT
        )
    number = math.floor(value)
    low, high = _RANGES[column]
    if low <= number <= high:
        return COMPARE[sign](field, pa.scalar(number, column))
    always = COMPARE[sign](0, 1 if number > high else -1)
    return field.is_valid() if always else NEVER
