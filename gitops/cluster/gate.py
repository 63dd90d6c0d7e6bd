"""Which approvals count for the changes at hand, and which debts of emergencies stand in the way.

A ledger folder holds approval documents, matched by their digests alone. A branch ledger holds signed approval commits,
each verified by the numbered steps of `gitops.approvals.verify` before its document counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gitops.approvals.decisions import (
    DecisionVerdict,
    Place,
    debt_of,
    judge_countersignatures,
    judge_revocations,
    open_debts,
    settlements,
    taken_back,
)
from gitops.approvals.verify import Need, Verdict, distinct, enough, verify_approval
from gitops.cluster.workspace import Governance
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.ledger.port import ApprovalListing, LedgerReader, LedgerView
from gitops.model.address import Address
from gitops.model.approval import Approval, ApprovalEvidence
from gitops.model.change import Change
from gitops.model.entry import ApprovalUse, Debt, DebtSettlement
from gitops.model.resource import DesiredState


@dataclass(frozen=True, slots=True)
class Dues:
    """Debts of earlier emergencies: those still open, and what settles the others when the next entry takes it in.

    `refused` are countersignatures that do not count.
    """

    open: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()
    refused: tuple[DecisionVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """Approvals that count: their documents, and for signed ones where they come from; refusals are kept for reports.

    `debts` is what using an emergency among them leaves, by its id; `dues` what earlier ones left. `announced` are approvals that
    the ledger names and does not record as used yet.
    """

    approvals: tuple[Approval, ...] = ()
    uses: dict[str, ApprovalUse] = field(default_factory=dict)
    refused: tuple[Verdict, ...] = ()
    needed: int = 1
    debts: dict[str, Debt] = field(default_factory=dict)
    dues: Dues = field(default_factory=Dues)
    announced: tuple[ApprovalEvidence, ...] = ()

    @property
    def alone(self) -> frozenset[str]:
        """The emergencies, each of which is enough by itself."""
        return frozenset(self.debts)


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
        problems.add(Code.APPROVAL_READ_ERROR, "__cluster/approvals", listing.problem)
    for bad in listing.unreadable:
        problems.add(bad.code, f"__cluster/approvals/{bad.name}", bad.detail)
    if governance is None:
        state = question.view.state
        spent = set() if state is None else set(state.approval_records)
        return Admitted(tuple(a for a in listing.documents if a.consumed_at is None and a.approval_id not in spent))
    return _admit_signed(listing, question, governance, problems)


def dues(listing: ApprovalListing, view: LedgerView, governance: Governance, at: datetime) -> Dues:
    """What earlier emergencies owe at time `at`, and what would settle it."""
    owed = () if view.state is None else open_debts(view.state)
    trust = view.trust or governance.trust
    taken, place = () if view.state is None else view.state.approval_records, Place(governance.target, at)
    settled = settlements(owed, listing.decisions, place, trust, taken=taken)
    closed = {each.approval_id for each in settled}
    left = tuple(debt for debt in owed if debt.approval_id not in closed)
    judged = [v for debt in left for v in judge_countersignatures(debt, listing.decisions, place, trust)]
    return Dues(left, settled, tuple(verdict for verdict in judged if not verdict.good))


def tell_debts(debts: Sequence[Debt], problems: Diagnostics, severity: Severity = Severity.WARNING) -> None:
    """Say of each open debt whose it is and what closes it."""
    for debt in debts:
        problems.add(
            Code.DEBT_OPEN,
            debt.resource,
            f"{debt.principal} acted alone (approval {debt.approval_id}: {debt.reason}); "
            f"another approver has to run: gitops countersign {debt.approval_id}",
            severity=severity,
        )


def _admit_signed(
    listing: ApprovalListing, question: GateQuestion, governance: Governance, problems: Diagnostics
) -> Admitted:
    trust, at = question.view.trust or governance.trust, question.clock.now()
    by_address = {c.address: c for c in question.changes}
    relevant = [e for e in listing.evidence if e.approval is not None and e.approval.resource in by_address]
    revocations = judge_revocations(relevant, listing.decisions, Place(governance.target, at), trust)
    _tell_decisions(revocations, problems)
    verdicts = []
    for item in relevant:
        need = _need(by_address[_address(item)], question, governance, at)
        need = replace(need, revoked=taken_back(revocations))
        verdicts.append(verify_approval(_with_movement(item, governance), need, trust))
    refused = tuple(v for v in verdicts if not v.good)
    for verdict in refused:
        for problem in verdict.diagnostics:
            # The change stays blocked; the run itself goes on.
            problems.add(problem.code, problem.path, problem.message, severity=Severity.WARNING)
    owing = dues(listing, question.view, governance, at)
    _tell_decisions(owing.refused, problems)
    admitted = Admitted(refused=refused, needed=trust.required, dues=owing, announced=listing.announced)
    approvals: list[Approval] = []
    good = _one_per_id(verdicts)
    for address in sorted(by_address):
        own = [v for v in good if _address(v.evidence) == address]
        # Where there are too few people, those that there are still are told of.
        for verdict in (*distinct(own), *(v for v in enough(own, trust.required) if v.alone)):
            approvals += _count(verdict, admitted)
    return replace(admitted, approvals=tuple(approvals))


def _one_per_id(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The good verdicts, one for each id: what is used is recorded by id, and anybody can push another commit with the same one.

    That on the branch of this name goes first: where hooks watch, nothing else gets there.
    """
    named = [(v.evidence.approval.approval_id, v) for v in verdicts if v.good and v.evidence.approval is not None]
    named.sort(key=lambda pair: (pair[0], not pair[1].evidence.ref.endswith(f"/{pair[0]}"), pair[1].evidence.commit))
    return list(dict(reversed(named)).values())[::-1]


def _count(verdict: Verdict, admitted: Admitted) -> list[Approval]:
    """Note where a good approval comes from and what it leaves."""
    evidence = verdict.evidence
    approval, statement, principal = evidence.approval, evidence.statement, verdict.principal
    if approval is None or statement is None or principal is None:
        return []
    use = ApprovalUse(approval.approval_id, evidence.commit, approval.resource, principal, statement.via)
    admitted.uses[approval.approval_id] = use
    debt = debt_of(evidence)
    if debt is not None:
        admitted.debts[approval.approval_id] = debt
    return [approval]


def _need(change: Change, question: GateQuestion, governance: Governance, at: datetime) -> Need:
    state, trust = question.view.state, question.view.trust or governance.trust
    return Need(
        target=governance.target,
        cluster_tree=governance.source.tree,
        config_digest=question.desired.config_digest,
        policy_digest=trust.digest,
        change=change,
        at=at,
        spent=frozenset() if state is None else frozenset(state.approval_records),
        authors=governance.authors,
    )


def _with_movement(item: ApprovalEvidence, governance: Governance) -> ApprovalEvidence:
    """The evidence with the files that moved since, so that a refusal can name them."""
    statement = item.statement
    if statement is None or statement.cluster_tree == governance.source.tree:
        return item
    return replace(item, moved=governance.changed_files(statement.cluster_tree))


def _tell_decisions(verdicts: Sequence[DecisionVerdict], problems: Diagnostics) -> None:
    for verdict in verdicts:
        if verdict.good:
            continue
        name = verdict.evidence.ref.removeprefix("refs/heads/")
        problems.add(Code.DECISION_REFUSED, name, verdict.problem, severity=Severity.WARNING)


def _address(evidence: ApprovalEvidence) -> Address:
    return Address("") if evidence.approval is None else evidence.approval.resource
