"""Properties of the rows in flight: read when they are needed, once per distinct row, or remembered from a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.bindings import Bindings, ascending, distinct
from gitops.database.graph.query.conditions import Cell, Condition, ConditionSide
from gitops.database.graph.query.exact import Operand, evaluate_condition
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, TableRows
from gitops.database.language.query.typed import PropertyValue, TextMatch

__all__ = ["ColumnReader"]


@dataclass(slots=True)
class ColumnReader:
    """Reads the columns of bound rows: `table` opens a table by key; `search` says for each row id whether its text matches."""

    table: Callable[[str], ReadTable]
    search: Callable[[TextMatch, np.ndarray], pa.Array]
    budget: Budget
    _known: dict[str, TableRows] = field(default_factory=dict)

    def remember(self, variable: str, rows: TableRows) -> None:
        """Keep what a scan read of the rows that it bound to the variable."""
        if rows.columns:
            self.budget.hold(rows.nbytes, f"the columns of ${variable}")
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
            found = self.table(key).take(wanted, names, self.budget)
        if wanted is row_ids:
            return found
        self.budget.need(
            sum(column.nbytes for column in found.values()) * len(row_ids) // max(1, len(wanted)), f"reading {key}"
        )
        places = pa.array(which)
        return {name: column.take(places) for name, column in found.items()}

    def property(self, value: PropertyValue, row_ids: np.ndarray) -> pa.Array:
        """The cells of a property, one per row of its variable."""
        return self.columns(value.variable, f"{value.kind}:{value.owner}", [value.name], row_ids)[value.name]

    def passing(self, conditions: Sequence[Condition], rows: TableRows) -> TableRows:
        """Of the rows of one table those that satisfy all conditions, by the columns that came with them."""

        def operand(side: ConditionSide) -> Operand:
            if isinstance(side, TextMatch):
                return self.search(side, rows.ids)
            return side if isinstance(side, Cell) else rows.columns[side.name]

        for condition in conditions:
            rows = rows.keep(evaluate_condition(condition, operand, len(rows.ids)))
        return rows

    def keep(self, conditions: Sequence[Condition], rows: Bindings) -> Bindings:
        """The rows that satisfy all conditions."""

        def operand(side: ConditionSide) -> Operand:
            if isinstance(side, TextMatch):
                return self.search(side, rows.columns[side.field.variable])
            return side if isinstance(side, Cell) else self.property(side, rows.columns[side.variable])

        for condition in conditions:
            if rows.count:
                rows = rows.keep(evaluate_condition(condition, operand, rows.count))
        return rows

    def keep_nodes(self, conditions: Sequence[Condition], variable: str, row_ids: np.ndarray) -> np.ndarray:
        """Of the row ids of one variable those that satisfy all conditions."""
        return self.keep(conditions, Bindings(len(row_ids), {variable: row_ids})).columns[variable]
