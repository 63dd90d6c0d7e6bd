"""Snapshots: a consistent view of a graph with its identity, one manifest, and that manifest's schema text.

A version is found by branch, number, commit or time. The error for a version that never existed is
`graph_version_unknown`, and for one that is no longer kept `graph_version_gone`. A number is looked up first on the
line that contains it. Times are looked up by bisection, which works because a version is never older than its parent.

This module does not need the Lance driver, so planning reads a graph's state from a few small files. The schema
language is imported only to compile a schema, so commands that do not open a graph start faster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gitops.core.canonical import digest
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError, RemoteError, UsageError
from gitops.database.graph import layout
from gitops.database.graph.lines import MAIN_LINE, Line, read_branches, read_floor, read_line
from gitops.database.graph.manifest import (
    DELETE,
    GraphIdentity,
    Manifest,
    TableEntry,
    find_manifest,
    head_number,
    line_numbers,
    read_manifest,
)
from gitops.database.graph.root import FileMark, GraphFolder, GraphRoot
from gitops.database.language.suggest import choices
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

if TYPE_CHECKING:
    from gitops.database.language.schema import Catalog, Schema

_ROUNDS = 5
# Number of versions to try one by one before listing the kept versions.
_STEPS = 8


class Memory(Protocol):
    """A thread-safe cache for processes that open graphs often, such as a `ReadCache`."""

    def value(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return an immutable value, either the cached one or a new one from `make`."""
        ...

    def recall(self, key: Hashable) -> Any:
        """Return the last value remembered under this key, or None if it was dropped."""
        ...

    def remember(self, key: Hashable, value: Any) -> None:
        """Cache a value that may be outdated when it is recalled."""
        ...


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """The version to read: the newest on `branch`, or one selected by number, commit id or time (RFC 3339).

    A commit is found on any branch that has it; `branch` is searched first.
    """

    branch: str = layout.MAIN
    version: int | None = None
    commit: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A graph at one version of one branch."""

    root: GraphRoot
    folder: GraphFolder
    identity: GraphIdentity
    manifest: Manifest
    line: Line = MAIN_LINE

    @property
    def branch(self) -> str:
        """The name of the opened branch. The version can be on a line that the branch inherits from."""
        return self.line.name

    @property
    def store(self) -> ObjectStore:
        """The store for the graph's small objects."""
        return self.folder.store

    def table_place(self, entry: TableEntry) -> tuple[str, ...]:
        """Return a table's identity, unique across disks and services."""
        place = self.folder.dataset(entry.path)
        endpoint = (place.options or {}).get("aws_endpoint", "")
        return (self.identity.graph_id, endpoint, place.uri, entry.path)

    def table_identity(self, entry: TableEntry, version: int) -> tuple[str | int, ...]:
        """Return the identity of a table version that an entry of this snapshot names.

        It is unique across disks, services, and the histories of a graph that was restored from a copy.
        """
        return (*self.table_place(entry), version, self.manifest.commit(entry, version))

    def schema_source(self) -> bytes:
        """Return the accepted schema text, byte for byte. Raises IntegrityError `graph_unreadable`."""
        return self.schema_text(self.manifest.schema_source)

    def schema_text(self, digest: str) -> bytes:
        """Return the schema text of this version or an earlier one, given its digest.

        Raises IntegrityError `graph_unreadable`.
        """
        return self._content(layout.source_key(digest), digest)

    def schema_ir(self) -> bytes:
        """Return the canonical schema. Raises IntegrityError `graph_unreadable`."""
        return self._content(layout.ir_key(self.manifest.schema_ir), self.manifest.schema_ir)

    def schema(self) -> Schema:
        """Compile the accepted schema from its canonical form, and check that its types match the manifest.

        Raises IntegrityError `graph_unreadable`.
        """
        from gitops.database.language.schema import schema_from_ir
        from gitops.database.language.text import LanguageError

        try:
            schema = schema_from_ir(self.schema_ir())
        except LanguageError as error:
            raise IntegrityError(
                Code.GRAPH_UNREADABLE, f"{self.root.location}: the stored schema is refused: {error}"
            ) from error
        if table_keys(schema.catalog) != set(self.manifest.tables):
            raise IntegrityError(
                Code.GRAPH_UNREADABLE, f"{self.root.location}: the manifest's tables are not those of its schema"
            )
        return schema

    def _content(self, key: str, expected: str) -> bytes:
        data = self.store.read(key)
        if data is None or digest(data) != expected:
            fault = "is missing" if data is None else "does not match the digest in its name"
            raise IntegrityError(Code.GRAPH_UNREADABLE, f"{self.store.display(key)} {fault}", path=key)
        return data


