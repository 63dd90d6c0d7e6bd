"""Run a checked read against one snapshot.

1. Parameters and literals are read; nothing has been opened yet.
2. The clauses become operators; types and properties that the snapshot lacks are refused.
3. The operators give rows.
4. The rows are grouped, or ordered and cut; then the returned properties are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query import plan
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.exact import ColumnReader, push_conditions
from gitops.database.graph.query.execute import Executor, ScanRequest
from gitops.database.graph.query.expand import QueryTables
from gitops.database.graph.query.options import Budget, QueryOptions
from gitops.database.graph.query.project import Projection, item_type, sorted_by
from gitops.database.graph.query.searching import QuerySearch
from gitops.database.graph.query.tables import Bindings, RowOrder
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.values import cell_to_json
from gitops.database.language.query import Access, CheckedQuery, ComparisonOperator, typed
from gitops.database.language.schema import FLOATS, NUMERIC, PropType, Scalar, TypeKind

_MOST_ROWS = 2**31 - 1
_AS_THEY_ARE = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result rows by column, with facts about the run.

    `types` are the columns' types in the order of `columns`; of two return items of one name the later one is there.
    `touched` are the types whose tables the plan reads, whether or not the run got as far as each. `explanation` has the
    operators if it was asked for.
    """

    manifest_version: int
    columns: tuple[str, ...]
    types: tuple[PropType, ...]
    table: pa.Table
    touched: frozenset[Access]
    explanation: tuple[Mapping[str, Any], ...]
    statistics: Mapping[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """The rows as JSON objects: floats that are not finite by name, dates and times as text."""
        columns = []
        for name, kind in zip(self.columns, self.types, strict=True):
            cells: list[Any] = raw_columns(pa.table({"cells": self.table.column(name)}))["cells"]
            if kind.scalar is Scalar.F64 and not kind.is_list:
                cells = [cell if cell is None or math.isfinite(cell) else cell_to_json(cell, kind) for cell in cells]
            elif kind.scalar not in _AS_THEY_ARE:
                cells = [cell_to_json(cell, kind) for cell in cells]
            columns.append(cells)
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def run_query(
    snapshot: Snapshot,
    query: CheckedQuery,
    params: object,
    options: QueryOptions,
    cache: ReadCache | None = None,
) -> QueryResult:
    """The result of a read at a snapshot.

    `params` is a parsed JSON object, or None. `cache` keeps opened tables and adjacencies between runs. Raises GitopsError
    `query_params_invalid`, `query_literal_invalid`, `query_target_differs`, `query_unsupported`, `query_timeout`,
    `query_memory_exceeded`, `query_failed`, and `graph_unreadable` when a table does not open.
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
    """Refuse what the snapshot does not have and what search cannot do, whatever the data: the tables of the plan."""
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
    """What the scan of a query that is one scan brings along."""
    scan = block.operators[0] if len(block.operators) == 1 else None
    if not isinstance(scan, plan.ScanOp) or read.limit == 0:
        return ScanRequest()
    ordered = [sorted_by(key, read.items) for key in read.order]
    if any(isinstance(value, typed.RANKS) for value in ordered):
        return ScanRequest()
    returned = [item.value for item in read.items]
    order = _pushed_order(read, ordered, scan, tables)
    if order is None and read.limit is not None and not read.aggregated:
        # The rows are cut before the returned properties are read, unless there can be hardly any.
        selective = any(condition.sign is ComparisonOperator.EQ for condition in scan.conditions)
        returned = [*(returned if selective else ()), *ordered]
    return ScanRequest(tuple(dict.fromkeys(name for value in returned for name in _columns(value))), order)


def _pushed_order(
    read: typed.TypedRead, ordered: list[typed.TypedExpr], scan: plan.ScanOp, tables: QueryTables
) -> RowOrder | None:
    """The order and limit, if the driver can carry them out exactly: it treats 0.0 and -0.0 as different.

    Rows that go by a number first are chosen here, since that is several times faster.
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
    """The columns that an expression over one variable needs."""
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
