"""Checks expressions and values: resolves names, infers types, and checks values against their target property.

Rules T3, T6 to T8, T14, T15 (nearest), T19 to T21 (arguments), T23, T24.

During checking, `Scope` holds a query's names: parameters, bindings, and the properties used so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.query import ast, typed
from gitops.database.language.query.limits import bound, bound_list
from gitops.database.language.query.typed import Access, PropertyValue
from gitops.database.language.record import Record, make
from gitops.database.language.schema.types import INTEGERS, NUMERIC, PropType, Scalar, TypeKind
from gitops.database.language.text import LanguageError, LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

    from gitops.database.language.schema.types import Catalog, EdgeType, NodeType
    from gitops.database.language.text import Span

_SHOWN = 40
_BLOB = Scalar.BLOB
_AVERAGED = frozenset({ast.AggregateFunction.SUM, ast.AggregateFunction.AVG})

STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
FLOAT = PropType(Scalar.F64)
DATETIME = PropType(Scalar.DATETIME)
NULLABLE_FLOAT = PropType(Scalar.F64, nullable=True)
NULLABLE_INT = PropType(Scalar.I64, nullable=True)
_EMPTY_LIST = PropType(Scalar.STRING, is_list=True)
_LITERALS: Mapping[Scalar | None, PropType] = {scalar: PropType(scalar) for scalar in Scalar}
"""Type of each scalar literal."""


def same_family(left: PropType, right: PropType) -> bool:
    """Return whether two scalars are compatible: identical, vectors with the same dimension, or both numeric."""
    if left.scalar is right.scalar:
        return left.dimension == right.dimension
    return left.scalar in NUMERIC and right.scalar in NUMERIC


def compatible(left: PropType, right: PropType) -> bool:
    """Return True if values of these two types can be compared and assigned. Ignores nullability and enum members."""
    return left.is_list == right.is_list and same_family(left, right)


def member(of_list: PropType) -> PropType:
    """Return a list's item type."""
    return PropType(of_list.scalar)


def is_scalar(kind: PropType, scalar: Scalar) -> bool:
    """Return whether a type is this scalar type and not a list of it."""
    return kind.scalar is scalar and not kind.is_list


class TargetProperty(Record):
    """A property that a value is written to or compared with."""

    owner: str
    name: str
    type: PropType

    def __str__(self) -> str:
        """`Type.property`, as used in messages."""
        return f"`{self.owner}.{self.name}`"


def constant(literal: ast.Literal) -> typed.Constant:
    """Return a literal with its type.

    A list has its first element's type, and an empty list is a `[String]`. Rejects nested lists and elements without a
    common scalar type (no rule code).
    """
    if not isinstance(literal.value, tuple):
        return typed.Constant(literal.value, _LITERALS[literal.kind])
    if not literal.value:
        return typed.Constant((), _EMPTY_LIST)
    bound_list(literal.value)
    values: list[typed.ConstantValue] = []
    first: PropType | None = None
    for item in literal.value:
        if isinstance(item.value, tuple):
            refuse("", "nested list literals are not supported", item.span)
        kind = _LITERALS[item.kind]
        first = first or kind
        if not same_family(first, kind):
            message = f"list elements must share a compatible scalar type, got {first} and {kind}"
            refuse("", message, item.span)
        values.append(item.value)
    scalar = Scalar.STRING if first is None else first.scalar
    return typed.Constant(tuple(values), PropType(scalar, is_list=True))


def parameter(scope: Scope, variable: ast.Variable) -> typed.ParameterValue:
    """Return the declared parameter for a variable. Rejects any other variable (T14)."""
    declared = scope.params.get(variable.name)
    if declared is None:
        fix = suggest(variable.name, scope.params, "$") or f"declare it: `${variable.name}: <type>`"
        refuse("T14", f"`${variable.name}` must be a declared query parameter", variable.span, fix)
    return typed.ParameterValue(variable.name, declared)