def table_keys(catalog: Catalog) -> set[str]:
    """Return a schema's table keys: `node:T` and `edge:E`."""
    return {*(f"node:{name}" for name in catalog.nodes), *(f"edge:{name}" for name in catalog.edges)}


def find_root(uri: str) -> GraphRoot:
    """Return the root at a path, a `file:` URI or an `s3:` URI, without reading files.

    Raises GitopsError `graph_unreadable` for any other address.
    """
    # Import implementations on first use, because local graphs need no object store client.
    if uri.startswith("s3:"):
        from gitops.database.graph.object_root import ObjectRoot

        return ObjectRoot.at(uri)
    from gitops.database.graph.local_root import LocalRoot

    return LocalRoot(uri)


def open_snapshot(uri: str, target: ReadTarget | None = None, memory: Memory | None = None) -> Snapshot:
    """Open a graph at the selected version, by default the newest of `main`.

    The version is looked up on every call. With a `memory`, the cost does not depend on the number of kept versions
    unless many were published since the last lookup, and on a local disk, no file is read if nothing has changed.
    Raises GitopsError `graph_missing` only if nothing exists at the root; `graph_branch_missing`, `graph_branch_name`;
    `graph_version_unknown` if the version never existed, `graph_version_gone` if it is no longer kept; `usage_error`
    for a target that contradicts itself; `storage_failed` if a bucket's service does not respond or refuses access; and
    `graph_unreadable` for everything else.
    """
    target = target or ReadTarget()
    if memory is None or (target.version, target.commit, target.time) != (None, None, None):
        return _open_snapshot(uri, target, memory)
    key = ("watched head", uri, target.branch)
    watched: _WatchedHead | None = memory.recall(key)
    newest = None if watched is None else watched.newest(memory)
    if newest is None:
        found = _open_snapshot(uri, target, memory)
        newest = _WatchedHead.of(found)
        if newest is None:
            return found
        # All that the marks stand for is read after they were taken.
        again = _open_snapshot(uri, target, memory)
        if (again.identity, again.line, again.manifest) != (found.identity, found.line, found.manifest):
            return again
    if newest is not watched:
        memory.remember(key, newest)
    return newest.snapshot


def newest_in_memory(uri: str, branch: str, memory: Memory) -> Snapshot | None:
    """Return a branch's newest version without reading a file, if it is in memory and on a local disk.

    Returns None if there may be a newer version, or if this requires a request to the storage.
    """
    watched: _WatchedHead | None = memory.recall(("watched head", uri, branch))
    return watched.snapshot if watched is not None and watched.is_newest() else None


