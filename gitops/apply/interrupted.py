"""Changesets that an interrupted run left open, at the start of the next one, under its lock.

| the changeset | what is done |
| --- | --- |
| lands what it can | it failed: it recorded nothing, and recovery settles the graphs that it touched |
| prepares, the same is declared and applied still | this run goes on with it: what is done is not done again |
| prepares, and something has changed | it is taken back |
| prepared, and its pivot is done | this run goes on with it; where something else is declared, nothing is applied until it has |
| rolls back | it is taken back, as far as it is not yet |
| committed, drained | what is left of it is finished |

Graphs are looked at, never guessed: see `gitops.apply.compensate`. The intents of an atomic changeset are those of the graphs
that it names: while it is open, no other one touches these.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitops.apply.compensate import end_rolled_back, live_members, take_back, to_take_back
from gitops.apply.create import facts_of
from gitops.apply.finish import finish
from gitops.apply.run import write_events
from gitops.changesets.journal import Journal
from gitops.cluster.session import Session
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.graph.port import Existence
from gitops.model.address import Address, Kind, schema_address
from gitops.model.change import Change, Disposition
from gitops.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetState,
    EventDraft,
    Failed,
    Member,
    RollingBack,
)
from gitops.model.ledger import Intent
from gitops.model.plan import Effect, Plan
from gitops.plan.probe import seen_facts

__all__ = ["Interrupted", "abandon", "settle_interrupted"]

_INTERRUPTED = "the run was interrupted"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An atomic changeset to go on with: its intents by node id, and the nodes that are done, with what is seen of them."""

    record: Changeset
    intents: Mapping[str, tuple[Intent, ...]]
    done: Mapping[str, Mapping[str, object]]

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the interrupted run announced."""
        return tuple(intent.operation_id for intents in self.intents.values() for intent in intents)

    @property
    def used(self) -> tuple[str, ...]:
        """The approvals that its pivot has used up."""
        pivots = {m.address for m in self.record.members if m.effect is Effect.PIVOT}.intersection(self.done)
        return tuple(a for name in pivots for intent in self.intents.get(name, ()) for a in intent.approval_ids)

    @property
    def graphs(self) -> frozenset[str]:
        """The ids of the graphs that it names."""
        return frozenset(address.graph for address in self.record.addresses if address.graph is not None)

    def fits(self, plan: Plan) -> bool:
        """Whether a plan carries out what the changeset does."""
        record = self.record
        mine = {(m.address, m.before, m.after) for m in record.members}
        mine |= {(r.address, r.digest, None) for r in record.removals}
        return mine == {_form(change) for change in plan.changes if change.disposition is Disposition.APPLIED}


def _form(change: Change) -> tuple[Address, str | None, str | None]:
    return change.address, change.before, change.after


def settle_interrupted(current: Session, fence: int) -> tuple[Interrupted | None, tuple[EventDraft, ...]]:
    """Settle what is open; `fence` is the number of this run.

    Returns the changeset that this run goes on with, if there is one, and the events of one that landed nothing and failed, which
    are written with the first ones of this run. Raises GitopsError where something else has to be done before an apply.
    """
    listing = current.opened.ledger.changesets()
    if listing.problem is not None:
        raise ConflictError(Code.CHANGESET_INVALID, listing.problem, path="changesets")
    found: Interrupted | None = None
    closing: tuple[EventDraft, ...] = ()
    for record in listing.open:
        if not record.atomic:
            closing = _failed(current, record)
        elif record.state not in BLOCKING:
            finish(current, record, _intents_of(current, record), fence)
        elif record.state is ChangesetState.ROLLING_BACK:
            abandon(current, _look_at(current, record), fence)
        else:
            found = _look_at(current, record)
            if not _is_declared_still(current, record):
                abandon(current, found, fence)
                found = None
    return found, closing


def abandon(current: Session, found: Interrupted, fence: int, error: str = _INTERRUPTED) -> None:
    """Take back an interrupted changeset and end it. Raises GitopsError; `cluster_recovery_pending` if its pivot is done."""
    record, journal = found.record, Journal(current.workspace.stamp, found.record)
    pivots = {m.address for m in record.members if m.effect is Effect.PIVOT}
    if pivots & found.done.keys():
        commit = record.source.merge_commit
        again = "the folder as it was" if commit is None else f"commit {commit}"
        detail = (
            f"changeset {record.key} changed {min(pivots)}, which cannot be taken back, and is not applied as a whole"
        )
        fix = f"apply {again}, which goes on with it: gitops apply"
        raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=record.key, fix=fix)
    if record.state is not ChangesetState.ROLLING_BACK:
        journal.add(RollingBack(error, None))
        write_events(current, journal)
    staged = to_take_back(record)
    end_rolled_back(
        current, journal, take_back(current, journal.record, staged, found.intents, fence), Severity.WARNING
    )
    write_events(current, journal, found.operations)


def _failed(current: Session, record: Changeset) -> tuple[EventDraft, ...]:
    """The end of a changeset that lands what it can: it died before it recorded anything."""
    journal = Journal(current.workspace.stamp, record)
    if record.state is not ChangesetState.ROLLING_BACK:
        journal.add(RollingBack(_INTERRUPTED, None))
    journal.add(Failed(record.error or _INTERRUPTED))
    return journal.drafts


def _is_declared_still(current: Session, record: Changeset) -> bool:
    """Whether what the changeset was made from is as it was: then a plan gives what it gave."""
    return (
        record.desired_digest == current.desired.config_digest
        and record.base.applied_digest == current.state.applied_digest
        and record.source.merge_commit == facts_of(current).source.merge_commit
    )


def _intents_of(current: Session, record: Changeset) -> dict[str, tuple[Intent, ...]]:
    """The intents of an atomic changeset by node id."""
    found: dict[str, tuple[Intent, ...]] = {}
    for intent in current.opened.ledger.intents().intents:
        name = intent.address
        if name in record.addresses:
            found[name] = (*found.get(name, ()), intent)
    return found


def _look_at(current: Session, record: Changeset) -> Interrupted:
    """Find out which graphs are as the changeset wants them. Raises GitopsError for one that cannot be read."""
    intents = _intents_of(current, record)
    pivots = [m for m in record.members if m.effect is Effect.PIVOT]
    done: dict[str, Mapping[str, object]] = {}
    for member in (*live_members(record), *pivots):
        seen = _done(current, record, member) if intents.get(member.address) else None
        if seen is not None:
            done[member.address] = seen
    return Interrupted(record, intents, done)


def _done(current: Session, record: Changeset, member: Member) -> Mapping[str, object] | None:
    """What is seen of a graph that is as the changeset wants it, as its node reports it; None where it is not."""
    stores, graph = current.opened, member.address.name
    uri = stores.graph_uri(graph)
    if member.address.kind is Kind.GRAPH and stores.engine.exists(uri) is Existence.ABSENT:
        return None
    try:
        reading = stores.engine.read(uri)
    except GitopsError as error:
        if member.address.kind is Kind.GRAPH and error.code == Code.GRAPH_DELETED:
            return None  # An earlier run was about to take it back.
        raise
    wanted = next((each.staged for each in record.members if each.address == schema_address(graph)), None)
    if digest(reading.schema_source) != wanted:
        return None
    return {**seen_facts(uri, reading), "manifest_version": reading.manifest_version}
