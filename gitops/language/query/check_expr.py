"""Expressions: names resolved and types inferred; rules T6, T8, T15 (nearest), T19 to T21 (arguments), T23, T24."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query import ast, typed
from gitops.language.query.check_value import BOOL, DATETIME, FLOAT, INT, NULLABLE_FLOAT, constant, is_scalar
from gitops.language.query.scope import refuse, suggest
from gitops.language.schema.types import INTEGERS, NUMERIC, PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from gitops.language.query.scope import Scope

_BLOB = Scalar.BLOB
_AVERAGED = frozenset({ast.AggregateFunction.SUM, ast.AggregateFunction.AVG})


def type_of(value: typed.TypedExpr) -> PropType | None:
    """The value's type; None for a node variable and for an alias."""
    return None if isinstance(value, (typed.NodeValue, typed.AliasValue)) else value.type


def check_expr(scope: Scope, expr: ast.Expr, aliases: Mapping[str, int] | None = None) -> typed.TypedExpr:
    """Resolve one expression.

    `aliases` maps the aliases of the return items to their indexes; it is given in `order`, the only place that sees
    them. An unknown alias is refused here (K7).
    """
    if isinstance(expr, ast.PropertyAccess):
        return scope.property(expr)
    if isinstance(expr, ast.Variable):
        return _variable(scope, expr)
    if isinstance(expr, ast.Literal):
        return constant(expr)
    if isinstance(expr, ast.Aggregate):
        return _aggregate(scope, expr, aliases)
    if isinstance(expr, ast.TextCall):
        ranked = expr.function is ast.TextFunction.BM25
        return _text_rank(scope, expr) if ranked else text_match(scope, expr)
    if isinstance(expr, ast.Nearest):
        return _nearest(scope, expr)
    if isinstance(expr, ast.Rrf):
        arms = (expr.first, expr.second)
        first, second = (_nearest(scope, a) if isinstance(a, ast.Nearest) else _text_rank(scope, a) for a in arms)
        k = None if expr.k is None else _integer(scope, expr.k, "T21", "rrf k")
        if isinstance(expr.k, ast.Literal) and expr.k.value == 0:
            refuse("T21", "rrf k must be greater than 0", expr.k.span)
        return typed.FusedRank(first, second, k, FLOAT)
    if isinstance(expr, ast.Now):
        return typed.NowValue(DATETIME)
    item = None if aliases is None else aliases.get(expr.name)
    if item is None:
        if aliases is None:
            fix = f"did you mean `${expr.name}`? Only `order` can name an alias"
        else:
            fix = suggest(expr.name, aliases) or f"name a return item: `... as {expr.name}`"
        refuse("", f"alias `{expr.name}` not found", expr.span, fix)
    return typed.AliasValue(expr.name, item)


def check_output(scope: Scope, expr: ast.Expr, aliases: Mapping[str, int] | None = None) -> typed.TypedExpr:
    """Resolve an expression whose value leaves the query or orders it; a Blob cannot (T24)."""
    value = check_expr(scope, expr, aliases)
    kind = type_of(value)
    if kind is not None and kind.scalar is _BLOB:
        refuse("T24", "a Blob is not available as a .gq read value", expr.span)
    return value


def _variable(scope: Scope, expr: ast.Variable) -> typed.ParameterValue | typed.NodeValue:
    declared = scope.params.get(expr.name)
    if declared is not None:
        return typed.ParameterValue(expr.name, declared)
    node = scope.nodes.get(expr.name)
    if node is None:
        if expr.name in scope.edges:
            fix = f"name a property of it: `${expr.name}.p`"
            refuse("T23", f"edge variable `${expr.name}` cannot stand alone as a value", expr.span, fix)
        known = (*scope.params, *scope.nodes)
        refuse("", f"variable `${expr.name}` is not bound", expr.span, suggest(expr.name, known))
    return typed.NodeValue(expr.name, node.name)


def _aggregate(scope: Scope, expr: ast.Aggregate, aliases: Mapping[str, int] | None) -> typed.AggregateValue:
    argument = check_output(scope, expr.argument, aliases)
    name = expr.function.value
    if isinstance(argument, (typed.AggregateValue, typed.AliasValue)):
        refuse("T8", f"{name} cannot be applied to an aggregate or an alias", expr.argument.span)
    if expr.function is ast.AggregateFunction.COUNT:
        return typed.AggregateValue(expr.function, argument, INT)
    kind = type_of(argument)
    numeric = kind is not None and not kind.is_list and kind.scalar in NUMERIC
    averaged = expr.function in _AVERAGED
    if kind is None or not (numeric or (not averaged and is_scalar(kind, Scalar.STRING))):
        wanted = "numeric type" if averaged else "numeric or string type"
        found = f"node variable `${argument.variable}`" if isinstance(argument, typed.NodeValue) else f"type {kind}"
        refuse("T8", f"{name} requires {wanted}, got {found}", expr.argument.span)
    nullable = PropType(kind.scalar, nullable=True, enum_values=kind.enum_values)
    return typed.AggregateValue(expr.function, argument, NULLABLE_FLOAT if averaged else nullable)


