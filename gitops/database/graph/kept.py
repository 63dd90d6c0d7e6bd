"""What the versions of a graph that are kept hold, by their manifests; a table is opened to count the values of a column.

What a migration dropped is in the version before it, until gc or a purge removes that one.
"""

from __future__ import annotations

from collections.abc import Collection

from gitops.core.errors import GitopsError
from gitops.database.graph.manifest import TableEntry, find_manifest
from gitops.database.graph.port import HeldData, KeptData
from gitops.database.graph.snapshot import Snapshot, kept_versions

__all__ = ["find_kept"]


def find_kept(snapshot: Snapshot, names: Collection[str]) -> KeptData:
    """The newest version that has rows of each table or column of `names` that the newest one of all lacks.

    Versions are read until all are found.
    """
    newest = snapshot.manifest
    rows: dict[str, int | None] = {key: entry.rows for key, entry in newest.tables.items()}
    for name in names:
        table, _, column = name.partition(".")
        if column and table in newest.tables and column in newest.tables[table].fields:
            rows[name] = _values(snapshot, newest.tables[table], column)
    left = set(names) - rows.keys()
    purged = {each.path for each in newest.dropped if each.purged}
    held: dict[str, HeldData] = {}
    numbers = list(kept_versions(snapshot.store, snapshot.line))
    for line, n in numbers:
        if not left:
            break
        manifest = newest if (line, n) == (newest.line, newest.n) else find_manifest(snapshot.store, n, line)
        tables = {} if manifest is None else manifest.tables
        for name in sorted(left):
            table, _, column = name.partition(".")
            entry = tables.get(table)
            if entry is None or not entry.rows or entry.path in purged or (column and column not in entry.fields):
                continue
            held[name] = HeldData(n, _values(snapshot, entry, column) if column else entry.rows)
            left.discard(name)
    return KeptData(newest.n, rows, held, complete=len(numbers) == newest.n)


def _values(snapshot: Snapshot, entry: TableEntry, column: str) -> int | None:
    """How many rows have a value in a column; None where its table does not open here."""
    try:
        # The driver is large to import: few plans lead back over a property.
        from gitops.database.graph.tables import count_values
    except ImportError:
        return None
    try:
        return count_values(snapshot.folder, entry, column)
    except GitopsError:
        return None
