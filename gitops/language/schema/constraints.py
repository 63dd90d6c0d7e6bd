"""The rules of body constraints (S-07 to S-09, S-29 to S-37, S-46), and of keys in either spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.record import Record
from gitops.language.schema.ast import ArgumentValue, Interval, ValueKind
from gitops.language.schema.problems import ProblemCollector, UnknownName
from gitops.language.schema.types import NUMERIC, ConstraintKind, Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gitops.language.schema.ast import Constraint, PropertyDeclaration
    from gitops.language.schema.types import PropType

ENDPOINTS = ("src", "dst")
"""The names that unique and index groups of an edge may have besides its properties."""

_NODE_ONLY = {ConstraintKind.KEY: "S-29", ConstraintKind.RANGE: "S-36", ConstraintKind.CHECK: "S-37"}
_UNKNOWN = {
    ConstraintKind.KEY: "S-31",
    ConstraintKind.UNIQUE: "S-34",
    ConstraintKind.INDEX: "S-35",
    ConstraintKind.RANGE: "S-36",
    ConstraintKind.CHECK: "S-37",
}


class OwnerType(Record):
    """The type that is being checked, and its properties by name."""

    kind: TypeKind
    name: str
    fields: Mapping[str, PropertyDeclaration]


def check_constraints(owner: OwnerType, constraints: Sequence[Constraint], problems: ProblemCollector) -> None:
    """Check the body constraints of one type, and that it has at most one key."""
    for each in constraints:
        if owner.kind is TypeKind.EDGE and each.kind in _NODE_ONLY:
            message = f"`@{each.kind}` is not supported on edges (edge `{owner.name}`)"
            problems.add_parse(_NODE_ONLY[each.kind], message, each.span)
        elif each.kind is ConstraintKind.RANGE:
            _check_range(owner, each, problems)
        elif each.kind is ConstraintKind.CHECK:
            _check_pattern(owner, each, problems)
        else:
            for argument in each.arguments:
                _check_member(owner, each, argument, problems)
    if owner.kind is TypeKind.NODE:
        _check_one_key(owner, constraints, problems)


def _check_one_key(owner: OwnerType, constraints: Sequence[Constraint], problems: ProblemCollector) -> None:
    # Repeats on one property are S-24: of each property only the first shorthand counts.
    firsts = [
        next((note.span for note in each.annotations if note.name == "key"), None) for each in owner.fields.values()
    ]
    spans = [span for span in firsts if span is not None]
    spans += [each.span for each in constraints if each.kind is ConstraintKind.KEY]
    for span in sorted(spans, key=lambda each: each.start)[1:]:
        message = f"node `{owner.name}` has multiple @key constraints"
        problems.add_parse("S-30", message, span, "write one `@key(a, b)` in the body for a key of several properties")


def _check_member(
    owner: OwnerType, rule: Constraint, argument: ArgumentValue | Interval, problems: ProblemCollector
) -> None:
    name = _property_name(rule, argument, problems)
    if name is None or (owner.kind is TypeKind.EDGE and name.text in ENDPOINTS):
        return
    kind = _type_of(owner, rule, name, problems)
    if kind is None:
        return
    where = f"`{owner.name}.{name.text}`"
    if rule.kind is ConstraintKind.KEY:
        _check_key_member(where, kind, name, problems)
    elif kind.scalar is Scalar.BLOB:
        code = "S-46" if rule.kind is ConstraintKind.UNIQUE else "S-35"
        problems.add_parse(code, f"`@{rule.kind}` is not supported on blob property {where}", name.span)
    elif rule.kind is ConstraintKind.UNIQUE and kind.scalar is Scalar.VECTOR:
        problems.add_parse("S-20", f"`@unique` is not supported on vector property {where}", name.span)


def _check_key_member(where: str, kind: PropType, name: ArgumentValue, problems: ProblemCollector) -> None:
    shape = {Scalar.VECTOR: "vector", Scalar.BLOB: "blob"}.get(kind.scalar)
    if kind.is_list or shape is not None:
        message = f"`@key` is not supported on {'list' if kind.is_list else shape} property {where}"
        problems.add_parse("S-33", message, name.span)
    elif kind.nullable:
        problems.add_parse("S-32", f"key property {where} cannot be nullable", name.span, "remove the `?`")


def _check_range(owner: OwnerType, rule: Constraint, problems: ProblemCollector) -> None:
    name = _property_name(rule, rule.arguments[0], problems)
    if name is None:
        return
    bounds = rule.arguments[1:]
    if len(bounds) != 1 or not isinstance(bounds[0], Interval):
        message = f"`@range` on `{owner.name}.{name.text}`: expected range bounds"
        problems.add_parse("S-08", message, rule.span, f"write `@range({name.text}, 0..10)`; either end may be open")
        return
    low, high = bounds[0].low, bounds[0].high
    if low is not None and high is not None and low > high:
        message = f"`@range` on `{owner.name}.{name.text}`: expected range bounds in rising order"
        problems.add_parse("S-08", message, bounds[0].span, "write the lower bound first")
    kind = _type_of(owner, rule, name, problems)
    if kind is not None and (kind.is_list or kind.scalar not in NUMERIC):
        message = f"`@range` requires a numeric type; `{owner.name}.{name.text}` is {kind}"
        problems.add_parse("S-36", message, name.span)


def _check_pattern(owner: OwnerType, rule: Constraint, problems: ProblemCollector) -> None:
    name = _property_name(rule, rule.arguments[0], problems)
    if name is None:
        return
    pattern = rule.arguments[1:]
    if len(pattern) != 1 or not isinstance(pattern[0], ArgumentValue) or pattern[0].kind is not ValueKind.STRING:
        message = f"`@check` on `{owner.name}.{name.text}`: expected string argument"
        problems.add_parse("S-09", message, rule.span, f'write `@check({name.text}, "pattern")`')
        return
    kind = _type_of(owner, rule, name, problems)
    if kind is not None and (kind.is_list or kind.scalar is not Scalar.STRING):
        message = f"`@check` requires String type; `{owner.name}.{name.text}` is {kind}"
        problems.add_parse("S-37", message, name.span)


def _property_name(
    rule: Constraint, argument: ArgumentValue | Interval, problems: ProblemCollector
) -> ArgumentValue | None:
    if isinstance(argument, ArgumentValue) and argument.kind is ValueKind.NAME:
        return argument
    message = f"expected property name in constraint `@{rule.kind}`"
    problems.add_parse("S-07", message, argument.span, "write the name of the property without quotes")
    return None


def _type_of(owner: OwnerType, rule: Constraint, name: ArgumentValue, problems: ProblemCollector) -> PropType | None:
    """The type of a named property; None if its type was refused, and, with a problem, if there is no such property."""
    found = owner.fields.get(name.text)
    if found is not None:
        return found.type
    message = f"`@{rule.kind}` of {owner.kind} `{owner.name}` references unknown property `{name.text}`"
    problems.add_parse(_UNKNOWN[rule.kind], message, name.span, UnknownName(name.text, owner.fields))
    return None
