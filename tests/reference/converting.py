"""What a changed property type makes of one value: the rules of conversions, value by value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gitops.database.language.schema import PropType, Scalar
from tests.reference.cells import EPOCH, RANGES, single

DAY = 86_400_000
_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_PLAIN_EXPONENTS = range(-5, 15)


class DoesNotConvertError(Exception):
    """The value is not exactly one of the new type."""


def convert(cell: Any, old: PropType, new: PropType, renamed: Mapping[str, str]) -> Any:
    """The cell of the new type. Raises DoesNotConvertError."""
    if cell is None or (old.is_list and new.is_list):
        return cell
    if old.is_list:
        if len(cell) != 1 or cell[0] is None:
            raise DoesNotConvertError
        (cell,) = cell
    made = _scalar(cell, old, new, renamed)
    return [made] if new.is_list else made


def _scalar(cell: Any, old: PropType, new: PropType, renamed: Mapping[str, str]) -> Any:
    before, after = old.scalar, new.scalar
    if new.enum_values is not None:
        cell = renamed.get(cell, cell)
        return _require(cell, cell in new.enum_values)
    if before is after:
        return cell
    if after is Scalar.STRING:
        return spelled(cell, before)
    if before is Scalar.STRING:
        return read(cell, after)
    if (before, after) == (Scalar.DATE, Scalar.DATETIME):
        return cell * DAY
    if (before, after) == (Scalar.DATETIME, Scalar.DATE):
        return _require(cell // DAY, cell % DAY == 0)
    if after in RANGES:
        return int(_require(cell, math.isfinite(cell) and cell == int(cell) and _fits(int(cell), after)))
    made = single(float(cell)) if after is Scalar.F32 else float(cell)
    return _require(made, made == cell or cell != cell)  # noqa: PLR0124 - not a number


def _fits(number: int, scalar: Scalar) -> bool:
    low, high = RANGES[scalar]
    return low <= number <= high


def _require(cell: Any, holds: bool) -> Any:
    if not holds:
        raise DoesNotConvertError
    return cell


def spelled(cell: Any, scalar: Scalar) -> str:
    """The text of a cell: that of its JSON, with as few digits as give the same number again."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if scalar is Scalar.DATE:
        return (EPOCH.date() + timedelta(days=cell)).isoformat()
    if scalar is Scalar.DATETIME:
        return (EPOCH + timedelta(milliseconds=cell)).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(cell, int):
        return str(cell)
    if not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    if scalar is Scalar.F32:
        cell = next(short for digits in range(1, 18) if single(short := float(f"{cell:.{digits}g}")) == cell)
    sign = "-" if math.copysign(1, cell) < 0 else ""
    digits = "".join(map(str, Decimal(repr(abs(cell))).normalize().as_tuple().digits))
    exponent = 0 if cell == 0 else Decimal(repr(cell)).adjusted()
    if exponent in _PLAIN_EXPONENTS:
        return sign + format(Decimal(repr(abs(cell))).normalize(), "f")
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if exponent > 0 else '-'}{abs(exponent)}"


def read(text: str, scalar: Scalar) -> Any:
    """The cell that a text of JSON stands for."""
    if scalar is Scalar.BOOL:
        return _require(text == "true", text in ("true", "false"))
    if scalar in RANGES:
        return int(_require(text, _WHOLE.fullmatch(text) is not None and _fits(int(Decimal(text)), scalar)))
    if scalar in (Scalar.F32, Scalar.F64):
        number = float(_require(text, _DECIMAL.fullmatch(text) is not None))
        number = single(number) if scalar is Scalar.F32 else number
        return _require(number, math.isfinite(number))
    form = r"(\d{4}-\d\d-\d\d)" + ("" if scalar is Scalar.DATE else r"T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?Z")
    found = _require(re.fullmatch(form, text, re.ASCII), re.fullmatch(form, text, re.ASCII) is not None)
    try:
        days = (EPOCH.date().fromisoformat(found[1]) - EPOCH.date()).days
    except ValueError:
        raise DoesNotConvertError from None
    if scalar is Scalar.DATE:
        return days
    hour, minute, second = map(int, found.groups()[1:4])
    _require(None, hour < 24 and minute < 60 and second < 60)
    return days * DAY + (hour * 3600 + minute * 60 + second) * 1000 + int((found[5] or "0").ljust(3, "0"))
