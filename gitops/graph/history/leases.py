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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gitops.core.canonical import document
from gitops.core.clock import Clock, is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.graph import layout
from gitops.graph.history.write_context import WriteContext, precise_timestamp
from gitops.graph.manifest import CommitRef, find_manifest, read_ref
from gitops.graph.snapshot import Snapshot
from gitops.graph.strict import Members, parse_object
from gitops.storage.port import ObjectStore

__all__ = ["DEFAULT_TERM", "HeldLease", "Lease", "hold_lease", "read_leases"]

FORMAT = 1
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
        form: dict[str, Any] = {
            "format": FORMAT,
            "id": self.id,
            "version": self.version.to_json(),
            "tables": {path: self.tables[path] for path in sorted(self.tables)},
            "actor": self.actor,
            "expires_at": self.expires_at,
        }
        return document(form)

    def expired(self, now: datetime) -> bool:
        """Whether the lease no longer protects anything."""
        until = parse_timestamp(self.expires_at)
        return until is None or until <= now


class HeldLease:
    """A lease with the means to renew and release it."""

    def __init__(self, store: ObjectStore, lease: Lease, clock: Clock, term: timedelta) -> None:
        """Hold a lease that is written already."""
        self._store = store
        self._lease = lease
        self._clock = clock
        self._term = term

    @property
    def lease(self) -> Lease:
        """The lease as it was written last."""
        return self._lease

    def renew(self) -> None:
        """Start the term again. Raises GitopsError `graph_version_gone` when the lease had expired and was removed."""
        old = self._lease
        until = precise_timestamp(self._clock.now() + self._term)
        new = Lease(old.id, old.version, old.tables, old.actor, until)
        if not self._store.replace(layout.lease_key(old.id), new.to_bytes(), expected=old.to_bytes()):
            detail = f"the lease on version {old.version.n} expired; open the graph again"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=self._store.location)
        self._lease = new

    def release(self) -> None:
        """Delete the lease."""
        self._store.delete(layout.lease_key(self._lease.id))


@contextlib.contextmanager
def hold_lease(snapshot: Snapshot, context: WriteContext, term: timedelta = DEFAULT_TERM) -> Iterator[HeldLease]:
    """Keep a version readable while the block runs, for at most `term` after the last renewal.

    Raises GitopsError `graph_version_gone` when gc has removed the version already.
    """
    store, manifest = snapshot.store, snapshot.manifest
    tables = {entry.path: entry.version for entry in manifest.tables.values()}
    until = precise_timestamp(context.now() + term)
    lease = Lease(context.ids.ulid(), manifest.ref, tables, context.actor, until)
    store.write(layout.lease_key(lease.id), lease.to_bytes())
    held = HeldLease(store, lease, context.clock, term)
    try:
        if find_manifest(store, manifest.n, manifest.line) != manifest:
            detail = f"version {manifest.n} of {snapshot.branch} is no longer kept"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=store.location)
        yield held
    finally:
        # The work of the block is valid whether or not the lease can be deleted: it expires by itself.
        with contextlib.suppress(RemoteError):
            held.release()


def read_leases(store: ObjectStore) -> tuple[Lease, ...]:
    """All leases, by id. Raises IntegrityError `graph_unreadable`."""
    found = []
    for name in store.names(layout.LEASES):
        lease_id = name.removesuffix(".json")
        if name == f"{lease_id}.json" and is_ulid(lease_id):
            lease = _read(store, lease_id)
            if lease is not None:
                found.append(lease)
    return tuple(found)


def _read(store: ObjectStore, lease_id: str) -> Lease | None:
    """The lease, or None when it was released since the listing."""
    key = layout.lease_key(lease_id)
    data, place = store.read(key), store.display(key)
    if data is None:
        return None
    form = Members(parse_object(data, place), place)
    form.format(FORMAT)
    form.expect("format", "id", "version", "tables", "actor", "expires_at")
    version = read_ref(form.take("version", dict), place)
    if version is None or form.text("id", is_ulid) != lease_id:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: the lease does not carry its id", path=place)
    tables = form.inner("tables")
    return Lease(
        id=lease_id,
        version=version,
        tables={path: tables.number(path, 1) for path in form.take("tables", dict)},
        actor=form.maybe_text("actor"),
        expires_at=form.text("expires_at", parse_timestamp),
    )
