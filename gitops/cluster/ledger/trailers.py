"""The message of a ledger commit: a subject, the changes, and trailers that `git log` and its tools can search.

Trailers are an index of the entry and the events beside them, never the truth: an auditor compares them with these, and the bot
knows its own commits by their signature, not by these lines.
Source: git-interpret-trailers(1).
"""

from __future__ import annotations

import re
from collections import Counter

from gitops.cluster.ledger.changesets import event_type
from gitops.cluster.ledger.records import Recording
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.changeset import Created
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.core.codes import Code
from gitops.core.documents.forms import is_line
from gitops.core.errors import IntegrityError

__all__ = ["commit_message", "parse_trailers", "trailers"]

_TRAILER = re.compile(r"([A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)*): (.+)\Z")
_MAX_LISTED = 50
_MAX_MESSAGE = 1024 * 1024


def trailers(entry: LedgerEntry, recorded: Recording | None = None) -> tuple[tuple[str, str], ...]:
    """Names and values, in the order in which they are written; what the entry does not have is left out.

    `recorded` are its events of changesets: each changeset with its state after them, the types of the events, their numbers.

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
    # Many members mean many events of one type.
    pairs += [("Changeset-Event", name) for name in dict.fromkeys(event_type(event.happening) for event in events)]
    return [*pairs, ("Event-Seq", f"{events[0].seq}-{events[-1].seq}")]


def commit_message(entry: LedgerEntry, recorded: Recording | None = None) -> str:
    """The whole message: `<kind>(<cluster>): <what happened>`, one line for each of the first changes, the trailers.

    Raises IntegrityError `ledger_entry_invalid` for a value that is not one plain line.
    """
    cluster = _line("cluster", entry.target.cluster)
    paragraphs = [f"{entry.kind.value}({cluster}): {_summary(entry, recorded)}"]
    if entry.changes:
        paragraphs.append("\n".join(_listed(entry)))
    paragraphs.append("\n".join(f"{name}: {value}" for name, value in trailers(entry, recorded)))
    return "\n\n".join(paragraphs) + "\n"


def parse_trailers(message: str) -> tuple[tuple[str, str], ...]:
    """The trailers in the last paragraph of `message`; none if any line of it is not a trailer, or it is the subject."""
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
    if entry.kind is EntryKind.INTENT:
        return f"announces {len(entry.changes)} graph operation(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.COUNTERSIGN:
        return f"settles {len(entry.settled)} debt(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.REVOKE:
        return f"records {len(entry.revoked)} revocation(s), revision {entry.state_revision}"
    if entry.kind is EntryKind.REPAIR:
        return f"removes {len(entry.quarantined)} commit(s) from the branch, revision {entry.state_revision}"
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
