"""Restores some types' rows from an earlier graph version, as a new version and without copying rows.

1. The earlier version is opened. Each type must have the same columns then and now, and its data must not be purged.
2. The new version refers to the earlier version's tables for these types. All other tables are unchanged.
3. The schema rules are checked on these tables, and on every edge type with an end in one of them. If an edge lacks an
   end node, this is an error and nothing is restored.
4. If the newest version already has these tables, nothing is done.

The previous version is kept for seven days, as before a drop, so a second restore can undo the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.manifest import RESTORE, TableEntry, find_manifest
from gitops.database.graph.port import RestoreOrder
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.language.schema import Catalog, EdgeType


def restored_tables(uri: str, now: Snapshot, catalog: Catalog, order: RestoreOrder) -> dict[str, TableEntry]:
    """Carry out steps 1 and 2 and return the tables to restore, by key.

    `catalog` is the catalog of the current schema, or of the schema that the graph is about to get.

    Raises GitopsError `graph_restore_refused`; the errors of `open_snapshot` for the earlier version.
    """
    earlier = open_snapshot(uri, ReadTarget(version=order.version))
    before = earlier.schema().catalog
    purged = {each.path for each in now.manifest.dropped if each.purged}
    found: dict[str, TableEntry] = {}
    for name in order.types:
        kind = "edge" if name in catalog.edges else "node"
        key = f"{kind}:{name}"
        was, wanted = _columns(before, kind, name), _columns(catalog, kind, name)
        if wanted is None:
            raise _refused(uri, f"the schema has no type {name}")
        if was is None:
            raise _refused(uri, f"version {order.version} has no {kind} type {name}")
        if was != wanted:
            raise _refused(
                uri, f"type {name} has different properties in version {order.version} from those in the schema"
            )
        entry = earlier.manifest.tables[key]
        if entry.path in purged:
            raise _refused(uri, f"the rows that version {order.version} had of {name} were removed permanently")
        found[key] = entry
    return found


def find_restore(snapshot: Snapshot, fence: int, since: int) -> bool:
    """Return whether restore number `fence` made a version after `since`, up to the snapshot's version.

    Raises GitopsError `graph_version_gone` if it is not found and some versions are no longer kept.
    """
    newest, store = snapshot.manifest, snapshot.store
    gone = 0
    for n in range(newest.n, since, -1):
        manifest = newest if n == newest.n else find_manifest(store, n, newest.line)
        if manifest is None:
            gone = n
        elif (manifest.operation, manifest.fence) == (RESTORE, fence):
            return True
        elif (manifest.fence or 0) < fence:
            # Numbers never decrease, so older versions were made before the restore.
            break
    if gone:
        detail = (
            f"version {gone} of {snapshot.root.location} is no longer kept, and may be the restore of operation {fence}"
        )
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=snapshot.root.location)
    return False


def check_rules(snapshot: Snapshot, tables: dict[str, TableEntry], restored: dict[str, TableEntry]) -> None:
    """Carry out step 3. Raises GitopsError `graph_restore_refused` with the first broken rule."""
    from gitops.database.graph.image import GraphImage

    catalog = snapshot.schema().catalog
    image = GraphImage(snapshot.folder, tables, catalog)

    def problems() -> Iterator[str]:
        for key in restored:
            yield from (each.detail for each in chain(image.duplicate_ids(key), image.unique(key), image.values(key)))
        for name, edge in catalog.edges.items():
            if restored.keys() & {f"edge:{name}", f"node:{edge.source}", f"node:{edge.target}"}:
                key = f"edge:{name}"
                yield from (each.detail for each in chain(image.orphans(key), image.cardinality(key)))

    broken = next(problems(), None)
    if broken is not None:
        raise _refused(snapshot.root.location, broken)


def _columns(catalog: Catalog, kind: str, name: str) -> object:
    declared = (catalog.edges if kind == "edge" else catalog.nodes).get(name)
    if declared is None:
        return None
    ends = (declared.source, declared.target) if isinstance(declared, EdgeType) else ()
    return dict(declared.properties), ends


def _refused(uri: str, detail: str) -> GitopsError:
    return GitopsError(Code.GRAPH_RESTORE_REFUSED, detail, path=uri)
