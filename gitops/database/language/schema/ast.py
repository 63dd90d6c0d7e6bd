"""The syntax tree of a schema text, in text order, with byte spans.

Uses named tuples, because a large schema creates very many nodes, and they are several times faster than data classes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from gitops.database.language.record import Record

if TYPE_CHECKING:
    from gitops.database.language.schema.types import ConstraintKind, PropType
    from gitops.database.language.text import Name, Span


class ValueKind(Enum):
    """How an argument's value is spelled."""

    STRING = "string"
    NUMBER = "number"
    BOOL = "boolean"
    NAME = "name"


class ArgumentValue(Record):
    """An argument in an annotation or constraint; `text` is decoded for strings, otherwise as written."""

    kind: ValueKind
    text: str
    span: Span


class Interval(Record):
    """`low..high`, including both ends, of which at least one is present. Integral decimals are stored as integers."""

    low: int | float | None
    high: int | float | None
    span: Span


class SchemaAnnotation(Record):
    """`@name`, `@name(value)` or `@name(value, keyword=value)`."""

    name: str
    value: ArgumentValue | None
    keywords: tuple[tuple[Name, ArgumentValue], ...]
    span: Span


class Constraint(Record):
    """A body constraint with its arguments as written (at least one)."""

    kind: ConstraintKind
    arguments: tuple[ArgumentValue | Interval, ...]
    span: Span


class PropertyDeclaration(Record):
    """A property. `type` is None if its type was spelled in a way that is rejected."""

    name: Name
    type: PropType | None
    type_span: Span
    annotations: tuple[SchemaAnnotation, ...]
    span: Span


class InterfaceDeclaration(Record):
    """An interface: a template of properties."""

    name: Name
    properties: tuple[PropertyDeclaration, ...]


class NodeDeclaration(Record):
    """A node type. After the check stage, `properties` includes the properties of its interfaces."""

    name: Name
    annotations: tuple[SchemaAnnotation, ...]
    implements: tuple[Name, ...]
    properties: tuple[PropertyDeclaration, ...]
    constraints: tuple[Constraint, ...]


class EdgeDeclaration(Record):
    """An edge type. `cardinality` is (min, max) edges per source node; a max of None means unbounded."""

    name: Name
    source: Name
    target: Name
    cardinality: tuple[int, int | None]
    annotations: tuple[SchemaAnnotation, ...]
    properties: tuple[PropertyDeclaration, ...]
    constraints: tuple[Constraint, ...]


class SchemaDocument(Record):
    """A whole schema text."""

    interfaces: tuple[InterfaceDeclaration, ...]
    nodes: tuple[NodeDeclaration, ...]
    edges: tuple[EdgeDeclaration, ...]
