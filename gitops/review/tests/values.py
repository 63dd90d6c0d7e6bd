"""Values in test files, read by the declared type of a property, a parameter or a result column. Nothing is guessed.

A value becomes the JSON value with which the engine shows it: dates and times as text in UTC, non-finite floats by name.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Any

from gitops.core.clock import parse_timestamp
from gitops.database.language.schema import FLOATS, INTEGERS, PropType, Scalar
from gitops.database.language.suggest import choices
from gitops.database.language.yaml import ScalarType, YamlList, YamlMap, YamlNode, YamlScalar, integer, is_absent, shown

_RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
_LONGEST_INTEGER = 20
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_FLOAT_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class ValueTypeError(Exception):
    """A value is not of its declared type. `node` is its place, `fix` a remedy, if there is a simple one."""

    def __init__(self, node: YamlNode, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.fix = fix


def read_value(node: YamlNode, kind: PropType, *, finite: bool = True) -> Any:
    """Return a value of this type as JSON. Without `finite`, floats can be `.nan` and `.inf`. Raises ValueTypeError."""
    if is_absent(node) or (isinstance(node, YamlScalar) and node.type is ScalarType.NULL):
        if kind.nullable:
            return None
        raise ValueTypeError(node, f"expected {kind}, got null, which this type does not allow")
    if not kind.is_list and kind.scalar is not Scalar.VECTOR:
        return _scalar(node, kind, finite=finite)
    if not isinstance(node, YamlList):
        raise _wrong(node, kind, "write a list, such as [A, B]")
    item = PropType(Scalar.F32) if kind.scalar is Scalar.VECTOR else PropType(kind.scalar, enum_values=kind.enum_values)
    if kind.scalar is Scalar.VECTOR and len(node.items) != kind.dimension:
        raise ValueTypeError(node, f"expected {kind}, got {len(node.items)} numbers")
    return [read_value(each, item, finite=finite) for each in node.items]


def filled(kind: PropType) -> Any:
    """Return what `fill: required` writes for a missing value of this type; None if there is no such value."""
    if kind.is_list:
        return []
    if kind.enum_values is not None:
        return kind.enum_values[0]
    if kind.scalar in INTEGERS or kind.scalar in FLOATS:
        return 0
    plain = {Scalar.STRING: "", Scalar.BOOL: False, Scalar.DATE: "1970-01-01", Scalar.DATETIME: "1970-01-01T00:00:00Z"}
    return plain.get(kind.scalar)


def _scalar(node: YamlNode, kind: PropType, *, finite: bool) -> Any:
    if not isinstance(node, YamlScalar):
        raise _wrong(node, kind)
    if kind.scalar in INTEGERS:
        return _integer(node, kind)
    if kind.scalar in FLOATS:
        return _float(node, kind, finite=finite)
    if kind.scalar is Scalar.BOOL:
        if node.type is not ScalarType.BOOL:
            raise _wrong(node, kind, "write true or false")
        return node.text.lower() == "true"
    if node.type is not ScalarType.TEXT:
        raise _wrong(node, kind, f'put the value in quotes: "{shown(node.text)}"')
    if kind.scalar is Scalar.DATE:
        return _date(node, kind)
    if kind.scalar is Scalar.DATETIME:
        return moment_text(_moment(node, kind))
    if kind.enum_values is not None and node.text not in kind.enum_values:
        raise ValueTypeError(
            node, f"'{shown(node.text)}' is not a member of {kind}{choices(node.text, kind.enum_values)}"
        )
    return node.text


def _integer(node: YamlScalar, kind: PropType) -> int:
    if node.type is not ScalarType.INT or len(node.text) > _LONGEST_INTEGER:
        raise _wrong(node, kind)
    number, (low, high) = integer(node.text), _RANGES[kind.scalar]
    if not low <= number <= high:
        raise ValueTypeError(node, f"{number} is not in the range of {kind}")
    return number


def _float(node: YamlScalar, kind: PropType, *, finite: bool) -> float | str:
    if node.type not in (ScalarType.INT, ScalarType.FLOAT) or len(node.text) > _LONGEST_INTEGER * 2:
        raise _wrong(node, kind)
    text = node.text.lower()
    number = (
        float(integer(text))
        if node.type is ScalarType.INT
        else float(text.replace(".", "", 1) if text.endswith(("inf", "nan")) else text)
    )
    if math.isfinite(number):
        return number
    if finite:
        raise ValueTypeError(node, f"expected a finite number for {kind}")
    return _FLOAT_NAMES[str(number)]


def _date(node: YamlScalar, kind: PropType) -> str:
    try:
        if _DATE.fullmatch(node.text):
            return date.fromisoformat(node.text).isoformat()
    except ValueError:
        pass
    raise _wrong(node, kind, "write it as YYYY-MM-DD")


def _moment(node: YamlScalar, kind: PropType) -> datetime:
    found = parse_timestamp(node.text)
    if found is None:
        raise _wrong(node, kind, "write it as YYYY-MM-DDTHH:MM:SSZ")
    return found


def moment_text(moment: datetime) -> str:
    """Return a time as the engine shows it: in UTC, with milliseconds."""
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _wrong(node: YamlNode, kind: PropType, fix: str | None = None) -> ValueTypeError:
    if isinstance(node, YamlScalar):
        got = f"the {node.type.value} '{shown(node.text)}'"
    else:
        got = "a mapping" if isinstance(node, YamlMap) else "a list"
    return ValueTypeError(node, f"expected {kind}, got {got}", fix)
