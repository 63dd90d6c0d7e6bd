"""The conditions that rows must satisfy, and the constants in them.

Constants are literals, parameters and `now()`, read once before anything else happens. A cell is the value in a column, as in
`gitops.database.graph.values`: dates are days, times are milliseconds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.values import FLIPPED, CellError, compared_with, json_to_cell, nearest_single
from gitops.database.language.query import CheckedQuery, ComparisonOperator
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.query.typed import (
    Constant,
    Filter,
    NowValue,
    PairTest,
    ParameterValue,
    PropertyValue,
    TextFilter,
    TextMatch,
    TypedExpr,
)
from gitops.database.language.schema import PropType, Scalar

__all__ = ["Cell", "Condition", "ConditionSide", "Constants", "read_condition"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = (Scalar.DATE, Scalar.DATETIME)


@dataclass(frozen=True, slots=True)
class Cell:
    """One value that is the same for every row; None is null. `label` names it in explanations, a parameter by its name."""

    value: Any
    type: PropType
    label: str


class Constants:
    """The constants of one run."""

    def __init__(self, query: CheckedQuery, params: object, now: datetime) -> None:
        """Take the parameters.

        Raises GitopsError `query_params_invalid` for a parameter that is missing, null, or of another type.
        """
        try:
            values = coerce_params(query.params, params)
        except ParameterError as error:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=error.parameter or "") from error
        self._now = (now - _EPOCH) // timedelta(milliseconds=1)
        self._params: dict[str, Cell] = {}
        for name, value in values.items():
            kind = query.params[name]
            try:
                self._params[name] = Cell(_read(value, kind), kind, f"${name}")
            except CellError:
                # The message of the error shows the value, which may be a secret.
                what = f"invalid {kind.scalar} literal" if kind.scalar in _TEXTS else "the text is not valid Unicode"
                raise GitopsError(Code.QUERY_PARAMS_INVALID, f"param '{name}': {what}", path=name) from None

    def cell(self, value: TypedExpr) -> Cell | None:
        """The cell of a constant; None when the value differs from row to row.

        Raises GitopsError `query_literal_invalid` for a date or time that is none.
        """
        if isinstance(value, ParameterValue):
            return self._params[value.name]
        if isinstance(value, NowValue):
            return Cell(self._now, value.type, "now()")
        if isinstance(value, Constant):
            try:
                return Cell(_read(value.value, value.type), value.type, repr(value.value))
            except CellError as error:
                raise GitopsError(Code.QUERY_LITERAL_INVALID, str(error)) from error
        return None


def _read(value: Any, kind: PropType) -> Any:
    """The cell of a value that has been checked, but for what is text until it is used."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        item = PropType(kind.scalar)
        return [_read(each, item) for each in value] if kind.scalar is not Scalar.VECTOR else [float(v) for v in value]
    if kind.scalar is Scalar.F32:
        # A parameter of 32 bits equals a property of 32 bits that was given the same number.
        return nearest_single(value)
    if kind.scalar in _TEXTS:
        return json_to_cell(value, kind)
    if isinstance(value, str):
        return json_to_cell(value, PropType(Scalar.STRING))
    return value


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
        shown = []
        for side in (self.left, self.right):
            if isinstance(side, Cell):
                shown.append(side.label)
            elif isinstance(side, PropertyValue):
                shown.append(f"${side.variable}.{side.name}")
            else:
                shown.append(f"{side.function}(${side.field.variable}.{side.field.name}, ..)")
        return f" {self.sign} ".join(shown)


def read_condition(clause: Filter | PairTest | TextFilter, constants: Constants) -> Condition:
    """The condition of a clause. Raises GitopsError `query_literal_invalid`; `query_unsupported` for a rank."""
    if isinstance(clause, TextFilter):
        return Condition(clause.match, ComparisonOperator.EQ, Cell(True, PropType(Scalar.BOOL), "true"))
    if isinstance(clause, PairTest):
        sign = ComparisonOperator.CONTAINS if clause.membership else ComparisonOperator.EQ
        return _condition(clause.property, sign, _side(clause.value, constants))
    left, right = _side(clause.left, constants), _side(clause.right, constants)
    if isinstance(left, Cell) and not isinstance(right, Cell) and clause.operator in FLIPPED:
        return _condition(right, FLIPPED[clause.operator], left)
    return _condition(left, clause.operator, right)


def _condition(left: ConditionSide, sign: ComparisonOperator, right: ConditionSide) -> Condition:
    """The condition, with a constant beside a property as it is compared with that."""
    if isinstance(left, PropertyValue) and isinstance(right, Cell):
        right = replace(right, value=compared_with(left.type, right.value))
    elif isinstance(right, PropertyValue) and isinstance(left, Cell):
        left = replace(left, value=compared_with(right.type, left.value))
    return Condition(left, sign, right)


def _side(value: TypedExpr, constants: Constants) -> ConditionSide:
    cell = constants.cell(value)
    if cell is not None:
        return cell
    if not isinstance(value, (PropertyValue, TextMatch)):
        raise GitopsError(Code.QUERY_UNSUPPORTED, "a rank only orders rows and cannot be compared")
    return value
