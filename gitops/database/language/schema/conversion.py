"""Which property types convert to which others, and the values that texts stand for.

A conversion never guesses or rounds: a value converts exactly or not at all. The engine converts whole columns by these
rules (`gitops.database.graph.convert`).
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

from gitops.database.language.schema.types import FLOATS, INTEGERS, NUMERIC, PropType, Scalar

BACKFILL_HINT = "backfill"
"""The annotation with the value for rows that lack one: `@backfill("x")`."""

CONVERT_HINT = "convert"
"""The annotation that allows values to be lost: `@convert(null)`."""

MEMBER_HINT = "rename_member"
"""The annotation with the former and the new name of an enum member: `@rename_member("old", to="new")`."""

RENAME_HINT = "rename_from"
"""The annotation with the former name of a type or property."""

HINTS: Mapping[str, str] = {
    RENAME_HINT: 'The old name, so that a migration renames the item instead of dropping it: `@rename_from("Old")`.',
    BACKFILL_HINT: "The value that a migration gives to rows without one: `@backfill(0)`. Text in quotes, a list as JSON.",
    CONVERT_HINT: "Lets a migration replace values that do not fit the new type by null: `@convert(null)`.",
    MEMBER_HINT: 'The former and the new name of an enum member: `@rename_member("old", to="new")`.',
}
"""Annotations that only say how to migrate, with one line of documentation each.

They have no effect on a schema that is already applied.
"""

LOSING = "null"
"""The only value of `@convert`."""


class Exactness(Enum):
    """Whether all values of one type are values of another, or only those that a check finds."""

    ALWAYS = "always"
    CHECKED = "checked"


_BITS: Mapping[Scalar, int] = {
    Scalar.I32: 31,
    Scalar.U32: 32,
    Scalar.I64: 63,
    Scalar.U64: 64,
    Scalar.F32: 24,
    Scalar.F64: 53,
}
"""How many bits of an integer a number has room for, without the sign."""

_SIGNED = frozenset({Scalar.I32, Scalar.I64, *FLOATS})
_READABLE = NUMERIC | {Scalar.BOOL, Scalar.DATE, Scalar.DATETIME}
INTEGER_BOUNDS: Mapping[Scalar, tuple[int, int]] = {
    each: (-(2 ** _BITS[each]) if each in _SIGNED else 0, 2 ** _BITS[each] - 1) for each in INTEGERS
}
"""The lowest and highest value of each integer type."""


def convertible(old: PropType, new: PropType, renamed: Mapping[str, str] | None = None) -> Exactness | None:
    """Return whether values of `old` convert to `new`, without regard to null. None if the types have nothing in common.

    A single value becomes a list of one value, and a list becomes a value if it has exactly one. `renamed` maps former
    to new names of enum members.
    """
    if Scalar.VECTOR in (old.scalar, new.scalar) or Scalar.BLOB in (old.scalar, new.scalar):
        return Exactness.ALWAYS if old._replace(nullable=new.nullable) == new else None
    if old.is_list and new.is_list and old.scalar is not new.scalar:
        return None
    found = _scalars(old, new, renamed or {})
    return Exactness.CHECKED if found is not None and old.is_list and not new.is_list else found


def _scalars(old: PropType, new: PropType, renamed: Mapping[str, str]) -> Exactness | None:
    if new.enum_values is not None:
        if old.scalar is not Scalar.STRING:
            return None
        known = None if old.enum_values is None else {renamed.get(each, each) for each in old.enum_values}
        return Exactness.ALWAYS if known is not None and known <= set(new.enum_values) else Exactness.CHECKED
    before, after = old.scalar, new.scalar
    if old.enum_values is not None and after is not Scalar.STRING:
        return None
    if before is after or after is Scalar.STRING or (before, after) == (Scalar.DATE, Scalar.DATETIME):
        return Exactness.ALWAYS
    if before is Scalar.STRING and after in _READABLE:
        return Exactness.CHECKED
    if before in NUMERIC and after in NUMERIC:
        signed = after in _SIGNED or before not in _SIGNED
        whole = before in INTEGERS or after in FLOATS
        return Exactness.ALWAYS if signed and whole and _BITS[before] <= _BITS[after] else Exactness.CHECKED
    return Exactness.CHECKED if (before, after) == (Scalar.DATETIME, Scalar.DATE) else None


def keeps_text(old: PropType, new: PropType) -> bool:
    """Return whether a converted key value gives the same id as before."""
    written_alike = INTEGERS | {Scalar.STRING, Scalar.BOOL}
    return old.scalar is new.scalar or (old.scalar in written_alike and new.scalar in written_alike)


_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
"""How an integer is always written, so that a text and its number are the same key."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,3}))?Z", re.ASCII)
_HALF = re.compile("[\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def read_text(text: str, kind: PropType) -> Any:
    """Return the value that a text stands for: a number, a boolean, days or milliseconds since 1970-01-01, or a string.

    A list is written in JSON. None if the text is not exactly one value of the type.
    """
    if kind.is_list:
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            return None
        single = PropType(kind.scalar)
        cells = [
            read_text(each if isinstance(each, str) else json.dumps(each), single)
            for each in (items if isinstance(items, list) else [None])
            if each is not None
        ]
        return None if not isinstance(items, list) or len(cells) != len(items) or None in cells else cells
    if kind.enum_values is not None:
        return text if text in kind.enum_values else None
    return _read_scalar(text, kind.scalar)


def _read_scalar(text: str, scalar: Scalar) -> Any:
    if scalar is Scalar.STRING:
        # A JSON escape can write half of a surrogate pair, which no column stores.
        return None if _HALF.search(text) else text
    if scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text)
    if scalar in INTEGERS:
        low, high = INTEGER_BOUNDS[scalar]
        fits = len(text) < 24 and _INTEGER.fullmatch(text) and low <= int(text) <= high  # noqa: PLR2004 - over 64 bits
        return int(text) if fits else None
    if scalar in FLOATS:
        number = float(text) if _NUMBER.fullmatch(text) else math.inf
        if scalar is Scalar.F32 and math.isfinite(number):
            try:
                (number,) = struct.unpack("<f", struct.pack("<f", number))
            except OverflowError:
                return None
        return number if math.isfinite(number) else None
    try:
        if scalar is Scalar.DATE:
            return (
                date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal() if _DATE.fullmatch(text) else None
            )
        found = _MOMENT.fullmatch(text) if scalar is Scalar.DATETIME else None
        if found is None:
            return None
        moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MS + int((found[2] or "0").ljust(3, "0"))
    except ValueError:
        return None
