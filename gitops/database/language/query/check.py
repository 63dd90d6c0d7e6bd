"""Checks a query against a catalog: the entry point, the sections of a read, and the published query descriptor.

Only the first rule that a query violates is reported, in this order: size (T25); parameters, match clauses, return
items and order items in text order; rules for whole sections (T21, T17, T18, T9); orders that cannot be executed.

Clauses of a match block are checked top to bottom: rules T1 to T5, T7, T9 (not), T15 (hop), T22 and T23.

Writes are checked by rules T10 to T14 and T16, and the written values by T3 and T7.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.database.language.query import ast, typed
from gitops.database.language.query.check_expr import (
    STRING,
    Scope,
    TargetProperty,
    assigned,
    check_limits,
    check_output,
    is_scalar,
    member,
    pattern,
    refuse,
    same_family,
    suggest,
    text_match,
    type_of,
)
from gitops.database.language.record import Record, make
from gitops.database.language.schema.types import Catalog, EdgeType, NodeType, PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitops.database.language.text import Name, Span

RESERVED = "__nanograph_now"
"""Reserved parameter name in which engines of this language pass the instant of `now()`."""

MAX_DIMENSION = 2**31 - 1

_GROUPED = (typed.AggregateValue, typed.PropertyValue, typed.NodeValue, typed.ParameterValue)
"""Items that an aggregate query can return."""

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

    `name` is the name in the descriptor: the alias or, without one, the property, variable or function name, `now` or
    `literal`. `column` is the key in result rows, where a property is `v.p` and an aggregate uses its argument. `type`
    is None for a node.
    """

    name: str
    column: str
    type: PropType | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in descriptors."""
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
    """A query that satisfies every rule for one catalog.

    `columns` is empty for mutations. `reads` and `writes` are sorted and unique. `uses` has every (type, property) pair
    that the query names, and does not distinguish a node type from an edge type with the same name. `body` is for the
    executor.
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
        """Return the operation descriptor, as JSON values: `result`, `reads`, `writes`."""
        return {
            "result": [column.to_json() for column in self.columns],
            "reads": [access.to_json() for access in self.reads],
            "writes": [access.to_json() for access in self.writes],
        }


def check_query(query: ast.Query, catalog: Catalog) -> CheckedQuery:
    """Check one parsed query.

    Raises `LanguageError` with the first rule that it breaks (T1 to T25, or none) and its span.
    """
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
    # An item without an alias is known by its column, if that is a name and not the alias of another item.
    columns = {item.column: index for index, item in enumerate(items) if "." not in item.column}
    aliases = columns | {item.alias: index for index, item in enumerate(items) if item.alias is not None}
    order = [typed.SortKey(check_output(scope, sort.value, aliases), sort.descending) for sort in read.order]
    # The expression that an order item sorts by: the return item if the item is an alias.
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
        # Ordering by the same rank twice, even by its alias, changes nothing.
        ranked = isinstance(sorted_by[0], typed.RANKS)
        order = [key for at, key in enumerate(order) if at == 0 or not ranked or sorted_by[at] != sorted_by[0]]
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
    """Reject orders that cannot be executed (no rule code)."""
    projected = {item.value for item in items if isinstance(item.value, typed.PropertyValue)}
    for index, (sort, key) in enumerate(zip(read.order, order, strict=True)):
        value = key.value
        if not isinstance(value, (typed.PropertyValue, typed.AliasValue, *typed.RANKS)):
            fix = "order by `$v.p` or by an alias of a return item"
            refuse("", "unsupported ordering expression", sort.span, fix)
        if isinstance(sorted_by[index], typed.RANKS) and sorted_by[index] != sorted_by[0]:
            refuse("", "unsupported ordering expression: a rank must be the first order item", sort.span)
        if aggregated and isinstance(value, typed.PropertyValue) and value not in projected:
            message = "unsupported ordering expression: in an aggregate query the property must be returned"
            refuse("", message, sort.span)


def _result_column(item: typed.ReturnItem) -> ResultColumn:
    """Return the described column of a return item."""
    value = item.value
    if isinstance(value, (typed.PropertyValue, typed.AliasValue)):
        name = value.name
    else:
        name = value.function.value if isinstance(value, typed.AggregateValue) else _row_name(value)
    return ResultColumn(item.alias or name, item.column, type_of(value))


