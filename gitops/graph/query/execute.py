"""Operators on rows. The order of rows does not depend on the strategy: by row id in the order of binding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.graph.query.bindings import Bindings, distinct, spread
from gitops.graph.query.cells import Cell
from gitops.graph.query.conditions import Condition
from gitops.graph.query.expand import ReachedNodes, reach_nodes
from gitops.graph.query.explain import Trace
from gitops.graph.query.join import distinct_rows, equal_pairs, joinable
from gitops.graph.query.limits import Budget
from gitops.graph.query.neighbours import EdgeSteps
from gitops.graph.query.plan import Block, HopOp, NotOp, Operator, ProductOp, ScanOp, SortOp, TestOp
from gitops.graph.query.pushdown import NEVER, push_condition
from gitops.graph.query.ranks import ranks
from gitops.graph.query.reader import ColumnReader
from gitops.graph.query.strategies import QueryTables
from gitops.graph.query.tables import PushedFilter, ReadTable, RowOrder, TableRows
from gitops.language.query import ComparisonOperator as Sign
from gitops.language.query.typed import PropertyValue

__all__ = ["Executor", "ScanRequest"]

_PRODUCT = 1_000_000
_OUTER = 65_536
_FEW = 1_000
_ROW = "#row"


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What a scan brings along: columns that the result needs, and only its first rows in an order."""

    columns: tuple[str, ...] = ()
    order: RowOrder | None = None


