"""A run that lands what it can: what fails stays as it was, with what needs it, and everything else is recorded.

Its changeset costs no write of its own. It is created with the intents, or with the result, and passes all its boundaries in the
write that records the result. If nothing landed, it failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.carry_out import carry_out
from gitops.cluster.apply.ended import Ended
from gitops.cluster.apply.land import prepare_write, settle_run, settled_intents
from gitops.cluster.apply.run import Run
from gitops.cluster.apply.settle import Settlement
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Disposition
from gitops.cluster.model.changeset import (
    Committed,
    Drained,
    Failed,
    Finalized,
    Prepared,
    Removed,
    RollingBack,
    RuntimeState,
)
from gitops.cluster.model.plan import Effect, NodeOutcome, NodeResult
from gitops.cluster.plan.changeset import approvals_consumed, changeset_result, failure_text, member_events
from gitops.cluster.session.workspace import CRASHED
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError

_NO_WAIT = "not waited for: the run lands what it can"
_NOT_TRIED = frozenset({NodeOutcome.SKIPPED, NodeOutcome.BLOCKED, NodeOutcome.CANCELLED})


def run_best_effort(run: Run) -> Ended:
    """Carry out, settle, write. A fault that a test puts in may end the run as if the process had died."""
    current, workspace = run.session, run.session.workspace
    results = carry_out(run)
    settled = settle_run(run, results)
    current.problems.extend(settled.diagnostics)
    crashed = any(result.facts.get(CRASHED) for result in results)
    if settled.publishable:
        try:
            workspace.faults.reach("cluster_apply.after_payload_phase")
        except GitopsError as error:
            current.problems.add_error(error)
            crashed = True
    if crashed:
        return Ended(settled, results)
    try:
        if not settled.publishable:
            _close(run, results)
            return Ended(settled, results)
        write = prepare_write(run, settled)
        _record(run, results, settled, write.state.revision)
        write.write(run, settled_intents(run, results))
    except GitopsError as error:
        current.problems.add_error(error)
        return Ended(settled, results, settles=True, converged=settled.converged and settled.state == current.state)
    return Ended(settled, results, settles=True, written=write.changed, reached=True, converged=settled.converged)


def _close(run: Run, results: Sequence[NodeResult]) -> None:
    """Record that nothing landed, where the ledger has the changeset already."""
    if run.journal.recorded:
        _fail(run, results)
        run.record()


def _record(run: Run, results: Sequence[NodeResult], settled: Settlement, revision: int) -> None:
    """Add the events of the result to the changeset."""
    if not run.journal.created:
        return
    landed = {c.address: c for c in settled.changes if c.disposition is Disposition.APPLIED}
    if not landed:
        _fail(run, results)
        return
    journal, before, at = run.journal, run.session.state.revision, run.session.workspace.stamp()
    ended = {result.node_id: _as_settled(result, landed) for result in results}
    skipped = {name: result for name, result in ended.items() if result.outcome in _NOT_TRIED}
    journal.add(*member_events(journal.record, ended, {Effect.STAGE}, at=at))
    ready = tuple(m.address for m in journal.record.members if m.runtime.state is RuntimeState.READY)
    journal.add(Prepared(ready))
    journal.add(*member_events(journal.record, ended, {Effect.PIVOT, Effect.COMMIT}, at=at))
    # What finishes after the commit and is not even tried is left out before it.
    journal.add(*member_events(journal.record, skipped, {Effect.FINISH}, at=at))
    journal.add(Committed(revision, before, tuple(sorted(landed)), settled.converged))
    consumed = {approval.approval_id for approval in settled.consumed}
    journal.add(*approvals_consumed(run.plan.approvals_required, consumed))
    journal.add(*member_events(journal.record, ended, {Effect.FINISH}, at=at, canonical=True))
    journal.add(Drained(0, _NO_WAIT))
    journal.add(*(Removed(address) for address, change in landed.items() if change.action is Action.DELETE))
    journal.add(
        Finalized(changeset_result(journal.record, state_revision=revision, converged=settled.converged, at=at))
    )


def _as_settled(result: NodeResult, landed: Mapping[Address, object]) -> NodeResult:
    """The result, or that it did not land: its node was carried out, and something that it belongs to failed."""
    done = result.outcome.succeeded
    return replace(result, outcome=NodeOutcome.SKIPPED) if done and Address(result.node_id) not in landed else result


def _fail(run: Run, results: Sequence[NodeResult]) -> None:
    """Add that the changeset failed: the first failure in plan order is its error."""
    journal, at = run.journal, run.session.workspace.stamp()
    failed = [r for r in results if r.outcome.failed]
    errors = [d for d in run.session.problems if d.severity is Severity.ERROR]
    error = failure_text(failed[0]) if failed else errors[0].message if errors else "nothing of it was applied"
    by_node = {result.node_id: result for result in failed}
    journal.add(*member_events(journal.record, by_node, {Effect.STAGE, Effect.PIVOT}, at=at))
    members = {member.address for member in journal.record.members}
    where = next((Address(r.node_id) for r in failed if Address(r.node_id) in members), None)
    journal.add(RollingBack(error, where), Failed(error))
