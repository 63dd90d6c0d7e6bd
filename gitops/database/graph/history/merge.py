"""Merges one branch into another: a three-way merge by id, based on the newest common version.

1. If the target already contains the source, or the source has no changes, no version is created. If only the source
   has changes, the target gets the source's tables.
2. A table that only one side changed is taken from that side. In other tables, the source's changed rows are written.
   If both sides changed a row, the results must be equal.
3. The result is checked against the rules that two valid sides can break when they are combined.
4. If there are conflicts, all of them are reported and nothing is published. The next writer undoes the staged work.
5. The resulting version records both parents, so the next merge starts from here.
6. Criss-cross merges have several bases. If a row differs between bases, its result must be equal on both sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.database.graph.ancestry import includes_version, merge_bases
from gitops.database.graph.history.diff import Row, RowDelta, TableVersion, row_deltas
from gitops.database.graph.image import GraphImage, row_violations
from gitops.database.graph.lines import check_name
from gitops.database.graph.manifest import Manifest, TableEntry
from gitops.database.graph.results import BranchMergeResult, MergeStatus, RowProblem
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext, hold_lease
from gitops.database.graph.tables import TableWriter, arrow_table, declared_type, key_columns, stage_rows
from gitops.database.graph.write.committed import CommittedTable
from gitops.database.language.schema import EdgeType


def merge_branch(uri: str, source: str, into: str, context: WriteContext) -> BranchMergeResult:
    """Merge branch `source` into branch `into` as one version. Conflicts are returned, not raised.

    Raises GitopsError `graph_merge_schema` if the schemas differ, `graph_branch_missing`, `graph_branch_name`,
    `graph_version_gone`; UsageError if source and target are the same; ConflictError `graph_conflict` if another writer
    published first; RemoteError `storage_failed`.
    """
    source, into = check_name(source), check_name(into)
    if source == into:
        raise UsageError(
            Code.USAGE_ERROR,
            f"branch {source} cannot be merged into itself",
            fix="use a different branch; list them: gitops graph branch list GRAPH",
        )
    with find_root(uri).lease(), contextlib.ExitStack() as stack:
        target, origin = open_snapshot(uri, ReadTarget(into)), open_snapshot(uri, ReadTarget(source))
        stack.enter_context(hold_lease(origin, context))
        nothing = BranchMergeResult(MergeStatus.UP_TO_DATE, source, into, target.manifest.n, target.manifest.txn_id)
        if includes_version(target.manifest, origin.manifest.ref):
            return nothing
        bases = merge_bases(target.store, target.manifest, origin.manifest)
        if len({manifest.schema_ir for manifest in (target.manifest, origin.manifest, *bases)}) > 1:
            detail = f"{source} and {into} have different schemas; only branches with the same schema can be merged"
            raise GitopsError(Code.GRAPH_MERGE_SCHEMA, detail, path=target.root.location)
        if all(base.tables == origin.manifest.tables for base in bases):
            return nothing
        tables, rows, status = origin.manifest.tables, {}, MergeStatus.FAST_FORWARD
        if not includes_version(origin.manifest, target.manifest.ref):
            merge = _Merge(target, origin, bases)
            if merge.conflicts:
                return replace(nothing, status=MergeStatus.CONFLICT, conflicts=tuple(sorted(set(merge.conflicts))))
            tables, rows, status = merge.tables, merge.rows, MergeStatus.MERGED
        context.faults.reach("engine.merge.staged")
        staged = StagedVersion(
            target,
            "merge",
            context,
            tables=tables,
            merge_parent=origin.manifest.ref,
            lineage=origin.manifest.reach,
            message=context.message or f"merge branch {origin.branch}",
        )
        version = staged.publish()
    return BranchMergeResult(status, source, into, version, staged.manifest.txn_id, rows, published=staged.manifest)


class _Merge:
    """A merge in progress: the resulting tables, the number of rows from the source, and the conflicts."""

    def __init__(self, target: Snapshot, origin: Snapshot, bases: tuple[Manifest, ...]) -> None:
        """Merge table by table, then check the rules that the result could break (steps 2, 3 and 6)."""
        self._target, self._origin, self._bases = target, origin, bases
        self._catalog = target.schema().catalog
        self.tables: dict[str, TableEntry] = dict(target.manifest.tables)
        self.rows: dict[str, int] = {}
        self.conflicts: list[RowProblem] = []
        for key in sorted(self.tables):
            self._merge_table(key)
        in_conflict = {(conflict.table, conflict.id) for conflict in self.conflicts}
        self.conflicts += [each for each in self._broken_rules() if (each.table, each.id) not in in_conflict]

    def _deltas(self, key: str, before: TableEntry | None, after: TableEntry | None) -> Iterator[RowDelta]:
        folder, declared = self._target.folder, declared_type(self._catalog, key)
        return row_deltas(TableVersion(folder, before, declared), TableVersion(folder, after, declared))

    def _merge_table(self, key: str) -> None:
        ours, theirs = (at.manifest.tables[key] for at in (self._target, self._origin))
        first, *others = (base.tables.get(key) for base in self._bases)
        if theirs == ours or all(entry == theirs for entry in (first, *others)):
            return
        coming = {delta.id: delta for delta in self._deltas(key, first, theirs)}
        if all(entry == ours for entry in (first, *others)):
            self.tables[key], self.rows[key] = theirs, len(coming)
            return
        mine = {delta.id: delta for delta in self._deltas(key, first, ours)}
        doubtful = {delta.id for base in others for delta in self._deltas(key, first, base)}
        for row_id in sorted(doubtful & (mine.keys() - coming.keys())):
            own = mine[row_id]
            self._conflict(key, row_id, own.before, own.after, own.before)
        wanted: dict[str, Row | None] = {}
        for row_id, delta in coming.items():
            if row_id in mine:
                own = mine[row_id]
                if RowDelta(row_id, own.after, delta.after).fields or (own.after is None) != (delta.after is None):
                    self._conflict(key, row_id, own.before, own.after, delta.after)
            elif row_id in doubtful:
                self._conflict(key, row_id, delta.before, delta.before, delta.after)
            else:
                wanted[row_id] = delta.after
        if wanted:
            self.tables[key], self.rows[key] = self._write_table(key, ours, wanted), len(wanted)

    def _conflict(self, key: str, row_id: str, before: Row | None, mine: Row | None, coming: Row | None) -> None:
        """Record a row's conflicts, one for each property that differs between the sides."""
        fields: tuple[str, ...] = ("",)
        if mine is None or coming is None:
            kind = "DeleteVsUpdate"
            removed, kept = (self._target, self._origin) if mine is None else (self._origin, self._target)
            detail = f"{removed.branch} removed the row, {kept.branch} changed it"
        else:
            kind = "DivergentInsert" if before is None else "DivergentUpdate"
            fields = RowDelta(row_id, mine, coming).fields
            detail = f"{self._target.branch} and {self._origin.branch} gave it different values"
        self.conflicts += [RowProblem(key, row_id, kind, name, detail) for name in fields]

    def _write_table(self, key: str, entry: TableEntry, wanted: Mapping[str, Row | None]) -> TableEntry:
        """Stage a target table in which these rows replace the rows with the same ids."""
        folder, declared = self._target.folder, declared_type(self._catalog, key)
        rows = [row for row in wanted.values() if row is not None]
        columns = {name: [row[name] for row in rows] for name in (*key_columns(declared), *declared.properties)}
        staged = stage_rows(folder, entry, arrow_table(declared, columns)) if rows else []
        gone = CommittedTable(folder, entry, declared).addresses(wanted.keys())
        writer = TableWriter(folder, entry)
        writer.exchange(staged, gone.values())
        return writer.finish(recount=True)

    def _broken_rules(self) -> Iterator[RowProblem]:
        """Return violations of rules that the merge breaks. Only rules that involve changes from both sides can break."""
        ours, theirs = self._target.manifest.tables, self._origin.manifest.tables

        def mixed(*keys: str) -> bool:
            return any(self.tables[k] != ours[k] for k in keys) and any(self.tables[k] != theirs[k] for k in keys)

        image = GraphImage(self._target.folder, self.tables, self._catalog)
        for key in sorted(self.tables):
            declared = image.declared(key)
            if mixed(key):
                yield from image.unique(key)
                # Each row is from one side, so single-row rules are checked only for rows from the source.
                for delta in self._deltas(key, ours[key], self.tables[key]):
                    if delta.after is not None:
                        yield from row_violations(key, declared, delta.after)
            if isinstance(declared, EdgeType):
                if mixed(key):
                    yield from image.cardinality(key)
                if mixed(key, f"node:{declared.source}", f"node:{declared.target}"):
                    yield from image.orphans(key)
