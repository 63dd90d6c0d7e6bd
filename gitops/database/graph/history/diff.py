"""Computes the changes between two graph versions, row by row, without reading shared parts.

Only tables whose versions differ are compared. Tables are paired by their folder, so a renamed type keeps its rows; a
type missing from one version counts as empty there. Within a table:

1. Fragments with the same files and the same deletions in both versions contain the same rows and are not read.
2. If fragments differ only in their deletions, only rows in exactly one version are candidates.
3. Candidates are read once, paired by id, in id order, and compared column by column. Compaction moves rows without
   changing them.

A feed returns the changes of a branch, version by version and page by page, from a position that the reader stores.

1. A position consists of the last version that the reader has read completely and, within the next version, the last
   row that it has read.
2. The next page contains the rows that differ between that version and the next one on the branch, and so on, up to the
   page size. A reader that starts with all records of a version and then reads every later page has the branch's
   content.
3. If a version is no longer kept, a gap is reported and the reader must start again with all records.
4. With a `ChangeScope`, the feed is for readers that keep typed copies. It lists a version's nodes before its edges,
   and stops before a version that changes the schema of rows, because a schema change cannot be expressed as row
   changes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.database.graph.manifest import TableEntry, read_manifest
from gitops.database.graph.results import ChangeKind, DiffSummary, FeedPage, FeedPosition, RowChange
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import Memory, ReadTarget, Snapshot, kept_versions, open_snapshot, unknown_type
from gitops.database.graph.tables import (
    call_driver,
    declared_type,
    deletions_of,
    files_of,
    key_columns,
    open_table,
    raw_columns,
)
from gitops.database.graph.values import cell_to_json, compact_json
from gitops.database.language.schema import Catalog, EdgeType, NodeType, Scalar

Row = Mapping[str, Any]
RowIds = np.ndarray[Any, Any]
Place = tuple[str, str]
"""Sort position of a row among a version's changes: its table or type, and its id."""

_CHUNK = 4096
_ROW_ID = "_rowid"
_AT = "at"
_IDS = pa.schema([("id", pa.string()), (_AT, pa.int64())])


def diff_versions(uri: str, before: ReadTarget, after: ReadTarget, types: tuple[str, ...] = ()) -> Iterator[RowChange]:
    """Yield the rows that differ, in order of table key and id. `types` (names or keys) limits the tables.

    Rows are yielded as they are found. Raises GitopsError `graph_type_unknown` for a type that neither version has; the
    errors of `open_snapshot`.
    """
    yield from snapshot_changes(open_snapshot(uri, before), open_snapshot(uri, after), types)


def summarize_diff(uri: str, before: ReadTarget, after: ReadTarget, types: tuple[str, ...] = ()) -> DiffSummary:
    """Count the rows that differ. Raises the same errors as `diff_versions`."""
    one, other = open_snapshot(uri, before), open_snapshot(uri, after)
    counts: dict[str, dict[str, int]] = {}
    for change in snapshot_changes(one, other, types):
        table = counts.setdefault(change.table, {kind.value: 0 for kind in ChangeKind})
        table[change.kind.value] += 1
    return DiffSummary(
        one.manifest.ref,
        other.manifest.ref,
        one.manifest.schema_ir == other.manifest.schema_ir,
        dict(sorted(counts.items())),
    )


def snapshot_changes(one: Snapshot, other: Snapshot, types: tuple[str, ...]) -> Iterator[RowChange]:
    """Yield the rows that differ between two open versions, in the order of `diff_versions`."""
    sides = _Side(one), _Side(other)
    for key, (was, now) in _pair_tables(one, other, types).items():
        yield from _table_changes(*sides, key, was, now)


class _Side:
    """One of two compared versions, with its schema read only once."""

    def __init__(self, version: Snapshot) -> None:
        self.version = version
        self.entries = version.manifest.tables

    @cached_property
    def _catalog(self) -> Catalog:
        return self.version.schema().catalog

    def declared(self, key: str | None) -> NodeType | EdgeType | None:
        """Return the type of a table; None for None."""
        return None if key is None else declared_type(self._catalog, key)


