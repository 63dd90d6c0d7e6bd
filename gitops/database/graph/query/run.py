"""Runs a checked read against one snapshot.

1. Parameters and literals are read before any table is opened.
2. The clauses become operators. Types and properties that the snapshot lacks are rejected.
3. The operators produce rows.
4. The rows are grouped, or sorted and limited. Then the returned properties are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query import plan
from gitops.database.graph.query.bindings import Bindings, distinct, distinct_rows, equal_pairs, searchable, spread
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.exact import NEVER, ColumnReader, push_conditions
from gitops.database.graph.query.expand import EdgeSteps, QueryTables, reach_nodes
from gitops.database.graph.query.options import Budget, QueryOptions
from gitops.database.graph.query.plan import (
    Block,
    Condition,
    ConstantCell,
    HopOp,
    NotOp,
    ProductOp,
    ScanOp,
    SortOp,
    TestOp,
    Trace,
    has_form,
    show_variable,
)
from gitops.database.graph.query.project import Projection, item_type, ranks, sorted_by
from gitops.database.graph.query.searching import QuerySearch
from gitops.database.graph.query.tables import ReadTable, RowOrder, TableRows
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.values import cell_to_json
from gitops.database.language.query import Access, CheckedQuery, ComparisonOperator, typed
from gitops.database.language.query import ComparisonOperator as Sign
from gitops.database.language.query.typed import PropertyValue
from gitops.database.language.schema import FLOATS, NUMERIC, PropType, Scalar, TypeKind

# Operators on rows. Row order does not depend on the strategy: rows are sorted by row id in the order of binding.

_PRODUCT = 1_000_000
_OUTER = 65_536
_FEW = 1_000
_ROW = "#row"
# Types whose values are equal exactly if their bytes are.
_HASHED = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE, Scalar.DATETIME)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Additional demands on a scan: columns that the result needs, and a limit to the first rows in an order."""

    columns: tuple[str, ...] = ()
    order: RowOrder | None = None