class Executor:
    """Executes the blocks of one query."""

    def __init__(self, hops: QueryTables, reader: ColumnReader, budget: Budget, trace: Trace) -> None:
        """`hops` finds neighbours, `reader` properties."""
        self._tables = hops
        self._reader = reader
        self._budget = budget
        self._trace = trace

    def block(self, block: Block, rows: Bindings, wanted: ScanRequest | None = None) -> Bindings:
        """The rows that a block makes of the given ones. `wanted` is for its scan, if that stands alone."""
        for operator in block.operators:
            if not rows.count:
                break
            before = rows.nbytes
            rows = self._run_operator(operator, rows, wanted or ScanRequest())
            self._trace.count(operator, rows.count)
            self._budget.hold(rows.nbytes - before, "the rows in flight")
        if rows.count:
            return rows
        return Bindings(0, {name: np.empty(0, np.int64) for name in (*rows.columns, *block.variables)})

    def _run_operator(self, operator: Operator, rows: Bindings, wanted: ScanRequest) -> Bindings:
        if isinstance(operator, ScanOp):
            found = self._select(self._tables.table(operator.table), operator.conditions, wanted)
            self._reader.remember(operator.variable, found)
            return Bindings(len(found.ids), {operator.variable: found.ids})
        if isinstance(operator, HopOp):
            return self._run_hop(operator, rows)
        if isinstance(operator, TestOp):
            return self._reader.keep(operator.conditions, rows)
        if isinstance(operator, ProductOp):
            return self._run_product(operator, rows)
        if isinstance(operator, SortOp):
            return rows.take(np.lexsort([self._sort_key(*key, rows) for key in reversed(operator.keys)]))
        return self._run_absent(operator, rows)

    def _run_nested(self, block: Block, given: Bindings) -> Bindings:
        """The rows of a nested block; its memory is released."""
        held = self._budget.held
        found = self.block(block, given)
        self._budget.held = held
        return found

    # Scans

    def _select(self, table: ReadTable, conditions: Sequence[Condition], wanted: ScanRequest) -> TableRows:
        """The rows of a table that satisfy conditions on one variable, by row id, with the wanted columns."""
        pushed, rest = _split_conditions(table, conditions)
        if pushed is NEVER:
            return table.collect(wanted.columns, iter(()), self._budget)
        known = self._find_by_text(table, conditions) if wanted.order is None else None
        if known is not None:
            return TableRows(known, table.take(known, wanted.columns, self._budget))
        tested = [value.name for condition in rest for value in condition.properties if not condition.searches]
        columns = tuple(dict.fromkeys((*wanted.columns, *tested)))
        plain = [condition for condition in rest if not condition.searches]
        every = pushed is None and wanted.order is None
        if every and not plain:
            found = table.whole(columns, self._budget)
        else:
            kept = table.held(columns) if every else None
            read = table.scan(columns, self._budget, pushed, wanted.order) if kept is None else iter([kept])
            batches = (self._reader.passing(plain, rows) for rows in read)
            found = table.collect(columns, batches, self._budget, sort=wanted.order is None)
        for condition in rest:
            if condition.searches:
                (variable,) = condition.variables
                matched = self._reader.keep([condition], Bindings(len(found.ids), {variable: found.ids}))
                found = found.keep(np.isin(found.ids, matched.columns[variable]))
        return TableRows(found.ids, {name: found.columns[name] for name in wanted.columns})

    def _find_by_text(self, table: ReadTable, conditions: Sequence[Condition]) -> np.ndarray | None:
        """The row ids that satisfy conditions of which one asks for a text that is looked up in memory."""
        for condition in conditions:
            text = _equal_text(table, condition)
            found = None if text is None else table.equal(condition.properties[0].name, text, self._budget)
            if found is not None:
                (variable,) = condition.variables
                others = [each for each in conditions if each is not condition]
                return self._reader.keep(others, Bindings(len(found), {variable: found})).columns[variable]
        return None

    # Hops

    def _run_hop(self, operator: HopOp, rows: Bindings) -> Bindings:
        sources, which = distinct(rows.columns[operator.near])
        neighbours = self._tables.neighbours(operator, len(sources))
        if operator.binding is not None:
            if operator.low > 1:
                return rows.head(0)
            return self._bind_edges(operator, rows, neighbours.steps(sources), which)
        parts = reach_nodes(neighbours, sources, self._tables.bounds(operator), self._budget)
        if operator.exists:
            return self._keep_reached(parts, rows.columns[operator.far], rows, which)
        found = self._filter_reached(operator, parts)
        counts = np.bincount(found.origins, minlength=len(sources))[which]
        starts = np.searchsorted(found.origins, np.arange(len(sources)))[which]
        self._budget.need(
            int(counts.sum()) * 8 * (len(rows.columns) + 3), f"the rows of {_variable_text(operator.far)}"
        )
        runs, places = spread(starts, counts)
        return rows.take(runs).bind(operator.far, found.nodes[places])

    def _filter_reached(self, operator: HopOp, parts: Iterable[ReachedNodes]) -> ReachedNodes:
        """What is reached and satisfies the conditions on the far node."""
        kept: list[ReachedNodes] = []
        held = 0
        allowed: np.ndarray | None = None
        for part in parts:
            if operator.conditions:
                nodes = np.unique(part.nodes)
                table = self._tables.table(operator.far_table)
                if allowed is None and len(nodes) > _FEW and len(nodes) * 4 > table.rows:
                    allowed = self._select(table, operator.conditions, ScanRequest()).ids
                if allowed is None:
                    given = Bindings(len(nodes), {operator.far: nodes})
                    nodes = self._reader.keep(operator.conditions, given).columns[operator.far]
                mask = np.isin(part.nodes, nodes if allowed is None else allowed)
                part = ReachedNodes(part.origins[mask], part.nodes[mask])  # noqa: PLW2901 - the part, narrowed
            kept.append(part)
            held += part.nodes.nbytes * 2
            self._budget.need(2 * held, f"the nodes of {_variable_text(operator.far)}")
        if not kept:
            return ReachedNodes(np.empty(0, np.int64), np.empty(0, np.int64))
        return ReachedNodes(
            np.concatenate([each.origins for each in kept]), np.concatenate([each.nodes for each in kept])
        )

    def _keep_reached(
        self, parts: Iterable[ReachedNodes], far: np.ndarray, rows: Bindings, which: np.ndarray
    ) -> Bindings:
        """Keep each row whose far node is among those that its near node reaches."""
        found = np.zeros(rows.count, bool)
        for part in parts:
            if len(part.origins):
                first, last = part.origins[0], part.origins[-1]
                concerned = np.flatnonzero((which >= first) & (which <= last))
                starts = np.searchsorted(part.origins, np.arange(first, last + 2))
                found[concerned] |= _within(part.nodes, starts, which[concerned] - first, far[concerned])
        return rows.keep(found)

    def _bind_edges(self, operator: HopOp, rows: Bindings, steps: EdgeSteps, which: np.ndarray) -> Bindings:
        """A row per edge: in the order of the rows, and by edge id among those of one row."""
        if operator.conditions:
            nodes = np.unique(steps.nodes)
            kept = self._reader.keep(operator.conditions, Bindings(len(nodes), {operator.far: nodes}))
            mask = np.isin(steps.nodes, kept.columns[operator.far])
            steps = EdgeSteps(steps.origins[mask], steps.nodes[mask], steps.edges[mask])
        edge_ids = self._reader.columns("", operator.edge, ["id"], steps.edges)["id"]
        order = np.lexsort((ranks(edge_ids), steps.origins))
        origins, edges = steps.origins[order], steps.edges[order].astype(np.int64)
        slots = np.arange(int(which.max()) + 1)
        starts, stops = np.searchsorted(origins, slots), np.searchsorted(origins, slots, side="right")
        counts = (stops - starts)[which]
        self._budget.need(int(counts.sum()) * 8 * (len(rows.columns) + 4), f"the rows of ${operator.binding}")
        runs, places = spread(starts[which], counts)
        nodes = steps.nodes[order][places]
        made = rows.take(runs).bind(operator.binding or "", edges[places])
        if operator.exists:
            return made.keep(nodes == made.columns[operator.far])
        return made.bind(operator.far, nodes)

    def _sort_key(self, variable: str, table: str, rows: Bindings) -> np.ndarray:
        """What rows are sorted by: nodes by row id, edges by edge id."""
        column = rows.columns[variable]
        return ranks(self._reader.columns("", table, ["id"], column)["id"]) if table.startswith("edge:") else column

    # Blocks within blocks

    def _run_product(self, operator: ProductOp, rows: Bindings) -> Bindings:
        right = self._run_nested(operator.block, Bindings.unit())
        if not right.count:
            return rows.head(0).product(right)
        join = next((each for each in operator.conditions if joinable(each, rows, right)), None)
        if join is not None:
            pairs = equal_pairs(*self._join_columns(join, rows, right))
            width = len(rows.columns) + len(right.columns)
            self._budget.need(len(pairs[0]) * 8 * width, "the rows of a join")
            made = Bindings(len(pairs[0]), {**rows.take(pairs[0]).columns, **right.take(pairs[1]).columns})
            return self._reader.keep([each for each in operator.conditions if each is not join], made)
        parts: list[Bindings] = []
        held = 0
        size = max(1, _PRODUCT // right.count) if operator.conditions else rows.count
        for start in range(0, rows.count, size):
            left = rows.slice(start, start + size)
            width = 8 * (len(left.columns) + len(right.columns))
            self._budget.need(held + left.count * right.count * width, "the rows of a product")
            parts.append(self._reader.keep(operator.conditions, left.product(right)))
            held += parts[-1].nbytes
        return _concatenate(parts)

    def _join_columns(self, condition: Condition, rows: Bindings, right: Bindings) -> tuple[pa.Array, pa.Array]:
        """The columns of an equality, first that of the rows."""
        sides = [side for side in (condition.left, condition.right) if isinstance(side, PropertyValue)]
        if sides[0].variable not in rows.columns:
            sides.reverse()
        found = []
        for side, bound in zip(sides, (rows, right), strict=True):
            key = f"{side.kind}:{side.owner}"
            found.append(self._reader.columns(side.variable, key, [side.name], bound.columns[side.variable])[side.name])
        return found[0], found[1]

    def _run_absent(self, operator: NotOp, rows: Bindings) -> Bindings:
        firsts, which = distinct_rows([rows.columns[name] for name in operator.outer], rows.count)
        outer = rows.only(operator.outer).take(firsts)
        present = self._has_neighbour(operator, outer)
        if present is None:
            present = np.zeros(outer.count, bool)
            for start in range(0, outer.count, _OUTER):
                part = outer.slice(start, start + _OUTER)
                found = self._run_nested(operator.block, part.bind(_ROW, np.arange(part.count)))
                present[found.columns[_ROW] + start] = True
        return rows.keep(~present[which])

    def _has_neighbour(self, operator: NotOp, outer: Bindings) -> np.ndarray | None:
        """Whether each node has a neighbour, for a block that asks only for that and where degrees are known; else None."""
        hop = operator.block.operators[0] if len(operator.block.operators) == 1 else None
        plain = isinstance(hop, HopOp) and not (hop.exists or hop.binding or hop.conditions or hop.low > 1)
        if not plain or not isinstance(hop, HopOp) or len(operator.outer) != 1:
            return None
        nodes = outer.columns[hop.near]
        found = self._tables.neighbours(hop, len(nodes)).has_any(nodes, loops=self._tables.bounds(hop).self_loops)
        if found is not None:
            self._trace.count(hop, int(np.count_nonzero(found)))
        return found


def _split_conditions(table: ReadTable, conditions: Sequence[Condition]) -> tuple[Any, list[Condition]]:
    """What the driver tests, as one expression, and what is left to test here."""
    pushed: PushedFilter | None = None
    rest = []
    for condition in conditions:
        names = [value.name for value in condition.properties]
        filter_ = None if condition.searches or len(names) != 1 else push_condition(condition, table.types[names[0]])
        if filter_ is NEVER:
            return NEVER, []
        if filter_ is None:
            rest.append(condition)
        else:
            more = PushedFilter(filter_, (names[0],))
            pushed = more if pushed is None else pushed & more
    return pushed, rest


def _equal_text(table: ReadTable, condition: Condition) -> str | None:
    """The text that a String property has to equal, if the condition is such an equality."""
    left, right = condition.left, condition.right
    if condition.sign is not Sign.EQ or not isinstance(left, PropertyValue) or not isinstance(right, Cell):
        return None
    return right.value if isinstance(right.value, str) and pa.types.is_string(table.types[left.name]) else None


def _within(nodes: np.ndarray, starts: np.ndarray, runs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted node, whether it is in its run of the nodes; within a run they ascend."""
    low, high = starts[runs], starts[runs + 1]
    end = high.copy()
    while True:
        open_ = low < high
        if not open_.any():
            break
        middle = (low + high) // 2
        less = nodes[np.minimum(middle, len(nodes) - 1)] < wanted
        low, high = np.where(open_ & less, middle + 1, low), np.where(open_ & ~less, middle, high)
    found: np.ndarray = (low < end) & (nodes[np.minimum(low, len(nodes) - 1)] == wanted)
    return found


def _concatenate(parts: Sequence[Bindings]) -> Bindings:
    if len(parts) == 1:
        return parts[0]
    names = parts[0].columns
    return Bindings(
        sum(part.count for part in parts),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in names},
    )


def _variable_text(variable: str) -> str:
    return "$_" if variable.startswith("#") else f"${variable}"
