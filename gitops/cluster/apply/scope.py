"""Records an approved change of a cluster's location in its own entry, before anything else is applied.

1. The change of the cluster is approved, under the keys and rules in force and for its old location.
2. No operation is interrupted, and no debt is open. Countersignatures are recorded first, because they would not be
   found at the new location.
3. If the storage changes, every recorded graph must already be at the new location: the same graph, with its recorded
   schema, and as new as at the old location. The apply neither copies nor creates graphs there.
4. One entry records the new scope and changes nothing else. Under a new name, the ledger continues as another branch, which
   starts with this entry; the old branch ends with it.
"""

from __future__ import annotations

from functools import partial

from gitops.cluster.apply.entries import check_debts, origins_of, record_approved, settle_debts
from gitops.cluster.model.address import cluster_address
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import ApprovalRequirement, Plan
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.plan.landing import check_move
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session, StateNeed, looking, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError


def apply_scope(workspace: Workspace, *, dry_run: bool = False) -> ApplyOutcome:
    """Record an approved change of the cluster's location, if there is one, by the steps in this module.

    With `dry_run`, nothing is written: the outcome shows that the change would be recorded.
    """
    run = partial(_apply_scope, dry_run=dry_run)
    if dry_run:
        return looking(workspace, StateNeed.REQUIRED, run)
    return writing(workspace, "apply", StateNeed.REQUIRED, run)


def _apply_scope(current: Session, *, dry_run: bool) -> ApplyOutcome:
    governance, written, plan_digest = current.workspace.governance, False, None
    change: Change | None = None
    closes = False
    if current.ready and governance is not None and (dry_run or settle_debts(current)):
        scope = ScopeChange(governance.recorded(current.view), governance.declares(current.desired.storage))
        plan, accepted = plan_session(current, current.state)
        change, plan_digest, closes = plan.change(cluster_address(scope.cluster)), plan.digest, scope.after is None
        approved = change is not None and change.disposition is Disposition.APPLIED
        if change is not None and approved and _may_move(current, plan, accepted, scope):
            if dry_run:
                detail = "an apply records this first, then plans the other changes"
                current.problems.add(Code.CLUSTER_CHANGE_PENDING, change.address, detail, severity=Severity.WARNING)
            written = not dry_run and _record(current, plan, accepted, change, scope)
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if current.loaded.desired is None else current.loaded.desired.config_digest,
        changes=() if change is None else (change,),
        converged=written and closes,
        state_written=written,
        state=current.view.state,
        plan_digest=plan_digest,
        entry_id=current.view.head if written else None,
        counted=written or dry_run,
        dry_run=() if dry_run else None,
        diagnostics=tuple(current.problems),
    )


def _may_move(current: Session, plan: Plan, accepted: AcceptedApprovals, scope: ScopeChange) -> bool:
    """Check steps 2 and 3 and report every reason that prevents the change."""
    problems = current.problems
    if current.opened.ledger.intents().intents:
        detail = "the cluster cannot move until an interrupted operation is settled"
        problems.add(Code.CLUSTER_RECOVERY_PENDING, cluster_address(scope.cluster), detail)
        return False
    check_debts(current, plan, accepted)
    if problems.has_errors:
        return False
    try:
        check_move(current, scope)
    except GitopsError as error:
        problems.add_error(error)
        return False
    return True


def _record(current: Session, plan: Plan, accepted: AcceptedApprovals, change: Change, scope: ScopeChange) -> bool:
    """Perform step 4. Returns whether the entry was written."""
    governance, none = current.workspace.governance, ApprovalRequirement(change.address, "", "")
    need = next((each for each in plan.approvals_required if each.resource == change.address), none)
    gated = {change.address, *(requirement.resource for requirement in plan.approvals_required)}
    # The commits of all other changes also come before this entry, and later entries need their authors.
    origins = () if governance is None else origins_of(governance, plan.changes, gated)
    return record_approved(current, EntryKind.SCOPE, plan, accepted, need, origins=origins, scope=scope.recorded)
