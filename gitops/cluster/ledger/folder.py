"""The ledger as a `__cluster/` folder in an object store: a local folder, or a prefix in object storage.

Rules of this module:

1. `state.json` is the publish point. Blobs and sidecars are written before it. Then consumed approvals are marked, and once
   all of them are, sidecars are removed: as long as a sidecar exists, recovery marks the approvals of its delete.
2. The state is replaced only if its bytes are still those of the caller's view.
3. The lock is one object that is created exclusively. Removing it requires its id, and it never expires.
4. Steps after the publish point may fail without an error, because recovery finds the sidecar and settles it. An approval is
   consumed if its document is marked or the state records its id: after the loss of the state, the documents remain.
5. The events of changesets are recorded by separate rules: see the section on changesets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from gitops.cluster.approvals.documents import write_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import ChangesetIndex, read_index, write_events, write_index
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
    unreadable_view,
    view_of,
)
from gitops.cluster.ledger.port import (
    ApprovalListing,
    BlobCondition,
    BlobReading,
    IntentListing,
    LaterEntries,
    LedgerView,
    LedgerWrite,
)
from gitops.cluster.ledger.records import ChangesetReader, ChangesetRecords, Recording
from gitops.cluster.model.address import Address, graph_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.changeset import ChangesetEvent, EventDraft
from gitops.cluster.model.ledger import FormerLedger, Intent, LedgerEntry, LockInfo, LockObservation
from gitops.core import canonical
from gitops.core.canonical import digest
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, around
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

# -- changesets --------------------------------------------------------------------------------------------------------
# Changesets of a ledger in a folder, where files are written one by one. Rules:
#
# 1. Events are recorded by a compare-and-swap of the index, which contains them. Their files follow. If a writer
#    crashes before it writes the files, the next writer or reader finds the events in the index.
# 2. Events that belong to a state are first put into the index, with the digest of that state. They count as recorded
#    once the state is swapped. After a crash before that, they never happened; after a crash later, they did.
# 3. If a write has many events, they are in a separate file, which is written first, and the index contains its digest.
#    The next write removes this file, because the event files exist by then.
# 4. A file is overwritten only if it is still as it was read. So a delayed writer that lost its lock does not undo
#    later writes.
# 5. While another process holds the lock, events can be recorded only if none are announced, because the holder decides
#    whether announced events happen.


_ATTEMPTS = 10
_INLINE = 16_384
"""Maximum number of bytes of events in the index, because every reader of open changesets reads all of them."""


class FolderChangesets:
    """Reads and writes a ledger folder's changesets. It does not read its own writes again."""

    def __init__(self, store: ObjectStore, faults: Faults) -> None:
        """`store` is the storage root."""
        self._store = store
        self._faults = faults
        self._index: bytes | None = None
        self._known: ChangesetRecords | None = None
        self._is_settled = self._is_sure = False
        self._announced: ChangesetRecords | None = None

    def read(self) -> ChangesetRecords:
        """Return the current changesets. Raises IntegrityError `changeset_invalid`, RemoteError."""
        return ChangesetRecords(
            self._store.read, lambda: None if (data := self._store.read(layout.STATE)) is None else state_cas(data)
        )

    def keep(self) -> ChangesetRecords:
        """Return the changesets from the last `read`. After `forget` or a write, this requires that the index is unchanged."""
        known = self._known
        if known is None or not (self._is_sure or self._store.read(layout.INDEX) == self._index):
            known = self.read()
            self._index = known.stored(layout.INDEX)
            # Whether announced events happen depends on the state at this moment, because a slow run might still write
            # it.
            self._known, self._is_settled = None if known.pending else known, False
        self._is_sure = True
        return known

    def read_ahead(self) -> None:
        """Read the changesets in advance. If this fails, the next reader tries again."""
        with contextlib.suppress(GitopsError):
            self.keep()

    def forget(self) -> None:
        """Check the index again before the next use of cached changesets, even for a write."""
        self._is_sure = self._is_settled = False

    def record(self, drafts: Iterable[EventDraft], may_settle: Callable[[], bool]) -> None:
        """Record events without a state.

        Raises RemoteError `state_write_error`, and the ConflictErrors of `LedgerStore.begin`.

        A caller that may not settle another writer's announcement gets ConflictError `state_lock_held` until that is done
        (rule 5).
        """
        drafts = tuple(drafts)
        for _ in range(_ATTEMPTS if drafts else 0):
            known = self.settle(may_settle)
            recording = known.recording(drafts)
            if not recording.events:
                return
            with around(self._faults, "ledger.changeset", "record"):
                landed = self._publish(recording.index, recording.events)
            if landed:
                self._follow(known, recording)
                return
        if drafts:
            raise conflict_error()

    def announce(self, drafts: Iterable[EventDraft], state: bytes) -> Recording | None:
        """Add events to the index that take effect with this state document (rule 2). Returns None if there are no events.

        Raises ConflictError `state_cas_mismatch`, and the errors of `record`.
        """
        drafts = tuple(drafts)
        for _ in range(_ATTEMPTS):
            known = self.settle()
            recording = known.recording(drafts)
            if not recording.events:
                return None
            with around(self._faults, "ledger.changeset", "announce"):
                landed = self._publish(replace(known.index, committing=digest(state)), recording.events)
            if landed:
                # Until they are confirmed or withdrawn, the state shows whether they happened.
                self._known, self._announced = None, known
                return recording
        raise conflict_error()

    def confirm(self, recording: Recording) -> None:
        """Record the announced events, because their state is now in force. If this fails, the next writer does it."""
        known, self._announced = self._announced, None
        with contextlib.suppress(RemoteError):
            with around(self._faults, "ledger.changeset", "confirm"):
                landed = self._publish(recording.index, recording.events)
            if landed and known is not None:
                self._follow(known, recording)

    def withdraw(self) -> None:
        """Remove the announced events, because their state was not written. If this fails, the next writer does it."""
        known, self._announced = self._announced, None
        with contextlib.suppress(RemoteError):
            if known is not None and self._publish(known.index, ()):
                self._take_over(known)

    def settle(self, may_settle: Callable[[], bool] = lambda: True) -> ChangesetRecords:
        """Finish an interrupted writer's work. Return the recorded changesets. Raises the errors of `record`."""
        try:
            for _ in range(_ATTEMPTS):
                # After a write by this object, the swap of the next write shows whether another writer wrote in
                # between.
                known = self._known if self._is_settled and self._known is not None else self.keep()
                if self._is_settled:
                    return known
                if known.pending and not may_settle():
                    detail = "the run that holds the lock is committing a changeset now"
                    fix = "see its result: gitops changeset list --all"
                    raise ConflictError(Code.STATE_LOCK_HELD, detail, path=layout.LOCK, fix=fix)
                unwritten = known.unwritten()
                self._write_files(known, unwritten)
                if not known.pending or self._publish(known.index, known.newest):
                    known.advance(unwritten)
                    self._take_over(known)
                    return known
        except RemoteError as error:
            raise error.during(Code.STATE_WRITE_ERROR, layout.INDEX) from error
        raise conflict_error()

    def _follow(self, known: ChangesetRecords, recording: Recording) -> None:
        """Write the files of recorded events. If this fails, the next writer does it."""
        self._known = None
        with contextlib.suppress(RemoteError):
            self._write_files(known, recording)
            known.advance(recording)
            self._take_over(known)

    def _take_over(self, known: ChangesetRecords) -> None:
        """Write the recorded changesets with all files, for the index that this object last wrote."""
        self._known, self._is_settled, self._is_sure = known, True, False

    def _write_files(self, known: ChangesetRecords, recording: Recording) -> None:
        def write(path: str) -> None:
            held, data = known.stored(path), recording.files[path]
            if held == data:
                return
            # Rule 4: if another writer wrote, it also wrote this file.
            with around(self._faults, "ledger.changeset", "file"):
                if data is None:
                    self._store.delete(path)
                elif held is None:
                    self._store.create(path, data)
                else:
                    self._store.replace(path, data, expected=held)

        # Removed changesets are in the archive, and the lines that list them for removal are removed last.
        removed = [path for path, data in recording.files.items() if data is None]
        last = [path for path in recording.files if removed and path == layout.ENDED]
        first = [path for path in recording.files if path not in (*removed, *last)]
        for paths in (first, removed, last):
            in_parallel(write, paths, self._store.parallel)

    def _publish(self, index: ChangesetIndex, events: Iterable[ChangesetEvent]) -> bool:
        """Replace the last index that was read or written by one with these events.

        Returns False if another writer was faster.
        """
        lines, expected = write_events(events), self._index
        before = None if expected is None else read_index(expected).batch
        batch = digest(lines) if len(lines) > _INLINE else None
        newest = () if batch is not None else tuple(line.decode() for line in lines.splitlines())
        data = write_index(replace(index, newest=newest, batch=batch))
        try:
            # Rule 3. An existing file with this name has this content.
            if batch is not None and batch != before:
                self._store.create(layout.batch_key(batch), lines)
            if expected is None:
                landed = self._store.create(layout.INDEX, data)
            else:
                landed = self._store.replace(layout.INDEX, data, expected=expected)
        except RemoteError as error:
            raise error.during(Code.STATE_WRITE_ERROR, layout.INDEX) from error
        self._index, self._known = (data, self._known) if landed else (None, None)
        if landed and before not in (None, batch):
            with contextlib.suppress(RemoteError):
                self._store.delete(layout.batch_key(before))
        return landed


