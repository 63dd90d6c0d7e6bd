"""Decisions about earlier approvals: which revocations and countersignatures count, and which debts are open.

`verify_decision` uses numbered steps, like those for approvals; a step that cannot be decided refuses:

1. The commit has the form of a decision: one parent, which is an entry of this ledger and the head in the decision, no changed
   file, and a message that contains the decision.
2. It is signed, and the signature is valid over the raw commit in the namespace `git`. The same key signed the decision itself in
   the namespace `gitops-approval`. Decisions of the first release lack that and count only for that release's entries.
3. The key is trusted at this ledger position.
4. The signer is allowed to decide this. Revoke: the person who gave the approval, every approver, and the bot, which revokes its
   attestations for a forge. Countersign: an approver who is not, under any name or account, the person who acted alone.
5. It is for this repository, cluster, environment, branch and folder.
6. It refers to the commit of the approval.

A debt is stored in the state's record of the approval that left it, and settled by a record of the countersignature next to it.
Records are never edited, so the debt remains readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gitops.cluster.approvals.verify import own_signature_problem
from gitops.cluster.model.approval import (
    DECISION_VERSION,
    ApprovalEvidence,
    ClusterTarget,
    DecisionEvidence,
    DecisionKind,
    Via,
)
from gitops.cluster.model.ledger import (
    ENTRY_VERSION,
    WITH_ORIGINS,
    Debt,
    DebtSettlement,
    LedgerState,
    RecordedRevocation,
)
from gitops.cluster.model.trust import TrustRoot
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DecisionNeed:
    """Requirements for a decision: an approval for `target`, given by `principal` in `commit`.

    `at` is the ledger's time; `version` is the version of the entry that uses the decision.
    """

    target: ClusterTarget
    at: datetime
    approval_id: str
    commit: str
    principal: str
    version: int = ENTRY_VERSION


@dataclass(frozen=True, slots=True)
class DecisionVerification:
    """Result of verifying a decision. If it is accepted, `principal` signed it; otherwise `problem` explains why not.

    `approver` is the person who gave the approval that the decision concerns.
    """

    evidence: DecisionEvidence
    principal: str | None = None
    problem: str = ""
    approver: str = ""

    @property
    def accepted(self) -> bool:
        """True if every step passed."""
        return self.principal is not None


def verify_decision(
    evidence: DecisionEvidence, kind: DecisionKind, need: DecisionNeed, trust: TrustRoot
) -> DecisionVerification:
    """Apply the numbered steps of this module. The caller must check that the approval or the debt exists."""
    decision, signature = evidence.decision, evidence.signature

    def refused(problem: str) -> DecisionVerification:
        return DecisionVerification(evidence, problem=problem)

    if evidence.problem:  # 1
        return refused(evidence.problem)
    if decision is None or decision.kind is not kind:
        return refused(f"it is not a {kind} commit")
    if evidence.parents != (decision.ledger_head,) or not evidence.on_chain:
        return refused("its parent is not the ledger entry that it names")
    if not signature.signed:  # 2
        return refused("the commit has no signature")
    if not signature.good or signature.namespace != "git":
        return refused(signature.problem or "the signature does not match the commit")
    if need.version >= WITH_ORIGINS:
        if decision.version < DECISION_VERSION:
            return refused("it was signed with an earlier release; sign it again")
        if problem := own_signature_problem(signature, evidence.own_signature):
            return refused(problem)
    principal = trust.principal(signature.key, at=need.at)  # 3
    if principal is None:
        return refused(f"its {signature.key_type} key is not trusted")
    if problem := _permission_problem(principal, kind, need, trust, signature.key):  # 4
        return refused(problem)
    if decision.target != need.target:  # 5
        return refused("it is for a different repository, cluster, environment, branch or folder")
    if (decision.approval_id, decision.subject) != (need.approval_id, need.commit):  # 6
        return refused("it names a different commit than the approval")
    return DecisionVerification(evidence, principal, approver=need.principal)


def _permission_problem(principal: str, kind: DecisionKind, need: DecisionNeed, trust: TrustRoot, key: str) -> str:
    names = trust.known_as({principal, *trust.names(key)})
    own = need.principal.casefold() in names
    if kind is DecisionKind.REVOKE:
        may = own or trust.may_approve(principal) or principal in trust.ledger_signers
        return "" if may else f"{principal} may not revoke what {need.principal} approved"
    if own:
        return f"{principal} gave the emergency approval, so another person has to countersign it"
    return "" if trust.may_approve(principal) else f"{principal} is not an approver"


def verify_revocations(
    approvals: Iterable[ApprovalEvidence],
    decisions: Iterable[DecisionEvidence],
    trust: TrustRoot,
    *,
    target: ClusterTarget,
    at: datetime,
) -> tuple[DecisionVerification, ...]:
    """Verify every revocation of these approvals at the ledger's time `at`."""
    by_id: dict[str, list[DecisionEvidence]] = {}
    for item in decisions:
        if item.decision is not None and item.decision.kind is DecisionKind.REVOKE:
            by_id.setdefault(item.decision.approval_id, []).append(item)
    verified: list[DecisionVerification] = []
    for evidence in approvals if by_id else ():
        approval = evidence.approval
        if approval is not None:
            need = DecisionNeed(target, at, approval.approval_id, evidence.commit, approval.approved_by)
            found = by_id.get(approval.approval_id, ())
            verified.extend(verify_decision(item, DecisionKind.REVOKE, need, trust) for item in found)
    return tuple(verified)


