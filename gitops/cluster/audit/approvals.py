"""Whether the approvals, emergencies and countersignatures of an entry hold: step 4 of the audit.

In order; the first part that fails is the finding:

1. Every approval that the entry uses passes the verification steps of a plan at that position, and was given as recorded.
2. None of them had been revoked. A revocation names the newest entry of its time, and does not undo what that entry did.
3. Gated changes that were applied have a quorum, or one emergency: as many people as the gates that they meet ask for, by the
   rules in force before the entry, in the environment where the cluster was.
4. Every countersignature that the entry records passes its steps, for a debt that was open.
5. While a debt is open, only emergencies are applied.
6. The state records exactly the debts that consumed approvals left: one for each emergency, and no others.
"""

from __future__ import annotations

from collections.abc import Collection

from gitops.cluster.approvals.decisions import (
    DecisionNeed,
    debt_form,
    debt_of,
    is_approval_record,
    open_debts,
    verify_decision,
)
from gitops.cluster.approvals.verify import ApprovalVerification, select_quorum
from gitops.cluster.audit.trail import LedgerPosition, change_of, settlement_problem, verify_used_approval
from gitops.cluster.audit.walk import ConsumedApproval, Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.approval import DecisionEvidence, DecisionKind
from gitops.cluster.model.change import Action, Disposition, GateName, Tier
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import Debt, EntryChange, EntryKind, LedgerState
from gitops.cluster.plan.planner import survey
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

__all__ = ["approved_addresses", "asked", "check_approvals", "check_debt_records"]


def check_approvals(walk: Walk, found: VerifiedEntry) -> frozenset[str]:
    """Parts 1 to 5: the addresses whose change is approved. Raises IntegrityError for the first part that fails."""
    approved = approved_addresses(walk, found)
    gone = {c.resource for c in found.entry.changes if c.operation == Action.DELETE}
    for listed in found.entry.changes:
        if not _is_applied(listed) or listed.resource in approved:
            continue
        if _is_gated(listed, gone):
            detail = f"{listed.operation} {listed.resource} has no valid approval, or too few"
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{detail}: {asked(found, _met(found, listed))}")
    _check_settlements(walk, found)
    _check_debts(walk, found)
    return approved


def approved_addresses(walk: Walk, found: VerifiedEntry) -> frozenset[str]:
    """Parts 1 and 2: the addresses for which an entry has a quorum. Raises IntegrityError for a refused approval."""
    position = LedgerPosition(found, walk.numbers, walk.state, walk.moved_since)
    accepted: dict[str, list[ApprovalVerification]] = {}
    for use in found.entry.approvals:
        verification = verify_used_approval(walk.reader, use, position)
        if not verification.accepted:
            problem = next(iter(verification.diagnostics))
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{problem.code}: {problem.message}")
        consumed = walk.consumed.setdefault(use.approval_id, ConsumedApproval(verification, found.entry.number))
        _note_data(walk, found, verification)
        for evidence in walk.revocations.get(use.approval_id, ()):
            _check_revocation(walk, found, consumed, evidence)
        accepted.setdefault(use.resource, []).append(verification)
    listed = {each.resource: each for each in found.entry.changes}
    quorum = found.before.quorum(found.entry.target.environment)
    return frozenset(
        resource
        for resource, each in accepted.items()
        if select_quorum(each, quorum.needed(_met(found, listed[Address(resource)])))
    )


def _note_data(walk: Walk, found: VerifiedEntry, verification: ApprovalVerification) -> None:
    """Note an approval of data that was used for another version than its approver saw: no audit can compare their rows."""
    statement, approval = verification.evidence.statement, verification.evidence.approval
    listed = next((c for c in found.entry.changes if approval is not None and c.resource == approval.resource), None)
    if listed is None or not _is_applied(listed) or found.entry.kind is not EntryKind.APPLY:
        return
    was, now = None if statement is None else statement.seen, listed.seen
    if was is not None and now is not None and was.version != now.version:
        what = (
            f"entry {found.entry.number}: {listed.operation} {listed.resource}: {verification.principal} saw {was.held}"
        )
        walk.notes.append(f"{what} in version {was.version}; applied to {now.held} in version {now.version}")


def asked(found: VerifiedEntry, met: Collection[GateName]) -> str:
    """How many people the rules in force before an entry ask for at these gates, for a finding."""
    quorum = found.before.quorum(found.entry.target.environment)
    gate = next(iter(quorum.deciding(met)), GateName.IRREVERSIBLE)
    needed = quorum.needed(met)
    people = "1 person" if needed == 1 else f"{needed} different people"
    return f"gate {gate} asks for {people} in environment {quorum.environment}"