class FolderLedger(ChangesetReader):
    """A thread-safe LedgerStore on an object store. Ignores entries, because a folder keeps no history."""

    def __init__(
        self, store: ObjectStore, *, clock: Clock, faults: Faults, has_ended: Callable[[int], bool] = lambda _: False
    ) -> None:
        """`store` is the storage root. `clock` provides the time at which approvals are consumed.

        `has_ended` returns whether the process of a lock has ended, as far as that is known.
        """
        self._store = store
        self._has_ended = has_ended
        self._clock = clock
        self._faults = faults
        self._writer = FolderChangesets(store, faults)
        self._holds_lock = False
        self._seen: bytes | None = None
        self._ahead: dict[str, list[FoundDocument]] = {}

    @property
    def snapshot_reads(self) -> bool:
        """Return False, because files can change between two reads, unless the reader holds the lock."""
        return False

    @property
    def parallel(self) -> int:
        """The number of parallel requests that the store supports."""
        return self._store.parallel

    @property
    def state_path(self) -> str:
        """The state document's location, for messages."""
        return self._store.display(layout.STATE)

    @property
    def lock_path(self) -> str:
        """The lock's location, for messages."""
        return self._store.display(layout.LOCK)

    def observe_lock(self) -> LockObservation:
        """Return the lock's state. An unreadable lock counts as held."""
        try:
            seen = lock_observation(self._store.read(layout.LOCK))
            return replace(seen, abandoned=seen.info is not None and self._has_ended(seen.info.pid))
        except RemoteError as error:
            return LockObservation(held=True, problem=Code.STATE_LOCK_READ_ERROR, detail=error.detail)

    def view(self) -> LedgerView:
        """Return the current state, read once. Every failure is one of its problems.

        The holder of the lock needs sidecars, approvals and changesets next. If the store is slow, all of them are read in
        parallel and kept until this run writes.
        """
        self._writer.forget()
        reads: list[Callable[[], None]] = [self._read_state]
        if self._holds_lock and self.parallel > 1:
            reads += [partial(self._read_ahead, folder) for folder in (layout.RECOVERIES, layout.APPROVALS)]
            reads += [self._writer.read_ahead]
        try:
            in_parallel(lambda read: read(), reads, self.parallel)
        except RemoteError as error:
            return unreadable_view(error)
        return view_of(self._seen)

    def intents(self) -> IntentListing:
        """Return the recovery sidecars."""
        try:
            return intent_listing(self._documents(layout.RECOVERIES))
        except RemoteError as error:
            return IntentListing(problem=error.detail)

    def approvals(self) -> ApprovalListing:
        """Return the approval documents."""
        try:
            return approval_listing(self._documents(layout.APPROVALS))
        except RemoteError as error:
            return ApprovalListing(problem=error.detail)

    def entries_since(self, entry: str) -> LaterEntries:  # noqa: ARG002 - no entries are kept
        """Return nothing, because a folder keeps no history."""
        return LaterEntries()

    def blob(self, address: Address, digest: str) -> BlobReading:
        """Return the verified catalog blob of a query or policy. A folder in its place is not a blob."""
        key = layout.blob_key(address, digest)
        try:
            return blob_reading(None if key is None else self._store.read(key), digest)
        except RemoteError as error:
            if isinstance(error.__cause__, IsADirectoryError):
                return blob_reading(None, digest)
            return BlobReading(BlobCondition.UNREADABLE, detail=error.detail)

    def acquire(self, info: LockInfo) -> None:
        """Take the lock by creating its file exclusively.

        Raises ConflictError `state_lock_held` with holder, age and the id for force-unlock if they are known, or RemoteError
        `state_lock_error`.
        """
        document = write_lock(info)
        try:
            with around(self._faults, "ledger.lock", "take"):
                taken = self._store.create(layout.LOCK, document)
        except RemoteError as error:
            # If creating the lock failed halfway, remove only our own lock.
            with contextlib.suppress(RemoteError):
                if self._store.read(layout.LOCK) == document:
                    self._store.delete(layout.LOCK)
            raise error.during(Code.STATE_LOCK_ERROR, layout.LOCK) from error
        if not taken:
            raise ConflictError(
                Code.STATE_LOCK_HELD, lock_held_message(self.observe_lock(), info.created_at), path=layout.LOCK
            )
        self._holds_lock = True

    def release(self, lock_id: str) -> None:
        """Release the lock if it still has this id. Raises RemoteError `state_unlock_error` if it cannot be removed."""
        self._holds_lock = False
        self._ahead.clear()
        self._writer.forget()
        try:
            info = lock_observation(self._store.read(layout.LOCK)).info
            if info is not None and info.lock_id == lock_id:
                with around(self._faults, "ledger.lock", "give_back"):
                    self._store.delete(layout.LOCK)
        except RemoteError as error:
            raise error.during(Code.STATE_UNLOCK_ERROR, layout.LOCK) from error

    def break_lock(self, lock_id: str) -> None:
        """Remove the lock with exactly this id, or with this digest of its bytes.

        Otherwise raises the first applicable row of the decision table.
        """
        try:
            seen = lock_observation(self._store.read(layout.LOCK))
        except RemoteError as error:
            raise error.during(Code.STATE_LOCK_READ_ERROR, layout.LOCK) from error
        if not seen.held:
            raise ConflictError(Code.STATE_LOCK_MISSING, "the ledger is not locked", path=layout.LOCK)
        if not seen.is_named(lock_id) and seen.info is None:
            raise IntegrityError(seen.problem or Code.INVALID_STATE_LOCK, lock_held_message(seen), path=layout.LOCK)
        if not seen.is_named(lock_id):
            raise ConflictError(Code.STATE_LOCK_ID_MISMATCH, lock_held_message(seen), path=layout.LOCK)
        try:
            with around(self._faults, "ledger.lock", "break"):
                self._store.delete(layout.LOCK)
        except RemoteError as error:
            raise error.during(Code.STATE_UNLOCK_ERROR, layout.LOCK) from error

    def check_anchor(self, view: LedgerView) -> None:
        """Do nothing, because the ledger itself is next to the graphs."""

    def former(self) -> FormerLedger | None:
        """Return None, because a folder ledger leaves no other traces."""

    def begin(
        self,
        view: LedgerView,
        intents: Sequence[Intent],  # noqa: ARG002 - each becomes durable in `arm`
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
        retire: Sequence[str] = (),
    ) -> LedgerView:
        """Record events and remove settled sidecars. `arm` makes each intent durable. Raises the errors of `retire`."""
        return self.retire(view, retire, entry, events) if events or retire else view

    def arm(self, intent: Intent) -> None:
        """Write the sidecar for an operation that is about to start. Raises GitopsError `recovery_sidecar_write_error`."""
        self._ahead.clear()
        try:
            key = layout.intent_key(intent.operation_id)
            with around(self._faults, "ledger.sidecar", "arm"):
                armed = self._store.create(key, write_intent(intent))
        except (GitopsError, ValueError) as error:
            raise _sidecar_error(intent, error) from error
        if not armed:
            raise _sidecar_error(intent, ValueError("a record with this id already exists"))

    def amend(self, intent: Intent) -> None:
        """Update a sidecar with newly known facts. Raises GitopsError `recovery_sidecar_write_error`."""
        try:
            with around(self._faults, "ledger.sidecar", "amend"):
                self._store.write(layout.intent_key(intent.operation_id), write_intent(intent))
        except (GitopsError, ValueError) as error:
            raise _sidecar_error(intent, error) from error

    def disarm(self, operation_id: str) -> None:
        """Remove a sidecar, ignoring failures."""
        with contextlib.suppress(GitopsError, ValueError), around(self._faults, "ledger.sidecar", "remove"):
            self._store.delete(layout.intent_key(operation_id))

    def retire(
        self,
        view: LedgerView,
        operation_ids: Sequence[str],
        entry: LedgerEntry | None,  # noqa: ARG002
        events: Sequence[EventDraft] = (),
    ) -> LedgerView:
        """If the state is still that of `view`, record events and remove sidecars that the state already explains.

        A sidecar that cannot be removed is left to the next sweep. Raises ConflictError `state_cas_mismatch`,
        RemoteError `state_read_error`, and the port's errors for events.
        """
        try:
            current = self._store.read(layout.STATE)
        except RemoteError as error:
            raise error.during(Code.STATE_READ_ERROR, layout.STATE) from error
        if not is_same_state(view, current):
            raise conflict_error()
        if not self._holds_lock:
            self._writer.forget()
        # The run that holds the lock decides about announced events. If no run holds it, this one decides.
        self._writer.record(events, lambda: self._holds_lock or not self.observe_lock().held)
        in_parallel(self.disarm, operation_ids, self.parallel)
        return view

    def put_blob(self, address: Address, content: bytes) -> str:
        """Publish a catalog blob and return its digest. Reuses a correct blob and replaces a corrupt one.

        Concurrent callers write the same bytes, so it does not matter who is last. Raises GitopsError
        `resource_payload_write_error`, also for content that is not UTF-8.
        """
        name = canonical.digest(content)
        key = layout.blob_key(address, name)
        if key is None:
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, "this resource has no blob", path=address)
        try:
            content.decode("utf-8")
            # Most blobs are new, so writing takes one request, while reading first would take two.
            with around(self._faults, "ledger.blob", "write"):
                if not self._store.create(key, content) and self._store.read(key) != content:
                    self._store.write(key, content)
        except UnicodeDecodeError as error:
            detail = f"the content is not UTF-8: invalid byte at offset {error.start}"
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, detail, path=address) from error
        except RemoteError as error:
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, error.detail, path=address) from error
        return name

    def record_approval(self, approval: Approval) -> None:
        """Write a new approval document. Raises GitopsError `approval_write_error`."""
        self._ahead.clear()
        try:
            key = layout.approval_key(approval.approval_id)
            with around(self._faults, "ledger.approval", "record"):
                recorded = self._store.create(key, write_approval(approval))
        except (GitopsError, ValueError) as error:
            raise GitopsError(Code.APPROVAL_WRITE_ERROR, str(error), path=approval.resource) from error
        if not recorded:
            raise GitopsError(
                Code.APPROVAL_WRITE_ERROR, "an approval with this id already exists", path=approval.resource
            )

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """Publish the state with its events, unless the ledger changed since `view`. Then mark approvals and retire sidecars.

        Raises ConflictError `state_cas_mismatch` (nothing written), RemoteError `state_write_error`, UsageError for text
        that cannot be stored, BugError for a write that does not belong to its view.
        """
        check_write(view, write)
        self._ahead.clear()
        data = write_state(write.state)
        recording = self._writer.announce(write.events, data)
        self._faults.reach("ledger.commit.before_state")
        try:
            landed = self._swap(view, data)
        except RemoteError as error:
            raise error.during(Code.STATE_WRITE_ERROR, layout.STATE) from error
        if not landed:
            if recording is not None:
                self._writer.withdraw()
            raise conflict_error()
        self._faults.reach("ledger.commit.after_state")
        if recording is not None:
            self._writer.confirm(recording)
        marked = self._mark(write.consumed)
        in_parallel(self.disarm, write.retire if marked else (), self.parallel)
        self._faults.reach("ledger.commit.after_retire")
        return LedgerView(found=True, state=write.state, cas=state_cas(data))

    def check_trailers(self, key: str) -> None:
        """Do nothing, because a folder has no commit messages."""

    def _changesets(self) -> ChangesetRecords:
        return self._writer.keep() if self._holds_lock else self._writer.read()

    def _swap(self, view: LedgerView, data: bytes) -> bool:
        if view.cas is None:
            return self._store.create(layout.STATE, data)
        current = self._seen if is_same_state(view, self._seen) else self._store.read(layout.STATE)
        if current is None or not is_same_state(view, current):
            return False
        return self._store.replace(layout.STATE, data, expected=current)

    def _mark(self, approvals: Sequence[Approval]) -> bool:
        """Mark approvals as consumed. Return False if one of the documents could not be written."""
        marked, now = 0, timestamp(self._clock.now()) if approvals else ""
        for approval in approvals:
            with contextlib.suppress(GitopsError, ValueError):
                used = replace(approval, consumed_at=approval.consumed_at or now)
                with around(self._faults, "ledger.approval", "mark"):
                    self._store.write(layout.approval_key(approval.approval_id), write_approval(used))
                marked += 1
        return marked == len(approvals)

    def _read_state(self) -> None:
        self._seen = self._store.read(layout.STATE)

    def _read_ahead(self, folder: str) -> None:
        """Read documents in advance. After a failure, they are read on demand."""
        with contextlib.suppress(RemoteError):
            self._ahead[folder] = self._read_documents(folder)

    def _documents(self, folder: str) -> list[FoundDocument]:
        ahead = self._ahead.get(folder)
        return self._read_documents(folder) if ahead is None else ahead

    def _read_documents(self, folder: str) -> list[FoundDocument]:
        def read(name: str) -> FoundDocument | None:
            try:
                content = self._store.read(f"{folder}/{name}")
            except RemoteError as error:
                return FoundDocument(name, None, error.detail)
            # If a document disappeared after it was listed, its owner has settled it.
            return None if content is None else FoundDocument(name, content)

        names = filter(layout.document_id, self._store.names(folder))
        return [found for found in in_parallel(read, names, self.parallel) if found is not None]


def _sidecar_error(intent: Intent, error: Exception) -> GitopsError:
    return GitopsError(Code.RECOVERY_SIDECAR_WRITE_ERROR, str(error), path=graph_address(intent.graph_id))
