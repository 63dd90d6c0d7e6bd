"""The comparison operators of queries as functions, and each operator with its sides exchanged."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from gitops.language.query import ComparisonOperator

__all__ = ["COMPARE", "FLIPPED"]

COMPARE: Mapping[ComparisonOperator, Callable[[Any, Any], Any]] = {
    ComparisonOperator.EQ: operator.eq,
    ComparisonOperator.NE: operator.ne,
    ComparisonOperator.LT: operator.lt,
    ComparisonOperator.LE: operator.le,
    ComparisonOperator.GT: operator.gt,
    ComparisonOperator.GE: operator.ge,
}

FLIPPED: Mapping[ComparisonOperator, ComparisonOperator] = {
    ComparisonOperator.EQ: ComparisonOperator.EQ,
    ComparisonOperator.NE: ComparisonOperator.NE,
    ComparisonOperator.LT: ComparisonOperator.GT,
    ComparisonOperator.LE: ComparisonOperator.GE,
    ComparisonOperator.GT: ComparisonOperator.LT,
    ComparisonOperator.GE: ComparisonOperator.LE,
}
