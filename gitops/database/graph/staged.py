"""Staged work on a graph: everything that can fail happens first, then one atomic step makes the result visible.

A new graph is complete in its staging folder and gets its root in one step, so a root is absent or complete, never
partial. A new version of a graph is one manifest, which either exists or does not.

A lease makes gc keep a version for a reader or writer, for a limited time:

1. A lease lists the tables of one version. Until it expires, gc keeps these table versions, all later ones (a writer's
   unpublished work), and the manifest.
2. A lease is written first, and then its manifest is checked again. gc removes manifests first, and then reads the
   leases. So either the manifest is found missing and the lease is refused, or gc sees the lease.
3. A lease expires if its holder does not renew it. If the holder renews it too late, `graph_version_gone` is raised.
4. Short reads of recent versions need no lease, because gc keeps versions for a grace period after they are superseded.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from gitops.core.clock import Clock, IdSource, is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import TEXT, ULID, map_of, nullable, record
from gitops.core.errors import BugError, ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph import layout
from gitops.database.graph.layout import MAIN
from gitops.database.graph.lines import INTERNAL, read_branches, read_floor, read_line
from gitops.database.graph.manifest import (
    DELETE,
    TIME,
    VERSION_REF,
    CommitRef,
    find_manifest,
    graph_document,
    number,
    publish,
    read_document,
)
from gitops.database.graph.root import Staging
from gitops.database.graph.snapshot import Snapshot, open_newest
from gitops.database.storage.port import ObjectStore

ATTEMPTS = 32
_FIRST_S = 0.005
_LONGEST_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteContext:
    """External inputs to a write. `actor` and `message` are recorded in the new versions."""

    clock: Clock
    ids: IdSource
    actor: str | None = None
    message: str | None = None
    faults: Faults = field(default_factory=NoFaults)

    def now(self) -> datetime:
        """Return the clock's current time."""
        return self.clock.now()


def precise_timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with `Z`, with microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def later_timestamp(one: str, other: str) -> str:
    """Return the later of two times, or the first one if they are equal or cannot be parsed."""
    return max(one, other, key=lambda text: parse_timestamp(text) or datetime.min.replace(tzinfo=UTC))


class StagedGraph:
    """A new graph that is complete in its staging folder and will become version 1."""

    def __init__(self, staging: Staging, faults: Faults) -> None:
        self._staging = staging
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        """Publish the graph at its root. Raises ConflictError `graph_conflict` if the root is no longer free."""
        if not self._open:
            raise BugError("staged work is used twice")
        self._faults.reach("engine.create.before_publish")
        self._open = False
        try:
            self._staging.take_root()
        except GitopsError:
            self._staging.discard()
            raise
        self._faults.reach("engine.create.after_publish")
        return 1

    def abort(self) -> None:
        """Remove the staged work, which was never visible."""
        if self._open:
            self._open = False
            self._staging.discard()


class StagedVersion:
    """A branch's next version after `base`. Its table versions are already written, but its manifest is not."""

    def __init__(
        self,
        base: Snapshot,
        operation: str,
        context: WriteContext,
        *,
        stamp: Callable[[datetime], str] = precise_timestamp,
        purged: Sequence[str] = (),
        lineage: Mapping[str, int] | None = None,
        **changes: Any,
    ) -> None:
        """Create the next version's manifest: the base's manifest with these changes.

        `lineage` is the ancestry that a merge adds. `purged` are the folders of tables to remove, with all older
        versions, after the new version is published. A version is never older than its parent, regardless of clocks.
        """
        parent, line = base.manifest, base.line.id
        reach = parent.reach
        for older, n in (lineage or {}).items():
            reach[older] = max(n, reach.get(older, 0))
        reach.pop(line, None)
        commit, tables = context.ids.ulid(), changes.pop("tables", parent.tables)
        self.manifest = replace(
            parent,
            n=parent.n + 1,
            branch=base.branch,
            line=line,
            parent=parent.ref,
            lineage=reach,
            operation=operation,
            txn_id=commit,
            tables={key: entry.committed(commit) for key, entry in tables.items()},
            actor=context.actor,
            ts=later_timestamp(stamp(context.now()), parent.ts),
            **{"merge_parent": None, "message": context.message, **changes},
        )
        self._purged = purged
        self._base = base
        self._faults = context.faults
        self._open = True

    def publish(self, *, purge: bool = True) -> int:
        """Write the manifest if its number is free and the branch is still on the same line.

        Files of purged tables are removed only with `purge`. Raises ConflictError `graph_conflict` if the manifest
        cannot be written; GitopsError `graph_branch_missing` if the branch was removed.
        """
        if not self._open:
            raise BugError("staged work is used twice")
        point = f"engine.{self.manifest.operation}"
        self._faults.reach(f"{point}.before_publish")
        self._open = False
        root, store = self._base.root, self._base.store
        place = root.location
        if not root.holds(self._base.identity):
            detail = f"graph {self._base.identity.graph_id} is no longer at {place}"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if self._base.manifest.line != self._base.line.id:
            detail = f"version {self._base.manifest.n} of {self._base.branch} is not its newest"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if self._base.line.id != MAIN:
            if read_line(store, self._base.branch) != self._base.line:
                raise ConflictError(Code.GRAPH_CONFLICT, f"branch {self._base.branch} was created again", path=place)
            if open_newest(root).manifest.operation == DELETE:
                raise ConflictError(Code.GRAPH_CONFLICT, f"the graph at {place} was deleted", path=place)
        purged = self._purged if purge else ()
        if purged:
            # A branch that was created after staging has the tables that are about to be removed.
            require_no_branches(self._base)
        if not publish(store, self.manifest):
            detail = f"another writer published version {self.manifest.n} of {self._base.branch} at {place}"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if read_floor(store, self.manifest.line) >= self.manifest.n:
            # This happens only to a writer that was suspended while newer versions were published and older ones removed.
            detail = f"version {self.manifest.n} of {self._base.branch} at {place} existed before and was removed"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        self._faults.reach(f"{point}.after_publish")
        self._base.folder.note_newest(self.manifest.line, self.manifest.n)
        for path in purged:
            # After a failure, gc removes the rest, because the new version records the purge.
            with contextlib.suppress(OSError, RemoteError):
                self._base.folder.remove(path)
        return self.manifest.n

    def abort(self) -> None:
        """Discard the manifest. The table versions remain unreferenced until the next writer undoes them."""
        self._open = False


