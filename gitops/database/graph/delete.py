"""Deletes a graph: only one incarnation, with at most the permitted number of rows, and only for the newest run.

1. If the root is absent, only leftovers of an interrupted delete of this incarnation are removed.
2. The root is leased, and must contain the incarnation in the order.
3. The order is refused if an operation with a higher fence was here, if the graph has more rows than the order permits,
   if rows were replaced since the version at which its approvals were checked, or if one of its approvals already
   deleted this incarnation, which means that a backup was restored.
4. The version `delete` is published on top of the checked version. This is the point of no return. If a writer
   published in between, that writer wins and the steps begin again. Every later writer fails, and the graph no longer
   opens.
5. A marker next to the root records the approvals by which the incarnation was deleted.
6. The files are removed. If a run is interrupted after step 4, the next run continues with step 5.

Replaced rows of an earlier version are counted without reading a column:

1. Tables are paired by their folder, which a renamed type keeps. Unchanged tables are not opened.
2. A row is identified by its row id and the table version that wrote it, because an updated row can keep its id.
   Compaction, indexes and migrations keep both because they write no row.
3. Pairs of removed and added rows count as replaced rows. Rows that were only deleted make a graph smaller, and rows
   that were only added are growth, which a separate rule limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import TEXT, ULID, list_of, record
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import around
from gitops.database.graph.manifest import (
    DELETE,
    FENCE,
    TIME,
    Manifest,
    TableEntry,
    graph_document,
    number,
    read_document,
)
from gitops.database.graph.port import DeleteOrder, Existence
from gitops.database.graph.root import GraphRoot
from gitops.database.graph.snapshot import Snapshot, find_root, held_rows, open_newest, read_version
from gitops.database.graph.staged import StagedVersion, WriteContext, retry_until_published


@dataclass(frozen=True, slots=True)
class Deletion:
    """The marker of a deleted incarnation: its last version, its row count, and the approvals of every delete."""

    incarnation: str
    version: int
    rows: int
    approvals: tuple[str, ...]
    at: str


DELETION = graph_document(
    {
        1: record(
            Deletion,
            {"incarnation": ULID, "version": number(1), "rows": number(0), "approvals": list_of(TEXT), "at": TIME},
        )
    }
)


def delete_graph(uri: str, order: DeleteOrder, context: WriteContext) -> None:
    """Delete a graph by the steps in this module's docstring. Raises the same errors as `GraphEngine.delete`."""
    retry_until_published(partial(_delete, find_root(uri), order, context), lambda _: None)


def check_delete(uri: str, order: DeleteOrder) -> None:
    """Raise the errors of steps 2 and 3, but do not check the fence, because the deleting run has no number yet."""
    root = find_root(uri)
    if root.existence() is Existence.ABSENT:
        return
    snapshot = open_newest(root)
    _check_incarnation(snapshot, order)
    if snapshot.manifest.operation != DELETE:
        _check_order(snapshot, order)


def finish_delete(uri: str, context: WriteContext) -> None:
    """Carry out steps 5 and 6 if step 4 is done, and clear an absent root.

    Raises the same errors as `GraphEngine.finish_delete`.
    """
    retry_until_published(partial(_finish, find_root(uri), context), lambda _: None)


def deleted_by(uri: str, incarnation: str) -> frozenset[str]:
    """Return the approvals in an incarnation's marker, or an empty set if there is no marker. Raises GitopsError."""
    found = _read_marker(find_root(uri), incarnation)
    return frozenset() if found is None else frozenset(found.approvals)


def raise_fence(uri: str, fence: int, context: WriteContext) -> None:
    """Publish a version that changes only the fence. Does nothing if the root is absent."""
    root = find_root(uri)

    def attempt() -> None:
        if root.existence() is Existence.ABSENT:
            return
        snapshot = open_newest(root)
        if snapshot.manifest.operation != DELETE:
            raised = max(fence, (snapshot.manifest.fence or 0) + 1)
            StagedVersion(snapshot, FENCE, context, stamp=timestamp, fence=raised).publish()

    retry_until_published(attempt, lambda _: None)


def check_fence(snapshot: Snapshot, fence: int | None) -> None:
    """Raise ConflictError `graph_fenced` if an operation with a higher number came first."""
    last = snapshot.manifest.fence or 0
    if fence is not None and fence < last:
        place = snapshot.root.location
        detail = f"operation {fence} was overtaken at {place} by operation {last}"
        raise ConflictError(Code.GRAPH_FENCED, detail, path=place)


