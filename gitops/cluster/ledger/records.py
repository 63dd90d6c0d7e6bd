"""Reads changesets from ledger files, and builds the files that new events produce. All stores share this pure code.

Rules:

1. Events are numbered without gaps in the order in which they are recorded. The author of a draft does not know its number.
2. A record is the result of its events. They are written together, with the index.
3. While a changeset is active, which means that it is not committed and has not failed, another one can be created only
   beside it: it names every active changeset, and will be committed after them. No changeset can be created that touches
   a resource of an open one.
4. Creating a changeset again with the same plan joins the existing one and records nothing.
5. An ended record does not change. Its line in `ended.jsonl` has its commits and the time when it ended.
6. If there are too many ended records, the oldest are archived: only their line in `archive.jsonl` remains, without
   their lists.
7. The record of its run is written next to it once, with the last event of the run. It is informational: a store that
   writes file by file can lose it, and a run record that contradicts its changeset is not written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import groupby

from gitops.cluster.changesets.lifecycle import follow_all, outdated, replay
from gitops.cluster.changesets.runs import contradiction, longest
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import (
    ChangesetIndex,
    read_archive,
    read_ended,
    read_events,
    read_index,
    read_record,
    write_archive,
    write_ended,
    write_events,
    write_record,
)
from gitops.cluster.ledger.port import ChangesetListing
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetEvent,
    ChangesetKind,
    ChangesetState,
    Created,
    EndedChangeset,
    EventDraft,
)
from gitops.cluster.model.ledger import is_changeset_key
from gitops.cluster.model.outcome import ChangesetStanding
from gitops.cluster.model.plan import NodeOutcome, RunNode, RunRecord
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import LINE, enum, integer, list_of, nullable, record
from gitops.core.errors import ConflictError, GitopsError, IntegrityError

ReadFile = Callable[[str], bytes | None]
Leaving = Callable[[Sequence[EndedChangeset], str], Sequence[str]]


# A run reads the same index several times, and after a large write it contains thousands of events.
_events_of_newest = lru_cache(maxsize=2)(read_events)


@dataclass(frozen=True, slots=True)
class Recording:
    """A write's content: the numbered events, the resulting records and index, and the files next to the index.

    A file that is None is removed: it belongs to one of the changesets `archived`.
    """

    index: ChangesetIndex
    events: tuple[ChangesetEvent, ...]
    records: Mapping[str, Changeset]
    files: Mapping[str, bytes | None]
    archived: tuple[str, ...] = ()


class ChangesetRecords:
    """One ledger's changesets at one moment. Each file is read once, when it is first needed."""

    def __init__(
        self, read: ReadFile, state_cas: Callable[[], str | None] = lambda: None, leaving: Leaving = outdated
    ) -> None:
        """`read` returns a file of the ledger.

        `state_cas` returns the token of its state if the store writes file by file.

        `leaving` returns the keys of the ended changesets to archive. `pending` is True if the index announces events
        and the state decides whether they count.

        Raises IntegrityError `changeset_invalid` and the errors of `read`, as do all methods.
        """
        self._source = read
        self._leaving = leaving
        self._files: dict[str, bytes | None] = {}
        self._records: dict[str, Changeset] = {}
        data = self._read(layout.INDEX)
        stored = ChangesetIndex() if data is None else read_index(data)
        self.index = replace(stored, committing=None, newest=(), batch=None)
        self._stored = stored
        self.pending = stored.committing is not None
        if stored.committing is not None:
            if state_cas() != f"sha256:{stored.committing}":
                self._stored = self.index
            for key, group in groupby(self.newest, key=lambda event: event.changeset):
                events = tuple(group)
                # Use only the events. A writer that crashed while writing files may already have written the record
                # after them.
                record = self._records[key] = replay(self.events_of(key))
                self.index = _advanced(self.index, record, events[-1])

    @cached_property
    def newest(self) -> tuple[ChangesetEvent, ...]:
        """Return the newest write's events, for a store that writes file by file."""
        batch = self._stored.batch
        lines = "".join(f"{line}\n" for line in self._stored.newest).encode()
        # The writer that removes a batch has already written the files of its events.
        data = lines if batch is None else self._read(layout.batch_key(batch)) or b""
        if data and batch is not None and digest(data) != batch:
            raise IntegrityError(
                Code.CHANGESET_INVALID, "the content does not match its digest", path=layout.batch_key(batch)
            )
        return _events_of_newest(data)

    def record(self, key: str) -> Changeset | None:
        """Return a changeset's record (without members if it is archived), or None if it does not exist."""
        if key not in self._records and is_changeset_key(key):
            if any(event.changeset == key for event in self.newest):
                self._records[key] = replay(self.events_of(key))
            elif (data := self._read(layout.record_key(key))) is not None:
                self._records[key] = read_record(data)
            else:
                self._records |= {each.key: each for each in self._archived(key)}
        return self._records.get(key)

    def open(self) -> tuple[Changeset, ...]:
        """Return the records that have not ended, oldest first."""
        return tuple(filter(None, map(self.record, _open_keys(self.index))))

    def keys(self) -> tuple[str, ...]:
        """Return the keys of all changesets, newest first."""
        archived = (each.key for each in read_archive(self._read(layout.ARCHIVE) or b""))
        oldest_first = (*archived, *(each.key for each in self.ended()), *_open_keys(self.index))
        return tuple(reversed(dict.fromkeys(oldest_first)))

    def latest(self) -> ChangesetStanding | None:
        """Return the active changeset, or the newest that is cleaning up, or the last one that ended, or None.

        If it has the newest event of all, only its line is read, because a record has as many events as its run had
        changes.
        """
        key = self.index.active or next(reversed(self.index.open), None)
        if key is None:
            last = read_ended(b"".join((self._read(layout.ENDED) or b"").splitlines(keepends=True)[-1:]))
            if not last or last[0].last != self.index.seq:
                last = self.ended()[-1:]
            return ChangesetStanding(last[0].key, last[0].state, last[0].at) if last else None
        record = self.record(key)
        return None if record is None else ChangesetStanding(record.key, record.state, record.updated_at)

    def of_commit(self, commit: str) -> tuple[str, ...]:
        """Return the keys of the changesets for a commit, newest first."""
        found = [each.key for each in self.open() if commit in each.commits]
        found += [each.key for each in reversed(self.ended(commit)) if commit in each.commits]
        found += [each.key for each in reversed(self._archived(commit)) if commit in each.commits]
        return tuple(dict.fromkeys(found))

    def events_of(self, key: str) -> tuple[ChangesetEvent, ...]:
        """Return a changeset's events, which are empty if it is archived.

        Events of the newest write may be in the file already. Later ones in it are from a write after this reading began.
        """
        stored = read_events(self._read(layout.events_key(key)) or b"") if is_changeset_key(key) else ()
        if not self.newest:
            return stored
        known, newest = {event.seq: event for event in stored}, [e for e in self.newest if e.changeset == key]
        for event in newest:
            if known.get(event.seq, event) != event:
                detail = f"event {event.seq} is not the same as in {layout.INDEX}"
                raise IntegrityError(Code.CHANGESET_INVALID, detail, path=layout.events_key(key))
        return (*(event for event in stored if event.seq < self.newest[0].seq), *newest)

    def events(self, after: int, key: str | None) -> tuple[ChangesetEvent, ...]:
        """Return the events after a number, for one changeset or all, in order."""
        if after >= self.index.seq:
            return ()
        keys = (*(each.key for each in self.ended() if each.last > after), *_open_keys(self.index))
        found = (event for each in (keys if key is None else (key,)) for event in self.events_of(each))
        return tuple(sorted((event for event in found if event.seq > after), key=lambda event: event.seq))

    def run(self, key: str) -> RunRecord | None:
        """Return a changeset's run record, or None if it was not recorded or is no longer kept.

        Also raises `run_record_invalid`.
        """
        data = self._read(layout.run_key(key)) if is_changeset_key(key) else None
        return None if data is None else read_run(data)

    def ended(self, containing: str = "") -> tuple[EndedChangeset, ...]:
        """Return the kept ended changesets, earliest end first. `containing` selects lines with this substring."""
        data = self._read(layout.ENDED) or b""
        if self.newest:
            data = self.unwritten().files.get(layout.ENDED) or data
        return read_ended(_lines(data, containing))

    def recording(self, drafts: Iterable[EventDraft]) -> Recording:
        """Return the recording that adds these drafts to the recorded events.

        Raises ConflictError `changeset_active`, `changeset_overlap`, `changeset_conflict`, `changeset_state_invalid`.
        """
        index, joined = self.index, set[str]()
        records: dict[str, Changeset] = {}
        events: list[ChangesetEvent] = []
        runs: dict[str, RunRecord] = {}
        for key, group in groupby(drafts, key=lambda draft: draft.changeset):
            due, before = list(group), records.get(key) or self.record(key)
            first = due[0].happening
            cluster = "" if before is None else before.cluster
            if isinstance(first, Created) and before is not None:
                if before.plan.digest != first.record.plan.digest:  # rule 4
                    was, now = before.plan.digest[:12], first.record.plan.digest[:12]
                    detail = f"it already exists with plan {was}, but this plan is {now}"
                    raise ConflictError(Code.CHANGESET_CONFLICT, detail, path=key)
                joined.add(key)
                del due[0]
            elif isinstance(first, Created):
                self._check_free(index, records, first.record)
                cluster = first.record.cluster
                # A new changeset has no events or run yet, so don't query the bucket.
                for path in (layout.events_key(key), layout.run_key(key)):
                    self._files.setdefault(path, None)
            # If the whole run is repeated, for example one without changes, it adds nothing to the recorded result.
            if not due or (key in joined and before is not None and before.ended):
                continue
            new = [
                ChangesetEvent(number, draft.at, cluster, key, draft.happening)
                for number, draft in enumerate(due, index.seq + 1)
            ]
            records[key] = follow_all(before, new)
            events += new
            runs.update((key, draft.run) for draft in due if draft.run is not None)
            index = _advanced(index, records[key], new[-1])
        lines = {
            key: (self._read(layout.events_key(key)) or b"") + write_events(e for e in events if e.changeset == key)
            for key in records
        }
        recording = self._recording(index, records, lines, tuple(events), self._leaving)
        written = {
            path: write_run(run)
            for key, run in runs.items()
            if self._read(path := layout.run_key(key)) is None and contradiction(run, records[key]) is None  # rule 7
        }
        return replace(recording, files={**recording.files, **written})

    def unwritten(self) -> Recording:
        """Return the newest write's events and files again. A file-by-file store may have crashed before writing the files.

        Changesets that would have been archived with them are archived with the next changeset that ends.
        """
        events: dict[str, list[ChangesetEvent]] = {}
        for event in self.newest:
            events.setdefault(event.changeset, []).append(event)
        records = {key: replay(self.events_of(key)) for key in events}
        lines = {key: write_events(self.events_of(key)) for key in events}
        return self._recording(self.index, records, lines, self.newest, lambda *_: ())

    def advance(self, recording: Recording) -> None:
        """Update to the state after a write."""
        self.index, self.newest = recording.index, ()
        self._records |= recording.records
        self._files |= recording.files
        for key in recording.archived:
            self._records.pop(key, None)

    def stored(self, path: str) -> bytes | None:
        """Return a file's content as it was last read or written."""
        return self._read(path)

    def _recording(
        self,
        index: ChangesetIndex,
        records: Mapping[str, Changeset],
        lines: Mapping[str, bytes],
        events: tuple[ChangesetEvent, ...],
        leaving: Leaving,
    ) -> Recording:
        """Build a recording. `lines` are all events of each changeset."""
        files: dict[str, bytes | None] = {}
        ended = []
        for key, now in records.items():
            files[layout.events_key(key)] = lines[key]
            files[layout.record_key(key)] = write_record(now)
            if now.ended:
                (first,) = read_events(lines[key].splitlines(keepends=True)[0])
                last = next(event.seq for event in reversed(events) if event.changeset == key)
                ended.append(EndedChangeset(key, now.state, now.updated_at, first.seq, last, now.commits))
        if not ended:
            return Recording(index, events, records, files)
        known = self._read(layout.ENDED) or b""
        # Keep changesets that end in this write, because nothing else shows their events to an auditor.
        before = read_ended(known)
        gone = tuple(leaving(before, events[-1].at))
        known += write_ended(each for each in ended if each.key.encode() not in known)
        if gone:
            archive = self._read(layout.ARCHIVE) or b""
            # A writer that crashed during the archiving has written some of them.
            due = (records.get(key) or self.record(key) for key in gone if key.encode() not in archive)
            files[layout.ARCHIVE] = archive + write_archive(filter(None, due))
            files |= {make(key): None for key in gone for make in (layout.record_key, layout.events_key)}
            files |= {path: None for path in map(layout.run_key, gone) if self._read(path) is not None}
        # Its lines are removed last, because they list the changesets to remove.
        files[layout.ENDED] = write_ended(each for each in read_ended(known) if each.key not in gone) if gone else known
        return Recording(index, events, records, files, gone)

    def _check_free(self, index: ChangesetIndex, records: Mapping[str, Changeset], new: Changeset) -> None:
        """Check rule 3."""
        others = {key: records.get(key) or self.record(key) for key in _open_keys(index)}
        for key, other in others.items():
            blocks = key == index.active if other is None else other.state in BLOCKING
            if blocks and key not in new.beside:
                detail = f"changeset {key} has not ended, and only one at a time can change the cluster"
                fix = f"wait until it has ended: gitops changeset watch {key}"
                raise ConflictError(Code.CHANGESET_ACTIVE, detail, path=key, fix=fix)
        for other in filter(None, others.values()):
            shared = sorted(new.addresses & other.addresses)
            if shared:
                doing = "is being applied with a" if other.state in BLOCKING else "still cleans up after its"
                detail = f"changeset {other.key} {doing} change of {shared[0]}"
                fix = f"wait until it is finalized: gitops changeset watch {other.key} --until finalized"
                raise ConflictError(Code.CHANGESET_OVERLAP, detail, path=shared[0], fix=fix)

    def _archived(self, containing: str) -> tuple[Changeset, ...]:
        return read_archive(_lines(self._read(layout.ARCHIVE) or b"", containing))

    def _read(self, path: str) -> bytes | None:
        if path not in self._files:
            self._files[path] = self._source(path)
        return self._files[path]


