"""From the ledger and the folder to a run: settle what was interrupted, plan again, and choose what is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gitops.cluster.apply.entries import announced_debts, check_debts
from gitops.cluster.apply.intents import make_intents
from gitops.cluster.apply.interrupted import abandon, settle_interrupted
from gitops.cluster.apply.recover import next_fence, recover
from gitops.cluster.apply.run import Run
from gitops.cluster.apply.runner import report_interrupt
from gitops.cluster.approvals.decisions import with_debts
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.changeset import EventDraft, Member
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.cluster.plan.classes import atomic_graph
from gitops.cluster.plan.landing import warn_of_lost_graphs
from gitops.cluster.plan.open_changesets import Interrupted, with_used
from gitops.cluster.plan.parts import graphs_of_parts, part_of
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session
from gitops.core.cancel import CancelledError
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a plan a run carries out: its number of `of`; 0 where that is not known yet."""

    number: int = 1
    of: int = 0

    @property
    def label(self) -> str:
        """As the changeset names it."""
        return f"{self.number}/{self.of}"


def prepare(current: Session, part: Part) -> tuple[Run, Part] | None:
    """The run of a part of what is declared; None if an error ends it, which is reported then."""
    try:
        fence = next_fence(current.view, current.opened.ledger.intents().intents)
        resumed, closing = settle_interrupted(current, fence)
        return _prepare(current, part, resumed, closing)
    except CancelledError:
        report_interrupt(current.workspace.cancel, (), current.problems)
        return None
    except GitopsError as error:
        current.problems.add_error(error)
        return None


def _prepare(
    current: Session, part: Part, resumed: Interrupted | None, closing: tuple[EventDraft, ...] = ()
) -> tuple[Run, Part] | None:
    workspace, problems = current.workspace, current.problems
    going_on = frozenset[str]() if resumed is None else resumed.graphs
    swept = recover(current.opened, current.view, problems, at=workspace.stamp(), resumed=going_on)
    if resumed is not None:
        swept = with_used(swept, resumed, workspace.stamp())
    before = len(problems)
    whole, accepted = plan_session(current, swept.state, swept.pending, in_place=True, live=True)
    if resumed is not None and not resumed.fits(resumed.part(whole)):
        abandon(current, resumed, swept.fence)
        return _prepare(current, Part(), None)
    if not may_begin(current, whole, accepted, swept, before):
        return None
    return make_run(current, whole, accepted, swept, part, resumed, closing)


def make_run(
    current: Session,
    whole: Plan,
    accepted: AcceptedApprovals,
    swept: Sweep,
    part: Part,
    resumed: Interrupted | None,
    closing: tuple[EventDraft, ...] = (),
) -> tuple[Run, Part]:
    """The run of a part of a plan, or of the part that a changeset to go on with is about. Nothing is written."""
    workspace, atomic = current.workspace, current.workspace.atomic or resumed is not None
    plan, part = _choose(whole, part, resumed, atomic=atomic)
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


def may_begin(current: Session, whole: Plan, accepted: AcceptedApprovals, swept: Sweep, before: int) -> bool:
    """Report what keeps a run of a plan from beginning; False if there is an error behind the first `before` problems."""
    current.problems.extend(whole.diagnostics)
    warn_of_lost_graphs(current, whole, swept.state, swept.pending)
    _check_gates(current, whole)
    check_debts(current, whole, accepted)
    return all(problem.severity is not Severity.ERROR for problem in list(current.problems)[before:])


def _choose(whole: Plan, part: Part, resumed: Interrupted | None, *, atomic: bool) -> tuple[Plan, Part]:
    """The part of a plan that is carried out: of several the first, unless an interrupted run had another one."""
    if not atomic:
        return whole, Part(1, 1)
    graphs = graphs_of_parts(whole)
    if resumed is not None:
        number, of = (int(each) for each in resumed.record.part.split("/"))
        return resumed.part(whole), Part(number, of)
    of = max(part.of, part.number + max(0, len(graphs) - 1))
    return (part_of(whole, graphs[0]) if len(graphs) > 1 else whole), Part(part.number, of)


def _as_recorded(plan: Plan, resumed: Interrupted) -> ExecutionGraph:
    """The graph of a plan with the classes that its changeset has: a migration that is done has no steps any longer."""
    members: Mapping[Address, Member] = {member.address: member for member in resumed.record.members}
    classed = {
        node.id: replace(node, effect=members[node.address].effect, expanded=members[node.address].expanded)
        for node in plan.graph.nodes
        if node.address in members
    }
    return replace(plan.graph, nodes=tuple(classed.get(node.id, node) for node in plan.graph.nodes))


def _check_gates(current: Session, plan: Plan) -> None:
    """Report a gated change that is to be applied without its approvals: the planner is at fault."""
    satisfied = {need.resource: need.satisfied for need in plan.approvals_required}
    for change in plan.changes:
        if change.disposition is Disposition.APPLIED and not satisfied.get(change.address, True):
            detail = "a gated change has no matching approval"
            current.problems.add(Code.APPLY_APPROVAL_INVARIANT_VIOLATION, change.address, detail)
