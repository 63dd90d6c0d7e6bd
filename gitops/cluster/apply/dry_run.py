"""`apply --dry-run`: shows what an apply would do now, with the same order and events, but without any effect.

1. Load the folder, and check that the lock is free, without taking it.
2. Read the ledger.
3. Predict the settlement of an interrupted run.
4. Plan as an apply does; stop if there is an open debt.
5. Run the execution graph with the scheduler of an apply. A node only asks its graph whether it would refuse; a barrier
   is passed. Hosts are read for the plan, and nothing is done there.
6. Settle the results as an apply does, and report.

A plan that is applied in parts is planned again after each part, from the state that the part would write.

Conditions that only occur during an apply are not predicted: a faster writer, a storage failure, a source that changes
during the run, an approval that is revoked between the plan and the change.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.apply.adopt import waiting_adoption
from gitops.cluster.apply.apply import (
    Part,
    Planned,
    joined,
    make_run,
    may_apply,
    may_begin,
    plan_from,
    report,
    report_part,
    same_texts_of,
)
from gitops.cluster.apply.carry_out import Ended, carry_out
from gitops.cluster.apply.hosts import reaching_hosts
from gitops.cluster.apply.land import settle_run
from gitops.cluster.apply.run import Run
from gitops.cluster.model.change import Change, Disposition, Effect
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import BARRIER_KIND, ExecNode, NodeOutcome, NodeResult, Plan, RunEvent, to_all
from gitops.cluster.plan.classes import COMMITTED
from gitops.cluster.plan.landing import graph_refusals
from gitops.cluster.plan.leftovers import Foreseen, foresee, graphs_of_changesets, warn_of_changesets
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session, StateNeed, looking, warn_of_intents
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import remedy
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError


def dry_run(workspace: Workspace) -> ApplyOutcome:
    """Return the effects that `apply` would have on this workspace, by the steps in this module.

    Writes nothing.
    """
    return replace(looking(workspace, StateNeed.REQUIRED, _dry_run), entry_id=None)


def _dry_run(current: Session) -> ApplyOutcome:
    if not current.ready or not may_apply(current):
        return replace(report(current), dry_run=())
    with reaching_hosts(current):
        return _rehearse(current)


def _rehearse(current: Session) -> ApplyOutcome:
    if waits := waiting_adoption(current):
        return replace(report(current, waits), dry_run=())
    # An apply reads its graphs, wherever they are stored.
    current.stores = replace(current.opened, data_at_hand=True, use_at_hand=True)
    foreseen, planned = _foresee(current)
    part, resumed = Part(), foreseen.resumed
    earlier: ApplyOutcome | None = None
    # Later parts are planned from the state that earlier ones would produce.
    while planned is not None and may_begin(
        current, planned, foreseen.moving if resumed is None and part.number == 1 else None
    ):
        run, part = make_run(current, planned, part, resumed)
        started: list[ExecNode] = []
        ended = _carry_out(run, foreseen, started)
        outcome = report_part(run, ended, same_texts_of(current, run.plan))
        nodes = (*(() if earlier is None else earlier.dry_run or ()), *started)
        earlier = replace(joined(current, earlier, outcome), dry_run=nodes, changesets=())
        if ended.settled is None or not ended.reached or part.number >= part.of:
            return earlier
        part, resumed = replace(part, number=part.number + 1), None
        planned = plan_from(current, replace(run.swept, state=ended.settled.state))
    return replace(joined(current, earlier, report(current)), dry_run=() if earlier is None else earlier.dry_run)


def _foresee(current: Session) -> tuple[Foreseen, Planned | None]:
    """Perform step 3, and return the plan of step 4, or None if an apply would end before it plans.

    Reports the predictions.
    """
    ledger, problems = current.opened.ledger, current.problems
    listing, interrupted = ledger.changesets(), ledger.intents()

    def make_plan(session: Session, swept: Sweep) -> tuple[Plan, AcceptedApprovals]:
        return plan_session(session, swept.state, swept.pending, in_place=True, live=True)

    foreseen = foresee(current, listing, interrupted.intents, make_plan) or Foreseen((), ())
    held = graphs_of_changesets(listing.open)
    others = replace(interrupted, intents=tuple(i for i in interrupted.intents if i.graph_id not in held))
    message = "an interrupted operation is not settled; an apply settles it first"
    warn_of_intents(others, current.held, problems, message, current.workspace.selected)
    problems.extend(foreseen.problems)
    warn_of_changesets(foreseen, problems)
    if foreseen.plan is None or foreseen.accepted is None or foreseen.swept is None:
        return foreseen, None
    before = len(problems)
    problems.extend(foreseen.planning)
    return foreseen, Planned(foreseen.plan, foreseen.accepted, foreseen.swept, before)


def _carry_out(run: Run, foreseen: Foreseen, started: list[ExecNode]) -> Ended:
    """Perform steps 5 and 6 for a part of a plan. `started` receives its nodes in the order of their starts."""
    nodes = {node.id: node for node in run.graph.nodes}

    def note(event: RunEvent) -> None:
        if event.type == "node_started" and event.node is not None:
            started.append(nodes[event.node])

    session, workspace = run.session, run.session.workspace
    refused = {refusal.path: refusal for refusal in graph_refusals(session, run.plan, foreseen.moving)}
    dry = replace(workspace, on_event=to_all(note, workspace.on_event))
    rehearsed = replace(run, session=replace(session, workspace=dry))
    dry_run = NodeOutcome.DRY_RUN
    results = carry_out(
        rehearsed,
        act=lambda node, change: _look(node, change, refused.get(node.id)),
        at_barrier=lambda node: NodeResult(node.id, dry_run),
        sound=dry_run,
    )
    return _settle(run, results)


def _look(node: ExecNode, change: Change | None, refusal: GitopsError | None) -> NodeResult:
    """Return the predicted result of a node, without any effect. It fails if its graph would refuse the change."""
    if refusal is None or change is None:
        return NodeResult(node.id, NodeOutcome.DRY_RUN)
    problems = Diagnostics()
    # A restore keeps the code of the graph.
    operation = rules_of(change.address).operation(change.action)
    code = (operation and operation.refused) or refusal.code
    problems.add(code, node.address, refusal.detail, fix=refusal.fix or remedy(refusal.code, node.address))
    return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))


def _settle(run: Run, results: tuple[NodeResult, ...]) -> Ended:
    """Return how the apply would end with these results, by the rules of best-effort or atomic runs."""
    current = run.session
    whole = run.atomic and any(change.disposition is Disposition.APPLIED for change in run.plan.changes)
    by_node, counted = {result.node_id: result for result in results}, results
    if whole:
        finishing = [node.id for node in run.graph.nodes if node.phase is Effect.FINISH and node.kind != BARRIER_KIND]
        for name, result in by_node.items():
            if name in finishing or not by_node[COMMITTED].outcome.succeeded:
                current.problems.extend(result.diagnostics)
        if not by_node[COMMITTED].outcome.succeeded:
            return Ended(None, results)
        # With the commit, everything is as declared, even what is finished only afterwards.
        counted = tuple(
            NodeResult(name, NodeOutcome.DRY_RUN) if name in finishing else result for name, result in by_node.items()
        )
    settled = settle_run(run, counted)
    current.problems.extend(settled.diagnostics)
    reached = all(result.outcome.succeeded for result in results) if whole else settled.publishable
    return Ended(
        settled, results, settles=settled.publishable, reached=reached, converged=reached and settled.converged
    )