def _table_changes(one: _Side, other: _Side, key: str, was: str | None, now: str | None) -> Iterator[RowChange]:
    """Yield a table's changed rows by id, reported as table `key`; `was` and `now` are its keys in the two versions."""
    declared_old, declared_new = one.declared(was), other.declared(now)
    before = TableVersion(one.version.folder, one.entries.get(was or ""), declared_old)
    after = TableVersion(other.version.folder, other.entries.get(now or ""), declared_new)
    for delta in row_deltas(before, after):
        kind = ChangeKind.CHANGED
        if delta.before is None or delta.after is None:
            kind = ChangeKind.ADDED if delta.before is None else ChangeKind.REMOVED
        shown = (_to_json(delta.before, declared_old), _to_json(delta.after, declared_new))
        yield RowChange(key, kind, delta.id, delta.fields, *shown)


def _pair_tables(one: Snapshot, other: Snapshot, types: tuple[str, ...]) -> dict[str, tuple[str | None, str | None]]:
    """Map each table's current key to its keys in both versions."""
    folders = {entry.path: key for key, entry in one.manifest.tables.items()}
    pairs = {key: (folders.pop(entry.path, None), key) for key, entry in sorted(other.manifest.tables.items())}
    found: dict[str, tuple[str | None, str | None]] = {**pairs}
    for key in folders.values():
        # A type that was dropped and declared again has a different folder, so both tables are compared under one name.
        again = key in pairs and pairs[key][0] is None
        found[key if key not in pairs or again else f"{key} (dropped)"] = (key, key if again else None)
    names = {key: {key, key.partition(":")[2]} for key in found}
    odd = [name for name in types if not any(name in known for known in names.values())]
    if odd:
        place = f"version {one.manifest.n} or {other.manifest.n}"
        raise unknown_type(place, odd[0], found, path=one.root.location)
    return {key: found[key] for key in sorted(found) if not types or names[key] & set(types)}


def _to_json(row: Row | None, declared: NodeType | EdgeType | None) -> dict[str, Any] | None:
    """Convert a row's cells to JSON values."""
    if row is None or declared is None:
        return None
    kinds = declared.properties
    return {name: cell_to_json(cell, kinds[name]) if name in kinds else cell for name, cell in row.items()}


