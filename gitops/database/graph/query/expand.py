"""Hops: for every source the distinct nodes that breadth-first search first reaches within the bounds.

A source is visited from the start, so a cycle of several edges never gives it back. An edge from a node to itself gives that
node at the depth after its own, if that is within the bounds and it was not given already; such a step leads nowhere else.

The edges at a set of nodes are found by one of three strategies, which give the same steps in different orders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.adjacency import Adjacency
from gitops.database.graph.query.bindings import spread
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.plan import HopOp
from gitops.database.graph.query.tables import PushedFilter, ReadTable, look_up
from gitops.database.language.query.typed import Direction

__all__ = ["EdgeSteps", "Neighbours", "ProbedNeighbours", "StoredNeighbours", "reach_nodes"]

_PROBE = 1000
_FIRST = 256
_MOST = 32_768
_PAIRS = 2_000_000
_BITS = 48


@dataclass(frozen=True, slots=True)
class EdgeSteps:
    """One entry per edge: the index of the node that it leaves from, the row id of its far end, the row id of the edge."""

    origins: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray


@dataclass(slots=True)
class Neighbours(ABC):
    """Gives the edges of nodes, in the direction it was made for."""

    direction: Direction
    budget: Budget

    def steps(self, nodes: np.ndarray) -> EdgeSteps:
        """All edges of distinct nodes, given by row id, whose far end exists. An undirected self-loop is one step."""
        if self.direction is not Direction.BOTH:
            return self._half(nodes, out=self.direction is Direction.OUT)
        out, into = self._half(nodes, out=True), self._half(nodes, out=False)
        # An edge from a node to itself is met on either side and taken once.
        other = into.nodes != nodes[into.origins]
        return EdgeSteps(
            np.concatenate([out.origins, into.origins[other]]),
            np.concatenate([out.nodes, into.nodes[other]]),
            np.concatenate([out.edges, into.edges[other]]),
        )

    def has_any(self, nodes: np.ndarray) -> np.ndarray | None:  # noqa: ARG002
        """Which nodes have a neighbour; None when that is not cheaper than `steps`."""
        return None

    @abstractmethod
    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        """The edges that leave the nodes, or those that arrive there."""


@dataclass(slots=True)
class StoredNeighbours(Neighbours):
    """From an adjacency."""

    adjacency: Adjacency

    def has_any(self, nodes: np.ndarray) -> np.ndarray | None:
        """See `Neighbours`."""
        found = np.zeros(len(nodes), bool)
        for out in (True, False):
            if self.direction in (Direction.BOTH, Direction.OUT if out else Direction.IN):
                half = self.adjacency.out if out else self.adjacency.into
                near = self.adjacency.sources if out else self.adjacency.targets
                positions = near.positions(nodes)
                found |= half.offsets[positions + 1] > half.offsets[positions]
        return found

    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        adjacency = self.adjacency
        half = adjacency.out if out else adjacency.into
        near, far = (adjacency.sources, adjacency.targets) if out else (adjacency.targets, adjacency.sources)
        origins, places = half.steps(near.positions(nodes))
        self.budget.need(places.nbytes * 4, "the neighbours of a step")
        return EdgeSteps(origins, far.row_ids(half.nodes[places]), half.edges[places])


@dataclass(slots=True)
class ProbedNeighbours(Neighbours):
    """From the edge table itself: by asking for the edges of the nodes, or, with `whole`, by reading all edges.

    `ends` are the tables of the edge's source and target.
    """

    edges: ReadTable
    ends: tuple[ReadTable, ReadTable]
    whole: bool

    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        near, far = ("src", "dst") if out else ("dst", "src")
        near_table, far_table = self.ends if out else self.ends[::-1]
        ids = near_table.take(nodes, ["id"], self.budget)["id"]
        origins, ends, edges = [], [], []
        held = 0
        asked = (ids.slice(start, _PROBE) for start in range(0, len(ids), _PROBE))
        for filter_ in [None] if self.whole else [PushedFilter(pc.field(near).isin(part), (near,)) for part in asked]:
            for rows in self.edges.scan([near, far], self.budget, filter_):
                at = look_up(rows.columns[near], ids)
                hit = at >= 0
                if not hit.any():
                    continue
                origins.append(at[hit])
                ends.append(rows.columns[far].filter(pa.array(hit)))
                edges.append(rows.ids[hit])
                held += ends[-1].nbytes + origins[-1].nbytes * 2
                self.budget.need(held * 2, "the neighbours of a step")
        if not ends:
            none = np.empty(0, np.int64)
            return EdgeSteps(none, none, none)
        found = far_table.locate(pa.concat_arrays(ends), self.budget, whole=self.whole)
        exists = found >= 0
        return EdgeSteps(np.concatenate(origins)[exists], found[exists], np.concatenate(edges)[exists])


def reach_nodes(
    neighbours: Neighbours, sources: np.ndarray, hop: HopOp, budget: Budget
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What distinct sources reach: the index of a source and the row id of a node, sorted by both, each pair once.

    In parts that go through the sources in order. A part is some million pairs, or one source.
    """
    start, size = 0, _FIRST
    while start < len(sources) and hop.low <= hop.steps:
        budget.check()
        part = sources[start : start + size]
        if hop.steps == 1:
            steps = neighbours.steps(part)
            pairs = np.unique(_pairs(steps.origins, steps.nodes))
        else:
            pairs = _search(neighbours, part, hop, budget)
        origins, nodes = _read(pairs)
        yield origins + start, nodes
        start += len(part)
        size = min(_MOST, max(1, _PAIRS * len(part) // max(1, len(pairs))), size * 8)


def _search(neighbours: Neighbours, sources: np.ndarray, hop: HopOp, budget: Budget) -> np.ndarray:
    """All sources at once, level by level. A pair of origin and node is one number, so a set of pairs is a sorted array."""
    frontier = _pairs(np.arange(len(sources)), sources)
    visited, given = frontier, frontier[:0]
    for depth in range(1, hop.high + 1):
        origins, nodes = _read(frontier)
        steps = _onward(neighbours, origins, nodes)
        reached = _pairs(steps.origins, steps.nodes)
        if depth >= hop.low:
            given = np.union1d(given, reached[steps.nodes == steps.edges])
        frontier = np.unique(reached)
        frontier = frontier[~_among(frontier, visited)]
        budget.need((len(visited) + len(frontier) + len(given)) * 24, "a search")
        if depth >= hop.low:
            given = np.union1d(given, frontier)
        if not len(frontier) or depth == hop.high:
            break
        visited = np.union1d(visited, frontier)
    return given


def _onward(neighbours: Neighbours, origins: np.ndarray, nodes: np.ndarray) -> EdgeSteps:
    """The steps from nodes that may repeat, by origin; in the place of the edge stands the node that the step leaves from."""
    distinct, which = np.unique(nodes, return_inverse=True)
    steps = neighbours.steps(distinct)
    if len(distinct) == len(nodes):
        back = np.empty(len(nodes), np.int64)
        back[which] = np.arange(len(nodes))
        return EdgeSteps(origins[back[steps.origins]], steps.nodes, distinct[steps.origins])
    order = np.argsort(steps.origins, kind="stable")
    counts = np.bincount(steps.origins, minlength=len(distinct))
    starts = np.cumsum(counts) - counts
    runs, places = spread(starts[which], counts[which])
    return EdgeSteps(origins[runs], steps.nodes[order[places]], nodes[runs])


def _among(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Which values are in a sorted array that is not empty."""
    at = np.searchsorted(among, values)
    at[at == len(among)] = 0
    found: np.ndarray = among[at] == values
    return found


def _pairs(origins: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    pairs: np.ndarray = (origins.astype(np.int64) << _BITS) | nodes
    return pairs


def _read(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return pairs >> _BITS, pairs & ((1 << _BITS) - 1)
