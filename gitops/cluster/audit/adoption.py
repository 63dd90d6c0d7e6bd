"""A ledger that follows an earlier one, in an audit.

1. Only a first entry names an earlier ledger, under the keys and rules that the earlier one had, as far as those were known.
2. The entry after it adopts that, with approvals of exactly this, and changes nothing else. No other entry adopts anything.
3. An import that no entry adopts yet is a note.
"""

from __future__ import annotations

from gitops.cluster.audit.walk import Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.plan.adoption import adoption_change
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

__all__ = ["check_adoption"]


def check_adoption(walk: Walk, found: VerifiedEntry, approved: frozenset[str]) -> None:
    """Rules 1 to 3. Raises IntegrityError `ledger_entry_invalid`, `ledger_change_unapproved`."""
    entry, former, previous = found.entry, found.entry.former, walk.previous
    if former is not None:
        if previous is not None or entry.kind is not EntryKind.IMPORT:
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "only a first entry names an earlier ledger")
        if former.trust_digest not in (None, found.after.digest):
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "it follows an earlier ledger under other keys and rules")
        walk.notes.append(f"entry {entry.number} follows an earlier ledger: {former.found}")
    waits = None if previous is None else previous.entry.former
    if previous is None or (waits is None) != (entry.kind is not EntryKind.ADOPT):
        if previous is None and entry.kind is not EntryKind.ADOPT:
            return
        detail = "the entry after an import over an earlier ledger must adopt it, and no other entry may adopt"
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail)
    if waits is None:
        return
    due = adoption_change(previous.entry, previous.commit.id, waits)
    listed = [(c.resource, c.operation, c.before, c.after, c.disposition) for c in entry.changes]
    if listed != [(due.address, due.action.value, due.before, due.after, Disposition.APPLIED.value)]:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "the adopted ledger is not the one that the import found")
    if due.address not in approved:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "the earlier ledger was given up without a valid approval")
