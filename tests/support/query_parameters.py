"""Parameters for stored queries, drawn from the data: values of the property that a parameter is compared with or written to."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

from gitops.database.language.query import CheckedQuery
from gitops.database.language.query.typed import ParameterValue, PropertyValue, TypedInsert
from gitops.database.language.schema import PropType, Scalar, Schema
from gitops.database.language.schema.types import TypeKind
from tests.reference import Graph
from tests.reference.cells import to_json


def parameters(query: CheckedQuery, schema: Schema, graph: Graph, pick: int) -> dict[str, Any]:
    """Values out of the data for every parameter; `pick` varies them."""
    uses = dict(_uses(query.body, schema))
    values: dict[str, Any] = {}
    for name, kind in query.params.items():
        known = uses[name](graph) if name in uses else []
        values[name] = known[(pick * 7) % len(known)] if known else _default(kind, pick)
    return values


def _uses(part: Any, schema: Schema) -> Iterator[tuple[str, Any]]:
    """Where parameters meet properties: each parameter with what finds fitting values in a graph."""
    if isinstance(part, TypedInsert) and part.kind is TypeKind.EDGE:
        edge = schema.catalog.edges[part.type_name]
        for each, owner in ((each, edge.source if each.name == "from" else edge.target) for each in part.assignments):
            if isinstance(each.value, ParameterValue) and each.name in ("from", "to"):
                yield each.value.name, lambda graph, owner=owner: sorted(graph.nodes[owner])
    elif hasattr(part, "predicate"):
        # An update or a delete: its test is drawn from the data, what it writes is made up.
        owner, kind = part.type_name, part.predicate.type
        if isinstance(part.predicate.value, ParameterValue):
            yield part.predicate.value.name, _column(owner, part.predicate.name, kind)
    elif isinstance(part, tuple):
        fields = [getattr(part, name) for name in part._fields] if hasattr(part, "_fields") else part
        properties = [each for each in fields if isinstance(each, PropertyValue) and each.kind is TypeKind.NODE]
        for each in fields:
            if isinstance(each, ParameterValue) and properties:
                yield each.name, _column(properties[0].owner, properties[0].name, properties[0].type)
            else:
                yield from _uses(each, schema)


def _column(owner: str, name: str, kind: PropType) -> Any:
    def values(graph: Graph) -> list[Any]:
        cells = {str(row[name]): row[name] for row in graph.nodes.get(owner, {}).values() if row.get(name) is not None}
        found = [to_json(cells[key], kind) for key in sorted(cells)]
        return [item for cell in found for item in cell] if kind.is_list else found

    return values


def _default(kind: PropType, pick: int) -> Any:
    """A value of a type that no data is known for."""
    if kind.is_list:
        return [_default(PropType(kind.scalar), pick)]
    if kind.scalar is Scalar.VECTOR:
        return [0.5] * (kind.dimension or 0)
    letter = string.ascii_lowercase[pick % 26]
    defaults = {Scalar.BOOL: True, Scalar.DATE: "2026-01-02", Scalar.DATETIME: "2026-01-02T03:04:05Z"}
    return defaults.get(kind.scalar, f"new {letter}{pick}" if kind.scalar is Scalar.STRING else pick)