@dataclass(frozen=True, slots=True)
class RowDelta:
    """A changed row: its cells before and after, which are None if the row does not exist in that version."""

    id: str
    before: Row | None
    after: Row | None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the changed columns, or nothing if the row was added or removed."""
        if self.before is None or self.after is None:
            return ()
        names = sorted(self.before.keys() | self.after.keys())
        return tuple(name for name in names if not _equal_values(self.before.get(name), self.after.get(name)))


class TableVersion:
    """One of the two versions of a table to compare. It is empty if the manifest does not list the table."""

    def __init__(self, folder: GraphFolder, entry: TableEntry | None, declared: NodeType | EdgeType | None) -> None:
        """Open the table. Raises the errors of `open_table`."""
        self.entry = entry
        self._loaded: pa.Table | None = None
        self._path = "" if entry is None else entry.path
        # An empty table is not opened.
        self._dataset: Any = None if entry is None or not entry.rows else open_table(folder, entry)
        kinds = {} if declared is None else declared.properties
        heads = ["id"] if declared is None else key_columns(declared)
        self.blobs = [name for name, kind in kinds.items() if kind.scalar is Scalar.BLOB]
        self._plain = [*heads, *(name for name in kinds if name not in self.blobs)]

    def fragments(self) -> dict[int, Any]:
        """Return the table's fragments by fragment id."""
        if self._dataset is None:
            return {}
        return {fragment.fragment_id: fragment for fragment in self._dataset.get_fragments()}

    def addresses(self, fragment: Any) -> pa.Table:
        """Return each row's driver row id and address in a fragment."""
        return self._scan([], fragments=[fragment], with_row_id=True, with_row_address=True)

    def load(self, fragments: Sequence[Any], row_ids: RowIds) -> pa.Table:
        """Read all rows of some fragments, and the rows with these driver row ids. Return their ids, sorted."""
        parts = []
        if fragments:
            parts.append(self._scan(self._plain, fragments=list(fragments), with_row_id=True))
        for start in range(0, len(row_ids), _CHUNK):
            listed = ",".join(map(str, row_ids[start : start + _CHUNK].tolist()))
            parts.append(self._scan(self._plain, filter=f"_rowid in ({listed})", with_row_id=True))
        if not parts:
            return _IDS.empty_table()
        self._loaded = pa.concat_tables(parts).combine_chunks()
        places = np.arange(self._loaded.num_rows, dtype=np.int64)
        return pa.table({"id": self._loaded.column("id"), _AT: places}, _IDS).sort_by("id")

    def plain(self, ids: pa.Table) -> pa.Table:
        """Return the columns of loaded rows, without blobs, in the given order."""
        if not ids.num_rows or self._loaded is None:
            return pa.table({"id": pa.array([], pa.string()), _ROW_ID: pa.array([], pa.uint64())})
        return self._loaded.take(ids.column(_AT))

    def rows(self, plain: pa.Table) -> dict[str, dict[str, Any]]:
        """Return the cells of rows by id, given their columns without blobs."""
        if not plain.num_rows:
            return {}
        cells = raw_columns(plain)
        row_ids = cells.pop(_ROW_ID)
        for name in self.blobs:
            cells[name] = call_driver(self._path, partial(self._read_blobs, name, row_ids))
        rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
        return {row["id"]: row for row in rows}

    def _scan(self, columns: Sequence[str], **options: Any) -> pa.Table:
        return call_driver(self._path, lambda: self._dataset.scanner(columns=list(columns), **options).to_table())

    def _read_blobs(self, name: str, row_ids: list[int]) -> list[bytes | None]:
        files = self._dataset.take_blobs(name, ids=row_ids)
        return [None if file is None else file.readall() for file in files]


def row_deltas(before: TableVersion, after: TableVersion) -> Iterator[RowDelta]:
    """Yield the rows that differ, in id order. Raises the errors of `open_table`; RemoteError `storage_failed`."""
    if before.entry != after.entry:
        for old, new in _cut_together(*_candidates(before, after)):
            yield from _compare(before, after, old, new)


def _candidates(before: TableVersion, after: TableVersion) -> tuple[pa.Table, pa.Table]:
    """Return, for each side, the ids of the rows that may be missing or different on the other side."""
    old, new = before.fragments(), after.fragments()
    shared: set[int] = set()
    was, now = before.entry, after.entry
    if was is not None and now is not None and (was.path, was.fields) == (now.path, now.fields):
        shared = {at for at in old.keys() & new.keys() if files_of(old[at]) == files_of(new[at])}
    only_old, only_new = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for at in sorted(shared):
        if deletions_of(old[at]) != deletions_of(new[at]):
            # The driver's row ids at addresses that the other fragment lacks.
            one, other = before.addresses(old[at]), after.addresses(new[at])
            at_one, at_other = one.column("_rowaddr").to_numpy(), other.column("_rowaddr").to_numpy()
            only_old.append(one.column(_ROW_ID).to_numpy()[~np.isin(at_one, at_other)])
            only_new.append(other.column(_ROW_ID).to_numpy()[~np.isin(at_other, at_one)])
    left = before.load([old[at] for at in sorted(old.keys() - shared)], np.concatenate(only_old))
    right = after.load([new[at] for at in sorted(new.keys() - shared)], np.concatenate(only_new))
    return left, right


