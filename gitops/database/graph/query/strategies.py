"""The tables of one run, and how each hop finds its neighbours.

`AUTO` decides per hop by what it would read (the nodes, and those that each step adds, by edges per node): an adjacency in
memory is always taken, and a stored one where the caller keeps a cache; several steps over few edges build one; little is
asked of the edge table, if that has an index or is small, until asking has cost a process that keeps its cache as much as
building an adjacency does; else a stored adjacency is opened, or one is built, which costs about a second per million edges and
serves all later hops; beyond a bound, or for one step of a query that keeps nothing, the edges are read whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.query.cache import ReadCache, adjacency_name
from gitops.database.graph.query.expand import Neighbours, ProbedNeighbours, StoredNeighbours
from gitops.database.graph.query.explain import Trace
from gitops.database.graph.query.options import Budget, QueryOptions, Strategy
from gitops.database.graph.query.plan import HopOp
from gitops.database.graph.query.tables import ReadTable
from gitops.database.graph.search.text import Memo
from gitops.database.graph.snapshot import Snapshot
from gitops.database.language.query.typed import Direction
from gitops.database.language.schema import Catalog

__all__ = ["QueryTables"]

_FEW = 5_000
_SMALL = 100_000
_DEEP = 8
# In microseconds: a round of questions to the driver, an edge that is asked for. Building takes one for an edge or a node.
_ROUND, _ASKED = 4_000, 20
# How many rows can be read in a scan in the time of one row that is asked for.
_PER_ROW = 40
_MOST = 20_000_000
# How many edges and nodes a query that could do without an adjacency puts into one for later queries, at most and in a second
# of the time that it has left; reckoned, it takes a quarter of that time.
_MOST_AHEAD, _AHEAD_IN_S = 2_000_000, 250_000


class QueryTables:
    """What one run reads, at one snapshot."""

    def __init__(
        self, snapshot: Snapshot, cache: ReadCache | None, options: QueryOptions, budget: Budget, trace: Trace
    ) -> None:
        """Without a cache nothing is kept after the run but what `options.cache_dir` takes."""
        self._snapshot = snapshot
        self._keeps = cache is not None or options.cache_dir is not None
        self._shared = cache is not None
        # Columns are not worth keeping for one run.
        self._cache = ReadCache(max_column_bytes=0) if cache is None else cache
        self._options = options
        self._budget = budget
        self._trace = trace
        self.opened: dict[str, ReadTable] = {}
        """The tables that were read, by key."""

    def table(self, key: str) -> ReadTable:
        """The table at the snapshot's version. Raises GitopsError `query_target_differs`, `graph_unreadable`."""
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
        """Whether all rows of these columns are in memory; frequent requests load them."""
        table = self.table(key)
        return table.settles(columns, table.rows // _PER_ROW, self._budget) is not None

    def rows(self, key: str) -> int:
        """The rows of a table by its key, 0 for an absent table."""
        entry = self._snapshot.manifest.tables.get(key)
        return 0 if entry is None else entry.rows

    def catalog(self) -> Catalog:
        """The schema of the snapshot."""
        key = ("catalog", self._snapshot.identity.graph_id, self._snapshot.manifest.schema_ir)
        catalog: Catalog = self._cache.value(key, lambda: self._snapshot.schema().catalog)
        return catalog

    def memo(self, table: str) -> Memo:
        """Where search keeps what it knows of a table."""
        entry = self._snapshot.manifest.tables[table]
        place = (self._snapshot.folder.dataset(entry.path).uri, entry.version)
        return lambda key, make: self._cache.value((self._snapshot.identity.graph_id, place, key), make)

    def neighbours(self, hop: HopOp, count: int) -> Neighbours:
        """What finds the neighbours of `count` nodes to begin with."""
        edges, near, far = self.table(hop.edge), self.table(hop.near_table), self.table(hop.far_table)
        ends = (far, near) if hop.direction is Direction.IN else (near, far)
        name = adjacency_name(self._snapshot, hop.edge, ends[0].key, ends[1].key)
        strategy = self._options.strategy
        if strategy is Strategy.AUTO:
            strategy = self._cheapest(hop, edges, near, far, name, count)
        self._trace.note(hop, "strategy", strategy.value)
        if strategy is Strategy.CSR:
            adjacency = self._cache.adjacency(name, edges, ends, self._budget, self._options.cache_dir)
            return StoredNeighbours(hop.direction, self._budget, adjacency)
        return ProbedNeighbours(hop.direction, self._budget, edges, ends, whole=strategy is Strategy.SCAN)

    def _cheapest(
        self, hop: HopOp, edges: ReadTable, near: ReadTable, far: ReadTable, name: str, count: int
    ) -> Strategy:
        """The strategy that costs least; `name` is that of the adjacency."""
        # A process that keeps its cache opens a file once.
        if self._cache.stored(name, self._options.cache_dir if self._shared else None) is not None:
            return Strategy.CSR
        steps, asked = hop.steps, _asked(hop, edges.rows / max(1, near.rows), count)
        # In microseconds. Several rounds of requests cost more than reading few edges once.
        building, asking = edges.rows + near.rows + far.rows, steps * _ROUND + asked * _ASKED
        if steps > 1 and not self._budget.bounded and building < asking:
            return Strategy.CSR
        columns = {Direction.OUT: {"src"}, Direction.IN: {"dst"}, Direction.BOTH: {"src", "dst"}}[hop.direction]
        if asked < _FEW and (edges.rows <= _SMALL or columns <= edges.indexed):
            ends = (far, near) if hop.direction is Direction.IN else (near, far)
            return Strategy.CSR if self._has_built(name, edges, ends, building, asking) else Strategy.INDEX
        if self._cache.stored(name, self._options.cache_dir) is not None:
            return Strategy.CSR
        if edges.rows > _MOST or (steps == 1 and not self._keeps):
            return Strategy.SCAN
        return Strategy.CSR

    def _has_built(
        self, name: str, edges: ReadTable, ends: tuple[ReadTable, ReadTable], building: int, asking: float
    ) -> bool:
        """Whether an adjacency is in memory now: it is built once asking, which costs so much this time, has cost as much.

        Not where the limits of the query are too near: a query that does without it must not fail by it.
        """
        if not self._shared or building > min(_MOST_AHEAD, self._budget.left_s * _AHEAD_IN_S):
            return False
        paid: list[float] = self._cache.value(("asked", name), lambda: [0.0])
        paid[0] += asking
        if paid[0] < building:
            return False
        try:
            self._cache.adjacency(name, edges, ends, self._budget, self._options.cache_dir)
        except GitopsError as error:
            if error.code is not Code.QUERY_MEMORY_EXCEEDED:
                raise
            # It is not tried again in this version.
            paid[0] = -math.inf
            return False
        return True


def _asked(hop: HopOp, degree: float, count: int) -> float:
    """The edges that would be asked for."""
    return count * sum(max(1.0, degree) ** step for step in range(1, min(hop.steps, _DEEP) + 1))
