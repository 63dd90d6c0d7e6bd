"""A graph as dictionaries, and the rules that hold for all of it (§4.7)."""

from __future__ import annotations

import copy
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gitops.database.language.schema import Catalog, EdgeType, NodeType
from tests.reference.cells import Refused, key_text

Row = dict[str, Any]


@dataclass
class Edge:
    """One edge: the ids of its ends, and its properties."""

    src: str
    dst: str
    row: Row = field(default_factory=dict)


@dataclass
class Graph:
    """Nodes and edges by type, then by id. A row has a cell for every property of its type."""

    nodes: dict[str, dict[str, Row]] = field(default_factory=dict)
    edges: dict[str, dict[str, Edge]] = field(default_factory=dict)

    def copy(self) -> Graph:
        """A graph of its own."""
        return copy.deepcopy(self)


def empty(catalog: Catalog) -> Graph:
    """A graph with every type of the catalog and no rows."""
    return Graph({name: {} for name in catalog.nodes}, {name: {} for name in catalog.edges})


def node_id(declared: NodeType, row: Row) -> str | None:
    """§4.2: the id that the key makes; None for a type without key."""
    if declared.key is None:
        return None
    texts = [key_text(row[name], declared.properties[name]) for name in declared.key]
    return texts[0] if len(texts) == 1 else json.dumps(texts, separators=(",", ":"), ensure_ascii=False)


def check_row(declared: NodeType | EdgeType, row: Row) -> None:
    """Non-null, range and pattern of one row. Raises Refused `null`, `range`, `check`."""
    for name, kind in declared.properties.items():
        if row[name] is None and not kind.nullable:
            raise Refused("null", f"{declared.name}.{name}")
    if not isinstance(declared, NodeType):
        return
    for bound in declared.ranges:
        cell = row[bound.property_name]
        low = -math.inf if bound.low is None else bound.low
        high = math.inf if bound.high is None else bound.high
        if cell is not None and not low <= cell <= high:
            raise Refused("range", f"@range violation on {declared.name}.{bound.property_name}")
    for check in declared.checks:
        cell = row[check.property_name]
        if cell is not None and re.search(check.pattern, cell) is None:
            raise Refused("check", f"@check violation on {declared.name}.{check.property_name}")


def check_unique(catalog: Catalog, graph: Graph) -> None:
    """K19: no two rows of the whole table have one tuple; a null member exempts. Raises Refused `unique`."""
    for name, declared in catalog.nodes.items():
        for group in declared.unique:
            _distinct([tuple(_fixed(row[part]) for part in group) for row in graph.nodes[name].values()], name)
    for name, declared in catalog.edges.items():
        for group in declared.unique:
            rows = [{**edge.row, "src": edge.src, "dst": edge.dst} for edge in graph.edges[name].values()]
            _distinct([tuple(_fixed(row[part]) for part in group) for row in rows], name)


def _distinct(tuples: list[tuple[Any, ...]], name: str) -> None:
    whole = [each for each in tuples if None not in each]
    if len(set(whole)) != len(whole):
        raise Refused("unique", f"@unique violation on {name}")


def _fixed(cell: Any) -> Any:
    return tuple(cell) if isinstance(cell, list) else cell


def check_ends(catalog: Catalog, graph: Graph) -> None:
    """Every edge begins and ends at a node of the right type. Raises Refused `endpoint`."""
    for name, declared in catalog.edges.items():
        for edge in graph.edges[name].values():
            for end, owner in ((edge.src, declared.source), (edge.dst, declared.target)):
                if end not in graph.nodes[owner]:
                    raise Refused("endpoint", f"{name}: {end!r} not found in {owner}")


def degrees(graph: Graph, name: str) -> Counter[str]:
    """The number of edges of one type by source."""
    return Counter(edge.src for edge in graph.edges[name].values())


def check_cardinality(catalog: Catalog, name: str, counts: dict[str, int]) -> None:
    """§4.7: the given numbers of edges are within the bounds of their type. Raises Refused `card`."""
    low, high = catalog.edges[name].cardinality
    for source, count in counts.items():
        if count < low or (high is not None and count > high):
            raise Refused("card", f"@card violation on edge {name}: source {source!r} has {count} edges")