def _met(found: VerifiedEntry, listed: EntryChange) -> tuple[GateName, ...]:
    """The gates that a change meets, by what the entry lists of it; the texts of a migration may say more (step 9)."""
    change = change_of(listed)
    gate = rules_of(change.address).gate(change, survey([change_of(each) for each in found.entry.changes], (), ()))
    if gate is not None:
        return gate.met
    lossy = GateName.WIDENING if change.address.kind is Kind.POLICY else GateName.LOSSY
    return (lossy,) if change.tier is Tier.REVERSIBLE else (GateName.IRREVERSIBLE,)


def check_debt_records(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Part 6. Raises IntegrityError `ledger_debt_mismatch`."""
    old, new = walk.state.approval_records, state.approval_records
    debts: set[Debt] = set()
    for record in sorted(new.keys() - old.keys()):
        consumed = walk.consumed.get(record)
        known = consumed is not None and is_approval_record(new[record])
        debt = debt_of(consumed.verification.evidence) if known and consumed is not None else None
        if new[record].get("debt") != (None if debt is None else debt_form(debt)):
            raise IntegrityError(
                Code.LEDGER_DEBT_MISMATCH, f"the record of approval {record} lacks the debt of its emergency"
            )
        debts |= set() if debt is None else {debt}
    if set(found.entry.debts) != debts or len(found.entry.debts) != len(debts):
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, "the entry does not list the debts of its emergencies")
    for settlement in found.entry.settled:
        record_of = new.get(settlement.countersignature, {})
        recorded = (record_of.get("countersigns"), record_of.get("principal"))
        if settlement.countersignature in old or recorded != (settlement.approval_id, settlement.principal):
            detail = f"the state does not record countersignature {settlement.countersignature}"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)


def _is_applied(listed: EntryChange) -> bool:
    return listed.disposition == Disposition.APPLIED


def _is_gated(listed: EntryChange, gone: set[Address]) -> bool:
    """Whether a change needs an approval: keys and rules, where a cluster is, a restore, deleting a graph, or a schema alone.

    Which migrations need one depends on the graph and the rules; their entry lists it as gated.
    """
    change = change_of(listed)
    if change.tier is not None:
        return True
    if change.action is Action.CREATE and change.before is not None:
        return change.address.kind is Kind.GRAPH
    deleted = change.action is Action.DELETE
    schema_alone = change.address.kind is Kind.SCHEMA and change.address.graph_address not in gone
    whole = change.address.kind is Kind.TRUST or (
        change.address.kind is Kind.CLUSTER and change.action is not Action.CREATE
    )
    whole = whole or (change.address.kind is Kind.RESTORE and change.action is not Action.DELETE)
    return whole or (deleted and (change.address.kind is Kind.GRAPH or schema_alone))


def _check_revocation(walk: Walk, found: VerifiedEntry, consumed: ConsumedApproval, evidence: DecisionEvidence) -> None:
    """Part 2. An accepted revocation that names an entry before the first use came first: revoking takes the lock."""
    verification, at = consumed.verification, parse_timestamp(found.entry.at)
    decision, approval = evidence.decision, verification.evidence.approval
    if decision is None or approval is None or at is None:
        return
    need = DecisionNeed(
        target=found.entry.target,
        at=at,
        approval_id=approval.approval_id,
        commit=verification.evidence.commit,
        principal=verification.principal or "",
        version=found.entry.version,
    )
    seen = walk.numbers.get(decision.ledger_head, 0)
    if seen >= consumed.number or not verify_decision(evidence, DecisionKind.REVOKE, need, found.before).accepted:
        return
    detail = f"approval_revoked: approval {approval.approval_id} was revoked after entry {seen}, before it was used"
    raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _check_settlements(walk: Walk, found: VerifiedEntry) -> None:
    """Part 4."""
    if found.entry.settled and (found.entry.kind is not EntryKind.COUNTERSIGN or found.entry.changes):
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, "only an entry that changes nothing else may settle a debt")
    debts = {debt.approval_id: debt for debt in open_debts(walk.state)}
    for settlement in found.entry.settled:
        debt = debts.pop(settlement.approval_id, None)
        if debt is None:
            detail = f"it settles a debt of {settlement.approval_id}, which is not open"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)
        problem = settlement_problem(walk.reader, settlement, debt, LedgerPosition(found, walk.numbers, walk.state))
        if problem:
            raise IntegrityError(
                Code.LEDGER_DEBT_MISMATCH, f"countersignature {settlement.countersignature}: {problem}"
            )


def _check_debts(walk: Walk, found: VerifiedEntry) -> None:
    """Part 5."""
    settled = {settlement.approval_id for settlement in found.entry.settled}
    left = [debt.approval_id for debt in open_debts(walk.state) if debt.approval_id not in settled]
    applies = found.entry.kind in (EntryKind.APPLY, EntryKind.INTENT, EntryKind.SCOPE) and any(
        map(_is_applied, found.entry.changes)
    )
    emergency = any(walk.consumed[use.approval_id].verification.is_emergency for use in found.entry.approvals)
    if left and applies and not emergency:
        detail = f"it applies changes while the debt of {', '.join(left)} is open"
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)
