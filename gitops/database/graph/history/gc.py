"""Garbage collection: frees storage that no graph version needs.

1. Internal branches left by crashed processes are removed.
2. Versions beyond the retention are chosen, and the floor of their line is raised first. If a writer that was suspended
   during gc then creates one of these numbers, the floor shows that the number is used.
3. Their manifests are removed, oldest first. From then on they cannot be opened, and every earlier reader has a lease.
4. Leases are read only then (see `staged`). Anything that manifests or leases refer to is kept.
5. Dataset versions without references that were superseded before the grace period are removed by explicit lists. The
   newest version of a dataset is always kept. Dataset files without a version are removed after seven days, unless the
   dataset has a lease. With a lease, they may belong to a load.
6. Interrupted loads that were not continued in time are removed: their documents first, then the data files that no
   version uses. A load that has expired is never published.
7. Unreferenced folders of datasets and lines, schemas, expired leases and unfinished files are removed after the grace
   period.

After a crash at any point, the graph still reads the same, and the next run continues. Bytes are counted as they are
freed.

A version expires if it is not among the newest of its line, was superseded long enough ago, is not a possible merge
base, and has no lease. Data that a migration dropped exists only in the version before it, which is kept for at least
seven days after the drop, regardless of other settings; `purge_dropped` removes it immediately. The newest version of a
branch never expires. All versions of a deleted branch expire, except bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, system_reason
from gitops.core.faults import around
from gitops.database.graph import layout
from gitops.database.graph.ancestry import merge_base_refs
from gitops.database.graph.checkpoints import read_checkpoint, read_loads
from gitops.database.graph.history.branches import remove_branch
from gitops.database.graph.lines import INTERNAL, BranchIndex, read_branches, read_floor, write_floor
from gitops.database.graph.manifest import Manifest, find_manifest, line_numbers
from gitops.database.graph.results import GcResult
from gitops.database.graph.root import GraphFolder, StoredFile, tables_at_once
from gitops.database.graph.snapshot import Snapshot, open_snapshot, version_time
from gitops.database.graph.staged import Lease, WriteContext, read_leases
from gitops.database.graph.tables import (
    StagedFragment,
    data_files,
    dataset_versions,
    drop_left_files,
    drop_versions,
    kept_bytes,
    remove_files,
)
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import TEMP_PREFIX, ObjectStore

_KEEP_DROPPED = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention settings of gc.

    A version expires if it is older than the newest `keep_versions` of its line and was superseded more than
    `older_than` ago.

    An unreferenced file is kept for `grace`, because it may belong to a writer that is about to publish. A table
    version is kept until a newer one is that old, because a reader that opened the graph earlier may still use it.
    """

    keep_versions: int = 10
    older_than: timedelta = timedelta(days=7)
    grace: timedelta = timedelta(hours=1)


@dataclass(slots=True)
class References:
    """Referenced dataset versions by path, and referenced schema digests. All versions from `since` on are kept."""

    versions: dict[str, set[int]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)

    def keeps(self, path: str, version: int) -> bool:
        """Return whether this dataset version must be kept."""
        since = self.since.get(path)
        return version in self.versions.get(path, ()) or (since is not None and version >= since)

    def knows(self, path: str) -> bool:
        """Return whether any version of the dataset is referenced."""
        return path in self.versions or path in self.since


def all_lines(folder: GraphFolder) -> tuple[str, ...]:
    """Return the ids of all lines with files, `main` first."""
    return (layout.MAIN, *(name for name in folder.children(layout.BRANCHES) if layout.is_line(name)))


