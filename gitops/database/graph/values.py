"""Converts property values from JSON to column cells and back, strictly and without guessing or silent rounding.

A cell is a value in a column: string, boolean, number, days since 1970-01-01 for Date, milliseconds since 1970-01-01
for DateTime, bytes for Blob, a list of cells for a list or a vector.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import operator
import re
import struct
from array import array
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from gitops.database.language.query import ComparisonOperator
from gitops.database.language.schema import PropType, Scalar

_INTEGERS: Mapping[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = (date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY)
MOMENTS = (DAYS[0] * 86_400_000, (DAYS[1] + 1) * 86_400_000 - 1)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
_DAY_MS = 86_400_000


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
"""Each comparison operator's equivalent with exchanged sides."""


class CellError(ValueError):
    """A JSON value that does not match its property. The message describes the expected value."""


def json_to_cell(value: Any, kind: PropType) -> Any:
    """Convert a non-null JSON value to a cell. Enum members are checked by `unknown_member`. Raises CellError."""
    read = _READERS[kind.scalar]
    if not kind.is_list:
        return read(value, kind)
    if not isinstance(value, list):
        raise CellError(f"expects a JSON array for {kind}")
    return [read(item, kind) for item in value]


def unknown_member(cell: Any, kind: PropType) -> str | None:
    """Return the first string in the cell that is not a member of the enum.

    Returns None if all are members, or if the property has no enum.
    """
    if kind.enum_values is None:
        return None
    texts = cell if kind.is_list else [cell]
    return next((text for text in texts if text not in kind.enum_values), None)


def cell_to_json(cell: Any, kind: PropType) -> Any:
    """Convert a cell to a JSON value: dates as strings, non-finite floats by name, blobs as `base64:` strings.

    Non-finite vector components become null.
    """
    if cell is None:
        return None
    if kind.scalar is Scalar.VECTOR:
        return [_float_to_json(each, single=True) if math.isfinite(each) else None for each in cell]
    if kind.is_list:
        item = PropType(kind.scalar, dimension=None)
        return [cell_to_json(each, item) for each in cell]
    if kind.scalar is Scalar.DATE:
        return date.fromordinal(cell + _EPOCH_DAY).isoformat()
    if kind.scalar is Scalar.DATETIME:
        moment = _EPOCH + timedelta(milliseconds=cell)
        return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    if kind.scalar is Scalar.BLOB:
        return "base64:" + base64.b64encode(cell).decode()
    if kind.scalar in (Scalar.F32, Scalar.F64):
        return _float_to_json(cell, single=kind.scalar is Scalar.F32)
    return cell


def key_text(cell: Any, kind: PropType) -> str:
    """Return the canonical text of a key column's cell, from which ids are derived."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if kind.scalar in (Scalar.F32, Scalar.F64):
        shortest = _float_to_json(cell, single=kind.scalar is Scalar.F32)
        return "0" if shortest == 0 else str(shortest).removesuffix(".0")
    return str(cell)


def compact_json(value: Any) -> str:
    """Format a value as JSON without spaces, with unescaped Unicode."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def nearest_single(value: float) -> float:
    """Return the 32-bit float nearest to a number, or infinity if the number is out of range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def compared_with(kind: PropType, number: Any) -> Any:
    """Convert a number or a list of numbers for comparison with cells of this type.

    For 32-bit cells, the number is rounded to the nearest 32-bit float, so 0.1 equals a stored 0.1. Other values are
    unchanged.
    """
    if kind.scalar not in (Scalar.F32, Scalar.VECTOR) or number is None:
        return number
    if isinstance(number, (list, tuple)):
        return [compared_with(kind, each) for each in number]
    rounded = nearest_single(number)
    return rounded if math.isfinite(rounded) else number


def is_unicode(text: str) -> bool:
    """Return whether a string can be stored. A string with a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any, kind: PropType) -> str:
    if not isinstance(value, str):
        raise _expected(kind, value)
    if not (value.isascii() or is_unicode(value)):
        raise CellError(f"expects {kind}, but the text contains half of a surrogate pair")
    return value


def _truth(value: Any, kind: PropType) -> bool:
    if not isinstance(value, bool):
        raise _expected(kind, value)
    return value