def assigned(scope: Scope, target: TargetProperty, value: ast.ValueExpr) -> typed.TypedExpr:
    """Check a value that is written to the target property, or compared with it for equality."""
    if isinstance(value, ast.Literal):
        return _literal(target, value)
    if isinstance(value, ast.Now):
        if not is_scalar(target.type, Scalar.DATETIME):
            refuse("T7", f"cannot assign/compare DateTime with {target} of type {target.type}", value.span)
        return typed.NowValue(DATETIME)
    found = parameter(scope, value)
    if target.type.scalar is Scalar.BLOB and is_scalar(found.type, Scalar.STRING):
        return found
    if not compatible(target.type, found.type):
        message = f"cannot assign/compare parameter `${found.name}` of type {found.type}"
        refuse("T7", f"{message} with {target} of type {target.type}", value.span, _retyped(found, target.type))
    return found


def _retyped(found: typed.ParameterValue, wanted: PropType) -> str | None:
    """Return a fix that changes a parameter's type to the property's type; None for other values."""
    if wanted.enum_values is not None or wanted.scalar is Scalar.BLOB:
        return "declare the parameter `String`"
    return f"declare the parameter `${found.name}: {PropType(wanted.scalar, False, wanted.is_list, None, wanted.dimension)}`"


def pattern(scope: Scope, target: TargetProperty, value: ast.ValueExpr) -> typed.TypedExpr:
    """Check a value in an inline pair: as a member if the target is a list, otherwise as in `assigned`."""
    if not target.type.is_list or isinstance(value, ast.Now):
        return assigned(scope, target, value)
    is_literal = isinstance(value, ast.Literal)
    found = constant(value) if isinstance(value, ast.Literal) else parameter(scope, value)
    rule = "T3" if is_literal else "T7"
    if found.type.is_list:
        fix = "give one value; it matches when the list holds it"
        refuse(rule, f"list equality is not supported: {target} has type {target.type}", value.span, fix)
    if not compatible(member(target.type), found.type):
        message = f"cannot test {found.type} for membership against {target} of type {target.type}"
        if is_literal:
            message = f"{target} has type {target.type} but membership match got {found.type}"
        refuse(rule, message, value.span)
    return found


