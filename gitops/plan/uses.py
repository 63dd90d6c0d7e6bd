"""What a checked query names in its graph: types, and properties of them, read or written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gitops.language.query import CheckedQuery
from gitops.language.query.typed import (
    NodeValue,
    PropertyValue,
    Scan,
    Traverse,
    TypedDelete,
    TypedInsert,
    TypedRead,
    TypedStatement,
    TypedUpdate,
)
from gitops.language.schema import TypeKind
from gitops.plan.subjects import Subject

_ENDPOINTS = frozenset({"from", "to"})


class Use(NamedTuple):
    """How a query uses a subject."""

    reads: bool
    writes: bool


def uses(query: CheckedQuery) -> dict[Subject, Use]:
    """What the text of a query names: a type itself, a variable of it in an expression, or one of its properties.

    Using a property is using its type. What a query touches without naming it is left out, so that the answer stays useful:
    the ends of a hop that have no variable in use, and the edges that go with a deleted node.
    """
    found: dict[Subject, Use] = {}
    for subject, use in _read(query.body) if isinstance(query.body, TypedRead) else _statements(query.body):
        for each in {subject, Subject(subject.kind, subject.type_name)}:
            known = found.get(each, use)
            found[each] = Use(known.reads or use.reads, known.writes or use.writes)
    return found


def _read(body: TypedRead) -> Iterator[tuple[Subject, Use]]:
    reading = Use(reads=True, writes=False)
    # The checked tree is made of tuples all the way down, whatever the node: what names something is told by its class.
    pending: list[Any] = [body.clauses, body.items, body.order]
    while pending:
        node = pending.pop()
        if isinstance(node, PropertyValue):
            yield Subject(node.kind.value, node.owner, node.name), reading
        elif isinstance(node, NodeValue):
            yield Subject(TypeKind.NODE.value, node.owner), reading
        elif isinstance(node, Scan):
            yield Subject(TypeKind.NODE.value, node.type_name), reading
        elif isinstance(node, Traverse):
            yield Subject(TypeKind.EDGE.value, node.edge), reading
        if isinstance(node, tuple):
            pending.extend(node)


def _statements(body: tuple[TypedStatement, ...]) -> Iterator[tuple[Subject, Use]]:
    reading, writing = Use(reads=True, writes=False), Use(reads=False, writes=True)
    for statement in body:
        kind = TypeKind.NODE if isinstance(statement, TypedUpdate) else statement.kind
        # The ends of an edge are written like properties, but are none.
        ends = _ENDPOINTS if kind is TypeKind.EDGE else frozenset[str]()
        yield Subject(kind.value, statement.type_name), writing
        if isinstance(statement, TypedInsert | TypedUpdate):
            for each in statement.assignments:
                if each.name not in ends:
                    yield Subject(kind.value, statement.type_name, each.name), writing
        if isinstance(statement, TypedUpdate | TypedDelete) and statement.predicate.name not in ends:
            yield Subject(kind.value, statement.type_name, statement.predicate.name), reading
