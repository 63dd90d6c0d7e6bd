"""The edges at a set of nodes, by one of three strategies, which give the same steps in different orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.query.adjacency import Adjacency
from gitops.graph.query.limits import Budget
from gitops.graph.query.tables import PushedFilter, ReadTable, look_up
from gitops.language.query.typed import Direction

__all__ = ["EdgeSteps", "Neighbours", "ProbedNeighbours", "StoredNeighbours"]

_PROBE = 1000


@dataclass(frozen=True, slots=True)
class EdgeSteps:
    """One entry per edge: the index of the node that it leaves from, the row id of its far end, the row id of the edge."""

    origins: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray


class Neighbours(Protocol):
    """Gives the edges of nodes, in the direction it was made for."""

    def steps(self, nodes: np.ndarray) -> EdgeSteps:
        """All edges of distinct nodes, given by row id, whose far end exists. An undirected self-loop is one step."""
        ...

    def has_any(self, nodes: np.ndarray, *, loops: bool) -> np.ndarray | None:
        """Which nodes have a neighbour, or, with `loops`, an edge at all; None when that is not cheaper than `steps`."""
        ...


class StoredNeighbours:
    """From an adjacency."""

    def __init__(self, adjacency: Adjacency, direction: Direction, budget: Budget, *, one_type: bool) -> None:
        """`one_type` says that both ends of the edge are of one type, so that an edge may lead back to its node."""
        self._adjacency = adjacency
        self._direction = direction
        self._budget = budget
        self._one_type = one_type

    def steps(self, nodes: np.ndarray) -> EdgeSteps:
        """See `Neighbours`."""
        return _directed(self._half, nodes, self._direction)

    def has_any(self, nodes: np.ndarray, *, loops: bool) -> np.ndarray | None:
        """See `Neighbours`."""
        found = np.zeros(len(nodes), bool)
        for out in (True, False):
            if self._direction in (Direction.BOTH, Direction.OUT if out else Direction.IN):
                half = self._adjacency.out if out else self._adjacency.into
                near = self._adjacency.sources if out else self._adjacency.targets
                positions = near.positions(nodes)
                degrees = half.offsets[positions + 1] - half.offsets[positions]
                if self._one_type and not loops:
                    degrees = degrees - half.loops[positions]
                found |= degrees > 0
        return found

    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        adjacency = self._adjacency
        half = adjacency.out if out else adjacency.into
        near, far = (adjacency.sources, adjacency.targets) if out else (adjacency.targets, adjacency.sources)
        origins, places = half.steps(near.positions(nodes))
        self._budget.need(places.nbytes * 4, "the neighbours of a step")
        return EdgeSteps(origins, far.row_ids(half.nodes[places]), half.edges[places])


class ProbedNeighbours:
    """From the edge table itself: by asking for the edges of the nodes, or, with `whole`, by reading all edges."""

    def __init__(
        self, edges: ReadTable, ends: tuple[ReadTable, ReadTable], direction: Direction, budget: Budget, *, whole: bool
    ) -> None:
        """`ends` are the tables of the edge's source and target."""
        self._edges = edges
        self._ends = ends
        self._direction = direction
        self._budget = budget
        self._whole = whole

    def steps(self, nodes: np.ndarray) -> EdgeSteps:
        """See `Neighbours`."""
        return _directed(self._half, nodes, self._direction)

    def has_any(self, nodes: np.ndarray, *, loops: bool) -> np.ndarray | None:  # noqa: ARG002
        """See `Neighbours`."""
        return None

    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        near, far = ("src", "dst") if out else ("dst", "src")
        near_table, far_table = self._ends if out else self._ends[::-1]
        ids = near_table.take(nodes, ["id"], self._budget)["id"]
        origins, ends, edges = [], [], []
        held = 0
        filters = [None] if self._whole else _filters(near, ids)
        for filter_ in filters:
            for rows in self._edges.scan([near, far], self._budget, filter_):
                at = look_up(rows.columns[near], ids)
                hit = at >= 0
                if not hit.any():
                    continue
                origins.append(at[hit])
                ends.append(rows.columns[far].filter(pa.array(hit)))
                edges.append(rows.ids[hit])
                held += ends[-1].nbytes + origins[-1].nbytes * 2
                self._budget.need(held * 2, "the neighbours of a step")
        if not ends:
            none = np.empty(0, np.int64)
            return EdgeSteps(none, none, none)
        found = far_table.locate(pa.concat_arrays(ends), self._budget, whole=self._whole)
        exists = found >= 0
        return EdgeSteps(np.concatenate(origins)[exists], found[exists], np.concatenate(edges)[exists])


def _directed(half: Callable[..., EdgeSteps], nodes: np.ndarray, direction: Direction) -> EdgeSteps:
    """The steps of one direction, or of both, where an edge from a node to itself is met on either side and taken once."""
    if direction is not Direction.BOTH:
        return half(nodes, out=direction is Direction.OUT)
    out, into = half(nodes, out=True), half(nodes, out=False)
    other = into.nodes != nodes[into.origins]
    return EdgeSteps(
        np.concatenate([out.origins, into.origins[other]]),
        np.concatenate([out.nodes, into.nodes[other]]),
        np.concatenate([out.edges, into.edges[other]]),
    )


def _filters(column: str, ids: pa.Array) -> list[PushedFilter]:
    parts = (ids.slice(start, _PROBE) for start in range(0, len(ids), _PROBE))
    return [PushedFilter(pc.field(column).isin(part), (column,)) for part in parts]