def _literal(target: TargetProperty, literal: ast.Literal) -> typed.Constant:
    found, wanted = constant(literal), target.type
    is_vector = wanted.scalar is Scalar.VECTOR
    if is_vector:
        fits = isinstance(found.value, tuple) and found.type.scalar in NUMERIC
    else:
        fits = wanted.scalar is not Scalar.BLOB and compatible(wanted, found.type)
    if not fits:
        fix = None
        if wanted.scalar in (Scalar.DATE, Scalar.DATETIME) and found.type.scalar is Scalar.STRING:
            fix = f'write `{wanted.scalar.value.lower()}("..")`'
        elif wanted.scalar is Scalar.BLOB:
            fix = "pass the URI as a String parameter"
        elif wanted.scalar is Scalar.STRING and found.type.scalar in NUMERIC:
            fix = f'write `"{found.value}"`'
        elif (
            wanted.scalar in NUMERIC
            and isinstance(found.value, str)
            and found.value.isascii()
            and found.value.isdigit()
        ):
            fix = f"write `{found.value}` without quotes"
        refuse("T3", f"{target} has type {wanted} but got {found.type}", literal.span, fix)
    if is_vector:
        count = len(found.value) if isinstance(found.value, tuple) else 0
        if count != wanted.dimension:
            refuse("T3", f"{target} has type {wanted} but got vector literal with {count} elements", literal.span)
        return typed.Constant(found.value, wanted)
    allowed = wanted.enum_values
    if allowed is not None and found.value not in allowed:
        text = str(found.value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        message = f'{target} expects one of [{", ".join(allowed)}] but got "{shown}"'
        refuse("T3", message, literal.span, suggest(text, allowed))
    return found


def type_of(value: typed.TypedExpr) -> PropType | None:
    """Return the value's type, or None for a node variable or an alias."""
    return None if isinstance(value, (typed.NodeValue, typed.AliasValue)) else value.type


def check_expr(scope: Scope, expr: ast.Expr, aliases: Mapping[str, int] | None = None) -> typed.TypedExpr:
    """Resolve one expression.

    `aliases` maps return item aliases to indexes. It is given only in `order`, because aliases cannot be used
    elsewhere. An unknown alias is rejected here (K7).
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
            if expr.name == "null":
                refuse("", "there is no test for null", expr.span)
        else:
            fix = suggest(expr.name, aliases) or f"name a return item: `... as {expr.name}`"
        refuse("", f"alias `{expr.name}` not found", expr.span, fix)
    return typed.AliasValue(expr.name, item)


def check_output(scope: Scope, expr: ast.Expr, aliases: Mapping[str, int] | None = None) -> typed.TypedExpr:
    """Resolve an expression that is compared, returned, aggregated or used for ordering. Rejects blobs (T24)."""
    value = check_expr(scope, expr, aliases)
    kind = type_of(value)
    if kind is not None and kind.scalar is _BLOB:
        blob = f"Blob parameter `${value.name}`" if isinstance(value, typed.ParameterValue) else "a Blob"
        if isinstance(value, typed.PropertyValue):
            blob = f"Blob property `{value.name}` of `${value.variable}` (`{value.owner}`)"
        refuse("T24", f"{blob} is not available as a .gq read value", expr.span)
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
        refuse("", f"variable `${expr.name}` is not bound", expr.span, suggest(expr.name, known, "$"))
    return typed.NodeValue(expr.name, node.name)


def _aggregate(scope: Scope, expr: ast.Aggregate, aliases: Mapping[str, int] | None) -> typed.AggregateValue:
    argument = check_output(scope, expr.argument, aliases)
    name = expr.function.value
    counted = expr.function is ast.AggregateFunction.COUNT
    if isinstance(argument, typed.AliasValue) or (isinstance(argument, typed.AggregateValue) and not counted):
        refuse("T8", f"{name} cannot be applied to an aggregate or an alias", expr.argument.span)
    if counted:
        return typed.AggregateValue(expr.function, argument, NULLABLE_INT)
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
    """Return the field, a String property of a node, and the query, a String."""
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
    """Return a value as shown in error messages."""
    if isinstance(value, typed.NodeValue):
        return f"node variable `${value.variable}`"
    if isinstance(value, typed.PropertyValue):
        return f"`{value.owner}.{value.name}` of type {value.type}"
    return str(type_of(value))


# A global name is looked up much faster than an enum member, and these are needed for every property.
_NODE, _EDGE = TypeKind.NODE, TypeKind.EDGE


def refuse(rule: str, message: str, span: Span, fix: str | None = None) -> NoReturn:
    """Raise a `LanguageError` with one type problem. `rule` is empty for rules without a code."""
    raise LanguageError(LanguageProblem(Stage.TYPE, rule, message, span, fix))


def suggest(name: str, known: Iterable[str], mark: str = "") -> str | None:
    """Return a fix with the nearest known name if there is a close one. Variables are written with `mark` (`$`)."""
    from gitops.database.language.suggest import Suggestion, did_you_mean

    near = did_you_mean(name, tuple(known))
    return near if near is None or not mark else Suggestion(name, near.name, mark)


class Scope:
    """The names that are visible in one query.

    Bindings are stored in one dictionary per family, with a log of additions. So the cost of leaving a `not` block
    depends only on the block's bindings, not on the surrounding variables.
    """

    __slots__ = ("_trail", "catalog", "edges", "nodes", "params", "touched", "uses")

    def __init__(self, catalog: Catalog, params: Mapping[str, PropType]) -> None:
        """Start with the parameters and no bindings."""
        self.catalog = catalog
        self.params = params
        self.nodes: dict[str, NodeType] = {}
        self.edges: dict[str, EdgeType] = {}
        self.uses: set[tuple[str, str]] = set()
        self.touched: set[Access] = set()
        self._trail: list[str] = []

    def bind_node(self, variable: str, node: NodeType) -> None:
        """Bind a variable to a node type."""
        self.touched.add(make(Access, (_NODE, node.name)))
        if variable not in self.nodes:
            self.nodes[variable] = node
            self._trail.append(variable)

    def bind_edge(self, variable: str, edge: EdgeType) -> None:
        """Bind an edge variable."""
        self.edges[variable] = edge
        self._trail.append(variable)

    def mark(self) -> int:
        """Return a position for `undo`."""
        return len(self._trail)

    def undo(self, mark: int) -> dict[str, str]:
        """Remove the bindings added since the mark. Return the removed node variables with their types."""
        dropped = self._trail[mark:]
        del self._trail[mark:]
        inner: dict[str, str] = {}
        for variable in dropped:
            node = self.nodes.pop(variable, None)
            if node is None:
                del self.edges[variable]
            else:
                inner[variable] = node.name
        return inner

    def is_bound(self, variable: str) -> bool:
        """Return whether an earlier clause binds this variable to a node or an edge."""
        return variable in self.nodes or variable in self.edges

    def property(self, place: ast.PropertyAccess, rule: str = "T6") -> PropertyValue:
        """Resolve `$v.p`. Rejects an unbound variable or unknown property with `rule`."""
        variable, name = place.variable.text, place.name.text
        node = self.nodes.get(variable)
        if node is not None:
            owner, kind, properties = node.name, _NODE, node.properties
        else:
            edge = self.edges.get(variable)
            if edge is None:
                fix = suggest(variable, (*self.nodes, *self.edges), "$")
                if variable in self.params:
                    fix = f"`${variable}` is a parameter; only a binding has properties"
                refuse(rule, f"variable `${variable}` is not bound", place.variable.span, fix)
            owner, kind, properties = edge.name, _EDGE, edge.properties
        found = properties.get(name)
        if found is None:
            fix = suggest(name, properties)
            if name == "id":
                fix = f"`id` is not a property: use the key property, or `${variable}` itself"
            refuse(rule, f"{kind} type `{owner}` has no property `{name}`", place.name.span, fix)
        self.uses.add((owner, name))
        return make(PropertyValue, (variable, kind, owner, name, found))


def check_limits(query: ast.Query) -> None:
    """Reject a query that is too large, at the first excess item. Raises `LanguageError` (T25)."""
    bound("parameters", [each.span for each in query.params])
    if not isinstance(query.body, ast.Read):
        bound("statements", [each.span for each in query.body])
        return
    bindings: list[Span] = []
    hops: list[Span] = []
    conditions: list[Span] = []
    negations: list[Span] = []
    for clause in _clauses(query.body.clauses):
        if isinstance(clause, ast.Bind):
            bindings.append(clause.span)
            conditions += [pair.span for pair in clause.pairs]
        elif isinstance(clause, ast.Hop):
            hops.append(clause.span)
        elif isinstance(clause, ast.Not):
            negations.append(clause.span)
        else:
            conditions.append(clause.span)
    bound("bindings of node types", bindings)
    bound("hops", hops)
    bound("conditions", conditions)
    bound("`not` blocks", negations)
    bound("return items", [each.span for each in query.body.items])
    bound("order items", [each.span for each in query.body.order])


def _clauses(clauses: Sequence[ast.Clause]) -> Iterator[ast.Clause]:
    """Yield all clauses in text order, including those of `not` blocks."""
    for clause in clauses:
        yield clause
        if isinstance(clause, ast.Not):
            yield from _clauses(clause.clauses)