def expired_versions(
    folder: GraphFolder, index: BranchIndex, leases: Iterable[Lease], retention: Retention, now: datetime
) -> dict[str, tuple[int, ...]]:
    """Return the expired version numbers of each line, oldest first. Raises IntegrityError `graph_unreadable`."""
    store = folder.store
    pinned = {(lease.version.line, lease.version.n) for lease in leases}
    pinned |= merge_base_refs(store, index) | _before_drops(store, now)
    alive = {line.id for line in index.lines()}
    found: dict[str, tuple[int, ...]] = {}
    given_up: tuple[int, ...]
    for line in all_lines(folder):
        numbers, given_up = line_numbers(store, line), ()
        if line in alive:
            # Numbers are newest first. The first one that was superseded long enough ago expires, with all older ones.
            for at in range(max(1, retention.keep_versions), len(numbers)):
                newer = find_manifest(store, numbers[at - 1], line)
                if newer is not None and version_time(newer) <= now - retention.older_than:
                    given_up = numbers[at:]
                    break
        else:
            newest = find_manifest(store, numbers[0], line) if numbers else None
            # A young line without a branch belongs to a branch that is being created.
            if newest is not None and version_time(newest) <= now - retention.grace:
                given_up = numbers
        left = tuple(sorted(n for n in given_up if (line, n) not in pinned))
        if left:
            found[line] = left
    return found


def _before_drops(store: ObjectStore, now: datetime) -> set[tuple[str, int]]:
    """Return the versions just before recent drops and restores (last seven days) that removed rows without a purge."""
    kept: set[tuple[str, int]] = set()
    later: Manifest | None = None
    for n in line_numbers(store, layout.MAIN):
        manifest = find_manifest(store, n, layout.MAIN)
        if manifest is None:
            continue
        if later is not None and later.operation == "migrate":
            # Whether this version has a table, or a column of a remaining table, that the later version lacks.
            left = {entry.path: set(entry.fields.values()) for entry in later.tables.values()}
            if any(not set(at.fields.values()) <= left.get(at.path, set()) for at in manifest.tables.values()):
                kept.add((layout.MAIN, n))
        elif later is not None and later.operation == "restore":
            kept.add((layout.MAIN, n))
        if version_time(manifest) <= now - _KEEP_DROPPED:
            break
        later = manifest
    return kept


def collect_references(manifests: Iterable[Manifest], leases: Iterable[Lease]) -> References:
    """Collect the schemas and table versions that manifests and leases refer to. Purged tables are left out."""
    needs, listed = References(), list(manifests)
    purged = purged_paths(listed)
    for manifest in listed:
        needs.schemas |= {manifest.schema_source, manifest.schema_ir}
        for entry in manifest.tables.values():
            if entry.path not in purged:
                needs.versions.setdefault(entry.path, set()).add(entry.version)
    for lease in leases:
        for path, version in lease.tables.items():
            if path not in purged:
                needs.since[path] = min(version, needs.since.get(path, version))
    return needs


def purged_paths(manifests: Iterable[Manifest]) -> set[str]:
    """Return the folders of permanently dropped tables, which older versions still list."""
    return {entry.path for manifest in manifests for entry in manifest.dropped if entry.purged}


def read_manifests(folder: GraphFolder, without: dict[str, tuple[int, ...]]) -> Iterator[Manifest]:
    """Yield all existing manifests except those in `without`."""
    for line in all_lines(folder):
        numbers = [n for n in line_numbers(folder.store, line) if n not in without.get(line, ())]
        found = in_parallel(partial(find_manifest, folder.store, line=line), numbers, folder.store.parallel)
        yield from (manifest for manifest in found if manifest is not None)


_TABLES = ("nodes", "edges")
_SMALL = (layout.MANIFESTS, layout.BRANCHES, layout.LEASES, layout.FLOORS, layout.SCHEMA)


def collect_garbage(
    uri: str, context: WriteContext, retention: Retention | None = None, *, dry_run: bool = False
) -> GcResult:
    """Remove all data that the retention settings do not keep.

    Safe with concurrent readers, writers and other runs. Raises GitopsError `graph_missing`, `graph_unreadable` (also
    for an unreadable manifest, because its references are unknown); RemoteError `storage_failed`.
    """
    return _GarbageCollection(open_snapshot(uri), context, retention or Retention(), dry=dry_run).run()


