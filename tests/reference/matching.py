"""§3.1 to §3.4: the rows of a match block, by its normative procedure taken literally.

A row maps each named variable to a node id, each edge variable to an edge id. `$_` is a variable of its own at each
place, under a name that no query can write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gitops.database.language.query.typed import (
    Absent,
    Constant,
    Direction,
    Filter,
    ParameterValue,
    PropertyValue,
    Scan,
    TextFilter,
    Traverse,
    TypedClause,
    TypedExpr,
)
from gitops.database.language.schema import Catalog
from gitops.database.language.schema.types import TypeKind
from tests.reference.cells import beside, compare
from tests.reference.graph import Edge, Graph

Row = dict[str, str]
Value = Callable[["Match", Row, TypedExpr], Any]


@dataclass
class Match:
    """What a block is matched against; `value` evaluates expressions of a row."""

    catalog: Catalog
    graph: Graph
    value: Value
    types: dict[str, tuple[TypeKind, str]] = field(default_factory=dict)

    def rows(self, clauses: Iterable[TypedClause], given: Row) -> list[Row]:
        """The assignments of the block's variables that extend the given row."""
        clauses = tuple(clauses)
        scans = [each for each in clauses if isinstance(each, Scan)]
        hops = [
            _named(each, f"{len(given)}.{index}") for index, each in enumerate(clauses) if isinstance(each, Traverse)
        ]
        for scan in scans:
            self.types[scan.variable] = (TypeKind.NODE, scan.type_name)
        for hop in hops:
            self.types[hop.left] = (TypeKind.NODE, hop.left_type)
            self.types[hop.right] = (TypeKind.NODE, hop.right_type)
            if hop.binding is not None:
                self.types[hop.binding] = (TypeKind.EDGE, hop.edge)
        found, bound, waiting = [dict(given)], set(given), list(hops)
        while True:
            hop = next((each for each in waiting if each.left in bound or each.right in bound), None)
            if hop is not None:
                waiting.remove(hop)
                found = [each for row in found for each in self._hop(hop, row)]
                bound |= {hop.left, hop.right}
                continue
            # A new component: its first declared bind is the root, else (K8) the left side of its first hop.
            root = next((each.variable for each in scans if each.variable not in bound), None)
            if root is None and waiting:
                root = waiting[0].left
            if root is None:
                break
            nodes = self.graph.nodes[self.types[root][1]]
            found = [{**row, root: node} for row in found for node in nodes]
            bound.add(root)
        return [row for row in found if all(self._holds(each, row) for each in clauses)]

    def _holds(self, clause: TypedClause, row: Row) -> bool:
        if isinstance(clause, Scan):
            return all(self._pair(test, row) for test in clause.tests)
        if isinstance(clause, Filter):
            left, right = self._sides(row, clause.left, clause.right)
            return compare(left, clause.operator, right)
        if isinstance(clause, TextFilter):
            return self.value(self, row, clause.match) is True
        if isinstance(clause, Absent):
            return not self.rows(clause.clauses, row)
        return True

    def _sides(self, row: Row, left: TypedExpr, right: TypedExpr) -> tuple[Any, Any]:
        one, other = self.value(self, row, left), self.value(self, row, right)
        if isinstance(left, PropertyValue) and isinstance(right, (Constant, ParameterValue)):
            other = beside(other, left.type)
        if isinstance(right, PropertyValue) and isinstance(left, (Constant, ParameterValue)):
            one = beside(one, right.type)
        return one, other

    def _pair(self, test: Any, row: Row) -> bool:
        held, wanted = self._sides(row, test.property, test.value)
        if held is None or wanted is None:
            return False
        return wanted in held if test.membership else held == wanted

    def _hop(self, hop: Traverse, row: Row) -> list[Row]:
        """The rows that one hop makes of a row with at least one of its ends."""
        backwards = hop.left not in row
        near, far = (hop.right, hop.left) if backwards else (hop.left, hop.right)
        if hop.binding is not None:
            return [
                {**row, far: end, hop.binding: edge}
                for edge, end in self._edges(hop, row[near], backwards=backwards)
                if far not in row or row[far] == end
            ]
        reached = self._expand(hop, row[near], backwards=backwards)
        if far in row:
            return [row] if row[far] in reached else []
        return [{**row, far: node} for node in reached]

    def _expand(self, hop: Traverse, source: str, *, backwards: bool) -> list[str]:
        """§3.3: the distinct nodes first reached between the bounds. An edge to itself gives its node one deeper."""
        edge = self.catalog.edges[hop.edge]
        same_type = edge.source == edge.target
        depths = 1 if not same_type else hop.high
        depth_of, frontier, depth = {source: 0}, [source], 0
        while frontier and depth < depths:
            depth += 1
            reached: list[str] = []
            for node in frontier:
                for other in self._neighbours(hop, node, backwards=backwards):
                    if other not in reached and not (same_type and other in depth_of):
                        reached.append(other)
            if not same_type:
                return reached if hop.low == 1 else []
            depth_of.update(dict.fromkeys(reached, depth))
            frontier = reached
        emitted = [node for node, at in depth_of.items() if at >= hop.low]
        looped = {each.src for each in self.graph.edges[hop.edge].values() if each.src == each.dst}
        return emitted + [
            node
            for node, at in depth_of.items()
            if node in looped and hop.low <= at + 1 <= hop.high and node not in emitted
        ]

    def _neighbours(self, hop: Traverse, node: str, *, backwards: bool) -> list[str]:
        return [end for _, end in self._edges(hop, node, backwards=backwards)]

    def _edges(self, hop: Traverse, node: str, *, backwards: bool) -> list[tuple[str, str]]:
        """The edge rows at a node that the hop may walk, by edge id, with the node at their other end."""
        outwards = hop.direction is Direction.BOTH or (hop.direction is Direction.OUT) != backwards
        inwards = hop.direction is Direction.BOTH or not outwards
        found: list[tuple[str, str]] = []
        for key, edge in sorted(self.graph.edges[hop.edge].items()):
            end = _other(edge, node, outwards=outwards, inwards=inwards)
            if end is not None:
                found.append((key, end))
        return found


def _other(edge: Edge, node: str, *, outwards: bool, inwards: bool) -> str | None:
    if outwards and edge.src == node:
        return edge.dst
    if inwards and edge.dst == node:
        return edge.src
    return None


def _named(hop: Traverse, place: str) -> Traverse:
    """The hop with a name for each `$_`: every occurrence is another variable (K10).

    The number of variables outside the block is part of the name, so that a `not` block does not meet an outer `$_`.
    """
    return hop._replace(left=hop.left or f"{place}<", right=hop.right or f"{place}>")
