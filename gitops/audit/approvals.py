"""Whether the approvals, emergencies and countersignatures of an entry hold: step 4 of the audit.

In order; the first part that fails is the finding:

1. Every approval that it uses passes the planner's steps with the facts of that moment, as it says it was given.
2. None of them had been taken back. A revocation names the newest entry of its time: what that saw done it does not undo.
3. Irreversible changes that took place have enough of them: so many people, or one emergency.
4. Every countersignature that it takes in passes its steps, for a debt that was open.
5. While a debt is open, nothing takes place that is no emergency itself.
6. What is recorded as used owes exactly what it left: each emergency its debt, everything else nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.approvals.decisions import DecisionNeed, Place, debt_of, is_approval_record, open_debts, verify_decision
from gitops.approvals.verify import Verdict, enough
from gitops.audit.trail import Moment, change_of, settlement_problem, verify_use
from gitops.audit.walk import Used, Walk
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.ledger.chain import ChainEntry
from gitops.model.address import Address, Kind
from gitops.model.approval import DecisionEvidence, DecisionKind
from gitops.model.change import Action, Disposition
from gitops.model.entry import Debt, EntryChange, EntryKind
from gitops.model.state import State

__all__ = ["approved_by", "check_approvals", "check_dues"]


def check_approvals(walk: Walk, found: ChainEntry) -> frozenset[str]:
    """Parts 1 to 5: addresses whose irreversible change is approved. Raises IntegrityError for the first that fails."""
    approved = approved_by(walk, found)
    gone = {c.resource for c in found.entry.changes if c.operation == Action.DELETE}
    for listed in found.entry.changes:
        if not _took_place(listed) or listed.resource in approved:
            continue
        if _is_gated(listed, gone):
            detail = f"{listed.operation} {listed.resource} has no valid approval, or not enough of them"
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)
    _check_settlements(walk, found)
    _check_debts(walk, found)
    return approved


def approved_by(walk: Walk, found: ChainEntry) -> frozenset[str]:
    """Parts 1 and 2: addresses for which an entry has enough good approvals. Raises IntegrityError for a bad one."""
    moment = Moment(found, walk.numbers, frozenset(walk.state.approval_records))
    given: dict[str, list[Verdict]] = {}
    for use in found.entry.approvals:
        verdict = verify_use(walk.reader, use, moment)
        if not verdict.good:
            problem = next(iter(verdict.diagnostics))
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{problem.code}: {problem.message}")
        used = walk.used.setdefault(use.approval_id, Used(verdict, found.entry.number))
        for evidence in walk.revocations.get(use.approval_id, ()):
            _check_revocation(walk, found, used, evidence)
        given.setdefault(use.resource, []).append(verdict)
    return frozenset(a for a, verdicts in given.items() if enough(verdicts, found.before.required))


def check_dues(walk: Walk, found: ChainEntry, state: State) -> None:
    """Part 6. Raises IntegrityError `ledger_debt_mismatch`."""
    old, new = walk.state.approval_records, state.approval_records
    owed: set[Debt] = set()
    for record in sorted(new.keys() - old.keys()):
        used = walk.used.get(record)
        debt = None if used is None or not is_approval_record(new[record]) else debt_of(used.verdict.evidence)
        if new[record].get("debt") != (None if debt is None else _form(debt)):
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, f"the record of {record} does not owe what its use left")
        owed |= set() if debt is None else {debt}
    if set(found.entry.debts) != owed or len(found.entry.debts) != len(owed):
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, "the entry does not list the debts that its emergencies leave")
    for settlement in found.entry.settled:
        record_of = new.get(settlement.countersignature, {})
        said = (record_of.get("countersigns"), record_of.get("principal"))
        if settlement.countersignature in old or said != (settlement.approval_id, settlement.principal):
            detail = f"the state does not record countersignature {settlement.countersignature}"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)


def _form(debt: Debt) -> Mapping[str, Any]:
    return {"commit": debt.commit, "resource": debt.resource, "principal": debt.principal, "reason": debt.reason}


def _took_place(listed: EntryChange) -> bool:
    return listed.disposition == Disposition.APPLIED


def _is_gated(listed: EntryChange, gone: set[Address]) -> bool:
    """Whether a change is irreversible: keys and rules, a graph's end, or that of a schema which leaves its graph."""
    change = change_of(listed)
    deleted = change.action is Action.DELETE
    alone = change.address.kind is Kind.SCHEMA and change.address.graph_address not in gone
    return change.address.kind is Kind.TRUST or (deleted and (change.address.kind is Kind.GRAPH or alone))


def _check_revocation(walk: Walk, found: ChainEntry, used: Used, evidence: DecisionEvidence) -> None:
    """Part 2. A good revocation that names an entry from before the first use came first: nobody revokes without the lock."""
    decision, approval, at = evidence.decision, used.verdict.evidence.approval, parse_timestamp(found.entry.at)
    if decision is None or approval is None or at is None:
        return
    place, commit = Place(found.entry.target, at), used.verdict.evidence.commit
    need = DecisionNeed(place, approval.approval_id, commit, used.verdict.principal or "")
    seen = walk.numbers.get(decision.ledger_head, 0)
    if seen >= used.number or not verify_decision(evidence, DecisionKind.REVOKE, need, found.before).good:
        return
    detail = f"approval_revoked: approval {approval.approval_id} was taken back after entry {seen}, before it was used"
    raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _check_settlements(walk: Walk, found: ChainEntry) -> None:
    """Part 4."""
    if found.entry.settled and (found.entry.kind is not EntryKind.COUNTERSIGN or found.entry.changes):
        raise IntegrityError(
            Code.LEDGER_DEBT_MISMATCH, "a debt is settled by an entry of its own, which changes nothing"
        )
    owed = {debt.approval_id: debt for debt in open_debts(walk.state)}
    for settlement in found.entry.settled:
        debt = owed.pop(settlement.approval_id, None)
        if debt is None:
            detail = f"it settles a debt of {settlement.approval_id}, which is not open"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)
        problem = settlement_problem(walk.reader, settlement, debt, Moment(found, walk.numbers, frozenset()))
        if problem:
            raise IntegrityError(
                Code.LEDGER_DEBT_MISMATCH, f"countersignature {settlement.countersignature}: {problem}"
            )


def _check_debts(walk: Walk, found: ChainEntry) -> None:
    """Part 5."""
    settled = {settlement.approval_id for settlement in found.entry.settled}
    left = [debt.approval_id for debt in open_debts(walk.state) if debt.approval_id not in settled]
    acts = found.entry.kind in (EntryKind.APPLY, EntryKind.INTENT) and any(map(_took_place, found.entry.changes))
    emergency = any(walk.used[use.approval_id].verdict.alone for use in found.entry.approvals)
    if left and acts and not emergency:
        detail = f"it applies changes while the debt of {', '.join(left)} is open"
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)
