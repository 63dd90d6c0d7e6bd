"""Point reads and one-hop reads without the executor: compiled once, bound once per version, run on in-memory rows.

Rules of this module:

1. A compiled read returns exactly what the executor returns: rows, order, types and errors. The tests compare both for
   random schemas, graphs and queries.
2. It finds nodes by a text, whole number, date or time that equals a parameter, follows at most one edge, and returns
   plain properties. The executor handles everything else.
3. It is bound to one version, and only if everything that it reads is in memory. The modules `tables` and `overlay`
   decide what is in memory and how it is carried over to the next version. The executor's reads bear the cost.
4. A bound read never changes and reads no file, so it can run in an event loop. It returns only a few rows. If there
   are more, the executor runs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.dataclass import dataclass
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.query.adjacency import Adjacency
from gitops.database.graph.query.bindings import SortedCells
from gitops.database.graph.query.cache import ReadCache, WantedAdjacency
from gitops.database.graph.query.options import Budget, QueryOptions
from gitops.database.graph.query.overlay import EndTables, OverlaidAdjacency
from gitops.database.graph.query.plan import Constants, alike
from gitops.database.graph.query.project import item_type
from gitops.database.graph.query.run import json_conversion
from gitops.database.graph.query.tables import ReadTable
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import raw_type
from gitops.database.language.query import CheckedQuery, ComparisonOperator
from gitops.database.language.query.typed import (
    Direction,
    Filter,
    NodeValue,
    ParameterValue,
    PropertyValue,
    Scan,
    Traverse,
    TypedExpr,
    TypedRead,
)
from gitops.database.language.schema import INTEGERS, PropType, Scalar, TypeKind

MOST_ROWS = 64
"""A bound read returns at most so many rows, which takes less than a millisecond."""

_MOST_EDGES = 1024
_ENTRY_BYTES = 128
_FOUND = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
_PLAIN = frozenset(Scalar) - {Scalar.VECTOR, Scalar.BLOB}
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class CompiledHop:
    """One edge from the found node: its type, its direction seen from that node, and the type at its far end."""

    edge: str
    direction: Direction
    far: str


@dataclass(frozen=True, slots=True)
class CompiledCell:
    """A returned column: its name, whether it belongs to the far node, its property, and its type."""

    column: str
    far: bool
    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class CompiledRead:
    """A read of the nodes in table `near` whose property `key` equals a parameter, or of their one-hop neighbours.

    Rows are ordered by near node and then by far node, or the other way round with `far_first`.
    """

    query: CheckedQuery
    near: str
    key: str
    parameter: ParameterValue
    hop: CompiledHop | None
    far_first: bool
    cells: tuple[CompiledCell, ...]
    limit: int | None

    def columns(self, *, far: bool) -> tuple[str, ...]:
        """Return the properties to read from the near or the far nodes."""
        return tuple(dict.fromkeys(each.name for each in self.cells if each.far is far))


def compile_read(query: CheckedQuery) -> CompiledRead | None:
    """Compile a read, or None if only the executor can run it."""
    read = query.body
    if not isinstance(read, TypedRead) or read.aggregated or read.order or read.edge_variables:
        return None
    tests: list[tuple[TypedExpr, TypedExpr]] = []
    scans: list[Scan] = []
    hops: list[Traverse] = []
    for clause in read.clauses:
        if isinstance(clause, Scan) and not any(each.membership for each in clause.tests):
            scans.append(clause)
            tests += [(each.property, each.value) for each in clause.tests]
        elif isinstance(clause, Filter) and clause.operator is ComparisonOperator.EQ:
            tests.append((clause.left, clause.right))
        elif isinstance(clause, Traverse) and clause.low == clause.high == 1 and not hops:
            hops.append(clause)
        else:
            return None
    if len(tests) != 1:
        return None
    key, parameter = sorted(tests[0], key=lambda side: not isinstance(side, PropertyValue))
    if not isinstance(key, PropertyValue) or not isinstance(parameter, ParameterValue):
        return None
    if key.kind is not TypeKind.NODE or key.type.scalar not in _FOUND or not alike(key.type, parameter.type):
        return None
    hop, far = _hop(hops[0], key.variable) if hops else (None, None)
    bound = {key.variable, *([] if far is None else [far])}
    if (hops and hop is None) or not read.variables.keys() <= bound or {each.variable for each in scans} - bound:
        return None
    cells: dict[str, CompiledCell] = {}
    for item in read.items:
        value = item.value
        if not isinstance(value, (PropertyValue, NodeValue)) or value.variable not in bound:
            return None
        kind, name = item_type(value), value.name if isinstance(value, PropertyValue) else "id"
        if kind.is_list or kind.scalar not in _PLAIN:
            return None
        cells[item.column] = CompiledCell(item.column, value.variable != key.variable, name, kind)
    root = scans[0].variable if scans else hops[0].left
    return CompiledRead(
        query, f"node:{key.owner}", key.name, parameter, hop, root != key.variable, tuple(cells.values()), read.limit
    )


_TURNED = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT, Direction.BOTH: Direction.BOTH}


def _hop(clause: Traverse, near: str) -> tuple[CompiledHop | None, str | None]:
    """Return the hop from a variable, and the far variable if it has a name; no hop if it does not begin there."""
    if near not in (clause.left, clause.right) or clause.left == clause.right:
        return None, None
    turned = clause.left != near
    far, far_type = (clause.left, clause.left_type) if turned else (clause.right, clause.right_type)
    direction = _TURNED[clause.direction] if turned else clause.direction
    return CompiledHop(f"edge:{clause.edge}", direction, f"node:{far_type}"), far


@dataclass(frozen=True, slots=True)
class _CellIndex:
    """Finds the rows of one table version by a cell: in the sorted cells of a version, except for rows that differ."""

    cells: SortedCells
    gone: frozenset[int]
    fresh: Mapping[Any, Sequence[int]]

    @classmethod
    def of(cls, table: ReadTable, name: str, budget: Budget) -> _CellIndex | None:
        cells = table.sorted_cells(name)
        if cells is not None:
            return cls(cells, frozenset(), {})
        other = table.other_version(budget)
        cells = None if other is None else other.table.sorted_cells(name)
        if other is None or cells is None or name not in other.came.columns:
            return None
        fresh: dict[Any, list[int]] = {}
        for row, cell in zip(other.came.ids.tolist(), _raw(other.came.columns[name]).to_pylist(), strict=True):
            fresh.setdefault(cell, []).append(row)
        return cls(cells, frozenset(other.gone.tolist()), fresh)

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes + _ENTRY_BYTES * (len(self.gone) + len(self.fresh))

    def find(self, cell: Any) -> list[int]:
        """Return the ascending row ids of the rows with a cell."""
        one = self.cells.find_one(cell)
        found: list[int] = self.cells.find(cell).tolist() if one is None else [one]
        if self.gone:
            found = [row for row in found if row not in self.gone]
        return sorted([*found, *self.fresh[cell]]) if cell in self.fresh else found


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of one table version by row id: those of a version, except for rows that came since."""

    ids: np.ndarray
    dense: bool
    columns: Mapping[str, pa.Array]
    places: Mapping[int, int]
    came: Mapping[str, pa.Array]

    @classmethod
    def of(cls, table: ReadTable, names: Sequence[str], budget: Budget) -> _Columns | None:
        kept = table.held(names)
        places, came = {}, dict[str, pa.Array]()
        if kept is None:
            other = table.other_version(budget)
            kept = None if other is None else other.table.held(names)
            if other is None or kept is None or not other.came.columns.keys() >= set(names):
                return None
            places = {row: place for place, row in enumerate(other.came.ids.tolist())}
            came = {name: _raw(other.came.columns[name]) for name in names}
        columns = {name: _raw(kept.columns[name]) for name in names}
        dense = bool(len(kept.ids)) and int(kept.ids[-1]) == len(kept.ids) - 1
        return cls(kept.ids, dense, columns, places, came)

    @property
    def nbytes(self) -> int:
        arrays = (self.ids, *self.columns.values(), *self.came.values())
        return sum(int(each.nbytes) for each in arrays) + _ENTRY_BYTES * len(self.places)

    def cell(self, row: int, name: str) -> Any:
        """Return a cell of an existing row. Raises LookupError if it does not exist."""
        place = self.places.get(row)
        if place is not None:
            return self.came[name][place].as_py()
        place = row if self.dense else int(np.searchsorted(self.ids, row))
        if place >= len(self.ids) or self.ids[place] != row:
            raise LookupError(row)
        return self.columns[name][place].as_py()


