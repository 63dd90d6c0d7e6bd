"""Imports that replace an earlier ledger. They discard its records, so people must approve them.

1. An anchor next to the graphs identifies a ledger: its first and its newest entry, and the rules in force.
2. Otherwise, this clone saw an entry, or a signed approval or decision refers to one.
3. Otherwise, declared graphs exist whose changes were recorded elsewhere, or not at all.

An import that finds none of these starts a ledger. If it finds any, `gitops import --adopt` creates the first entry, which
records these traces. Only an entry of kind `adopt` can follow it, for which a quorum has approved `cluster.<name>` under the
keys and rules of the earlier ledger. Until then, the anchor next to the graphs still refers to the earlier ledger.
"""

from __future__ import annotations

from gitops.cluster.apply.entries import record_approved
from gitops.cluster.ledger.files import restore_commands
from gitops.cluster.model.address import Kind
from gitops.cluster.model.change import Change
from gitops.cluster.model.ledger import EntryKind, FormerLedger
from gitops.cluster.model.plan import ApprovalRequirement, Plan
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.plan.planner import pending_adoption
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.database.graph.port import Existence


def _find_former(current: Session) -> FormerLedger | None:
    """Return the traces of the cluster's earlier ledger, or None for a fresh start. Raises GitopsError if unknown."""
    stores = current.opened
    former = stores.ledger.former()
    if former is not None:
        return former
    graphs = [resource.address.name for resource in current.desired.of_kind(Kind.GRAPH)]
    there = [name for name in graphs if stores.engine.exists(stores.graph_uri(name)) is not Existence.ABSENT]
    return FormerLedger(None, None, f"graphs without a ledger: {', '.join(there)}") if there else None


def found_former(current: Session, *, adopt: bool) -> FormerLedger | None:
    """Return the traces of the earlier ledger that an import replaces, or None if there was none.

    Without `adopt`, an earlier ledger prevents the import. With `adopt`, the keys and rules of the target branch must
    be those of the earlier ledger, so that its people approve. Raises GitopsError `ledger_adopt_required`, and the
    ledger's errors.
    """
    governance = current.workspace.governance
    former = None if governance is None else _find_former(current)
    if governance is None or former is None:
        return None
    cluster, remedy = governance.target.cluster, "gitops import --adopt"
    if adopt and former.trust_digest in (None, governance.trust.digest):
        return former
    if former.head is not None:
        remedy = restore_commands(cluster, former.head)
    detail = f"the ledger branch is missing, and an earlier ledger existed: {former.found}; {remedy}"
    if adopt:
        detail = f"{former.found}: the keys and rules of the target branch differ from those of that ledger; revert them first"
    raise GitopsError(Code.LEDGER_ADOPT_REQUIRED, detail, path=f"gitops/ledger/{cluster}")


def adopt_former(current: Session) -> tuple[Change, ...]:
    """Record the approval for an import that replaces an earlier ledger, before anything else is applied.

    While the change waits for approval, it is reported and returned. Returns an empty tuple if the newest entry is of
    another kind or the approval is recorded.
    """
    if pending_adoption(current.view) is None or current.workspace.governance is None:
        return ()
    plan, accepted, need = _plan_adoption(current)
    if not need.satisfied:
        return plan.changes
    return () if record_approved(current, EntryKind.ADOPT, plan, accepted, need) else plan.changes


def waiting_adoption(current: Session) -> tuple[Change, ...]:
    """Return the import approval that an apply must record before anything else, and report that it waits."""
    if pending_adoption(current.view) is None or current.workspace.governance is None:
        return ()
    plan, _, need = _plan_adoption(current)
    if need.satisfied:
        (change,) = plan.changes
        detail = "the import over an earlier ledger is approved; an apply records it first, then plans the rest"
        current.problems.add(Code.LEDGER_ADOPT_REQUIRED, change.address, detail, severity=Severity.WARNING)
    return plan.changes


def _plan_adoption(current: Session) -> tuple[Plan, AcceptedApprovals, ApprovalRequirement]:
    """Return the plan of an adoption and the approval that it needs. A missing approval is reported."""
    plan, accepted = plan_session(current, current.state)
    current.problems.extend(plan.diagnostics)
    (change,), (need,) = plan.changes, plan.approvals_required
    if not need.satisfied:
        detail = f"the import over an earlier ledger waits for its approval: gitops approve {change.address}"
        current.problems.add(Code.LEDGER_ADOPT_REQUIRED, change.address, detail)
    return plan, accepted, need
