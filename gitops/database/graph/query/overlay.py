"""Converts an adjacency to a different version of its tables by adding new edges and hiding removed ones.

Only the differences are read. For fragments with the same files in both table versions, only the deletions are
compared. The rows of all other fragments are new or removed.

A rewritten node is removed and added with the same id. Its edges are kept under its current row id.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.adjacency import Adjacency, NodeNumbering, arrange_edges
from gitops.database.graph.query.bindings import spread
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, TableRows

_NONE = np.empty(0, np.int64)
# Merging takes about a quarter of a second per million edges, and this many bytes per edge.
_MOST_MERGED, _MERGING = 8_000_000, 64


@dataclass(frozen=True, slots=True)
class EndTables:
    """An adjacency's tables at one version: the edges, and the nodes at both ends."""

    edges: ReadTable
    source: ReadTable
    target: ReadTable


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Changes to one type's nodes since the first version: row ids `first` became `now`, and `born` are new nodes.

    `now` and `born` are ascending. A row id can be reused for another node.
    """

    first: np.ndarray
    now: np.ndarray
    born: np.ndarray

    def to_first(self, row_ids: np.ndarray) -> np.ndarray:
        """Return the row ids that nodes had in the first version, -1 for new nodes."""
        return np.where(np.isin(row_ids, self.born), -1, _replaced(row_ids, self.now, self.first))

    def to_now(self, row_ids: np.ndarray) -> np.ndarray:
        """Return the current row ids of nodes."""
        order = np.argsort(self.first)
        return _replaced(row_ids, self.first[order], self.now[order])

    def after(self, change: _Change) -> _Nodes:
        """Return the node changes including a further change."""
        first = self.to_first(change.moved_from)
        kept = ~np.isin(self.now, np.concatenate([change.moved_from, change.died]))
        old = first >= 0
        born = np.concatenate([self.born[~np.isin(self.born, change.left)], change.moved_to[~old], change.born])
        firsts = np.concatenate([self.first[kept], first[old]])
        now = np.concatenate([self.now[kept], change.moved_to[old]])
        order = np.argsort(now)
        order = order[firsts[order] != now[order]]
        return _Nodes(firsts[order], now[order], np.sort(born))


@dataclass(frozen=True, slots=True)
class _Change:
    """One change to nodes, by row id: `moved_from` became `moved_to`, `died` were removed, and `born` were added."""

    moved_from: np.ndarray
    moved_to: np.ndarray
    died: np.ndarray
    born: np.ndarray

    @classmethod
    def of(cls, gone: TableRows, come: TableRows) -> _Change:
        """Match removed rows with added rows; equal ids are the same node."""
        came = dict(zip(come.columns["id"].to_pylist(), come.ids.tolist(), strict=True))
        pairs = [(row, came.pop(name, -1)) for name, row in zip(gone.columns["id"].to_pylist(), gone.ids, strict=True)]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        moved = both[:, 1] >= 0
        return cls(both[moved, 0], both[moved, 1], both[~moved, 0], np.array(sorted(came.values()), np.int64))

    @property
    def left(self) -> np.ndarray:
        """Return the row ids that no longer belong to the same node."""
        return np.concatenate([self.moved_from, self.died])


@dataclass(frozen=True, slots=True)
class OverlaidAdjacency:
    """A base adjacency with differences: the row ids of removed edges, and additional edges.

    The additional edges are columns of source, target and edge row ids.
    """

    first: Adjacency
    sources: _Nodes
    targets: _Nodes
    gone: np.ndarray
    others: np.ndarray

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        arrays = (self.gone, self.others, *(each for n in (self.sources, self.targets) for each in (n.first, n.born)))
        return self.first.nbytes + 2 * sum(array.nbytes for array in arrays)

    @property
    def edges(self) -> int:
        """The number of edges."""
        return self.first.edges - len(self.gone) + len(self.others)

    @property
    def changes(self) -> int:
        """The number of differences."""
        return len(self.gone) + len(self.others) + sum(len(n.now) + len(n.born) for n in (self.sources, self.targets))

    def steps(self, nodes: np.ndarray, *, out: bool, budget: Budget) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Adjacency`."""
        near, far = (self.sources, self.targets) if out else (self.targets, self.sources)
        first = near.to_first(nodes)
        known = np.flatnonzero(first >= 0)
        origins, ends, edges = self.first.steps(first[known], out=out, budget=budget)
        kept = ~np.isin(edges, self.gone)
        own, places, other_ends = self._others(nodes, out=out)
        return (
            np.concatenate([known[origins[kept]], own]),
            np.concatenate([far.to_now(ends[kept]), other_ends]),
            np.concatenate([edges[kept].astype(np.int64), self.others[places, 2]]),
        )

    def ends(self, node: int, *, out: bool, most: int) -> list[int] | None:
        """See `Adjacency`."""
        first = int((self.sources if out else self.targets).to_first(np.array([node]))[0])
        # Some of the edges of the first version may be gone.
        if first >= 0 and self.first.ends(first, out=out, most=most + len(self.gone)) is None:
            return None
        found: list[int] = self.steps(np.array([node]), out=out, budget=Budget(None, None))[1].tolist()
        return found if len(found) <= most else None

    def has_any(self, nodes: np.ndarray, *, out: bool) -> np.ndarray:
        """See `Adjacency`."""
        first = (self.sources if out else self.targets).to_first(nodes)
        known = np.flatnonzero(first >= 0)
        found = np.zeros(len(nodes), bool)
        found[known] = self.first.has_any(first[known], out=out, gone=self.gone)
        found[self._others(nodes, out=out)[0]] = True
        return found

    def merged(self, tables: EndTables, budget: Budget) -> Adjacency:
        """Merge the differences into a new adjacency. `tables` are the tables at this version.

        Raises the same errors as `Budget.need`.
        """
        budget.need(self.edges * _MERGING, f"the adjacency of {tables.edges.key}")
        sources, targets = (
            NodeNumbering.of(table.whole(["id"], budget).ids) for table in (tables.source, tables.target)
        )
        nodes = self.first.sources.row_ids(np.arange(self.first.sources.count))
        origins, ends, edges = self.first.steps(nodes, out=True, budget=budget)
        kept = ~np.isin(edges, self.gone)
        starts = np.concatenate([self.sources.to_now(nodes[origins[kept]]), self.others[:, 0]])
        stops = np.concatenate([self.targets.to_now(ends[kept]), self.others[:, 1]])
        rows_of = np.concatenate([edges[kept].astype(np.int64), self.others[:, 2]])
        return arrange_edges(sources, targets, sources.positions(starts), targets.positions(stops), rows_of, budget)

    def _others(self, nodes: np.ndarray, *, out: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the additional edges of nodes: node index, edge position, row id of the far end."""
        near, far = (0, 1) if out else (1, 0)
        order = np.argsort(self.others[:, near], kind="stable")
        owners = self.others[order, near]
        starts = np.searchsorted(owners, nodes)
        runs, at = spread(starts, np.searchsorted(owners, nodes, side="right") - starts)
        places = order[at]
        return runs, places, self.others[places, far]


def bring(
    adjacency: Adjacency | OverlaidAdjacency, before: EndTables, after: EndTables, budget: Budget
) -> Adjacency | OverlaidAdjacency | None:
    """Convert an adjacency from tables `before` to tables `after`. Many differences are merged into a new adjacency.

    Returns None if there are too many new differences, or if they cannot be read. Raises the same errors as
    `Budget.check`.
    """
    try:
        return _bring(adjacency, before, after, budget)
    except GitopsError as error:
        # Gc may have removed the other version's files, or the query may have too little memory.
        if error.code not in (Code.QUERY_FAILED, Code.QUERY_MEMORY_EXCEEDED):
            raise
        return None


def _bring(
    adjacency: Adjacency | OverlaidAdjacency, before: EndTables, after: EndTables, budget: Budget
) -> Adjacency | OverlaidAdjacency | None:
    if isinstance(adjacency, Adjacency):
        unchanged = _Nodes(_NONE, _NONE, _NONE)
        adjacency = OverlaidAdjacency(adjacency, unchanged, unchanged, _NONE, _NONE.reshape(0, 3))
    changes: list[_Change] = []
    for old, new in ((before.source, after.source), (before.target, after.target)):
        if changes and new is after.source:
            changes.append(changes[0])
            continue
        rows = new.difference(old, budget)
        if rows is None:
            return None
        changes.append(_Change.of(*rows))
    edges = after.edges.difference(before.edges, budget)
    if edges is None:
        return None
    gone, come = edges
    others = adjacency.others[~np.isin(adjacency.others[:, 2], gone.ids)]
    lost = [adjacency.gone, gone.ids[~np.isin(gone.ids, adjacency.others[:, 2])]]
    for at, (known, change) in enumerate(zip((adjacency.sources, adjacency.targets), changes, strict=True)):
        died = known.to_first(change.died)
        lost.append(adjacency.first.steps(died[died >= 0], out=at == 0, budget=budget)[2].astype(np.int64))
        others = others[~np.isin(others[:, at], change.died)]
        order = np.argsort(change.moved_from)
        others[:, at] = _replaced(others[:, at], change.moved_from[order], change.moved_to[order])
    if len(come.ids):
        ends = come.columns["src"], come.columns["dst"]
        if after.source is after.target:
            places = after.source.locate(pa.concat_arrays(ends), budget).reshape(2, -1)
        else:
            places = np.stack([after.source.locate(ends[0], budget), after.target.locate(ends[1], budget)])
        others = np.concatenate([others, np.column_stack([*places, come.ids])])
    source, target = adjacency.sources.after(changes[0]), adjacency.targets.after(changes[1])
    made = OverlaidAdjacency(adjacency.first, source, target, np.unique(np.concatenate(lost)), others)
    # The table has edges with a missing end, which the adjacency lacks, so it is unknown which edges are missing.
    if made.edges != after.edges.rows or bool(np.any(others < 0)):
        return None
    if made.changes <= after.edges.most_changes:
        return made
    return made.merged(after, budget) if made.edges <= _MOST_MERGED else None


def _replaced(values: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Replace each value in the ascending array `old` with its counterpart in `new`."""
    if not len(old):
        return values
    at = np.minimum(np.searchsorted(old, values), len(old) - 1)
    return np.where(old[at] == values, new[at], values)
