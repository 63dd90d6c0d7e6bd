"""Compares columns and constants without rounding. Logic is three-valued, and only TRUE passes.

Numbers compare by their mathematical value regardless of width, and strings by code point, which is also the byte order
of UTF-8. False comes before true. Dates and times compare chronologically.

The driver can test some conditions while it reads. They are passed as typed expressions, never as text, so injection is
impossible. Only conditions with the same result in both places are pushed down: integers, strings, booleans and dates
against a constant. Floats are not pushed down, because the driver treats 0.0 and -0.0 as different, nor are types that
its filters do not support.

`ColumnReader` reads properties of the current rows on demand, once per distinct row, or reuses them from a scan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.bindings import Bindings, Groups, ascending, distinct
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.plan import Condition, ConditionSide, ConstantCell, selectivity
from gitops.database.graph.query.tables import PushedFilter, ReadTable, TableRows
from gitops.database.graph.values import COMPARE, FLIPPED
from gitops.database.language.query import ComparisonOperator
from gitops.database.language.query.typed import PropertyValue, TextMatch

NEVER = PushedFilter(pc.scalar(False), ())
"""The filter that no row passes."""

MOST_PUSHED = 8
"""Maximum conditions that the driver tests in one scan; the others are tested on the returned rows."""

Operand: TypeAlias = "pa.Array | ConstantCell"

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


_RANGES = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1)}


def evaluate_condition(condition: Condition, value: Callable[[ConditionSide], Operand], count: int) -> np.ndarray:
    """Return a mask of the `count` rows for which the condition is TRUE. `value` returns the column for a side."""
    left, right = value(condition.left), value(condition.right)
    if condition.sign is ComparisonOperator.CONTAINS:
        return contains(left, right, count)
    if condition.sign is ComparisonOperator.STARTS_WITH:
        return starts_with(left, right, count)
    return compare(condition.sign, left, right, count)


def push_conditions(
    conditions: Sequence[Condition], types: Mapping[str, pa.DataType]
) -> tuple[PushedFilter | None, list[Condition]]:
    """Return the driver's filter (`NEVER` if no row can pass), and the conditions left to test on the rows.

    The driver gets only the few most selective conditions, because its cost grows faster than their number. `types` has
    the column types.
    """
    filters: dict[int, PushedFilter] = {}
    for at, condition in sorted(enumerate(conditions), key=lambda each: selectivity([each[1]])):
        filter_ = _push_condition(condition, types)
        if filter_ is NEVER:
            return NEVER, []
        if filter_ is not None and len(filters) < MOST_PUSHED:
            filters[at] = filter_
    rest = [condition for at, condition in enumerate(conditions) if at not in filters]
    return PushedFilter.all_of(list(filters.values())) if filters else None, rest


def _push_condition(condition: Condition, types: Mapping[str, pa.DataType]) -> PushedFilter | None:
    """Return the condition as a filter (`NEVER` if no row can pass); None if it must be tested on the rows."""
    left, right, sign = condition.left, condition.right, condition.sign
    if not isinstance(left, PropertyValue) or not isinstance(right, ConstantCell):
        return None
    column, field, value = types[left.name], pc.field(left.name), right.value
    if value is None:
        return NEVER
    if column in _RANGES and sign in COMPARE:
        found = _compare_whole(field, sign, value, column)
        if found is None:
            return NEVER
    elif pa.types.is_string(column) and sign is ComparisonOperator.CONTAINS:
        found = pc.match_substring(field, value)
    elif pa.types.is_string(column) and sign is ComparisonOperator.STARTS_WITH:
        found = pc.starts_with(field, value)
    elif pa.types.is_string(column) or (pa.types.is_boolean(column) and sign is ComparisonOperator.EQ):
        found = COMPARE[sign](field, pa.scalar(value, column))
    elif pa.types.is_date32(column) and sign in COMPARE:
        found = COMPARE[sign](field, pa.scalar(value, pa.int32()).cast(column))
    else:
        return None
    return PushedFilter(found, (left.name,))


def _compare_whole(
    field: pc.Expression, sign: ComparisonOperator, value: float, column: pa.DataType
) -> pc.Expression | None:
    """Return a filter that compares an integer column with any number; fractions are rounded to a neighbouring integer.

    For values out of the type's range, the result does not depend on the row. None if no row passes.
    """
    if not math.isfinite(value):
        return field.is_valid() if COMPARE[sign](0.0, value) else None
    if value != math.floor(value):
        if sign is ComparisonOperator.EQ:
            return None
        if sign is ComparisonOperator.NE:
            return field.is_valid()
        # "Below 2.7" means "up to 2"; "2.7 or more" means "above 2".
        below = sign in (ComparisonOperator.LT, ComparisonOperator.LE)
        sign = ComparisonOperator.LE if below else ComparisonOperator.GT
    number = math.floor(value)
    low, high = _RANGES[column]
    if low <= number <= high:
        return COMPARE[sign](field, pa.scalar(number, column))
    return field.is_valid() if COMPARE[sign](0, 1 if number > high else -1) else None


def compare(sign: ComparisonOperator, left: Operand, right: Operand, count: int) -> np.ndarray:
    """Return a mask of the `count` rows for which `left sign right` is TRUE. Not for `contains` and `starts_with`."""
    if any(isinstance(side, ConstantCell) and side.value is None for side in (left, right)):
        return np.zeros(count, bool)
    if isinstance(left, ConstantCell) and isinstance(right, ConstantCell):
        return np.full(count, COMPARE[sign](left.value, right.value))
    if isinstance(left, ConstantCell):
        return compare(FLIPPED[sign], right, left, count)
    if pa.types.is_string(left.type):
        return _true(_TEXT[sign](left, pa.scalar(right.value, left.type) if isinstance(right, ConstantCell) else right))
    if pa.types.is_fixed_size_list(left.type):
        # Vectors can only be compared for equality, component by component.
        rights = [right.value] * count if isinstance(right, ConstantCell) else right.to_pylist()
        pairs = zip(left.to_pylist(), rights, strict=True)
        return np.array([a is not None and b is not None and list(a) == list(b) for a, b in pairs], bool)
    (one, one_valid), (other, other_valid) = _numbers(left), _numbers(right)
    answer: np.ndarray = one_valid & other_valid & _ordered(sign, one, other)
    return answer


def contains(left: Operand, needle: Operand, count: int) -> np.ndarray:
    """Return a mask of the rows whose text or list contains the needle. A null on either side never matches."""
    if isinstance(left, ConstantCell):
        return _every_pair(left, needle, count, lambda text, part: part in text)
    if pa.types.is_string(left.type):
        if isinstance(needle, ConstantCell):
            return _found(left, needle, pc.match_substring)
        return _every_pair(left, needle, count, lambda text, part: part in text)
    if isinstance(needle, ConstantCell) and needle.value is None:
        return np.zeros(count, bool)
    parents = np.asarray(pc.list_parent_indices(left))
    items = pc.list_flatten(left)
    wanted = needle if isinstance(needle, ConstantCell) else needle.take(pa.array(parents))
    hits = parents[compare(ComparisonOperator.EQ, items, wanted, len(items))]
    found = np.zeros(count, bool)
    found[hits] = True
    return found


def starts_with(left: Operand, prefix: Operand, count: int) -> np.ndarray:
    """Return a mask of the rows whose text starts with the prefix. A null on either side never matches."""
    if isinstance(left, pa.Array) and isinstance(prefix, ConstantCell):
        return _found(left, prefix, pc.starts_with)
    return _every_pair(left, prefix, count, str.startswith)


def _found(texts: pa.Array, part: ConstantCell, function: Callable[..., Any]) -> np.ndarray:
    return np.zeros(len(texts), bool) if part.value is None else _true(function(texts, part.value))


def _every_pair(left: Operand, right: Operand, count: int, holds: Callable[[str, str], bool]) -> np.ndarray:
    """Compare row by row, for cases without a suitable Arrow kernel."""
    lefts, rights = (
        [side.value] * count if isinstance(side, ConstantCell) else side.to_pylist() for side in (left, right)
    )
    return np.array([a is not None and b is not None and holds(a, b) for a, b in zip(lefts, rights, strict=True)], bool)


def _true(answer: pa.Array) -> np.ndarray:
    """Return a mask of the rows with a TRUE result."""
    return np.asarray(pc.fill_null(answer, False))


def _numbers(side: Operand) -> tuple[np.ndarray, np.ndarray]:
    """Return a side's numbers as int64, uint64 or float64, with a mask of non-null values."""
    if isinstance(side, ConstantCell):
        return _widened(np.array([side.value])), np.ones(1, bool)
    valid = np.asarray(side.is_valid())
    if pa.types.is_boolean(side.type):
        return np.asarray(pc.fill_null(side, False)).astype(np.int64), valid
    if pa.types.is_date(side.type):
        side = side.cast(pa.int32() if pa.types.is_date32(side.type) else pa.int64())
    filled = side if side.null_count == 0 else pc.fill_null(side, pa.scalar(0, side.type))
    return _widened(np.asarray(filled)), valid


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
    """Return the less-than and equal masks for numbers of different types."""
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


