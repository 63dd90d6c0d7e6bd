"""Turns the current rows into result columns: groups, order, limit and projection.

Rows are sorted, grouped and aggregated by integers that sort exactly like the values.

Order (§3.6): by keys, with nulls first in ascending and last in descending order, and then by ids, so that the order is
total. Groups (§3.5) are in the order in which they are first seen. Sums are exact and rounded once, at the end, so they
do not depend on the order of the rows; an average of floats is the rounded sum divided by the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.bindings import Bindings, Groups
from gitops.database.graph.query.exact import ColumnReader
from gitops.database.graph.query.plan import ConstantCell, Constants
from gitops.database.graph.query.searching import QuerySearch
from gitops.database.graph.tables import arrow_field
from gitops.database.language.query import AggregateFunction
from gitops.database.language.query.typed import (
    RANKS,
    AggregateValue,
    AliasValue,
    NodeValue,
    PropertyValue,
    ReturnItem,
    SortKey,
    TextMatch,
    TypedExpr,
    TypedRead,
)
from gitops.database.language.schema import PropType, Scalar

_TEXT = PropType(Scalar.STRING)
_NO_VALUE = "unsupported projection expression: a rank, text match or aggregate is not a value of a row"


def sorted_by(key: SortKey, items: Sequence[ReturnItem]) -> TypedExpr:
    """Return the expression behind an order item, resolving aliases."""
    return items[key.value.item].value if isinstance(key.value, AliasValue) else key.value


def item_type(value: TypedExpr) -> PropType:
    """Return a result column's type. A node is represented by its id.

    Raises GitopsError `query_unsupported` for a rank, a text match, or an aggregate of a rank, text match or aggregate.
    """
    if isinstance(value, NodeValue):
        return _TEXT
    inner = value.argument if isinstance(value, AggregateValue) else value
    if isinstance(inner, (*RANKS, TextMatch, AggregateValue)):
        raise GitopsError(Code.QUERY_UNSUPPORTED, _NO_VALUE)
    if isinstance(value, AliasValue):
        raise TypeError(value)
    return value.type


@dataclass(slots=True)
class Projection:
    """Turns the rows of one read into its result. `reader` provides properties, and `search` provides ranks."""

    read: TypedRead
    constants: Constants
    reader: ColumnReader
    search: QuerySearch

    def grouped(self, rows: Bindings) -> list[pa.Array]:
        """Return one cell per item and group, in order, cut off at the limit."""
        read = self.read
        rows, place = self._ranked(rows)
        values = [item.value for item in read.items]
        # The values to group by or aggregate; for a node its row id, which is unique and never null.
        inner = [value.argument if isinstance(value, AggregateValue) else value for value in values]
        others = iter(self.columns([value for value in inner if not isinstance(value, NodeValue)], rows))
        columns = [
            pa.array(rows.columns[value.variable]) if isinstance(value, NodeValue) else next(others) for value in inner
        ]
        keys = [
            self._groups(value, column, rows.count)
            for column, value in zip(columns, values, strict=True)
            if not isinstance(value, AggregateValue)
        ]
        groups = group(keys, rows.count)
        firsts = rows.take(groups.firsts) if keys else rows
        cells = []
        for value, column in zip(values, columns, strict=True):
            if isinstance(value, AggregateValue):
                cells.append(aggregate(value.function, column, groups))
            elif isinstance(value, NodeValue):
                cells.append(self.columns([value], firsts)[0])
            else:
                cells.append(column.take(pa.array(groups.firsts)))
        if not read.order:
            return cells if read.limit is None else [column.slice(0, read.limit) for column in cells]
        if place is not None:
            # A group is ordered by its best row; further order items do not matter.
            sort = [(aggregate(AggregateFunction.MIN, place, groups), False)]
        else:
            seen = [
                key.value.item if isinstance(key.value, AliasValue) else values.index(key.value) for key in read.order
            ]
            sort = [(cells[item], key.descending) for item, key in zip(seen, read.order, strict=True)]
        chosen = pa.array(first_rows(sort, groups.count, read.limit, None))
        return [column.take(chosen) for column in cells]

    def _groups(self, value: TypedExpr, column: pa.Array, count: int) -> Groups:
        """Group the rows by one result item."""
        if isinstance(value, NodeValue):
            return Groups.of_numbers([np.asarray(column)], count)
        return self.reader.groups(value, column) if isinstance(value, PropertyValue) else Groups.of(column)

    def ordered(self, rows: Bindings) -> Bindings:
        """Return the rows in order, cut off at the limit."""
        read = self.read
        if not rows.count:
            return rows
        if not read.order:
            return rows if read.limit is None else rows.head(read.limit)
        if not rows.count:
            return rows
        rows, place = self._ranked(rows)
        if place is not None:
            keys = [(place, False)]
        else:
            values = self.columns([sorted_by(key, read.items) for key in read.order], rows)
            keys = [(column, key.descending) for column, key in zip(values, read.order, strict=True)]
        return rows.take(first_rows(keys, rows.count, read.limit, self._ties(rows)))

    def _ranked(self, rows: Bindings) -> tuple[Bindings, pa.Array | None]:
        """Return the rows whose node is in the query's rank, with their places.

        None if the query has no rank.
        """
        rank = sorted_by(self.read.order[0], self.read.items) if self.read.order else None
        if not isinstance(rank, RANKS):
            return rows, None
        places = self.search.places(rank, rows, self.read.limit) if rows.count else np.empty(0, np.int64)
        return rows.keep(places >= 0), pa.array(places[places >= 0])

    def columns(self, values: Sequence[TypedExpr], rows: Bindings) -> list[pa.Array]:
        """Return one column per expression. All properties of a variable are read at once."""
        names: dict[str, tuple[str, list[str]]] = {}
        for value in values:
            if isinstance(value, (PropertyValue, NodeValue)):
                key = f"{value.kind if isinstance(value, PropertyValue) else 'node'}:{value.owner}"
                names.setdefault(value.variable, (key, []))[1].append(_column(value))
        found: dict[str, Mapping[str, pa.Array]] = {
            variable: self.reader.columns(variable, key, tuple(dict.fromkeys(wanted)), rows.columns[variable])
            for variable, (key, wanted) in names.items()
        }
        return [
            found[value.variable][_column(value)]
            if isinstance(value, (PropertyValue, NodeValue))
            else self._constant(self.constants.cell(value), rows.count)
            for value in values
        ]

    def _constant(self, cell: ConstantCell | None, count: int) -> pa.Array:
        """Repeat a constant cell for each row.

        Memory for long texts and lists is reserved first.
        """
        if cell is None:
            raise GitopsError(Code.QUERY_UNSUPPORTED, _NO_VALUE)
        kind = arrow_field("value", cell.type).type
        if cell.type.is_list and any(isinstance(item, float) for item in cell.value or ()):
            # A literal list has the type of its first item, although other items can differ.
            kind = pa.list_(pa.float64())
        one = pa.array([cell.value], _stored(kind))
        self.reader.budget.need(one.nbytes * count, "a returned constant")
        return pa.array([cell.value] * count, one.type).cast(kind)

    def _ties(self, rows: Bindings) -> Callable[[np.ndarray], list[pa.Array]]:
        """Return the ids of all bound variables for some rows, as columns in name order."""
        tables = {name: f"node:{owner}" for name, owner in self.read.variables.items()}
        tables |= {name: f"edge:{owner}" for name, owner in self.read.edge_variables.items()}

        def ids(positions: np.ndarray) -> list[pa.Array]:
            return [
                self.reader.columns(name, tables[name], ["id"], rows.columns[name][positions])["id"]
                for name in sorted(tables)
            ]

        return ids


def _column(value: PropertyValue | NodeValue) -> str:
    return value.name if isinstance(value, PropertyValue) else "id"


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type for cells of a type."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(_stored(kind.value_type)) if pa.types.is_list(kind) else kind


NULL = -1
_FEW_TIMES = 8
_EXACT = 2.0**53


def ranks(column: pa.Array) -> np.ndarray:
    """Return a number for each cell: 0 for the smallest value and so on, equal for equal values, `NULL` for null.

    Strings compare by code point, false comes before true, 0.0 equals -0.0, and lists compare item by item with null
    items first.
    """
    kind = column.type
    if pa.types.is_nested(kind):
        cells = [
            None if cell is None else tuple((False, 0) if item is None else (True, item) for item in cell)
            for cell in column.to_pylist()
        ]
        place_of = {cell: place for place, cell in enumerate(sorted({cell for cell in cells if cell is not None}))}
        return np.array([NULL if cell is None else place_of[cell] for cell in cells], np.int64)
    if pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        order = np.asarray(pc.array_sort_indices(encoded.dictionary))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        at = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
        return np.where(at < 0, NULL, places[at] if len(places) else NULL)
    present = column.drop_null()
    values: np.ndarray
    if pa.types.is_boolean(kind):
        values = np.asarray(present).astype(np.int8)
    elif pa.types.is_date(kind):
        values = np.asarray(present.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
    else:
        values = np.asarray(present)
        # Adding zero makes 0.0 of -0.0.
        values = values + 0.0 if values.dtype.kind == "f" else values
    found = np.full(len(column), NULL, np.int64)
    found[np.asarray(column.is_valid())] = np.unique(values, return_inverse=True)[1]
    return found


def first_rows(
    keys: Sequence[tuple[pa.Array, bool]],
    count: int,
    limit: int | None,
    ties: Callable[[np.ndarray], Sequence[pa.Array]] | None,
) -> np.ndarray:
    """Return the positions of the first `limit` of `count` rows, in order.

    `keys` are columns, each with a flag for descending order. `ties` returns further ascending columns for given
    positions, and is called only for rows with equal keys. Without it, such rows keep their order.
    """
    if limit is not None and keys and 0 < limit * _FEW_TIMES < count:
        likely = _candidates(*keys[0], limit)
        if likely is not None and len(likely) < count:
            places = pa.array(likely)
            fewer = [(column.take(places), descending) for column, descending in keys]
            asked = None if ties is None else lambda positions: ties(likely[positions])
            chosen: np.ndarray = likely[first_rows(fewer, len(likely), limit, asked)]
            return chosen
    # The rank of null is below 0 and, negated, above all others: nulls are first ascending and last descending.
    columns = [-ranks(column) if descending else ranks(column) for column, descending in keys]
    order = np.lexsort(columns[::-1])
    wanted = count if limit is None else min(limit, count)
    if ties is None or not wanted:
        return order[:wanted]
    fresh = np.zeros(count, bool)
    fresh[0] = True
    for column in columns:
        fresh[1:] |= column[order[1:]] != column[order[:-1]]
    later = np.flatnonzero(fresh[wanted:])
    end = wanted + int(later[0]) if len(later) else count
    head, run = order[:end], np.cumsum(fresh[:end]) - 1
    tied = np.flatnonzero(np.bincount(run)[run] > 1)
    if not len(tied):
        return order[:wanted]
    breakers = []
    for column in ties(head[tied]):
        breaker = np.zeros(end, np.int64)
        breaker[tied] = ranks(column)
        breakers.append(breaker)
    return head[np.lexsort((*breakers[::-1], run))][:wanted]


def _candidates(column: pa.Array, descending: bool, limit: int) -> np.ndarray | None:
    """Return the positions of rows that can be among the first `limit` in a number column, including ties.

    None for columns without numbers.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    valid = np.asarray(column.is_valid())
    present = np.asarray(column.drop_null())
    wanted = limit if descending else limit - (len(column) - len(present))
    if wanted <= 0:
        return np.flatnonzero(~valid)
    if wanted >= len(present):
        return None
    place = len(present) - wanted if descending else wanted - 1
    bound = np.partition(present, place)[place]
    near = np.zeros(len(column), bool) if descending else ~valid
    near[valid] = present >= bound if descending else present <= bound
    return np.flatnonzero(near)