def _cut_together(left: pa.Table, right: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Split both sides at the same ids, so that rows with the same id stay together."""
    at_left = at_right = 0
    while at_left < left.num_rows or at_right < right.num_rows:
        part, other = left.slice(at_left, _CHUNK), right.slice(at_right, _CHUNK)
        last = [table.column("id")[-1].as_py().encode() for table in (part, other) if table.num_rows == _CHUNK]
        if last:
            cut = pa.scalar(min(last).decode())
            part, other = (table.filter(pc.less_equal(table.column("id"), cut)) for table in (part, other))
        at_left, at_right = at_left + part.num_rows, at_right + other.num_rows
        yield part, other


def _compare(before: TableVersion, after: TableVersion, old: pa.Table, new: pa.Table) -> Iterator[RowDelta]:
    """Yield the rows of one part that differ. Rows whose columns compare as equal are not compared cell by cell."""
    plain_old, plain_new = before.plain(old), after.plain(new)
    if not before.blobs and not after.blobs and plain_old.schema.names == plain_new.schema.names:
        alike = _equal_rows(plain_old, plain_new)
        plain_old, plain_new = (
            table.filter(pc.invert(pc.is_in(table.column("id"), alike))) for table in (plain_old, plain_new)
        )
    rows_old, rows_new = before.rows(plain_old), after.rows(plain_new)
    for row_id in sorted(rows_old.keys() | rows_new.keys()):
        delta = RowDelta(row_id, rows_old.get(row_id), rows_new.get(row_id))
        if delta.before is None or delta.after is None or delta.fields:
            yield delta


def _equal_rows(old: pa.Table, new: pa.Table) -> pa.Array:
    """Return the ids of rows on both sides that are certainly equal in every column."""
    common_old = old.filter(pc.is_in(old.column("id"), new.column("id").combine_chunks()))
    at = pc.index_in(common_old.column("id"), new.column("id").combine_chunks())
    common_new = new.take(at)
    alike = pa.array(np.ones(common_old.num_rows, bool))
    for name in common_old.schema.names:
        if name == _ROW_ID:
            continue
        alike = pc.and_(alike, _equal_cells(common_old.column(name), common_new.column(name)))
    return common_old.column("id").combine_chunks().filter(alike)


def _equal_cells(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.Array:
    if one.equals(other):
        return pa.array(np.ones(len(one), bool))
    if pa.types.is_nested(one.type) or pa.types.is_floating(one.type) or one.type != other.type:
        return pa.array(np.zeros(len(one), bool))
    equal = pc.fill_null(pc.equal(one, other), fill_value=False)
    return pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other))).combine_chunks()


def _equal_values(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal_values, one, other))
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - only NaN differs from itself


_FORM = 1
_MOST = 2**63
_GONE = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Maximum size of a feed page. A single change can be larger."""

    changes: int = 1000
    nbytes: int = 4 * 2**20
    versions: int = 1000


class ForeignPositionError(GitopsError):
    """A position that is not in the branch's current history."""


class SchemaBoundaryError(Exception):
    """A version that changes the schema of a type, so its changes cannot be returned as row changes."""

    def __init__(self, commit: str, type_name: str) -> None:
        """Create the error with the version's commit id and the type."""
        super().__init__(f"commit {commit} changes the schema of {type_name}")
        self.commit, self.type_name = commit, type_name


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """A filter for changes by kind (`node`, `edge`), type and operation. An empty field means all."""

    kinds: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    operations: frozenset[ChangeKind] = frozenset()

    def has_table(self, key: str) -> bool:
        """Return whether the scope includes a table."""
        kind, _, name = key.partition(":")
        return (not self.kinds or kind in self.kinds) and (not self.types or name in self.types)

    def changes(self, one: Snapshot, other: Snapshot) -> Iterator[tuple[Place, RowChange]]:
        """Yield the changes from one version to another: nodes, then edges, in the order of type creation, then by id.

        Raises SchemaBoundaryError before the first change, even if the type is not in the scope.
        """
        found, sides = [], (_Side(one), _Side(other))
        for key, (was, now) in _pair_tables(one, other, ()).items():
            before, after = one.manifest.tables.get(was or ""), other.manifest.tables.get(now or "")
            if before == after or not any(each is not None and each.rows for each in (before, after)):
                continue
            if before is None or after is None or not _is_same_type(*sides, was, now):
                raise SchemaBoundaryError(other.manifest.txn_id, key.partition(":")[2].partition(" ")[0])
            found.append((f"{int(key.startswith('edge:'))}{type_id(after)}", key, was, now))
        for place, key, was, now in sorted(found):
            if self.has_table(key):
                for change in _table_changes(*sides, key, was, now):
                    if not self.operations or change.kind in self.operations:
                        yield (place, change.id), change


def type_id(entry: TableEntry) -> str:
    """Return an id that stays the same when a type is renamed, but not when it is dropped and declared again."""
    return entry.path.rpartition("/")[2].partition(".")[0]


def _is_same_type(one: _Side, other: _Side, was: str | None, now: str | None) -> bool:
    """Return whether a table has the same type with the same properties in both versions."""
    if one.entries[was or ""].path != other.entries[now or ""].path:
        return False
    if one.version.manifest.schema_ir == other.version.manifest.schema_ir:
        return True
    old, new = one.declared(was), other.declared(now)
    return old is not None and new is not None and old.properties == new.properties


def feed_position(uri: str, branch: str, start: str = "now", memory: Memory | None = None) -> FeedPosition:
    """Return the position where a reader starts.

    The position is after the newest version for `now`, before all rows for `beginning`, and after a commit on the
    branch for `after:ID`. `memory` is the cache of `open_snapshot`.

    Raises UsageError for anything else; ForeignPositionError for a commit of another branch; GitopsError
    `graph_version_gone` if later versions are no longer kept; the errors of `open_snapshot`.
    """
    word, colon, commit = start.partition(":")
    if start == "now":
        return position_of(open_snapshot(uri, ReadTarget(branch), memory))
    if start == "beginning":
        # The first version of a graph has no rows.
        return position_of(open_snapshot(uri, ReadTarget(branch, version=1)))
    if word != "after" or not colon:
        raise UsageError(Code.USAGE_ERROR, f"{start[:80]!r} is not a start: use now, beginning or after:COMMIT")
    found = open_snapshot(uri, ReadTarget(branch, commit=commit), memory)
    head = open_snapshot(uri, ReadTarget(branch), memory)
    if found.line != head.line:
        detail = f"branch {head.branch} has no commit {commit}; it is on branch {found.branch}"
        raise ForeignPositionError(Code.GRAPH_VERSION_UNKNOWN, detail, path=head.root.location)
    return position_of(found)


def position_of(snapshot: Snapshot, after: tuple[str, str] | None = None) -> FeedPosition:
    """Return the position after this version and, if `after` is given, after that row of the next version."""
    manifest = snapshot.manifest
    return FeedPosition(snapshot.identity.graph_id, snapshot.branch, manifest.n, manifest.txn_id, after)


def branches_since(uri: str, position: FeedPosition, memory: Memory | None = None) -> frozenset[str]:
    """Return the names of branches with versions after a position.

    A branch inherits the versions from before it was created. `memory` is the cache of `open_snapshot`. Raises the same
    errors as `read_feed`.
    """
    head = open_snapshot(uri, ReadTarget(position.branch), memory)
    later = [each.until for each in head.line.inherits if each.until > position.n]
    inherited = (_open_version(uri, position.branch, n, head).manifest.branch for n in later)
    return frozenset({head.branch, *inherited})


def parse_position(token: str) -> FeedPosition:
    """Parse a token from `FeedPosition.token`. Raises UsageError."""
    try:
        form = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True))
        version, graph_id, branch, n, commit, *after = form
        texts = (graph_id, branch, commit, *after)
        known = version == _FORM and all(isinstance(text, str) for text in texts) and len(after) in (0, 2)
        if known and is_ulid(graph_id) and is_ulid(commit) and type(n) is int and 0 < n < _MOST:
            return FeedPosition(graph_id, branch, n, commit, (after[0], after[1]) if after else None)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        pass
    raise UsageError(Code.USAGE_ERROR, "the cursor is damaged: use one as an earlier page gave it, or begin again")


