"""`plan`: what an apply would do now. Writes nothing but the lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.lang.schema import compile_schema, plan_migration
from gitops.model.address import Kind
from gitops.model.change import Action, Change, MigrationPreview
from gitops.model.outcome import PlanOutcome
from gitops.model.plan import Plan, PlanInputs, TrustChange
from gitops.model.state import State
from gitops.planning.diff import diff
from gitops.planning.planner import make_plan
from gitops.ports.ledger import IntentListing
from gitops.workflows.context import Governance, Workspace
from gitops.workflows.gate import Admitted, GateQuestion, admit_approvals
from gitops.workflows.session import Session, StateNeed, in_session


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the approvals that it counted."""

    plan: Plan
    admitted: Admitted


def plan(workspace: Workspace) -> PlanOutcome:
    """Load, read the ledger, plan."""
    return in_session(workspace, "plan", StateNeed.OPTIONAL, _planned, exclusive=False)


def _planned(current: Session) -> PlanOutcome:
    loaded = current.loaded
    planned = None
    if current.ready:
        _warn_of_intents(current.opened.ledger.intents(), current.problems)
        planned = plan_session(current, current.state)
        current.problems.extend(planned.plan.diagnostics)
    return PlanOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        resource_digests={r.address.text: r.digest for r in loaded.resources.values()},
        dependencies=loaded.dependencies,
        plan=None if planned is None or current.problems.has_errors else planned.plan,
        diagnostics=tuple(current.problems),
    )


def plan_session(current: Session, state: State, pending: frozenset[str] = frozenset()) -> Planned:
    """Plan from an open session against `state`; problems of approvals and previews go to the session."""
    desired, governance = current.desired, current.workspace.governance
    trust = trust_change(governance, current)
    changes = diff(desired, state, trust)
    question = GateQuestion(changes, desired, current.view, current.workspace.clock)
    admitted = admit_approvals(current.opened.ledger, question, governance, current.problems)
    inputs = PlanInputs(
        desired=desired,
        state=state,
        approvals=admitted.approvals,
        pending=pending,
        previews=_previews(current, changes),
        trust_change=trust,
        approvals_needed=admitted.needed,
    )
    return Planned(make_plan(inputs, kinds=current.workspace.kinds), admitted)


def trust_change(governance: Governance | None, current: Session) -> TrustChange | None:
    """The change of keys and rules between the ledger and the source commit; none before the first entry."""
    in_force = current.view.trust
    if governance is None or in_force is None:
        return None
    return TrustChange(governance.target.cluster, in_force.digest, governance.trust.digest)


def _previews(current: Session, changes: Sequence[Change]) -> dict[str, MigrationPreview]:
    """Migration previews of the schema updates; a missing one is a warning."""
    found: dict[str, MigrationPreview] = {}
    for change in changes:
        if change.address.kind is Kind.SCHEMA and change.action is Action.UPDATE:
            try:
                found[change.address.text] = _preview(current, change)
            except GitopsError as error:
                current.problems.add("schema_preview_unavailable", change.address.text, error.detail)
    return found


def _preview(current: Session, change: Change) -> MigrationPreview:
    """From the schema that the ledger says is applied, where git has it, else from the live graph."""
    graph = change.address.name
    wanted = current.desired.graphs[graph].schema
    accepted = current.workspace.accepted_schema(graph, change.before or "")
    if accepted is not None and wanted is not None:
        migration = plan_migration(compile_schema(accepted), wanted)
        return MigrationPreview(migration.supported, tuple(step.to_json() for step in migration.steps))
    content = current.desired.resources[change.address.text].content or b""
    return current.opened.engine.preview(current.opened.graph_uri(graph), content)


def _warn_of_intents(listing: IntentListing, problems: Diagnostics) -> None:
    if listing.problem is not None:
        problems.add("recovery_sidecar_read_error", "__cluster/recoveries", listing.problem)
    names = [i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]
    for name in sorted(names):
        problems.add(
            "cluster_recovery_pending",
            f"__cluster/recoveries/{name}",
            "an interrupted operation is not settled; apply settles it first and may then block more than this shows",
        )
