"""Checks that a ledger entry explains the difference between the states before and after it.

1. An intent entry doesn't change anything. An entry of kind `changeset` can record observations of graphs, but not that
   a graph was lost, and changes nothing else. Every entry that changes the state increments its revision.
2. Records of approvals, countersignatures and recoveries are only added, and only those in the entry.
3. First come the interrupted operations that the entry records as completed. Each was announced before, deletes and restores with
   approval.
4. Then come the changes in its list, each from the old digest to the new one. Nothing else changes.
   A refresh or an import lists none: it may only record observations of graphs.
5. A graph's digest is that of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gitops.cluster.model.address import Address, Kind, cluster_address, graph_address, schema_address
from gitops.cluster.model.change import Action, Disposition
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import (
    AppliedResource,
    EntryChange,
    EntryKind,
    Intent,
    IntentKind,
    LedgerEntry,
    LedgerState,
)
from gitops.cluster.model.resource import restore_digest
from gitops.cluster.plan.draft import StateDraft
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import IntegrityError

_RECORDING = (EntryKind.IMPORT, EntryKind.REFRESH)
_CHANGES_NOTHING = {
    EntryKind.INTENT: "an announcement",
    EntryKind.REPAIR: "a repair",
}


@dataclass(frozen=True, slots=True)
class AnnouncedOperation:
    """An operation that an earlier entry announced, and whether that entry had the required approvals."""

    intent: Intent
    permitted: bool


@dataclass(frozen=True, slots=True)
class StateTransition:
    """The states before and after an entry. `approved` has the addresses whose irreversible change it approves."""

    entry: LedgerEntry
    before: LedgerState
    after: LedgerState
    approved: frozenset[str]
    announced: Mapping[str, AnnouncedOperation]


def check_transition(transition: StateTransition) -> None:
    """Raise IntegrityError `ledger_state_mismatch` or `ledger_change_unapproved` for the first violated rule."""
    entry, before, after = transition.entry, transition.before, transition.after
    if after.revision != entry.state_revision:
        raise _mismatch(
            f"the state has revision {after.revision}, but the entry records revision {entry.state_revision}"
        )
    if entry.kind in _CHANGES_NOTHING and after != before:
        raise _mismatch(f"{_CHANGES_NOTHING[entry.kind]} changed the state")
    unobserved = replace(after, revision=before.revision, observations=before.observations)
    if entry.kind is EntryKind.CHANGESET and (unobserved != before or after.vanished != before.vanished):
        raise _mismatch("a changeset entry changed more of the state than its observations of graphs")
    if entry.drill is not None and after != before.with_drill(
        cluster_address(entry.target.cluster), entry.drill, entry.at
    ):
        raise _mismatch("a drill changed more of the state than the record of the last drill")
    if after != before and after.revision != before.next_revision:
        raise _mismatch(f"state revision {after.revision} does not follow {before.revision}")
    completed = _completed_operations(transition)
    _check_approval_records(transition, completed)
    start = _state_after(transition, completed)
    listed = _listed(entry)
    if entry.kind is not EntryKind.INTENT:
        _check_listed(transition, start, listed)
    for text in sorted(start.resources.keys() | after.resources.keys()):
        _check_resource(transition, start, text, listed.get(text))
    _check_composites(after)


def _mismatch(detail: str) -> IntegrityError:
    return IntegrityError(Code.LEDGER_STATE_MISMATCH, detail)


def _completed_operations(transition: StateTransition) -> tuple[AnnouncedOperation, ...]:
    """Return the operations that this entry records as completed, in order."""
    before, after = transition.before.recovery_records, transition.after.recovery_records
    if any(after.get(operation) != record for operation, record in before.items()):
        raise _mismatch("the record of an earlier recovery is missing")
    completed = []
    for operation in sorted(after.keys() - before.keys()):
        known = transition.announced.get(operation)
        if known is None:
            raise _mismatch(f"operation {operation} was completed, but no entry announced it")
        completed.append(known)
    return tuple(completed)


def _check_approval_records(transition: StateTransition, completed: tuple[AnnouncedOperation, ...]) -> None:
    before, after = transition.before.approval_records, transition.after.approval_records
    if any(after.get(approval) != record for approval, record in before.items()):
        raise _mismatch("the record of a consumed approval is missing")
    used = {use.approval_id for use in transition.entry.approvals}
    taken_in = {settlement.countersignature for settlement in transition.entry.settled}
    taken_in |= {revocation.commit for revocation in transition.entry.revoked}
    deleted = {a for known in completed for a in known.intent.approval_ids}
    # If an operation was interrupted and a restored backup then undid it, only its approvals remain.
    recovered = (transition.announced.get(operation) for operation in transition.entry.recovered)
    spent = {a for known in recovered if known is not None and known.permitted for a in known.intent.approval_ids}
    if not after.keys() - before.keys() <= used | deleted | taken_in | spent:
        raise _mismatch("the state records an approval as consumed that the entry did not use")
    consumed = deleted | (
        used if transition.entry.kind in (EntryKind.APPLY, EntryKind.SCOPE, EntryKind.ADOPT) else set()
    )
    if not consumed <= after.keys():
        raise _mismatch("a consumed approval is not recorded, so it could be used again")


def _state_after(transition: StateTransition, completed: tuple[AnnouncedOperation, ...]) -> LedgerState:
    """Return the state before the entry, with the interrupted operations that it lists as completed."""
    draft = StateDraft(transition.before)
    for known in completed:
        intent, graph = known.intent, known.intent.graph_id
        if intent.kind is IntentKind.GRAPH_DELETE:
            if not known.permitted:
                raise _unapproved(graph_address(graph))
            draft.remove_graph(graph, at=transition.entry.at, approval_id=intent.approval_id, actor=intent.actor)
            continue
        if intent.restores is not None:
            if not known.permitted:
                raise _unapproved(intent.address)
            draft.put(intent.address, AppliedResource(restore_digest(graph, intent.restores)))
            continue
        draft.put(schema_address(graph), AppliedResource(intent.desired_schema_digest))
        draft.renew(graph, create=True)
    return draft.state()


def _unapproved(address: Address) -> IntegrityError:
    done = "applied" if address.kind is Kind.RESTORE else "deleted"
    return IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{address} was {done} without a valid approval")


def _listed(entry: LedgerEntry) -> dict[Address, EntryChange]:
    """Return the applied changes of an entry, by address."""
    listed: dict[Address, EntryChange] = {}
    for change in entry.changes:
        if change.resource in listed:
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"the entry lists {change.resource} twice")
        listed[change.resource] = change
    return {text: change for text, change in listed.items() if change.disposition == Disposition.APPLIED}


def _check_listed(transition: StateTransition, start: LedgerState, listed: Mapping[Address, EntryChange]) -> None:
    """Check that every listed change leads from the old to the new state. Graphs and trust have separate checks."""
    if listed and transition.entry.kind in _RECORDING:
        raise _mismatch(f"a {transition.entry.kind} changes nothing by itself")
    for text, change in listed.items():
        kind = text.kind
        if not rules_of(text).in_folder:
            continue
        was, now = start.resources.get(text), transition.after.resources.get(text)
        if change.before != (None if was is None else was.digest):
            raise _mismatch(f"{text} was not at {change.before} before")
        if (now is None) != (change.operation == Action.DELETE):
            raise _mismatch(f"{change.operation} of {text} was not applied")
        if kind is not Kind.GRAPH and change.after != (None if now is None else now.digest):
            raise _mismatch(f"{text} is not at {change.after} now")


def _check_resource(
    transition: StateTransition, start: LedgerState, address: Address, change: EntryChange | None
) -> None:
    """Check that a resource changed only as listed, or as observed."""
    old, new = start.resources.get(address), transition.after.resources.get(address)
    if address.kind is Kind.GRAPH and new is None and transition.entry.kind not in _RECORDING:
        if address not in transition.approved or change is None:
            raise _unapproved(address)
        return
    if old == new or change is not None or (address.kind is Kind.GRAPH and old is not None and new is not None):
        return
    if transition.entry.kind in _RECORDING and _observed(transition.after, address, new):
        return
    was, now = ("nothing" if r is None else r.digest for r in (old, new))
    raise _mismatch(f"{address} changed from {was} to {now}, which the entry does not list")


def _observed(after: LedgerState, address: Address, new: AppliedResource | None) -> bool:
    """Return True if a refresh or an import may have recorded this from its own observation of a graph."""
    graph = address.graph_address
    if graph is None or address.kind is Kind.QUERY:
        return False
    seen = after.observations.get(graph, {})
    if new is None:
        return seen.get("exists") is False
    return address.kind is Kind.GRAPH or seen.get("schema_digest") == new.digest


def _check_composites(after: LedgerState) -> None:
    graphs = sorted(address for address in after.resources if address.kind is Kind.GRAPH)
    expected = StateDraft(after)
    for address in graphs:
        expected.renew(address.name)
    for address in graphs:
        if after.resources[address] != expected.resources[address]:
            raise _mismatch(f"the digest of {address} does not match its parts")