@dataclass(slots=True)
class Executor:
    """Executes one query's blocks. `tables` finds neighbours, and `reader` reads properties."""

    tables: QueryTables
    reader: ColumnReader
    budget: Budget
    trace: Trace

    def block(self, block: Block, rows: Bindings, wanted: ScanRequest | None = None) -> Bindings:
        """Run a block on the given rows and return its rows. `wanted` applies to a block that is only a scan."""
        for operator in block.operators:
            if not rows.count:
                break
            before = rows.nbytes
            if isinstance(operator, ScanOp):
                table = self.tables.table(operator.table)
                found = self._select(table, operator.variable, operator.conditions, wanted or ScanRequest())
                self.reader.remember(operator.variable, found)
                rows = Bindings(len(found.ids), {operator.variable: found.ids})
            elif isinstance(operator, HopOp):
                rows = self._run_hop(operator, rows)
            elif isinstance(operator, TestOp):
                rows = self.reader.keep(operator.conditions, rows)
            elif isinstance(operator, ProductOp):
                rows = self._run_product(operator, rows)
            elif isinstance(operator, SortOp):
                rows = rows.take(np.lexsort([self._sort_key(*key, rows) for key in reversed(operator.keys)]))
            else:
                rows = self._run_absent(operator, rows)
            self.trace.count(operator, rows.count)
            self.budget.hold(rows.nbytes - before, "the rows in flight")
        if rows.count:
            return rows
        return Bindings(0, {name: np.empty(0, np.int64) for name in (*rows.columns, *block.variables)})

    def _run_nested(self, block: Block, given: Bindings) -> Bindings:
        """Return the rows of a nested block and release its memory."""
        held = self.budget.held
        found = self.block(block, given)
        self.budget.held = held
        return found

    # Scans

    def _select(
        self, table: ReadTable, variable: str, conditions: Sequence[Condition], wanted: ScanRequest
    ) -> TableRows:
        """Return the rows of a table that satisfy the variable's conditions, by row id, with the wanted columns."""
        pushed, rest = push_conditions(conditions, table.types)
        if pushed is NEVER:
            return table.collect(wanted.columns, iter(()), self.budget)
        known = self._find_equal(table, conditions) if wanted.order is None else None
        if known is not None:
            return TableRows(known, table.take(known, wanted.columns, self.budget))
        plain = [condition for condition in rest if not condition.searches]
        tested = [value.name for condition in plain for value in condition.properties]
        columns = tuple(dict.fromkeys((*wanted.columns, *tested)))
        every = pushed is None and wanted.order is None
        if every and not plain:
            found = table.whole(columns, self.budget)
        else:
            kept = table.held(columns) if every else None
            read = table.scan(columns, self.budget, pushed, wanted.order) if kept is None else iter([kept])
            batches = (self.reader.passing(plain, rows) for rows in read)
            found = table.collect(columns, batches, self.budget, sort=wanted.order is None)
        for condition in rest:
            if condition.searches:
                matched = self.reader.keep_nodes([condition], variable, found.ids)
                found = found.keep(np.isin(found.ids, matched))
        return TableRows(found.ids, {name: found.columns[name] for name in wanted.columns})

    def _find_equal(self, table: ReadTable, conditions: Sequence[Condition]) -> np.ndarray | None:
        """Return the row ids that satisfy the conditions, using an in-memory column for one of them."""
        for condition in conditions:
            left, right = condition.left, condition.right
            if (
                condition.sign is not Sign.EQ
                or not isinstance(left, PropertyValue)
                or not isinstance(right, ConstantCell)
            ):
                continue
            if has_form(right, left.type) and searchable(table.types[left.name]):
                found = table.equal(left.name, right.value, self.budget)
                if found is not None:
                    others = [each for each in conditions if each is not condition]
                    return self.reader.keep_nodes(others, left.variable, found)
        return None

    # Hops

    def _run_hop(self, operator: HopOp, rows: Bindings) -> Bindings:
        sources, which = distinct(rows.columns[operator.near])
        neighbours = self.tables.neighbours(operator, len(sources))
        if operator.binding is not None:
            if operator.low > 1:
                return rows.head(0)
            return self._bind_edges(operator, rows, neighbours.steps(sources), which)
        parts = reach_nodes(neighbours, sources, operator, self.budget)
        if operator.exists:
            return self._keep_reached(parts, rows.columns[operator.far], rows, which)
        origins, nodes = self._filter_reached(operator, parts)
        counts = np.bincount(origins, minlength=len(sources))[which]
        starts = np.searchsorted(origins, np.arange(len(sources)))[which]
        self.budget.need(int(counts.sum()) * 8 * (len(rows.columns) + 3), f"the rows of {show_variable(operator.far)}")
        runs, places = spread(starts, counts)
        return rows.take(runs).bind(operator.far, nodes[places])

    def _filter_reached(
        self, operator: HopOp, parts: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the reached nodes that satisfy the far node's conditions, with their source indexes."""
        kept_origins, kept_nodes, held = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        allowed: np.ndarray | None = None
        for origins, nodes in parts:
            mask: np.ndarray | slice = slice(None)
            if operator.conditions:
                far = np.unique(nodes)
                table = self.tables.table(operator.far_table)
                if allowed is None and len(far) > _FEW and len(far) * 4 > table.rows:
                    allowed = self._select(table, operator.far, operator.conditions, ScanRequest()).ids
                if allowed is None:
                    far = self.reader.keep_nodes(operator.conditions, operator.far, far)
                mask = np.isin(nodes, far if allowed is None else allowed)
            kept_origins.append(origins[mask])
            kept_nodes.append(nodes[mask])
            held += kept_nodes[-1].nbytes * 2
            self.budget.need(2 * held, f"the nodes of {show_variable(operator.far)}")
        return np.concatenate(kept_origins), np.concatenate(kept_nodes)

    def _keep_reached(
        self, parts: Iterable[tuple[np.ndarray, np.ndarray]], far: np.ndarray, rows: Bindings, which: np.ndarray
    ) -> Bindings:
        """Keep the rows whose far node is reachable from their near node."""
        found = np.zeros(rows.count, bool)
        for origins, nodes in parts:
            if len(origins):
                first, last = origins[0], origins[-1]
                concerned = np.flatnonzero((which >= first) & (which <= last))
                starts = np.searchsorted(origins, np.arange(first, last + 2))
                found[concerned] |= _within(nodes, starts, which[concerned] - first, far[concerned])
        return rows.keep(found)

    def _bind_edges(self, operator: HopOp, rows: Bindings, steps: EdgeSteps, which: np.ndarray) -> Bindings:
        """Bind one row per edge, in the order of the rows, and by edge id within a row."""
        if operator.conditions:
            kept = self.reader.keep_nodes(operator.conditions, operator.far, np.unique(steps.nodes))
            mask = np.isin(steps.nodes, kept)
            steps = EdgeSteps(steps.origins[mask], steps.nodes[mask], steps.edges[mask])
        edge_ids = self.reader.columns("", operator.edge, ["id"], steps.edges)["id"]
        order = np.lexsort((ranks(edge_ids), steps.origins))
        origins, edges = steps.origins[order], steps.edges[order].astype(np.int64)
        slots = np.arange(int(which.max()) + 1)
        starts, stops = np.searchsorted(origins, slots), np.searchsorted(origins, slots, side="right")
        counts = (stops - starts)[which]
        self.budget.need(int(counts.sum()) * 8 * (len(rows.columns) + 4), f"the rows of ${operator.binding}")
        runs, places = spread(starts[which], counts)
        nodes = steps.nodes[order][places]
        made = rows.take(runs).bind(operator.binding or "", edges[places])
        if operator.exists:
            return made.keep(nodes == made.columns[operator.far])
        return made.bind(operator.far, nodes)

    def _sort_key(self, variable: str, table: str, rows: Bindings) -> np.ndarray:
        """Return the sort key of rows: row ids for nodes, edge ids for edges."""
        column = rows.columns[variable]
        return ranks(self.reader.columns("", table, ["id"], column)["id"]) if table.startswith("edge:") else column

    # Blocks within blocks

    def _run_product(self, operator: ProductOp, rows: Bindings) -> Bindings:
        right = self._run_nested(operator.block, Bindings.unit())
        if not right.count:
            return rows.head(0).product(right)
        for join in operator.conditions:
            sides = _join_sides(join, rows, right)
            if sides is None:
                continue
            one, other = sides
            left_cells = self.reader.property(one, rows.columns[one.variable])
            lefts, rights = equal_pairs(left_cells, self.reader.property(other, right.columns[other.variable]))
            self.budget.need(len(lefts) * 8 * (len(rows.columns) + len(right.columns)), "the rows of a join")
            made = Bindings(len(lefts), {**rows.take(lefts).columns, **right.take(rights).columns})
            return self.reader.keep([each for each in operator.conditions if each is not join], made)
        parts: list[Bindings] = []
        held = 0
        size = max(1, _PRODUCT // right.count) if operator.conditions else rows.count
        for start in range(0, rows.count, size):
            left = rows.slice(start, start + size)
            width = 8 * (len(left.columns) + len(right.columns))
            self.budget.need(held + left.count * right.count * width, "the rows of a product")
            parts.append(self.reader.keep(operator.conditions, left.product(right)))
            held += parts[-1].nbytes
        if len(parts) == 1:
            return parts[0]
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
        return Bindings(sum(part.count for part in parts), columns)

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
        """Return a mask of the nodes with a neighbour if the block needs only that and degrees are known.

        None in all other cases.
        """
        if len(operator.block.operators) != 1 or len(operator.outer) != 1:
            return None
        (hop,) = operator.block.operators
        if not isinstance(hop, HopOp) or hop.exists or hop.binding or hop.conditions or hop.low > 1:
            return None
        nodes = outer.columns[hop.near]
        found = self.tables.neighbours(hop, len(nodes)).has_any(nodes)
        if found is not None:
            self.trace.count(hop, int(np.count_nonzero(found)))
        return found


def _join_sides(condition: Condition, left: Bindings, right: Bindings) -> tuple[PropertyValue, PropertyValue] | None:
    """Return the left and right properties that the condition compares for equality, if they are hashable."""
    one, other = condition.left, condition.right
    if not isinstance(one, PropertyValue) or not isinstance(other, PropertyValue) or condition.sign is not Sign.EQ:
        return None
    if one.type.scalar is not other.type.scalar or one.type.scalar not in _HASHED:
        return None
    if one.variable not in left.columns:
        one, other = other, one
    across = one.variable in left.columns and other.variable not in left.columns and other.variable in right.columns
    return (one, other) if across else None


def _within(nodes: np.ndarray, starts: np.ndarray, runs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return whether each wanted node is in its run of `nodes`; nodes ascend within a run."""
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


_MOST_ROWS = 2**31 - 1
_AS_THEY_ARE = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def json_conversion(kind: PropType) -> Callable[[Any], Any] | None:
    """Return the conversion from a type's cells to JSON values, or None if the cells already are JSON values."""
    if kind.scalar in _AS_THEY_ARE:
        return None
    if kind.scalar is Scalar.F64 and not kind.is_list:
        return lambda cell: cell if cell is None or math.isfinite(cell) else cell_to_json(cell, kind)
    return partial(cell_to_json, kind=kind)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result rows by column, and information about the run.

    `types` are the column types in the order of `columns`; if two return items have the same name, the later one
    counts. `touched` are the types whose tables the plan reads, even if the run did not reach them. If requested,
    `explanation` has the operators.
    """

    manifest_version: int
    columns: tuple[str, ...]
    types: tuple[PropType, ...]
    table: pa.Table
    touched: frozenset[Access]
    explanation: tuple[Mapping[str, Any], ...]
    statistics: Mapping[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects, with non-finite floats as names and dates and times as strings."""
        columns = []
        for name, kind in zip(self.columns, self.types, strict=True):
            cells: list[Any] = raw_columns(pa.table({"cells": self.table.column(name)}))["cells"]
            convert = json_conversion(kind)
            columns.append(cells if convert is None else [convert(cell) for cell in cells])
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def run_query(
    snapshot: Snapshot,
    query: CheckedQuery,
    params: object,
    options: QueryOptions,
    cache: ReadCache | None = None,
) -> QueryResult:
    """Run a read against a snapshot and return its result.

    `params` is a parsed JSON object, or None. `cache` keeps opened tables and adjacencies between runs. Raises
    GitopsError `query_params_invalid`, `query_literal_invalid`, `query_target_differs`, `query_unsupported`,
    `query_timeout`, `query_memory_exceeded`, `query_failed`, and `graph_unreadable` if a table does not open.
    """
    read = query.body
    if not isinstance(read, typed.TypedRead):
        detail, fix = (
            f"query {query.name} writes: run it as a mutation",
            f"gitops graph mutate GRAPH {query.name}",
        )
        raise GitopsError(Code.QUERY_UNSUPPORTED, detail, path=query.name, fix=fix)
    read = read._replace(limit=None if read.limit is None else min(read.limit, _MOST_ROWS))
    try:
        return _run(snapshot, query, read, params, options, cache)
    except MemoryError as error:
        raise GitopsError(Code.QUERY_MEMORY_EXCEEDED, "the system is out of memory") from error
    except pa.ArrowException as error:
        raise GitopsError(Code.QUERY_FAILED, f"query {query.name} failed: {str(error)[:300]}") from error


def _run(
    snapshot: Snapshot,
    query: CheckedQuery,
    read: typed.TypedRead,
    params: object,
    options: QueryOptions,
    cache: ReadCache | None,
) -> QueryResult:
    budget, trace = Budget(options.timeout_s, options.memory_bytes), plan.Trace()
    constants = plan.Constants(query, params, options.now)
    tables = QueryTables(snapshot, cache, options, budget, trace)
    search = QuerySearch(tables, constants, options.embedder, budget, approximate=options.approximate)
    reader = ColumnReader(tables.table, search.matches, budget)
    projection = Projection(read, constants, reader, search)
    types = {item.column: item_type(item.value) for item in read.items}
    block = plan.plan_block(read.clauses, constants, tables.rows)
    planned = _check_snapshot(read, block, tables, search)
    wanted = _scan_request(read, block, tables)
    if read.limit == 0 and not read.aggregated:
        rows = Bindings(0, {name: np.empty(0, np.int64) for name in block.variables})
    else:
        rows = Executor(tables, reader, budget, trace).block(block, Bindings.unit(), wanted)
    if read.aggregated:
        columns = projection.grouped(rows)
    else:
        kept = rows if wanted.order is not None else projection.ordered(rows)
        columns = projection.columns([item.value for item in read.items], kept)
    budget.need(sum(column.nbytes for column in columns), "the result")
    pairs = [key.split(":", 1) for key in planned | tables.opened.keys()]
    return QueryResult(
        manifest_version=snapshot.manifest.n,
        columns=tuple(types),
        types=tuple(types.values()),
        table=pa.table({item.column: column for item, column in zip(read.items, columns, strict=True)}),
        touched=frozenset(Access(TypeKind(kind), name) for kind, name in pairs),
        explanation=tuple(plan.explain(block, trace, tables.rows)) if options.explain else (),
        statistics={"peak_bytes": budget.peak, "tables_opened": len(tables.opened)},
    )


def _check_snapshot(read: typed.TypedRead, block: plan.Block, tables: QueryTables, search: QuerySearch) -> set[str]:
    """Reject missing tables and searches that are impossible for any data."""
    planned: set[str] = set()
    conditions: list[plan.Condition] = []
    for operator in plan.operators_of(block):
        if isinstance(operator, plan.ScanOp):
            planned.add(operator.table)
        elif isinstance(operator, plan.HopOp):
            planned |= {operator.near_table, operator.edge, operator.far_table}
        if not isinstance(operator, (plan.NotOp, plan.SortOp)):
            conditions += operator.conditions
    for key in sorted(planned):
        tables.require(key)
    used = {value for condition in conditions for value in condition.properties}
    ordered = [sorted_by(key, read.items) for key in read.order]
    for each in (*(item.value for item in read.items), *ordered):
        used.update(_properties(each))
    for value in sorted(used, key=lambda each: (each.owner, each.name)):
        tables.require(f"{value.kind}:{value.owner}", value.name)
    for match in (match for condition in conditions for match in condition.searches):
        search.check_match(match)
    for rank in ordered:
        if isinstance(rank, typed.RANKS):
            search.check_rank(rank)
    return planned


def _scan_request(read: typed.TypedRead, block: plan.Block, tables: QueryTables) -> ScanRequest:
    """Return the scan request for a query that is a single scan."""
    scan = block.operators[0] if len(block.operators) == 1 else None
    if not isinstance(scan, plan.ScanOp) or read.limit == 0:
        return ScanRequest()
    ordered = [sorted_by(key, read.items) for key in read.order]
    if any(isinstance(value, typed.RANKS) for value in ordered):
        return ScanRequest()
    returned = [item.value for item in read.items]
    order = _pushed_order(read, ordered, scan, tables)
    if order is None and read.limit is not None and not read.aggregated:
        # Cut the rows before reading the returned properties, unless there can be only a few rows.
        selective = any(condition.sign is ComparisonOperator.EQ for condition in scan.conditions)
        returned = [*(returned if selective else ()), *ordered]
    return ScanRequest(tuple(dict.fromkeys(name for value in returned for name in _columns(value))), order)


def _pushed_order(
    read: typed.TypedRead, ordered: list[typed.TypedExpr], scan: plan.ScanOp, tables: QueryTables
) -> RowOrder | None:
    """Return the order and limit if the driver can apply them exactly; it treats 0.0 and -0.0 as different.

    Rows that are sorted by a number first are selected here, because that is several times faster.
    """
    if read.aggregated or read.limit is None or not ordered:
        return None
    if isinstance(ordered[0], typed.PropertyValue) and ordered[0].type.scalar in NUMERIC:
        return None
    table = tables.table(scan.table)
    if scan.conditions and not table.filters:
        return None
    _, rest = push_conditions(scan.conditions, table.types)
    if rest:
        return None
    columns: dict[str, bool] = {}
    for value, key in zip(ordered, read.order, strict=True):
        if not isinstance(value, (typed.PropertyValue, typed.NodeValue)):
            return None
        if isinstance(value, typed.PropertyValue) and (
            value.type.scalar in FLOATS or value.type.is_list or value.type.scalar is Scalar.VECTOR
        ):
            return None
        columns.setdefault(value.name if isinstance(value, typed.PropertyValue) else "id", not key.descending)
    columns.setdefault("id", True)
    if not scan.conditions and tables.settled(scan.table, tuple(columns)):
        return None
    return RowOrder(tuple(columns.items()), max(1, min(read.limit, table.rows)))


def _columns(value: typed.TypedExpr) -> list[str]:
    """Return the columns that an expression over one variable needs."""
    inner = value.argument if isinstance(value, typed.AggregateValue) else value
    if isinstance(inner, typed.PropertyValue):
        return [inner.name]
    return ["id"] if isinstance(inner, typed.NodeValue) and inner is value else []


def _properties(value: typed.TypedExpr) -> list[typed.PropertyValue]:
    if isinstance(value, typed.AggregateValue):
        return _properties(value.argument)
    if isinstance(value, typed.FusedRank):
        return [*_properties(value.first), *_properties(value.second)]
    if isinstance(value, typed.NearestRank):
        return [value.target]
    if isinstance(value, typed.TextRank):
        return [value.field]
    return [value] if isinstance(value, typed.PropertyValue) else []