def _delete(root: GraphRoot, order: DeleteOrder, context: WriteContext) -> None:
    if root.existence() is Existence.ABSENT:  # 1
        root.remove_incarnation(order.incarnation, context.faults)
        return
    with root.lease():  # 2
        snapshot = open_newest(root)
        manifest = snapshot.manifest
        _check_incarnation(snapshot, order)
        if manifest.operation != DELETE:
            check_fence(snapshot, order.fence)  # 3
            _check_order(snapshot, order)
            staged = StagedVersion(
                snapshot, DELETE, context, stamp=timestamp, fence=order.fence, approvals=order.approvals
            )
            staged.publish()  # 4
            manifest = staged.manifest
        _remove(snapshot, manifest, context)


def _finish(root: GraphRoot, context: WriteContext) -> None:
    if root.existence() is Existence.ABSENT:
        root.reclaim()
        return
    with root.lease():
        snapshot = open_newest(root)
        if snapshot.manifest.operation == DELETE:
            _remove(snapshot, snapshot.manifest, context)


def _remove(snapshot: Snapshot, manifest: Manifest, context: WriteContext) -> None:
    """Carry out steps 5 and 6; `manifest` is the graph's version `delete`."""
    root, incarnation = snapshot.root, snapshot.identity.graph_id
    known = _read_marker(root, incarnation)
    before = () if known is None else known.approvals
    approvals = tuple(dict.fromkeys((*before, *manifest.approvals)))
    marker = Deletion(incarnation, manifest.n, held_rows(snapshot), approvals, manifest.ts)
    with around(context.faults, "engine.delete", "marker"):
        root.beside().write(_key(root, incarnation), DELETION.write(marker))  # 5
    with around(context.faults, "engine.delete", "remove"):
        root.remove_incarnation(incarnation, context.faults)  # 6


def _check_incarnation(snapshot: Snapshot, order: DeleteOrder) -> None:
    place, found = snapshot.root.location, snapshot.identity.graph_id
    if found != order.incarnation:
        detail = f"{place} contains graph {found}, but the delete is for {order.incarnation}"
        raise ConflictError(Code.GRAPH_REPLACED, detail, path=place)


def _check_order(snapshot: Snapshot, order: DeleteOrder) -> None:
    """Carry out step 3, except for the fence."""
    place, rows = snapshot.root.location, held_rows(snapshot)
    if rows > order.max_rows:
        detail = f"{place} has {rows:,} rows, but the approvals permit deleting at most {order.max_rows:,}"
        raise GitopsError(Code.GRAPH_GROWN, detail, path=place)
    if order.version is not None:
        since = order.version
        try:
            replaced = replaced_rows(snapshot, since)
        except RemoteError:
            raise
        except GitopsError as error:
            # The order is also refused if the versions cannot be compared.
            detail = f"it is not known whether rows of {place} were replaced since version {since}: {error.detail}"
            raise GitopsError(Code.GRAPH_ROWS_REPLACED, detail, path=place) from error
        if replaced:
            were = "was" if replaced == 1 else "were"
            detail = f"of the rows of {place} in version {since}, {replaced:,} {were} replaced after the approvals were checked"
            raise GitopsError(Code.GRAPH_ROWS_REPLACED, detail, path=place)
    known = _read_marker(snapshot.root, order.incarnation)
    used = () if known is None else sorted(set(known.approvals) & set(order.approvals))
    if known is not None and used:
        detail = f"approval {used[0]} deleted this graph at {known.at}, and it was restored since"
        raise GitopsError(Code.GRAPH_RESTORED, detail, path=place)


def _key(root: GraphRoot, incarnation: str) -> str:
    return f"deleted/{root.location.rpartition('/')[2]}/{incarnation}.json"


def _read_marker(root: GraphRoot, incarnation: str) -> Deletion | None:
    store, key = root.beside(), _key(root, incarnation)
    data = store.read(key)
    return None if data is None else read_document(DELETION, data, store.display(key))


def replaced_rows(now: Snapshot, since: int, types: Collection[str] = (), rows: int = 0) -> int:
    """Count the rows of version `since` that have been replaced since then, in the given types or in all types.

    If that version has fewer than `rows`, the first later version with that many rows counts, because a person without
    the graph knows only the version in the ledger and the number of rows loaded since. Raises GitopsError
    `graph_version_unknown`, `graph_version_gone`, `graph_unreadable`, `engine_unavailable`; RemoteError
    `storage_failed`.
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
            # Importing the driver is slow and seldom needed: few graphs are written between approval and change.
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
    # `rows` includes branches, so it can exceed every version of `main`.
    return read_version(now.store, now.line, since)


def _by_folder(manifest: Manifest, types: Collection[str]) -> Mapping[str, TableEntry]:
    tables = manifest.tables.items()
    return {entry.path: entry for key, entry in tables if not types or key.partition(":")[2] in types}
