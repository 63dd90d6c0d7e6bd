"""The rules of one declaration at a time (S-03 to S-48 but those of the parser and the catalog).

Order of work: expand interfaces into their nodes; then, per node and edge, check the head, the properties with
their annotations, and the body constraints. The result is the document with interfaces expanded.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.language.lexer import MAX_SOURCE_BYTES
from gitops.language.schema.annotations import check_head, check_property
from gitops.language.schema.ast import (
    EdgeDeclaration,
    InterfaceDeclaration,
    NodeDeclaration,
    PropertyDeclaration,
    SchemaDocument,
)
from gitops.language.schema.constraints import OwnerType, check_constraints
from gitops.language.schema.problems import ProblemCollector, UnknownName
from gitops.language.schema.types import TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROW_COLUMNS = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Property names that the storage format keeps for itself."""


def check_document(document: SchemaDocument, problems: ProblemCollector) -> SchemaDocument:
    """Check every declaration of `document`; returns it with the properties of interfaces added to their nodes.

    Problems go to `problems`. Not checked here: what only shows over the whole schema (`check_catalog`).
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
    check_head(owner, declared.annotations, problems)
    _check_names(declared.properties, problems)
    for each in declared.properties:
        check_property(owner, each, problems)
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
