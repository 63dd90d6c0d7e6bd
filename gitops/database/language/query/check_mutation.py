"""Writes: rules T10 to T14 and T16, with T3 and T7 for the written values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.query import ast, typed
from gitops.database.language.query.check_expr import STRING, TargetProperty, assigned
from gitops.database.language.query.scope import refuse, suggest
from gitops.database.language.schema.types import Catalog, EdgeType, NodeType, PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from gitops.database.language.query.scope import Scope
    from gitops.database.language.text import Name, Span

_ENDPOINTS = {"from": STRING, "to": STRING}


def check_statement(scope: Scope, statement: ast.Statement) -> typed.TypedStatement:
    """Check one write. Type names are exact here, also those of edges.

    Checked at run time only, as the rules require: a mix of deletes and other writes, and an update of a key.
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
    """Refuse an insert that leaves out an endpoint or a property that is never null."""
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
    """The type a write names; a node type comes before an edge type of the same name."""
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
    """The type of a property of the owner, or of an endpoint of an edge."""
    if isinstance(owner, EdgeType) and name.text in _ENDPOINTS:
        return _ENDPOINTS[name.text]
    found = owner.properties.get(name.text)
    if found is None:
        known = (*owner.properties, *_ENDPOINTS) if isinstance(owner, EdgeType) else tuple(owner.properties)
        message = f"{_kind(owner)} type `{owner.name}` has no property `{name.text}`"
        refuse("T11", message, name.span, suggest(name.text, known))
    scope.uses.add((owner.name, name.text))
    return found