def group(keys: Sequence[Groups], count: int) -> Groups:
    """Group `count` rows by all keys. Without keys, all rows form one group, even if there are none."""
    if not keys:
        return Groups(np.zeros(1, np.int64), np.zeros(count, np.int64))
    return keys[0] if len(keys) == 1 else Groups.of_numbers([key.of_row for key in keys], count)


def aggregate(function: AggregateFunction, column: pa.Array, groups: Groups) -> pa.Array:
    """Return one cell per group. Null cells are ignored."""
    of_row = groups.of_row[np.asarray(column.is_valid())] if column.null_count else groups.of_row
    counts = np.bincount(of_row, minlength=groups.count)
    if function is AggregateFunction.COUNT:
        return pa.array(counts, pa.int64())
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        return _extreme(column, groups, smallest=function is AggregateFunction.MIN)
    divisors = counts if function is AggregateFunction.AVG else np.ones_like(counts)
    quotients = _sum_floats if pa.types.is_floating(column.type) else _sum_integers
    return pa.array(quotients(np.asarray(column.drop_null()), of_row, divisors), pa.float64(), mask=counts == 0)


def _extreme(column: pa.Array, groups: Groups, *, smallest: bool) -> pa.Array:
    """Return each group's smallest or greatest cell, from the first row that has it."""
    places = ranks(column)
    order = np.lexsort((places if smallest else -places, groups.of_row))
    order = order[places[order] != NULL]
    present, firsts = np.unique(groups.of_row[order], return_index=True)
    at = np.full(groups.count, -1, np.int64)
    at[present] = order[firsts]
    return column.take(pa.array(at, mask=at < 0))


