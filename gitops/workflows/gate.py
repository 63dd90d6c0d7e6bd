"""Which approvals count for the changes at hand.

A ledger folder holds approval documents, matched by their digests alone. A branch ledger holds signed approval commits,
each verified by the numbered steps of `gitops.planning.approvals` before its document counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gitops.core.clock import Clock
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.model.approval import Approval, ApprovalEvidence
from gitops.model.change import Change
from gitops.model.entry import ApprovalUse
from gitops.model.resource import DesiredState
from gitops.planning.approvals import Need, Verdict, distinct, verify_approval
from gitops.ports.ledger import LedgerReader, LedgerView
from gitops.workflows.context import Governance


@dataclass(frozen=True, slots=True)
class Admitted:
    """Approvals that count: their documents, and for signed ones where they come from; refusals are kept for reports."""

    approvals: tuple[Approval, ...] = ()
    uses: dict[str, ApprovalUse] = field(default_factory=dict)
    refused: tuple[Verdict, ...] = ()
    needed: int = 1


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """What approvals are wanted for: all changes of a plan to be, under the ledger as seen."""

    changes: Sequence[Change]
    desired: DesiredState
    view: LedgerView
    clock: Clock


def admit_approvals(
    ledger: LedgerReader, question: GateQuestion, governance: Governance | None, problems: Diagnostics
) -> Admitted:
    """Collect the approvals that count for any of the changes; unusable ones become warnings in `problems`."""
    listing = ledger.approvals()
    if listing.problem is not None:
        problems.add("approval_read_error", "__cluster/approvals", listing.problem)
    for bad in listing.unreadable:
        problems.add(bad.code, f"__cluster/approvals/{bad.name}", bad.detail)
    if governance is None:
        state = question.view.state
        spent = set() if state is None else set(state.approval_records)
        return Admitted(tuple(a for a in listing.documents if a.consumed_at is None and a.approval_id not in spent))
    return _admit_signed(listing.evidence, question, governance, problems)


def _admit_signed(
    evidence: Sequence[ApprovalEvidence], question: GateQuestion, governance: Governance, problems: Diagnostics
) -> Admitted:
    trust = question.view.trust or governance.trust
    state = question.view.state
    spent = frozenset() if state is None else frozenset(state.approval_records)
    by_address = {c.address.text: c for c in question.changes}
    at = question.clock.now()
    verdicts = []
    for item in evidence:
        change = by_address.get(item.approval.resource) if item.approval is not None else None
        if change is None:
            continue
        statement = item.statement
        if statement is not None and statement.cluster_tree != governance.source.tree:
            item = replace(item, moved=governance.changed_files(statement.cluster_tree))  # noqa: PLW2901
        need = Need(
            target=governance.target,
            cluster_tree=governance.source.tree,
            config_digest=question.desired.config_digest,
            policy_digest=trust.digest,
            change=change,
            at=at,
            spent=spent,
            authors=governance.authors,
        )
        verdicts.append(verify_approval(item, need, trust))
    refused = tuple(v for v in verdicts if not v.good)
    for verdict in refused:
        for problem in verdict.diagnostics:
            # The change stays blocked; the run itself goes on.
            problems.add(problem.code, problem.path, problem.message, severity=Severity.WARNING)
    approvals: list[Approval] = []
    uses: dict[str, ApprovalUse] = {}
    for address in sorted(by_address):
        for verdict in distinct([v for v in verdicts if _resource(v) == address]):
            approval = verdict.evidence.approval
            if approval is not None and verdict.principal is not None:
                approvals.append(approval)
                uses[approval.approval_id] = ApprovalUse(
                    approval.approval_id, verdict.evidence.commit, address, verdict.principal
                )
    return Admitted(tuple(approvals), uses, refused, trust.required)


def _resource(verdict: Verdict) -> str:
    approval = verdict.evidence.approval
    return "" if approval is None else approval.resource