@dataclass(frozen=True, slots=True)
class _WatchedHead:
    """A branch's newest version, with the marks of the files that decide which version is the newest.

    It stays the newest while its successor is absent and the other files are the same: the floor, because a successor
    below it could have been removed; the manifest; the identity of the graph; and the index of branches.
    """

    snapshot: Snapshot
    files: tuple[str, ...]
    marks: tuple[FileMark | None, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _WatchedHead | None:
        """Look at the files of a snapshot; None if its storage has no marks, or if it has a successor."""
        files = cls._files(snapshot)
        marks = snapshot.folder.marks(files)
        return None if marks is None or marks[0] is not None else cls(snapshot, files, marks)

    @staticmethod
    def _files(snapshot: Snapshot) -> tuple[str, ...]:
        """Return the keys of the files; a successor is looked for before the floor is."""
        n, line = snapshot.manifest.n, snapshot.line.id
        index = () if line == layout.MAIN else (layout.BRANCH_INDEX,)
        found = (layout.manifest_key(n + 1, line), layout.manifest_key(n, line))
        return (*found, layout.floor_key(line), layout.IDENTITY, *index)

    def is_newest(self) -> bool:
        """Return whether the version is still the newest."""
        return self.snapshot.folder.marks(self.files) == self.marks

    def newest(self, memory: Memory) -> _WatchedHead | None:
        """Return the newest version, which can be a later one; None if it must be looked up."""
        head = self
        while True:
            folder = head.snapshot.folder
            marks = folder.marks(head.files)
            if marks == head.marks:
                return head
            if marks is None or marks[1:] != head.marks[1:]:
                return None
            line = head.snapshot.line.id
            try:
                manifest = find_manifest(folder.store, head.snapshot.manifest.n + 1, line, memory.value)
            except GitopsError:
                return None
            if manifest is None or manifest.operation == DELETE:
                return None
            later = replace(head.snapshot, manifest=manifest)
            head = _WatchedHead(later, self._files(later), (None, marks[0], *marks[2:]))


def _open_snapshot(uri: str, target: ReadTarget, memory: Memory | None) -> Snapshot:
    root = find_root(uri)
    place = root.location
    try:
        identity, folder = root.open()
        store, line = folder.store, read_line(folder.store, target.branch)
        if [target.version, target.commit, target.time].count(None) < 2:  # noqa: PLR2004 - at most one of three is given
            raise UsageError(Code.USAGE_ERROR, "give at most one of a version, a commit and a time")
        if target.commit is not None:
            line, manifest = _find_commit(store, line, target.commit, identity.graph_id, memory)
        elif target.time is not None:
            manifest = _find_time(store, line, target.time)
        elif target.version is not None:
            manifest = read_version(store, line, target.version)
        else:
            manifest = _newest(store, line, folder.noted_newest, identity.graph_id, memory)
            if manifest.operation == DELETE:
                detail = f"the graph at {place} was deleted, and the removal of its files was interrupted"
                raise GitopsError(Code.GRAPH_DELETED, detail, path=uri)
        return Snapshot(root, folder, identity, manifest, line)
    except RemoteError as error:
        raise unreadable(uri, error) from error
    except OSError as error:
        raise GitopsError(Code.GRAPH_UNREADABLE, f"{place} does not open: {error}", path=uri) from error


def unreadable(uri: str, error: RemoteError) -> GitopsError:
    """Return the error for a storage failure that occurs while a graph is opened.

    If a local disk fails, the graph is unreadable. If a bucket does not respond or refuses access, nothing is known
    about the graph.
    """
    if uri.startswith("s3:"):
        return error.during(error.code, uri)
    return GitopsError(Code.GRAPH_UNREADABLE, f"{uri} does not open: {error.detail}", path=uri)


def open_newest(root: GraphRoot) -> Snapshot:
    """Open the newest version of `main`, even if it is the version `delete`.

    Raises GitopsError `graph_missing`, `graph_unreadable`.
    """
    identity, folder = root.open()
    return Snapshot(root, folder, identity, _newest(folder.store, MAIN_LINE, folder.noted_newest))


def held_rows(snapshot: Snapshot) -> int:
    """Return the total number of rows of all tables at all branch heads.

    A table on several branches counts with its largest row count.
    """
    tables = [snapshot.manifest.tables]
    tables += [_newest(snapshot.store, line).tables for line in read_branches(snapshot.store).lines()[1:]]
    rows: dict[str, int] = {}
    for entry in (entry for held in tables for entry in held.values()):
        rows[entry.path] = max(entry.rows, rows.get(entry.path, 0))
    return sum(rows.values())


def accept_schema(source: bytes) -> Schema:
    """Compile a schema text. Raises GitopsError `schema_parse_error` or `schema_catalog_error` with its first problem."""
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError, SourceText, Stage

    try:
        return compile_schema(source)
    except LanguageError as error:
        first = error.problems[0]
        line, column = SourceText(source).position(first.span.start)
        code = Code.SCHEMA_PARSE_ERROR if first.stage is Stage.PARSE else Code.SCHEMA_CATALOG_ERROR
        raise GitopsError(code, f"{first.rendered()} (line {line}, column {column})", fix=first.fix) from error


def kept_versions(store: ObjectStore, line: Line) -> Iterator[tuple[str, int]]:
    """Return the line id and number of each kept version on a branch, newest first."""
    for holder in (line.id, *(older.line for older in line.inherits)):
        yield from ((holder, n) for n in line_numbers(store, holder) if line.holder(n) == holder)


def read_version(store: ObjectStore, line: Line, n: int) -> Manifest:
    """Read version `n` of a branch.

    Raises GitopsError `graph_version_unknown`, `graph_version_gone`, `graph_unreadable`.
    """
    holder = line.holder(n)
    manifest = find_manifest(store, n, holder) if n >= 1 else None
    if manifest is not None:
        return manifest
    head = _newest(store, line).n
    if not 1 <= n <= head:
        detail = f"{line.name} of {store.location} has no version {n}; its newest is {head}"
        raise GitopsError(Code.GRAPH_VERSION_UNKNOWN, detail, path=store.location)
    if holder == line.id and n > read_floor(store, holder):
        key = store.display(layout.manifest_key(n, holder))
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{key} is missing", path=key)
    raise _version_gone(store, f"version {n} of {line.name}")


def _newest(
    store: ObjectStore,
    line: Line,
    noted: Callable[[str], int | None] = lambda _: None,
    graph_id: str = "",
    memory: Memory | None = None,
) -> Manifest:
    """Read a branch's head. If it is superseded and removed between listing and reading, the newer head is read.

    The search starts at the number that the memory has or that is `noted`, because listing takes longer.
    """
    key = ("head", graph_id, store.location, line.id)
    known = None if memory is None else memory.recall(key)
    manifest = _newest_since(store, line, noted(line.id) if known is None else known, memory)
    for _ in range(_ROUNDS if manifest is None else 0):
        head = head_number(store, line.id)
        if head is None:
            break
        manifest = find_manifest(store, head, line.id, None if memory is None else memory.value)
        if manifest is not None:
            break
    if manifest is not None:
        if memory is not None:
            memory.remember(key, manifest.n)
        return manifest
    if line.id != layout.MAIN and read_branches(store).line(line.name) != line:
        raise GitopsError(Code.GRAPH_BRANCH_MISSING, f"branch {line.name} was deleted", path=line.name)
    raise IntegrityError(
        Code.GRAPH_UNREADABLE, f"{store.location} contains no manifest: the creation is incomplete", path=store.location
    )


def _newest_since(store: ObjectStore, line: Line, known: int | None, memory: Memory | None) -> Manifest | None:
    """Find a branch's head, searching from number `known` on; None if the kept versions must be listed."""
    read = partial(find_manifest, store, line=line.id, keep=None if memory is None else memory.value)
    for n in () if not known else range(known, known + _STEPS):
        newer, manifest = in_parallel(read, (n + 1, n), store.parallel)
        if newer is None:
            try:
                # Gc raises the floor before it removes versions, so an absent version above the floor never existed.
                return manifest if read_floor(store, line.id) <= n else None
            except GitopsError:
                return None
    return None


def _find_commit(
    store: ObjectStore, line: Line, commit: str, graph_id: str, memory: Memory | None
) -> tuple[Line, Manifest]:
    """Find the version with a commit id, and the branch that has it: `line` if possible, otherwise another."""
    if not is_ulid(commit):
        raise UsageError(Code.USAGE_ERROR, f"{commit[:80]!r} is not a commit id, which has 26 characters")
    key = ("commit", graph_id, store.location, commit)
    known = None if memory is None else memory.recall(key)
    seen: set[tuple[str, int]] = set()
    for each in (line, *read_branches(store).lines()):
        # A version never moves, but branches can be created and deleted, so look up its branch each time.
        kept = kept_versions(store, each) if known is None else [known] if each.holder(known[1]) == known[0] else ()
        for holder, n in kept:
            if (holder, n) in seen:
                continue
            seen.add((holder, n))
            manifest = find_manifest(store, n, holder)
            if manifest is not None and manifest.txn_id == commit:
                if memory is not None:
                    memory.remember(key, (holder, n))
                return each, manifest
    if memory is not None and known is not None:
        # The version is gone, unless the graph was replaced by a copy of itself.
        memory.remember(key, None)
        return _find_commit(store, line, commit, graph_id, memory)
    raise GitopsError(
        Code.GRAPH_VERSION_GONE, f"{store.location} keeps no version with the commit id {commit}", path=store.location
    )


def _find_time(store: ObjectStore, line: Line, time: str) -> Manifest:
    """Find the newest version at or before a time."""
    wanted = parse_timestamp(time)
    if wanted is None:
        detail = f"{time[:80]!r} is not a version, a commit or a time such as 2026-01-31T12:00:00Z"
        raise UsageError(Code.USAGE_ERROR, detail, fix="list versions, commits and times: gitops graph log GRAPH")
    kept = list(reversed(tuple(kept_versions(store, line))))
    low, high, found = 0, len(kept), None
    while low < high:
        middle = (low + high) // 2
        holder, n = kept[middle]
        manifest = read_manifest(store, n, holder)
        if version_time(manifest) <= wanted:
            low, found = middle + 1, manifest
        else:
            high = middle
    if found is not None:
        return found
    if kept and kept[0][1] > 1:
        raise _version_gone(store, f"what {line.name} was at {time}")
    first = f"; its first version is of {read_manifest(store, kept[0][1], kept[0][0]).ts}" if kept else ""
    detail = f"{store.location} did not exist at {time}{first}"
    raise GitopsError(Code.GRAPH_VERSION_UNKNOWN, detail, path=store.location)


def unknown_type(place: str, name: str, tables: Iterable[str], *, path: str = "") -> GitopsError:
    """Return the error for an unknown type name. `tables` are the existing table keys."""
    known = {key.partition(":")[2] for key in tables}
    return GitopsError(Code.GRAPH_TYPE_UNKNOWN, f"{place} has no type {name[:80]!r}{choices(name, known)}", path=path)


def version_time(manifest: Manifest) -> datetime:
    """Return a version's creation time."""
    found = parse_timestamp(manifest.ts)
    if found is None:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"version {manifest.n} has no time")
    return found


def _version_gone(store: ObjectStore, what: str) -> GitopsError:
    return GitopsError(Code.GRAPH_VERSION_GONE, f"{what} is no longer kept", path=store.location)
