"""The conditions that rows must satisfy: comparisons and text matches, with the variables that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.comparisons import FLIPPED
from gitops.graph.query.cells import Cell, Constants
from gitops.graph.query.exact import Operand, compare, contains, starts_with
from gitops.language.query import ComparisonOperator
from gitops.language.query.typed import Filter, PairTest, PropertyValue, TextFilter, TextMatch, TypedExpr
from gitops.language.schema import PropType, Scalar

__all__ = ["Condition", "ConditionSide", "evaluate_condition", "read_condition"]

ConditionSide: TypeAlias = "PropertyValue | TextMatch | Cell"


@dataclass(frozen=True, slots=True)
class Condition:
    """`left sign right`, which must be TRUE. If one side is a constant, it is the right one where the sign allows it."""

    left: ConditionSide
    sign: ComparisonOperator
    right: ConditionSide

    @property
    def variables(self) -> frozenset[str]:
        """The variables whose properties are compared."""
        return frozenset(each.variable for each in self.properties)

    @property
    def properties(self) -> tuple[PropertyValue, ...]:
        """The properties that are read."""
        sides = (side.field if isinstance(side, TextMatch) else side for side in (self.left, self.right))
        return tuple(side for side in sides if isinstance(side, PropertyValue))

    @property
    def searches(self) -> tuple[TextMatch, ...]:
        """The sides that are text matches, which are not in any column."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, TextMatch))

    def __str__(self) -> str:
        """As explanations show it; parameters by name."""
        return f"{_shown(self.left)} {self.sign} {_shown(self.right)}"


def read_condition(clause: Filter | PairTest | TextFilter, constants: Constants) -> Condition:
    """The condition of a clause. Raises GitopsError `query_literal_invalid`; `query_unsupported` for a rank."""
    if isinstance(clause, TextFilter):
        return Condition(clause.match, ComparisonOperator.EQ, Cell(True, PropType(Scalar.BOOL), "true"))
    if isinstance(clause, PairTest):
        sign = ComparisonOperator.CONTAINS if clause.membership else ComparisonOperator.EQ
        return Condition(clause.property, sign, _side(clause.value, constants))
    left, right = _side(clause.left, constants), _side(clause.right, constants)
    if isinstance(left, Cell) and not isinstance(right, Cell) and clause.operator in FLIPPED:
        return Condition(right, FLIPPED[clause.operator], left)
    return Condition(left, clause.operator, right)


def evaluate_condition(condition: Condition, value: Callable[[ConditionSide], Operand], count: int) -> np.ndarray:
    """Where the condition is TRUE, for `count` rows; `value` gives a side's column."""
    left, right = value(condition.left), value(condition.right)
    if condition.sign is ComparisonOperator.CONTAINS:
        return contains(left, right, count)
    if condition.sign is ComparisonOperator.STARTS_WITH:
        return starts_with(left, right, count)
    return compare(condition.sign, left, right, count)


def _side(value: TypedExpr, constants: Constants) -> ConditionSide:
    cell = constants.cell(value)
    if cell is not None:
        return cell
    if not isinstance(value, (PropertyValue, TextMatch)):
        raise GitopsError(Code.QUERY_UNSUPPORTED, "a rank only orders rows and cannot be compared")
    return value


def _shown(side: ConditionSide) -> str:
    if isinstance(side, Cell):
        return side.label
    if isinstance(side, PropertyValue):
        return f"${side.variable}.{side.name}"
    return f"{side.function}(${side.field.variable}.{side.field.name}, ..)"
