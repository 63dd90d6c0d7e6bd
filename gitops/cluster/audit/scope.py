"""Checks the location of a ledger's cluster, in audit steps 1 and 5.

1. Every entry is for the location that the previous entry records. No entry has an older version than the previous one.
2. Only an entry of kind `scope` can record a different location. It changes only the location, from the old one to the
   new one, and the change must be approved.
3. A closed ledger does not accept entries that apply, announce or observe anything.
4. The storage in a first entry or a `scope` entry is the one that its source commit declares.

The first release did not guard the location of a cluster. Its moves are only notes.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.audit.walk import Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.ledger.sources import declared_storage, recorded_scope
from gitops.cluster.model.address import Kind, cluster_address
from gitops.cluster.model.change import Action, Disposition
from gitops.cluster.model.ledger import WITH_ORIGINS, EntryKind, LedgerEntry
from gitops.cluster.model.scope import ClusterScope
from gitops.cluster.plan.planner import adoption_change
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

_WORKING = frozenset({EntryKind.APPLY, EntryKind.INTENT, EntryKind.REFRESH})


def check_place(walk: Walk, entry: LedgerEntry) -> None:
    """Check rule 1. Raises IntegrityError `ledger_entry_invalid`."""
    if walk.previous is None:
        if entry.scope is not None and entry.scope.target != entry.target:
            raise _invalid("the first entry records a different location than its own")
        return
    before = walk.previous.entry
    # Versions 1 and 2 belong to one release, which wrote both.
    if entry.version < before.version and before.version >= WITH_ORIGINS:
        raise _invalid(f"version {entry.version} follows version {before.version}")
    at = before.target if before.scope is None else before.scope.target
    if entry.target == at:
        return
    if entry.version >= WITH_ORIGINS or entry.target.cluster != at.cluster:
        raise _invalid("the entry is for a different cluster, branch or folder")
    walk.notes.append(
        f"entry {entry.number}: the cluster has a different location than before, which the first release did not check"
    )


def check_scope(walk: Walk, found: VerifiedEntry, approved: frozenset[str]) -> None:
    """Check rules 2 to 4. Raises IntegrityError `ledger_change_unapproved`, `ledger_entry_invalid`, `ledger_source_mismatch`."""
    entry, scope = found.entry, found.entry.scope
    if entry.version < WITH_ORIGINS:
        return
    previous = walk.previous
    before = scope if previous is None else recorded_scope(walk.reader, previous.entry, walk.open_tree)
    if entry.kind is EntryKind.SCOPE:
        _check_move(entry, before, scope, approved)
    elif scope != before and not (scope is None and entry.kind not in _WORKING):
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "the cluster was moved without an approval for the move")
    elif entry.kind is not EntryKind.ADOPT and any(
        c.resource.kind is Kind.CLUSTER and c.disposition == Disposition.APPLIED for c in entry.changes
    ):
        raise _invalid("only an entry with no other change may change the cluster")
    if before is not None and before.closed and entry.kind in _WORKING:
        raise _invalid("an earlier entry closed the ledger")
    if scope is not None and not scope.closed and (previous is None or entry.kind is EntryKind.SCOPE):
        _check_storage(walk, entry, scope)


def _check_move(
    entry: LedgerEntry, before: ClusterScope | None, after: ClusterScope | None, approved: frozenset[str]
) -> None:
    """Check rule 2."""
    address = cluster_address(entry.target.cluster)
    if before is None or after is None or len(entry.changes) != 1 or address not in approved:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "the cluster was moved without an approval for the move")
    change = entry.changes[0]
    closes = change.operation == Action.DELETE
    moved = (change.resource, change.disposition, change.before, change.after)
    due = (address, Disposition.APPLIED.value, before.digest, None if closes else after.digest)
    right = after == replace(before, closed=True) if closes else after.home == before.home and not after.closed
    if moved != due or not right:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "the approval is for a different change of the cluster")


def _check_storage(walk: Walk, entry: LedgerEntry, scope: ClusterScope) -> None:
    """Check rule 4, if the repository has the source commit."""
    source = entry.source
    if source is None or walk.reader.resolve(source.commit) is None:
        return
    tree = walk.reader.commit(source.commit).tree
    if declared_storage(walk.reader, tree, scope.target.path, walk.open_tree) != scope.storage:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit declares a different storage")


def _invalid(detail: str) -> IntegrityError:
    return IntegrityError(Code.LEDGER_ENTRY_INVALID, detail)


# A ledger that follows an earlier one, in an audit.
#
# 1. Only a first entry can refer to an earlier ledger, with the keys and rules of that ledger as far as they were
#    known.
# 2. The entry after it adopts the earlier ledger, with approvals for exactly this, and changes nothing else. No other
#    entry adopts a ledger.
# 3. An import that is not adopted yet is a note.


def check_adoption(walk: Walk, found: VerifiedEntry, approved: frozenset[str]) -> None:
    """Check rules 1 to 3. Raises IntegrityError `ledger_entry_invalid`, `ledger_change_unapproved`."""
    entry, former, previous = found.entry, found.entry.former, walk.previous
    if former is not None:
        if previous is not None or entry.kind is not EntryKind.IMPORT:
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "only a first entry can refer to an earlier ledger")
        if former.trust_digest not in (None, found.after.digest):
            raise IntegrityError(
                Code.LEDGER_ENTRY_INVALID, "it follows an earlier ledger with different keys and rules"
            )
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