def read_feed(
    uri: str,
    position: FeedPosition,
    types: Sequence[str] = (),
    limits: FeedLimits | None = None,
    *,
    scope: ChangeScope | None = None,
    last: int | None = None,
    memory: Memory | None = None,
) -> FeedPage:
    """Return the page after a position: changes of the given types (`T`, `node:T`, `edge:E`) up to version `last`.

    Without `types`, all types are included. A `scope` filters and orders the changes. `memory` is the cache of
    `open_snapshot`.

    Raises GitopsError `graph_version_gone` for a gap, and its subclass ForeignPositionError for a position in another
    history; `graph_type_unknown` for a type that the newest version does not have; with a scope, SchemaBoundaryError
    before a schema change; the errors of `open_snapshot`.
    """
    limits = limits or FeedLimits()
    head = open_snapshot(uri, ReadTarget(position.branch, version=last), memory)
    for each in types:
        if not _has_type(head, each):
            raise unknown_type(f"version {head.manifest.n}", each, head.manifest.tables, path=head.root.location)
    page = _Page(limits)
    base = _open_version(uri, position.branch, position.n, head)
    if (base.identity.graph_id, base.manifest.txn_id) != (position.graph_id, position.commit):
        detail = f"branch {position.branch} was recreated after the cursor was returned"
        raise ForeignPositionError(Code.GRAPH_VERSION_GONE, detail, path=head.root.location)
    changes = partial(_by_table, types) if scope is None else scope.changes
    after = position.after
    while base.manifest.n < head.manifest.n and len(page.commits) < limits.versions:
        following = _open_version(uri, position.branch, base.manifest.n + 1, head)
        if base.manifest.tables != following.manifest.tables:
            try:
                for place, change in changes(base, following):
                    if after is not None and place <= after:
                        continue
                    if not page.take(following, change):
                        page.commits += [] if after is None else [following]
                        return page.end(position_of(base, after), head)
                    after = place
            except SchemaBoundaryError:
                if not page.commits:
                    raise
                break
        page.commits.append(following)
        base, after = following, None
    return page.end(position_of(base), head)


