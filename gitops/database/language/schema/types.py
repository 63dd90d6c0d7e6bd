"""A checked schema's types: property types, node and edge types, and the catalog.

All values are immutable and have no source positions. The query checker, the migration planner and the engine use them.
Properties are always in name order, because the catalog is built from a schema's canonical form.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gitops.database.language.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping


class TypeKind(StrEnum):
    """The kind of a type declaration."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


class ConstraintKind(StrEnum):
    """The body constraints. Key, unique and index also exist as shorthand annotations on one property."""

    KEY = "key"
    UNIQUE = "unique"
    INDEX = "index"
    RANGE = "range"
    CHECK = "check"


class Scalar(StrEnum):
    """The scalar base types, spelled as in source text. The dimension of a `VECTOR` is stored separately."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    VECTOR = "Vector"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERIC = INTEGERS | FLOATS

_NOTHING: Mapping[str, str] = MappingProxyType({})


class PropType(Record):
    """The type of a property or parameter.

    `dimension` is set only for vectors (1 to 2147483647). For an enum, whose scalar is String, `enum_values` has the
    sorted, distinct members. Otherwise it is None.
    """

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    def __str__(self) -> str:
        """The display spelling: `I32?`, `[String]?`, `Vector(4)`, `enum(a, b)`."""
        base: str
        if self.enum_values is not None:
            base = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            base = f"Vector({self.dimension})"
        else:
            base = self.scalar.value
        if self.is_list:
            base = f"[{base}]"
        return base + ("?" if self.nullable else "")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in plans and in the canonical form."""
        scalar: Any = {"Vector": self.dimension} if self.scalar is Scalar.VECTOR else self.scalar.value
        values = None if self.enum_values is None else list(self.enum_values)
        return {"scalar": scalar, "nullable": self.nullable, "list": self.is_list, "enum_values": values}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> PropType:
        """Parse the output of `to_json`."""
        raw = form["scalar"]
        values = form["enum_values"]
        vector = isinstance(raw, dict)
        return cls(
            scalar=Scalar.VECTOR if vector else Scalar(raw),
            nullable=form["nullable"],
            is_list=form["list"],
            enum_values=None if values is None else tuple(values),
            dimension=raw["Vector"] if vector else None,
        )


class RangeBound(Record):
    """`@range(p, lo..hi)`: both ends are inclusive, and either one can be open (None)."""

    property_name: str
    low: int | float | None
    high: int | float | None


class PatternCheck(Record):
    """`@check(p, "regex")`: an unanchored search that must match every non-null value."""

    property_name: str
    pattern: str


class Docs(Record):
    """Descriptions of a type and its properties, used only for documentation."""

    description: str | None = None
    instruction: str | None = None
    properties: Mapping[str, str] = _NOTHING


class NodeType(Record):
    """A node type. `key` has the key columns in name order, or is None. `properties` are in name order.

    `indexes` has the declared groups and the key. `embeds` maps each vector property to its source property, and
    `embed_models` maps it to the model given in the schema, if any.
    """

    name: str
    properties: Mapping[str, PropType]
    key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeBound, ...] = ()
    checks: tuple[PatternCheck, ...] = ()
    embeds: Mapping[str, str] = _NOTHING
    embed_models: Mapping[str, str] = _NOTHING
    implements: tuple[str, ...] = ()
    docs: Docs = Docs()


class EdgeType(Record):
    """An edge type from `source` to `target`. `cardinality` is (min, max). A max of None means unbounded.

    Groups in `unique` and `indexes` can contain `src` and `dst` in addition to properties.
    """

    name: str
    source: str
    target: str
    properties: Mapping[str, PropType]
    cardinality: tuple[int, int | None] = (0, None)
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    docs: Docs = Docs()


class Catalog(Record):
    """A checked schema. `folded_edges` maps lower-cased edge names to exact names."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: tuple[str, ...] = ()
    folded_edges: Mapping[str, str] = _NOTHING

    def edge(self, name: str) -> EdgeType | None:
        """Find an edge type by its name in a query: by exact name, or else ignoring case."""
        return self.edges.get(name) or self.edges.get(self.folded_edges.get(name.lower(), ""))
