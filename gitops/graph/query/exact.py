"""Comparisons of columns and constants that never round: three-valued, of which only TRUE counts.

Numbers compare by their mathematical value, whatever their widths; texts by code point, which is the byte order of UTF-8;
false before true; dates and times chronologically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.comparisons import COMPARE, FLIPPED
from gitops.graph.query.cells import Cell
from gitops.language.query import ComparisonOperator

__all__ = ["Operand", "compare", "contains", "starts_with"]

Operand: TypeAlias = "pa.Array | Cell"

_TEXT: Mapping[ComparisonOperator, Callable[[Any, Any], Any]] = {
    ComparisonOperator.EQ: pc.equal,
    ComparisonOperator.NE: pc.not_equal,
    ComparisonOperator.LT: pc.less,
    ComparisonOperator.LE: pc.less_equal,
    ComparisonOperator.GT: pc.greater,
    ComparisonOperator.GE: pc.greater_equal,
}
_TOP = {np.dtype(np.int64): 2.0**63, np.dtype(np.uint64): 2.0**64}
_BOTTOM = {np.dtype(np.int64): -(2.0**63), np.dtype(np.uint64): 0.0}


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Values of one of the widths int64, uint64 and float64, and which of them are there."""

    values: np.ndarray
    valid: np.ndarray


def compare(sign: ComparisonOperator, left: Operand, right: Operand, count: int) -> np.ndarray:
    """Where `left sign right` is TRUE, for `count` rows; not for `contains` and `starts_with`."""
    if any(isinstance(side, Cell) and side.value is None for side in (left, right)):
        return np.zeros(count, bool)
    if isinstance(left, Cell) and isinstance(right, Cell):
        return np.full(count, COMPARE[sign](left.value, right.value))
    if isinstance(left, Cell):
        return compare(FLIPPED[sign], right, left, count)
    if pa.types.is_string(left.type):
        return _true(_TEXT[sign](left, pa.scalar(right.value, left.type) if isinstance(right, Cell) else right))
    if pa.types.is_fixed_size_list(left.type):
        return _vectors_equal(left, right, count)
    one, other = _numbers(left), _numbers(right)
    answer: np.ndarray = one.valid & other.valid & _ordered(sign, one.values, other.values)
    return answer


def contains(left: Operand, needle: Operand, count: int) -> np.ndarray:
    """Where the text has the needle in it, or the list an item equal to it; never for a null on either side."""
    if isinstance(left, Cell):
        return _every_pair(left, needle, count, lambda text, part: part in text)
    if pa.types.is_string(left.type):
        if isinstance(needle, Cell):
            return _found(left, needle, pc.match_substring)
        return _every_pair(left, needle, count, lambda text, part: part in text)
    if isinstance(needle, Cell) and needle.value is None:
        return np.zeros(count, bool)
    parents = np.asarray(pc.list_parent_indices(left))
    items = pc.list_flatten(left)
    wanted = needle if isinstance(needle, Cell) else needle.take(pa.array(parents))
    hits = parents[compare(ComparisonOperator.EQ, items, wanted, len(items))]
    found = np.zeros(count, bool)
    found[hits] = True
    return found


def starts_with(left: Operand, prefix: Operand, count: int) -> np.ndarray:
    """Where the text begins with the prefix; never for a null on either side."""
    if isinstance(left, pa.Array) and isinstance(prefix, Cell):
        return _found(left, prefix, pc.starts_with)
    return _every_pair(left, prefix, count, str.startswith)


def _found(texts: pa.Array, part: Cell, function: Callable[..., Any]) -> np.ndarray:
    return np.zeros(len(texts), bool) if part.value is None else _true(function(texts, part.value))


def _every_pair(left: Operand, right: Operand, count: int, holds: Callable[[str, str], bool]) -> np.ndarray:
    """Row by row, where no side is a constant that a kernel takes."""
    lefts, rights = ([side.value] * count if isinstance(side, Cell) else side.to_pylist() for side in (left, right))
    return np.array([a is not None and b is not None and holds(a, b) for a, b in zip(lefts, rights, strict=True)], bool)


def _true(answer: pa.Array) -> np.ndarray:
    """Where a three-valued answer is true."""
    return np.asarray(pc.fill_null(answer, False))


def _numbers(side: Operand) -> _Numbers:
    if isinstance(side, Cell):
        return _Numbers(_widened(np.array([side.value])), np.ones(1, bool))
    valid = np.asarray(side.is_valid())
    if pa.types.is_boolean(side.type):
        return _Numbers(np.asarray(pc.fill_null(side, False)).astype(np.int64), valid)
    kind = side.type
    if pa.types.is_date32(kind):
        side = side.cast(pa.int32())
    elif pa.types.is_date64(kind):
        side = side.cast(pa.int64())
    filled = side if side.null_count == 0 else pc.fill_null(side, pa.scalar(0, side.type))
    return _Numbers(_widened(np.asarray(filled)), valid)


def _widened(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    return values.astype(np.uint64 if values.dtype == np.uint64 else np.int64)


def _ordered(sign: ComparisonOperator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if left.dtype == right.dtype:
        answer: np.ndarray = COMPARE[sign](left, right)
        return answer
    if left.dtype.kind == "f":
        return _ordered(FLIPPED[sign], right, left)
    less, equal = _mixed(left, right)
    unordered = np.isnan(right) if right.dtype.kind == "f" else np.zeros(1, bool)
    greater = ~less & ~equal & ~unordered
    answers: dict[ComparisonOperator, np.ndarray] = {
        ComparisonOperator.EQ: equal,
        ComparisonOperator.NE: ~equal,
        ComparisonOperator.LT: less,
        ComparisonOperator.LE: less | equal,
        ComparisonOperator.GT: greater,
        ComparisonOperator.GE: greater | equal,
    }
    return answers[sign]


def _mixed(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Less and equal of whole numbers and numbers of another width."""
    if right.dtype.kind != "f":
        if left.dtype == np.uint64:
            negative = right < 0
            whole = right.astype(np.uint64)
            return ~negative & (left < whole), ~negative & (left == whole)
        negative = left < 0
        whole = left.astype(np.uint64)
        return negative | (whole < right), ~negative & (whole == right)
    top, bottom = _TOP[left.dtype], _BOTTOM[left.dtype]
    inside = (right >= bottom) & (right < top)
    floor = np.floor(np.where(inside, right, 0.0))
    below = floor.astype(left.dtype)
    less = np.where(inside, (left < below) | ((left == below) & (right > floor)), right >= top)
    return less, inside & (left == below) & (right == floor)


def _vectors_equal(left: pa.Array, right: Operand, count: int) -> np.ndarray:
    """Where vectors are equal component by component; the only comparison that vectors know."""
    rights = [right.value] * count if isinstance(right, Cell) else right.to_pylist()
    pairs = zip(left.to_pylist(), rights, strict=True)
    return np.array([a is not None and b is not None and list(a) == list(b) for a, b in pairs], bool)
