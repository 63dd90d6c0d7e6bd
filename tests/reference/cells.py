"""Cells: what a property holds, how it is read from JSON, compared, and written to JSON.

A cell is a text, a truth value, a number, days since 1970-01-01 (Date), milliseconds since then (DateTime), bytes
(Blob), or a list of cells (lists and vectors). Python compares integers with floats exactly, and texts by code point:
both are just what §3.2 asks for.
"""

from __future__ import annotations

import base64
import binascii
import math
import operator
import re
import struct
from datetime import UTC, date, datetime, timedelta
from typing import Any

from gitops.database.language.query.ast import ComparisonOperator
from gitops.database.language.schema import PropType, Scalar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)", re.ASCII)
LARGEST_SINGLE = float.fromhex("0x1.fffffep+127")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
COMPARISONS = {
    ComparisonOperator.EQ: operator.eq,
    ComparisonOperator.NE: operator.ne,
    ComparisonOperator.LT: operator.lt,
    ComparisonOperator.LE: operator.le,
    ComparisonOperator.GT: operator.gt,
    ComparisonOperator.GE: operator.ge,
}


class Refused(Exception):  # noqa: N818 - a verdict, not a failure of the evaluator
    """The reference does not carry this out; `why` is the rule that forbids it."""

    def __init__(self, why: str, text: str = "") -> None:
        super().__init__(f"{why}: {text}")
        self.why = why


def single(number: float) -> float:
    """The nearest 32-bit float; infinite when out of range."""
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def days(text: str) -> int:
    """The days of a Date text; of one with a time, the day that it is then in UTC."""
    found = DAY.fullmatch(text)
    if found is None:
        return moment(text) // 86_400_000
    try:
        return (date(*map(int, found.groups())) - EPOCH.date()).days
    except ValueError:
        raise Refused("literal", f"invalid Date literal {text!r}") from None


def moment(text: str) -> int:
    """The milliseconds of a DateTime text: no offset is UTC, a bare date is its midnight, finer digits are cut off."""
    if DAY.fullmatch(text):
        return days(text) * 86_400_000
    found = MOMENT.fullmatch(text)
    if found is not None:
        day, time, fraction, offset = found.groups()
        zone = "+00:00" if offset in (None, "Z", "z") else offset
        try:
            whole = datetime.fromisoformat(f"{day}T{time}{zone}")
        except ValueError:
            whole = None
        if whole is not None:
            return (whole - EPOCH) // timedelta(seconds=1) * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    raise Refused("literal", f"invalid DateTime literal {text!r}")


def instant(now: datetime) -> int:
    """The milliseconds of `now()`."""
    return (now - EPOCH) // timedelta(milliseconds=1)