def _by_table(types: Sequence[str], one: Snapshot, other: Snapshot) -> Iterator[tuple[Place, RowChange]]:
    """Yield the changes of these types in order of table key and id."""
    present = tuple(each for each in types if _has_type(one, each) or _has_type(other, each))
    if present or not types:
        for change in snapshot_changes(one, other, present):
            yield (change.table, change.id), change


def first_unreadable(uri: str, branch: str, n: int) -> tuple[str, str]:
    """Return the oldest commit after version `n` on a known branch with unreadable changes, and its branch.

    Raises the same errors as `open_snapshot`.
    """
    head = open_snapshot(uri, ReadTarget(branch))
    *_, (holder, oldest) = kept_versions(head.store, head.line)
    kept = read_manifest(head.store, oldest, holder)
    # Reading the changes of the oldest kept version would need the version before it.
    before = kept.parent if n + 1 < oldest else None
    commit = None if before is None or before.line != holder else before.commit
    return commit or kept.txn_id, kept.branch


class _Page:
    """A feed page under construction."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._changes: list[tuple[str, RowChange]] = []
        self.commits: list[Snapshot] = []

    def take(self, version: Snapshot, change: RowChange) -> bool:
        """Add a change if it fits on the page."""
        size = len(compact_json(change.to_json()).encode())
        full = len(self._changes) >= self._limits.changes or self._bytes + size > self._limits.nbytes
        if full and self._changes:
            return False
        self._changes.append((version.manifest.txn_id, change))
        self._bytes += size
        return True

    def end(self, position: FeedPosition, head: Snapshot) -> FeedPage:
        versions = tuple(each.manifest for each in self.commits)
        return FeedPage(position, head.manifest.ref, versions, tuple(self._changes))


def _open_version(uri: str, branch: str, n: int, head: Snapshot) -> Snapshot:
    if n == head.manifest.n:
        return head
    try:
        return open_snapshot(uri, ReadTarget(branch, version=n))
    except GitopsError as error:
        if error.code not in _GONE:
            raise
        fix = "begin again: take all records and the cursor that comes with them"
        raise GitopsError(Code.GRAPH_VERSION_GONE, error.detail, path=error.path, fix=fix) from None


def _has_type(snapshot: Snapshot, name: str) -> bool:
    tables = snapshot.manifest.tables
    return name in tables or f"node:{name}" in tables or f"edge:{name}" in tables
