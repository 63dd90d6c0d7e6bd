"""A checked query, with resolved names, known types and no source positions.

The executor, the descriptors and the impact analysis use this form. As in the syntax tree, nodes are named tuples that
are distinguished by class. A `type` is always the value's type, including nullability.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from gitops.database.language.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitops.database.language.query.ast import AggregateFunction, ComparisonOperator, TextFunction
    from gitops.database.language.schema.types import PropType, TypeKind

ConstantValue: TypeAlias = "str | int | float | bool | tuple[ConstantValue, ...]"


class Access(Record):
    """A node or edge type that a query reads or writes."""

    kind: TypeKind
    type_name: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in descriptors."""
        return {"kind": self.kind.value, "type_name": self.type_name}


class Direction(StrEnum):
    """The direction in which a hop follows its edges, as seen from the left variable."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


class PropertyValue(Record):
    """`$variable.name`, a property of a node or, for an edge variable, of an edge. `owner` is its type."""

    variable: str
    kind: TypeKind
    owner: str
    name: str
    type: PropType


class ParameterValue(Record):
    """A parameter."""

    name: str
    type: PropType


class Constant(Record):
    """A literal: a string for `Date` and `DateTime`, a tuple for a list."""

    value: ConstantValue
    type: PropType


class NowValue(Record):
    """The query's single instant."""

    type: PropType


class NodeValue(Record):
    """A bound node variable. Used as a value, it is the node's id."""

    variable: str
    owner: str


class AliasValue(Record):
    """An alias in `order`, which refers to the return item at this index."""

    name: str
    item: int


class TextMatch(Record):
    """`search`, `fuzzy` or `match_text`, whose result is a Bool."""

    function: TextFunction
    field: PropertyValue
    query: TypedExpr
    max_edits: TypedExpr | None
    type: PropType


class NearestRank(Record):
    """Rank by the distance between a vector property and a vector, or a text that is embedded first."""

    target: PropertyValue
    query: TypedExpr
    type: PropType


class TextRank(Record):
    """`bm25`: rank by a text property's relevance."""

    field: PropertyValue
    query: TypedExpr
    type: PropType


class FusedRank(Record):
    """`rrf`: a fusion of two ranks. `k` is None if the query uses the default."""

    first: NearestRank | TextRank
    second: NearestRank | TextRank
    k: TypedExpr | None
    type: PropType


class AggregateValue(Record):
    """An aggregate over a group's rows."""

    function: AggregateFunction
    argument: TypedExpr
    type: PropType


TypedExpr: TypeAlias = (
    "PropertyValue | ParameterValue | Constant | NowValue | NodeValue | AliasValue"
    " | TextMatch | NearestRank | TextRank | FusedRank | AggregateValue"
)
RANKS = (NearestRank, TextRank, FusedRank)


class PairTest(Record):
    """`{property: value}` in a binding: equality, or `membership` of the value in a list property."""

    property: PropertyValue
    membership: bool
    value: TypedExpr


class Scan(Record):
    """Binds the variable to nodes of the type that pass every test. Another scan for the same variable adds tests."""

    variable: str
    type_name: str
    tests: tuple[PairTest, ...]


class Traverse(Record):
    """One hop. A side that is None is anonymous: it can be any node and has no variable.

    `binding` is the edge variable, with which there is one row per edge. Depths run from `low` to `high`, both of which
    are at least 1. A variable without a scan is still bound to the type at its end.
    """

    left: str | None
    left_type: str
    edge: str
    direction: Direction
    right: str | None
    right_type: str
    low: int
    high: int
    binding: str | None


class Filter(Record):
    """A comparison that must be true."""

    left: TypedExpr
    operator: ComparisonOperator
    right: TypedExpr


class TextFilter(Record):
    """A text match that must be true."""

    match: TextMatch


class Absent(Record):
    """A `not` block: the row has no match for the inner clauses. `variables` are the variables that the block binds."""

    clauses: tuple[TypedClause, ...]
    variables: Mapping[str, str]


TypedClause: TypeAlias = "Scan | Traverse | Filter | TextFilter | Absent"


class ReturnItem(Record):
    """One return item. `column` is its name in result rows. If two names are equal, the later one wins."""

    value: TypedExpr
    alias: str | None
    column: str


class SortKey(Record):
    """One order item: a property, an alias, or a rank (only as the first item)."""

    value: TypedExpr
    descending: bool


class TypedRead(Record):
    """A checked read. `variables` maps each outer node variable to its type, in order of first mention.

    `edge_variables` does the same for edge variables. `aggregated` means that rows are grouped by those items that are
    not aggregates.
    """

    clauses: tuple[TypedClause, ...]
    variables: Mapping[str, str]
    edge_variables: Mapping[str, str]
    items: tuple[ReturnItem, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    aggregated: bool


class Assignment(Record):
    """A property to write, or an edge's `from` and `to`. `type` is the target's type."""

    name: str
    type: PropType
    value: TypedExpr


class Predicate(Record):
    """The test that selects the rows to update or delete."""

    name: str
    type: PropType
    operator: ComparisonOperator
    value: TypedExpr


class TypedInsert(Record):
    """Add one edge, or add one node and replace any node with the same key."""

    kind: TypeKind
    type_name: str
    assignments: tuple[Assignment, ...]


class TypedUpdate(Record):
    """Rewrite the nodes that pass the predicate."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Predicate


class TypedDelete(Record):
    """Remove the nodes (with their edges) or the edges that pass the predicate."""

    kind: TypeKind
    type_name: str
    predicate: Predicate


TypedStatement: TypeAlias = "TypedInsert | TypedUpdate | TypedDelete"
