"""`plan`: what an apply would do now. Writes nothing but the lock."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.approvals.decisions import open_debts
from gitops.cluster.gate import AcceptedApprovals, accept_approvals, report_debts
from gitops.cluster.loading import load_advice
from gitops.cluster.session import Session, StateNeed, begin, run_session
from gitops.cluster.workspace import Governance, Workspace
from gitops.config.load import load_desired
from gitops.config.result import LoadResult
from gitops.config.source import SourceMovedError
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.ledger.port import IntentListing
from gitops.model.entry import Debt
from gitops.model.outcome import PlanOutcome
from gitops.model.plan import Plan, PlanInputs, TrustChange
from gitops.model.state import State
from gitops.plan.planner import diff, make_plan
from gitops.plan.previews import previews, recorded_graphs


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """A plan with the approvals that it counted."""

    plan: Plan
    admitted: AcceptedApprovals


def plan(workspace: Workspace) -> PlanOutcome:
    """Load, read the ledger, plan: what is remembered may help, since nothing is permitted or carried out by it."""
    try:
        return _plan(workspace, load_advice(workspace))
    except SourceMovedError:
        return _plan(workspace, load_desired(workspace.tree))


def _plan(workspace: Workspace, loaded: LoadResult) -> PlanOutcome:
    return run_session(begin(workspace, loaded), "plan", StateNeed.OPTIONAL, _planned, exclusive=False)


def _planned(current: Session) -> PlanOutcome:
    loaded = current.loaded
    planned = None
    if current.ready:
        _warn_of_intents(current.opened.ledger.intents(), current.problems)
        planned = plan_session(current, current.state, explain=True)
        current.problems.extend(planned.plan.diagnostics)
        report_debts(_owed(current, planned), current.problems)
    return PlanOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        resource_digests=loaded.digests(),
        dependencies=loaded.dependencies,
        plan=None if planned is None or current.problems.has_errors else planned.plan,
        debts=() if planned is None else _owed(current, planned),
        diagnostics=tuple(current.problems),
    )


def _owed(current: Session, planned: SessionPlan) -> tuple[Debt, ...]:
    """Open debts: without governance countersignatures are not read, so all that the ledger records."""
    return open_debts(current.state) if current.workspace.governance is None else planned.admitted.earlier.open


def plan_session(
    current: Session, state: State, pending: frozenset[str] = frozenset(), *, explain: bool = False
) -> SessionPlan:
    """Plan from an open session against `state`; problems of approvals and previews go to the session.

    `explain` also says what hangs on each migration, for people; nothing that is carried out depends on it.
    """
    desired, governance = current.desired, current.workspace.governance
    trust = trust_change(governance, current)
    changes = diff(desired, state, trust)
    admitted = accept_approvals(
        current.opened.ledger,
        changes=changes,
        desired=desired,
        view=current.view,
        clock=current.workspace.clock,
        governance=governance,
        problems=current.problems,
    )
    migrations = previews(current, changes)
    inputs = PlanInputs(
        desired=desired,
        state=state,
        approvals=admitted.approvals,
        pending=pending,
        previews={text: found.preview for text, found in migrations.items()},
        recorded=recorded_graphs(current, changes, migrations) if explain else {},
        trust_change=trust,
        approvals_needed=admitted.needed,
        alone=admitted.emergencies,
    )
    return SessionPlan(make_plan(inputs), admitted)


def trust_change(governance: Governance | None, current: Session) -> TrustChange | None:
    """The change of keys and rules between the ledger and the source commit; none before the first entry."""
    in_force = current.view.trust
    if governance is None or in_force is None:
        return None
    return TrustChange(governance.target.cluster, in_force.digest, governance.trust.digest)


def _warn_of_intents(listing: IntentListing, problems: Diagnostics) -> None:
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, "__cluster/recoveries", listing.problem)
    names = [i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]
    for name in sorted(names):
        problems.add(
            Code.CLUSTER_RECOVERY_PENDING,
            f"__cluster/recoveries/{name}",
            "an interrupted operation is not settled; apply settles it first and may then block more than this shows",
        )
