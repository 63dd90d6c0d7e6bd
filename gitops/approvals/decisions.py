"""Decisions about earlier approvals: whether a revocation or a countersignature counts, and which debts are open.

`verify_decision` works by numbered steps, like those of approvals; a step that cannot be decided refuses:

1. The commit has the form of a decision: one parent, which is an entry of this ledger and the head it names, no file
   changed, and a message that says what is decided.
2. It is signed, and the signature is good over the raw commit in the namespace `git`.
3. The key is trusted at this ledger position.
4. Its owner may decide this. To revoke: whoever gave the approval, every approver, and the bot, which takes back what it
   attested of a forge. To countersign: an approver who is, under no name or account, the one who acted alone.
5. It is meant for this repository, cluster, environment, branch and folder.
6. It names the very commit of the approval.

A debt is kept in the state's record of the approval that left it, and settled by a record of the countersignature beside it:
records are never edited, so what was owed stays readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gitops.model.address import Address
from gitops.model.approval import (
    ApprovalEvidence,
    CommitSignature,
    Decision,
    DecisionEvidence,
    DecisionKind,
    Target,
    Via,
)
from gitops.model.entry import Debt, DebtSettlement
from gitops.model.state import State
from gitops.model.trust import TrustRoot

__all__ = [
    "DecisionNeed",
    "DecisionVerdict",
    "Place",
    "debt_of",
    "is_approval_record",
    "judge_countersignatures",
    "judge_revocations",
    "open_debts",
    "settlements",
    "taken_back",
    "verify_decision",
    "with_debts",
    "with_settled",
]

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a decision is judged: for which target, and at which time of the ledger."""

    target: Target
    at: datetime


@dataclass(frozen=True, slots=True)
class DecisionNeed:
    """What a decision must be about: this approval, which `principal` gave by `commit`."""

    place: Place
    approval_id: str
    commit: str
    principal: str


@dataclass(frozen=True, slots=True)
class DecisionVerdict:
    """Whether a decision counts, whose it is, and if not, why. `giver` is who gave the approval that it is about."""

    evidence: DecisionEvidence
    principal: str | None = None
    problem: str = ""
    giver: str = ""

    @property
    def good(self) -> bool:
        """Whether every step passed."""
        return self.principal is not None


def verify_decision(
    evidence: DecisionEvidence, kind: DecisionKind, need: DecisionNeed, trust: TrustRoot
) -> DecisionVerdict:
    """Apply the numbered steps of this module. The caller still owes: that the approval, or the debt, is there."""
    decision, signature = evidence.decision, evidence.signature
    problem = evidence.problem or _form_problem(evidence, decision, kind)  # 1
    if problem or decision is None:
        return DecisionVerdict(evidence, problem=problem or "it says nothing")
    problem = _signature_problem(signature)  # 2
    if problem:
        return DecisionVerdict(evidence, problem=problem)
    principal = trust.principal(signature.key, at=need.place.at)  # 3
    if principal is None:
        return DecisionVerdict(evidence, problem=f"its {signature.key_type} key is not trusted at this position")
    problem = _permission_problem(principal, kind, need, trust, signature.key)  # 4
    if problem:
        return DecisionVerdict(evidence, problem=problem)
    if decision.target != need.place.target:  # 5
        return DecisionVerdict(evidence, problem="it is for another repository, cluster, environment, branch or folder")
    if (decision.approval_id, decision.subject) != (need.approval_id, need.commit):  # 6
        return DecisionVerdict(evidence, problem="it names another commit than that of the approval")
    return DecisionVerdict(evidence, principal, giver=need.principal)


def _form_problem(evidence: DecisionEvidence, decision: Decision | None, kind: DecisionKind) -> str:
    if decision is None or decision.kind is not kind:
        return f"it does not {kind}"
    if evidence.parents != (decision.ledger_head,) or not evidence.on_chain:
        return "its parent is not the ledger entry that it names"
    return ""


def _signature_problem(signature: CommitSignature) -> str:
    if not signature.signed:
        return "the commit carries no signature"
    if not signature.good or signature.namespace != "git":
        return signature.problem or "the signature does not match the commit"
    return ""


def _permission_problem(principal: str, kind: DecisionKind, need: DecisionNeed, trust: TrustRoot, key: str) -> str:
    names = trust.known_as({principal, *trust.names(key)})
    own = need.principal.casefold() in names
    if kind is DecisionKind.REVOKE:
        may = own or trust.may_approve(principal) or principal in trust.ledger_signers
        return "" if may else f"{principal} may not take back what {need.principal} approved"
    if own:
        return f"{principal} is the one who acted alone"
    return "" if trust.may_approve(principal) else f"{principal} is not an approver"


