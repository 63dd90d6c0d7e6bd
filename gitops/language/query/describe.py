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

    from gitops.language.query.ast import ReturnExpression
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


def return_item(value: TypedExpr, item: ReturnExpression) -> ReturnItem:
    """A checked return item with the name of its column in result rows."""
    alias = None if item.alias is None else item.alias.text
    return ReturnItem(value, alias, alias or _row_name(value))


def result_column(item: ReturnItem) -> ResultColumn:
    """The described column of a return item."""
    value = item.value
    if isinstance(value, (PropertyValue, AliasValue)):
        name = value.name
    else:
        name = value.function.value if isinstance(value, AggregateValue) else _row_name(value)
    return ResultColumn(item.alias or name, item.column, type_of(value))


def statement_access(catalog: Catalog, statements: tuple[TypedStatement, ...]) -> tuple[set[Access], set[Access]]:
    """The types that writes read and write.

    An insert of an edge reads its endpoints; a node delete reads and writes every incident edge type; what a
    predicate selects from is read.
    """
    written = {Access(_written_kind(statement), statement.type_name) for statement in statements}
    selected = {
        Access(_written_kind(statement), statement.type_name)
        for statement in statements
        if not isinstance(statement, TypedInsert)
    }
    emptied = {
        statement.type_name
        for statement in statements
        if isinstance(statement, TypedDelete) and statement.kind is TypeKind.NODE
    }
    ends = [
        catalog.edges[statement.type_name]
        for statement in statements
        if isinstance(statement, TypedInsert) and statement.kind is TypeKind.EDGE
    ]
    incident = {
        Access(TypeKind.EDGE, edge.name)
        for edge in catalog.edges.values()
        if edge.source in emptied or edge.target in emptied
    }
    found = {Access(TypeKind.NODE, name) for edge in ends for name in (edge.source, edge.target)}
    return selected | incident | found, written | incident


def _written_kind(statement: TypedStatement) -> TypeKind:
    return TypeKind.NODE if isinstance(statement, TypedUpdate) else statement.kind


def _row_name(value: TypedExpr) -> str:
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
    named: dict[type, str] = {
        NowValue: "now",
        Constant: "literal",
        NearestRank: "nearest",
        TextRank: "bm25",
        FusedRank: "rrf",
    }
    return named[type(value)]
