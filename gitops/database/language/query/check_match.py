"""Clauses of a match block, top to bottom: rules T1 to T5, T7, T9 (not), T15 (hop), T22 and T23."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.query import ast, typed
from gitops.database.language.query.check_expr import (
    TargetProperty,
    check_output,
    is_scalar,
    member,
    pattern,
    same_family,
    text_match,
    type_of,
)
from gitops.database.language.query.scope import refuse, suggest
from gitops.database.language.record import make
from gitops.database.language.schema.types import EdgeType, NodeType, PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from gitops.database.language.query.scope import Scope
    from gitops.database.language.text import Name, Span


# A global name is found much faster than a member of an enumeration.
_NODE, _EDGE = TypeKind.NODE, TypeKind.EDGE
_OUT, _IN = typed.Direction.OUT, typed.Direction.IN
_CONTAINS, _STARTS_WITH = ast.ComparisonOperator.CONTAINS, ast.ComparisonOperator.STARTS_WITH
_OF_TEXT = (_CONTAINS, _STARTS_WITH)
_BLOB, _VECTOR = Scalar.BLOB, Scalar.VECTOR


def check_clauses(scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[typed.TypedClause, ...]:
    """Check the clauses in order; each sees only what the ones above it bound."""
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
    """Left type, right type and direction: from the left variable if it is bound, else from the right one, else forward."""
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
    """Bind an end of a hop; returns its name, None for an anonymous one."""
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
    """Whether the clause itself names a bound variable; an inner `not` does not count (T9)."""
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
    """Membership in a list, or, with String on both sides, substring."""
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