def _integer(value: Any, kind: PropType) -> int:
    low, high = _INTEGERS[kind.scalar]
    if type(value) is not int or not low <= value <= high:
        raise _expected(kind, value)
    return value


def _float(value: Any, kind: PropType) -> float:
    if type(value) not in (int, float):
        raise _expected(kind, value)
    try:
        number = float(value)
        if kind.scalar is not Scalar.F64:
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise _expected(kind, value) from None
    if not math.isfinite(number):
        raise _expected(kind, value)
    if type(value) is int and number != value:
        # An integer stays exact (K15); a decimal is rounded to the nearest float.
        raise CellError(f"cannot convert {value} to {kind} exactly")
    return number


def _date(value: Any, kind: PropType) -> int:
    if type(value) is int and DAYS[0] <= value <= DAYS[1]:
        return value
    cell = _read_moment(value) if isinstance(value, str) else None
    if cell is None:
        raise CellError(
            f"invalid Date literal {_excerpt(value)}: expects {kind} as YYYY-MM-DD or days since 1970-01-01"
        )
    return cell // _DAY_MS


def _datetime(value: Any, kind: PropType) -> int:
    if type(value) is int and MOMENTS[0] <= value <= MOMENTS[1]:
        return value
    cell = _read_moment(value) if isinstance(value, str) else None
    if cell is None:
        what = "ISO 8601 text or milliseconds since 1970"
        raise CellError(f"invalid DateTime literal {_excerpt(value)}: expects {kind} as {what}")
    return cell


def _read_moment(text: str) -> int | None:
    """Parse a date (at midnight), or a date with a time (RFC 3339; UTC without an offset), to milliseconds; or None."""
    try:
        if day := _DATE.fullmatch(text):
            return (date(*map(int, day.groups())).toordinal() - _EPOCH_DAY) * _DAY_MS
        if moment := _MOMENT.fullmatch(text):
            day_text, time, fraction, zone = moment.groups()
            at = datetime.fromisoformat(f"{day_text}T{time}{'+00:00' if zone in (None, 'Z', 'z') else zone}")
            cell = (at - _EPOCH) // timedelta(seconds=1) * 1000 + int((fraction or "0")[:3].ljust(3, "0"))
            return cell if MOMENTS[0] <= cell <= MOMENTS[1] else None
    except (ValueError, OverflowError):
        pass
    return None


def _vector(value: Any, kind: PropType) -> list[float]:
    if not isinstance(value, list):
        raise _expected(kind, value)
    if len(value) != kind.dimension:
        raise CellError(f"expects {kind.dimension} dimensions, got {len(value)}")
    if set(map(type, value)) <= {int, float}:
        # The common case, at C speed. Numbers that do not fit are checked one by one for the message.
        try:
            cells = array("f", value).tolist()
        except OverflowError:
            cells = [math.inf]
        if all(map(math.isfinite, cells)):
            return cells
    return [_float(item, kind) for item in value]


def _blob(value: Any, kind: PropType) -> bytes:
    if isinstance(value, str) and value.startswith("base64:"):
        try:
            return base64.b64decode(value.removeprefix("base64:"), validate=True)
        except (binascii.Error, ValueError):
            pass
    raise CellError(f"expects {kind} as base64:<data>; outside references are not followed")


_READERS: Mapping[Scalar, Callable[[Any, PropType], Any]] = {
    Scalar.STRING: _text,
    Scalar.BOOL: _truth,
    Scalar.I32: _integer,
    Scalar.I64: _integer,
    Scalar.U32: _integer,
    Scalar.U64: _integer,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.VECTOR: _vector,
    Scalar.BLOB: _blob,
}


def _float_to_json(number: float, *, single: bool) -> float | str:
    """Return the shortest number that gives the same float when read back; NaN and infinities by name."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if single:
        for digits in range(6, 9):
            short = float(f"{number:.{digits}g}")
            if abs(short) < _MAX_SINGLE and struct.pack("<f", short) == struct.pack("<f", number):
                return short
    return number


_MAX_SINGLE = 3.4028235e38


def _expected(kind: PropType, value: Any) -> CellError:
    return CellError(f"expects {kind}, got {_excerpt(value)}")


def _excerpt(value: Any) -> str:
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004 - longer than any number in a column
        return "a number of more than 128 bits"
    return json.dumps(value)[:60]
