"""From rows in flight to result columns: groups, order, limit, projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.bindings import Bindings
from gitops.database.graph.query.conditions import Cell, Constants
from gitops.database.graph.query.order import aggregate, first_rows, group
from gitops.database.graph.query.reader import ColumnReader
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

__all__ = ["Projection", "item_type", "sorted_by"]

_TEXT = PropType(Scalar.STRING)
_NO_VALUE = "unsupported projection expression: a rank, text match or aggregate is not a value of a row"


def sorted_by(key: SortKey, items: Sequence[ReturnItem]) -> TypedExpr:
    """What an order item orders by, seen through an alias."""
    return items[key.value.item].value if isinstance(key.value, AliasValue) else key.value


def item_type(value: TypedExpr) -> PropType:
    """The type of a result column; a node is its id.

    Raises GitopsError `query_unsupported` for a rank, a text match, or an aggregate of one of these or of an aggregate.
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
    """The result of one read, out of its rows: `reader` knows the properties, `search` the ranks."""

    read: TypedRead
    constants: Constants
    reader: ColumnReader
    search: QuerySearch

    def grouped(self, rows: Bindings) -> list[pa.Array]:
        """One cell per item and group, in order, cut at the limit."""
        read = self.read
        rows, place = self._ranked(rows)
        values = [item.value for item in read.items]
        # What is grouped by or aggregated; of a node its row id, which is never null and unique.
        inner = [value.argument if isinstance(value, AggregateValue) else value for value in values]
        others = iter(self.columns([value for value in inner if not isinstance(value, NodeValue)], rows))
        columns = [
            pa.array(rows.columns[value.variable]) if isinstance(value, NodeValue) else next(others) for value in inner
        ]
        keys = [column for column, value in zip(columns, values, strict=True) if not isinstance(value, AggregateValue)]
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
            # A group goes by the best of its rows; further items do not count.
            sort = [(aggregate(AggregateFunction.MIN, place, groups), False)]
        else:
            seen = [
                key.value.item if isinstance(key.value, AliasValue) else values.index(key.value) for key in read.order
            ]
            sort = [(cells[item], key.descending) for item, key in zip(seen, read.order, strict=True)]
        chosen = pa.array(first_rows(sort, groups.count, read.limit, None))
        return [column.take(chosen) for column in cells]

    def ordered(self, rows: Bindings) -> Bindings:
        """The rows in order, cut at the limit."""
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
        """The rows whose node has a place in the rank that the query orders by, with their places; None without a rank."""
        rank = sorted_by(self.read.order[0], self.read.items) if self.read.order else None
        if not isinstance(rank, RANKS):
            return rows, None
        places = self.search.places(rank, rows, self.read.limit) if rows.count else np.empty(0, np.int64)
        return rows.keep(places >= 0), pa.array(places[places >= 0])

    def columns(self, values: Sequence[TypedExpr], rows: Bindings) -> list[pa.Array]:
        """A column per expression; all properties of a variable are read at once."""
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

    def _constant(self, cell: Cell | None, count: int) -> pa.Array:
        """A cell for each row. A long text or list is asked for in the budget before so many rows are made of it."""
        if cell is None:
            raise GitopsError(Code.QUERY_UNSUPPORTED, _NO_VALUE)
        kind = arrow_field("value", cell.type).type
        if cell.type.is_list and any(isinstance(item, float) for item in cell.value or ()):
            # A literal list has the type of its first item, and its values all the same.
            kind = pa.list_(pa.float64())
        one = pa.array([cell.value], _stored(kind))
        self.reader.budget.need(one.nbytes * count, "a returned constant")
        return pa.array([cell.value] * count, one.type).cast(kind)

    def _ties(self, rows: Bindings) -> Callable[[np.ndarray], list[pa.Array]]:
        """The ids of all bound variables in name order, for some rows."""
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
    """The type whose values cells of a type are."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(_stored(kind.value_type)) if pa.types.is_list(kind) else kind
