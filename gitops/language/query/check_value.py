"""Values against the property that they are compared with or written to: rules T3, T7 and T14."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query import ast
from gitops.language.query.scope import refuse, suggest
from gitops.language.query.typed import Constant, ConstantValue, NowValue, ParameterValue, TypedExpr
from gitops.language.query.types import (
    DATETIME,
    EMPTY_LIST,
    LITERALS,
    compatible,
    is_scalar,
    member,
    same_family,
)
from gitops.language.record import Record
from gitops.language.schema.types import NUMERIC, PropType, Scalar

if TYPE_CHECKING:
    from typing import NoReturn

    from gitops.language.query.scope import Scope

_SHOWN = 40


class TargetProperty(Record):
    """The property that a value is written to or compared with."""

    owner: str
    name: str
    type: PropType

    def __str__(self) -> str:
        """`Type.property`, as messages name it."""
        return f"`{self.owner}.{self.name}`"


def constant(literal: ast.Literal) -> Constant:
    """A literal with its type.

    A list has its first element's type, and an empty one is `[String]`. Refuses nested lists, and elements that do not
    share a compatible scalar type (no rule code).
    """
    if not isinstance(literal.value, tuple):
        return Constant(literal.value, LITERALS[literal.kind])
    if not literal.value:
        return Constant((), EMPTY_LIST)
    values: list[ConstantValue] = []
    first: PropType | None = None
    for item in literal.value:
        if isinstance(item.value, tuple):
            refuse("", "nested list literals are not supported", item.span)
        kind = LITERALS[item.kind]
        first = first or kind
        if not same_family(first, kind):
            message = f"list elements must share a compatible scalar type, got {first} and {kind}"
            refuse("", message, item.span)
        values.append(item.value)
    scalar = Scalar.STRING if first is None else first.scalar
    return Constant(tuple(values), PropType(scalar, is_list=True))


def parameter(scope: Scope, variable: ast.Variable) -> ParameterValue:
    """The declared parameter that a value names; refuses any other variable (T14)."""
    declared = scope.params.get(variable.name)
    if declared is None:
        fix = suggest(variable.name, scope.params) or f"declare it: `${variable.name}: <type>`"
        refuse("T14", f"`${variable.name}` must be a declared query parameter", variable.span, fix)
    return ParameterValue(variable.name, declared)


def assigned(scope: Scope, target: TargetProperty, value: ast.ValueExpr) -> TypedExpr:
    """A value that is written to the target, or compared with it as a whole."""
    if isinstance(value, ast.Literal):
        return _literal(target, value)
    if isinstance(value, ast.Now):
        return _now(target, value)
    found = parameter(scope, value)
    if target.type.scalar is Scalar.BLOB and is_scalar(found.type, Scalar.STRING):
        return found
    if not compatible(target.type, found.type):
        message = f"cannot assign/compare parameter `${found.name}` of type {found.type}"
        refuse("T7", f"{message} with {target} of type {target.type}", value.span)
    return found


def pattern(scope: Scope, target: TargetProperty, value: ast.ValueExpr) -> TypedExpr:
    """A value of an inline pair: membership where the target is a list, else as `assigned`."""
    if not target.type.is_list or isinstance(value, ast.Now):
        return assigned(scope, target, value)
    found: Constant | ParameterValue
    if isinstance(value, ast.Literal):
        rule, relation, found = "T3", "membership match got", constant(value)
    else:
        rule, relation, found = "T7", "membership against", parameter(scope, value)
    if found.type.is_list:
        fix = "give one value; it matches when the list holds it"
        refuse(rule, f"list equality is not supported: {target} has type {target.type}", value.span, fix)
    if not compatible(member(target.type), found.type):
        if rule == "T3":
            message = f"{target} has type {target.type} but {relation} {found.type}"
        else:
            message = f"cannot test {found.type} for {relation} {target} of type {target.type}"
        refuse(rule, message, value.span)
    return found


def _now(target: TargetProperty, value: ast.Now) -> NowValue:
    if not is_scalar(target.type, Scalar.DATETIME):
        refuse("T7", f"cannot assign/compare DateTime with {target} of type {target.type}", value.span)
    return NowValue(DATETIME)


def _literal(target: TargetProperty, literal: ast.Literal) -> Constant:
    found = constant(literal)
    if target.type.scalar is Scalar.VECTOR:
        return _vector(target, found, literal)
    if target.type.scalar is Scalar.BLOB or not compatible(target.type, found.type):
        _mismatch(target, found, literal)
    allowed = target.type.enum_values
    if allowed is not None and found.value not in allowed:
        text = str(found.value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        message = f'{target} expects one of [{", ".join(allowed)}] but got "{shown}"'
        refuse("T3", message, literal.span, suggest(text, allowed))
    return found


def _vector(target: TargetProperty, found: Constant, literal: ast.Literal) -> Constant:
    if not isinstance(found.value, tuple) or found.type.scalar not in NUMERIC:
        _mismatch(target, found, literal)
    if len(found.value) != target.type.dimension:
        message = f"{target} has type {target.type} but got vector literal with {len(found.value)} elements"
        refuse("T3", message, literal.span)
    return Constant(found.value, target.type)


def _mismatch(target: TargetProperty, found: Constant, literal: ast.Literal) -> NoReturn:
    fix = None
    if target.type.scalar in (Scalar.DATE, Scalar.DATETIME) and found.type.scalar is Scalar.STRING:
        fix = f'write `{target.type.scalar.value.lower()}("..")`'
    elif target.type.scalar is Scalar.BLOB:
        fix = "pass the URI as a String parameter"
    refuse("T3", f"{target} has type {target.type} but got {found.type}", literal.span, fix)
