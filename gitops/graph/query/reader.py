"""Properties of the rows in flight: read when they are needed, once per distinct row, or remembered from a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from gitops.graph.query.bindings import Bindings, ascending, distinct
from gitops.graph.query.cells import Cell
from gitops.graph.query.conditions import Condition, ConditionSide, evaluate_condition
from gitops.graph.query.exact import Operand
from gitops.graph.query.limits import Budget
from gitops.graph.query.tables import ReadTable, TableRows
from gitops.language.query.typed import PropertyValue, TextMatch

__all__ = ["ColumnReader"]


class ColumnReader:
    """Reads the columns of bound rows."""

    def __init__(
        self,
        table: Callable[[str], ReadTable],
        search: Callable[[TextMatch, np.ndarray], pa.Array],
        budget: Budget,
    ) -> None:
        """`table` opens a table by key; `search` returns for each row id whether its text matches."""
        self._table = table
        self._search = search
        self._budget = budget
        self._known: dict[str, TableRows] = {}

    def remember(self, variable: str, rows: TableRows) -> None:
        """Keep what a scan read of the rows that it bound to the variable."""
        if rows.columns:
            self._budget.hold(rows.nbytes, f"the columns of ${variable}")
            self._known[variable] = rows

    def columns(self, variable: str, key: str, names: Sequence[str], row_ids: np.ndarray) -> dict[str, pa.Array]:
        """The columns of a variable's rows, one cell per row."""
        known = self._known.get(variable)
        if known is not None and row_ids is known.ids and known.columns.keys() >= set(names):
            return {name: known.columns[name] for name in names}
        wanted, which = distinct(row_ids)
        if known is not None and known.columns.keys() >= set(names) and ascending(known.ids):
            at = np.searchsorted(known.ids, wanted)
            found = {name: known.columns[name].take(pa.array(at)) for name in names}
        else:
            found = self._table(key).take(wanted, names, self._budget)
        if wanted is row_ids:
            return found
        self._budget.need(
            sum(column.nbytes for column in found.values()) * len(row_ids) // max(1, len(wanted)), f"reading {key}"
        )
        places = pa.array(which)
        return {name: column.take(places) for name, column in found.items()}

    def passing(self, conditions: Sequence[Condition], rows: TableRows) -> TableRows:
        """Of the rows of one table those that satisfy all conditions, by the columns that came with them."""
        for condition in conditions:
            columns = {value: rows.columns[value.name] for value in condition.properties}
            rows = rows.keep(evaluate_condition(condition, self._valued(columns, {}), len(rows.ids)))
        return rows

    def keep(self, conditions: Sequence[Condition], rows: Bindings) -> Bindings:
        """The rows that satisfy all conditions."""
        for condition in conditions:
            if not rows.count:
                break
            columns = self._sides(condition.properties, rows.columns)
            rows = rows.keep(evaluate_condition(condition, self._valued(columns, rows.columns), rows.count))
        return rows

    def _sides(
        self, properties: Iterable[PropertyValue], ids: Mapping[str, np.ndarray]
    ) -> dict[PropertyValue, pa.Array]:
        found = {}
        for value in properties:
            key = f"{value.kind}:{value.owner}"
            found[value] = self.columns(value.variable, key, [value.name], ids[value.variable])[value.name]
        return found

    def _valued(
        self, columns: Mapping[PropertyValue, pa.Array], ids: Mapping[str, np.ndarray]
    ) -> Callable[[ConditionSide], Operand]:
        def value(side: ConditionSide) -> Operand:
            if isinstance(side, Cell):
                return side
            if isinstance(side, TextMatch):
                return self._search(side, ids[side.field.variable])
            return columns[side]

        return value
