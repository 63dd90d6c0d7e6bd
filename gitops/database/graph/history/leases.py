"""Leases: versions that gc keeps for a reader or writer, for a limited time.

Rules of this module:

1. A lease names the tables of one version. As long as it has not expired, gc keeps these versions of them, every later one
   (a writer's work that no manifest names yet), and the manifest.
2. A lease is written first, and then its manifest is looked for again. gc removes manifests first, and then reads the leases. So
   either the manifest is seen gone, and the lease is refused, or gc sees the lease.
3. A lease that its holder does not renew expires; a holder that renews it too late gets `graph_version_gone`.
4. Short reads of the newest versions need no lease: gc leaves alone what was superseded less than its grace period ago.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import TEXT, ULID, map_of, nullable, record
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.database.graph import layout
from gitops.database.graph.forms import TIME, graph_document, number, read_document
from gitops.database.graph.manifest import VERSION_REF, CommitRef, find_manifest
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.staged import WriteContext, precise_timestamp
from gitops.database.storage.port import ObjectStore

__all__ = ["DEFAULT_TERM", "Lease", "hold_lease", "read_leases", "take_lease"]

DEFAULT_TERM = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease: the version it is for, and the version of each of its tables by path."""

    id: str
    version: CommitRef
    tables: Mapping[str, int]
    actor: str | None
    expires_at: str

    def to_bytes(self) -> bytes:
        """The stored document."""
        return LEASE.write(self)

    def expired(self, now: datetime) -> bool:
        """Whether the lease no longer protects anything."""
        until = parse_timestamp(self.expires_at)
        return until is None or until <= now


def take_lease(snapshot: Snapshot, context: WriteContext, term: timedelta) -> Lease:
    """Write a lease on a version, which expires by itself.

    Raises GitopsError `graph_version_gone` when gc has removed the version already.
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
    """Keep a version readable while the block runs, for at most `term` after the last renewal. Raises as `take_lease`.

    Gives the function that renews the lease: it starts the term again, and raises GitopsError `graph_version_gone` when the
    lease had expired and was removed.
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
    """Delete a lease. The work that it covered is valid whether or not that succeeds: it expires by itself."""
    with contextlib.suppress(RemoteError):
        store.delete(layout.lease_key(lease_id))


def read_leases(store: ObjectStore) -> tuple[Lease, ...]:
    """All leases, by id; one that is released since the listing is left out. Raises IntegrityError `graph_unreadable`."""
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
            raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: the lease does not carry its id", path=place)
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
