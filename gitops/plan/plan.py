"""`plan`: what an apply would do now. Writes nothing but the lock."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.approvals.decisions import open_debts
from gitops.cluster.gate import AcceptedApprovals, accept_approvals, report_debts
from gitops.cluster.observations import warn_of_intents
from gitops.cluster.session import Session, StateNeed, open_session, run_session
from gitops.cluster.validate import load_advice
from gitops.cluster.workspace import Workspace
from gitops.config.load import load_desired
from gitops.config.result import LoadResult
from gitops.config.source import SourceMovedError
from gitops.model.ledger import Debt, LedgerState
from gitops.model.outcome import PlanOutcome
from gitops.model.plan import Plan, PlanInputs, TrustChange
from gitops.plan.planner import diff, make_plan
from gitops.plan.previews import preview_migrations, recorded_graphs


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """A plan with the approvals that it counted."""

    plan: Plan
    approvals: AcceptedApprovals


def plan(workspace: Workspace) -> PlanOutcome:
    """Load, read the ledger, plan. The compile cache may help, since nothing is permitted or applied by a plan."""
    try:
        return _plan(workspace, load_advice(workspace))
    except SourceMovedError:
        return _plan(workspace, load_desired(workspace.tree))


def _plan(workspace: Workspace, loaded: LoadResult) -> PlanOutcome:
    return run_session(open_session(workspace, loaded), "plan", StateNeed.OPTIONAL, _plan_outcome, exclusive=False)


def _plan_outcome(current: Session) -> PlanOutcome:
    loaded, problems = current.loaded, current.problems
    plan: Plan | None = None
    debts: tuple[Debt, ...] = ()
    if current.ready:
        detail = (
            "an interrupted operation is not settled; apply settles it first and may then block more than this shows"
        )
        warn_of_intents(current.opened.ledger, problems, detail)
        planned = plan_session(current, current.state, explain=True)
        plan, debts = planned.plan, planned.approvals.earlier.open
        problems.extend(plan.diagnostics)
        if current.workspace.governance is None:
            # Only governance has countersignatures: all debts that the ledger records are open.
            debts = open_debts(current.state)
        report_debts(debts, problems)
    return PlanOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        resource_digests=loaded.digests(),
        dependencies=loaded.dependencies,
        plan=None if problems.has_errors else plan,
        debts=debts,
        diagnostics=tuple(problems),
    )


def plan_session(
    current: Session, state: LedgerState, pending: frozenset[str] = frozenset(), *, explain: bool = False
) -> SessionPlan:
    """Plan from an open session against `state`; problems of approvals and previews go to the session.

    `pending` are graph ids whose interrupted operation is not settled. `explain` adds what each migration affects, for people;
    nothing that is applied depends on it.
    """
    desired, governance = current.desired, current.workspace.governance
    trust, in_force = None, current.view.trust
    # Before the first entry no keys and rules are in force, so nothing changes them.
    if governance is not None and in_force is not None:
        trust = TrustChange(governance.target.cluster, in_force.digest, governance.trust.digest)
    changes = diff(desired, state, trust)
    approvals = accept_approvals(
        current.opened.ledger,
        changes=changes,
        desired=desired,
        view=current.view,
        clock=current.workspace.clock,
        governance=governance,
        problems=current.problems,
    )
    migrations = preview_migrations(current, changes)
    inputs = PlanInputs(
        desired=desired,
        state=state,
        approvals=approvals.approvals,
        pending=pending,
        previews={schema: found.preview for schema, found in migrations.items()},
        recorded=recorded_graphs(current, changes, migrations) if explain else {},
        trust_change=trust,
        approvals_needed=approvals.needed,
        alone=approvals.emergencies,
    )
    return SessionPlan(make_plan(inputs), approvals)
