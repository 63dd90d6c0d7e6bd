"""`apply`: plan again under the lock, carry out the execution graph, settle, publish.

1. Load; any error ends here. 2. Lock. 3. Read the ledger, and record countersignatures that settle debts. 4. Settle or go on with
what an interrupted run left. 5. Plan with the approvals that count; an open debt ends here. 6. Create the changeset, and announce
intents. 7. Carry out the graph. 8. Settle, and write: in an atomic run that is a barrier of the graph, in another one its end.
9. An atomic run that failed takes back what it staged. 10. Report.

A plan with several changes that cannot be taken back is carried out in parts, each a changeset of its own, until one fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.apply.adopt import adopt_former
from gitops.apply.atomic import run_atomic
from gitops.apply.best_effort import run_best_effort
from gitops.apply.create import announce
from gitops.apply.entries import settle_debts
from gitops.apply.prepare import Part, prepare
from gitops.apply.run import Run
from gitops.apply.runner import report_interrupt
from gitops.approvals.decisions import open_debts
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Workspace
from gitops.core.errors import GitopsError
from gitops.model.address import Address
from gitops.model.change import Change, Disposition, Reason
from gitops.model.changeset import ChangesetState
from gitops.model.outcome import ApplyOutcome
from gitops.model.plan import NodeResult, Plan
from gitops.plan.republished import republished_queries


def apply(workspace: Workspace) -> ApplyOutcome:
    """Apply what the folder declares, as far as approvals, dependencies and the live graphs allow."""
    return in_session(workspace, "apply", StateNeed.REQUIRED, _apply)


def _apply(current: Session) -> ApplyOutcome:
    if not current.ready or not _may_apply(current):
        return _unchanged(current)
    if (waits := adopt_former(current)) or not settle_debts(current):
        return _unchanged(current, waits)
    earlier: ApplyOutcome | None = None
    part = Part()
    while True:
        prepared = prepare(current, part)
        if prepared is None:
            return _joined(current, earlier, _unchanged(current))
        run, part = prepared
        # From here on no signal breaks the run off: an interrupt starts nothing more, and what is done is recorded.
        with current.workspace.cancel.work():
            outcome, landed = _carry_out_part(run, part)
        earlier = _joined(current, earlier, outcome)
        if not landed or part.number >= part.of:
            return earlier
        part = replace(part, number=part.number + 1)


def _carry_out_part(run: Run, part: Part) -> tuple[ApplyOutcome, bool]:
    """Steps 6 to 10; with whether the next part may follow."""
    current, cancel = run.session, run.session.workspace.cancel
    if cancel.requested or not announce(run, part.label):
        report_interrupt(cancel, (), current.problems)
        return _unchanged(current, run.plan.changes), False
    republished = _republished(current, run.plan)
    ended = run_atomic(run) if run.atomic and run.journal.created else run_best_effort(run)
    report_interrupt(cancel, ended.results, current.problems)
    settled = ended.settled
    changes = _left(run) if settled is None else settled.changes
    outcome = _unchanged(current, changes, ended.results, republished)
    if run.journal.recorded:
        outcome = replace(outcome, changesets=(run.journal.record,))
    if settled is None or not ended.settles:
        return outcome, False
    consumed = {approval.approval_id for approval in settled.consumed}
    used = {
        need.resource: need.spent
        for need in run.plan.approvals_required
        if consumed.intersection(a.approval_id for a in need.spent)
    }
    outcome = replace(
        outcome,
        counted=True,
        converged=ended.converged,
        state_written=ended.written,
        plan=run.plan,
        plan_digest=run.plan.digest,
        entry_id=current.view.head,
        approvals_used=used,
    )
    return outcome, ended.reached


def _left(run: Run) -> tuple[Change, ...]:
    """The changes of a run of which nothing landed; while its changeset is open, the next run decides."""
    failed = run.journal.recorded and run.journal.record.state is ChangesetState.FAILED
    reason = Reason.CHANGESET_FAILED if failed else Reason.RECOVERY_PENDING
    return tuple(
        replace(change, disposition=Disposition.BLOCKED, reason=reason)
        if change.disposition is Disposition.APPLIED
        else change
        for change in run.plan.changes
    )


def _joined(current: Session, earlier: ApplyOutcome | None, part: ApplyOutcome) -> ApplyOutcome:
    """The outcome of the parts so far: what they changed together, and how the last one ended."""
    if earlier is None:
        return part
    return replace(
        part,
        changes=tuple(sorted((*earlier.changes, *part.changes), key=lambda change: change.address)),
        results=(*earlier.results, *part.results),
        state=current.view.state,
        state_written=earlier.state_written or part.state_written,
        counted=True,
        approvals_used={**earlier.approvals_used, **part.approvals_used},
        republished=earlier.republished | part.republished,
        changesets=(*earlier.changesets, *part.changesets),
    )


def _unchanged(
    current: Session,
    changes: Sequence[Change] = (),
    results: tuple[NodeResult, ...] = (),
    republished: frozenset[Address] = frozenset(),
) -> ApplyOutcome:
    """The report of a run that wrote nothing: counts are zero and the ledger is what is stored."""
    loaded = current.loaded
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        changes=tuple(changes),
        state=current.view.state,
        debts=open_debts(current.state),
        results=results,
        counted=False,
        republished=republished,
        diagnostics=tuple(current.problems),
    )


def _republished(current: Session, plan: Plan) -> frozenset[Address]:
    """The queries of a plan that are only published again, by the catalog as it is before that."""

    def read(query: Address, digest: str) -> bytes | None:
        declared = current.desired.resources[query]
        if digest == declared.digest:
            return declared.content
        with suppress(GitopsError):
            return current.opened.ledger.blob(query, digest).content
        return None

    return republished_queries(((each.address, each.before, each.after) for each in plan.changes), read)


def _may_apply(current: Session) -> bool:
    """Whether data may be kept here, and the source commit may be applied on top of the ledger as it is."""
    governance, problem = current.workspace.governance, current.opened.data_problem
    if problem is None and governance is not None:
        try:
            governance.admit(current.view)
        except GitopsError as error:
            problem = error
    if problem is not None:
        current.problems.add_error(problem)
    return problem is None
