"""`apply`: plans again under the lock, runs the execution graph, then settles and publishes the result.

1. Load the folder; stop if there is any error.
2. Take the lock.
3. Read the ledger, and record countersignatures that settle debts.
4. Settle or resume the work of an interrupted run.
5. Plan with the approvals that count; stop if there is an open debt.
6. Create the changeset, and announce intents. 7. Run the graph. 8. Settle and write; in an atomic run this is a barrier of the
graph, otherwise its end. 9. Roll back the staged changes of a failed atomic run. 10. Report. 11. Bring the rows of strategies on
their targets in line with the ledger.

A plan with several changes that cannot be rolled back is applied in parts, each as a separate changeset, until one fails. In
an atomic apply, hosts are a separate part, which is applied best-effort.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.adopt import adopt_former
from gitops.cluster.apply.carry_out import Ended, run_atomic, run_best_effort
from gitops.cluster.apply.entries import announced_debts, check_debts, settle_debts
from gitops.cluster.apply.hosts import reaching_hosts
from gitops.cluster.apply.projection import project
from gitops.cluster.apply.recover import GoingOn, abandon, next_fence, recover, settle_interrupted
from gitops.cluster.apply.run import Run, announce, make_intents
from gitops.cluster.apply.runner import report_interrupt
from gitops.cluster.approvals.decisions import with_debts
from gitops.cluster.changesets.lifecycle import Journal
from gitops.cluster.model.address import Address, graph_address
from gitops.cluster.model.change import Change, Disposition, Reason
from gitops.cluster.model.changeset import ChangesetState, EventDraft, Member
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import ExecutionGraph, NodeResult, Plan, SameTexts
from gitops.cluster.plan.classes import atomic_graph, graphs_of_parts, has_work, part_of, split_hosts
from gitops.cluster.plan.landing import warn_of_lost_graphs
from gitops.cluster.plan.leftovers import Interrupted, with_used
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.plan.planner import formatting_of
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.plan.texts import same_texts, text_reader
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session, StateNeed, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.cancel import CancelledError
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError


def apply(workspace: Workspace) -> ApplyOutcome:
    """Apply as much of the folder as approvals, dependencies and the live graphs allow."""
    return writing(workspace, "apply", StateNeed.REQUIRED, lambda current: project(current, _apply(current)))


def _apply(current: Session) -> ApplyOutcome:
    if not current.ready or not may_apply(current):
        return report(current)
    if (waits := adopt_former(current)) or not settle_debts(current):
        return report(current, waits)
    with reaching_hosts(current):
        return _apply_parts(current)


def _apply_parts(current: Session) -> ApplyOutcome:
    earlier: ApplyOutcome | None = None
    part = Part()
    while True:
        prepared = prepare(current, part)
        if prepared is None:
            return joined(current, earlier, report(current))
        run, part = prepared
        # From here on, signals don't abort the run: after an interrupt, nothing more starts, and completed work is
        # recorded.
        with current.workspace.cancel.work():
            outcome, landed = _carry_out_part(run, part)
        earlier = joined(current, earlier, outcome)
        if not landed or part.number >= part.of:
            return earlier
        part = replace(part, number=part.number + 1)


def _carry_out_part(run: Run, part: Part) -> tuple[ApplyOutcome, bool]:
    """Perform steps 6 to 10. Also returns True if the next part may follow."""
    current, cancel = run.session, run.session.workspace.cancel
    if cancel.requested or not announce(run, part.label):
        report_interrupt(cancel, (), current.problems)
        return report(current, run.plan.changes), False
    same = same_texts_of(current, run.plan)
    ended = run_atomic(run) if run.atomic and run.journal.created else run_best_effort(run)
    report_interrupt(cancel, ended.results, current.problems)
    return report_part(run, ended, same), ended.reached


def may_apply(current: Session) -> bool:
    """Return True if this run can store data and apply the source commit on top of the current ledger."""
    governance, problem = current.workspace.governance, current.opened.data_problem
    if problem is None and governance is not None:
        try:
            governance.admit(current.view)
        except GitopsError as error:
            problem = error
    if problem is not None:
        current.problems.add_error(problem)
    return problem is None


# -- From the ledger and the folder to a run: settle interrupted work, plan again, and choose the part to apply -----


@dataclass(frozen=True, slots=True)
class Part:
    """The number of the plan part that this run applies, and the total number of parts (`of`, which is 0 while unknown)."""

    number: int = 1
    of: int = 0

    @property
    def label(self) -> str:
        """The part's label in the changeset."""
        return f"{self.number}/{self.of}"


