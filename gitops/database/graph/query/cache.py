"""One process's cache of opened tables, columns and adjacencies, each for an immutable version."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from lance.dataset import LanceDataset

from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.query.adjacency import Adjacency, AdjacencyFolder, build_adjacency
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.overlay import EndTables, OverlaidAdjacency, bring
from gitops.database.graph.query.tables import ReadTable, ResidentColumns, TableRows
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import open_table

_TABLE_BYTES = 2**20
_DEFAULT_BYTES = 2**30
_COLUMN_BYTES = 2**26


class ReadCache:
    """A thread-safe cache with a size limit for values of immutable versions.

    Because versions never change, a cached value equals a newly read one. Values from `remember` are an exception.
    """

    def __init__(self, max_bytes: int = _DEFAULT_BYTES, max_column_bytes: int = _COLUMN_BYTES) -> None:
        """Create an empty cache. An opened table counts as 1 MiB, an adjacency as its arrays, and a column as its cells.

        Larger columns than `max_column_bytes` are not cached, except vectors, which can take half of the cache.
        """
        self._max = max_bytes
        self._column = max_column_bytes
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._attached: dict[Hashable, Any] = {}
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def table(self, snapshot: Snapshot, key: str) -> ReadTable:
        """Return the table with a manifest key at the snapshot's version. Raises GitopsError `graph_unreadable`."""
        entry = snapshot.manifest.tables[key]
        return self._table(snapshot, key, entry, lambda: open_table(snapshot.folder, entry))

    def offer(
        self, snapshot: Snapshot, key: str, entry: TableEntry, dataset: LanceDataset, rewritten: TableRows | None
    ) -> None:
        """Cache a table version that this process made from the snapshot's version, if that one is cached.

        `rewritten` has the new rows if each of them replaces the row with the same row id, and is None otherwise. The
        version need not be published.
        """
        own = snapshot.manifest.tables[key]
        before = self._find(("table", key, *snapshot.table_identity(own, own.version)))
        if before is not None:
            table = self._table(snapshot, key, entry, lambda: dataset)
            if rewritten is not None:
                table.follow(before[0], rewritten)

    def _table(self, snapshot: Snapshot, key: str, entry: TableEntry, opened: Callable[[], LanceDataset]) -> ReadTable:
        """Return the table of an entry, opened with `opened` if it is not cached."""
        identity = snapshot.table_identity(entry, entry.version)
        newest_key = ("newest table", key, *snapshot.table_place(entry))

        def place(name: str) -> Hashable:
            # A column, its row ids, or a value computed from a column can be the same in later table versions.
            return "column", snapshot.table_identity(entry, entry.column_version(name.rpartition(" ")[2])), name

        def get(name: str) -> Any:
            held = self._find(place(name))
            return None if held is None else held[0]

        def put(name: str, column: Any) -> None:
            self._add(place(name), column, column.nbytes)

        def count(nbytes: int) -> None:
            for name in (("table", key, *identity), newest_key):
                held = self._find(name)
                if held is not None and held[0].dataset.version == entry.version:
                    self._add(name, held[0], _TABLE_BYTES + nbytes)

        def make() -> tuple[ReadTable, int]:
            kept = ResidentColumns(get, put, entry.rows, self._column, self._max // 2, count)
            residents = kept if self._column else None
            newest = self._find(newest_key)
            previous = None if newest is None else newest[0].hand_on()
            table = ReadTable(key, opened(), entry.rows, residents, previous)
            self._add(newest_key, table, _TABLE_BYTES)
            return table, _TABLE_BYTES

        table: ReadTable = self._keep(("table", key, *identity), make)
        return table

    def adjacency(self, wanted: WantedAdjacency, budget: Budget, folder: Path | None) -> Adjacency | OverlaidAdjacency:
        """Return an adjacency from this cache, from its file or by converting another version, or build and cache one.

        Raises the same errors as `build_adjacency`.
        """
        found = self.stored(wanted, budget, folder)
        if found is not None:
            return found

        def made() -> tuple[Adjacency, int]:
            tables = wanted.tables
            built = build_adjacency(tables.edges, tables.source, tables.target, budget)
            if folder is not None:
                AdjacencyFolder(folder).write(wanted.name, built)
            return built, built.nbytes

        adjacency: Adjacency = self._keep(("adjacency", wanted.name), made)
        self._add(("newest adjacency", wanted.line), wanted, 3 * _TABLE_BYTES)
        return adjacency

    def stored(
        self, wanted: WantedAdjacency, budget: Budget, folder: Path | None
    ) -> Adjacency | OverlaidAdjacency | None:
        """Return an adjacency from memory or a file, or None if it must be built."""
        held = self._find(("adjacency", wanted.name))
        if held is not None:
            kept: Adjacency | OverlaidAdjacency = held[0]
            return kept
        found = None if folder is None else AdjacencyFolder(folder).read(wanted.name)
        made = self._brought(wanted, budget) if found is None else found
        if made is not None:
            self._add(("adjacency", wanted.name), made, made.nbytes)
            self._add(("newest adjacency", wanted.line), wanted, 3 * _TABLE_BYTES)
        return made

    def _brought(self, wanted: WantedAdjacency, budget: Budget) -> Adjacency | OverlaidAdjacency | None:
        """Convert the last used adjacency to the wanted version and cache the result in its place."""
        newest = self._find(("newest adjacency", wanted.line))
        held = None if newest is None else self._find(("adjacency", newest[0].name))
        if newest is None or held is None:
            return None
        made = bring(held[0], newest[0].tables, wanted.tables, budget)
        self._drop(("newest adjacency", wanted.line))
        if made is not None:
            # The two adjacencies share most arrays.
            self._drop(("adjacency", newest[0].name))
        return made

    def value(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return a small value for an immutable version, created with `make` if missing (see `Memo` in `search`)."""
        return self._keep(("value", key), lambda: (make(), 1024))

    def attached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return an object that lives as long as the cache, created with `make` if missing. It limits its own size."""
        with self._lock:
            found = self._attached[key] = self._attached[key] if key in self._attached else make()
        return found

    def recall(self, key: Hashable) -> Any:
        """Return the last value remembered under this key, or None if it was dropped."""
        held = self._find(("remembered", key))
        return None if held is None else held[0]

    def remember(self, key: Hashable, value: Any, size: int = 256) -> None:
        """Cache a value of this many bytes, which may be outdated when it is recalled."""
        self._add(("remembered", key), value, size)

    def _find(self, key: Hashable) -> tuple[Any, int] | None:
        """Return a cached value with its size, and mark it as recently used."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
        return held

    def _keep(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """Return the value for a key, creating it only once even if several threads request it concurrently."""
        held = self._find(key)
        if held is None:
            with self._lock:
                making = self._making.setdefault(key, threading.Lock())
            with making:
                held = self._find(key)
                if held is None:
                    held = make()
                    self._add(key, *held)
            with self._lock:
                self._making.pop(key, None)
        return held[0]

    def _drop(self, key: Hashable) -> None:
        with self._lock:
            gone = self._held.pop(key, None)
            self._bytes -= gone[1] if gone else 0

    def _add(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            before = self._held.pop(key, None)
            self._bytes += size - (before[1] if before else 0)
            self._held[key] = value, size
            while self._bytes > self._max and len(self._held) > 1:
                _, (_, gone) = self._held.popitem(last=False)
                self._bytes -= gone


@dataclass(frozen=True, slots=True)
class WantedAdjacency:
    """A request for an adjacency between three tables. `line` is a name shared by all versions of this adjacency."""

    name: str
    line: str
    tables: EndTables

    @classmethod
    def of(cls, snapshot: Snapshot, tables: EndTables) -> WantedAdjacency:
        """Name the adjacency by digests of the graph and the three tables, with and without table versions.

        For each table, the digest contains the version since which its rows and their ends are unchanged.
        """
        entries = [snapshot.manifest.tables[table.key] for table in (tables.edges, tables.source, tables.target)]
        identities = []
        for entry in entries:
            since = max(entry.members, entry.column_version("src"), entry.column_version("dst"))
            identities.append(list(snapshot.table_identity(entry, since)))
        line = canonical_digest([list(snapshot.table_place(entry)) for entry in entries])
        return cls(canonical_digest(identities), line, tables)
