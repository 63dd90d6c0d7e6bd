"""Constants of a query: literals, parameters and `now()` as cells, read once before anything else happens.

A cell is the value in a column, as in `gitops.graph.values`: dates are days, times are milliseconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.values import CellError, json_to_cell
from gitops.language.query import CheckedQuery
from gitops.language.query.params import ParameterError, coerce_params
from gitops.language.query.typed import Constant, NowValue, ParameterValue, TypedExpr
from gitops.language.schema import PropType, Scalar

__all__ = ["Cell", "Constants"]

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
        self._params = {name: self._parameter(name, query.params[name], value) for name, value in values.items()}

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

    def _parameter(self, name: str, kind: PropType, value: Any) -> Cell:
        try:
            return Cell(_read(value, kind), kind, f"${name}")
        except CellError:
            # The message of the error shows the value, which may be a secret.
            what = f"invalid {kind.scalar} literal" if kind.scalar in _TEXTS else "the text is not valid Unicode"
            raise GitopsError(Code.QUERY_PARAMS_INVALID, f"param '{name}': {what}", path=name) from None


def _read(value: Any, kind: PropType) -> Any:
    """The cell of a value that has been checked, but for what is text until it is used."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        item = PropType(kind.scalar)
        return [_read(each, item) for each in value] if kind.scalar is not Scalar.VECTOR else [float(v) for v in value]
    if kind.scalar is Scalar.F32:
        # A parameter of 32 bits equals a property of 32 bits that was given the same number.
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if kind.scalar in _TEXTS:
        return json_to_cell(value, kind)
    if isinstance(value, str):
        return json_to_cell(value, PropType(Scalar.STRING))
    return value
