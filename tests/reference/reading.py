"""§3.5 to §3.8: the result of a read: groups, order, limit, projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from gitops.database.language.query import CheckedQuery
from gitops.database.language.query.ast import AggregateFunction, TextFunction
from gitops.database.language.query.check_expr import type_of
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.query.typed import (
    RANKS,
    AggregateValue,
    AliasValue,
    Constant,
    Filter,
    FusedRank,
    NearestRank,
    NodeValue,
    NowValue,
    ParameterValue,
    PropertyValue,
    ReturnItem,
    SortKey,
    TextMatch,
    TextRank,
    TypedExpr,
    TypedRead,
)
from gitops.database.language.schema import Catalog, PropType, Scalar, Schema
from gitops.database.language.schema.types import TypeKind
from tests.reference import ranking
from tests.reference.cells import Refused, cell_from_text, instant, single, to_json
from tests.reference.graph import Graph
from tests.reference.matching import Match, Row

TEXT = PropType(Scalar.STRING)


@dataclass(frozen=True)
class Options:
    """What a run is given beside the query."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    metric: str = "l2"


@dataclass
class Answer:
    """A result and what it leaves open.

    `sorted` has a key per row of `every` row before the limit: rows of one key may change places, and where `total`
    is set no two rows have one. Without an order all keys are equal.
    """

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    every: list[dict[str, Any]]
    keys: list[tuple[Any, ...]]
    total: bool


def evaluate(
    schema: Schema, graph: Graph, query: CheckedQuery, params: object = None, options: Options | None = None
) -> list[dict[str, Any]]:
    """The result rows of a checked read. Raises Refused."""
    return answer(schema, graph, query, params, options).rows


def answer(
    schema: Schema, graph: Graph, query: CheckedQuery, params: object = None, options: Options | None = None
) -> Answer:
    """The result of a checked read, with what other results would be as right. Raises Refused."""
    if not isinstance(query.body, TypedRead):
        raise Refused("mutation", query.name)
    return _Read(schema.catalog, graph, query, params, options or Options()).answer()


def parameters(query: CheckedQuery, params: object) -> dict[str, Any]:
    """The parameters of a query out of JSON; a wrong or missing one is refused up front (K6)."""
    try:
        given = coerce_params(query.params, params)
    except ParameterError as error:
        raise Refused("parameter", error.message) from error
    return {name: _single(value) if query.params[name].scalar is Scalar.F32 else value for name, value in given.items()}


def _single(value: Any) -> Any:
    """What is declared F32 holds an F32."""
    if value is None:
        return None
    return [single(each) for each in value] if isinstance(value, list) else single(value)


