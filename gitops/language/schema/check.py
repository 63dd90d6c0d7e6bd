"""The rules of one declaration at a time (S-03 to S-48, except those of the parser and the catalog).

Steps: 1 expand interfaces into their nodes; 2 per node and edge, check the annotations of the head (S-14 to S-18, S-44), the
properties with their annotations (S-14 to S-28, S-43), and the constraints of the body (in `constraints`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.language.lexer import MAX_SOURCE_BYTES
from gitops.language.schema.ast import (
    EdgeDeclaration,
    InterfaceDeclaration,
    NodeDeclaration,
    PropertyDeclaration,
    SchemaAnnotation,
    SchemaDocument,
    ValueKind,
)
from gitops.language.schema.constraints import OwnerType, check_constraints
from gitops.language.schema.problems import ProblemCollector, UnknownName
from gitops.language.schema.types import Scalar, TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROW_COLUMNS = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Property names that the storage format reserves."""

_STRUCTURAL = frozenset({"key", "unique", "index", "embed"})
_DOCUMENTING = frozenset({"description", "instruction"})
_ONCE = _STRUCTURAL | _DOCUMENTING | {"rename_from"}
_REPEAT_RULES = {True: "S-24", False: "S-14"}


def check_document(document: SchemaDocument, problems: ProblemCollector) -> SchemaDocument:
    """Check every declaration of `document`; returns it with the properties of interfaces added to their nodes.

    Problems go to `problems`. `check_catalog` checks the schema as a whole.
    """
    interfaces: dict[str, InterfaceDeclaration] = {}
    for interface in document.interfaces:
        interfaces.setdefault(interface.name.text, interface)
        _check_names(interface.properties, problems)
    nodes = _expand_all(document.nodes, interfaces, problems)
    for node in nodes:
        _check_declaration(OwnerType(TypeKind.NODE, node.name.text, fields_of(node)), node, problems)
    for edge in document.edges:
        _check_declaration(OwnerType(TypeKind.EDGE, edge.name.text, fields_of(edge)), edge, problems)
    return document._replace(nodes=nodes)


def fields_of(owner: InterfaceDeclaration | NodeDeclaration | EdgeDeclaration) -> Mapping[str, PropertyDeclaration]:
    """The properties of a declaration by name, the first of each name."""
    fields: dict[str, PropertyDeclaration] = {}
    for each in owner.properties:
        fields.setdefault(each.name.text, each)
    return MappingProxyType(fields)


def _check_declaration(
    owner: OwnerType, declared: NodeDeclaration | EdgeDeclaration, problems: ProblemCollector
) -> None:
    _check_head(owner, declared.annotations, problems)
    _check_names(declared.properties, problems)
    for each in declared.properties:
        _check_property(owner, each, problems)
    check_constraints(owner, declared.constraints, problems)


def _check_names(properties: Iterable[PropertyDeclaration], problems: ProblemCollector) -> None:
    for each in properties:
        if each.name.text in ROW_COLUMNS:
            problems.add_parse("S-45", f"property name `{each.name.text}` is reserved", each.name.span)


def _expand_all(
    nodes: tuple[NodeDeclaration, ...], interfaces: Mapping[str, InterfaceDeclaration], problems: ProblemCollector
) -> tuple[NodeDeclaration, ...]:
    """Add interface properties to nodes, within the size limit that also holds for sources (S-48)."""
    expanded: list[NodeDeclaration] = []
    room = MAX_SOURCE_BYTES
    for node in nodes:
        full = _expand(node, interfaces, problems)
        room -= sum(each.span.end - each.span.start for each in full.properties[len(node.properties) :])
        if room < 0:
            message = f"interfaces expand the schema by more than {MAX_SOURCE_BYTES} bytes"
            problems.add_parse("S-48", message, node.name.span)
            return tuple(expanded)
        expanded.append(full)
    return tuple(expanded)


def _expand(
    node: NodeDeclaration, interfaces: Mapping[str, InterfaceDeclaration], problems: ProblemCollector
) -> NodeDeclaration:
    if not node.implements:
        return node
    own = fields_of(node)
    added: dict[str, PropertyDeclaration] = {}
    firsts = {each.text: each.span for each in reversed(node.implements)}
    for name in dict.fromkeys(each.text for each in node.implements):
        span = firsts[name]
        interface = interfaces.get(name)
        if interface is None:
            message = f"node `{node.name.text}` implements unknown interface `{name}`"
            problems.add_parse("S-03", message, span, UnknownName(name, interfaces))
            continue
        for each in fields_of(interface).values():
            field = each.name.text
            if field in own:
                _check_declared_type(own[field], each, (node.name.text, name), problems)
            elif field not in added:
                added[field] = each
            elif _semantics(added[field]) != _semantics(each):
                message = (
                    f"interfaces of node `{node.name.text}` give property `{field}` "
                    f"incompatible property semantics; `{name}` is the second to declare it"
                )
                fix = f"declare `{field}` alike in both interfaces, or in the node itself"
                problems.add_parse("S-47", message, span, fix)
    return node._replace(properties=(*node.properties, *added.values()))


def _check_declared_type(
    own: PropertyDeclaration, declared: PropertyDeclaration, names: tuple[str, str], problems: ProblemCollector
) -> None:
    if own.type is not None and declared.type is not None and own.type != declared.type:
        node, interface = names
        problems.add_parse(
            "S-04",
            f"property `{node}.{own.name.text}` has type {own.type}, "
            f"but interface `{interface}` declares it as {declared.type}",
            own.type_span,
            f"write `{own.name.text}: {declared.type}`, or leave the property to the interface",
        )


def _semantics(declared: PropertyDeclaration) -> tuple[object, ...]:
    notes = sorted(
        (
            each.name,
            "" if each.value is None else each.value.text,
            sorted((keyword.name.text, keyword.value.text) for keyword in each.keywords),
        )
        for each in declared.annotations
    )
    return declared.type, notes


def _check_head(owner: OwnerType, annotations: Sequence[SchemaAnnotation], problems: ProblemCollector) -> None:
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


def _check_property(owner: OwnerType, declared: PropertyDeclaration, problems: ProblemCollector) -> None:
    """Check the annotations of one property, each with the first rule it breaks."""
    item = f"property `{owner.name}.{declared.name.text}`"
    _check_repeats(item, declared.annotations, problems)
    for each in declared.annotations:
        if each.name == "instruction":
            message = f"`@instruction` is only supported on node and edge types, not on {item}"
            problems.add_parse("S-16", message, each.span, "use `@description` here")
        elif each.name not in _STRUCTURAL:
            _check_plain(item, each, problems)
        elif not _refuse_misplaced(owner, declared, each, problems) and each.name == "embed":
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


def _refuse_misplaced(
    owner: OwnerType, declared: PropertyDeclaration, note: SchemaAnnotation, problems: ProblemCollector
) -> bool:
    """Add the problem of a structural annotation that this property cannot have; returns whether there is one."""
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
