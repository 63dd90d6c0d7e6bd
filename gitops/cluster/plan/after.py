"""The plan of a cluster folder after another folder has been applied. It only explains; it is never applied."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import SourceMovedError
from gitops.cluster.model.address import Kind, schema_address
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import AppliedResource
from gitops.cluster.model.outcome import PlanOutcome, StateObservations
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.diagnostics import Severity


def plan_after(workspace: Workspace, first: Workspace) -> PlanOutcome:
    """Plan the folder of `workspace` as if the folder of `first` were the applied one.

    Both have the same ledger and graphs. The plan has no changes of keys, rules and locations, and the outcome has only
    errors, of which those of `first` come alone.
    """
    try:
        return _after(workspace, load_desired(first.tree, first.vouched, first.hints))
    except SourceMovedError:
        tree = first.tree if first.vouched is None else first.vouched.tree.reopened()
        return _after(workspace, load_desired(tree))


def _after(workspace: Workspace, before: Loaded) -> PlanOutcome:
    applied = before.desired
    if applied is None or before.diagnostics.has_errors:
        errors = tuple(each for each in before.diagnostics if each.severity is Severity.ERROR)
        return PlanOutcome(config_dir=workspace.config_dir, observations=StateObservations(), diagnostics=errors)

    def accepted_schema(graph: str, wanted: str) -> bytes | None:
        known = applied.resources.get(schema_address(graph))
        if known is not None and known.digest == wanted:
            return known.content
        return workspace.accepted_schema(graph, wanted)

    loaded = load_desired(workspace.tree, workspace.vouched, workspace.hints)
    later = replace(workspace, accepted_schema=accepted_schema)
    return reading(later, "plan", StateNeed.OPTIONAL, partial(_plan, applied=applied), loaded=loaded)


def _plan(current: Session, *, applied: DesiredState) -> PlanOutcome:
    plan = None
    if current.ready:
        known = {
            address: AppliedResource(
                digest, applied.resources[address].applies_to if address.kind is Kind.POLICY else None
            )
            for address, digest in applied.digests().items()
        }
        plan, _ = plan_session(current, replace(current.state, resources=known), explain=True)
        plan = replace(
            plan,
            changes=tuple(each for each in plan.changes if rules_of(each.address).in_folder),
            approvals_required=tuple(n for n in plan.approvals_required if rules_of(n.resource).in_folder),
        )
        current.problems.extend(plan.diagnostics)
    errors = tuple(each for each in current.problems if each.severity is Severity.ERROR)
    return PlanOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        plan=None if errors else plan,
        diagnostics=errors,
    )
