"""The audit trail as people read it: every entry, with the verdict on its signature and on the approvals that it used.

It shows; it does not judge whether entries tell the truth. That is `gitops.audit.verb`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gitops.approvals.decisions import DecisionNeed, Place, open_debts, verify_decision
from gitops.approvals.verify import Need, Verdict, verify_approval
from gitops.audit.report import ApprovalVerdict, LogRecord, SettlementVerdict
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader
from gitops.ledger.chain import ENTRY, ChainEntry, TrustCache, read_chain_entry
from gitops.ledger.decisions import read_decision_evidence
from gitops.ledger.documents import read_entry, read_state
from gitops.ledger.evidence import read_evidence
from gitops.ledger.witnesses import Line
from gitops.model.approval import DecisionKind
from gitops.model.change import Action, Change
from gitops.model.entry import ApprovalUse, Debt, DebtSettlement, EntryChange, LedgerEntry
from gitops.model.state import State

__all__ = ["Moment", "change_of", "settlement_problem", "state_of", "trail", "verify_use"]

_STATE = "__cluster/state.json"


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a ledger an approval is judged: at an entry, of the ledger with the entries `chain`, with these ids spent."""

    found: ChainEntry
    chain: Container[str]
    spent: frozenset[str]


def trail(reader: GitReader, head: str) -> Iterator[LogRecord]:
    """The audit trail, newest entry first, each read when it is asked for; one that cannot be read is shown as such.

    Raises GitopsError for a history that cannot be followed.
    """
    line, known = Line(reader, head), TrustCache()
    at: str | None = head
    while at is not None:
        commit = reader.commit(at)
        yield _record(reader, at, line, known)
        at = next(iter(commit.parents), None)


def _record(reader: GitReader, commit_id: str, line: Line, known: TrustCache) -> LogRecord:
    try:
        found = read_chain_entry(reader, commit_id, known)
        before = None if found.entry.previous is None else state_of(reader, found.entry.previous)
        after = state_of(reader, commit_id)
        owed = () if after is None else open_debts(after)
        debts = () if before is None else open_debts(before)
    except GitopsError as error:
        return LogRecord(commit_id, _legible(reader, commit_id), (), error.code)
    moment = Moment(found, line, frozenset(() if before is None else before.approval_records))
    return LogRecord(
        commit_id,
        found.entry,
        tuple(ApprovalVerdict(use, _word(reader, use, moment)) for use in found.entry.approvals),
        settlements=tuple(_settled(reader, each, debts, moment) for each in found.entry.settled),
        owed=tuple(debt.approval_id for debt in owed),
    )


def _word(reader: GitReader, use: ApprovalUse, moment: Moment) -> str:
    """`good`, or the code of why not."""
    try:
        verdict = verify_use(reader, use, moment)
    except GitopsError as error:
        return error.code
    return "good" if verdict.good else verdict.diagnostics.codes()[0]


def _settled(reader: GitReader, each: DebtSettlement, debts: Sequence[Debt], moment: Moment) -> SettlementVerdict:
    debt = next((d for d in debts if d.approval_id == each.approval_id), None)
    good = debt is not None and not settlement_problem(reader, each, debt, moment)
    return SettlementVerdict(each, "good" if good else Code.LEDGER_DEBT_MISMATCH)


def _legible(reader: GitReader, commit_id: str) -> LedgerEntry | None:
    """What an entry that does not verify says, if it says anything."""
    try:
        content = reader.read(reader.commit(commit_id).tree, ENTRY)
        return None if content is None else read_entry(content)
    except GitopsError:
        return None


def state_of(reader: GitReader, commit_id: str) -> State | None:
    """The state document of an entry. Raises IntegrityError when it is not valid."""
    content = reader.read(reader.commit(commit_id).tree, _STATE)
    return None if content is None else read_state(content)


def verify_use(reader: GitReader, use: ApprovalUse, moment: Moment) -> Verdict:
    """Judge an approval that an entry used, by the planner's own steps with the facts of the entry's moment.

    Raises IntegrityError `ledger_entry_invalid` when the entry does not list the change that it was used for.
    """
    entry, before = moment.found.entry, moment.found.before
    listed = next((c for c in entry.changes if c.resource == use.resource), None)
    if listed is None:
        raise IntegrityError(
            Code.LEDGER_ENTRY_INVALID, f"it uses an approval for {use.resource}, which it does not change"
        )
    evidence = read_evidence(reader, "", use.commit, moment.chain)
    need = Need(
        target=entry.target,
        cluster_tree="" if entry.source is None else entry.source.tree,
        config_digest=entry.config_digest or "",
        policy_digest=before.digest,
        change=change_of(listed),
        at=_time(entry),
        spent=moment.spent,
        authors=frozenset(entry.authors),
    )
    verdict = verify_approval(evidence, need, before)
    approval, statement = evidence.approval, evidence.statement
    if not verdict.good or approval is None or statement is None:
        return verdict
    if (verdict.principal, approval.approval_id, statement.via) != (use.principal, use.approval_id, use.via):
        detail = f"the entry names approval {use.approval_id} of {use.principal} ({use.via}), its commit says otherwise"
        verdict.diagnostics.add(Code.APPROVAL_MALFORMED, use.resource, detail)
    return verdict


def settlement_problem(reader: GitReader, settlement: DebtSettlement, debt: Debt, moment: Moment) -> str:
    """Why a countersignature that an entry took in does not settle `debt`, by the planner's own steps; empty if it does."""
    entry, before = moment.found.entry, moment.found.before
    evidence = read_decision_evidence(reader, "", settlement.commit, moment.chain)
    need = DecisionNeed(Place(entry.target, _time(entry)), debt.approval_id, debt.commit, debt.principal)
    verdict = verify_decision(evidence, DecisionKind.COUNTERSIGN, need, before)
    decision = evidence.decision
    if not verdict.good or decision is None:
        return verdict.problem or "it says nothing"
    if (verdict.principal, decision.decision_id) != (settlement.principal, settlement.countersignature):
        return f"the entry names {settlement.countersignature} of {settlement.principal}, its commit says otherwise"
    return ""


def _time(entry: LedgerEntry) -> datetime:
    return parse_timestamp(entry.at) or datetime.min.replace(tzinfo=UTC)


def change_of(listed: EntryChange) -> Change:
    """A change as an entry lists it. Raises IntegrityError `ledger_entry_invalid` for an operation that there is not."""
    try:
        action = Action(listed.operation)
    except ValueError:
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"there is no operation {listed.operation!r}") from None
    return Change(listed.resource, action, listed.before, listed.after, binding_change=listed.binding_change)
