"""§4: mutations. Statements in written order on a working copy; all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from gitops.database.language.query import CheckedQuery
from gitops.database.language.query.typed import (
    Assignment,
    Constant,
    NowValue,
    ParameterValue,
    Predicate,
    TypedDelete,
    TypedExpr,
    TypedInsert,
    TypedRead,
    TypedUpdate,
)
from gitops.database.language.schema import Catalog, EdgeType, NodeType, Schema
from gitops.database.language.schema.types import TypeKind
from tests.reference.cells import Refused, beside, cell_of, compare, instant
from tests.reference.graph import Edge, Graph, Row, check_cardinality, check_row, check_unique, degrees, node_id
from tests.reference.reading import Options, operand, parameters


@dataclass
class Outcome:
    """The graph after a mutation, and how many rows the statements affected."""

    graph: Graph
    nodes: int = 0
    edges: int = 0


def mutate(
    schema: Schema, graph: Graph, query: CheckedQuery, params: object = None, options: Options | None = None
) -> Outcome:
    """Carry out a checked mutation on a copy of the graph. Raises Refused, with nothing written."""
    statements = query.body
    if isinstance(statements, TypedRead):
        raise Refused("read", query.name)
    if len({isinstance(each, TypedDelete) for each in statements}) > 1:
        raise Refused("mixed", "mixes inserts/updates and deletes")
    run = _Run(schema.catalog, graph.copy(), parameters(query, params), options or Options())
    for statement in statements:
        if isinstance(statement, TypedInsert):
            run.insert(statement)
        elif isinstance(statement, TypedUpdate):
            run.update(statement)
        else:
            run.delete(statement)
    return run.finish()


class _Run:
    def __init__(self, catalog: Catalog, graph: Graph, params: Mapping[str, Any], options: Options) -> None:
        self._catalog = catalog
        self._params = params
        self._options = options
        self._outcome = Outcome(graph)
        self._graph = graph
        self._touched: set[tuple[str, str]] = set()
        self._fresh: Iterator[str] = (f"new-{number}" for number in count(1))

    def insert(self, statement: TypedInsert) -> None:
        """§4.3, §4.4: a keyed node takes the place of the one with its key as a whole."""
        if statement.kind is TypeKind.EDGE:
            self._insert_edge(self._catalog.edges[statement.type_name], statement.assignments)
            return
        declared = self._catalog.nodes[statement.type_name]
        row = dict.fromkeys(declared.properties) | self._assigned(declared, statement.assignments)
        check_row(declared, row)
        self._graph.nodes[declared.name][node_id(declared, row) or next(self._fresh)] = row
        self._outcome.nodes += 1

    def _insert_edge(self, declared: EdgeType, assignments: tuple[Assignment, ...]) -> None:
        ends = {each.name: self._value(each.value) for each in assignments if each.name in ("from", "to")}
        row = dict.fromkeys(declared.properties) | self._assigned(declared, assignments)
        check_row(declared, row)
        for member, owner in (("from", declared.source), ("to", declared.target)):
            if ends[member] not in self._graph.nodes[owner]:
                raise Refused("endpoint", f"{ends[member]!r} not found in {owner}")
        self._graph.edges[declared.name][next(self._fresh)] = Edge(ends["from"], ends["to"], row)
        self._touched.add((declared.name, ends["from"]))
        self._outcome.edges += 1

    def update(self, statement: TypedUpdate) -> None:
        """§4.5: nodes only; the key cannot change; other columns stay."""
        declared = self._catalog.nodes[statement.type_name]
        for each in statement.assignments:
            if each.name in (declared.key or ()):
                raise Refused("key_update", f"cannot update @key property {each.name}")
        changes = self._assigned(declared, statement.assignments)
        rows = self._graph.nodes[declared.name]
        for key in [key for key, row in rows.items() if self._passes(statement.predicate, row)]:
            rows[key] = rows[key] | changes
            check_row(declared, rows[key])
            self._outcome.nodes += 1

    def delete(self, statement: TypedDelete) -> None:
        """§4.6: a node takes every edge of every type with it that begins or ends there."""
        if statement.kind is TypeKind.EDGE:
            rows = self._graph.edges[statement.type_name]
            gone = [
                key
                for key, edge in rows.items()
                if self._passes(statement.predicate, {**edge.row, "from": edge.src, "to": edge.dst})
            ]
            self._remove_edges(statement.type_name, gone)
            return
        nodes = self._graph.nodes[statement.type_name]
        removed = [key for key, row in nodes.items() if self._passes(statement.predicate, row)]
        for key in removed:
            del nodes[key]
        self._outcome.nodes += len(removed)
        for name, declared in self._catalog.edges.items():
            gone = [
                key
                for key, edge in self._graph.edges[name].items()
                if (declared.source == statement.type_name and edge.src in removed)
                or (declared.target == statement.type_name and edge.dst in removed)
            ]
            self._remove_edges(name, gone)

    def _remove_edges(self, name: str, keys: list[str]) -> None:
        for key in keys:
            self._touched.add((name, self._graph.edges[name].pop(key).src))
        self._outcome.edges += len(keys)

    def finish(self) -> Outcome:
        """What holds at the end of the query (K19, K21): unique groups, and the number of edges of touched sources."""
        check_unique(self._catalog, self._graph)
        for name in self._catalog.edges:
            alive = self._graph.nodes[self._catalog.edges[name].source]
            all_counts = degrees(self._graph, name)
            sources = {source for edge, source in self._touched if edge == name and source in alive}
            check_cardinality(self._catalog, name, {source: all_counts[source] for source in sources})
        return self._outcome

    def _assigned(self, declared: NodeType | EdgeType, assignments: tuple[Assignment, ...]) -> Row:
        return {each.name: self._cell(each) for each in assignments if each.name in declared.properties}

    def _cell(self, assignment: Assignment) -> Any:
        value = assignment.value
        if isinstance(value, NowValue):
            return instant(self._options.now)
        raw = self._params[value.name] if isinstance(value, ParameterValue) else _constant(value)
        return cell_of(raw, value.type, assignment.type)

    def _value(self, value: TypedExpr) -> Any:
        if isinstance(value, NowValue):
            return instant(self._options.now)
        raw = self._params[value.name] if isinstance(value, ParameterValue) else _constant(value)
        return operand(raw, value.type)

    def _passes(self, predicate: Predicate, row: Mapping[str, Any]) -> bool:
        wanted = self._value(predicate.value)
        if not isinstance(predicate.value, NowValue):
            wanted = beside(wanted, predicate.type)
        return compare(row[predicate.name], predicate.operator, wanted)


def _constant(value: TypedExpr) -> Any:
    assert isinstance(value, Constant)
    return value.value
