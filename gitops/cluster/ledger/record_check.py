"""Whether the files of changesets in an entry are what its events give.

1. The files of events only grow, and what is added is numbered on from the newest event before.
2. Each added event may happen after those before it: what a store refuses to record is not in a ledger.
3. The run of a changeset comes with an event of it, and fits its record: it names no other change, and ends none otherwise.
4. Everything else in the two folders is what a store writes with these events, byte for byte. A record that leaves is in the
   archive.

A ledger of an earlier release has neither folder.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest

from gitops.cluster.changesets.runs import contradiction
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.changesets import read_events, write_index
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.records import ChangesetRecords, Recording
from gitops.cluster.ledger.runs import read_run
from gitops.cluster.ledger.trailers import parse_trailers, trailers
from gitops.cluster.model.changeset import ChangesetEvent, EventDraft
from gitops.cluster.model.run_record import RunRecord
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, IntegrityError
from gitops.git.port import GitReader

__all__ = ["check_records", "check_trailers"]

_FOLDERS = (layout.EVENTS, layout.CHANGESETS)


def check_records(reader: GitReader, before: str | None, after: str) -> Recording | None:
    """What an entry records; None for no event. `before` and `after` are the trees of the entry before it, if any, and of itself.

    Raises IntegrityError `changeset_mismatch` for the first rule that does not hold, `changeset_invalid`.
    """
    changed = _changed(reader, before, after)
    if not changed:
        return None

    def old(path: str) -> bytes | None:
        return None if before is None else reader.read(before, path)

    added: list[ChangesetEvent] = []
    for path in changed:
        lines = reader.read(after, path) if path.startswith(layout.EVENTS) else None
        if lines is not None:
            if not lines.startswith(old(path) or b""):
                raise _mismatch(f"events of {path} were rewritten", path)
            added += read_events(lines.removeprefix(old(path) or b""))
    removed = frozenset(path for path in changed if reader.read(after, path) is None)
    known = ChangesetRecords(
        old, leaving=lambda ended, _: tuple(e.key for e in ended if layout.record_key(e.key) in removed)
    )
    events = tuple(sorted(added, key=lambda event: event.seq))
    runs = {
        key: run for key in {event.changeset for event in events} if (run := _added_run(reader, after, changed, key))
    }
    try:
        recording = known.recording(
            EventDraft(event.changeset, event.at, event.happening, runs.get(event.changeset)) for event in events
        )
    except ConflictError as error:
        raise _mismatch(f"an event could not happen: {error.detail}", error.path) from error
    if recording.events != events:
        raise _mismatch(f"its events do not follow event {known.index.seq} by number", layout.EVENTS)
    for key, run in runs.items():
        if (detail := contradiction(run, recording.records[key])) is not None:
            raise _mismatch(f"{layout.run_key(key)} is not the run of its changeset: {detail}", layout.run_key(key))
    due = {**recording.files, layout.INDEX: write_index(recording.index)} if events else {}
    for path in sorted({*changed, *due}):
        if reader.read(after, path) != due.get(path, old(path)):
            raise _mismatch(f"{path} is not what its events give", path)
    return recording


def _added_run(reader: GitReader, after: str, changed: Collection[str], key: str) -> RunRecord | None:
    """The run of a changeset, if the entry writes one. Raises IntegrityError `changeset_mismatch`."""
    path = layout.run_key(key)
    data = reader.read(after, path) if path in changed else None
    try:
        return None if data is None else read_run(data)
    except IntegrityError as error:
        raise _mismatch(f"{path} is not the run of its changeset: {error.detail}", path) from error


def check_trailers(reader: GitReader, commit_id: str) -> None:
    """Whether the trailers of an entry's commit say what its files say.

    Raises IntegrityError `trailer_mismatch`, `ledger_entry_invalid`, and as `check_records`.
    """
    commit = reader.commit(commit_id)
    entry = read_entry(reader.read(commit.tree, ENTRY) or b"")
    before = None if entry.previous is None else reader.commit(entry.previous).tree
    due, said = trailers(entry, check_records(reader, before, commit.tree)), parse_trailers(commit.message)
    for wanted, found in zip_longest(map(": ".join, due), map(": ".join, said), fillvalue="nothing more"):
        if wanted != found:
            detail = f"the message of {commit_id[:12]} says {found}; its files say {wanted}"
            raise IntegrityError(Code.TRAILER_MISMATCH, detail, path=commit_id)


def _changed(reader: GitReader, before: str | None, after: str) -> list[str]:
    """The paths that differ in the folders of changesets; equal folders are not read."""
    changed = []
    for folder in _FOLDERS:
        was, now = None if before is None else reader.subtree(before, folder), reader.subtree(after, folder)
        if was == now:
            continue
        if now is None:
            raise _mismatch(f"{folder} is missing", folder)
        changed += [f"{folder}/{path}" for path in reader.changed_paths(was, now)]
    return changed


def _mismatch(detail: str, path: str) -> IntegrityError:
    return IntegrityError(Code.CHANGESET_MISMATCH, detail, path=path)
