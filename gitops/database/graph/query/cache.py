"""The cache of one process: opened tables, columns and adjacencies, each of an immutable version."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from gitops.core.canonical import canonical_digest
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.query.adjacency import Adjacency, AdjacencyFolder, build_adjacency
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, ResidentColumns
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import open_table

_TABLE_BYTES = 2**20
_DEFAULT_BYTES = 2**30
_COLUMN_BYTES = 2**26


class ReadCache:
    """Cache of values of immutable versions, bounded in bytes and safe between threads.

    Every cached value equals the value that would be read again, because versions never change; remembered values are
    the exception.
    """

    def __init__(self, max_bytes: int = _DEFAULT_BYTES, max_column_bytes: int = _COLUMN_BYTES) -> None:
        """An opened table counts as 1 MiB, an adjacency by its arrays, a column by its cells; none is larger than allowed."""
        self._max = max_bytes
        self._column = max_column_bytes
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def table(self, snapshot: Snapshot, key: str) -> ReadTable:
        """Return the table of a manifest key at the snapshot's version. Raises GitopsError `graph_unreadable`."""
        entry = snapshot.manifest.tables[key]
        identity = _identity(snapshot, entry, entry.version)

        def place(name: str) -> Hashable:
            # A column, its row ids, or what is made of a column: later versions of the table may have the same.
            return "column", _identity(snapshot, entry, entry.column_version(name.rpartition(" ")[2])), name

        def get(name: str) -> Any:
            held = self._find(place(name))
            return None if held is None else held[0]

        def put(name: str, column: Any) -> None:
            self._add(place(name), column, column.nbytes)

        def opened() -> tuple[ReadTable, int]:
            residents = ResidentColumns(get, put, entry.rows, self._column) if self._column else None
            return ReadTable(key, open_table(snapshot.folder, entry), entry.rows, residents), _TABLE_BYTES

        table: ReadTable = self._keep(("table", key, *identity), opened)
        return table

    def adjacency(
        self, name: str, edges: ReadTable, ends: tuple[ReadTable, ReadTable], budget: Budget, folder: Path | None
    ) -> Adjacency:
        """Return the adjacency called `name`: from this cache, from its file, or newly built and cached.

        Raises as `build_adjacency`.
        """

        def made() -> tuple[Adjacency, int]:
            files = None if folder is None else AdjacencyFolder(folder)
            found = None if files is None else files.read(name)
            if found is None:
                found = build_adjacency(edges, *ends, budget)
                if files is not None:
                    files.write(name, found)
            return found, found.nbytes

        adjacency: Adjacency = self._keep(("adjacency", name), made)
        return adjacency

    def stored(self, name: str, folder: Path | None) -> Adjacency | None:
        """Return the adjacency called `name` if it need not be built."""
        held = self._find(("adjacency", name))
        if held is not None:
            kept: Adjacency = held[0]
            return kept
        found = None if folder is None else AdjacencyFolder(folder).read(name)
        if found is not None:
            self._add(("adjacency", name), found, found.nbytes)
        return found

    def value(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return any small value of an immutable version, as a search's Memo."""
        return self._keep(("value", key), lambda: (make(), 1024))

    def recall(self, key: Hashable) -> Any:
        """Return the last remembered value for this key; None if it was dropped."""
        held = self._find(("remembered", key))
        return None if held is None else held[0]

    def remember(self, key: Hashable, value: Any) -> None:
        """Cache a small value that may have changed when it is recalled."""
        self._add(("remembered", key), value, 256)

    def _find(self, key: Hashable) -> tuple[Any, int] | None:
        """Return the cached value for this key with its size, and mark it as used."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
        return held

    def _keep(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """Return the value of a key, made once even if several threads ask at the same time."""
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

    def _add(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            before = self._held.pop(key, None)
            self._bytes += size - (before[1] if before else 0)
            self._held[key] = value, size
            while self._bytes > self._max and len(self._held) > 1:
                _, (_, gone) = self._held.popitem(last=False)
                self._bytes -= gone


def _identity(snapshot: Snapshot, entry: TableEntry, version: int) -> tuple[Hashable, ...]:
    """Return an identity of this version of a table that is unique on any disk or service."""
    place = snapshot.folder.dataset(entry.path)
    endpoint = (place.options or {}).get("aws_endpoint", "")
    return (snapshot.identity.graph_id, endpoint, place.uri, entry.path, version)


def adjacency_name(snapshot: Snapshot, edge: str, source: str, target: str) -> str:
    """Return the name of an adjacency: a digest of the graph and of its three tables.

    Each table is named by the version since which its rows and their ends are the same.
    """
    tables = []
    for key in (edge, source, target):
        entry = snapshot.manifest.tables[key]
        since = max(entry.members, *map(entry.column_version, ("src", "dst")))
        tables.append(list(_identity(snapshot, entry, since)))
    return canonical_digest(tables)