def _raw(column: pa.Array) -> pa.Array:
    """Return a column with days and milliseconds instead of dates and times."""
    kind = raw_type(column.type)
    return column if kind == column.type else column.cast(kind)


@dataclass(frozen=True, slots=True)
class BoundRead:
    """A compiled read of one version.

    `far` and `adjacency` are None without a hop. `outs` are the directions of its edges, true for outgoing ones.
    """

    compiled: CompiledRead
    index: _CellIndex
    near: _Columns
    far: _Columns | None
    adjacency: Adjacency | OverlaidAdjacency | None
    outs: tuple[bool, ...]
    converts: tuple[Convert | None, ...]

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes, including memory shared with other cached values."""
        parts = (self.index, self.near, self.far, self.adjacency)
        return sum(each.nbytes for each in parts if each is not None)

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns."""
        return [each.column for each in self.compiled.cells]

    def rows(self, params: object, now: datetime) -> list[dict[str, Any]] | None:
        """Return the rows as JSON objects, like `QueryResult.rows`, or None if there are too many.

        Raises GitopsError `query_params_invalid`.
        """
        compiled, name = self.compiled, self.compiled.parameter.name
        value = params.get(name) if isinstance(params, dict) and len(compiled.query.params) == 1 else None
        if type(value) is not str or not value.isascii() or compiled.parameter.type.scalar is not Scalar.STRING:
            # The general way reads any value, and knows what is wrong with it.
            cell = Constants(compiled.query, params, now).cell(compiled.parameter)
            value = None if cell is None else cell.value
        found = [] if value is None else self.index.find(value)
        if len(found) > MOST_ROWS:
            return None
        pairs = [(near, near) for near in found]
        if self.adjacency is not None:
            pairs = []
            for near in found:
                ends = self._neighbours(self.adjacency, near)
                if ends is None or len(pairs) + len(ends) > MOST_ROWS:
                    return None
                pairs += [(near, far) for far in ends]
            if compiled.far_first:
                pairs.sort(key=itemgetter(1, 0))
        try:
            return [self._row(*pair) for pair in pairs[: compiled.limit]]
        except LookupError:
            # The executor says what is wrong with the table.
            return None

    def _neighbours(self, adjacency: Adjacency | OverlaidAdjacency, near: int) -> list[int] | None:
        """Return the distinct neighbours by row id, ascending; None if there are too many."""
        found: set[int] = set()
        for out in self.outs:
            ends = adjacency.ends(near, out=out, most=_MOST_EDGES)
            if ends is None:
                return None
            found.update(ends)
        return sorted(found)

    def _row(self, near: int, far: int) -> dict[str, Any]:
        found = {}
        for each, convert in zip(self.compiled.cells, self.converts, strict=True):
            cell = self.far.cell(far, each.name) if each.far and self.far else self.near.cell(near, each.name)
            found[each.column] = cell if convert is None else convert(cell)
        return found


