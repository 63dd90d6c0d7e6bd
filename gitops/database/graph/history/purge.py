"""Permanent removal of types and properties that were dropped softly.

A soft drop leaves the data in older versions. `purge_dropped` reads every kept version of `main`, finds what the current schema
no longer has, and publishes one version without it, as a hard drop would have done: the rest of a table that lost a property is
copied to a new folder, and the old folder is removed with all its versions. Older versions of the graph stay, but the tables
concerned can no longer be opened there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from gitops.database.graph.history.leases import hold_lease
from gitops.database.graph.maintenance import PurgeResult
from gitops.database.graph.manifest import DroppedTable, find_manifest, line_numbers
from gitops.database.graph.migrate import copy_table
from gitops.database.graph.snapshot import find_root, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext, require_no_branches

__all__ = ["purge_dropped"]


def purge_dropped(uri: str, context: WriteContext, *, dry_run: bool = False) -> PurgeResult:
    """Remove dropped data permanently. Readers of older versions lose the tables concerned: that is the purpose.

    Raises as `open_snapshot`; ConflictError `graph_has_branches`, and `graph_conflict` when another writer published first;
    RemoteError `storage_failed`.
    """
    with find_root(uri).lease():
        snapshot = open_snapshot(uri)
        require_no_branches(snapshot)
        base, version = snapshot.manifest, snapshot.manifest.n
        types = [entry for entry in base.dropped if not entry.purged]
        # Names of columns that the current tables had before, by table key; a column keeps its number under every name.
        keys = {entry.path: key for key, entry in base.tables.items()}
        lost: dict[str, set[str]] = defaultdict(set)
        for n in line_numbers(snapshot.store):
            manifest = find_manifest(snapshot.store, n)
            for entry in () if manifest is None else manifest.tables.values():
                if (key := keys.get(entry.path)) is not None:
                    now = set(base.tables[key].fields.values())
                    lost[key].update(name for name, number in entry.fields.items() if number not in now)
        properties = {key: tuple(sorted(names)) for key, names in lost.items() if names}
        if not dry_run and (types or properties):
            with hold_lease(snapshot, context):
                tables, gone, catalog = dict(base.tables), [], snapshot.schema().catalog
                for key in sorted(properties):
                    entry = base.tables[key]
                    gone.append(DroppedTable(key, entry.path, entry.version, purged=True))
                    tables[key] = copy_table(snapshot.folder, entry, catalog, key, context.ids)
                version = StagedVersion(
                    snapshot,
                    "migrate",
                    context,
                    purged=[entry.path for entry in (*types, *gone)],
                    tables=tables,
                    dropped=(*(replace(entry, purged=True) for entry in base.dropped), *gone),
                    message="what was dropped is purged",
                ).publish()
    return PurgeResult(dry_run, version, tuple(sorted(entry.key for entry in types)), properties)