def require_no_branches(snapshot: Snapshot) -> None:
    """Raise ConflictError `graph_has_branches` with the branch names. Internal branches are ignored."""
    names = [line.name for line in read_branches(snapshot.store).lines()[1:] if not line.name.startswith(INTERNAL)]
    if names:
        place = snapshot.root.location
        detail = (
            f"data is removed permanently only from a graph without branches, and {place} has {', '.join(names)[:200]}"
        )
        raise ConflictError(Code.GRAPH_HAS_BRANCHES, detail, path=place)


def retry_until_published(attempt: Callable[[], T], pause: Callable[[int], None]) -> T:
    """Repeat `attempt` until it has no conflict, at most 32 times. `pause` gets the number of failed attempts.

    Raises ConflictError `graph_conflict` after the last attempt. Any other error from `attempt` is raised immediately.
    """
    for failed in range(1, ATTEMPTS):
        try:
            return attempt()
        except ConflictError as error:
            if error.code != Code.GRAPH_CONFLICT:
                raise
        pause(failed)
    return attempt()


def sleep_jittered(failed: int) -> None:
    """Sleep for a random time that grows with the number of failed attempts, up to half a second."""
    time.sleep(random.uniform(0, min(_LONGEST_S, _FIRST_S * 2**failed)))  # noqa: S311 - spreads writers, keeps no secret


DEFAULT_TERM = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease on a graph version, with its table versions by path."""

    id: str
    version: CommitRef
    tables: Mapping[str, int]
    actor: str | None
    expires_at: str

    def to_bytes(self) -> bytes:
        """Return the stored document."""
        return LEASE.write(self)

    def expired(self, now: datetime) -> bool:
        """Return whether the lease no longer protects anything."""
        until = parse_timestamp(self.expires_at)
        return until is None or until <= now


def take_lease(snapshot: Snapshot, context: WriteContext, term: timedelta) -> Lease:
    """Write a lease on a version. It expires after `term`.

    Raises GitopsError `graph_version_gone` if gc has already removed the version.
    """
    store, manifest = snapshot.store, snapshot.manifest
    tables = {entry.path: entry.version for entry in manifest.tables.values()}
    until = precise_timestamp(context.now() + term)
    lease = Lease(context.ids.ulid(), manifest.ref, tables, context.actor, until)
    store.write(layout.lease_key(lease.id), lease.to_bytes())
    kept = False
    try:
        kept = find_manifest(store, manifest.n, manifest.line) == manifest
    finally:
        if not kept:
            _release(store, lease.id)
    if not kept:
        detail = f"version {manifest.n} of {snapshot.branch} is no longer kept"
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=store.location)
    return lease


@contextlib.contextmanager
def hold_lease(
    snapshot: Snapshot, context: WriteContext, term: timedelta = DEFAULT_TERM
) -> Iterator[Callable[[], None]]:
    """Keep a version readable during the block, for at most `term` after the last renewal.

    Raises the same errors as `take_lease`. Yields a function that renews the lease. It restarts the term, and raises
    GitopsError `graph_version_gone` if the lease had expired and was removed.
    """
    store, lease = snapshot.store, take_lease(snapshot, context, term)

    def renew() -> None:
        nonlocal lease
        new = replace(lease, expires_at=precise_timestamp(context.now() + term))
        if not store.replace(layout.lease_key(lease.id), new.to_bytes(), expected=lease.to_bytes()):
            detail = f"the lease on version {lease.version.n} expired; open the graph again"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=store.location)
        lease = new

    try:
        yield renew
    finally:
        _release(store, lease.id)


def _release(store: ObjectStore, lease_id: str) -> None:
    """Delete a lease, ignoring failures, because the lease expires anyway."""
    with contextlib.suppress(RemoteError):
        store.delete(layout.lease_key(lease_id))


def read_leases(store: ObjectStore) -> tuple[Lease, ...]:
    """Read all leases by id, skipping those released since the listing. Raises IntegrityError `graph_unreadable`."""
    found = []
    for name in store.names(layout.LEASES):
        lease_id, dot, suffix = name.partition(".")
        if not is_ulid(lease_id) or dot + suffix != ".json":
            continue
        key = layout.lease_key(lease_id)
        data, place = store.read(key), store.display(key)
        if data is None:
            continue
        lease = read_document(LEASE, data, place)
        if lease.id != lease_id:
            raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: the lease has a different id", path=place)
        found.append(lease)
    return tuple(found)


LEASE = graph_document(
    {
        1: record(
            Lease,
            {
                "id": ULID,
                "version": VERSION_REF,
                "tables": map_of(number(1), key=str),
                "actor": nullable(TEXT),
                "expires_at": TIME,
            },
        )
    }
)
