"""The result columns of a checked query, and the types that it reads and writes, as descriptors publish them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query.check_expr import type_of
from gitops.language.query.typed import (
    Access,
    AggregateValue,
    AliasValue,
    Constant,
    FusedRank,
    NearestRank,
    NodeValue,
    NowValue,
    ParameterValue,
    PropertyValue,
    ReturnItem,
    TextMatch,
    TextRank,
    TypedDelete,
    TypedExpr,
    TypedInsert,
    TypedStatement,
    TypedUpdate,
)
from gitops.language.record import Record
from gitops.language.schema.types import PropType, Scalar, TypeKind

if TYPE_CHECKING:
    from typing import Any

    from gitops.language.schema.types import Catalog

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BLOB: "blob",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.I64: "bigint",
    Scalar.U32: "int",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.VECTOR: "vector",
}
_NAMES: dict[type, str] = {
    NowValue: "now",
    Constant: "literal",
    NearestRank: "nearest",
    TextRank: "bm25",
    FusedRank: "rrf",
}


class ResultColumn(Record):
    """One column of a read's result.

    `name` is the descriptor's name: alias, else property, variable, `now`, `literal` or function name. `column` is the
    key in result rows, where a property is `v.p` and an aggregate goes by its argument. `type` is None for a node.
    """

    name: str
    column: str
    type: PropType | None

    def to_json(self) -> dict[str, Any]:
        """The JSON form of descriptors."""
        kind = self.type
        if kind is None:
            return {"name": self.name, "kind": "object", "nullable": False}
        form: dict[str, Any] = {"name": self.name, "kind": "list" if kind.is_list else _KINDS[kind.scalar]}
        if kind.is_list:
            form["item_kind"] = _KINDS[kind.scalar]
        elif kind.scalar is Scalar.VECTOR:
            form["vector_dim"] = kind.dimension
        form["nullable"] = kind.nullable
        return form


def result_column(item: ReturnItem) -> ResultColumn:
    """The described column of a return item."""
    value = item.value
    if isinstance(value, (PropertyValue, AliasValue)):
        name = value.name
    else:
        name = value.function.value if isinstance(value, AggregateValue) else row_name(value)
    return ResultColumn(item.alias or name, item.column, type_of(value))


def statement_access(catalog: Catalog, statements: tuple[TypedStatement, ...]) -> tuple[set[Access], set[Access]]:
    """The types that writes read and write.

    An insert of an edge reads its endpoints; a node delete reads and writes every incident edge type; what a
    predicate selects from is read.
    """
    reads: set[Access] = set()
    writes: set[Access] = set()
    for each in statements:
        access = Access(TypeKind.NODE if isinstance(each, TypedUpdate) else each.kind, each.type_name)
        writes.add(access)
        if not isinstance(each, TypedInsert):
            reads.add(access)
        elif each.kind is TypeKind.EDGE:
            edge = catalog.edges[each.type_name]
            reads |= {Access(TypeKind.NODE, edge.source), Access(TypeKind.NODE, edge.target)}
        if isinstance(each, TypedDelete) and each.kind is TypeKind.NODE:
            edges = [edge for edge in catalog.edges.values() if each.type_name in (edge.source, edge.target)]
            incident = {Access(TypeKind.EDGE, edge.name) for edge in edges}
            reads |= incident
            writes |= incident
    return reads, writes


def row_name(value: TypedExpr) -> str:
    """The name of a return item without an alias in result rows."""
    while isinstance(value, AggregateValue):
        value = value.argument
    if isinstance(value, PropertyValue):
        return f"{value.variable}.{value.name}"
    if isinstance(value, NodeValue):
        return value.variable
    if isinstance(value, (ParameterValue, AliasValue)):
        return value.name
    if isinstance(value, TextMatch):
        return value.function.value
    return _NAMES[type(value)]
