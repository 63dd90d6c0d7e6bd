"""Revocations in an audit: those that entries take in are real, and those that no entry has are reported.

1. An entry of kind `revoke` takes in at least one revocation and changes nothing else; no other entry takes one in.
2. Each passes the steps of a plan at that position, and the state records exactly what the entry names, from then on.
3. Afterwards: a branch that is gone is a note, because the ledger keeps what it said. A revocation that would count and that no
   entry has is a warning: deleting its branch would undo it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gitops.cluster.approvals.decisions import DecisionNeed, verify_decision
from gitops.cluster.approvals.revocations import revocation_record
from gitops.cluster.audit.walk import Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.ledger.evidence import read_decision_evidence
from gitops.cluster.model.approval import DecisionKind
from gitops.cluster.model.ledger import EntryKind, LedgerState, RecordedRevocation
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

__all__ = ["check_revocation_records", "check_revocations", "revocation_notes"]


def check_revocations(walk: Walk, found: VerifiedEntry) -> None:
    """Rule 1, and rule 2 of the entry. Raises IntegrityError `ledger_entry_invalid`."""
    entry = found.entry
    if bool(entry.revoked) != (entry.kind is EntryKind.REVOKE) or (entry.revoked and entry.changes):
        detail = "only an entry that changes nothing else may record revocations"
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail)
    for revocation in entry.revoked:
        if problem := _problem(walk, found, revocation):
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"revocation {revocation.commit[:12]}: {problem}")


def check_revocation_records(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Rule 2 of the state after an entry. Raises IntegrityError `ledger_state_mismatch`."""
    old, new = walk.state.approval_records, state.approval_records
    for revocation in found.entry.revoked:
        record = new.get(revocation.commit, {})
        if revocation.commit in old or record != revocation_record(revocation, str(record.get("consumed_at"))):
            detail = f"the state does not record revocation {revocation.commit[:12]} as the entry names it"
            raise IntegrityError(Code.LEDGER_STATE_MISMATCH, detail)


def _problem(walk: Walk, found: VerifiedEntry, revocation: RecordedRevocation) -> str:
    """Why a recorded revocation does not count at the position of its entry; empty if it does."""
    evidence = read_decision_evidence(walk.reader, "", revocation.commit, walk.numbers)
    at = parse_timestamp(found.entry.at)
    if evidence.decision is None or at is None:
        return evidence.problem or "it contains no decision"
    subject = evidence.decision.subject
    need = DecisionNeed(found.entry.target, at, revocation.approval_id, subject, revocation.approver or "")
    verified = verify_decision(evidence, DecisionKind.REVOKE, need, found.before)
    if not verified.accepted:
        return verified.problem
    return "" if verified.principal == revocation.principal else f"it is signed by {verified.principal}"


def revocation_notes(walk: Walk, branches: Collection[str]) -> Iterator[str]:
    """Rule 3; `branches` are the commits of the branches that exist."""
    records, last = walk.state.approval_records, walk.previous
    for commit, record in sorted(records.items()):
        if "revokes" in record and commit not in branches:
            kept = f"the ledger still records it: {record['revokes']} stays revoked"
            yield f"the branch of revocation {commit[:12]} was deleted, and {kept}"
    at = None if last is None else parse_timestamp(last.entry.at)
    if last is None or at is None:
        return
    for approval_id, found in sorted(walk.revocations.items()):
        for evidence in found:
            decision = evidence.decision
            if decision is None or evidence.commit in records or approval_id in records:
                continue
            need = DecisionNeed(last.entry.target, at, approval_id, decision.subject, "")
            if verify_decision(evidence, DecisionKind.REVOKE, need, last.after).accepted:
                branch = evidence.ref.removeprefix("refs/heads/")
                yield (
                    f"warning: no entry records {branch}, which revokes {approval_id}: deleting that branch would undo it; "
                    "gitops bot sweep or gitops refresh records it"
                )
