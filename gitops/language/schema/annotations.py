"""The rules of annotations: on the heads of types (S-14 to S-18, S-44) and on properties (S-14 to S-28, S-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.schema.ast import ValueKind
from gitops.language.schema.problems import ProblemCollector, UnknownName
from gitops.language.schema.types import Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitops.language.schema.ast import PropertyDeclaration, SchemaAnnotation
    from gitops.language.schema.constraints import OwnerType

_STRUCTURAL = frozenset({"key", "unique", "index", "embed"})
_DOCUMENTING = frozenset({"description", "instruction"})
_ONCE = _STRUCTURAL | _DOCUMENTING | {"rename_from"}
_REPEAT_RULES = {True: "S-24", False: "S-14"}


def check_head(owner: OwnerType, annotations: Sequence[SchemaAnnotation], problems: ProblemCollector) -> None:
    """Check the annotations of a node or edge declaration."""
    item = f"{owner.kind} `{owner.name}`"
    _check_repeats(item, annotations, problems)
    for each in annotations:
        if each.name in _STRUCTURAL and owner.kind is TypeKind.EDGE:
            fix = "write unique and index constraints in the body, over `src`, `dst` or properties"
            problems.add_parse("S-18", f"`@{each.name}` is not supported on edges ({item})", each.span, fix)
        elif each.name in _STRUCTURAL:
            message = f"`@{each.name}` is only supported on node properties, not on {item}"
            problems.add_parse("S-17", message, each.span, "move it behind the property it is about")
        else:
            _check_plain(item, each, problems)


def check_property(owner: OwnerType, declared: PropertyDeclaration, problems: ProblemCollector) -> None:
    """Check the annotations of one property, each with the first rule it breaks."""
    item = f"property `{owner.name}.{declared.name.text}`"
    _check_repeats(item, declared.annotations, problems)
    for each in declared.annotations:
        if each.name == "instruction":
            message = f"`@instruction` is only supported on node and edge types, not on {item}"
            problems.add_parse("S-16", message, each.span, "use `@description` here")
        elif each.name not in _STRUCTURAL:
            _check_plain(item, each, problems)
        elif not _misplaced(owner, declared, each, problems) and each.name == "embed":
            _check_embed(owner, declared, each, problems)


def _check_repeats(item: str, annotations: Sequence[SchemaAnnotation], problems: ProblemCollector) -> None:
    seen: set[str] = set()
    for each in annotations:
        if each.name in seen and each.name in _ONCE:
            rule = "S-44" if each.name == "rename_from" else _REPEAT_RULES[each.name in _STRUCTURAL]
            problems.add_parse(rule, f"{item} declares @{each.name} multiple times", each.span, "keep one of them")
        seen.add(each.name)


def _check_plain(item: str, note: SchemaAnnotation, problems: ProblemCollector) -> None:
    """The rules of annotations that do not change the shape of the type."""
    blank = note.value is None or not note.value.text.strip()
    if note.name in _DOCUMENTING and blank:
        message = f"`@{note.name}` of {item} requires a non-empty value"
        problems.add_parse("S-15", message, note.span, f'write `@{note.name}("..")`')
    elif note.name == "rename_from" and (blank or note.keywords):
        message = f"`@rename_from` of {item} requires exactly one non-empty value"
        problems.add_parse("S-44", message, note.span, 'write `@rename_from("OldName")`')


def _misplaced(
    owner: OwnerType, declared: PropertyDeclaration, note: SchemaAnnotation, problems: ProblemCollector
) -> bool:
    """Whether a structural annotation cannot stand on this property; the problem is then added."""
    kind = declared.type
    where = f"`{owner.name}.{declared.name.text}`"
    rule = message = ""
    fix: str | None = None
    if owner.kind is TypeKind.EDGE and note.name in ("key", "embed"):
        rule, message = "S-22", f"`@{note.name}` is not supported on edge properties ({where})"
    elif kind is None:
        return True
    elif kind.is_list:
        rule, message = "S-19", f"`@{note.name}` is not supported on list property {where}"
        fix = f"write `@index({declared.name.text})` in the body" if note.name == "index" else None
    elif kind.scalar is Scalar.BLOB:
        rule, message = "S-21", f"`@{note.name}` is not supported on blob property {where}"
    elif kind.scalar is Scalar.VECTOR and note.name in ("key", "unique"):
        rule, message = "S-20", f"`@{note.name}` is not supported on vector property {where}"
    elif note.name == "key" and kind.nullable:
        rule, message = "S-32", f"key property {where} cannot be nullable"
        fix = f"write `{declared.name.text}: {str(kind)[:-1]}`"
    if message:
        problems.add_parse(rule, message, note.span, fix)
    return bool(message)


def _check_embed(
    owner: OwnerType, declared: PropertyDeclaration, note: SchemaAnnotation, problems: ProblemCollector
) -> None:
    where = f"`{owner.name}.{declared.name.text}`"
    if declared.type is not None and declared.type.scalar is not Scalar.VECTOR:
        message = f"`@embed` is only supported on vector properties; {where} is {declared.type}"
        problems.add_parse("S-25", message, note.span)
        return
    for keyword in note.keywords:
        if keyword.name.text != "model":
            message = f"unknown argument `{keyword.name.text}` of `@embed` on {where}"
            problems.add_parse("S-43", message, keyword.name.span, "the only one is `model`")
        elif keyword.value.kind is not ValueKind.STRING or not keyword.value.text.strip():
            message = f"argument `model` of `@embed` on {where} requires a non-empty string"
            problems.add_parse("S-43", message, keyword.value.span)
    value = note.value
    if value is None or value.kind not in (ValueKind.STRING, ValueKind.NAME) or not value.text.strip():
        fix = "name the String property that the vector is made from"
        problems.add_parse("S-26", f"`@embed` on {where} requires a source property name", note.span, fix)
        return
    source = owner.fields.get(value.text)
    if source is None:
        message = f"`@embed` on {where} references unknown source property `{value.text}`"
        problems.add_parse("S-27", message, value.span, UnknownName(value.text, owner.fields))
    elif source.type is not None and (source.type.scalar is not Scalar.STRING or source.type.is_list):
        message = f"`@embed` source `{owner.name}.{value.text}` must be String, not {source.type}"
        problems.add_parse("S-28", message, value.span)
