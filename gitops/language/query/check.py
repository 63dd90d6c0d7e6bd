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
from gitops.language.query.describe import ResultColumn, result_column, row_name, statement_access
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

_GROUPED = (AggregateValue, PropertyValue, NodeValue, ParameterValue)
"""What an aggregate query may return."""


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
    params: dict[str, PropType] = {}
    for param in query.params:
        name, declared = param.name.text, param.type
        if name == RESERVED:
            refuse("", f"parameter name `${name}` is reserved", param.name.span)
        if name in params:
            refuse("", f"parameter `${name}` is declared twice", param.name.span)
        if declared.dimension is not None and not 1 <= declared.dimension <= MAX_DIMENSION:
            fix = f"a dimension is from 1 to {MAX_DIMENSION}"
            refuse("", f"unknown parameter type `{declared}` of `${name}`", param.type_span, fix)
        params[name] = declared
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
        MappingProxyType(params),
        columns,
        tuple(sorted(reads)),
        tuple(sorted(writes)),
        frozenset(scope.uses),
        body,
        query.description,
        query.instruction,
    )


def _read(scope: Scope, read: ast.Read) -> TypedRead:
    clauses = check_clauses(scope, read.clauses)
    items: list[ReturnItem] = []
    for item in read.items:
        value, alias = check_output(scope, item.value), None if item.alias is None else item.alias.text
        items.append(ReturnItem(value, alias, alias or row_name(value)))
    aliases = {item.alias: index for index, item in enumerate(items) if item.alias is not None}
    order = [SortKey(check_output(scope, sort.value, aliases), sort.descending) for sort in read.order]
    # What an order item sorts by: the return item, if it names an alias.
    sorted_by = [items[key.value.item].value if isinstance(key.value, AliasValue) else key.value for key in order]
    aggregated = any(isinstance(item.value, AggregateValue) for item in items)
    if read.limit is None:
        for rule, rank, name in (("T21", FusedRank, "rrf"), ("T17", NearestRank, "nearest")):
            for sort, expression in zip(read.order, sorted_by, strict=True):
                if isinstance(expression, rank):
                    refuse(rule, f"{name} ordering requires a limit", sort.span, "add `limit n`")
    if any(isinstance(key.value, NearestRank) for key in order):
        for sort, key in zip(read.order, order, strict=True):
            if isinstance(key.value, AliasValue):
                refuse("T18", "ordering by an alias is not supported together with nearest", sort.span)
    if aggregated:
        for item, checked in zip(read.items, items, strict=True):
            if not isinstance(checked.value, _GROUPED):
                message = "return has non-aggregate expressions in an aggregate query"
                refuse("T9", message, item.span, "group by `$v.p` or `$v` only")
    if order:
        _check_sortable(read, items, order, sorted_by, aggregated=aggregated)
    return TypedRead(
        clauses,
        MappingProxyType({name: node.name for name, node in scope.nodes.items()}),
        MappingProxyType({name: edge.name for name, edge in scope.edges.items()}),
        tuple(items),
        tuple(order),
        read.limit,
        aggregated,
    )


def _check_sortable(
    read: ast.Read, items: list[ReturnItem], order: list[SortKey], sorted_by: list[TypedExpr], *, aggregated: bool
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
        if isinstance(sorted_by[index], RANKS) and index > 0:
            refuse("", "unsupported ordering expression: a rank must be the first order item", sort.span)
        if aggregated and isinstance(value, PropertyValue) and value not in projected:
            message = "unsupported ordering expression: in an aggregate query the property must be returned"
            refuse("", message, sort.span)