def _open_keys(index: ChangesetIndex) -> tuple[str, ...]:
    """Return the keys of the open changesets, oldest first."""
    return index.open if index.active is None else (*index.open, index.active)


def _advanced(index: ChangesetIndex, record: Changeset, event: ChangesetEvent) -> ChangesetIndex:
    """Return the index after an event that gave this record. Its active changeset is the one that was created last."""
    key, blocks = record.key, record.state in BLOCKING
    active, others = index.active, [each for each in index.open if each != key or not record.ended]
    if blocks and key not in others:
        others += [active] if active not in (None, key) else []
        active = key
    elif not blocks:
        active = None if active == key else active
        others += [] if record.ended or key in others else [key]
    # The last part of a merge completes it. A failed merge waits for a retry or for the next merge.
    part, _, parts = record.part.partition("/")
    done = record.state is ChangesetState.FAILED or (not blocks and part == parts)
    covers = record.covers if done and record.kind is ChangesetKind.MERGE and not record.untried else ()
    return ChangesetIndex(event.seq, active, tuple(others), covers[-1] if covers else index.covered)


def _lines(data: bytes, containing: str) -> bytes:
    """Return the lines that contain a text, so that most of a long file is not parsed."""
    if not containing:
        return data
    return b"".join(line for line in data.splitlines(keepends=True) if containing.encode() in line)