def revoked_approvals(revocations: Iterable[DecisionVerification]) -> frozenset[tuple[str, str]]:
    """Return the approvals that the accepted revocations revoke, by id and approver.

    The id alone is not enough, because anyone can reuse another approval's id and revoke their own approval. The commit
    is not enough either, because the same signature can be written in another form, which results in another commit.
    """
    return frozenset(
        (each.evidence.decision.approval_id, each.approver)
        for each in revocations
        if each.accepted and each.evidence.decision is not None
    )


def verify_countersignatures(
    debt: Debt, decisions: Iterable[DecisionEvidence], trust: TrustRoot, *, target: ClusterTarget, at: datetime
) -> tuple[DecisionVerification, ...]:
    """Verify every countersignature for the approval that opened a debt, at the ledger's time `at`."""
    need = DecisionNeed(target, at, debt.approval_id, debt.commit, debt.principal)
    return tuple(
        verify_decision(item, DecisionKind.COUNTERSIGN, need, trust)
        for item in decisions
        if item.decision is not None
        and item.decision.kind is DecisionKind.COUNTERSIGN
        and item.decision.approval_id == debt.approval_id
    )


def find_settlements(
    debts: Iterable[Debt],
    decisions: Sequence[DecisionEvidence],
    trust: TrustRoot,
    *,
    target: ClusterTarget,
    at: datetime,
    recorded: Iterable[str] = (),
) -> tuple[DebtSettlement, ...]:
    """Return the settlements of open debts: for each debt, the accepted countersignature with the lowest id.

    `recorded` are the ids that the state has records of. A countersignature is recorded under its own id, so it settles only
    one debt.
    """
    found: list[DebtSettlement] = []
    used = set(recorded)
    for debt in debts:
        accepted = [
            (each.evidence.decision.decision_id, each.evidence.commit, each.principal)
            for each in verify_countersignatures(debt, decisions, trust, target=target, at=at)
            if each.principal is not None and each.evidence.decision is not None
        ]
        for decision_id, commit, principal in sorted(accepted):
            if decision_id not in used:
                used.add(decision_id)
                found.append(DebtSettlement(debt.approval_id, decision_id, commit, principal))
                break
    return tuple(found)


# Debts in the state.


def debt_of(evidence: ApprovalEvidence) -> Debt | None:
    """Return the debt that an approval leaves when it is used, or None if it is not an emergency approval."""
    approval, statement = evidence.approval, evidence.statement
    if approval is None or statement is None or statement.via is not Via.BREAK_GLASS:
        return None
    reason = statement.emergency or "unknown"
    return Debt(approval.approval_id, evidence.commit, approval.resource, approval.approved_by, reason)


def is_approval_record(record: Any) -> bool:
    """Return True if a state record is about a consumed approval, not about a decision."""
    return not isinstance(record, Mapping) or ("countersigns" not in record and "revokes" not in record)


