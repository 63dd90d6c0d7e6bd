"""The changesets of a ledger folder, whose files are written one by one.

Rules:

1. Events are recorded by the compare-and-swap of the index, which has them in it. Their files follow; who writes next, or reads,
   finds in the index what a writer did not live to put into the files.
2. Events that come with a state are put into the index first, with the digest of that state. They are recorded when the state is
   swapped: a crash before that leaves events that never happened, one after it leaves events that did.
3. Where the events of a write are many, they are a file of their own, which is written first, and the index has its digest. It is
   removed by the write that comes after: then the files of its events are there.
4. A file is written only over what was read. So a writer that was held up, and lost its lock, does not undo what came after it.
5. Who does not hold the lock, while another one does, records events only while none are announced: whether those happen is up to
   the holder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import ChangesetIndex, read_index, write_events, write_index
from gitops.cluster.ledger.readings import conflict_error, state_cas
from gitops.cluster.ledger.records import ChangesetRecords, Recording
from gitops.cluster.model.changeset import ChangesetEvent, EventDraft
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import Faults, around
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

__all__ = ["FolderChangesets"]

_ATTEMPTS = 10
_INLINE = 16_384
"""How many bytes of events the index has in it at most: who wants to know what is open reads all of it."""


class FolderChangesets:
    """Reads and writes the changesets of a ledger folder; what one handle wrote is not read again."""

    def __init__(self, store: ObjectStore, faults: Faults) -> None:
        """`store` is the storage root."""
        self._store = store
        self._faults = faults
        self._index: bytes | None = None
        self._known: ChangesetRecords | None = None
        self._is_settled = self._is_sure = False
        self._announced: ChangesetRecords | None = None

    def read(self) -> ChangesetRecords:
        """The changesets as they are now. Raises IntegrityError `changeset_invalid`, RemoteError."""
        return ChangesetRecords(self._store.read, self._state_cas)

    def keep(self) -> ChangesetRecords:
        """As `read`, or what the last call found; after `forget` and a write, if the index is still the same."""
        known = self._known
        if known is None or not (self._is_sure or self._store.read(layout.INDEX) == self._index):
            known = self.read()
            self._index = known.stored(layout.INDEX)
            # Of events that are only announced, the state decides when it is asked for, which a slow run may still write.
            self._known, self._is_settled = None if known.pending else known, False
        self._is_sure = True
        return known

    def read_ahead(self) -> None:
        """Read them before they are asked for; after a failure who asks for them reads them."""
        with contextlib.suppress(GitopsError):
            self.keep()

    def forget(self) -> None:
        """Look at the index again before what is known is used, also for a write."""
        self._is_sure = self._is_settled = False

    def record(self, drafts: Iterable[EventDraft], may_settle: Callable[[], bool]) -> None:
        """Record events alone. Raises ConflictError as `LedgerStore.begin`, RemoteError `state_write_error`.

        Who may not settle what another one announced gets ConflictError `state_lock_held` until that is done (rule 5).
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
        """Rule 2: put events into the index that happen with this state document; None where there are none.

        Raises as `record`; ConflictError `state_cas_mismatch` too.
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
                # Until it is confirmed or withdrawn, whether they happened is read from the state.
                self._known, self._announced = None, known
                return recording
        raise conflict_error()

    def confirm(self, recording: Recording) -> None:
        """The state that events were announced with is in force. What fails here, the next writer does."""
        known, self._announced = self._announced, None
        with contextlib.suppress(RemoteError):
            with around(self._faults, "ledger.changeset", "confirm"):
                landed = self._publish(recording.index, recording.events)
            if landed and known is not None:
                self._follow(known, recording)

    def withdraw(self) -> None:
        """The state that events were announced with was not written. What fails here, the next writer does."""
        known, self._announced = self._announced, None
        with contextlib.suppress(RemoteError):
            if known is not None and self._publish(known.index, ()):
                self._take_over(known)

    def settle(self, may_settle: Callable[[], bool] = lambda: True) -> ChangesetRecords:
        """Write what an interrupted writer left, and return what is recorded. Raises as `record`."""
        try:
            for _ in range(_ATTEMPTS):
                # After a write of this handle, the next one finds out by its own swap whether another one wrote in between.
                known = self._known if self._is_settled and self._known is not None else self.keep()
                if self._is_settled:
                    return known
                if known.pending and not may_settle():
                    detail = "the run that holds the lock commits a changeset at this moment"
                    fix = "see what became of it: gitops changeset list --all"
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
        """Write the files of events that are recorded. What fails here, the next writer does."""
        self._known = None
        with contextlib.suppress(RemoteError):
            self._write_files(known, recording)
            known.advance(recording)
            self._take_over(known)

    def _take_over(self, known: ChangesetRecords) -> None:
        """What is recorded, with all its files, under the index that this handle wrote last."""
        self._known, self._is_settled, self._is_sure = known, True, False

    def _write_files(self, known: ChangesetRecords, recording: Recording) -> None:
        def write(path: str) -> None:
            held, data = known.stored(path), recording.files[path]
            if held == data:
                return
            # Rule 4: where another one wrote, it wrote this as well.
            with around(self._faults, "ledger.changeset", "file"):
                if data is None:
                    self._store.delete(path)
                elif held is None:
                    self._store.create(path, data)
                else:
                    self._store.replace(path, data, expected=held)

        # What is removed is in the archive, and the lines that say who leaves are removed last.
        removed = [path for path, data in recording.files.items() if data is None]
        last = [path for path in recording.files if removed and path == layout.ENDED]
        first = [path for path in recording.files if path not in (*removed, *last)]
        for paths in (first, removed, last):
            in_parallel(write, paths, self._store.parallel)

    def _publish(self, index: ChangesetIndex, events: Iterable[ChangesetEvent]) -> bool:
        """Replace the index that was read or written last by one with these events; False if another one did."""
        lines, expected = write_events(events), self._index
        before = None if expected is None else read_index(expected).batch
        batch = digest(lines) if len(lines) > _INLINE else None
        newest = () if batch is not None else tuple(line.decode() for line in lines.splitlines())
        data = write_index(replace(index, newest=newest, batch=batch))
        try:
            # Rule 3. What is there under this name has this content.
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

    def _state_cas(self) -> str | None:
        data = self._store.read(layout.STATE)
        return None if data is None else state_cas(data)
