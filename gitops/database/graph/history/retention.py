"""Which versions of a graph are kept, and what they refer to: nothing here removes anything.

A version expires when it is not among the newest of its line, was superseded long enough ago, is not a base that a merge may
need, and has no lease. What a migration dropped is in the version before it alone, which stays for at least seven days after the
drop, whatever else is asked for: `purge` is what removes it at once. The newest version of a branch never expires. All versions
of a deleted branch expire, except bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

from gitops.core.dataclass import dataclass
from gitops.database.graph import layout
from gitops.database.graph.ancestry import merge_base_refs
from gitops.database.graph.history.leases import Lease
from gitops.database.graph.lines import BranchIndex
from gitops.database.graph.manifest import Manifest, find_manifest, line_numbers
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import version_time
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

__all__ = [
    "References",
    "Retention",
    "all_lines",
    "collect_references",
    "expired_versions",
    "purged_paths",
    "read_manifests",
]


_KEEP_DROPPED = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Retention:
    """A version goes when it is beyond the newest `keep_versions` of its line and was superseded more than `older_than` ago.

    An unreferenced file is removed when it is older than `grace`: it may belong to a writer that is about to publish. A version
    of a table stays until a newer one has that age: a reader that opened the graph just before may still read it.
    """

    keep_versions: int = 10
    older_than: timedelta = timedelta(days=7)
    grace: timedelta = timedelta(hours=1)


@dataclass(slots=True)
class References:
    """The versions of datasets by path, and digests of schemas, that are referred to; from `since` on all versions are kept."""

    versions: dict[str, set[int]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)

    def keeps(self, path: str, version: int) -> bool:
        """Whether this version of a dataset stays."""
        since = self.since.get(path)
        return version in self.versions.get(path, ()) or (since is not None and version >= since)

    def knows(self, path: str) -> bool:
        """Whether the dataset stays at all."""
        return path in self.versions or path in self.since


def all_lines(folder: GraphFolder) -> tuple[str, ...]:
    """The ids of all lines that have files, `main` first."""
    return (layout.MAIN, *(name for name in folder.children(layout.BRANCHES) if layout.is_line(name)))


def expired_versions(
    folder: GraphFolder, index: BranchIndex, leases: Iterable[Lease], retention: Retention, now: datetime
) -> dict[str, tuple[int, ...]]:
    """The numbers of expired versions by line, oldest first. Raises IntegrityError `graph_unreadable`."""
    store = folder.store
    pinned = {(lease.version.line, lease.version.n) for lease in leases}
    pinned |= merge_base_refs(store, index) | _before_drops(store, now)
    alive = {line.id for line in index.lines()}
    found: dict[str, tuple[int, ...]] = {}
    given_up: tuple[int, ...]
    for line in all_lines(folder):
        numbers, given_up = line_numbers(store, line), ()
        if line in alive:
            # Numbers are newest first: the first one that was superseded long enough ago goes with all before it.
            for at in range(max(1, retention.keep_versions), len(numbers)):
                newer = find_manifest(store, numbers[at - 1], line)
                if newer is not None and version_time(newer) <= now - retention.older_than:
                    given_up = numbers[at:]
                    break
        else:
            newest = find_manifest(store, numbers[0], line) if numbers else None
            # A young line without a branch is a branch that is being created.
            if newest is not None and version_time(newest) <= now - retention.grace:
                given_up = numbers
        left = tuple(sorted(n for n in given_up if (line, n) not in pinned))
        if left:
            found[line] = left
    return found


def _before_drops(store: ObjectStore, now: datetime) -> set[tuple[str, int]]:
    """The versions before what took rows out in the last seven days and did not purge them: a drop, or a restore."""
    kept: set[tuple[str, int]] = set()
    later: Manifest | None = None
    for n in line_numbers(store, layout.MAIN):
        manifest = find_manifest(store, n, layout.MAIN)
        if manifest is None:
            continue
        dropped = later is not None and later.operation == "migrate" and _drops(manifest, later)
        if dropped or (later is not None and later.operation == "restore"):
            kept.add((layout.MAIN, n))
        if version_time(manifest) <= now - _KEEP_DROPPED:
            break
        later = manifest
    return kept


def _drops(before: Manifest, after: Manifest) -> bool:
    """Whether a table, or a column of one that stays, is in the first version and not in the second."""
    tables = {entry.path: set(entry.fields.values()) for entry in after.tables.values()}
    return any(not set(entry.fields.values()) <= tables.get(entry.path, set()) for entry in before.tables.values())


def collect_references(manifests: Iterable[Manifest], leases: Iterable[Lease]) -> References:
    """What these versions and leases refer to; purged tables do not count."""
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
    """The folders of tables that a migration dropped permanently, although older versions name them."""
    return {entry.path for manifest in manifests for entry in manifest.dropped if entry.purged}


def _find_in(store: ObjectStore, line: str, n: int) -> Manifest | None:
    return find_manifest(store, n, line)


def read_manifests(folder: GraphFolder, without: dict[str, tuple[int, ...]]) -> Iterator[Manifest]:
    """The manifests that are there, but for some."""
    for line in all_lines(folder):
        numbers = [n for n in line_numbers(folder.store, line) if n not in without.get(line, ())]
        found = in_parallel(partial(_find_in, folder.store, line), numbers, folder.store.parallel)
        yield from (manifest for manifest in found if manifest is not None)
