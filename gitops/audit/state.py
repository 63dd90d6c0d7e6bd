"""Whether a ledger entry explains how the state moved, from the state before it to the one after it.

1. Announcing changes nothing. Everything else that changes the state raises its revision by one.
2. Records of approvals, countersignatures and recoveries only grow, and only by what the entry names.
3. First come the interrupted operations that the entry says it completed: each announced before, deletes with approval.
4. Then the changes it lists: each from what was there to what is there now, and nothing moved that is not listed.
   A refresh or an import lists none: it may record what it observed of graphs, and nothing else.
5. A graph's digest is that of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.model.address import Address, Kind, graph_address, schema_address
from gitops.model.change import Action, Disposition
from gitops.model.entry import EntryChange, EntryKind, LedgerEntry
from gitops.model.intent import Intent, IntentKind
from gitops.model.state import AppliedResource, State
from gitops.plan.draft import recompute_graph, recompute_graphs, remove_graph

__all__ = ["Announced", "Movement", "check_movement"]

_RECORDING = (EntryKind.IMPORT, EntryKind.REFRESH)


@dataclass(frozen=True, slots=True)
class Announced:
    """An operation announced by an earlier entry, and whether that had the approval that it needs."""

    intent: Intent
    permitted: bool


@dataclass(frozen=True, slots=True)
class Movement:
    """The state before and after an entry; `approved` are addresses whose irreversible change is approved by it."""

    entry: LedgerEntry
    before: State
    after: State
    approved: frozenset[str]
    announced: Mapping[str, Announced]


def check_movement(movement: Movement) -> None:
    """Raise IntegrityError `ledger_state_mismatch` or `ledger_change_unapproved` for the first rule that does not hold."""
    entry, before, after = movement.entry, movement.before, movement.after
    if after.revision != entry.state_revision:
        raise _mismatch(f"state revision {after.revision} is not the entry's {entry.state_revision}")
    if entry.kind is EntryKind.INTENT and after != before:
        raise _mismatch("an announcement changed the state")
    if after != before and after.revision != before.revision + 1:
        raise _mismatch(f"state revision {after.revision} does not follow {before.revision}")
    rolled = _rolled_forward(movement)
    _check_approval_records(movement, rolled)
    start = _completed(movement, rolled)
    listed = _listed(entry)
    if entry.kind is not EntryKind.INTENT:
        _check_listed(movement, start, listed)
    for text in sorted(start.resources.keys() | after.resources.keys()):
        _check_resource(movement, start, text, listed.get(text))
    _check_composites(after)


def _mismatch(detail: str) -> IntegrityError:
    return IntegrityError(Code.LEDGER_STATE_MISMATCH, detail)


def _rolled_forward(movement: Movement) -> tuple[Announced, ...]:
    """The operations that this entry says were completed, in order."""
    before, after = movement.before.recovery_records, movement.after.recovery_records
    if any(after.get(operation) != record for operation, record in before.items()):
        raise _mismatch("the record of an earlier recovery is gone")
    rolled = []
    for operation in sorted(after.keys() - before.keys()):
        known = movement.announced.get(operation)
        if known is None:
            raise _mismatch(f"operation {operation} was completed without having been announced")
        rolled.append(known)
    return tuple(rolled)


def _check_approval_records(movement: Movement, rolled: tuple[Announced, ...]) -> None:
    before, after = movement.before.approval_records, movement.after.approval_records
    if any(after.get(approval) != record for approval, record in before.items()):
        raise _mismatch("the record of a used approval is gone")
    used = {use.approval_id for use in movement.entry.approvals}
    taken_in = {settlement.countersignature for settlement in movement.entry.settled}
    deleted = {a for k in rolled if k.intent.kind is IntentKind.GRAPH_DELETE for a in k.intent.approval_ids}
    if not after.keys() - before.keys() <= used | deleted | taken_in:
        raise _mismatch("an approval is recorded as used that the entry did not use")
    spent = deleted | (used if movement.entry.kind is EntryKind.APPLY else set())
    if not spent <= after.keys():
        raise _mismatch("an approval that was used is not recorded, so it could be used again")


def _completed(movement: Movement, rolled: tuple[Announced, ...]) -> State:
    """The state before the entry with the interrupted operations completed that it says it completed."""
    state = movement.before
    for known in rolled:
        intent, graph = known.intent, known.intent.graph_id
        if intent.kind is IntentKind.GRAPH_DELETE:
            if not known.permitted:
                raise _unapproved(graph_address(graph))
            state = remove_graph(state, graph, at=movement.entry.at, approval_id=intent.approval_id, actor=intent.actor)
            continue
        schema = AppliedResource(intent.desired_schema_digest)
        state = replace(state, resources={**state.resources, schema_address(graph): schema})
        state = recompute_graph(state, graph, create=True)
    return state


def _unapproved(address: str) -> IntegrityError:
    return IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{address} was deleted without a valid approval")


def _listed(entry: LedgerEntry) -> dict[Address, EntryChange]:
    """The changes of an entry that took place, by address."""
    listed: dict[Address, EntryChange] = {}
    for change in entry.changes:
        if change.resource in listed:
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"the entry lists {change.resource} twice")
        listed[change.resource] = change
    return {text: change for text, change in listed.items() if change.disposition == Disposition.APPLIED}


def _check_listed(movement: Movement, start: State, listed: Mapping[Address, EntryChange]) -> None:
    """Every listed change went from what was there to what is there; graphs and trust have checks of their own."""
    if listed and movement.entry.kind in _RECORDING:
        raise _mismatch(f"a {movement.entry.kind} changes nothing by itself")
    for text, change in listed.items():
        kind = text.kind
        if kind is Kind.TRUST:
            continue
        was, now = start.resources.get(text), movement.after.resources.get(text)
        if change.before != (None if was is None else was.digest):
            raise _mismatch(f"{text} was not at {change.before} before")
        if (now is None) != (change.operation == Action.DELETE):
            raise _mismatch(f"{change.operation} of {text} did not take place")
        if kind is not Kind.GRAPH and change.after != (None if now is None else now.digest):
            raise _mismatch(f"{text} is not at {change.after} now")


def _check_resource(movement: Movement, start: State, address: Address, change: EntryChange | None) -> None:
    """One resource moved only as listed, or as observed."""
    old, new = start.resources.get(address), movement.after.resources.get(address)
    if address.kind is Kind.GRAPH and new is None and movement.entry.kind not in _RECORDING:
        if address not in movement.approved or change is None:
            raise _unapproved(address)
        return
    if old == new or change is not None or (address.kind is Kind.GRAPH and old is not None and new is not None):
        return
    if movement.entry.kind in _RECORDING and _observed(movement.after, address, new):
        return
    was, now = ("nothing" if r is None else r.digest for r in (old, new))
    raise _mismatch(f"{address} moved from {was} to {now} without an entry for it")


def _observed(after: State, address: Address, new: AppliedResource | None) -> bool:
    """Whether a refresh or an import may have recorded this of a graph, by its own observation of it."""
    graph = address.graph_address
    if graph is None or address.kind is Kind.QUERY:
        return False
    seen = after.observations.get(graph, {})
    if new is None:
        return seen.get("exists") is False
    return address.kind is Kind.GRAPH or seen.get("schema_digest") == new.digest


def _check_composites(after: State) -> None:
    graphs = [text.removeprefix("graph.") for text in after.resources if text.startswith("graph.")]
    expected = recompute_graphs(after, graphs)
    for graph in sorted(graphs):
        if after.resources[graph_address(graph)] != expected.resources[graph_address(graph)]:
            raise _mismatch(f"the digest of graph.{graph} is not that of its parts")
