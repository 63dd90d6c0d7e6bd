"""How many rows of an earlier version were replaced since, without reading a column.

1. Tables are paired by their folder, which a renamed type keeps. One that both versions have alike is not opened.
2. A row is known by its row id. The driver gives a new one to every row that is written, also to one that is changed.
   Compaction, indexes and migrations keep the ids: they write no row.
3. Rows that are gone, and rows that came, make replaced rows as far as there are both: what is only deleted makes a graph
   smaller, and what is only added is growth, which is bounded by its own rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.manifest import Manifest, TableEntry
from gitops.database.graph.snapshot import Snapshot, read_version

__all__ = ["replaced_rows"]


def replaced_rows(now: Snapshot, since: int, types: Collection[str] = (), rows: int = 0) -> int:
    """How many rows of version `since` were replaced, of the types that are named, or of all.

    If that version has fewer than `rows`, the first later one that has so many counts: a person without the graph names the
    version that a ledger recorded last, and the rows that were loaded since. Raises GitopsError `graph_version_unknown`,
    `graph_version_gone`, `graph_unreadable`, `engine_unavailable`; RemoteError `storage_failed`.
    """
    if since == now.manifest.n:
        return 0
    before, after = (_by_folder(each, types) for each in (_version_of(now, since, rows), now.manifest))
    both = [(before[path], after[path]) for path in before.keys() & after.keys()]
    gone = sum(entry.rows for path, entry in before.items() if path not in after)
    came = sum(entry.rows for path, entry in after.items() if path not in before)
    changed = [(old, new) for old, new in both if old.version != new.version]
    if changed:
        try:
            # The driver is large to import: a graph is seldom written between its approval and the change.
            from gitops.database.graph.tables import count_differences
        except ImportError as error:
            raise GitopsError(Code.ENGINE_UNAVAILABLE, f"versions cannot be compared: {error}") from error
        for old, new in changed:
            lost, added = count_differences(now.folder, old, new)
            gone, came = gone + lost, came + added
    return min(gone, came)


def _version_of(now: Snapshot, since: int, rows: int) -> Manifest:
    for n in range(since, now.manifest.n):
        found = read_version(now.store, now.line, n)
        if sum(entry.rows for entry in found.tables.values()) >= rows:
            return found
    # The rows of branches count, too: then no version of `main` has so many.
    return read_version(now.store, now.line, since)


def _by_folder(manifest: Manifest, types: Collection[str]) -> Mapping[str, TableEntry]:
    tables = manifest.tables.items()
    return {entry.path: entry for key, entry in tables if not types or key.partition(":")[2] in types}
