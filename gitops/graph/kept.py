"""What the versions of a graph that are kept hold, by their manifests alone: no table is opened.

What a migration dropped is in the version before it, until gc or a purge removes that one.
"""

from __future__ import annotations

from collections.abc import Collection

from gitops.graph.manifest import find_manifest
from gitops.graph.port import HeldData, KeptData
from gitops.graph.snapshot import Snapshot, kept_versions

__all__ = ["find_kept"]


def find_kept(snapshot: Snapshot, names: Collection[str]) -> KeptData:
    """The newest version that has rows of each table or column of `names`; versions are read until all are found."""
    newest, left = snapshot.manifest, set(names)
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
            held[name] = HeldData(n, entry.rows)
            left.discard(name)
    rows = {key: entry.rows for key, entry in newest.tables.items()}
    return KeptData(newest.n, rows, held, complete=len(numbers) == newest.n)
