"""Debts of emergencies in a run: settle those that somebody countersigned, refuse to go on over those that are open.

1. Before a run plans, countersignatures that count go into an entry of their own, so that no entry both owes and pays.
2. While a debt is open, nothing is carried out but a further emergency.
3. A run that uses an emergency owes what it used; one that completes an interrupted run owes what that had announced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gitops.apply.entries import EntryFacts, make_entry
from gitops.approvals.decisions import debt_of, open_debts, with_settled
from gitops.cluster.gate import dues, tell_debts
from gitops.cluster.session import Session
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerWrite
from gitops.model.approval import ApprovalEvidence
from gitops.model.change import Disposition
from gitops.model.entry import Debt, EntryKind
from gitops.plan.plan import Planned

__all__ = ["announced_debts", "may_go_on", "settle_debts"]


def settle_debts(current: Session) -> bool:
    """Rule 1; False when the entry could not be written. Asks for nothing where nothing is owed."""
    governance, workspace = current.workspace.governance, current.workspace
    if governance is None or not open_debts(current.state):
        return True
    found = dues(current.opened.ledger.approvals(), current.view, governance, workspace.clock.now())
    if not found.settled:
        return True
    state = with_settled(current.state, found.settled, workspace.stamp())
    state = replace(state, revision=current.state.revision + 1)
    facts = EntryFacts(
        workspace.ids.ulid(),
        state.revision,
        config_digest=current.desired.config_digest,
        settled=found.settled,
    )
    entry = make_entry(workspace, current.view, EntryKind.COUNTERSIGN, facts)
    try:
        current.view = current.opened.ledger.commit(current.view, LedgerWrite(state, entry))
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def may_go_on(current: Session, planned: Planned) -> bool:
    """Rule 2; what is open is told of in any case, as an error where it stops the run."""
    admitted = planned.admitted
    used = {a.approval_id for r in planned.plan.approvals_required if r.satisfied for a in r.approvals}
    moves = any(change.disposition is Disposition.APPLIED for change in planned.plan.changes)
    stops = bool(admitted.dues.open) and moves and not used & admitted.alone
    tell_debts(admitted.dues.open, current.problems, Severity.ERROR if stops else Severity.WARNING)
    return not stops


def announced_debts(announced: Sequence[ApprovalEvidence], completed: Iterable[str]) -> tuple[Debt, ...]:
    """Rule 3 for interrupted runs: what is owed for approvals that the sweep found to be used."""
    used = set(completed)
    debts = (debt_of(evidence) for evidence in announced)
    return tuple(debt for debt in debts if debt is not None and debt.approval_id in used)
