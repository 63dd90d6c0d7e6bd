"""Hops: for each source, find the distinct nodes that a breadth-first search first reaches within the bounds.

A source counts as visited from the start, so a cycle of several edges never returns it. A self-loop returns its node at
the next depth if that depth is within the bounds and the node was not returned before; the search does not continue
from there.

Three strategies find the edges of a set of nodes. They produce the same steps in different orders.

The strategy `AUTO` chooses for each hop by estimating how many nodes and edges must be read. An adjacency in memory is
always used, and so is a stored one if the caller has a cache. Several steps over few edges build an adjacency. Small
requests query the edge table if it has an index or is small. With a cache, this stops once they have cost as much as
building an adjacency. Otherwise a stored adjacency is opened or a new one is built, which takes about a second per
million edges and serves all later hops. Beyond a limit, or for one step of a query without a cache, all edges are read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.adjacency import Adjacency
from gitops.database.graph.query.bindings import look_up, spread
from gitops.database.graph.query.cache import ReadCache, WantedAdjacency
from gitops.database.graph.query.options import Budget, QueryOptions, Strategy
from gitops.database.graph.query.overlay import EndTables, OverlaidAdjacency
from gitops.database.graph.query.plan import HopOp, Trace
from gitops.database.graph.query.tables import PushedFilter, ReadTable
from gitops.database.graph.search import Memo
from gitops.database.graph.snapshot import Snapshot
from gitops.database.language.query.typed import Direction
from gitops.database.language.schema import Catalog

_PROBE = 1000
_FIRST = 256
_MOST = 32_768
_PAIRS = 2_000_000
_BITS = 48


@dataclass(frozen=True, slots=True)
class EdgeSteps:
    """Edges found in one step, one entry per edge: the start node's index, the far end's row id, the edge's row id."""

    origins: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray


@dataclass(slots=True)
class Neighbours(ABC):
    """Base class of the strategies, which find the edges of nodes in a fixed direction."""

    direction: Direction
    budget: Budget

    def steps(self, nodes: np.ndarray) -> EdgeSteps:
        """Return all edges of distinct nodes, given by row id, whose far end exists.

        An undirected self-loop is one step.
        """
        if self.direction is not Direction.BOTH:
            return self._half(nodes, out=self.direction is Direction.OUT)
        out, into = self._half(nodes, out=True), self._half(nodes, out=False)
        # A self-loop is found from both sides but counted once.
        other = into.nodes != nodes[into.origins]
        return EdgeSteps(
            np.concatenate([out.origins, into.origins[other]]),
            np.concatenate([out.nodes, into.nodes[other]]),
            np.concatenate([out.edges, into.edges[other]]),
        )

    def has_any(self, nodes: np.ndarray) -> np.ndarray | None:  # noqa: ARG002
        """Return a mask of the nodes that have a neighbour, or None if `steps` is just as cheap."""
        return None

    @abstractmethod
    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        """Return the outgoing or the incoming edges of the nodes."""


@dataclass(slots=True)
class StoredNeighbours(Neighbours):
    """Finds neighbours in an adjacency."""

    adjacency: Adjacency | OverlaidAdjacency

    def has_any(self, nodes: np.ndarray) -> np.ndarray | None:
        """See `Neighbours`."""
        found = np.zeros(len(nodes), bool)
        for out in (True, False):
            if self.direction in (Direction.BOTH, Direction.OUT if out else Direction.IN):
                found |= self.adjacency.has_any(nodes, out=out)
        return found

    def _half(self, nodes: np.ndarray, *, out: bool) -> EdgeSteps:
        return EdgeSteps(*self.adjacency.steps(nodes, out=out, budget=self.budget))


@dataclass(slots=True)
class ProbedNeighbours(Neighbours):
    """Finds neighbours in the edge table: queries the nodes' edges or, with `whole`, reads all edges.

    `ends` are the tables for the edge's source and target.
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
    """Yield the distinct pairs of source index and reached row id, sorted by both. Sources are distinct.

    The result comes in parts, in source order. A part has a few million pairs, or only one source.
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
    """Search from all sources together, level by level.

    A pair of origin and node is one number, so a set of pairs is a sorted array.
    """
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
    """Return the steps from nodes, which can repeat, by origin; the edge field contains the step's start node."""
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
    """Return a mask of the values that are in a sorted, non-empty array."""
    at = np.searchsorted(among, values)
    at[at == len(among)] = 0
    found: np.ndarray = among[at] == values
    return found