def _sum_integers(values: np.ndarray, of_row: np.ndarray, divisors: np.ndarray) -> np.ndarray:
    """Return each group's sum divided by its divisor, rounded once."""
    sizes = np.abs(values.astype(np.float64))
    # Floats add integers below 2^53 exactly. If a sum of magnitudes was rounded anywhere, it is not below 2^53.
    exact = np.bincount(of_row, sizes, len(divisors)) < _EXACT
    signed = np.bincount(of_row, values, len(divisors))
    quotients: np.ndarray = signed / np.maximum(divisors, 1)
    if exact.all():
        return quotients
    large = ~exact[of_row]
    wide = values[large].astype(np.uint64 if values.dtype == np.uint64 else np.int64)
    low, high = np.zeros(len(divisors), np.int64), np.zeros(len(divisors), np.int64)
    np.add.at(low, of_row[large], (wide & wide.dtype.type(2**32 - 1)).astype(np.int64))
    np.add.at(high, of_row[large], (wide >> wide.dtype.type(32)).astype(np.int64))
    for at in np.flatnonzero(~exact).tolist():
        quotients[at] = ((int(high[at]) << 32) + int(low[at])) / int(divisors[at])
    return quotients


def _sum_floats(values: np.ndarray, of_row: np.ndarray, divisors: np.ndarray) -> np.ndarray:
    """Return each group's exact sum, rounded once, divided by its divisor."""
    ordered = values.astype(np.float64)[np.argsort(of_row, kind="stable")]
    stops = np.cumsum(np.bincount(of_row, minlength=len(divisors))).tolist()
    parts = (ordered[start:stop].tolist() for start, stop in zip([0, *stops], stops, strict=False))
    return np.array([_divided(part, by) for part, by in zip(parts, divisors.tolist(), strict=True)], np.float64)


def _divided(values: list[float], by: int) -> float:
    """Return the exact sum of finite floats, rounded once if it fits a float, divided by `by`."""
    try:
        # Adding zero makes 0.0 of -0.0.
        return (math.fsum(values) + 0.0) / max(1, by)
    except OverflowError:
        total = sum(map(Fraction, values), Fraction()) / by
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
