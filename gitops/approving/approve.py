"""`approve`: permission for one gated change, as a document in the ledger folder. Runs nothing and edits no state.

Approvals for a branch ledger are signed commits: see `gitops.approving.endorse`.
"""

from __future__ import annotations

from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.model.address import Address
from gitops.model.approval import Approval
from gitops.model.change import Change
from gitops.model.outcome import ApproveOutcome
from gitops.model.plan import ApprovalRequirement, Plan, PlanInputs
from gitops.plan.planner import make_plan


def approve(workspace: Workspace, address: Address) -> ApproveOutcome:
    """Write an approval for the gated change of `address`, bound to its digests; `workspace.actor` is the approver."""
    return in_session(workspace, "approve", StateNeed.REQUIRED, lambda current: _approved(current, address))


def _approved(current: Session, address: Address) -> ApproveOutcome:
    approval = None
    if current.ready:
        try:
            approval = _record(current, address)
        except GitopsError as error:
            current.problems.add_error(error)
    return ApproveOutcome(
        config_dir=current.workspace.config_dir, approval=approval, diagnostics=tuple(current.problems)
    )


def _record(current: Session, address: Address) -> Approval:
    # What is gated follows from folder and ledger alone: no graph is opened, and no other approval is looked at.
    plan = make_plan(PlanInputs(desired=current.desired, state=current.state))
    change, requirement = gated_change(plan, address)
    approval = draft_approval(current.workspace, change, requirement.reason, plan.config_digest)
    current.opened.ledger.record_approval(approval)
    return approval


def gated_change(plan: Plan, address: Address) -> tuple[Change, ApprovalRequirement]:
    """The gated change of `address` in a plan, and its gate. Raises GitopsError `approval_not_required`."""
    requirement = next((r for r in plan.approvals_required if r.resource == address), None)
    change = plan.change(address)
    if requirement is None or change is None:
        gates = ", ".join(r.resource for r in plan.approvals_required) or "none"
        raise GitopsError(
            Code.APPROVAL_NOT_REQUIRED, f"{address} has no change that needs an approval; gates: {gates}", path=address
        )
    return change, requirement


def draft_approval(workspace: Workspace, change: Change, reason: str, config_digest: str) -> Approval:
    """The document that permits exactly this change."""
    return Approval(
        approval_id=workspace.ids.ulid(),
        resource=change.address,
        operation=change.action,
        reason=reason,
        bound_config_digest=config_digest,
        bound_before_digest=change.before,
        bound_after_digest=change.after,
        approved_by=workspace.actor or "",
        created_at=workspace.stamp(),
    )
