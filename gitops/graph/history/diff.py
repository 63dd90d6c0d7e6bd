"""What changed between two versions of a graph, row by row.

Only tables whose versions differ are looked at. Tables are paired by their folder, so a renamed type keeps its rows; a type that
one version does not have counts as empty there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.history.deltas import Row, RowDelta, TableVersion, row_deltas
from gitops.graph.manifest import TableEntry
from gitops.graph.results import ChangeKind, DiffSummary, RowChange
from gitops.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.graph.tables import declared_type
from gitops.graph.values import cell_to_json
from gitops.language.schema import EdgeType, NodeType

__all__ = ["diff_versions", "summarize_diff"]


def diff_versions(uri: str, before: ReadTarget, after: ReadTarget, types: tuple[str, ...] = ()) -> Iterator[RowChange]:
    """The rows that differ, table by table in key order and by id; `types` (names or keys) leaves only these.

    Rows come as they are found. Raises GitopsError `graph_missing` for a type that neither version has; and as `open_snapshot`.
    """
    yield from _row_changes(open_snapshot(uri, before), open_snapshot(uri, after), types)


def summarize_diff(uri: str, before: ReadTarget, after: ReadTarget, types: tuple[str, ...] = ()) -> DiffSummary:
    """How many rows differ. Raises as `diff_versions`."""
    one, other = open_snapshot(uri, before), open_snapshot(uri, after)
    counts: dict[str, dict[str, int]] = {}
    for change in _row_changes(one, other, types):
        table = counts.setdefault(change.table, {kind.value: 0 for kind in ChangeKind})
        table[change.kind.value] += 1
    return DiffSummary(
        one.manifest.ref,
        other.manifest.ref,
        one.manifest.schema_ir == other.manifest.schema_ir,
        dict(sorted(counts.items())),
    )


def _row_changes(one: Snapshot, other: Snapshot, types: tuple[str, ...]) -> Iterator[RowChange]:
    old, new = one.schema().catalog, other.schema().catalog
    for key, (was, now) in _pair_tables(one, other, types).items():
        declared_old = None if was is None else declared_type(old, was)
        declared_new = None if now is None else declared_type(new, now)
        before = TableVersion(one.folder, _entry(one, was), declared_old)
        after = TableVersion(other.folder, _entry(other, now), declared_new)
        for delta in row_deltas(before, after):
            yield _to_row_change(key, delta, declared_old, declared_new)


def _pair_tables(one: Snapshot, other: Snapshot, types: tuple[str, ...]) -> dict[str, tuple[str | None, str | None]]:
    """Under the name that people know now: the key of each table on both sides."""
    folders = {entry.path: key for key, entry in one.manifest.tables.items()}
    pairs = {key: (folders.pop(entry.path, None), key) for key, entry in sorted(other.manifest.tables.items())}
    found: dict[str, tuple[str | None, str | None]] = {**pairs}
    for key in folders.values():
        # A type that was dropped and declared again has another folder: both are compared under one name.
        again = key in pairs and pairs[key][0] is None
        found[key if key not in pairs or again else f"{key} (dropped)"] = (key, key if again else None)
    names = {key: {key, key.partition(":")[2]} for key in found}
    odd = [name for name in types if not any(name in known for known in names.values())]
    if odd:
        raise GitopsError(Code.GRAPH_MISSING, f"neither version has a type {odd[0][:80]!r}", path=one.root.location)
    return {key: found[key] for key in sorted(found) if not types or names[key] & set(types)}


def _entry(snapshot: Snapshot, key: str | None) -> TableEntry | None:
    return None if key is None else snapshot.manifest.tables[key]


def _to_row_change(
    key: str, delta: RowDelta, old: NodeType | EdgeType | None, new: NodeType | EdgeType | None
) -> RowChange:
    if delta.before is None or delta.after is None:
        kind = ChangeKind.ADDED if delta.before is None else ChangeKind.REMOVED
    else:
        kind = ChangeKind.CHANGED
    return RowChange(key, kind, delta.id, delta.fields, row_to_json(delta.before, old), row_to_json(delta.after, new))


def row_to_json(row: Row | None, declared: NodeType | EdgeType | None) -> dict[str, Any] | None:
    """The cells of a row as JSON values."""
    if row is None or declared is None:
        return None
    kinds = declared.properties
    return {name: cell_to_json(cell, kinds[name]) if name in kinds else cell for name, cell in row.items()}
