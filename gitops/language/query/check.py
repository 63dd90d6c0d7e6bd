"""A query against a catalog: the entry of the checker, and the sections of a read.

The first violated rule of a query is reported, in the order of the text: parameters; match clauses; return items;
order items; then the rules of whole sections (T21, T17, T18, T9), and last the orders that cannot be executed.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.language.query import ast
from gitops.language.query.check_expr import check_output
from gitops.language.query.check_match import check_clauses
from gitops.language.query.check_mutation import check_statement
from gitops.language.query.describe import ResultColumn, result_column, return_item, statement_access
from gitops.language.query.scope import Scope, refuse
from gitops.language.query.typed import (
    RANKS,
    Access,
    AggregateValue,
    AliasValue,
    FusedRank,
    NearestRank,
    NodeValue,
    ParameterValue,
    PropertyValue,
    ReturnItem,
    SortKey,
    TypedExpr,
    TypedRead,
    TypedStatement,
)
from gitops.language.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitops.language.schema.types import Catalog, PropType


RESERVED = "__nanograph_now"
"""The parameter name in which engines of this language pass the instant of `now()`."""

MAX_DIMENSION = 2**31 - 1


class QueryEffect(StrEnum):
    """Whether a query reads or writes."""

    READ = "read"
    MUTATION = "mutation"


class CheckedQuery(Record):
    """A query that satisfies every rule against one catalog.

    `columns` is empty for mutations. `reads` and `writes` are sorted and unique. `uses` holds every (type, property)
    pair that the query names; it does not distinguish a node and an edge type of one name. `body` is for the executor.
    """

    name: str
    kind: QueryEffect
    params: Mapping[str, PropType]
    columns: tuple[ResultColumn, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    uses: frozenset[tuple[str, str]]
    body: TypedRead | tuple[TypedStatement, ...]
    description: str | None = None
    instruction: str | None = None

    def operation(self) -> dict[str, Any]:
        """The operation descriptor, as JSON values: `result`, `reads`, `writes`."""
        return {
            "result": [column.to_json() for column in self.columns],
            "reads": [access.to_json() for access in self.reads],
            "writes": [access.to_json() for access in self.writes],
        }


def check_query(query: ast.Query, catalog: Catalog) -> CheckedQuery:
    """Check one parsed query. Raises `LanguageError` with the first violated rule (T1 to T24, or none) and its span."""
    params = _parameter_types(query.params)
    scope = Scope(catalog, params)
    columns: tuple[ResultColumn, ...] = ()
    body: TypedRead | tuple[TypedStatement, ...]
    if isinstance(query.body, ast.Read):
        kind = QueryEffect.READ
        body = _read(scope, query.body)
        columns = tuple([result_column(item) for item in body.items])
        reads, writes = scope.touched, set[Access]()
    else:
        kind = QueryEffect.MUTATION
        body = tuple([check_statement(scope, statement) for statement in query.body])
        reads, writes = statement_access(catalog, body)
    return CheckedQuery(
        query.name.text,
        kind,
        params,
        columns,
        tuple(sorted(reads)),
        tuple(sorted(writes)),
        frozenset(scope.uses),
        body,
        query.description,
        query.instruction,
    )


def _parameter_types(params: tuple[ast.Param, ...]) -> Mapping[str, PropType]:
    """Name to type, in declared order. Refuses the reserved name, a repeated name and an impossible dimension."""
    types: dict[str, PropType] = {}
    for param in params:
        name, kind = param.name.text, param.type
        if name == RESERVED:
            refuse("", f"parameter name `${name}` is reserved", param.name.span)
        if name in types:
            refuse("", f"parameter `${name}` is declared twice", param.name.span)
        if kind.dimension is not None and not 1 <= kind.dimension <= MAX_DIMENSION:
            fix = f"a dimension is from 1 to {MAX_DIMENSION}"
            refuse("", f"unknown parameter type `{kind}` of `${name}`", param.type_span, fix)
        types[name] = kind
    return MappingProxyType(types)


def _read(scope: Scope, read: ast.Read) -> TypedRead:
    clauses = check_clauses(scope, read.clauses)
    items = tuple([return_item(check_output(scope, item.value), item) for item in read.items])
    aliases = {item.alias: index for index, item in enumerate(items) if item.alias is not None}
    order = tuple([SortKey(check_output(scope, sort.value, aliases), sort.descending) for sort in read.order])
    aggregated = any(isinstance(item.value, AggregateValue) for item in items)
    if order:
        _check_ranked_order(read, items, order)
    if aggregated:
        _check_grouping(read, items)
    if order:
        _check_sortable(read, items, order, aggregated=aggregated)
    return TypedRead(
        clauses,
        MappingProxyType({name: node.name for name, node in scope.nodes.items()}),
        MappingProxyType({name: edge.name for name, edge in scope.edges.items()}),
        items,
        order,
        read.limit,
        aggregated,
    )


def _sorted_expression(key: SortKey, items: tuple[ReturnItem, ...]) -> TypedExpr:
    """The expression that an order item sorts by; that of the return item if it names an alias."""
    return items[key.value.item].value if isinstance(key.value, AliasValue) else key.value


def _check_ranked_order(read: ast.Read, items: tuple[ReturnItem, ...], order: tuple[SortKey, ...]) -> None:
    fix = "add `limit n`"
    if read.limit is None:
        for rule, rank, name in (("T21", FusedRank, "rrf"), ("T17", NearestRank, "nearest")):
            for sort, key in zip(read.order, order, strict=True):
                if isinstance(_sorted_expression(key, items), rank):
                    refuse(rule, f"{name} ordering requires a limit", sort.span, fix)
    if any(isinstance(key.value, NearestRank) for key in order):
        for sort, key in zip(read.order, order, strict=True):
            if isinstance(key.value, AliasValue):
                message = "ordering by an alias is not supported together with nearest"
                refuse("T18", message, sort.span)


def _check_grouping(read: ast.Read, items: tuple[ReturnItem, ...]) -> None:
    keys = (AggregateValue, PropertyValue, NodeValue, ParameterValue)
    for item, checked in zip(read.items, items, strict=True):
        if not isinstance(checked.value, keys):
            message = "return has non-aggregate expressions in an aggregate query"
            refuse("T9", message, item.span, "group by `$v.p` or `$v` only")


def _check_sortable(
    read: ast.Read, items: tuple[ReturnItem, ...], order: tuple[SortKey, ...], *, aggregated: bool
) -> None:
    """Refuse orders that cannot be executed (no rule code)."""
    projected = {item.value for item in items if isinstance(item.value, PropertyValue)}
    for index, (sort, key) in enumerate(zip(read.order, order, strict=True)):
        value = key.value
        if not isinstance(value, (PropertyValue, AliasValue, *RANKS)):
            fix = "order by `$v.p` or by an alias of a return item"
            refuse("", "unsupported ordering expression", sort.span, fix)
        if aggregated and isinstance(value, RANKS):
            message = "unsupported ordering expression: groups have no rank"
            refuse("", message, sort.span, "order by a returned property or by an alias")
        if isinstance(_sorted_expression(key, items), RANKS) and index > 0:
            refuse("", "unsupported ordering expression: a rank must be the first order item", sort.span)
        if aggregated and isinstance(value, PropertyValue) and value not in projected:
            message = "unsupported ordering expression: in an aggregate query the property must be returned"
            refuse("", message, sort.span)
