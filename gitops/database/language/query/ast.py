"""The syntax tree of query text.

Nodes are named tuples: immutable, slotted, and cheap both to import and to build, because a file is parsed on every
plan. Two nodes of different classes with equal fields compare equal, so code distinguishes nodes by class. Variable
names are kept without their `$`, and every node ends with its span.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from gitops.database.language.record import Record
from gitops.database.language.schema.types import PropType, Scalar
from gitops.database.language.text import Name, Span

ANONYMOUS = "_"
"""Name of `$_`, the variable that is never bound."""


class TextFunction(StrEnum):
    """Functions on indexed text. `BM25` returns a rank, and the others return a Bool."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    MATCH_TEXT = "match_text"
    BM25 = "bm25"


class AggregateFunction(StrEnum):
    """Aggregates in a return item."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class ComparisonOperator(StrEnum):
    """Comparison operators, spelled as in source text."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


class Literal(Record):
    """A literal.

    A `Date` or `DateTime` keeps its text, which is parsed at run time. A list has kind None and contains literals.
    """

    kind: Scalar | None
    value: str | int | float | bool | tuple[Literal, ...]
    span: Span


class Now(Record):
    """`now()`: the query's single instant, a DateTime."""

    span: Span


class Variable(Record):
    """`$name`: a parameter or a binding. The checker decides which one it is."""

    name: str
    span: Span


class PropertyAccess(Record):
    """`$variable.name`, where the variable is always a binding."""

    variable: Name
    name: Name
    span: Span


class Alias(Record):
    """A bare name, which is an alias for a return item."""

    name: str
    span: Span


class Nearest(Record):
    """`nearest($v.p, query)`: rank by vector distance."""

    target: PropertyAccess
    query: Expr
    span: Span


class TextCall(Record):
    """`search`, `fuzzy`, `match_text` or `bm25`. Only `fuzzy` has `max_edits`."""

    function: TextFunction
    field: Expr
    query: Expr
    max_edits: Expr | None
    span: Span


class Rrf(Record):
    """`rrf(first, second, k)`: reciprocal rank fusion of two ranks."""

    first: Nearest | TextCall
    second: Nearest | TextCall
    k: Expr | None
    span: Span


class Aggregate(Record):
    """`count(x)` and similar functions."""

    function: AggregateFunction
    argument: Expr
    span: Span


Expr: TypeAlias = "Now | Nearest | TextCall | Rrf | Aggregate | PropertyAccess | Variable | Literal | Alias"
ValueExpr: TypeAlias = "Literal | Variable | Now"


class PropertyPair(Record):
    """`name: value`: a condition in a binding, or an assignment in a write."""

    name: Name
    value: ValueExpr
    span: Span


class Bind(Record):
    """`$v: Type {pairs}`."""

    variable: Name
    type_name: Name
    pairs: tuple[PropertyPair, ...]
    span: Span


class HopBounds(Record):
    """`{low,high}` of a hop. `high` is None in the unbounded form."""

    low: int
    high: int | None
    span: Span


class Hop(Record):
    """`$a edge{bounds} $b`; `$a $e:edge $b` has an edge variable, and `$a <edge> $b` is undirected."""

    left: Name
    binding: Name | None
    edge: Name
    undirected: bool
    bounds: HopBounds | None
    right: Name
    span: Span


class Comparison(Record):
    """`left operator right`."""

    left: Expr
    operator: ComparisonOperator
    right: Expr
    span: Span


class Not(Record):
    """`not { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span


Clause: TypeAlias = "Not | Bind | Hop | Comparison | TextCall"
"""The clauses of a block. A text call as a clause means that the call is true."""


class ReturnExpression(Record):
    """The expression in a return item."""

    value: Expr
    alias: Name | None
    span: Span


class OrderExpression(Record):
    """The expression in an order item."""

    value: Expr
    descending: bool
    span: Span


class Read(Record):
    """The body of a read query."""

    clauses: tuple[Clause, ...]
    items: tuple[ReturnExpression, ...]
    order: tuple[OrderExpression, ...]
    limit: int | None
    span: Span


class WhereCondition(Record):
    """`name operator value`: the only predicate of an update or delete."""

    name: Name
    operator: ComparisonOperator
    value: ValueExpr
    span: Span


class Insert(Record):
    """`insert Type {pairs}`."""

    type_name: Name
    pairs: tuple[PropertyPair, ...]
    span: Span


class Update(Record):
    """`update Type set {pairs} where test`."""

    type_name: Name
    pairs: tuple[PropertyPair, ...]
    test: WhereCondition
    span: Span


class Delete(Record):
    """`delete Type where test`."""

    type_name: Name
    test: WhereCondition
    span: Span


Statement: TypeAlias = "Insert | Update | Delete"


class Param(Record):
    """`$name: Type`. The dimension of a vector type is stored as written and not checked yet."""

    name: Name
    type: PropType
    type_span: Span
    span: Span


class Query(Record):
    """One query in a file. `body` is a read, or a mutation's statements (at least one)."""

    name: Name
    params: tuple[Param, ...]
    description: str | None
    instruction: str | None
    body: Read | tuple[Statement, ...]
    span: Span

    @property
    def writes(self) -> bool:
        """Return whether the query is a mutation."""
        return not isinstance(self.body, Read)
