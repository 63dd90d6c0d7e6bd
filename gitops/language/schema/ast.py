"""The tree of a schema text: what the author wrote, in the author's order, every part with its byte span.

Named tuples, as a large schema makes very many of these and they are made several times faster than data classes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from gitops.language.record import Record

if TYPE_CHECKING:
    from gitops.language.schema.types import ConstraintKind, PropType
    from gitops.language.text import Span


class Name(Record):
    """A name where the grammar wants one."""

    text: str
    span: Span


class ValueKind(Enum):
    """How an argument was spelled."""

    STRING = "string"
    NUMBER = "number"
    BOOL = "boolean"
    NAME = "name"


class Value(Record):
    """An argument of an annotation or a constraint; `text` is decoded for strings, as written otherwise."""

    kind: ValueKind
    text: str
    span: Span


class Interval(Record):
    """`low..high`, both ends inclusive, at least one end present. Integral decimals are held as integers."""

    low: int | float | None
    high: int | float | None
    span: Span


class Keyword(Record):
    """A keyword argument of an annotation: `name="value"`."""

    name: Name
    value: Value


class Annotation(Record):
    """`@name`, `@name(value)` or `@name(value, keyword=value)`."""

    name: str
    value: Value | None
    keywords: tuple[Keyword, ...]
    span: Span


class Constraint(Record):
    """A body constraint with its arguments as written, at least one."""

    kind: ConstraintKind
    arguments: tuple[Value | Interval, ...]
    span: Span


class Property(Record):
    """A property. `type` is None when its spelling was refused with a problem of its own."""

    name: Name
    type: PropType | None
    type_span: Span
    annotations: tuple[Annotation, ...]
    span: Span


class Interface(Record):
    """An interface: a template of properties."""

    name: Name
    properties: tuple[Property, ...]


class Node(Record):
    """A node type; after the check stage `properties` also holds those its interfaces contribute."""

    name: Name
    annotations: tuple[Annotation, ...]
    implements: tuple[Name, ...]
    properties: tuple[Property, ...]
    constraints: tuple[Constraint, ...]


class Edge(Record):
    """An edge type; `cardinality` is (min, max) of edges per source node, max None for unbounded."""

    name: Name
    source: Name
    target: Name
    cardinality: tuple[int, int | None]
    annotations: tuple[Annotation, ...]
    properties: tuple[Property, ...]
    constraints: tuple[Constraint, ...]


class Document(Record):
    """A whole schema text."""

    interfaces: tuple[Interface, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