class ChangesetReader(ABC):
    """Methods for reading changesets that all stores share."""

    @abstractmethod
    def _changesets(self) -> ChangesetRecords:
        """Return the current changesets. Raises GitopsError."""

    def changesets(self) -> ChangesetListing:
        """Return the open changesets. If the ledger cannot be read, the listing has a problem."""
        try:
            found = self._changesets()
            return ChangesetListing(found.index, found.open())
        except GitopsError as error:
            return ChangesetListing(problem=error.detail)

    def changeset(self, key: str) -> Changeset | None:
        """Return a changeset's record, even if it has ended. Raises GitopsError."""
        return self._changesets().record(key)

    def changeset_keys(self) -> tuple[str, ...]:
        """Return the keys of all changesets, newest first. Raises GitopsError."""
        return self._changesets().keys()

    def changeset_of(self, commit: str) -> tuple[str, ...]:
        """Return the keys of the changesets that apply a commit, newest first. Raises GitopsError."""
        return self._changesets().of_commit(commit)

    def latest_changeset(self) -> ChangesetStanding | None:
        """Return the active changeset or, if there is none, the newest, even if it has ended. Raises GitopsError."""
        return self._changesets().latest()

    def run_of(self, key: str) -> RunRecord | None:
        """Return a changeset's run record, or None if it is not recorded. Raises GitopsError."""
        return self._changesets().run(key)

    def events(self, after: int = 0, key: str | None = None) -> tuple[ChangesetEvent, ...]:
        """Return the kept events after number `after`, for one changeset or all, in order. Raises GitopsError."""
        return self._changesets().events(after, key)


