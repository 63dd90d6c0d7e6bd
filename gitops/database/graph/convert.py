"""Converts columns from one property type to another, by the rules in `gitops.database.language.schema.conversion`.

Whole columns are converted with Arrow. Only texts that are not written in the usual form are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.database.graph.tables import arrow_field, raw_type
from gitops.database.language.schema import FLOATS, INTEGERS, NUMERIC, PropType, Scalar
from gitops.database.language.schema.conversion import INTEGER_BOUNDS, Exactness, convertible, read_text
from gitops.database.language.schema.steps import ChangeType

_DAY_MS = 86_400_000
_SHORT_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"
_NON_FINITE: Mapping[str, str] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def convert_column(column: pa.Array, step: ChangeType) -> tuple[pa.Array, pa.Array]:
    """Convert a column, without the step's backfill. Returns the new column, and a mask of the values that do not convert.

    These are null in the new column.
    """
    old, new = step.from_, step.to
    values = column
    if old.is_list and not new.is_list:
        single = pc.fill_null(pc.equal(pc.list_value_length(column), 1), fill_value=False)
        values = pc.list_element(pc.if_else(single, column, pa.scalar(None, column.type)), 0)
    if old.is_list and new.is_list:
        converted = column
    else:
        converted = _convert(values, old, new, dict(step.renamed))
        if new.is_list:
            converted = _wrapped(converted)
    wanted = arrow_field("cells", new).type
    converted = converted if converted.type == wanted else converted.cast(wanted)
    return converted, pc.and_(pc.is_valid(column), pc.is_null(converted))


def filled(column: pa.Array, kind: PropType, text: str) -> pa.Array:
    """Return the column with the value that `text` stands for in place of null."""
    return pc.if_else(pc.is_valid(column), column, constant(kind, text, 1)[0])


def constant(kind: PropType, text: str, rows: int) -> pa.Array:
    """Return a column with the value that `text` stands for in every row."""
    wanted = arrow_field("cells", kind).type
    cell = pa.array([read_text(text, kind)], raw_type(wanted)).cast(wanted)
    return pa.repeat(cell[0], rows)


def _wrapped(values: pa.Array) -> pa.Array:
    """Return a list of one value for each value, and null for null."""
    known = pc.is_valid(values)
    counts = np.concatenate(([0], np.cumsum(known.to_numpy(zero_copy_only=False))))
    items = values.drop_null()
    listed = pa.list_(pa.field("item", values.type))
    return pa.ListArray.from_arrays(pa.array(counts, pa.int32()), items, type=listed, mask=pc.invert(known))


def _convert(column: pa.Array, old: PropType, new: PropType, renamed: Mapping[str, str]) -> pa.Array:
    if new.enum_values is not None:
        for before, after in renamed.items():
            column = pc.if_else(pc.equal(column, before), pa.scalar(after), column)
        return _kept(column, pc.is_in(column, pa.array(new.enum_values, pa.string())))
    before, after = old.scalar, new.scalar
    if before is after:
        return column
    if after is Scalar.STRING:
        return _spelled(column, before)
    if before is Scalar.STRING:
        return _read(column, PropType(after))
    if before in NUMERIC:
        return _numbers(column, before, after)
    cells = column.cast(raw_type(column.type)).cast(pa.int64())
    if after is Scalar.DATETIME:
        return pc.multiply(cells, _DAY_MS).view(pa.date64())
    days = pc.cast(pc.floor(pc.divide(cells.cast(pa.float64()), float(_DAY_MS))), pa.int64())
    return _kept(days.cast(pa.int32()).view(pa.date32()), pc.equal(pc.multiply(days, _DAY_MS), cells))


def _kept(column: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the column with null where the mask is not true."""
    return pc.if_else(mask, column, pa.scalar(None, column.type))


def _numbers(column: pa.Array, before: Scalar, after: Scalar) -> pa.Array:
    if convertible(PropType(before), PropType(after)) is Exactness.ALWAYS:
        return column.cast(arrow_field("cells", PropType(after)).type)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    read = column.fill_null(0).to_numpy(zero_copy_only=False)
    wanted: Any = arrow_field("cells", PropType(after)).type.to_pandas_dtype()
    with np.errstate(over="ignore", invalid="ignore"):
        if after in INTEGERS:
            low, high = INTEGER_BOUNDS[after]
            # The bounds are compared in the column's own type, or as powers of two if that has no room for them.
            exact = (read >= low) & (read < float(high + 1)) if before in FLOATS else _within(read, low, high)
            exact &= read == np.trunc(read)
            made = np.where(exact, read, 0).astype(wanted)
        else:
            made = read.astype(wanted)
            if before in FLOATS:
                exact = (made == read) | np.isnan(read)
            else:
                limit = float(INTEGER_BOUNDS[before][1] + 1)
                back = np.where(made < limit, made, 0).astype(read.dtype)
                exact = (made < limit) & (back == read)
    return pa.array(made, mask=missing | ~exact)