class BoundReads:
    """The reads bound to one version of a branch, by their query's identity."""

    __slots__ = ("manifest", "reads")

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.reads: dict[int, BoundRead] = {}

    @property
    def nbytes(self) -> int:
        """The memory usage of all reads in bytes. Memory that several reads share is counted for each of them."""
        return 1024 + sum(each.nbytes for each in self.reads.values())


def bound_read(snapshot: Snapshot, query: CheckedQuery, cache: ReadCache) -> BoundRead | None:
    """Return a read already bound to the snapshot's version, or None if there is none. Reads no file."""
    held: BoundReads | None = cache.recall(_place(snapshot))
    found = held.reads.get(id(query)) if held is not None and held.manifest is snapshot.manifest else None
    return found if found is not None and found.compiled.query is query else None


def bind_read(snapshot: Snapshot, query: CheckedQuery, cache: ReadCache, options: QueryOptions) -> BoundRead | None:
    """Bind a read to the snapshot's version. Return None if some of the data that it reads is not in memory.

    Raises the errors of opening tables, and of reading the differences between two versions.
    """
    found = bound_read(snapshot, query, cache)
    if found is not None:
        return found
    known: tuple[CheckedQuery, CompiledRead | None] | None = cache.recall(("compiled", id(query)))
    if known is None or known[0] is not query:
        known = query, compile_read(query)
        cache.remember(("compiled", id(query)), known)
    found = None if known[1] is None else _bind(known[1], snapshot, cache, options)
    if found is not None:
        place = _place(snapshot)
        held: BoundReads | None = cache.recall(place)
        # Reads of an earlier version are dropped together.
        reads = held if held is not None and held.manifest is snapshot.manifest else BoundReads(snapshot.manifest)
        reads.reads[id(query)] = found
        cache.remember(place, reads, reads.nbytes)
    return found


def _place(snapshot: Snapshot) -> tuple[str, str, str, str]:
    return "bound", snapshot.root.location, snapshot.identity.graph_id, snapshot.line.id


def _bind(compiled: CompiledRead, snapshot: Snapshot, cache: ReadCache, options: QueryOptions) -> BoundRead | None:
    tables, hop = snapshot.manifest.tables, compiled.hop
    near_names, far_names = compiled.columns(far=False), compiled.columns(far=True)
    wanted = {compiled.near: {*near_names, compiled.key}}
    if hop is not None:
        wanted[hop.edge] = set()
        wanted.setdefault(hop.far, set()).update(far_names)
    if any(key not in tables or not names <= tables[key].fields.keys() for key, names in wanted.items()):
        return None
    budget = Budget(options.timeout_s, options.memory_bytes)
    table = cache.table(snapshot, compiled.near)
    index = _CellIndex.of(table, compiled.key, budget)
    near = None if index is None else _Columns.of(table, near_names, budget)
    if index is None or near is None:
        return None
    converts = tuple(json_conversion(each.type) for each in compiled.cells)
    if hop is None:
        return BoundRead(compiled, index, near, None, None, (), converts)
    target = cache.table(snapshot, hop.far)
    far = _Columns.of(target, far_names, budget)
    ends = (target, table) if hop.direction is Direction.IN else (table, target)
    adjacency = WantedAdjacency.of(snapshot, EndTables(cache.table(snapshot, hop.edge), *ends))
    stored = None if far is None else cache.stored(adjacency, budget, None)
    outs = {Direction.OUT: (True,), Direction.IN: (False,), Direction.BOTH: (True, False)}[hop.direction]
    return None if stored is None else BoundRead(compiled, index, near, far, stored, outs, converts)
