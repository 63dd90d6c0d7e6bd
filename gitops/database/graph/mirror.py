"""Mirrors: a graph's newest versions, copied from a bucket or a folder to a local folder that opens like any other graph.

Every file of a published version is immutable, and its name is used again only if the bucket was restored from a copy.
So only files that do not exist locally yet are copied. Rules of this module:

1. A version is copied in the order in which it was published: table files, schemas, its manifest, and then the index
   of branches. So a reader of the folder sees a complete version or none, and needs nothing from the bucket while it
   reads.
2. Gc may remove a version from the bucket while it is being copied. Then the mirror starts to copy a newer one.
   Versions that were already copied stay readable.
3. The first version is copied into a hidden folder for that incarnation of the graph, which is then renamed to the
   mirror's path. An interrupted copy continues where it stopped.
4. Numbers that were not copied count as removed: the floor of a line is raised to just below its newest copied version
   after that version. A floor is never above a line's newest version, as in every graph.
5. Older versions are removed when the bucket no longer keeps them, when there are many, or when a newer one does not
   fit otherwise, but not while a reader may still use them. Data that was dropped permanently is removed at once.
6. The mirror writes nothing to the bucket.
7. If the newest local version is not part of the bucket's history, because the bucket was restored from a copy, the
   graph is copied as if it were another one. If gc removed what shows this, the files of table versions, which have
   numbers as names, are copied unless a local version has the same commit for them. All other names are random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph import layout
from gitops.database.graph.files import TableFiles, made_files, version_file
from gitops.database.graph.lines import INTERNAL, BranchIndex, Line, read_branches, read_floor, write_floor
from gitops.database.graph.local_root import LocalFolder
from gitops.database.graph.manifest import Manifest, TableEntry, find_manifest, head_number, line_numbers, read_identity
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.storage.copies import FileCopies
from gitops.database.storage.local import delete_tree, sync_folder
from gitops.database.storage.parallel import in_parallel

_KEPT = 8
"""The number of versions of a line that are kept here, if there is room."""
_READ_FOR = timedelta(minutes=15)
"""How long a superseded version is kept for readers, as long as a server lets work take."""
_ROUNDS = 4
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MirrorLimits:
    """The maximum number of bytes for all copies, and a clock."""

    most_bytes: int
    now: Callable[[], datetime]


class GraphMirror:
    """The mirror of one graph. Used by one thread of the process that holds the `copies` lock."""

    def __init__(self, uri: str, place: Path, copies: FileCopies, limits: MirrorLimits) -> None:
        """Create the mirror of the graph at an address in a local folder. Raises the errors of `find_root`."""
        find_root(uri)
        self._uri, self._place, self._copies, self._limits = uri, place, copies, limits
        self._known = _Known()
        # Whether all files of the newest versions are here, so that only other versions must be compared with the bucket.
        self._sure = False
        self._incoming: Mapping[str, TableEntry] = {}
        self._copied = 0, 0
        self._seen: tuple[list[Snapshot], Mapping[str, Line]] | None = None

    def look(self) -> None:
        """Look up the newest versions, which the next `follow` call copies. Raises the errors of `open_snapshot`.

        This does not change the mirror, so several mirrors can do it concurrently.
        """
        self._seen = self._newest()

    def _newest(self) -> tuple[list[Snapshot], Mapping[str, Line]]:
        """Return the newest version of `main`, those of the other branches, and these branches."""
        main = self._open(layout.MAIN)
        index = read_branches(main.store)
        lines = {name: line for name, line in index.branches.items() if not name.startswith(INTERNAL)}
        heads = [main, *in_parallel(self._open, sorted(lines), main.store.parallel)]
        if any(each.identity != main.identity for each in heads):
            raise ConflictError(Code.GRAPH_CONFLICT, f"the graph at {self._uri} was replaced", path=self._uri)
        return heads, lines

    def follow(self) -> int:
        """Copy each branch's newest version if it is missing here. Return the newest version number of `main`.

        Raises GitopsError `replica_cache_full` if there is no room; the errors of `open_snapshot`; RemoteError, OSError.
        """
        for attempt in range(_ROUNDS):
            (heads, lines), self._seen = self._seen or self._newest(), None
            try:
                return self._follow(heads, lines)
            except _GoneError as gone:
                # Gc removed files of a superseded version, unless there is none newer.
                if attempt + 1 == _ROUNDS:
                    raise gone.error from None
        raise AssertionError

    def check(self, places: Iterable[Path] | None = None) -> int:
        """Read table files, by default all of them and the documents, and remove damaged ones.

        The next `follow` call copies removed files again. Older versions of the affected tables are also removed.
        Returns the number of damaged files. Raises OSError, RemoteError.
        """
        damaged = [] if places is not None else [*_damaged_documents(LocalFolder(self._place))]
        damaged += self._copies.damaged(self.places() if places is None else places)
        for each in damaged:
            each.unlink(missing_ok=True)
        if damaged and self._place.is_dir():
            self._sure = False
            self._prune(LocalFolder(self._place), keep=1, superseded=self._limits.now())
        return len(damaged)

    def take_copied(self) -> tuple[int, int]:
        """Return the number of files copied since the last call, and their total bytes."""
        copied, self._copied = self._copied, (0, 0)
        return copied

    def places(self) -> Iterator[Path]:
        """Yield the copied table files."""
        return _table_files(self._place)

    def _follow(self, heads: Sequence[Snapshot], lines: Mapping[str, Line]) -> int:
        main = heads[0]
        folder, here = main.folder, self._target(heads)
        for head in heads:
            self._copy_version(head, folder, here)
        self._sure = True
        known = read_branches(here.store)
        if known.branches != lines and not BranchIndex(known.branches, known.data).swap(here.store, lines):
            raise ConflictError(Code.GRAPH_CONFLICT, f"another process changes {self._place}", path=self._uri)
        self._publish(main, here)
        self._prune_known(LocalFolder(self._place), folder, [each.line.id for each in heads])
        return main.manifest.n

    def _prune_known(self, here: LocalFolder, folder: GraphFolder, lines: Iterable[str]) -> None:
        several = [line for line in lines if len(line_numbers(here.store, line)) > 1]
        floors = {line: read_floor(folder.store, line) for line in several}
        if several or here.children(layout.BRANCHES):
            self._prune(here, keep=_KEPT, superseded=self._limits.now() - _READ_FOR, floors=floors)

    def _open(self, branch: str) -> Snapshot:
        return open_snapshot(self._uri, ReadTarget(branch), self._known)

    def _target(self, heads: Sequence[Snapshot]) -> LocalFolder:
        """Return the folder to copy to: the mirror's place if it has this graph, or the hidden folder of this graph."""
        here, hidden = LocalFolder(self._place), self._hidden(heads[0])
        is_here = here.place(layout.IDENTITY).exists() and read_identity(here.store) == heads[0].identity
        if is_here and all(_continues(here, head) for head in heads):
            return here
        if not all(_continues(LocalFolder(hidden), head) for head in heads):
            delete_tree(hidden)
        if not self._sure:
            for each in self._copies.damaged(_table_files(hidden)):
                each.unlink()
        hidden.mkdir(parents=True, exist_ok=True)
        return LocalFolder(hidden)

    def _hidden(self, head: Snapshot) -> Path:
        return self._place.parent / f".{self._place.name}.{head.identity.graph_id}.mirror"

    def _publish(self, head: Snapshot, here: LocalFolder) -> None:
        """Make a first copy visible at the mirror's place, instead of a graph that was there before."""
        here.store.create(layout.IDENTITY, head.identity.to_bytes())
        hidden = self._hidden(head)
        if hidden.is_dir():
            delete_tree(self._place)
            hidden.rename(self._place)
            sync_folder(self._place.parent)

    def _copy_version(self, head: Snapshot, folder: GraphFolder, here: LocalFolder) -> None:
        manifest, line = head.manifest, head.line.id
        self._incoming = manifest.tables
        known = _table_commits(here)
        wanted = {(entry.path, entry.version): entry for entry in manifest.tables.values()}
        sure = {at for at, entry in wanted.items() if known.get(at) == manifest.commit(entry)}
        self._copy_tables(
            [entry for at, entry in wanted.items() if not self._sure or at not in sure], sure, folder, here
        )
        for key in (layout.source_key(manifest.schema_source), layout.ir_key(manifest.schema_ir)):
            self._copy_document(key, head, here)
        self._copy_document(layout.manifest_key(manifest.n, line), head, here)
        # Readers that look for the successor of an older version see from the floor that there are newer ones.
        skipped = manifest.n > 1 and not here.place(layout.manifest_key(manifest.n - 1, line)).exists()
        if skipped and read_floor(here.store, line) < manifest.n - 1:
            write_floor(here.store, line, manifest.n - 1)

    def _copy_document(self, key: str, head: Snapshot, here: LocalFolder) -> None:
        if here.place(key).exists():
            return
        data = head.store.read(key)
        if data is None:
            raise _GoneError(head.store.display(key))
        here.store.create(key, data)

    def _copy_tables(
        self, entries: Sequence[TableEntry], sure: Collection[tuple[str, int]], folder: GraphFolder, here: LocalFolder
    ) -> None:
        """Copy the files of table versions that are not here. Raises _GoneError if one of them was removed.

        The files that list those that are not `sure` are copied again.
        """
        found = in_parallel(lambda entry: list(folder.files(entry.path)), entries, _AT_ONCE)
        listed = {file.path: file.bytes for files in found for file in files}
        lists = {(each.path, each.version): f"{each.path}/{version_file(each.version)}" for each in entries}
        again = {file for at, file in lists.items() if at not in sure}
        copied = self._copy_files(lists.values(), listed, folder, here, again)
        names = [frozenset(made_files(here.store, each.path, None, [each.version])) for each in entries]
        wanted = [
            file.path
            for entry, files, needed in zip(entries, found, names, strict=True)
            for file in files
            if _belongs(file.path.removeprefix(f"{entry.path}/"), needed)
        ]
        copied += self._copy_files(wanted, listed, folder, here)
        for entry, needed in zip(entries, names, strict=True):
            if any(each.startswith(f"{entry.path}/") for each in copied):
                here.settle(entry.path, needed, new=True)
            if missing := TableFiles(here.store, entry.path).missing(entry):
                raise _GoneError(f"{folder.store.location}/{missing[0]}")

    def _copy_files(
        self,
        paths: Iterable[str],
        listed: Mapping[str, int],
        folder: GraphFolder,
        here: LocalFolder,
        again: Collection[str] = (),
    ) -> list[str]:
        """Copy those of these files that are not here or must be copied `again`, and return them."""
        absent = [path for path in paths if path in again or not here.place(path).exists()]
        if gone := next((path for path in absent if path not in listed), None):
            raise _GoneError(f"{folder.store.location}/{gone}")
        self._make_room(sum(listed[path] for path in absent))

        def copy(path: str) -> None:
            def fill(target: BinaryIO) -> None:
                if not folder.download(path, listed[path], target):
                    raise _GoneError(f"{folder.store.location}/{path}")

            self._copies.add(here.place(path), listed[path], fill)

        in_parallel(copy, absent, _AT_ONCE)
        files, size = self._copied
        self._copied = files + len(absent), size + sum(listed[path] for path in absent)
        return absent

    def _make_room(self, wanted: int) -> None:
        """Remove older versions until this many bytes fit. Raises GitopsError `replica_cache_full`."""
        if not wanted or self._copies.reclaim() + wanted <= self._limits.most_bytes:
            return
        if self._place.is_dir():
            self._prune(LocalFolder(self._place), keep=1, superseded=self._limits.now() - _READ_FOR)
        used, most = self._copies.reclaim(), self._limits.most_bytes
        if used + wanted > most:
            detail = f"the next files of {self._uri} have {wanted} bytes; {used} of {most} bytes are in use"
            raise GitopsError(Code.REPLICA_CACHE_FULL, detail, path=str(self._place))

    def _prune(
        self, here: LocalFolder, *, keep: int, superseded: datetime, floors: Mapping[str, int] | None = None
    ) -> None:
        """Remove older versions by rule 5, except the newest `keep` of each line, and files that no version needs.

        A version is removed only if it was superseded before a time, unless its data was dropped permanently. `floors`
        are those of the bucket.
        """
        purged = _tables_dropped(here)
        lines = {line.id for line in read_branches(here.store).lines()}
        left: list[Manifest] = []
        removed = False
        for line in (layout.MAIN, *(name for name in here.children(layout.BRANCHES) if layout.is_line(name))):
            written = {
                layout.manifest_number(Path(each.path).name): each.written
                for each in here.files(layout.manifests(line))
            }
            numbers, floor = line_numbers(here.store, line), (floors or {}).get(line, 0)
            for at, n in enumerate(numbers):
                manifest = find_manifest(here.store, n, line)
                if manifest is None:
                    continue
                # When this version was superseded; for the last version of a deleted branch, when it was copied.
                until = written.get(numbers[max(0, at - 1)])
                old = until is not None and until <= superseded and (at >= keep or n <= floor or line not in lines)
                if (at == 0 and line in lines) or not (old or any(e.path in purged for e in manifest.tables.values())):
                    left.append(manifest)
                    continue
                write_floor(here.store, line, max(n, read_floor(here.store, line)))
                here.store.delete(layout.manifest_key(n, line))
                removed = True
        if removed or keep == 1:
            self._remove_files(here, left)

    def _remove_files(self, here: LocalFolder, left: Iterable[Manifest]) -> None:
        """Remove the files of tables that neither these versions nor the one that is being copied need."""
        needed: dict[str, set[str]] = {}
        entries = [entry for manifest in left for entry in manifest.tables.values()]
        entries += self._incoming.values()
        for entry in entries:
            if not here.place(f"{entry.path}/{version_file(entry.version)}").exists():
                continue
            needed.setdefault(entry.path, set()).update(made_files(here.store, entry.path, None, [entry.version]))
        for kind in ("nodes", "edges"):
            for path in (f"{kind}/{name}" for name in here.children(kind)):
                if path not in needed:
                    here.remove(path)
                    continue
                for file in list(here.files(path)):
                    if not _belongs(file.path.removeprefix(f"{path}/"), needed[path]):
                        here.remove(file.path)
        self._copies.reclaim()


