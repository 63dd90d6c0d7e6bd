"""Ledger commit messages: a subject, the changes, and trailers that you can search with `git log`.

It also checks that the message and the changeset files match the entry and its events.

Trailers are an index of the entry and its events, never authoritative: an auditor compares them, and the bot recognizes its
own commits by their signature, not by these lines. Source: git-interpret-trailers(1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from itertools import zip_longest

from gitops.cluster.changesets.runs import contradiction
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.changesets import event_type, read_events, write_index
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.records import ChangesetRecords, Recording, read_run
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.changeset import ChangesetEvent, Created, EventDraft
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.cluster.model.plan import RunRecord
from gitops.core.codes import Code
from gitops.core.documents.forms import is_line
from gitops.core.errors import ConflictError, IntegrityError
from gitops.git.port import GitReader

_TRAILER = re.compile(r"([A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)*): (.+)\Z")
_MAX_LISTED = 50
_MAX_MESSAGE = 1024 * 1024


def trailers(entry: LedgerEntry, recorded: Recording | None = None) -> tuple[tuple[str, str], ...]:
    """Return trailer names and values in the order in which they are written. Trailers that the entry lacks are omitted.

    `recorded` are the changeset events of the entry: for each changeset its state after them, the types of the events, and
    their numbers.

    Raises IntegrityError `ledger_entry_invalid` for a value that is not one plain line.
    """
    pairs = (
        ("Cluster", entry.target.cluster),
        ("Environment", entry.target.environment),
        ("Entry", str(entry.number)),
        ("Operation", entry.operation),
        *([("Changeset", entry.changeset)] if recorded is None else _changesets(recorded)),
        ("Merge-Commit", None if entry.source is None else entry.source.commit),
        ("Plan-Digest", entry.plan_digest),
        ("Config-Digest", entry.config_digest),
        ("State-Revision", str(entry.state_revision)),
        ("Actor", entry.actor),
        *(("Approval", use.approval_id) for use in entry.approvals),
        *(("Debt", debt.approval_id) for debt in entry.debts),
        *(("Settles", settled.approval_id) for settled in entry.settled),
        *(("Revokes", revoked.approval_id) for revoked in entry.revoked),
        *(("Quarantines", commit) for commit in entry.quarantined),
    )
    return tuple((name, _line(name, value)) for name, value in pairs if value is not None)


def _changesets(recorded: Recording) -> list[tuple[str, str]]:
    events = recorded.events
    pairs = []
    for key in dict.fromkeys(event.changeset for event in events):
        record = recorded.records[key]
        pairs += [("Changeset", key), ("Changeset-State", record.state.value)]
        if record.retry_of and any(event.changeset == key and isinstance(event.happening, Created) for event in events):
            pairs.append(("Retry-Of", record.retry_of))
    # If there are many members, there are many events of the same type.
    pairs += [("Changeset-Event", name) for name in dict.fromkeys(event_type(event.happening) for event in events)]
    return [*pairs, ("Event-Seq", f"{events[0].seq}-{events[-1].seq}")]


def commit_message(entry: LedgerEntry, recorded: Recording | None = None) -> str:
    """Return the full message: `<kind>(<cluster>): <what happened>`, one line per change up to a limit, then the trailers.

    Raises IntegrityError `ledger_entry_invalid` for a value that is not one plain line.
    """
    cluster = _line("cluster", entry.target.cluster)
    paragraphs = [f"{entry.kind.value}({cluster}): {_summary(entry, recorded)}"]
    if entry.changes:
        paragraphs.append("\n".join(_listed(entry)))
    paragraphs.append("\n".join(f"{name}: {value}" for name, value in trailers(entry, recorded)))
    return "\n\n".join(paragraphs) + "\n"


def parse_trailers(message: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers in the last paragraph of `message`.

    Empty if that is the subject or contains any other line.
    """
    if len(message) > _MAX_MESSAGE:
        return ()
    _, blank, last = message.rstrip("\n").rpartition("\n\n")
    if not blank:
        return ()
    found = [_TRAILER.match(line) for line in last.split("\n")]
    if any(match is None or not is_line(match[2]) for match in found):
        return ()
    return tuple((match[1], match[2]) for match in found if match is not None)


