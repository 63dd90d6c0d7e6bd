"""`apply`: plan again under the lock, carry out the execution graph, settle, publish.

1. Load; any error ends here. 2. Lock. 3. Read the ledger, and record countersignatures that settle debts. 4. Settle or go on with
what an interrupted run left. 5. Plan with the approvals that count; an open debt ends here. 6. Create the changeset, and announce
intents. 7. Carry out the graph. 8. Settle, and write: in an atomic run that is a barrier of the graph, in another one its end.
9. An atomic run that failed takes back what it staged. 10. Report. 11. Bring the
rows of strategies on their targets in line with the ledger.

A plan with several changes that cannot be taken back is carried out in parts, each a changeset of its own, until one fails.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.apply.adopt import adopt_former
from gitops.cluster.apply.atomic import run_atomic
from gitops.cluster.apply.best_effort import run_best_effort
from gitops.cluster.apply.create import announce
from gitops.cluster.apply.entries import settle_debts
from gitops.cluster.apply.prepare import Part, prepare
from gitops.cluster.apply.projection import project
from gitops.cluster.apply.report import joined, report, report_part, republished_of
from gitops.cluster.apply.run import Run
from gitops.cluster.apply.runner import report_interrupt
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.session import Session, StateNeed, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.errors import GitopsError

__all__ = ["apply", "may_apply"]


def apply(workspace: Workspace) -> ApplyOutcome:
    """Apply what the folder declares, as far as approvals, dependencies and the live graphs allow."""
    return writing(workspace, "apply", StateNeed.REQUIRED, lambda current: project(current, _apply(current)))


def _apply(current: Session) -> ApplyOutcome:
    if not current.ready or not may_apply(current):
        return report(current)
    if (waits := adopt_former(current)) or not settle_debts(current):
        return report(current, waits)
    earlier: ApplyOutcome | None = None
    part = Part()
    while True:
        prepared = prepare(current, part)
        if prepared is None:
            return joined(current, earlier, report(current))
        run, part = prepared
        # From here on no signal breaks the run off: an interrupt starts nothing more, and what is done is recorded.
        with current.workspace.cancel.work():
            outcome, landed = _carry_out_part(run, part)
        earlier = joined(current, earlier, outcome)
        if not landed or part.number >= part.of:
            return earlier
        part = replace(part, number=part.number + 1)


def _carry_out_part(run: Run, part: Part) -> tuple[ApplyOutcome, bool]:
    """Steps 6 to 10; with whether the next part may follow."""
    current, cancel = run.session, run.session.workspace.cancel
    if cancel.requested or not announce(run, part.label):
        report_interrupt(cancel, (), current.problems)
        return report(current, run.plan.changes), False
    republished = republished_of(current, run.plan)
    ended = run_atomic(run) if run.atomic and run.journal.created else run_best_effort(run)
    report_interrupt(cancel, ended.results, current.problems)
    return report_part(run, ended, republished), ended.reached


def may_apply(current: Session) -> bool:
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
