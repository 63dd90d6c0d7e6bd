"""The values of a statement as cells: constants, parameters and the instant of `now()`.

A written value becomes the cell of its property. A compared value stays a number as it was given, since numbers of different
types compare exactly (K12), but for 32-bit floats; and a text of a date or time becomes its cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.values import CellError, compared_with, json_to_cell, nearest_single
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.query.typed import Constant, NowValue, ParameterValue, TypedExpr
from gitops.database.language.schema import INTEGERS, NUMERIC, PropType, Scalar

__all__ = ["Operands", "mutation_error"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mutation_error(message: str) -> GitopsError:
    """A mutation that does not fit the schema or the graph."""
    return GitopsError(Code.MUTATION_INVALID, message)


@dataclass(frozen=True, slots=True)
class Operands:
    """The parameters of one run, and its instant in milliseconds since 1970."""

    params: Mapping[str, Any]
    now: int

    @classmethod
    def of(cls, types: Mapping[str, PropType], params: object, now: datetime) -> Operands:
        """Read the parameters. Raises GitopsError `query_params_invalid` for the first that is missing or does not fit."""
        try:
            values = coerce_params(types, params)
        except ParameterError as error:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=error.parameter or "") from error
        return cls(values, (now - _EPOCH) // timedelta(milliseconds=1))

    def written(self, value: TypedExpr, kind: PropType, place: str) -> Any:
        """The cell that a property of this type gets, or None. Raises GitopsError `mutation_invalid`."""
        raw = self._raw(value)
        if raw is None or isinstance(value, NowValue):
            return raw
        try:
            if kind.scalar not in NUMERIC:
                return json_to_cell(raw, kind)
            return [_number(item, kind) for item in raw] if kind.is_list else _number(raw, kind)
        except CellError as error:
            raise mutation_error(f"{place} {error}") from error

    def compared(self, value: TypedExpr, kind: PropType, place: str) -> Any:
        """What cells of this type are compared with; None compares with nothing. Raises GitopsError `mutation_invalid`."""
        raw = self._raw(value)
        if raw is None or isinstance(value, NowValue):
            return raw
        if kind.scalar in (*NUMERIC, Scalar.VECTOR):
            return compared_with(kind, raw)
        try:
            return json_to_cell(raw, PropType(kind.scalar, is_list=kind.is_list))
        except CellError as error:
            raise mutation_error(f"{place} {error}") from error

    def _raw(self, value: TypedExpr) -> Any:
        if isinstance(value, NowValue):
            return self.now
        if not isinstance(value, ParameterValue):
            if not isinstance(value, Constant):
                raise TypeError(f"{type(value).__name__} is not a value of a statement")
            return list(value.value) if isinstance(value.value, tuple) else value.value
        raw = self.params[value.name]
        if raw is None or value.type.scalar is not Scalar.F32:
            return raw
        # A parameter that is declared F32 holds an F32.
        return [nearest_single(item) for item in raw] if isinstance(raw, list) else nearest_single(raw)


def _number(value: Any, kind: PropType) -> Any:
    """An integer becomes a float only if it stays what it is, a float an integer only if it is whole (K15)."""
    if kind.scalar in INTEGERS and isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_to_cell(value, PropType(kind.scalar, nullable=kind.nullable))