def debt_form(debt: Debt) -> dict[str, str]:
    """Return a debt in the form that the state stores in its approval's record."""
    return {"commit": debt.commit, "resource": debt.resource, "principal": debt.principal, "reason": debt.reason}


def with_debts(state: LedgerState, debts: Iterable[Debt]) -> LedgerState:
    """Return the state with `debts` added to the records of the approvals that left them."""
    records = dict(state.approval_records)
    for debt in debts:
        records[debt.approval_id] = {**records.get(debt.approval_id, {}), "debt": debt_form(debt)}
    return replace(state, approval_records=records) if records != state.approval_records else state


def with_settled(state: LedgerState, settled: Iterable[DebtSettlement], at: str) -> LedgerState:
    """Return the state with a record of each countersignature next to its settled debt."""
    records = dict(state.approval_records)
    for each in settled:
        record = {
            "consumed_at": at,
            "consumed_by_operation": "countersign",
            "countersigns": each.approval_id,
            "principal": each.principal,
        }
        records.setdefault(each.countersignature, record)
    return replace(state, approval_records=records) if records != state.approval_records else state


# Revocations recorded in the ledger: an entry records each one, so that deleting its branch does not undo it.
#
# 1. A revocation is recorded once it passes the steps of `cluster.approvals.decisions`, under the keys and rules in
#    force. If the approval is not available, because its branch was deleted first, only signatures by approvers and by
#    the bot can revoke it, and then only by its id.
# 2. The revocation's commit is an additional parent of the entry, and the state has a record under the id of that
#    commit. The approval's id would not be safe, because anyone who can revoke their own approval could give it the id
#    of another one.
# 3. A recorded revocation counts permanently, whatever the later rules are. An approval with its id and approver never
#    opens a gate.


MOST_RECORDED = 100
"""The maximum number of revocations in one entry. The next run records the others."""


def find_revocations(
    state: LedgerState,
    approvals: Sequence[ApprovalEvidence],
    decisions: Iterable[DecisionEvidence],
    trust: TrustRoot,
    *,
    target: ClusterTarget,
    at: datetime,
) -> tuple[RecordedRevocation, ...]:
    """Return the revocations that are valid at time `at` but not recorded in `state` yet, by commit (rule 1)."""
    found = []
    for evidence in decisions:
        decision = evidence.decision
        if decision is None or decision.kind is not DecisionKind.REVOKE or evidence.commit in state.approval_records:
            continue
        # It must match an available approval with its id or, if there is none, the commit that it contains.
        named = [
            (each.commit, each.approval.approved_by)
            for each in approvals
            if each.approval is not None and each.approval.approval_id == decision.approval_id
        ]
        for commit, approver in named or [(decision.subject, "")]:
            need = DecisionNeed(target, at, decision.approval_id, commit, approver)
            signer = verify_decision(evidence, DecisionKind.REVOKE, need, trust).principal
            if signer is not None:
                found.append(RecordedRevocation(decision.approval_id, approver or None, evidence.commit, signer))
                break
    return tuple(sorted(found, key=lambda each: each.commit)[:MOST_RECORDED])


def revocation_record(revocation: RecordedRevocation, at: str) -> dict[str, str | None]:
    """Return the record that an entry at time `at` adds for a revocation."""
    return {
        "consumed_at": at,
        "consumed_by_operation": "revoke",
        "revokes": revocation.approval_id,
        "approved_by": revocation.approver,
        "principal": revocation.principal,
    }


def with_revocations(state: LedgerState, revoked: Iterable[RecordedRevocation], at: str) -> LedgerState:
    """Return the state with a record of each revocation, keyed by the id of its commit (rule 2)."""
    records = {**state.approval_records, **{each.commit: revocation_record(each, at) for each in revoked}}
    return replace(state, approval_records=records)


def recorded_revocations(state: LedgerState) -> frozenset[tuple[str, str | None]]:
    """Return the approvals that the ledger records as revoked, by id and approver (None means any) (rule 3)."""
    found = (record for record in state.decided.values() if "revokes" in record)
    return frozenset(
        (str(record["revokes"]), by if isinstance(by := record.get("approved_by"), str) else None) for record in found
    )