class _Read:
    def __init__(self, catalog: Catalog, graph: Graph, query: CheckedQuery, params: object, options: Options) -> None:
        self._catalog = catalog
        self._graph = graph
        self._read: TypedRead = query.body  # type: ignore[assignment]
        self._options = options
        self._params = parameters(query, params)
        self._match = Match(catalog, graph, self._value)

    def answer(self) -> Answer:
        """Match, then group or rank or order, then limit."""
        read = self._read
        for item in read.items:
            _refuse_unprojectable(item.value)
        self._require((read.clauses, [item.value for item in read.items], read.order))
        rows = self._match.rows(read.clauses, {})
        columns = tuple(dict.fromkeys(item.column for item in read.items))
        if read.aggregated:
            made, keys = self._grouped(rows)
        elif read.order and isinstance(_seen(read.order[0], read.items), RANKS):
            made, keys = self._ranked(rows, _seen(read.order[0], read.items))
        else:
            made, keys = self._ordered(rows)
        total = bool(read.order) and not read.aggregated
        kept = made if read.limit is None else made[: read.limit]
        return Answer(columns, kept, made, keys, total)

    def _require(self, part: Any) -> None:
        """Refuse up front, whatever the data, what cannot be carried out: texts that are no date, ranks out of place."""
        if isinstance(part, (ParameterValue, Constant)):
            self._value(self._match, {}, part)
        elif isinstance(part, Filter) and isinstance(part.left, RANKS) | isinstance(part.right, RANKS):
            raise Refused("unsupported", "a rank orders and is not compared")
        elif isinstance(part, (TextMatch, TextRank)):
            given = (part.query, part.max_edits) if isinstance(part, TextMatch) else (part.query,)
            if any(not isinstance(each, (ParameterValue, Constant, None.__class__)) for each in given):
                raise Refused("unsupported", "text is searched for a literal or a parameter")
            self._require(given)
        elif isinstance(part, NearestRank) and self._value(self._match, {}, part.query) is None:
            raise Refused("unsupported", "nearest to null")
        elif isinstance(part, FusedRank):
            if _target(part.first).variable != _target(part.second).variable:
                raise Refused("unsupported", "rrf over two variables")
            k = ranking.FUSION if part.k is None else self._value(self._match, {}, part.k)
            if k is None or k < 1:
                raise Refused("unsupported", "rrf k must be greater than 0")
            self._require([part.first, part.second])
        elif isinstance(part, (tuple, list)):
            for each in part:
                self._require(each)

    # Values

    def _value(self, match: Match, row: Row, value: TypedExpr) -> Any:
        """The cell that an expression has in a row; of a node variable, its id."""
        if isinstance(value, PropertyValue):
            if value.kind is TypeKind.EDGE:
                return self._graph.edges[value.owner][row[value.variable]].row[value.name]
            return self._graph.nodes[value.owner][row[value.variable]][value.name]
        if isinstance(value, NodeValue):
            return row[value.variable]
        if isinstance(value, ParameterValue):
            return operand(self._params[value.name], value.type)
        if isinstance(value, Constant):
            return operand(value.value, value.type)
        if isinstance(value, NowValue):
            return instant(self._options.now)
        if isinstance(value, TextMatch):
            return self._text(match, row, value)
        raise Refused("unsupported", f"{type(value).__name__} in this place")

    def _text(self, match: Match, row: Row, value: TextMatch) -> bool | None:
        text, query = self._value(match, row, value.field), self._value(match, row, value.query)
        if text is None or query is None:
            return None
        if value.function is not TextFunction.FUZZY:
            return ranking.matches(text, query)
        edits = ranking.EDITS if value.max_edits is None else self._value(match, row, value.max_edits)
        return None if edits is None else ranking.resembles(text, query, edits)

    def _json(self, value: TypedExpr, cell: Any) -> Any:
        return to_json(cell, type_of(value) or TEXT)

    # Rows

    def _ordered(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
        """§3.6: by the items of the order, then by the ids of all bound variables in name order."""
        keyed = []
        for row in rows:
            keys = [_sortable(self._value(self._match, row, _seen(k, self._read.items)), k) for k in self._read.order]
            keyed.append(((*keys, *(self._tie(row) if keys else ())), row))
        keyed.sort(key=lambda pair: pair[0])
        return [self._project(row) for _, row in keyed], [key for key, _ in keyed]

    def _tie(self, row: Row) -> tuple[str, ...]:
        return tuple(row[name] for name in sorted({*self._read.variables, *self._read.edge_variables}))

    def _project(self, row: Row) -> dict[str, Any]:
        """§3.7: of two items of one name, the later wins."""
        return {
            item.column: self._json(item.value, self._value(self._match, row, item.value)) for item in self._read.items
        }

    def _ranked(self, rows: Sequence[Row], rank: TypedExpr) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
        """§3.8: by rank of the entity among the rows, then by ids; what has no rank is left out."""
        at, variable = self._places(rows, rank, None)
        keyed = sorted(
            ((at[row[variable]], *self._tie(row)), index) for index, row in enumerate(rows) if row[variable] in at
        )
        return [self._project(rows[index]) for _, index in keyed], [key for key, _ in keyed]

    def _places(self, rows: Sequence[Row], rank: TypedExpr, depth: int | None) -> tuple[dict[str, int], str]:
        """The place of each entity that has one, and the variable that the rank is of."""
        if isinstance(rank, FusedRank):
            k = ranking.FUSION if rank.k is None else self._value(self._match, {}, rank.k)
            arms = [self._arm(rows, rank.first, self._read.limit), self._arm(rows, rank.second, self._read.limit)]
            order, variable = list(ranking.fuse(arms, k)), _target(rank.first).variable
        else:
            order, variable = self._arm(rows, rank, depth), _target(rank).variable
        return {key: place for place, key in enumerate(order)}, variable

    def _arm(self, rows: Sequence[Row], rank: TypedExpr, depth: int | None) -> list[str]:
        """The distinct entities of the rows, best first, ties by id; `depth` cuts the vector arm of a fusion."""
        target = _target(rank)
        cells = {key: row[target.name] for key, row in self._graph.nodes[target.owner].items()}
        among = {row[target.variable] for row in rows}
        query = self._value(self._match, {}, rank.query)  # type: ignore[union-attr]
        if isinstance(rank, TextRank):
            texts = {key: cell for key, cell in cells.items() if cell is not None}
            scores = {} if query is None else ranking.relevance(texts, query)
            return sorted(among & scores.keys(), key=lambda key: (-scores[key], key))
        if isinstance(query, str):
            query = ranking.mock_embedding(query, target.type.dimension or 0)
        metric = ranking.METRICS[self._options.metric]
        distances = {key: metric(cells[key], query) for key in among if cells[key] is not None}
        return sorted(distances, key=lambda key: (distances[key], key))[:depth]

    # Groups

    def _grouped(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
        """§3.5: one row per tuple of the items that are no aggregates; §3.6: ties stay as first seen.

        A rank chooses the rows that take part, a vector rank as many entities as the limit; a group goes by its best one.
        """
        read = self._read
        rank = _seen(read.order[0], read.items) if read.order else None
        at: dict[str, int] = {}
        variable = ""
        if isinstance(rank, RANKS):
            at, variable = self._places(rows, rank, read.limit)
            rows = [row for row in rows if row[variable] in at]
        parts = [item.value for item in read.items if not isinstance(item.value, AggregateValue)]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(_fixed(self._value(self._match, row, part)) for part in parts), []).append(row)
        if not parts:
            groups = {(): list(rows)}
        keyed = []
        for group in groups.values():
            cells = [
                self._aggregate(item.value, group)
                if isinstance(item.value, AggregateValue)
                else self._value(self._match, group[0], item.value)
                for item in read.items
            ]
            keys: tuple[Any, ...] = tuple(
                _sortable(cells[_place(key, read.items)], key) for key in read.order if not variable
            )
            if variable:
                keys = (min((at[row[variable]] for row in group), default=0),)
            made = {item.column: self._json(item.value, cell) for item, cell in zip(read.items, cells, strict=True)}
            keyed.append((keys, made))
        keyed.sort(key=lambda pair: pair[0])
        return [made for _, made in keyed], [keys for keys, _ in keyed]

    def _aggregate(self, value: AggregateValue, group: Sequence[Row]) -> Any:
        cells = [self._value(self._match, row, value.argument) for row in group]
        cells = [cell for cell in cells if cell is not None]
        if value.function is AggregateFunction.COUNT:
            return len(cells)
        if not cells:
            return None
        if value.function is AggregateFunction.MIN:
            return min(cells)
        if value.function is AggregateFunction.MAX:
            return max(cells)
        total = sum(map(Fraction, cells))
        return _float(total / len(cells) if value.function is AggregateFunction.AVG else total)


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _fixed(cell: Any) -> Any:
    return tuple(cell) if isinstance(cell, list) else cell


def operand(value: Any, kind: PropType) -> Any:
    """The cell of a parameter or constant: dates are text until then, and vectors hold 32-bit floats."""
    if isinstance(value, (list, tuple)):
        return [operand(each, PropType(kind.scalar)) for each in value]
    if isinstance(value, str) and kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return cell_from_text(value, kind)
    if isinstance(value, float) and kind.scalar is Scalar.VECTOR:
        return single(value)
    return value


def _seen(key: SortKey, items: Sequence[ReturnItem]) -> TypedExpr:
    return items[key.value.item].value if isinstance(key.value, AliasValue) else key.value


def _place(key: SortKey, items: Sequence[ReturnItem]) -> int:
    """The return item that a group is ordered by."""
    if isinstance(key.value, AliasValue):
        return key.value.item
    return next(index for index, item in enumerate(items) if item.value == key.value)


def _sortable(cell: Any, key: SortKey) -> tuple[bool, Any]:
    """Nulls first going up, last going down."""
    if key.descending:
        return (cell is None, _Reversed(cell))
    return (cell is not None, _Reversed(None) if cell is None else cell)


@dataclass(frozen=True)
class _Reversed:
    """A cell that sorts the other way round."""

    cell: Any

    def __lt__(self, other: _Reversed) -> bool:
        return self.cell is not None and other.cell < self.cell


def _target(rank: TypedExpr) -> PropertyValue:
    return rank.target if isinstance(rank, NearestRank) else rank.field  # type: ignore[union-attr]


def _refuse_unprojectable(value: TypedExpr) -> None:
    if isinstance(value, (TextMatch, *RANKS, AliasValue)):
        raise Refused("unsupported", "unsupported projection expression")
    if isinstance(value, AggregateValue):
        if isinstance(value.argument, AggregateValue):
            raise Refused("unsupported", "unsupported projection expression")
        _refuse_unprojectable(value.argument)


def columns_of(query: CheckedQuery) -> Mapping[str, TypedExpr]:
    """The expression behind each result column."""
    return {item.column: item.value for item in query.body.items}  # type: ignore[union-attr]