# -- runs --------------------------------------------------------------------------------------------------------------
# The document of a run: `changesets/<key>.run.json`, next to the record of its changeset.


MAX_BYTES = 256 * 1024
_LONGEST = 200

_NODE = record(
    RunNode,
    {
        "id": LINE,
        "ready": nullable(integer()),
        "started": nullable(integer()),
        "finished": integer(),
        "worker": nullable(integer()),
        "after": nullable(LINE),
        "waited_for": list_of(LINE),
        "outcome": enum(NodeOutcome),
    },
)
RUN = Document(
    versions={1: record(RunRecord, {"workers": integer(1), "nodes": list_of(_NODE)})}, code=Code.RUN_RECORD_INVALID
)


def write_run(run: RunRecord) -> bytes:
    """Encode a run record. If it would exceed 256 KiB, it keeps only the 200 slowest nodes."""
    # A node takes at least 100 bytes, so a much longer run is too large without being encoded.
    data = b"" if len(run.nodes) * 100 > MAX_BYTES else RUN.write(run)
    return data if data and len(data) <= MAX_BYTES else RUN.write(longest(run, _LONGEST))


def read_run(data: bytes) -> RunRecord:
    """Read a run record. Raises IntegrityError `run_record_invalid`."""
    return RUN.read(data)
