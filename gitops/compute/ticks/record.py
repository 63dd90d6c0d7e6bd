"""The changeset of a tick in the ledger: its creation, its end, and what becomes of one that an interrupted run left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.interrupted import INTERRUPTED
from gitops.cluster.apply.run import write_events
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetBase,
    ChangesetKind,
    ChangesetState,
    Committed,
    Created,
    Drained,
    Failed,
    Finalized,
    Orphan,
    Prepared,
    RollingBack,
    RuntimeState,
)
from gitops.cluster.model.ledger import changeset_key
from gitops.cluster.model.plan import Effect, NodeOutcome, NodeResult, first_failure
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.plan.changeset import changeset_result, failure_text, member_events
from gitops.cluster.session.session import Session
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.state import StrategyState
from gitops.compute.ticks.graph import TickAction, action_of, audit_row, plan_digest, tick_record
from gitops.compute.ticks.work import has_happened
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import ConflictError

__all__ = ["create_changeset", "end_changeset", "owed_by", "settle_tick"]

_NOT_TRIED = frozenset({NodeOutcome.SKIPPED, NodeOutcome.BLOCKED, NodeOutcome.CANCELLED})
_LOOK_BACK = 20
"""Among how many of the newest changesets a tick that died is looked for."""
_FOUND = "done; its effect was found by a later tick"
_FIX = "make the target answer, then run the tick again"
_NO_READERS = "replicas are not read from the ledger"


def create_changeset(current: Session, actions: Sequence[TickAction]) -> Journal:
    """Record a new changeset with these actions, before any of them is begun. Raises GitopsError."""
    workspace, state, ledger = current.workspace, current.state, current.opened.ledger
    governance = workspace.governance
    cluster = governance.target.cluster if governance is not None else current.desired.name or "cluster"
    subject, attempt = f"{current.view.head or current.view.cas} {plan_digest(actions)}", 1
    while ledger.changeset(key := changeset_key(cluster, ChangesetKind.TICK, subject, attempt=attempt)) is not None:
        attempt += 1
    base = ChangesetBase(state.revision, current.view.cas, state.applied_digest, state.config_digest)
    record = tick_record(key, cluster, attempt, actions, base=base, actor=workspace.actor, at=workspace.stamp())
    journal = Journal(workspace.stamp)
    journal.add(Created(record))
    write_events(current, journal)
    return journal


def end_changeset(current: Session, journal: Journal, results: Mapping[str, NodeResult]) -> None:
    """Record how the changeset ended: it failed where nothing was done. The applied state is as before. Raises GitopsError."""
    at, revision = current.workspace.stamp(), current.state.revision
    done = [each.address for each in journal.record.members if results[each.address].outcome.succeeded]
    if journal.record.state is ChangesetState.ROLLING_BACK:
        # A person gave it up. A replica is not taken back: the next decision is about what is there.
        error = journal.record.error or INTERRUPTED
        journal.add(Failed(error, tuple(Orphan(address, "it was done before that") for address in done)))
        write_events(current, journal)
        return
    stages = member_events(journal.record, results, {Effect.STAGE}, at=at)
    journal.add(*stages)
    if not done:
        first = first_failure(results.values())
        error = "the tick was interrupted" if first is None else failure_text(first)
        members = {each.address: each for each in journal.record.members}
        journal.add(
            RollingBack(error, next((name for name in members if first and name == first.node_id), None)), Failed(error)
        )
        write_events(current, journal)
        return
    untried = {name: result for name, result in results.items() if result.outcome in _NOT_TRIED}
    journal.add(*member_events(journal.record, untried, {Effect.FINISH}, at=at))
    journal.add(Prepared(tuple(m.address for m in journal.record.members if m.runtime.state is RuntimeState.READY)))
    converged = len(done) == len(journal.record.members)
    journal.add(Committed(revision, revision, tuple(done), converged))
    tried = {name: result for name, result in results.items() if result.outcome not in _NOT_TRIED}
    journal.add(*member_events(journal.record, tried, {Effect.FINISH}, at=at, canonical=True))
    journal.add(Drained(0, _NO_READERS))
    journal.add(Finalized(changeset_result(journal.record, state_revision=revision, converged=converged, at=at)))
    write_events(current, journal)


def owed_by(current: Session) -> Changeset | None:
    """The newest tick, if it died and an apply has closed it since: its audit rows may be missing."""
    ledger = current.opened.ledger
    for record in map(ledger.changeset, ledger.changeset_keys()[:_LOOK_BACK]):
        if record is not None and record.kind is ChangesetKind.TICK:
            return record if record.state is ChangesetState.FAILED and record.error == INTERRUPTED else None
    return None


def settle_tick(current: Session, record: Changeset, targets: Mapping[str, StrategyTarget]) -> None:
    """Settle a tick that died: find out what it has done, write the audit rows that it owes, and record its end.

    Raises ConflictError `cluster_recovery_pending` while one of its targets does not say what is there, and RemoteError.
    """
    results: dict[str, NodeResult] = {}
    done: list[TickAction] = []
    for member in record.members:
        action, problems = action_of(member), Diagnostics()
        target = None if action is None else targets.get(action.target)
        happened = False if action is None else None if target is None else has_happened(target, action)
        if happened is None:
            detail = f"tick {record.key} was interrupted, and what it has done to {member.address} is not known yet"
            raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=record.key, fix=_FIX)
        if happened and action is not None and target is not None:
            target.create_tables()
            target.audit(audit_row(record.key, action, executed=True, said=_FOUND))
            done.append(action)
            results[member.address] = NodeResult(member.address, NodeOutcome.DONE)
        else:
            problems.add(Code.APPLY_INTERRUPTED, member.address, "the tick was interrupted before it took effect")
            results[member.address] = NodeResult(member.address, NodeOutcome.FAILED, tuple(problems))
    _remember(current, record, done, targets)
    if record.ended:
        return
    end_changeset(current, Journal(current.workspace.stamp, record), results)
    detail = f"an interrupted tick is settled: {len(done)} of {len(record.members)} actions had taken effect"
    current.problems.add(Code.CLUSTER_RECOVERY_ROLLED_FORWARD, record.key, detail)


def _remember(
    current: Session, record: Changeset, done: Iterable[TickAction], targets: Mapping[str, StrategyTarget]
) -> None:
    """Let the cooldown of the strategies whose actions were done begin when their tick did, unless they know it."""
    decided = parse_timestamp(record.created_at) or current.workspace.clock.now()
    wanted: dict[tuple[str, str, str], set[str]] = {}
    for action in done:
        wanted.setdefault((action.target, action.cluster_id, action.cluster), set()).update(action.by)
    for (name, cluster_id, cluster), by in wanted.items():
        target = targets[name]
        known = {state.strategy: state for state in target.states().get(cluster_id, ())}
        late = []
        for kind in (each for each in StrategyType if each.value in by):
            state = known.get(kind) or StrategyState(kind, cluster, first_seen=decided)
            if state.last_decision is None or state.last_decision < decided:
                late.append(replace(state, last_decision=decided, last_outcome="applied"))
        if late:
            target.replace_states(cluster_id, late, at=current.workspace.clock.now())
