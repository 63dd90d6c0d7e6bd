"""Merging one branch into another: three-way, by id, against the newest version that both descend from.

1. If the target already contains the source, or the source has no changes, no version is made. If the target has no changes of
   its own, its tables become those of the source.
2. A table that one side alone changed is taken from that side as it is. Of other tables the rows that the source changed are
   put in; a row that both sides changed must have come out the same.
3. The image that results is checked, as far as a rule can be broken by putting two sides together that keep it.
4. If there is a conflict, nothing is published and all conflicts are reported. The next writer undoes what was staged.
5. The version that results names both parents, so the next merge starts from here.
6. Where merges crossed each other there are several bases. A row in which these differ must have come out the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.graph.history.deltas import Row, RowDelta, TableVersion, row_deltas
from gitops.graph.history.image import GraphImage, row_violations
from gitops.graph.history.leases import hold_lease
from gitops.graph.history.lineage import includes_version, merge_bases
from gitops.graph.lines import check_name
from gitops.graph.manifest import Manifest, TableEntry
from gitops.graph.results import MergeResult, MergeStatus, RowProblem
from gitops.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.graph.staged import StagedVersion, WriteContext
from gitops.graph.tables import TableWriter, arrow_table, declared_type, key_columns, stage_rows
from gitops.graph.write.committed import CommittedTable
from gitops.language.schema import Catalog, EdgeType, NodeType

__all__ = ["merge_branch"]


def merge_branch(uri: str, source: str, into: str, context: WriteContext) -> MergeResult:
    """Bring what branch `source` has into branch `into`, in one version. Conflicts come back in the result.

    Raises GitopsError `graph_merge_schema` when the schemas differ, `graph_branch_missing`, `graph_branch_name`,
    `graph_version_gone`; UsageError for a branch and itself; ConflictError `graph_conflict` when another writer published first;
    RemoteError `storage_failed`.
    """
    source, into = check_name(source), check_name(into)
    if source == into:
        raise UsageError(Code.USAGE_ERROR, f"branch {source} cannot be merged into itself")
    with find_root(uri).lease(), contextlib.ExitStack() as stack:
        target, origin = open_snapshot(uri, ReadTarget(into)), open_snapshot(uri, ReadTarget(source))
        stack.enter_context(hold_lease(origin, context))
        nothing = MergeResult(MergeStatus.UP_TO_DATE, source, into, target.manifest.n, target.manifest.txn_id)
        if includes_version(target.manifest, origin.manifest.ref):
            return nothing
        bases = merge_bases(target.store, target.manifest, origin.manifest)
        if len({manifest.schema_ir for manifest in (target.manifest, origin.manifest, *bases)}) > 1:
            detail = f"{source} and {into} have different schemas; merge branches of one schema only"
            raise GitopsError(Code.GRAPH_MERGE_SCHEMA, detail, path=target.root.location)
        if all(base.tables == origin.manifest.tables for base in bases):
            return nothing
        if includes_version(origin.manifest, target.manifest.ref):
            plan, status = _MergePlan(dict(origin.manifest.tables)), MergeStatus.FAST_FORWARD
        else:
            plan, status = _merge_tables(target, origin, bases), MergeStatus.MERGED
        if plan.conflicts:
            return replace(nothing, status=MergeStatus.CONFLICT, conflicts=tuple(sorted(set(plan.conflicts))))
        context.faults.reach("engine.merge.staged")
        staged = StagedVersion(
            target,
            "merge",
            context,
            tables=plan.tables,
            merge_parent=origin.manifest.ref,
            lineage=origin.manifest.reach,
            message=context.message or f"merge branch {origin.branch}",
        )
        version = staged.publish()
    return MergeResult(status, source, into, version, staged.manifest.txn_id, plan.rows)


@dataclass(slots=True)
class _MergePlan:
    """The tables of the version that results, how many rows the source brought, and the conflicts."""

    tables: dict[str, TableEntry]
    rows: dict[str, int] = field(default_factory=dict)
    conflicts: list[RowProblem] = field(default_factory=list)


def _merge_tables(target: Snapshot, origin: Snapshot, bases: tuple[Manifest, ...]) -> _MergePlan:
    catalog = target.schema().catalog
    plan = _MergePlan(dict(target.manifest.tables))
    for key in sorted(plan.tables):
        _merge_table(_MergeTable(key, declared_type(catalog, key), bases, target, origin), plan)
    in_conflict = {(conflict.table, conflict.id) for conflict in plan.conflicts}
    for conflict in _broken_rules(target, origin, plan, catalog):
        if (conflict.table, conflict.id) not in in_conflict:
            plan.conflicts.append(conflict)
    return plan


@dataclass(frozen=True, slots=True)
class _MergeTable:
    """One table in all versions that take part."""

    key: str
    declared: NodeType | EdgeType
    bases: tuple[Manifest, ...]
    target: Snapshot
    origin: Snapshot

    def side(self, manifest: Manifest) -> TableVersion:
        return TableVersion(self.target.folder, manifest.tables.get(self.key), self.declared)

    def deltas(self, before: Manifest, after: Manifest) -> dict[str, RowDelta]:
        return {delta.id: delta for delta in row_deltas(self.side(before), self.side(after))}


def _merge_table(table: _MergeTable, plan: _MergePlan) -> None:
    ours, theirs = (at.manifest.tables[table.key] for at in (table.target, table.origin))
    old = [base.tables.get(table.key) for base in table.bases]
    if theirs == ours or all(entry == theirs for entry in old):
        return
    if all(entry == ours for entry in old):
        plan.tables[table.key] = theirs
        plan.rows[table.key] = len(table.deltas(table.bases[0], table.origin.manifest))
        return
    first, *others = table.bases
    mine = table.deltas(first, table.target.manifest)
    coming = table.deltas(first, table.origin.manifest)
    doubtful = {row_id for base in others for row_id in table.deltas(first, base)}
    for row_id in sorted(doubtful & (mine.keys() - coming.keys())):
        plan.conflicts += _conflicts(table, mine[row_id], None)
    wanted: dict[str, Row | None] = {}
    for row_id, delta in coming.items():
        own = mine.get(row_id)
        if own is None and row_id not in doubtful:
            wanted[row_id] = delta.after
        elif (
            own is None
            or RowDelta(row_id, own.after, delta.after).fields
            or (own.after is None) != (delta.after is None)
        ):
            plan.conflicts += _conflicts(table, own, delta)
    if wanted:
        plan.tables[table.key] = _write_table(table, ours, wanted)
        plan.rows[table.key] = len(wanted)


def _conflicts(table: _MergeTable, own: RowDelta | None, delta: RowDelta | None) -> Iterator[RowProblem]:
    """The conflicts of one row, one for each property in which the sides differ."""
    some = own or delta
    if some is None:
        return
    mine = own.after if own is not None else some.before
    coming = delta.after if delta is not None else some.before
    if mine is None or coming is None:
        kind, fields = "DeleteVsUpdate", [""]
        removed, kept = (table.target, table.origin) if mine is None else (table.origin, table.target)
        detail = f"{removed.branch} removed the row, {kept.branch} changed it"
    else:
        kind = "DivergentInsert" if some.before is None else "DivergentUpdate"
        fields = list(RowDelta(some.id, mine, coming).fields)
        detail = f"{table.target.branch} and {table.origin.branch} gave it different values"
    yield from (RowProblem(table.key, some.id, kind, name, detail) for name in fields)


def _write_table(table: _MergeTable, entry: TableEntry, wanted: Mapping[str, Row | None]) -> TableEntry:
    """Stage the table of the target with these rows in place of those with their ids."""
    folder = table.target.folder
    known = folder.begin(entry.path)
    rows = [row for row in wanted.values() if row is not None]
    names = (*key_columns(table.declared), *table.declared.properties)
    columns = {name: [row[name] for row in rows] for name in names}
    staged = stage_rows(folder, entry, arrow_table(table.declared, columns)) if rows else []
    gone = CommittedTable(folder, entry, table.declared).addresses(wanted.keys())
    writer = TableWriter(folder, entry, known)
    writer.exchange(staged, gone.values())
    return writer.finish(recount=True)


def _broken_rules(target: Snapshot, origin: Snapshot, plan: _MergePlan, catalog: Catalog) -> Iterator[RowProblem]:
    """Rules that each side keeps and the merge breaks. Only a rule that spans changes of both sides can be broken."""

    def mixed(*keys: str) -> bool:
        ours, theirs = target.manifest.tables, origin.manifest.tables
        return any(plan.tables[k] != ours[k] for k in keys) and any(plan.tables[k] != theirs[k] for k in keys)

    image = GraphImage(target.folder, plan.tables, catalog)
    for key in sorted(plan.tables):
        declared = image.declared(key)
        found = []
        if mixed(key):
            found += [*image.unique(key), *_row_violations(target, plan, key, declared)]
        if isinstance(declared, EdgeType):
            if mixed(key):
                found += image.cardinality(key)
            if mixed(key, f"node:{declared.source}", f"node:{declared.target}"):
                found += image.orphans(key)
        yield from found


def _row_violations(target: Snapshot, plan: _MergePlan, key: str, declared: NodeType | EdgeType) -> Iterator[Any]:
    """Rules of single rows: each row comes from one side, so only rows that came in are looked at."""
    before = TableVersion(target.folder, target.manifest.tables[key], declared)
    for delta in row_deltas(before, TableVersion(target.folder, plan.tables[key], declared)):
        if delta.after is not None:
            yield from row_violations(key, declared, delta.after)