def prepare(current: Session, part: Part) -> tuple[Run, Part] | None:
    """Return the run for a part of the declaration, or report an error and return None if the run cannot start."""
    try:
        fence = next_fence(current.view, current.opened.ledger.intents().intents)
        return _prepare(current, part, settle_interrupted(current, fence))
    except CancelledError:
        report_interrupt(current.workspace.cancel, (), current.problems)
        return None
    except GitopsError as error:
        current.problems.add_error(error)
        return None


def _prepare(current: Session, part: Part, going: GoingOn) -> tuple[Run, Part] | None:
    workspace, problems, resumed = current.workspace, current.problems, going.resumed
    swept = recover(current.opened, current.view, problems, at=workspace.stamp(), resumed=going.graphs)
    if resumed is not None:
        swept = with_used(swept, resumed, workspace.stamp())
    planned = plan_from(current, swept)
    if resumed is not None and not resumed.fits(resumed.part(planned.whole)):
        for record in (resumed.record, *going.beside):
            abandon(current, record, swept.fence)
        return _prepare(current, Part(), GoingOn())
    moving = swept.pending if resumed is None else None
    begins = may_begin(current, planned, moving)
    return make_run(current, planned, part, resumed, going.closing) if begins else None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for the recovered state, with the approvals that count and the number of problems `before` planning."""

    whole: Plan
    accepted: AcceptedApprovals
    swept: Sweep
    before: int


def plan_from(current: Session, swept: Sweep) -> Planned:
    """Plan a run's changes and report all problems."""
    before = len(current.problems)
    return Planned(*plan_session(current, swept.state, swept.pending, in_place=True, live=True), swept, before)


def make_run(
    current: Session,
    planned: Planned,
    part: Part,
    resumed: Interrupted | None,
    closing: tuple[EventDraft, ...] = (),
) -> tuple[Run, Part]:
    """Return the run for a plan part, or for the part of a changeset that is resumed. Writes nothing."""
    whole, accepted, swept = planned.whole, planned.accepted, planned.swept
    workspace = current.workspace
    plan, part, atomic = _choose(current, whole, part, resumed)
    owed = announced_debts(accepted.announced, swept.consumed)
    graph = plan.graph if not atomic else atomic_graph(plan.graph if resumed is None else _as_recorded(plan, resumed))
    run = Run(
        session=current,
        swept=replace(swept, state=with_debts(swept.state, owed)),
        plan=plan,
        whole=whole,
        graph=graph,
        accepted=accepted,
        operation=workspace.ids.ulid(),
        intents=make_intents(current, plan, graph, swept.fence, atomic=atomic),
        debts=owed,
        journal=Journal(workspace.stamp, None if resumed is None else resumed.record, closing),
        atomic=atomic,
        done={} if resumed is None else resumed.done,
        earlier={} if resumed is None else resumed.intents,
    )
    return run, part


def may_begin(current: Session, planned: Planned, moving: Collection[str] | None) -> bool:
    """Report why a planned run cannot start. Returns False if this adds errors.

    `moving` are the ids of graphs whose drift is ignored; None if all drift is ignored, because the run has already
    begun.
    """
    whole, swept = planned.whole, planned.swept
    current.problems.extend(whole.diagnostics)
    warn_of_lost_graphs(current, whole, swept.state, swept.pending)
    # A gated change would be applied without its approvals, which is a defect of the planner.
    satisfied = {need.resource: need.satisfied for need in whole.approvals_required}
    for change in whole.changes:
        if change.disposition is Disposition.APPLIED and not satisfied.get(change.address, True):
            detail = "a gated change has no matching approval"
            current.problems.add(Code.APPLY_APPROVAL_INVARIANT_VIOLATION, change.address, detail)
    check_debts(current, whole, planned.accepted)
    if moving is not None and current.blocks_on_drift:
        # Imported late, because few rules need it.
        from gitops.cluster.plan.drift import open_drift

        current.problems.extend(open_drift(current, whole, swept.state, moving, live=True))
    return all(problem.severity is not Severity.ERROR for problem in list(current.problems)[planned.before :])


