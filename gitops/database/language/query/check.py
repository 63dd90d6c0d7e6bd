"""A query against a catalog: the entry of the checker, the sections of a read, and what descriptors publish of a query.

The first violated rule of a query is reported: its size (T25); then, in the order of the text, parameters, match clauses,
return items and order items; then the rules of whole sections (T21, T17, T18, T9), and last the orders that cannot be executed.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.database.language.query import ast, typed
from gitops.database.language.query.check_expr import check_output, type_of
from gitops.database.language.query.check_match import check_clauses
from gitops.database.language.query.check_mutation import check_statement
from gitops.database.language.query.limits import check_limits
from gitops.database.language.query.scope import Scope, refuse
from gitops.database.language.record import Record
from gitops.database.language.schema.types import PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitops.database.language.schema.types import Catalog


RESERVED = "__nanograph_now"
"""The parameter name in which engines of this language pass the instant of `now()`."""

MAX_DIMENSION = 2**31 - 1

_GROUPED = (typed.AggregateValue, typed.PropertyValue, typed.NodeValue, typed.ParameterValue)
"""What an aggregate query may return."""

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BLOB: "blob",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.I64: "bigint",
    Scalar.U32: "int",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.VECTOR: "vector",
}
_NAMES: dict[type, str] = {
    typed.NowValue: "now",
    typed.Constant: "literal",
    typed.NearestRank: "nearest",
    typed.TextRank: "bm25",
    typed.FusedRank: "rrf",
}


class QueryEffect(StrEnum):
    """Whether a query reads or writes."""

    READ = "read"
    MUTATION = "mutation"


class ResultColumn(Record):
    """One column of a read's result.

    `name` is the descriptor's name: alias, else property, variable, `now`, `literal` or function name. `column` is the
    key in result rows, where a property is `v.p` and an aggregate goes by its argument. `type` is None for a node.
    """

    name: str
    column: str
    type: PropType | None

    def to_json(self) -> dict[str, Any]:
        """The JSON form of descriptors."""
        kind = self.type
        if kind is None:
            return {"name": self.name, "kind": "object", "nullable": False}
        form: dict[str, Any] = {"name": self.name, "kind": "list" if kind.is_list else _KINDS[kind.scalar]}
        if kind.is_list:
            form["item_kind"] = _KINDS[kind.scalar]
        elif kind.scalar is Scalar.VECTOR:
            form["vector_dim"] = kind.dimension
        form["nullable"] = kind.nullable
        return form


class CheckedQuery(Record):
    """A query that satisfies every rule against one catalog.

    `columns` is empty for mutations. `reads` and `writes` are sorted and unique. `uses` holds every (type, property)
    pair that the query names; it does not distinguish a node and an edge type of one name. `body` is for the executor.
    """

    name: str
    kind: QueryEffect
    params: Mapping[str, PropType]
    columns: tuple[ResultColumn, ...]
    reads: tuple[typed.Access, ...]
    writes: tuple[typed.Access, ...]
    uses: frozenset[tuple[str, str]]
    body: typed.TypedRead | tuple[typed.TypedStatement, ...]
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
    """Check one parsed query. Raises `LanguageError` with the first violated rule (T1 to T25, or none) and its span."""
    check_limits(query)
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
    body: typed.TypedRead | tuple[typed.TypedStatement, ...]
    if isinstance(query.body, ast.Read):
        kind = QueryEffect.READ
        body = _read(scope, query.body)
        columns = tuple([_result_column(item) for item in body.items])
        reads, writes = scope.touched, set[typed.Access]()
    else:
        kind = QueryEffect.MUTATION
        body = tuple([check_statement(scope, statement) for statement in query.body])
        reads, writes = _statement_access(catalog, body)
    return CheckedQuery(
        query.name.text,
        kind,
        MappingProxyType(params),
        columns,
        _sorted(reads),
        _sorted(writes),
        frozenset(scope.uses),
        body,
        query.description,
        query.instruction,
    )


def _read(scope: Scope, read: ast.Read) -> typed.TypedRead:
    clauses = check_clauses(scope, read.clauses)
    items: list[typed.ReturnItem] = []
    for item in read.items:
        value, alias = check_output(scope, item.value), None if item.alias is None else item.alias.text
        items.append(typed.ReturnItem(value, alias, alias or _row_name(value)))
    # An item without an alias goes by its column, if that is a name and not an alias of another.
    columns = {item.column: index for index, item in enumerate(items) if "." not in item.column}
    aliases = columns | {item.alias: index for index, item in enumerate(items) if item.alias is not None}
    order = [typed.SortKey(check_output(scope, sort.value, aliases), sort.descending) for sort in read.order]
    # What an order item sorts by: the return item, if it names an alias.
    sorted_by = [items[key.value.item].value if isinstance(key.value, typed.AliasValue) else key.value for key in order]
    aggregated = any(isinstance(item.value, typed.AggregateValue) for item in items)
    if read.limit is None:
        for rule, rank, name in (("T21", typed.FusedRank, "rrf"), ("T17", typed.NearestRank, "nearest")):
            for sort, expression in zip(read.order, sorted_by, strict=True):
                if isinstance(expression, rank):
                    refuse(rule, f"{name} ordering requires a limit", sort.span, "add `limit n`")
    if any(isinstance(expression, typed.NearestRank) for expression in sorted_by):
        for sort, key in zip(read.order, order, strict=True):
            if isinstance(key.value, typed.AliasValue):
                message = "ordering by an alias is not supported together with nearest"
                refuse("T18", message, sort.span, "order by `nearest(..)` itself, without an alias")
    if aggregated:
        for item, checked in zip(read.items, items, strict=True):
            if not isinstance(checked.value, _GROUPED):
                message = "return has non-aggregate expressions in an aggregate query"
                refuse("T9", message, item.span, "group by `$v.p` or `$v` only")
    if order:
        _check_sortable(read, items, order, sorted_by, aggregated=aggregated)
    return typed.TypedRead(
        clauses,
        MappingProxyType({name: node.name for name, node in scope.nodes.items()}),
        MappingProxyType({name: edge.name for name, edge in scope.edges.items()}),
        tuple(items),
        tuple(order),
        read.limit,
        aggregated,
    )


def _check_sortable(
    read: ast.Read,
    items: list[typed.ReturnItem],
    order: list[typed.SortKey],
    sorted_by: list[typed.TypedExpr],
    *,
    aggregated: bool,
) -> None:
    """Refuse orders that cannot be executed (no rule code)."""
    projected = {item.value for item in items if isinstance(item.value, typed.PropertyValue)}
    for index, (sort, key) in enumerate(zip(read.order, order, strict=True)):
        value = key.value
        if not isinstance(value, (typed.PropertyValue, typed.AliasValue, *typed.RANKS)):
            fix = "order by `$v.p` or by an alias of a return item"
            refuse("", "unsupported ordering expression", sort.span, fix)
        if isinstance(sorted_by[index], typed.RANKS) and index > 0:
            refuse("", "unsupported ordering expression: a rank must be the first order item", sort.span)
        if aggregated and isinstance(value, typed.PropertyValue) and value not in projected:
            message = "unsupported ordering expression: in an aggregate query the property must be returned"
            refuse("", message, sort.span)


def _result_column(item: typed.ReturnItem) -> ResultColumn:
    """The described column of a return item."""
    value = item.value
    if isinstance(value, (typed.PropertyValue, typed.AliasValue)):
        name = value.name
    else:
        name = value.function.value if isinstance(value, typed.AggregateValue) else _row_name(value)
    return ResultColumn(item.alias or name, item.column, type_of(value))


def _statement_access(
    catalog: Catalog, statements: tuple[typed.TypedStatement, ...]
) -> tuple[set[typed.Access], set[typed.Access]]:
    """The types that writes read and write.

    Every written type is read: an insert replaces a node of its key, and a predicate selects. An insert of an edge also reads
    its endpoints; a node delete reads and writes every incident edge type.
    """
    reads: set[typed.Access] = set()
    writes: set[typed.Access] = set()
    for each in statements:
        access = typed.Access(TypeKind.NODE if isinstance(each, typed.TypedUpdate) else each.kind, each.type_name)
        reads.add(access)
        writes.add(access)
        if isinstance(each, typed.TypedInsert) and each.kind is TypeKind.EDGE:
            edge = catalog.edges[each.type_name]
            reads |= {typed.Access(TypeKind.NODE, edge.source), typed.Access(TypeKind.NODE, edge.target)}
        if isinstance(each, typed.TypedDelete) and each.kind is TypeKind.NODE:
            edges = [edge for edge in catalog.edges.values() if each.type_name in (edge.source, edge.target)]
            incident = {typed.Access(TypeKind.EDGE, edge.name) for edge in edges}
            reads |= incident
            writes |= incident
    return reads, writes


def _sorted(accesses: set[typed.Access]) -> tuple[typed.Access, ...]:
    """Nodes before edges, each by name."""
    return tuple(sorted(accesses, key=lambda each: (each.kind is TypeKind.EDGE, each.type_name)))


def _row_name(value: typed.TypedExpr) -> str:
    """The name of a return item without an alias in result rows."""
    while isinstance(value, typed.AggregateValue):
        value = value.argument
    if isinstance(value, typed.PropertyValue):
        return f"{value.variable}.{value.name}"
    if isinstance(value, typed.NodeValue):
        return value.variable
    if isinstance(value, (typed.ParameterValue, typed.AliasValue)):
        return value.name
    if isinstance(value, typed.TextMatch):
        return value.function.value
    return _NAMES[type(value)]