def _within(read: np.ndarray[Any, Any], low: int, high: int) -> np.ndarray[Any, Any]:
    own = np.iinfo(read.dtype)
    return (read >= max(low, own.min)) & (read <= min(high, own.max))


def _spelled(column: pa.Array, scalar: Scalar) -> pa.Array:
    """Return each value as JSON text without quotes. A float has as few digits as give the same number again."""
    if scalar is Scalar.DATETIME:
        return pc.strftime(column.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
    texts = column.cast(pa.string())
    if scalar in FLOATS:
        for given, name in _NON_FINITE.items():
            texts = pc.if_else(pc.equal(texts, given), pa.scalar(name), texts)
    return texts


def _read(column: pa.Array, kind: PropType) -> pa.Array:
    """Read the value that each text stands for."""
    wanted = arrow_field("cells", kind).type
    try:
        made = _FAST[kind.scalar](column, kind)
    except pa.ArrowException:
        # A date that does not exist, such as 2021-02-30.
        made = pa.nulls(len(column), wanted)
    left = pc.and_(pc.is_valid(column), pc.is_null(made)).to_numpy(zero_copy_only=False)
    if not left.any():
        return made
    rest = pa.array([read_text(text, kind) for text in column.filter(pa.array(left)).to_pylist()], raw_type(wanted))
    return pc.replace_with_mask(made, pa.array(left), rest.cast(wanted))


def _read_integers(column: pa.Array, kind: PropType) -> pa.Array:
    try:
        numbers = column.cast(arrow_field("cells", kind).type)
    except pa.ArrowException:
        numbers = None
    if numbers is not None and _all_usual(column):
        return numbers
    numbers = _kept(column, pc.match_substring_regex(column, _SHORT_INTEGER)).cast(pa.int64())
    return _numbers(numbers, Scalar.I64, kind.scalar)


def _all_usual(column: pa.Array) -> bool:
    """Return whether all texts, each of which Arrow reads as an integer, are written as an integer is written.

    Arrow also reads leading zeros, a negative zero and hexadecimal digits. Most columns have none of these, and seeing
    that takes a small part of the time of a pattern.
    """
    texts = column.drop_null()
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[0] == offsets[-1]:
        return True
    letters = np.frombuffer(data, np.uint8)[: offsets[-1]]
    first, sizes = letters[offsets[:-1]], np.diff(offsets)
    if letters[offsets[0] :].max() > ord("9") or (sizes[first == ord("0")] > 1).any():
        return False
    negative = offsets[:-1][first == ord("-")]
    return not (letters[negative + 1] == ord("0")).any()


def _read_floats(column: pa.Array, kind: PropType) -> pa.Array:
    numbers = _kept(column, pc.match_substring_regex(column, _NUMBER)).cast(pa.float64())
    if kind.scalar is Scalar.F32:
        numbers = numbers.cast(pa.float32(), safe=False)
    return _kept(numbers, pc.is_finite(numbers))


def _read_truths(column: pa.Array, kind: PropType) -> pa.Array:
    del kind
    return _kept(pc.equal(column, "true"), pc.is_in(column, pa.array(["true", "false"])))


def _read_days(column: pa.Array, kind: PropType) -> pa.Array:
    del kind
    return _kept(column, pc.match_substring_regex(column, _DAY)).cast(pa.date32())


def _read_moments(column: pa.Array, kind: PropType) -> pa.Array:
    del kind
    known = _kept(column, pc.match_substring_regex(column, _MOMENT))
    return known.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).view(pa.date64())


_FAST: Mapping[Scalar, Callable[[pa.Array, PropType], pa.Array]] = {
    **dict.fromkeys(INTEGERS, _read_integers),
    **dict.fromkeys(FLOATS, _read_floats),
    Scalar.BOOL: _read_truths,
    Scalar.DATE: _read_days,
    Scalar.DATETIME: _read_moments,
}