@dataclass(slots=True)
class ColumnReader:
    """Reads columns of bound rows.

    `table` opens a table by key. `search` returns whether the text matches, for each row id.
    """

    table: Callable[[str], ReadTable]
    search: Callable[[TextMatch, np.ndarray], pa.Array]
    budget: Budget
    _known: dict[str, TableRows] = field(default_factory=dict)

    def remember(self, variable: str, rows: TableRows) -> None:
        """Keep the rows that a scan bound to the variable, with the columns that it read."""
        if rows.columns:
            self.budget.hold(rows.nbytes, f"the columns of ${variable}")
            self._known[variable] = rows

    def columns(self, variable: str, key: str, names: Sequence[str], row_ids: np.ndarray) -> dict[str, pa.Array]:
        """Return the columns of a variable's rows, with one cell per row."""
        known = self._known.get(variable)
        if known is not None and row_ids is known.ids and known.columns.keys() >= set(names):
            return {name: known.columns[name] for name in names}
        wanted, which = distinct(row_ids)
        if known is not None and known.columns.keys() >= set(names) and ascending(known.ids):
            at = np.searchsorted(known.ids, wanted)
            found = {name: known.columns[name].take(pa.array(at)) for name in names}
        else:
            found = self.table(key).take(wanted, names, self.budget)
        if wanted is row_ids:
            return found
        self.budget.need(
            sum(column.nbytes for column in found.values()) * len(row_ids) // max(1, len(wanted)), f"reading {key}"
        )
        places = pa.array(which)
        return {name: column.take(places) for name, column in found.items()}

    def property(self, value: PropertyValue, row_ids: np.ndarray) -> pa.Array:
        """Return a property's cells, one per row of its variable."""
        return self.columns(value.variable, f"{value.kind}:{value.owner}", [value.name], row_ids)[value.name]

    def groups(self, value: PropertyValue, column: pa.Array) -> Groups:
        """Return the groups of equal cells in a property's column."""
        return self.table(f"{value.kind}:{value.owner}").groups(value.name, column)

    def passing(self, conditions: Sequence[Condition], rows: TableRows) -> TableRows:
        """Return one table's rows that satisfy all conditions, using the columns that were read with them."""

        def operand(side: ConditionSide) -> Operand:
            if isinstance(side, TextMatch):
                return self.search(side, rows.ids)
            return side if isinstance(side, ConstantCell) else rows.columns[side.name]

        for condition in conditions:
            rows = rows.keep(evaluate_condition(condition, operand, len(rows.ids)))
        return rows

    def keep(self, conditions: Sequence[Condition], rows: Bindings) -> Bindings:
        """Return the rows that satisfy all conditions."""

        def operand(side: ConditionSide) -> Operand:
            if isinstance(side, TextMatch):
                return self.search(side, rows.columns[side.field.variable])
            return side if isinstance(side, ConstantCell) else self.property(side, rows.columns[side.variable])

        for condition in conditions:
            if rows.count:
                rows = rows.keep(evaluate_condition(condition, operand, rows.count))
        return rows

    def keep_nodes(self, conditions: Sequence[Condition], variable: str, row_ids: np.ndarray) -> np.ndarray:
        """Return one variable's row ids that satisfy all conditions."""
        return self.keep(conditions, Bindings(len(row_ids), {variable: row_ids})).columns[variable]
