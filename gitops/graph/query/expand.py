"""Hops: for every source the distinct nodes that breadth-first search first reaches within the bounds.

A source is visited from the start, so a cycle never gives it back. With `self_loops`, an edge from a node to itself gives
that node at the depth after its own, if that is within the bounds and it was not given already; such a step leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gitops.graph.query.bindings import spread
from gitops.graph.query.limits import Budget
from gitops.graph.query.neighbours import EdgeSteps, Neighbours

__all__ = ["Bounds", "ReachedNodes", "reach_nodes"]

_FIRST = 256
_MOST = 32_768
_PAIRS = 2_000_000
_BITS = 48


@dataclass(frozen=True, slots=True)
class Bounds:
    """Depths of a hop, and whether both of its ends are of one type, without which there is no second step."""

    low: int
    high: int
    one_type: bool
    self_loops: bool

    @property
    def steps(self) -> int:
        """How many edges a result may be away."""
        return self.high if self.one_type else 1

    @property
    def empty(self) -> bool:
        """Whether nothing can be reached."""
        return self.low > self.steps


@dataclass(frozen=True, slots=True)
class ReachedNodes:
    """Pairs of the index of a source and the row id of a node, sorted by both, each pair once."""

    origins: np.ndarray
    nodes: np.ndarray


def reach_nodes(neighbours: Neighbours, sources: np.ndarray, bounds: Bounds, budget: Budget) -> Iterator[ReachedNodes]:
    """What distinct sources reach, in parts that go through the sources in order. A part is some million pairs, or one source."""
    start, size = 0, _FIRST
    while start < len(sources) and not bounds.empty:
        budget.check()
        part = sources[start : start + size]
        pairs = _single(neighbours, part, bounds) if bounds.steps == 1 else _search(neighbours, part, bounds, budget)
        origins, nodes = _read(pairs)
        yield ReachedNodes(origins + start, nodes)
        start += len(part)
        size = min(_MOST, max(1, _PAIRS * len(part) // max(1, len(pairs))), size * 8)


def _single(neighbours: Neighbours, sources: np.ndarray, bounds: Bounds) -> np.ndarray:
    steps = neighbours.steps(sources)
    pairs = _pairs(steps.origins, steps.nodes)
    if bounds.one_type and not bounds.self_loops:
        pairs = pairs[steps.nodes != sources[steps.origins]]
    return np.unique(pairs)


def _search(neighbours: Neighbours, sources: np.ndarray, bounds: Bounds, budget: Budget) -> np.ndarray:
    """All sources at once, level by level. A pair of origin and node is one number, so a set of pairs is a sorted array."""
    frontier = _pairs(np.arange(len(sources)), sources)
    visited, given = frontier, frontier[:0]
    for depth in range(1, bounds.high + 1):
        origins, nodes = _read(frontier)
        steps = _onward(neighbours, origins, nodes)
        reached = _pairs(steps.origins, steps.nodes)
        if bounds.self_loops and depth >= bounds.low:
            given = np.union1d(given, reached[steps.nodes == steps.edges])
        frontier = np.unique(reached)
        frontier = frontier[~_among(frontier, visited)]
        budget.need((len(visited) + len(frontier) + len(given)) * 24, "a search")
        if depth >= bounds.low:
            given = np.union1d(given, frontier)
        if not len(frontier) or depth == bounds.high:
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