def number(value: Any, scalar: Scalar) -> int | float:
    """A number as its column holds it: integers within range, floats finite at their width."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused("value", f"expects {scalar}, got {value!r}")
    if scalar in RANGES:
        low, high = RANGES[scalar]
        if value != int(value) or not low <= value <= high:
            raise Refused("value", f"{value} is no {scalar}")
        return int(value)
    held = single(value) if scalar in (Scalar.F32, Scalar.VECTOR) else float(value)
    if not math.isfinite(held):
        raise Refused("value", f"{value} is too large for {scalar}")
    return held


def cell_from_json(value: Any, kind: PropType) -> Any:
    """The cell of a JSON value in a record (§5.1, strict). Raises Refused `value`, `literal`, `enum`."""
    if value is None:
        if not kind.nullable:
            raise Refused("null", f"{kind} is required")
        return None
    if kind.is_list:
        if not isinstance(value, list):
            raise Refused("value", f"expects an array for {kind}")
        return [cell_from_json(item, PropType(kind.scalar)) for item in value]
    if kind.scalar is Scalar.VECTOR:
        if not isinstance(value, list) or len(value) != kind.dimension:
            raise Refused("value", f"expects {kind.dimension} dimensions")
        return [number(item, Scalar.VECTOR) for item in value]
    if kind.scalar in RANGES and not isinstance(value, int):
        raise Refused("value", f"expects {kind}, got {value!r}")
    if kind.scalar in RANGES or kind.scalar in (Scalar.F32, Scalar.F64):
        held = number(value, kind.scalar)
        if isinstance(value, int) and held != value:
            raise Refused("value", f"{value} is not exactly a {kind.scalar}")
        return held
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME) and isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, bool if kind.scalar is Scalar.BOOL else str):
        raise Refused("value", f"expects {kind}, got {value!r}")
    return value if kind.scalar is Scalar.BOOL else cell_from_text(value, kind)


def cell_from_text(text: str, kind: PropType) -> Any:
    """The cell of a text, whatever type it stands for."""
    if kind.scalar is Scalar.DATE:
        return days(text)
    if kind.scalar is Scalar.DATETIME:
        return moment(text)
    if kind.scalar is Scalar.BLOB:
        try:
            if text.startswith("base64:"):
                return base64.b64decode(text.removeprefix("base64:"), validate=True)
        except (binascii.Error, ValueError):
            pass
        raise Refused("value", "expects base64:<data>")
    if kind.enum_values is not None and text not in kind.enum_values:
        raise Refused("enum", f"invalid enum value {text!r}")
    return text


def cell_of(value: Any, written: PropType, held: PropType) -> Any:
    """The cell that a constant or parameter of the `written` type becomes in a `held` property (§2.4, K15)."""
    if value is None:
        return None
    if held.is_list:
        inner = PropType(written.scalar), PropType(held.scalar)
        return [cell_of(item, *inner) for item in value]
    if held.scalar is Scalar.VECTOR:
        return [number(item, Scalar.VECTOR) for item in value]
    if isinstance(value, str):
        return cell_from_text(value, held)
    if isinstance(value, bool):
        return value
    cell = number(value, held.scalar)
    if isinstance(value, int) and cell != value:
        raise Refused("value", f"{value} is not exactly a {held.scalar}")
    return cell


def compare(left: Any, sign: ComparisonOperator, right: Any) -> bool:
    """§3.2: whether the comparison is TRUE; with a null it is unknown, which is not TRUE."""
    if left is None or right is None:
        return False
    if sign is ComparisonOperator.CONTAINS:
        return right in left
    if sign is ComparisonOperator.STARTS_WITH:
        return left.startswith(right)
    return COMPARISONS[sign](left, right)


def beside(value: Any, other: PropType) -> Any:
    """A constant as it is compared with a property of this type: beside 32-bit floats it is one, if it is in their range."""
    if isinstance(value, list):
        return [beside(each, other) for each in value]
    if other.scalar not in (Scalar.F32, Scalar.VECTOR) or value is None or math.isinf(single(value)):
        return value
    return single(value)


def to_json(cell: Any, kind: PropType) -> Any:
    """§3.7: the JSON value of a cell."""
    if cell is None:
        return None
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        inner = PropType(Scalar.F32 if kind.scalar is Scalar.VECTOR else kind.scalar)
        if any(isinstance(item, float) for item in cell):
            # A list has one type: with one decimal, a list of literals is a list of decimals.
            cell = [float(item) for item in cell]
        return [to_json(item, inner) for item in cell]
    if kind.scalar is Scalar.DATE:
        return (EPOCH.date() + timedelta(days=cell)).isoformat()
    if kind.scalar is Scalar.DATETIME:
        at = EPOCH + timedelta(milliseconds=cell)
        return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if kind.scalar in (Scalar.F32, Scalar.F64):
        return float_to_json(cell, short=kind.scalar is Scalar.F32)
    return cell


def float_to_json(value: float, *, short: bool) -> float | str:
    """A float; of 32 bits, the shortest decimal in their range that reads back the same."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if short:
        shortest = next(each for digits in range(1, 18) if single(each := float(f"{value:.{digits}g}")) == value)
        return shortest if abs(shortest) <= LARGEST_SINGLE else value
    return value


def key_text(cell: Any, kind: PropType) -> str:
    """§4.2: the canonical text of a key column, of which node ids are made."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        short = float_to_json(cell, short=kind.scalar is Scalar.F32)
        return "0" if short == 0 else str(short).removesuffix(".0")
    return str(cell)
