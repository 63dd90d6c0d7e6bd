"""Revocations that the ledger keeps: an entry takes each one in, so that deleting its branch does not undo it.

1. A revocation is taken in once it passes the steps of `cluster.approvals.decisions`, under the keys and rules in force. Where
   the approval is not at hand, because its branch was deleted first, only the signatures of approvers and of the bot revoke it:
   then by its id alone.
2. The entry has the commit of the revocation as a further parent, and the state a record under the id of that commit. The id of
   the approval would not do: who may revoke an approval of their own could give it the id of another one.
3. A recorded revocation counts permanently, under whatever rules come later. What it names by id and approver never opens a gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from gitops.cluster.approvals.decisions import DecisionNeed, verify_decision
from gitops.cluster.model.approval import ApprovalEvidence, ClusterTarget, DecisionEvidence, DecisionKind
from gitops.cluster.model.ledger import LedgerState, RecordedRevocation
from gitops.cluster.model.trust import TrustRoot

__all__ = ["find_revocations", "recorded_revocations", "revocation_record", "with_revocations"]

MOST_RECORDED = 100
"""How many revocations one entry takes in; the next run takes in the others."""


def find_revocations(
    state: LedgerState,
    approvals: Sequence[ApprovalEvidence],
    decisions: Iterable[DecisionEvidence],
    trust: TrustRoot,
    *,
    target: ClusterTarget,
    at: datetime,
) -> tuple[RecordedRevocation, ...]:
    """The revocations that count at time `at` and that `state` does not record yet, by commit: rule 1."""
    found = []
    for evidence in decisions:
        if evidence.decision is None or evidence.decision.kind is not DecisionKind.REVOKE:
            continue
        if evidence.commit in state.approval_records:
            continue
        for need in _needs(evidence, approvals, target, at):
            verified = verify_decision(evidence, DecisionKind.REVOKE, need, trust)
            if verified.principal is not None:
                approver = need.principal or None
                found.append(RecordedRevocation(need.approval_id, approver, evidence.commit, verified.principal))
                break
    return tuple(sorted(found, key=lambda each: each.commit)[:MOST_RECORDED])


def _needs(
    evidence: DecisionEvidence, approvals: Iterable[ApprovalEvidence], target: ClusterTarget, at: datetime
) -> Iterator[DecisionNeed]:
    """What the revocation has to match: each approval of its id at hand, else the commit that it names itself."""
    decision = evidence.decision
    if decision is None:
        return
    named = [
        (e.commit, e.approval.approved_by) for e in approvals if e.approval is not None and _is(e, decision.approval_id)
    ]
    for commit, approver in named or [(decision.subject, "")]:
        yield DecisionNeed(target, at, decision.approval_id, commit, approver)


def _is(evidence: ApprovalEvidence, approval_id: str) -> bool:
    return evidence.approval is not None and evidence.approval.approval_id == approval_id


def revocation_record(revocation: RecordedRevocation, at: str) -> dict[str, str | None]:
    """The record of a revocation that an entry takes in at time `at`."""
    return {
        "consumed_at": at,
        "consumed_by_operation": "revoke",
        "revokes": revocation.approval_id,
        "approved_by": revocation.approver,
        "principal": revocation.principal,
    }


def with_revocations(state: LedgerState, revoked: Iterable[RecordedRevocation], at: str) -> LedgerState:
    """The state with a record of each revocation, under the id of its commit: rule 2."""
    records = {**state.approval_records, **{each.commit: revocation_record(each, at) for each in revoked}}
    return replace(state, approval_records=records)


def recorded_revocations(state: LedgerState) -> frozenset[tuple[str, str | None]]:
    """The approvals that the ledger records as revoked, by id and approver (None: any): rule 3."""
    found = (record for record in state.decided.values() if "revokes" in record)
    return frozenset(
        (str(record["revokes"]), by if isinstance(by := record.get("approved_by"), str) else None) for record in found
    )
