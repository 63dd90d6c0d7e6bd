"""The tables of one run, and how each hop finds its neighbours.

`AUTO` decides per hop by what it would read (the nodes, and those that each step adds, by edges per node): an adjacency in
memory is always taken, and a stored one where the caller keeps a cache; several steps over few edges build one; little is
asked of the edge table, if that has an index or is small; else a stored adjacency is opened, or one is built, which costs
about a second per million edges and serves all later hops; beyond a bound, or for one step of a query that keeps nothing,
the edges are read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.query.cache import EdgeTables, ReadCache, adjacency_name
from gitops.graph.query.estimates import Statistics
from gitops.graph.query.expand import Bounds
from gitops.graph.query.explain import Trace
from gitops.graph.query.limits import Budget
from gitops.graph.query.neighbours import Neighbours, ProbedNeighbours, StoredNeighbours
from gitops.graph.query.options import QueryOptions, Strategy
from gitops.graph.query.plan import HopOp
from gitops.graph.query.tables import ReadTable
from gitops.graph.search.text import Memo
from gitops.graph.snapshot import Snapshot
from gitops.language.query.typed import Direction
from gitops.language.schema import Catalog

__all__ = ["QueryTables"]

_FEW = 5_000
_SMALL = 100_000
_DEEP = 8
# In microseconds: a round of questions to the driver, an edge that is asked for. Building takes one for an edge or a node.
_ROUND, _ASKED = 4_000, 20
# How many rows can be read in a scan in the time of one row that is asked for.
_PER_ROW = 40
_MOST = 20_000_000


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
        self._tables: dict[str, ReadTable] = {}

    @property
    def read(self) -> Mapping[str, ReadTable]:
        """The tables that were opened, by key."""
        return self._tables

    def table(self, key: str) -> ReadTable:
        """The table at the snapshot's version. Raises GitopsError `query_target_differs`, `graph_unreadable`."""
        if key not in self._tables:
            self.require(key)
            self._tables[key] = self._cache.table(self._snapshot, key)
        return self._tables[key]

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

    def statistics(self) -> Statistics:
        """What planning needs to know."""
        tables = self._snapshot.manifest.tables
        return Statistics(lambda key: tables[key].rows if key in tables else 0, not self._options.self_loops)

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

    def bounds(self, hop: HopOp) -> Bounds:
        """The bounds of a hop, with the switch for self-loops."""
        return Bounds(hop.low, hop.high, hop.one_type, self._options.self_loops)

    def neighbours(self, hop: HopOp, count: int) -> Neighbours:
        """What finds the neighbours of `count` nodes to begin with."""
        triple = self._triple(hop)
        name = adjacency_name(self._snapshot, hop.edge, triple.source.key, triple.target.key)
        strategy = self._strategy(hop, triple, name, count)
        self._trace.note(hop, "strategy", strategy.value)
        if strategy is Strategy.CSR:
            adjacency = self._cache.adjacency(name, triple, self._budget, self._options.cache_dir)
            return StoredNeighbours(adjacency, hop.direction, self._budget, one_type=hop.one_type)
        ends = (triple.source, triple.target)
        whole = strategy is Strategy.SCAN
        return ProbedNeighbours(triple.edges, ends, hop.direction, self._budget, whole=whole)

    def _triple(self, hop: HopOp) -> EdgeTables:
        near, far = self.table(hop.near_table), self.table(hop.far_table)
        source, target = (far, near) if hop.direction is Direction.IN else (near, far)
        return EdgeTables(self.table(hop.edge), source, target)

    def _strategy(self, hop: HopOp, triple: EdgeTables, name: str, count: int) -> Strategy:
        if self._options.strategy is not Strategy.AUTO:
            return self._options.strategy
        # A process that keeps its cache opens a file once.
        if self._cache.stored(name, self._options.cache_dir if self._shared else None) is not None:
            return Strategy.CSR
        edges = triple.edges
        steps = self.bounds(hop).steps
        near = triple.target if hop.direction is Direction.IN else triple.source
        degree = max(1.0, edges.rows / max(1, near.rows))
        asked = count * sum(degree**step for step in range(1, min(steps, _DEEP) + 1))
        # In microseconds. Several rounds of requests cost more than reading few edges once.
        building = edges.rows + triple.source.rows + triple.target.rows
        if steps > 1 and not self._budget.bounded and building < steps * _ROUND + asked * _ASKED:
            return Strategy.CSR
        columns = {Direction.OUT: {"src"}, Direction.IN: {"dst"}, Direction.BOTH: {"src", "dst"}}[hop.direction]
        if asked < _FEW and (edges.rows <= _SMALL or columns <= edges.indexed):
            return Strategy.INDEX
        if self._cache.stored(name, self._options.cache_dir) is not None:
            return Strategy.CSR
        if edges.rows > _MOST or (steps == 1 and not self._keeps):
            return Strategy.SCAN
        return Strategy.CSR
