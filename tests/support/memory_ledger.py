"""An in-memory implementation of the ledger, for tests: the same answers, nothing on disk.

It keeps the bytes that a folder would keep, in one dictionary behind one mutex, and no protocol of its own: what the other
stores do with atomic primitives is a critical section here. Every handle made by `share` sees the same ledger.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gitops.cluster.approvals.documents import write_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import write_index
from gitops.cluster.ledger.documents import write_intent, write_lock, write_state
from gitops.cluster.ledger.files import (
    FoundDocument,
    approval_listing,
    blob_reading,
    check_write,
    conflict_error,
    intent_listing,
    is_same_state,
    lock_held_message,
    lock_observation,
    state_cas,
    view_of,
)
from gitops.cluster.ledger.port import ApprovalListing, BlobReading, IntentListing, LedgerView, LedgerWrite
from gitops.cluster.ledger.records import ChangesetReader, ChangesetRecords
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.changeset import EventDraft
from gitops.cluster.model.ledger import FormerLedger, Intent, LedgerEntry, LockInfo, LockObservation
from gitops.core import canonical
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError

__all__ = ["MemoryLedger"]


@dataclass(slots=True)
class _Shared:
    """One ledger: its files by key, the entries committed, and the calls that are to fail."""

    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)
    failures: dict[str, list[GitopsError]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)


class MemoryLedger(ChangesetReader):
    """A LedgerStore in a dictionary; safe for threads.

    `calls` counts this handle's calls by method name.
    """

    def __init__(self, *, clock: Clock, shared: _Shared | None = None) -> None:
        """Start with an empty ledger, or as another handle of one (see `share`)."""
        self._clock = clock
        self._shared = shared or _Shared()
        self.calls: Counter[str] = Counter()

    def share(self) -> MemoryLedger:
        """Another handle of the same ledger, as another process would have."""
        return MemoryLedger(clock=self._clock, shared=self._shared)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The entries handed in with commits and retirements, oldest first."""
        with self._shared.mutex:
            return tuple(self._shared.entries)

    def stored(self, key: str) -> bytes | None:
        """The bytes of one file."""
        with self._shared.mutex:
            return self._shared.files.get(key)

    def plant(self, key: str, data: bytes | None) -> None:
        """Put a file as a hand or another release would leave it; None removes it."""
        with self._shared.mutex:
            self._shared.files.pop(key, None)
            if data is not None:
                self._shared.files[key] = data

    def fail_next(self, method: str, error: GitopsError) -> None:
        """Let the next call of `method` on any handle raise `error` and change nothing."""
        with self._shared.mutex:
            self._shared.failures.setdefault(method, []).append(error)

    def dump(self) -> Mapping[str, str]:
        """Every file as text by key, in key order, for a person to look at."""
        with self._shared.mutex:
            return {key: data.decode("utf-8", "replace") for key, data in sorted(self._shared.files.items())}

    @property
    def snapshot_reads(self) -> bool:
        """As a folder: only the lock makes several readings one picture."""
        return False

    @property
    def parallel(self) -> int:
        """What is read is at hand."""
        return 1

    @property
    def state_path(self) -> str:
        """The key of the state document."""
        return f"memory://{layout.STATE}"

    @property
    def lock_path(self) -> str:
        """The key of the lock."""
        return f"memory://{layout.LOCK}"

    def observe_lock(self) -> LockObservation:
        """Whether the lock is held, and by whom."""
        with self._call("observe_lock") as files:
            return lock_observation(files.get(layout.LOCK))

    def view(self) -> LedgerView:
        """The current state."""
        with self._call("view") as files:
            return view_of(files.get(layout.STATE))

    def intents(self) -> IntentListing:
        """The recovery sidecars."""
        with self._call("intents") as files:
            return intent_listing(_inside(files, layout.RECOVERIES))

    def approvals(self) -> ApprovalListing:
        """The approval documents."""
        with self._call("approvals") as files:
            return approval_listing(_inside(files, layout.APPROVALS))

    def moved_since(self, entry: str) -> frozenset[Address]:
        """It keeps no entries."""
        return frozenset()

    def blob(self, address: Address, digest: str) -> BlobReading:
        """The catalog blob of a query or policy."""
        key = layout.blob_key(address, digest)
        with self._call("blob") as files:
            return blob_reading(None if key is None else files.get(key), digest)

    def acquire(self, info: LockInfo) -> None:
        """Take the lock. Raises ConflictError `state_lock_held`."""
        with self._call("acquire") as files:
            if layout.LOCK in files:
                seen = lock_observation(files[layout.LOCK])
                raise ConflictError(Code.STATE_LOCK_HELD, lock_held_message(seen, info.created_at), path=layout.LOCK)
            files[layout.LOCK] = write_lock(info)

    def release(self, lock_id: str) -> None:
        """Give the lock back if it still is ours."""
        with self._call("release") as files:
            info = lock_observation(files.get(layout.LOCK)).info
            if info is not None and info.lock_id == lock_id:
                del files[layout.LOCK]

    def break_lock(self, lock_id: str) -> None:
        """Remove the lock with exactly this id. Raises with the code of the force-unlock decision table."""
        with self._call("break_lock") as files:
            seen = lock_observation(files.get(layout.LOCK))
            if not seen.held:
                raise ConflictError(Code.STATE_LOCK_MISSING, "the ledger is not locked", path=layout.LOCK)
            if not seen.is_named(lock_id) and seen.info is None:
                raise IntegrityError(seen.problem or Code.INVALID_STATE_LOCK, lock_held_message(seen), path=layout.LOCK)
            if not seen.is_named(lock_id):
                raise ConflictError(Code.STATE_LOCK_ID_MISMATCH, lock_held_message(seen), path=layout.LOCK)
            del files[layout.LOCK]

    def check_anchor(self, view: LedgerView) -> None:
        """Nothing to compare: the ledger itself is beside the graphs."""

    def former(self) -> FormerLedger | None:
        """None: nothing is left of a ledger but the ledger."""

    def begin(
        self,
        view: LedgerView,
        intents: Sequence[Intent],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
        retire: Sequence[str] = (),
    ) -> LedgerView:
        """Record events and remove settled sidecars; nothing is announced."""
        with self._call("begin"):
            return self.retire(view, retire, entry, events) if events or retire else view

    def arm(self, intent: Intent) -> None:
        """Write a sidecar. Raises GitopsError `recovery_sidecar_write_error` if there is one of this id."""
        with self._call("arm") as files:
            key = _key(layout.intent_key, intent.operation_id, Code.RECOVERY_SIDECAR_WRITE_ERROR)
            if key in files:
                raise GitopsError(Code.RECOVERY_SIDECAR_WRITE_ERROR, "a record with this id already exists")
            files[key] = write_intent(intent)

    def amend(self, intent: Intent) -> None:
        """Rewrite a sidecar."""
        with self._call("amend") as files:
            files[_key(layout.intent_key, intent.operation_id, Code.RECOVERY_SIDECAR_WRITE_ERROR)] = write_intent(
                intent
            )

    def disarm(self, operation_id: str) -> None:
        """Remove a sidecar; quiet when there is none."""
        with self._call("disarm") as files:
            _drop(files, layout.RECOVERIES, operation_id)

    def retire(
        self,
        view: LedgerView,
        operation_ids: Sequence[str],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
    ) -> LedgerView:
        """Remove settled sidecars and record events. Raises ConflictError `state_cas_mismatch`, and as the port."""
        with self._call("retire") as files:
            self._require_unmoved(view)
            _record_events(files, events)
            self._record(entry)
            for operation_id in operation_ids:
                _drop(files, layout.RECOVERIES, operation_id)
            return view

    def put_blob(self, address: Address, content: bytes) -> str:
        """Publish a blob. Raises GitopsError `resource_payload_write_error`."""
        name = canonical.digest(content)
        key = layout.blob_key(address, name)
        with self._call("put_blob") as files:
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, "not UTF-8", path=address) from error
            if key is None:
                raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, "this resource has no blob", path=address)
            files[key] = content
            return name

    def record_approval(self, approval: Approval) -> None:
        """Write a new approval document. Raises GitopsError `approval_write_error`."""
        with self._call("record_approval") as files:
            key = _key(layout.approval_key, approval.approval_id, Code.APPROVAL_WRITE_ERROR)
            if key in files:
                raise GitopsError(
                    Code.APPROVAL_WRITE_ERROR, "an approval with this id already exists", path=approval.resource
                )
            files[key] = write_approval(approval)

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """Publish the state, retire sidecars, mark approvals. Raises ConflictError `state_cas_mismatch`."""
        check_write(view, write)
        data = write_state(write.state)
        with self._call("commit") as files:
            self._require_unmoved(view)
            _record_events(files, write.events)
            files[layout.STATE] = data
            self._record(write.entry)
            for operation_id in write.retire:
                _drop(files, layout.RECOVERIES, operation_id)
            for approval in write.consumed:
                used = replace(approval, consumed_at=approval.consumed_at or timestamp(self._clock.now()))
                files[layout.approval_key(approval.approval_id)] = write_approval(used)
            return LedgerView(found=True, state=write.state, cas=state_cas(data))

    def check_trailers(self, key: str) -> None:
        """Nothing to compare: there are no messages."""

    def _changesets(self) -> ChangesetRecords:
        with self._call("changesets") as files:
            return ChangesetRecords(dict(files).get)

    def _require_unmoved(self, view: LedgerView) -> None:
        if not is_same_state(view, self._shared.files.get(layout.STATE)):
            raise conflict_error()

    def _record(self, entry: LedgerEntry | None) -> None:
        if entry is not None:
            self._shared.entries.append(entry)

    @contextmanager
    def _call(self, method: str) -> Iterator[dict[str, bytes]]:
        """One counted call: its files, exclusively, or the failure that was ordered for it."""
        with self._shared.mutex:
            self.calls[method] += 1
            ordered = self._shared.failures.get(method)
            if ordered:
                raise ordered.pop(0)
            yield self._shared.files


def _record_events(files: dict[str, bytes], events: Sequence[EventDraft]) -> None:
    recording = ChangesetRecords(files.get).recording(events)
    if recording.events:
        files |= {path: data for path, data in recording.files.items() if data is not None}
        files[layout.INDEX] = write_index(recording.index)
        for path in (path for path, data in recording.files.items() if data is None):
            files.pop(path, None)


def _inside(files: Mapping[str, bytes], folder: str) -> list[FoundDocument]:
    prefix = f"{folder}/"
    return [FoundDocument(key.removeprefix(prefix), data) for key, data in files.items() if key.startswith(prefix)]


def _drop(files: dict[str, bytes], folder: str, identifier: str) -> None:
    files.pop(f"{folder}/{identifier}.json", None)


def _key(make: Callable[[str], str], identifier: str, code: Code) -> str:
    try:
        return make(identifier)
    except ValueError as error:
        raise GitopsError(code, str(error)) from error