def _choose(current: Session, whole: Plan, part: Part, resumed: Interrupted | None) -> tuple[Plan, Part, bool]:
    """Return the part of a plan to apply, and whether it is applied atomically.

    It is the first part, unless an interrupted run was applying a different one.
    """
    if resumed is not None:
        number, of = (int(each) for each in resumed.record.part.split("/"))
        return resumed.part(whole), Part(number, max(of, number + has_work(split_hosts(whole)[1]))), True
    if not current.workspace.atomic:
        return whole, Part(1, 1), False
    rest, hosts = split_hosts(whole)
    with_hosts, graphs = has_work(hosts), graphs_of_parts(rest)
    if with_hosts and (part.number == 1 if current.workspace.hosts_first else not has_work(rest)):
        left = has_work(rest) and current.workspace.hosts_first
        alone = hosts if left or part.number > 1 else whole
        return alone, Part(part.number, max(part.of, part.number + (max(1, len(graphs)) if left else 0))), False
    after = with_hosts and not current.workspace.hosts_first
    of = max(part.of, part.number + max(0, len(graphs) - 1) + after)
    # Changes of hosts that wait are only reported.
    chosen = part_of(rest, graphs[0]) if len(graphs) > 1 else rest if after else whole
    return chosen, Part(part.number, of), True


def _as_recorded(plan: Plan, resumed: Interrupted) -> ExecutionGraph:
    """Return a plan's graph with the classes recorded in its changeset, because a completed migration has no steps left."""
    members: Mapping[Address, Member] = {member.address: member for member in resumed.record.members}
    classed = {
        node.id: replace(node, effect=members[node.address].effect, expanded=members[node.address].expanded)
        for node in plan.graph.nodes
        if node.address in members
    }
    return replace(plan.graph, nodes=tuple(classed.get(node.id, node) for node in plan.graph.nodes))


# -- Reports of an apply: of a run that wrote nothing, of an applied part, and of several parts together -------------


def report(
    current: Session,
    changes: Sequence[Change] = (),
    results: tuple[NodeResult, ...] = (),
    same: SameTexts | None = None,
) -> ApplyOutcome:
    """Return the report for a run that wrote nothing. Its counts are zero, and its ledger is the stored one."""
    loaded, same = current.loaded, same or SameTexts()
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        changes=tuple(changes),
        state=current.view.state,
        debts=current.state.debts,
        results=results,
        counted=False,
        republished=same.republished,
        formatting=same.formatting,
        diagnostics=tuple(current.problems),
    )


def report_part(run: Run, ended: Ended, same: SameTexts) -> ApplyOutcome:
    """Return the report for an applied part of a plan. `same` are its updates that don't change any meaning."""
    current, settled = run.session, ended.settled
    changes = _left(run) if settled is None else settled.changes
    outcome = report(current, changes, ended.results, same)
    if run.journal.recorded:
        outcome = replace(outcome, changesets=(run.journal.record,))
    if settled is None or not ended.settles:
        return outcome
    consumed = {approval.approval_id for approval in settled.consumed}
    used = {
        need.resource: need.spent
        for need in run.plan.approvals_required
        if consumed.intersection(a.approval_id for a in need.spent)
    }
    waits = any(graph_address(graph) in settled.state.resources for graph in run.swept.pending)
    return replace(
        outcome,
        counted=True,
        converged=ended.converged and not waits,
        state_written=ended.written,
        plan=run.plan,
        plan_digest=run.plan.digest,
        entry_id=current.view.head,
        approvals_used=used,
    )


def _left(run: Run) -> tuple[Change, ...]:
    """Return the changes of a run that applied nothing. While its changeset is open, the next run decides."""
    waits = run.journal.recorded and run.journal.record.state is not ChangesetState.FAILED
    reason = Reason.RECOVERY_PENDING if waits else Reason.CHANGESET_FAILED
    return tuple(
        replace(change, disposition=Disposition.BLOCKED, reason=reason)
        if change.disposition is Disposition.APPLIED
        else change
        for change in run.plan.changes
    )


def joined(current: Session, earlier: ApplyOutcome | None, part: ApplyOutcome) -> ApplyOutcome:
    """Combine the outcomes of all parts so far: every change, with the result of the last part."""
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
        formatting=earlier.formatting | part.formatting,
        changesets=(*earlier.changesets, *part.changesets),
    )


def same_texts_of(current: Session, plan: Plan) -> SameTexts:
    """Return the updates of a plan that don't change any meaning, judged by the catalog before the plan."""
    found = same_texts(((each.address, each.before, each.after) for each in plan.changes), text_reader(current))
    return replace(found, formatting=formatting_of(plan.changes, found))