def judge_revocations(
    approvals: Iterable[ApprovalEvidence], decisions: Sequence[DecisionEvidence], place: Place, trust: TrustRoot
) -> tuple[DecisionVerdict, ...]:
    """The verdict on every revocation that names one of these approvals."""
    by_id: dict[str, list[DecisionEvidence]] = {}
    for item in decisions:
        if item.decision is not None and item.decision.kind is DecisionKind.REVOKE:
            by_id.setdefault(item.decision.approval_id, []).append(item)
    verdicts: list[DecisionVerdict] = []
    for evidence in approvals if by_id else ():
        approval = evidence.approval
        if approval is None:
            continue
        need = DecisionNeed(place, approval.approval_id, evidence.commit, approval.approved_by)
        found = by_id.get(approval.approval_id, ())
        verdicts.extend(verify_decision(item, DecisionKind.REVOKE, need, trust) for item in found)
    return tuple(verdicts)


def taken_back(verdicts: Iterable[DecisionVerdict]) -> frozenset[tuple[str, str]]:
    """The approvals that good revocations name, by id and giver.

    Not by id alone: anybody can give an approval of their own the id of another one, and take that back. Not by commit: the
    same signature can be written in another way, which makes another commit.
    """
    named = ((v.evidence.decision, v.giver) for v in verdicts if v.good)
    return frozenset((decision.approval_id, giver) for decision, giver in named if decision is not None)


def settlements(
    debts: Iterable[Debt],
    decisions: Sequence[DecisionEvidence],
    place: Place,
    trust: TrustRoot,
    *,
    taken: Iterable[str] = (),
) -> tuple[DebtSettlement, ...]:
    """What settles open debts: the good countersignature with the lowest id for each.

    `taken` are the ids of records that there are: a countersignature is recorded under its own, so it settles one debt, once.
    """
    found: list[DebtSettlement] = []
    used = set(taken)
    for debt in debts:
        good = [v for v in judge_countersignatures(debt, decisions, place, trust) if v.good]
        named = [(v.evidence.decision.decision_id, v) for v in good if v.evidence.decision is not None]
        for identity, verdict in sorted(named, key=lambda pair: (pair[0], pair[1].evidence.commit)):
            if identity not in used:
                used.add(identity)
                commit, who = verdict.evidence.commit, verdict.principal or _UNKNOWN
                found.append(DebtSettlement(debt.approval_id, identity, commit, who))
                break
    return tuple(found)


def judge_countersignatures(
    debt: Debt, decisions: Sequence[DecisionEvidence], place: Place, trust: TrustRoot
) -> tuple[DecisionVerdict, ...]:
    """The verdict on every countersignature that names the approval of a debt."""
    need = DecisionNeed(place, debt.approval_id, debt.commit, debt.principal)
    return tuple(
        verify_decision(item, DecisionKind.COUNTERSIGN, need, trust)
        for item in decisions
        if item.decision is not None
        and item.decision.kind is DecisionKind.COUNTERSIGN
        and item.decision.approval_id == debt.approval_id
    )


# -- debts in the state ------------------------------------------------------------------------------------------------


def debt_of(evidence: ApprovalEvidence) -> Debt | None:
    """The debt that the use of an approval leaves, None for one that is no emergency."""
    approval, statement = evidence.approval, evidence.statement
    if approval is None or statement is None or statement.via is not Via.BREAK_GLASS:
        return None
    reason = statement.emergency or _UNKNOWN
    return Debt(approval.approval_id, evidence.commit, approval.resource, approval.approved_by, reason)


def is_approval_record(record: Mapping[str, Any]) -> bool:
    """Whether a record of the state is that of a used approval, and not that of a countersignature."""
    return "countersigns" not in record


def open_debts(state: State) -> tuple[Debt, ...]:
    """Debts that nobody has countersigned, by approval id. A record that cannot be read is owed until it is settled."""
    settled = {str(r["countersigns"]) for r in state.approval_records.values() if not is_approval_record(r)}
    records = {i: r["debt"] for i, r in sorted(state.approval_records.items()) if "debt" in r and i not in settled}
    return tuple(_read_debt(approval_id, record) for approval_id, record in records.items())


def _read_debt(approval_id: str, record: Any) -> Debt:
    values = record if isinstance(record, Mapping) else {}
    names = ("commit", "resource", "principal", "reason")
    found = (values.get(name) for name in names)
    commit, resource, principal, reason = (text if isinstance(text, str) else _UNKNOWN for text in found)
    return Debt(approval_id, commit, Address(resource), principal, reason)


def with_debts(state: State, debts: Iterable[Debt]) -> State:
    """The state in which the records of used approvals say what they owe."""
    records = dict(state.approval_records)
    for debt in debts:
        form = {
            "commit": debt.commit,
            "resource": debt.resource,
            "principal": debt.principal,
            "reason": debt.reason,
        }
        records[debt.approval_id] = {**records.get(debt.approval_id, {}), "debt": form}
    return replace(state, approval_records=records) if records != state.approval_records else state


def with_settled(state: State, settled: Iterable[DebtSettlement], at: str) -> State:
    """The state in which countersignatures are recorded beside the debts that they settle."""
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
