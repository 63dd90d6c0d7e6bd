"""Run a checked read against one snapshot.

1. Parameters and literals are read; nothing has been opened yet.
2. The clauses become operators; types and properties that the snapshot lacks are refused.
3. The operators give rows.
4. The rows are grouped, or ordered and cut; then the returned properties are read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.errors import BugError, GitopsError
from gitops.graph.query.bindings import Bindings
from gitops.graph.query.cache import ReadCache
from gitops.graph.query.cells import Constants
from gitops.graph.query.execute import Executor, ScanRequest
from gitops.graph.query.explain import Trace, explain
from gitops.graph.query.limits import Budget
from gitops.graph.query.options import QueryOptions
from gitops.graph.query.plan import Block, ScanOp, conditions_of, plan_block, tables_of
from gitops.graph.query.project import Projection, item_type, sorted_by
from gitops.graph.query.pushdown import push_condition
from gitops.graph.query.reader import ColumnReader
from gitops.graph.query.result import QueryResult
from gitops.graph.query.searching import QuerySearch
from gitops.graph.query.strategies import QueryTables
from gitops.graph.query.tables import RowOrder
from gitops.graph.snapshot import Snapshot
from gitops.language.query import Access, CheckedQuery, ComparisonOperator
from gitops.language.query.typed import (
    RANKS,
    AggregateValue,
    FusedRank,
    NearestRank,
    NodeValue,
    PropertyValue,
    TextRank,
    TypedExpr,
    TypedRead,
)
from gitops.language.schema import FLOATS, NUMERIC, Scalar, TypeKind

__all__ = ["run_query"]

_MOST_ROWS = 2**31 - 1


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
    if not isinstance(query.body, TypedRead):
        raise GitopsError(Code.QUERY_UNSUPPORTED, f"query {query.name} writes: run it as a mutation", path=query.name)
    try:
        return _QueryRun(snapshot, query, params, options, cache).result()
    except MemoryError as error:
        raise GitopsError(Code.QUERY_MEMORY_EXCEEDED, "the system is out of memory") from error
    except pa.ArrowException as error:
        raise GitopsError(Code.QUERY_FAILED, f"query {query.name} failed: {str(error)[:300]}") from error


class _QueryRun:
    """One run of a query."""

    def __init__(
        self,
        snapshot: Snapshot,
        query: CheckedQuery,
        params: object,
        options: QueryOptions,
        cache: ReadCache | None,
    ) -> None:
        if not isinstance(query.body, TypedRead):
            raise BugError("a mutation is run as a read")
        self._snapshot = snapshot
        limit = query.body.limit
        self._read = query.body._replace(limit=None if limit is None else min(limit, _MOST_ROWS))
        self._options = options
        self._budget = Budget(options.timeout_s, options.memory_bytes)
        self._trace = Trace()
        self._constants = Constants(query, params, options.now)
        self._tables = QueryTables(snapshot, cache, options, self._budget, self._trace)
        self._search = QuerySearch(
            self._tables, self._constants, options.embedder, self._budget, approximate=options.approximate
        )
        self._reader = ColumnReader(self._tables.table, self._search.matches, self._budget)
        self._projection = Projection(self._read, self._constants, self._reader, self._search)

    def result(self) -> QueryResult:
        read = self._read
        for item in read.items:
            item_type(item.value)
        block = plan_block(read.clauses, self._constants, self._tables.statistics())
        tables = self._check_snapshot(block)
        wanted = _scan_request(read, block, self._tables)
        executor = Executor(self._tables, self._reader, self._budget, self._trace)
        if read.limit == 0 and not read.aggregated:
            rows = Bindings(0, {name: np.empty(0, np.int64) for name in block.variables})
        else:
            rows = executor.block(block, Bindings.unit(), wanted)
        if read.aggregated:
            columns = self._projection.grouped(rows)
        else:
            kept = rows if wanted.order is not None else self._projection.ordered(rows)
            columns = self._projection.columns([item.value for item in read.items], kept)
        self._budget.need(sum(column.nbytes for column in columns), "the result")
        return self._result(block, tables, columns)

    def _check_snapshot(self, block: Block) -> set[str]:
        """Refuse what the snapshot does not have and what search cannot do, whatever the data: the tables of the plan."""
        tables = tables_of(block)
        for key in sorted(tables):
            self._tables.require(key)
        conditions = conditions_of(block)
        used = {value for condition in conditions for value in condition.properties}
        ordered = [sorted_by(key, self._read.items) for key in self._read.order]
        for value in (*(item.value for item in self._read.items), *ordered):
            used.update(_properties(value))
        for value in sorted(used, key=lambda each: (each.owner, each.name)):
            self._tables.require(f"{value.kind}:{value.owner}", value.name)
        for condition in conditions:
            for match in condition.searches:
                self._search.check_match(match)
        for value in ordered:
            if isinstance(value, RANKS):
                self._search.check_rank(value)
        return tables

    def _result(self, block: Block, tables: set[str], columns: list[pa.Array]) -> QueryResult:
        items = {item.column: (item, column) for item, column in zip(self._read.items, columns, strict=True)}
        pairs = [key.split(":", 1) for key in tables | self._tables.read.keys()]
        rows_of = {key: self._snapshot.manifest.tables[key].rows for key in tables}
        explained = explain(block, self._trace, rows_of.__getitem__) if self._options.explain else []
        return QueryResult(
            manifest_version=self._snapshot.manifest.n,
            columns=tuple(items),
            types=tuple(item_type(item.value) for item, _ in items.values()),
            table=pa.table({name: column for name, (_, column) in items.items()}),
            touched=frozenset(Access(TypeKind(kind), name) for kind, name in pairs),
            explanation=tuple(explained),
            statistics={"peak_bytes": self._budget.peak, "tables_opened": len(self._tables.read)},
        )


def _scan_request(read: TypedRead, block: Block, hops: QueryTables) -> ScanRequest:
    """What the scan of a query that is one scan brings along."""
    scan = block.operators[0] if len(block.operators) == 1 else None
    if not isinstance(scan, ScanOp) or read.limit == 0:
        return ScanRequest()
    ordered = [sorted_by(key, read.items) for key in read.order]
    if any(isinstance(value, RANKS) for value in ordered):
        return ScanRequest()
    returned = [item.value for item in read.items]
    order = _pushed_order(read, ordered, scan, hops)
    if order is None and read.limit is not None and not read.aggregated:
        # The rows are cut before the returned properties are read, unless there can be hardly any.
        selective = any(condition.sign is ComparisonOperator.EQ for condition in scan.conditions)
        returned = [*(returned if selective else ()), *ordered]
    return ScanRequest(tuple(dict.fromkeys(name for value in returned for name in _columns(value))), order)


def _pushed_order(read: TypedRead, ordered: list[TypedExpr], scan: ScanOp, hops: QueryTables) -> RowOrder | None:
    """The order and limit, if the driver can carry them out exactly: it treats 0.0 and -0.0 as different.

    Rows that go by a number first are chosen here, since that is several times faster.
    """
    if read.aggregated or read.limit is None or not ordered:
        return None
    if isinstance(ordered[0], PropertyValue) and ordered[0].type.scalar in NUMERIC:
        return None
    table = hops.table(scan.table)
    if scan.conditions and not table.filters:
        return None
    for condition in scan.conditions:
        names = [value.name for value in condition.properties]
        if condition.searches or len(names) != 1 or push_condition(condition, table.types[names[0]]) is None:
            return None
    columns: dict[str, bool] = {}
    for value, key in zip(ordered, read.order, strict=True):
        if not isinstance(value, (PropertyValue, NodeValue)):
            return None
        if isinstance(value, PropertyValue) and (
            value.type.scalar in FLOATS or value.type.is_list or value.type.scalar is Scalar.VECTOR
        ):
            return None
        columns.setdefault(value.name if isinstance(value, PropertyValue) else "id", not key.descending)
    columns.setdefault("id", True)
    if not scan.conditions and hops.settled(scan.table, tuple(columns)):
        return None
    return RowOrder(tuple(columns.items()), max(1, min(read.limit, table.rows)))


def _columns(value: TypedExpr) -> list[str]:
    """The columns that an expression over one variable needs."""
    inner = value.argument if isinstance(value, AggregateValue) else value
    if isinstance(inner, PropertyValue):
        return [inner.name]
    return ["id"] if isinstance(inner, NodeValue) and inner is value else []


def _properties(value: TypedExpr) -> list[PropertyValue]:
    if isinstance(value, AggregateValue):
        return _properties(value.argument)
    if isinstance(value, FusedRank):
        return [*_properties(value.first), *_properties(value.second)]
    if isinstance(value, NearestRank):
        return [value.target]
    if isinstance(value, TextRank):
        return [value.field]
    return [value] if isinstance(value, PropertyValue) else []