def _summary(entry: LedgerEntry, recorded: Recording | None) -> str:
    if entry.kind is EntryKind.CHANGESET and recorded is not None:
        newest = recorded.events[-1]
        return f"{event_type(newest.happening)} {newest.changeset}"
    if entry.kind is EntryKind.INTENT and not entry.changes and recorded is not None:
        return f"prepares {recorded.events[-1].changeset}, revision {entry.state_revision}"
    if entry.kind is EntryKind.INTENT:
        return f"announces {len(entry.changes)} graph operation(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.COUNTERSIGN:
        return f"settles {len(entry.settled)} debt(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.REVOKE:
        return f"records {len(entry.revoked)} revocation(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.REPAIR:
        return f"removes {len(entry.quarantined)} commit(s) from the branch, revision {entry.state_revision}"
    if entry.drill is not None:
        drill = entry.drill
        result = "passed" if drill.passed else "failed"
        return f"restore drill {result} after {drill.seconds} s, revision {entry.state_revision}"
    counts = Counter(change.disposition for change in entry.changes)
    parts = [f"{counts[d.value]} {d.value}" for d in Disposition if counts[d.value]]
    return f"{', '.join(parts) or 'no change'}, revision {entry.state_revision}"


def _listed(entry: LedgerEntry) -> list[str]:
    lines = []
    for change in entry.changes[:_MAX_LISTED]:
        what = f"- {_line('operation', change.operation)} {_line('resource', change.resource)}"
        reason = "" if change.reason is None else f" ({_line('reason', change.reason)})"
        fate = "announced" if entry.kind is EntryKind.INTENT else _line("disposition", change.disposition)
        lines.append(f"{what}: {fate}{reason}")
    if len(entry.changes) > _MAX_LISTED:
        lines.append(f"- and {len(entry.changes) - _MAX_LISTED} more")
    return lines


def _line(name: str, value: str) -> str:
    if not is_line(value):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"{name} is not one plain line of text")
    return value


# -- the checks --------------------------------------------------------------------------------------------------------
# Checks that the changeset files in an entry match its events.
# 1. Event files only grow, and added events are numbered consecutively after the newest earlier event.
# 2. Each added event must be allowed after the earlier ones. Events that a store would refuse are never in a ledger.
# 3. The run of a changeset is written with one of its events, and matches its record: same changes, same results.
# 4. Everything else in the two folders is exactly what a store writes with these events, byte for byte. A removed
#    record is in the archive.
#
# A ledger of an earlier release has neither of these folders.


_FOLDERS = (layout.EVENTS, layout.CHANGESETS)


def check_records(reader: GitReader, before: str | None, after: str) -> Recording | None:
    """Return the changeset events and records in an entry, or None if it has no events.

    `before` and `after` are the trees around it.

    `before` is the tree of the previous entry, if any. Raises IntegrityError `changeset_mismatch` for the first violated
    rule, `changeset_invalid`.
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
            raise _mismatch(f"{layout.run_key(key)} does not match its changeset: {detail}", layout.run_key(key))
    due = {**recording.files, layout.INDEX: write_index(recording.index)} if events else {}
    for path in sorted({*changed, *due}):
        if reader.read(after, path) != due.get(path, old(path)):
            raise _mismatch(f"{path} does not match its events", path)
    return recording


def _added_run(reader: GitReader, after: str, changed: Collection[str], key: str) -> RunRecord | None:
    """Return the run of a changeset if the entry writes one. Raises IntegrityError `changeset_mismatch`."""
    path = layout.run_key(key)
    data = reader.read(after, path) if path in changed else None
    try:
        return None if data is None else read_run(data)
    except IntegrityError as error:
        raise _mismatch(f"{path} does not match its changeset: {error.detail}", path) from error


def check_trailers(reader: GitReader, commit_id: str) -> None:
    """Check that the trailers of an entry's commit match its files.

    Raises IntegrityError `trailer_mismatch`, `ledger_entry_invalid`, and the errors of `check_records`.
    """
    commit = reader.commit(commit_id)
    entry = read_entry(reader.read(commit.tree, ENTRY) or b"")
    before = None if entry.previous is None else reader.commit(entry.previous).tree
    due, said = trailers(entry, check_records(reader, before, commit.tree)), parse_trailers(commit.message)
    for wanted, found in zip_longest(map(": ".join, due), map(": ".join, said), fillvalue="nothing more"):
        if wanted != found:
            detail = f"the message of {commit_id[:12]} says {found}, but its files say {wanted}"
            raise IntegrityError(Code.TRAILER_MISMATCH, detail, path=commit_id)


def _changed(reader: GitReader, before: str | None, after: str) -> list[str]:
    """Return the changed paths in the changeset folders. Equal folders are not read."""
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
