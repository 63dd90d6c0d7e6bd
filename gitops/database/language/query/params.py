"""Reads parameter values from a JSON object (standard mode)."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import TYPE_CHECKING

from gitops.database.language.schema.types import INTEGERS, NUMERIC, PropType, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SIGNED = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]{1,20}", re.ASCII)
_RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
_ENGINE_MAXIMUM = 2**63 - 1
_F32_MAXIMUM = float.fromhex("0x1.fffffep+127")
_TEXTS = {
    Scalar.STRING: "string",
    Scalar.DATE: "date string",
    Scalar.DATETIME: "datetime string",
    Scalar.BLOB: "blob URI string",
}


class ParameterCode(StrEnum):
    """The reason why a parameter object was rejected."""

    NOT_AN_OBJECT = "params_not_an_object"
    MISSING = "param_missing"
    NULL = "param_null"
    WRONG_TYPE = "param_wrong_type"
    OUT_OF_RANGE = "param_out_of_range"


class ParameterError(Exception):
    """A parameter object is invalid. `parameter` names the invalid parameter, or is None for the whole object."""

    def __init__(self, code: ParameterCode, parameter: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.parameter = parameter
        self.message = message


def coerce_params(types: Mapping[str, PropType], values: object) -> dict[str, Any]:
    """Parse the values of all declared parameters from JSON. Return them in declared order.

    `values` is a JSON object, or None if there are none. An omitted or null nullable parameter becomes None, integers
    and floats become `int` and `float`, and lists and vectors become `list`. Dates, times and blobs stay strings, which
    are parsed when they are used. Undeclared members are ignored. Raises `ParameterError` for the first parameter that
    is missing (K6), null or of the wrong type.
    """
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ParameterError(ParameterCode.NOT_AN_OBJECT, None, "params must be a JSON object")
    found: dict[str, Any] = {}
    for name, kind in types.items():
        value = values.get(name)
        if value is None and not kind.nullable:
            if name in values:
                message = f"param '{name}': null is not accepted for non-nullable parameter of type {kind}"
                raise ParameterError(ParameterCode.NULL, name, message)
            raise ParameterError(ParameterCode.MISSING, name, f"parameter '{name}' not provided")
        found[name] = None if value is None else _Coercion(name).value(kind, value)
    return found


class _Coercion:
    """Converts one parameter; every error contains its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def value(self, kind: PropType, value: Any) -> Any:
        if kind.is_list:
            if not isinstance(value, list):
                raise self._wrong(f"expected array for [{kind.scalar}]", value)
            return [self._scalar(kind.scalar, item) for item in value]
        if kind.scalar is Scalar.VECTOR:
            return self._vector(kind.dimension or 0, value)
        return self._scalar(kind.scalar, value)

    def _scalar(self, scalar: Scalar, value: Any) -> Any:
        if scalar in INTEGERS:
            return self._integer(scalar, value)
        if scalar in NUMERIC:
            return self._float(scalar, value)
        if scalar is Scalar.BOOL:
            if not isinstance(value, bool):
                raise self._wrong("expected boolean", value)
            return value
        if not isinstance(value, str):
            raise self._wrong(f"expected {_TEXTS[scalar]}", value)
        return value

    def _integer(self, scalar: Scalar, value: Any) -> int:
        low, high = _RANGES[scalar]
        what = "expected integer" if low else "expected unsigned integer"
        if isinstance(value, str):
            if (_SIGNED if low else _UNSIGNED).fullmatch(value) is None:
                raise self._error(ParameterCode.WRONG_TYPE, f"{what} string, got other text")
            number = int(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(what, value)
        elif isinstance(value, float) or (low == 0 and value < 0):
            raise self._wrong(f"{what} number", value)
        else:
            number = value
        if not low <= number <= high:
            raise self._error(ParameterCode.OUT_OF_RANGE, f"{what}; the value exceeds {scalar}")
        if number > _ENGINE_MAXIMUM:
            raise self._error(ParameterCode.OUT_OF_RANGE, f"exceeds current engine range of {scalar}")
        return number

    def _float(self, scalar: Scalar, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong("expected float", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or (scalar is Scalar.F32 and abs(number) > _F32_MAXIMUM):
            raise self._error(ParameterCode.OUT_OF_RANGE, f"expected float; the value exceeds {scalar}")
        return number

    def _vector(self, dimension: int, value: Any) -> list[float]:
        if not isinstance(value, list):
            raise self._wrong(f"expected array for Vector({dimension})", value)
        if len(value) != dimension:
            message = f"expected {dimension} values for Vector({dimension}), got {len(value)}"
            raise self._error(ParameterCode.WRONG_TYPE, message)
        for item in value:
            if isinstance(item, bool) or not isinstance(item, (int, float)):
                raise self._wrong("vector element is not numeric", item)
        return [self._float(Scalar.F32, item) for item in value]

    def _wrong(self, expected: str, value: Any) -> ParameterError:
        """Return an error with the received JSON type, but never the value, because it may be a secret."""
        shapes = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
        return self._error(ParameterCode.WRONG_TYPE, f"{expected}, got {shapes.get(type(value), 'null')}")

    def _error(self, code: ParameterCode, message: str) -> ParameterError:
        return ParameterError(code, self._name, f"param '{self._name}': {message}")