class _GarbageCollection:
    """State of one gc run."""

    def __init__(self, snapshot: Snapshot, context: WriteContext, retention: Retention, *, dry: bool) -> None:
        self._snapshot = snapshot
        self._folder: GraphFolder = snapshot.folder
        self._store = snapshot.store
        self._context = context
        self._retention = retention
        self._dry = dry
        self._now: datetime = context.now()
        self._freed_manifests = 0
        self._freed_versions: dict[str, tuple[int, ...]] = {}
        self._freed_paths: list[str] = []
        self._freed_bytes = 0
        self._schemas: dict[str, bytes] = {}

    def run(self) -> GcResult:
        try:
            for line in () if self._dry else read_branches(self._store).lines():
                made = line.fork is not None and line.name.startswith(INTERNAL)
                if made and self._old(datetime.fromisoformat(line.created_at)):
                    remove_branch(self._snapshot, line.name, self._context)
            gone = expired_versions(
                self._folder, read_branches(self._store), self._leases(), self._retention, self._now
            )
            self._remove_manifests(gone)
            needs = collect_references(read_manifests(self._folder, gone if self._dry else {}), self._leases())
            self._sweep_datasets(needs)
            self._sweep_loads()
            self._sweep_small(needs, gone)
            if self._schemas and not self._dry:
                # A removed schema is restored if a version that was published meanwhile refers to it.
                needed = collect_references(read_manifests(self._folder, {}), ()).schemas
                for key, data in self._schemas.items():
                    if key.rpartition("/")[2].partition(".")[0] in needed:
                        self._store.create(key, data)
            if not self._dry:
                self._snapshot.root.tidy()
        except OSError as error:
            place = self._snapshot.root.location
            raise GitopsError(Code.STORAGE_FAILED, system_reason(error, place), path=place) from error
        paths = tuple(sorted(self._freed_paths))
        versions = {path: self._freed_versions[path] for path in sorted(self._freed_versions)}
        return GcResult(self._dry, self._freed_manifests, versions, paths, self._freed_bytes)

    def _old(self, moment: datetime) -> bool:
        return moment <= self._now - self._retention.grace

    def _leases(self) -> tuple[Lease, ...]:
        return tuple(lease for lease in read_leases(self._store) if not lease.expired(self._now))

    def _remove_manifests(self, gone: Mapping[str, tuple[int, ...]]) -> None:
        """Carry out steps 2 and 3."""
        self._freed_manifests = sum(map(len, gone.values()))
        if self._dry or not gone:
            return
        with around(self._context.faults, "engine.gc", "floors"):
            for line, numbers in gone.items():
                if read_floor(self._store, line) < numbers[-1]:
                    write_floor(self._store, line, numbers[-1])
        for line, numbers in gone.items():
            for n in numbers:
                self._context.faults.reach("engine.gc.before_manifest")
                self._store.delete(layout.manifest_key(n, line))
        self._context.faults.reach("engine.gc.after_manifest")

    def _sweep_datasets(self, needs: References) -> None:
        """Carry out step 5, and step 7 for dataset folders."""
        paths = [f"{kind}/{name}" for kind in _TABLES for name in self._folder.children(kind)]
        known = [path for path in paths if needs.knows(path)]
        freed = in_parallel(lambda path: self._sweep_versions(path, needs), known, tables_at_once(self._folder))
        self._freed_bytes += sum(freed)
        for path in paths:
            if not needs.knows(path) and self._sweep_folder(path):
                self._context.faults.reach("engine.gc.after_folder")

    def _sweep_versions(self, path: str, needs: References) -> int:
        """Carry out step 5 for one dataset; return the bytes freed."""
        versions = dataset_versions(self._folder, path)
        gone = tuple(
            number
            for (number, _), (_, next_made) in pairwise(versions)
            if not needs.keeps(path, number) and self._old(next_made)
        )
        if not gone:
            return 0 if self._dry else drop_left_files(self._folder, path)
        self._freed_versions[path] = gone
        if self._dry:
            return kept_bytes(self._folder, path, gone)
        with around(self._context.faults, "engine.gc", "versions"):
            return drop_versions(self._folder, path, gone)

    def _sweep_folder(self, path: str) -> bool:
        """Remove a folder if all of its files are old."""
        files = list(self._folder.files(path))
        if not all(self._old(file.written) for file in files):
            return False
        self._remove(path, sum(file.bytes for file in files))
        return True

    def _sweep_loads(self) -> None:
        """Carry out step 6."""
        parts: dict[str, list[StoredFile]] = {}
        for file in self._folder.files(layout.LOADS):
            if not file.path.endswith(".json"):
                parts.setdefault(file.path.rpartition("/")[2].partition("-")[0], []).append(file)
        for load, data in list(read_loads(self._store)):
            mine = parts.pop(load.id, [])
            # As for leases, clocks of other machines may be behind.
            if not load.expired(self._now - timedelta(minutes=5)):
                continue
            staged: dict[str, list[StagedFragment]] = {}
            for part in (part for at in range(len(load.reads)) for part in read_checkpoint(self._store, load.id, at)):
                if part.key:
                    staged.setdefault(str(load.tables[part.key]["path"]), []).extend(part.fragments)
            self._remove(layout.load_key(load.id), len(data))
            for path, fragments in staged.items():
                self._remove_staged(path, fragments)
            for file in mine:
                self._remove(file.path, file.bytes)
        for file in (file for files in parts.values() for file in files if self._old(file.written)):
            self._remove(file.path, file.bytes)

    def _remove_staged(self, path: str, fragments: list[StagedFragment]) -> None:
        """Remove the data files that no version uses. A dataset without versions is removed as a whole."""
        if path.partition("/")[2] not in self._folder.children(path.partition("/")[0]):
            return
        kept = data_files(self._folder, path)
        free = [each for each in fragments if not kept.intersection(file.path for file in each.files)]
        self._freed_paths += [f"{path}/data/{file.path}" for each in free for file in each.files]
        self._freed_bytes += sum(file.file_size_bytes or 0 for each in free for file in each.files)
        if not self._dry:
            remove_files(self._folder, path, free)

    def _sweep_small(self, needs: References, gone: Mapping[str, tuple[int, ...]]) -> None:
        """Carry out step 7, except for dataset folders."""
        alive = {line.id for line in read_branches(self._store).lines()}
        for line in all_lines(self._folder):
            left = [n for n in line_numbers(self._store, line) if not (self._dry and n in gone.get(line, ()))]
            swept = line not in alive and not left and self._sweep_folder(f"{layout.BRANCHES}/{line}")
            if swept and not self._dry:
                self._folder.remove(layout.floor_key(line))
        # Only leases that have certainly expired, because clocks of other machines may be behind.
        sure = self._now - timedelta(minutes=5)
        leases = read_leases(self._store)
        over = {lease.id for lease in leases if lease.expired(sure)}
        # A load takes its lease first, and only then writes into its folder.
        loads = {lease.id for lease in leases} - over
        for name in self._folder.children(layout.BULK):
            if name not in loads:
                self._sweep_folder(f"{layout.BULK}/{name}")
        listings = in_parallel(lambda prefix: list(self._folder.files(prefix)), _SMALL, self._store.parallel)
        for prefix, files in zip(_SMALL, listings, strict=True):
            for file in files:
                name = file.path.rpartition("/")[2]
                if not self._old(file.written):
                    continue
                stem = name.partition(".")[0]
                if name.startswith(TEMP_PREFIX) or (prefix == layout.LEASES and stem in over):
                    self._remove(file.path, file.bytes)
                elif prefix == layout.SCHEMA and stem not in needs.schemas:
                    self._schemas[file.path] = self._store.read(file.path) or b""
                    self._remove(file.path, file.bytes)
        self._context.faults.reach("engine.gc.after_sweep")

    def _remove(self, path: str, size: int) -> None:
        self._freed_paths.append(path)
        self._freed_bytes += size
        if not self._dry:
            self._folder.remove(path)
