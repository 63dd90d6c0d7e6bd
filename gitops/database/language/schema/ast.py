"""The syntax tree of a schema text, in text order and with byte spans.

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
    """The form in which an argument's value is written."""

    STRING = "string"
    NUMBER = "number"
    BOOL = "boolean"
    NAME = "name"


class ArgumentValue(Record):
    """An argument in an annotation or constraint. `text` is decoded for strings and otherwise as written."""

    kind: ValueKind
    text: str
    span: Span


class Interval(Record):
    """`low..high`, an inclusive interval with at least one end. Integral decimals are stored as integers."""

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
    """A body constraint with its arguments (at least one) as written."""

    kind: ConstraintKind
    arguments: tuple[ArgumentValue | Interval, ...]
    span: Span


class PropertyDeclaration(Record):
    """A property. `type` is None if its spelling was rejected."""

    name: Name
    type: PropType | None
    type_span: Span
    annotations: tuple[SchemaAnnotation, ...]
    span: Span


class InterfaceDeclaration(Record):
    """An interface, which is a template of properties."""

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
    """An edge type. `cardinality` is (min, max) edges per source node. A max of None means unbounded."""

    name: Name
    source: Name
    target: Name
    cardinality: tuple[int, int | None]
    annotations: tuple[SchemaAnnotation, ...]
    properties: tuple[PropertyDeclaration, ...]
    constraints: tuple[Constraint, ...]


class SchemaDocument(Record):
    """A complete schema text."""

    interfaces: tuple[InterfaceDeclaration, ...]
    nodes: tuple[NodeDeclaration, ...]
    edges: tuple[EdgeDeclaration, ...]