def _pairs(origins: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    pairs: np.ndarray = (origins.astype(np.int64) << _BITS) | nodes
    return pairs


def _read(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return pairs >> _BITS, pairs & ((1 << _BITS) - 1)


_FEW = 5_000
_SMALL = 100_000
_DEEP = 8
# Costs in microseconds: one request to the driver, and one requested edge. Building takes one microsecond per edge or node.
_ROUND, _ASKED = 4_000, 20
# A scan reads this many rows in the time of one requested row.
_PER_ROW = 40
_MOST_EDGES = 20_000_000
# Maximum edges and nodes that a query puts into an adjacency only for later queries, in total and per second
# of its remaining time; the estimated cost is a quarter of that time.
_MOST_AHEAD, _AHEAD_IN_S = 2_000_000, 250_000


class QueryTables:
    """The tables that one run reads from a snapshot."""

    def __init__(
        self, snapshot: Snapshot, cache: ReadCache | None, options: QueryOptions, budget: Budget, trace: Trace
    ) -> None:
        """Open the tables. Without a cache, nothing is kept after the run except in `options.cache_dir`."""
        self._snapshot = snapshot
        self._keeps = cache is not None or options.cache_dir is not None
        self._shared = cache is not None
        # Caching columns does not pay for a single run.
        self._cache = ReadCache(max_column_bytes=0) if cache is None else cache
        self._options = options
        self._budget = budget
        self._trace = trace
        self.opened: dict[str, ReadTable] = {}
        """The tables that were read, by key."""

    def table(self, key: str) -> ReadTable:
        """Return the table at the snapshot's version. Raises GitopsError `query_target_differs`, `graph_unreadable`."""
        if key not in self.opened:
            self.require(key)
            self.opened[key] = self._cache.table(self._snapshot, key)
        return self.opened[key]

    def require(self, key: str, column: str | None = None) -> None:
        """Raise GitopsError `query_target_differs` if the snapshot lacks the table or the column."""
        entry = self._snapshot.manifest.tables.get(key)
        kind, _, name = key.partition(":")
        place = f"version {self._snapshot.manifest.n} of {self._snapshot.branch}"
        if entry is None:
            raise GitopsError(Code.QUERY_TARGET_DIFFERS, f"{place} has no {kind} type {name}", path=name)
        if column is not None and column not in entry.fields:
            raise GitopsError(
                Code.QUERY_TARGET_DIFFERS, f"{place} has no property {name}.{column}", path=f"{name}.{column}"
            )

    def settled(self, key: str, columns: Sequence[str]) -> bool:
        """Return whether these columns are in memory with all rows. Frequent requests load them."""
        table = self.table(key)
        return table.settles(columns, table.rows // _PER_ROW, self._budget) is not None

    def rows(self, key: str) -> int:
        """Return a table's row count by key, or 0 for an absent table."""
        entry = self._snapshot.manifest.tables.get(key)
        return 0 if entry is None else entry.rows

    def catalog(self) -> Catalog:
        """Return the snapshot's schema."""
        key = ("catalog", self._snapshot.identity.graph_id, self._snapshot.manifest.schema_ir)
        catalog: Catalog = self._cache.value(key, lambda: self._snapshot.schema().catalog)
        return catalog

    def memo(self, table: str) -> Memo:
        """Return the memo in which a search caches facts about a table."""
        entry = self._snapshot.manifest.tables[table]
        identity = self._snapshot.table_identity(entry, entry.version)
        return lambda key, make: self._cache.value((identity, key), make)

    def neighbours(self, hop: HopOp, count: int) -> Neighbours:
        """Return the strategy for finding the neighbours of `count` start nodes."""
        edges, near, far = self.table(hop.edge), self.table(hop.near_table), self.table(hop.far_table)
        ends = (far, near) if hop.direction is Direction.IN else (near, far)
        wanted = WantedAdjacency.of(self._snapshot, EndTables(edges, *ends))
        strategy = self._options.strategy
        if strategy is Strategy.AUTO:
            strategy = self._cheapest(hop, wanted, near, far, count)
        self._trace.note(hop, "strategy", strategy.value)
        if strategy is Strategy.CSR:
            adjacency = self._cache.adjacency(wanted, self._budget, self._options.cache_dir)
            return StoredNeighbours(hop.direction, self._budget, adjacency)
        return ProbedNeighbours(hop.direction, self._budget, edges, ends, whole=strategy is Strategy.SCAN)

    def _cheapest(self, hop: HopOp, wanted: WantedAdjacency, near: ReadTable, far: ReadTable, count: int) -> Strategy:
        """Return the cheapest strategy; `wanted` is the hop's adjacency."""
        edges = wanted.tables.edges
        # A process with a cache opens each file only once.
        if self._cache.stored(wanted, self._budget, self._options.cache_dir if self._shared else None) is not None:
            return Strategy.CSR
        degree = max(1.0, edges.rows / max(1, near.rows))
        steps, asked = hop.steps, count * sum(degree**step for step in range(1, min(hop.steps, _DEEP) + 1))
        # In microseconds. If there are few edges, reading all of them once is cheaper than several rounds of requests.
        building, asking = edges.rows + near.rows + far.rows, steps * _ROUND + asked * _ASKED
        if steps > 1 and not self._budget.bounded and building < asking:
            return Strategy.CSR
        columns = {Direction.OUT: {"src"}, Direction.IN: {"dst"}, Direction.BOTH: {"src", "dst"}}[hop.direction]
        if asked < _FEW and (edges.rows <= _SMALL or columns <= edges.indexed):
            return Strategy.CSR if self._has_built(wanted, building, asking) else Strategy.INDEX
        if self._cache.stored(wanted, self._budget, self._options.cache_dir) is not None:
            return Strategy.CSR
        if edges.rows > _MOST_EDGES or (steps == 1 and not self._keeps):
            return Strategy.SCAN
        return Strategy.CSR

    def _has_built(self, wanted: WantedAdjacency, building: int, asking: float) -> bool:
        """Return whether an adjacency is in memory, after building it if earlier requests have cost as much as that.

        It is not built if the query is close to its limits, because a query that works without an adjacency must not
        fail while building one.
        """
        if not self._shared or building > min(_MOST_AHEAD, self._budget.left_s * _AHEAD_IN_S):
            return False
        paid: list[float] = self._cache.value(("asked", wanted.name), lambda: [0.0])
        paid[0] += asking
        if paid[0] < building:
            return False
        try:
            self._cache.adjacency(wanted, self._budget, self._options.cache_dir)
        except GitopsError as error:
            if error.code is not Code.QUERY_MEMORY_EXCEEDED:
                raise
            # Do not try again in this version.
            paid[0] = -math.inf
            return False
        return True