def text_match(scope: Scope, call: ast.TextCall) -> typed.TextMatch:
    """Resolve `search`, `fuzzy` or `match_text`."""
    rule = "T20" if call.function is ast.TextFunction.MATCH_TEXT else "T19"
    field, query = _text_arguments(scope, call, rule)
    edits = None
    if call.max_edits is not None:
        edits = _integer(scope, call.max_edits, rule, f"{call.function.value} max_edits")
    return typed.TextMatch(call.function, field, query, edits, BOOL)


def _text_rank(scope: Scope, call: ast.TextCall) -> typed.TextRank:
    field, query = _text_arguments(scope, call, "T20")
    return typed.TextRank(field, query, FLOAT)


def _text_arguments(scope: Scope, call: ast.TextCall, rule: str) -> tuple[typed.PropertyValue, typed.TypedExpr]:
    """The field, a String property of a node, and the query, a String."""
    name = call.function.value
    field = check_expr(scope, call.field)
    if isinstance(field, typed.PropertyValue) and field.kind is TypeKind.EDGE:
        _refuse_edge_target(name, field, call.field)
    if not isinstance(field, typed.PropertyValue) or not is_scalar(field.type, Scalar.STRING):
        message = f"{name} field must be String, a property of a node; got {_shown(field)}"
        refuse(rule, message, call.field.span)
    query = check_expr(scope, call.query)
    kind = type_of(query)
    if kind is None or not is_scalar(kind, Scalar.STRING) or isinstance(query, typed.AggregateValue):
        refuse(rule, f"{name} query must be String, got {_shown(query)}", call.query.span)
    return field, query


def _integer(scope: Scope, expr: ast.Expr, rule: str, what: str) -> typed.TypedExpr:
    value = check_expr(scope, expr)
    kind = type_of(value)
    if kind is None or kind.is_list or kind.scalar not in INTEGERS or isinstance(value, typed.AggregateValue):
        refuse(rule, f"{what} must be a scalar integer, got {_shown(value)}", expr.span)
    return value


def _nearest(scope: Scope, expr: ast.Nearest) -> typed.NearestRank:
    target = scope.property(expr.target, "T15")
    if target.kind is TypeKind.EDGE:
        _refuse_edge_target("nearest", target, expr.target)
    if not is_scalar(target.type, Scalar.VECTOR):
        message = f"nearest requires a Vector property, got {_shown(target)}"
        refuse("T15", message, expr.target.name.span)
    query = check_expr(scope, expr.query)
    kind = type_of(query)
    wanted = f"nearest query must be Vector({target.type.dimension}) or String"
    if kind is None or isinstance(query, typed.AggregateValue):
        refuse("T15", f"{wanted}, got {_shown(query)}", expr.query.span)
    if isinstance(expr.query, ast.Literal) and kind.is_list and kind.scalar in NUMERIC:
        got = len(expr.query.value) if isinstance(expr.query.value, tuple) else 0
    elif is_scalar(kind, Scalar.VECTOR):
        got = kind.dimension or 0
    elif is_scalar(kind, Scalar.STRING):
        return typed.NearestRank(target, query, FLOAT)
    else:
        refuse("T15", f"{wanted}, got {kind}", expr.query.span)
    if got != target.type.dimension:
        message = f"nearest vector dimension mismatch: property has {target.type.dimension}, query has {got}"
        refuse("T15", message, expr.query.span)
    return typed.NearestRank(target, query, FLOAT)


def _refuse_edge_target(function: str, target: typed.PropertyValue, expr: ast.Expr) -> NoReturn:
    message = f"{function} cannot search `${target.variable}.{target.name}`: `${target.variable}` is an edge"
    refuse("T23", message, expr.span)


def _shown(value: typed.TypedExpr) -> str:
    """How a refusal names the value."""
    if isinstance(value, typed.NodeValue):
        return f"node variable `${value.variable}`"
    if isinstance(value, typed.PropertyValue):
        return f"`{value.owner}.{value.name}` of type {value.type}"
    return str(type_of(value))