def _statement_access(
    catalog: Catalog, statements: tuple[typed.TypedStatement, ...]
) -> tuple[set[typed.Access], set[typed.Access]]:
    """Return the types that write statements read and write.

    Every written type is also read, because an insert replaces a node with the same key, and a predicate selects rows.
    Inserting an edge also reads its endpoint types; deleting a node reads and writes every incident edge type.
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
    """Sort nodes before edges, each by name."""
    return tuple(sorted(accesses, key=lambda each: (each.kind is TypeKind.EDGE, each.type_name)))


def _row_name(value: typed.TypedExpr) -> str:
    """Return the column name of a return item without an alias."""
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


# A global name is looked up much faster than an enum member.
_NODE, _EDGE = TypeKind.NODE, TypeKind.EDGE
_OUT, _IN = typed.Direction.OUT, typed.Direction.IN
_CONTAINS, _STARTS_WITH = ast.ComparisonOperator.CONTAINS, ast.ComparisonOperator.STARTS_WITH
_OF_TEXT = (_CONTAINS, _STARTS_WITH)
_BLOB, _VECTOR = Scalar.BLOB, Scalar.VECTOR


def check_clauses(scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[typed.TypedClause, ...]:
    """Check the clauses in order. Each clause sees only the variables bound above it."""
    return tuple([_clause(scope, clause) for clause in clauses])


def _clause(scope: Scope, clause: ast.Clause) -> typed.TypedClause:
    if isinstance(clause, ast.Bind):
        return _bind(scope, clause)
    if isinstance(clause, ast.Hop):
        return _hop(scope, clause)
    if isinstance(clause, ast.Comparison):
        return _condition(scope, clause)
    if isinstance(clause, ast.TextCall):
        return typed.TextFilter(text_match(scope, clause))
    joined = any(_mentions_bound(scope, inner) for inner in clause.clauses)
    mark = scope.mark()
    inner = check_clauses(scope, clause.clauses)
    if not joined:
        message = "a `not` block must reference at least one outer-bound variable"
        refuse("T9", message, clause.span, "name a variable that a clause above the block binds")
    return typed.Absent(inner, scope.undo(mark))


def _bind(scope: Scope, clause: ast.Bind) -> typed.Scan:
    variable, type_name = clause.variable.text, clause.type_name.text
    node = scope.catalog.nodes.get(type_name)
    if node is None:
        fix = suggest(type_name, scope.catalog.nodes)
        if type_name in scope.catalog.edges:
            fix = f"`{type_name}` is an edge type; match it with a hop"
        elif type_name in scope.catalog.interfaces:
            fix = f"`{type_name}` is an interface; match a node type that implements it"
        refuse("T1", f"unknown node type `{type_name}`", clause.type_name.span, fix)
    tests = tuple([_pair(scope, node, variable, pair) for pair in clause.pairs])
    if variable == ast.ANONYMOUS:
        refuse("", "`$_` is never bound: it can only end a hop", clause.variable.span, "name the variable")
    if variable in scope.edges:
        refuse("T23", f"edge variable `${variable}` cannot be bound to a node type", clause.variable.span)
    bound = scope.nodes.get(variable)
    if bound is not None and bound.name != node.name:
        message = f"variable `${variable}` is already bound to type `{bound.name}`, cannot rebind it"
        refuse("", f"{message} to `{node.name}`", clause.variable.span)
    scope.bind_node(variable, node)
    return typed.Scan(variable, node.name, tests)


def _pair(scope: Scope, node: NodeType, variable: str, pair: ast.PropertyPair) -> typed.PairTest:
    name = pair.name.text
    declared = node.properties.get(name)
    if declared is None:
        fix = suggest(name, node.properties)
        refuse("T2", f"node type `{node.name}` has no property `{name}`", pair.name.span, fix)
    if declared.scalar is _BLOB:
        message = f"Blob property `{node.name}.{name}` cannot be used in match patterns"
        refuse("T3", message, pair.name.span)
    value = pattern(scope, TargetProperty(node.name, name, declared), pair.value)
    scope.uses.add((node.name, name))
    tested = make(typed.PropertyValue, (variable, _NODE, node.name, name, declared))
    return typed.PairTest(tested, declared.is_list, value)


def _hop(scope: Scope, clause: ast.Hop) -> typed.Traverse:
    edge = scope.catalog.edge(clause.edge.text)
    if edge is None:
        known = [each[:1].lower() + each[1:] for each in scope.catalog.edges]
        refuse("T4", f"unknown edge type `{clause.edge.text}`", clause.edge.span, suggest(clause.edge.text, known))
    low, high = 1, 1
    if clause.bounds is not None:
        low, last, span = clause.bounds
        if low == 0:
            refuse("T15", "min hop bound must be >= 1, got 0", span)
        if last is None:
            refuse("T15", "unbounded traversal is disabled", span, f"give a maximum: `{{{low},n}}`")
        if last < low:
            refuse("T15", f"max must be >= min, got {{{low},{last}}}", span)
        high = last
    if clause.undirected and edge.source != edge.target:
        message = f"undirected hop over `{edge.name}` requires a same-endpoint-type edge"
        refuse("T22", f"{message}; it runs from `{edge.source}` to `{edge.target}`", clause.edge.span)
    _check_edge_variables(scope, clause)
    left_type, right_type, direction = _orient(scope, clause, edge)
    left = _bind_end(scope, clause.left, left_type, edge)
    right = _bind_end(scope, clause.right, right_type, edge)
    scope.touched |= {
        make(typed.Access, (_EDGE, edge.name)),
        make(typed.Access, (_NODE, edge.source)),
        make(typed.Access, (_NODE, edge.target)),
    }
    binding = None if clause.binding is None else clause.binding.text
    if binding is not None:
        scope.bind_edge(binding, edge)
    if clause.undirected:
        direction = typed.Direction.BOTH
    return typed.Traverse(left, left_type, edge.name, direction, right, right_type, low, high, binding)


def _check_edge_variables(scope: Scope, clause: ast.Hop) -> None:
    for end in (clause.left, clause.right):
        if end.text in scope.edges:
            refuse("T23", f"edge variable `${end.text}` cannot be the end of a hop", end.span)
    binding = clause.binding
    if binding is None:
        return
    name = f"edge variable `${binding.text}`"
    if clause.bounds is not None and (clause.bounds.low, clause.bounds.high) != (1, 1):
        refuse("T23", f"{name} cannot be used with hop bounds: it names the edge of one hop", clause.bounds.span)
    if binding.text == ast.ANONYMOUS:
        refuse("T23", "an edge variable needs a name", binding.span, "leave out `$_:`")
    if binding.text in (clause.left.text, clause.right.text):
        refuse("T23", f"{name} has the name of an end of its hop", binding.span)
    if scope.is_bound(binding.text):
        refuse("T23", f"{name} is already bound", binding.span)


def _orient(scope: Scope, clause: ast.Hop, edge: EdgeType) -> tuple[str, str, typed.Direction]:
    """Return left type, right type and direction.

    They follow from the left variable if it is bound, otherwise from the right variable if that is bound; otherwise the
    direction is forward.
    """
    forward = (edge.source, edge.target, _OUT)
    for end, first, second in ((clause.left, edge.source, edge.target), (clause.right, edge.target, edge.source)):
        bound = scope.nodes.get(end.text)
        if bound is not None:
            if bound.name == first:
                return forward
            if bound.name == second:
                return edge.target, edge.source, _IN
            message = f"variable `${end.text}` of type `{bound.name}` is not an endpoint of edge `{edge.name}`"
            refuse("T5", message, end.span, f"`{edge.name}` runs from `{edge.source}` to `{edge.target}`")
    return forward


def _bind_end(scope: Scope, end: Name, type_name: str, edge: EdgeType) -> str | None:
    """Bind an end of a hop; return its name, None for an anonymous end."""
    if end.text == ast.ANONYMOUS:
        return None
    bound = scope.nodes.get(end.text)
    if bound is None:
        scope.bind_node(end.text, scope.catalog.nodes[type_name])
    elif bound.name != type_name:
        message = f"variable `${end.text}` has type `{bound.name}` but edge `{edge.name}` expects `{type_name}`"
        refuse("T5", message, end.span)
    return end.text


def _mentions_bound(scope: Scope, clause: ast.Clause) -> bool:
    """Return whether a clause itself uses a bound variable; nested `not` blocks are ignored (T9)."""
    if isinstance(clause, ast.Hop):
        return scope.is_bound(clause.left.text) or scope.is_bound(clause.right.text)
    if isinstance(clause, ast.Bind):
        return scope.is_bound(clause.variable.text)
    if isinstance(clause, ast.Comparison):
        return _names_bound(scope, clause.left) or _names_bound(scope, clause.right)
    return isinstance(clause, ast.TextCall) and _names_bound(scope, clause)


def _names_bound(scope: Scope, expr: ast.Expr | None) -> bool:
    if isinstance(expr, ast.PropertyAccess):
        return scope.is_bound(expr.variable.text)
    if isinstance(expr, ast.Variable):
        return expr.name not in scope.params and scope.is_bound(expr.name)
    parts: tuple[ast.Expr | None, ...] = ()
    if isinstance(expr, ast.TextCall):
        parts = (expr.field, expr.query, expr.max_edits)
    elif isinstance(expr, ast.Nearest):
        parts = (expr.target, expr.query)
    elif isinstance(expr, ast.Rrf):
        parts = (expr.first, expr.second, expr.k)
    elif isinstance(expr, ast.Aggregate):
        parts = (expr.argument,)
    return any(_names_bound(scope, part) for part in parts)


def _condition(scope: Scope, clause: ast.Comparison) -> typed.Filter:
    left, right = check_output(scope, clause.left), check_output(scope, clause.right)
    left_type, right_type = type_of(left), type_of(right)
    aggregate = isinstance(left, typed.AggregateValue) or isinstance(right, typed.AggregateValue)
    if left_type is None or right_type is None or aggregate:
        refuse("T7", "comparisons require scalar operands", clause.span, "compare a property: `$v.p`")
    if clause.operator in _OF_TEXT and isinstance(left, typed.ParameterValue):
        message = f"{clause.operator.value} searches a property, but `${left.name}` on its left is a parameter"
        refuse("T7", message, clause.left.span, "write the property on the left: `$v.p`")
    if clause.operator is _CONTAINS:
        _check_contains(left_type, right_type, clause.span)
    elif clause.operator is _STARTS_WITH:
        if not (is_scalar(left_type, Scalar.STRING) and is_scalar(right_type, Scalar.STRING)):
            message = f"starts_with requires String on both sides, got {left_type} and {right_type}"
            refuse("T7", message, clause.span)
    elif left_type.is_list or right_type.is_list:
        refuse("T7", "list comparisons are not supported", clause.span, "use `contains`")
    elif _VECTOR in (left_type.scalar, right_type.scalar):
        refuse("T7", "vector comparisons are not supported", clause.span, "order by `nearest(..)`")
    elif not same_family(left_type, right_type):
        others = [each.scalar for each in (left_type, right_type) if each.scalar is not Scalar.STRING]
        instant = len(others) == 1 and others[0] in (Scalar.DATE, Scalar.DATETIME)
        fix = f'write `{others[0].value.lower()}("..")`' if instant else None
        refuse("T7", f"cannot compare {left_type} with {right_type}", clause.span, fix)
    return typed.Filter(left, clause.operator, right)


def _check_contains(left: PropType, right: PropType, span: Span) -> None:
    """Check `contains`: membership in a list or, with String on both sides, a substring."""
    forms = "contains requires a list property on the left (membership) or String on both sides (substring)"
    if left.scalar is Scalar.VECTOR:
        refuse("T7", f"vector membership filters are not supported: {forms}", span)
    substring = is_scalar(left, Scalar.STRING)
    if not left.is_list and not substring:
        refuse("T7", f"{forms}, got {left}", span)
    if right.is_list:
        refuse("T7", f"contains requires a scalar right operand, got {right}", span)
    if right.scalar is Scalar.VECTOR:
        refuse("T7", "vector membership filters are not supported", span)
    if substring and not is_scalar(right, Scalar.STRING):
        refuse("T7", f"{forms}, got {left} and {right}", span)
    if not same_family(member(left), right):
        refuse("T7", f"cannot test membership of {right} in {left}", span)


_ENDPOINTS = {"from": STRING, "to": STRING}


def check_statement(scope: Scope, statement: ast.Statement) -> typed.TypedStatement:
    """Check one write. Type names must match exactly here, even those of edges.

    By the language rules, two errors are found only at run time: a mix of deletes and other writes, and an update to a
    key.
    """
    name = statement.type_name
    if isinstance(statement, ast.Insert):
        _refuse_repeats(statement.pairs)
        owner = _owner(scope.catalog, name)
        assignments = _assignments(scope, owner, statement.pairs)
        _require_all(owner, {each.name for each in assignments}, name.span)
        return typed.TypedInsert(_kind(owner), owner.name, assignments)
    if isinstance(statement, ast.Update):
        if name.text in scope.catalog.edges and name.text not in scope.catalog.nodes:
            message = f"update mutation for edge type `{name.text}` is not supported"
            refuse("T16", message, name.span, "delete the edge and insert it again")
        owner = _owner(scope.catalog, name)
        _refuse_repeats(statement.pairs)
        assignments = _assignments(scope, owner, statement.pairs)
        return typed.TypedUpdate(owner.name, assignments, _predicate(scope, owner, statement.test))
    owner = _owner(scope.catalog, name)
    return typed.TypedDelete(_kind(owner), owner.name, _predicate(scope, owner, statement.test))


def _require_all(owner: NodeType | EdgeType, given: set[str], span: Span) -> None:
    """Reject an insert that leaves out an endpoint or a non-null property."""
    for end in _ENDPOINTS if isinstance(owner, EdgeType) else ():
        if end not in given:
            message = f"insert of edge `{owner.name}` lacks required endpoint `{end}`"
            refuse("T12", message, span, f"give the node id: `{end}: $id`")
    embeds = owner.embeds if isinstance(owner, NodeType) else {}
    for name in sorted(owner.properties):
        source = embeds.get(name)
        if not owner.properties[name].nullable and name not in given and source not in given:
            also = f" or @embed source `{source}`" if source is not None else ""
            message = f"insert of `{owner.name}` must provide non-nullable property `{name}`{also}"
            refuse("T12", message, span)


def _owner(catalog: Catalog, name: Name) -> NodeType | EdgeType:
    """Return the type of a write; a node type takes precedence over an edge type with the same name."""
    owner = catalog.nodes.get(name.text) or catalog.edges.get(name.text)
    if owner is None:
        fix = suggest(name.text, (*catalog.nodes, *catalog.edges))
        refuse("T10", f"unknown node/edge type `{name.text}`", name.span, fix)
    return owner


def _kind(owner: NodeType | EdgeType) -> TypeKind:
    return TypeKind.NODE if isinstance(owner, NodeType) else TypeKind.EDGE


def _refuse_repeats(pairs: tuple[ast.PropertyPair, ...]) -> None:
    seen: set[str] = set()
    for pair in pairs:
        if pair.name.text in seen:
            refuse("T13", f"duplicate assignment of property `{pair.name.text}`", pair.name.span)
        seen.add(pair.name.text)


def _assignments(
    scope: Scope, owner: NodeType | EdgeType, pairs: tuple[ast.PropertyPair, ...]
) -> tuple[typed.Assignment, ...]:
    found: list[typed.Assignment] = []
    for pair in pairs:
        kind = _declared(scope, owner, pair.name)
        value = assigned(scope, TargetProperty(owner.name, pair.name.text, kind), pair.value)
        found.append(typed.Assignment(pair.name.text, kind, value))
    return tuple(found)


def _predicate(scope: Scope, owner: NodeType | EdgeType, test: ast.WhereCondition) -> typed.Predicate:
    kind = _declared(scope, owner, test.name)
    if kind.scalar is Scalar.BLOB:
        message = f"Blob property `{owner.name}.{test.name.text}` cannot be used in WHERE predicates"
        refuse("T11", message, test.name.span)
    value = assigned(scope, TargetProperty(owner.name, test.name.text, kind), test.value)
    return typed.Predicate(test.name.text, kind, test.operator, value)


def _declared(scope: Scope, owner: NodeType | EdgeType, name: Name) -> PropType:
    """Return the type of an owner's property, or of an edge's endpoint."""
    if isinstance(owner, EdgeType) and name.text in _ENDPOINTS:
        return _ENDPOINTS[name.text]
    found = owner.properties.get(name.text)
    if found is None:
        known = (*owner.properties, *_ENDPOINTS) if isinstance(owner, EdgeType) else tuple(owner.properties)
        message = f"{_kind(owner)} type `{owner.name}` has no property `{name.text}`"
        refuse("T11", message, name.span, suggest(name.text, known))
    scope.uses.add((owner.name, name.text))
    return found
