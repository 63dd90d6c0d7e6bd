"""Subjects: the types and properties that a migration step is about, and those that a checked query uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

Step = Mapping[str, Any]

_ENDPOINTS = frozenset({"from", "to"})
_ADDING = frozenset({"add_type", "add_property"})
_DROPPING = frozenset({"drop_type", "drop_property"})


class Subject(NamedTuple):
    """A type, or a property of one; `kind` is `node` or `edge`."""

    kind: str
    type_name: str
    property_name: str | None = None


class StepSubjects(NamedTuple):
    """Names that a step is about as the accepted schema has them, and as the desired one does."""

    before: frozenset[Subject]
    after: frozenset[Subject]


class Use(NamedTuple):
    """How a query uses a subject."""

    reads: bool
    writes: bool


def step_subjects(steps: Sequence[Step]) -> tuple[StepSubjects, ...]:
    """Per step what it is about.

    A preview comes from an engine, perhaps a newer one: a step of a kind or shape not known here is about nothing, and so is
    one on an interface, which no query can name. Names in steps are those of the desired schema but for `from`, the name of
    what is dropped, and the type of a dropped property (`rename_type` comes first).
    """
    types = {_type(s, "to"): s["from"] for s in steps if s.get("kind") == "rename_type" and _named(s, "from", "to")}
    properties = {
        _property(s, s["to"]): s["from"]
        for s in steps
        if s.get("kind") == "rename_property" and _named(s, "from", "to", "type_name")
    }
    return tuple(_subjects(step, types, properties) for step in steps)


def used_subjects(query: CheckedQuery) -> dict[Subject, Use]:
    """What the text of a query names: a type itself, a variable of it in an expression, or one of its properties.

    Using a property is using its type. What a query touches without naming it is left out, so that the answer stays useful:
    the ends of a hop that have no variable in use, and the edges that go with a deleted node.
    """
    found: dict[Subject, Use] = {}
    for subject, use in _read_uses(query.body) if isinstance(query.body, TypedRead) else _mutation_uses(query.body):
        for each in {subject, Subject(subject.kind, subject.type_name)}:
            known = found.get(each, use)
            found[each] = Use(known.reads or use.reads, known.writes or use.writes)
    return found


def _subjects(step: Step, types: Mapping[Subject, str], properties: Mapping[Subject, str]) -> StepSubjects:
    named = [subject for subject in _desired(step) if subject.kind in ("node", "edge")]
    # What is dropped has no desired name, and what is added no accepted one.
    before = () if step.get("kind") in _ADDING else (_accepted(subject, types, properties) for subject in named)
    return StepSubjects(frozenset(before), frozenset(() if step.get("kind") in _DROPPING else named))


def _desired(step: Step) -> list[Subject]:
    kind = step.get("kind")
    if kind in ("add_type", "drop_type", "update_type_metadata") and _named(step, "type_kind", "name"):
        return [_type(step, "name")]
    if kind == "rename_type" and _named(step, "type_kind", "from", "to"):
        return [_type(step, "to")]
    if kind == "rename_property" and _named(step, "type_kind", "type_name", "from", "to"):
        return [_property(step, step["to"])]
    if kind in ("add_property", "drop_property", "extend_enum", "update_property_metadata"):
        return (
            [_property(step, step["property_name"])] if _named(step, "type_kind", "type_name", "property_name") else []
        )
    if kind == "add_constraint" and _named(step, "type_kind", "type_name"):
        constraint = step.get("constraint")
        columns = constraint.get("Index") if isinstance(constraint, Mapping) else None
        return [_property(step, c) for c in columns if isinstance(c, str)] if isinstance(columns, list | tuple) else []
    if kind == "unsupported_change" and _named(step, "entity"):
        type_kind, _, name = step["entity"].partition(":")
        owner, _, member = name.partition(".")
        return [Subject(type_kind, owner, member or None)]
    return []


def _accepted(subject: Subject, types: Mapping[Subject, str], properties: Mapping[Subject, str]) -> Subject:
    owner = types.get(Subject(subject.kind, subject.type_name), subject.type_name)
    return Subject(subject.kind, owner, properties.get(subject, subject.property_name))


def _type(step: Step, field: str) -> Subject:
    return Subject(str(step.get("type_kind")), step[field])


def _property(step: Step, name: str) -> Subject:
    return Subject(str(step.get("type_kind")), step["type_name"], name)


def _named(step: Step, *fields: str) -> bool:
    return all(isinstance(step.get(field), str) for field in fields)


def _read_uses(body: TypedRead) -> Iterator[tuple[Subject, Use]]:
    reading = Use(reads=True, writes=False)
    # The checked tree consists of tuples at every level; the class of a node says whether it names something.
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


def _mutation_uses(body: tuple[TypedStatement, ...]) -> Iterator[tuple[Subject, Use]]:
    reading, writing = Use(reads=True, writes=False), Use(reads=False, writes=True)
    for statement in body:
        kind = TypeKind.NODE if isinstance(statement, TypedUpdate) else statement.kind
        # The ends of an edge are written like properties, but are not properties.
        ends = _ENDPOINTS if kind is TypeKind.EDGE else frozenset[str]()
        yield Subject(kind.value, statement.type_name), writing
        if isinstance(statement, TypedInsert | TypedUpdate):
            for each in statement.assignments:
                if each.name not in ends:
                    yield Subject(kind.value, statement.type_name, each.name), writing
        if isinstance(statement, TypedUpdate | TypedDelete) and statement.predicate.name not in ends:
            yield Subject(kind.value, statement.type_name, statement.predicate.name), reading