class _Known(dict[Hashable, Any]):
    """The memory of `open_snapshot`: the last version that was seen of each branch."""

    def value(self, key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ARG002
        return make()

    def recall(self, key: Hashable) -> Any:
        return self.get(key)

    def remember(self, key: Hashable, value: Any) -> None:
        self[key] = value


class _GoneError(Exception):
    """A file of the version that is being copied is no longer in the bucket."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.error = GitopsError(Code.GRAPH_UNREADABLE, f"{place} is missing", path=place)


def _continues(here: LocalFolder, head: Snapshot) -> bool:
    """Return whether the newest local version of a branch is part of its history, as far as the bucket shows it."""
    line, new = head.line.id, head.manifest
    n = head_number(here.store, line)
    mine = None if n is None else find_manifest(here.store, n, line)
    if n is None or mine is None:
        return True
    if n >= new.n:
        return mine == new
    after = new if new.n == n + 1 else find_manifest(head.store, n + 1, line)
    parent = None if after is None else after.parent
    return parent is None or parent.commit in (None, mine.txn_id)


def _table_commits(here: LocalFolder) -> dict[tuple[str, int], str]:
    """Return a commit for each table version of the local versions, by path and number."""
    found = dict[tuple[str, int], str]()
    for line in (layout.MAIN, *filter(layout.is_line, here.children(layout.BRANCHES))):
        for n in line_numbers(here.store, line):
            manifest = find_manifest(here.store, n, line)
            if manifest is not None:
                found |= {(each.path, each.version): manifest.commit(each) for each in manifest.tables.values()}
    return found


def _tables_dropped(here: LocalFolder) -> set[str]:
    """Return the tables that were dropped permanently, by the newest version of `main`."""
    number = head_number(here.store)
    manifest = None if number is None else find_manifest(here.store, number)
    return set() if manifest is None else {each.path for each in manifest.dropped if each.purged}


def _belongs(name: str, names: Iterable[str]) -> bool:
    """Return whether a file of a table is one of the `made_files` or in one of their folders."""
    parts = name.split("/")
    folder = "/".join(parts[:2])
    return name in names or (len(parts) > 2 and (folder in names or f"{folder}.lance" in names))  # noqa: PLR2004


def _damaged_documents(here: LocalFolder) -> Iterator[Path]:
    """Yield the files of documents that cannot be read, or are not what their names say."""

    def readable(read: Callable[[], object]) -> bool:
        try:
            read()
        except GitopsError:
            return False
        return True

    store = here.store
    for name in store.names(layout.SCHEMA):
        if digest(store.read(f"{layout.SCHEMA}/{name}") or b"") != name.partition(".")[0]:
            yield here.place(f"{layout.SCHEMA}/{name}")
    for line in (layout.MAIN, *(name for name in here.children(layout.BRANCHES) if layout.is_line(name))):
        for n in line_numbers(store, line):
            if not readable(partial(find_manifest, store, n, line)):
                yield here.place(layout.manifest_key(n, line))
        if not readable(partial(read_floor, store, line)):
            yield here.place(layout.floor_key(line))
    if not readable(partial(read_branches, store)):
        yield here.place(layout.BRANCH_INDEX)
    if here.place(layout.IDENTITY).exists() and not readable(partial(read_identity, store)):
        yield here.place(layout.IDENTITY)


def _table_files(place: Path) -> Iterator[Path]:
    for kind in ("nodes", "edges"):
        for folder, _, names in os.walk(place / kind):
            yield from (Path(folder, name) for name in sorted(names))
