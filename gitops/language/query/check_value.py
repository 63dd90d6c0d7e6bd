"""Types of values, when two of them go together, and values against the property that they are compared with or written to.

Rules T3, T7 and T14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query import ast
from gitops.language.query.scope import refuse, suggest
from gitops.language.query.typed import Constant, ConstantValue, NowValue, ParameterValue, TypedExpr
from gitops.language.record import Record
from gitops.language.schema.types import NUMERIC, PropType, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitops.language.query.scope import Scope

_SHOWN = 40

STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
INT = PropType(Scalar.I64)
FLOAT = PropType(Scalar.F64)
DATETIME = PropType(Scalar.DATETIME)
NULLABLE_FLOAT = PropType(Scalar.F64, nullable=True)
_EMPTY_LIST = PropType(Scalar.STRING, is_list=True)
_LITERALS: Mapping[Scalar | None, PropType] = {scalar: PropType(scalar) for scalar in Scalar}
"""Type of each scalar literal."""


def same_family(left: PropType, right: PropType) -> bool:
    """Whether the scalars go together: the same one, vectors of one dimension, or both numeric."""
    if left.scalar is right.scalar:
        return left.dimension == right.dimension
    return left.scalar in NUMERIC and right.scalar in NUMERIC


def compatible(left: PropType, right: PropType) -> bool:
    """Whether values of the two types may be compared and assigned; nullability and enum sets do not count."""
    return left.is_list == right.is_list and same_family(left, right)


def member(of_list: PropType) -> PropType:
    """The type of the items of a list."""
    return PropType(of_list.scalar)


def is_scalar(kind: PropType, scalar: Scalar) -> bool:
    """Whether this is that scalar type and not a list of it."""
    return kind.scalar is scalar and not kind.is_list


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
        return Constant(literal.value, _LITERALS[literal.kind])
    if not literal.value:
        return Constant((), _EMPTY_LIST)
    values: list[ConstantValue] = []
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
        if not is_scalar(target.type, Scalar.DATETIME):
            refuse("T7", f"cannot assign/compare DateTime with {target} of type {target.type}", value.span)
        return NowValue(DATETIME)
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


def _literal(target: TargetProperty, literal: ast.Literal) -> Constant:
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
        refuse("T3", f"{target} has type {wanted} but got {found.type}", literal.span, fix)
    if is_vector:
        count = len(found.value) if isinstance(found.value, tuple) else 0
        if count != wanted.dimension:
            refuse("T3", f"{target} has type {wanted} but got vector literal with {count} elements", literal.span)
        return Constant(found.value, wanted)
    allowed = wanted.enum_values
    if allowed is not None and found.value not in allowed:
        text = str(found.value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        message = f'{target} expects one of [{", ".join(allowed)}] but got "{shown}"'
        refuse("T3", message, literal.span, suggest(text, allowed))
    return found
