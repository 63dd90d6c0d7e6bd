"""The audit trail for `gitops log`: every entry, with the results of checking its signature and approvals.

It does not check the content of entries; that is the audit (`gitops.cluster.audit.verb`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime

from gitops.cluster.approvals.decisions import DecisionNeed, recorded_revocations, verify_decision
from gitops.cluster.approvals.origins import authors, made_by_no_commit
from gitops.cluster.approvals.rule_changes import rule_changes
from gitops.cluster.approvals.verify import ApprovalNeed, ApprovalVerification, verify_approval
from gitops.cluster.audit.report import LogRecord, UsedApproval, UsedCountersignature
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import ENTRY, TrustCache, VerifiedEntry, read_verified_entry
from gitops.cluster.ledger.documents import read_entry, read_state
from gitops.cluster.ledger.evidence import LedgerEntries, read_decision_evidence, read_evidence
from gitops.cluster.ledger.schemas import recorded_schema
from gitops.cluster.model.address import Address, Kind, trust_address
from gitops.cluster.model.approval import DecisionKind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import (
    WITH_ORIGINS,
    ApprovalUse,
    Authors,
    Debt,
    DebtSettlement,
    EntryChange,
    LedgerEntry,
    LedgerState,
)
from gitops.cluster.model.plan import SameTexts
from gitops.cluster.plan.texts import same_texts
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader


@dataclass(frozen=True, slots=True)
class AuditedPosition:
    """A position in the ledger: the entries up to it (`chain`), and the state before it, empty for the first entry.

    `moved_since` returns whether an entry between the given one and this one changed a resource. Without it, this is
    not checked.
    """

    found: VerifiedEntry
    chain: Container[str]
    before: LedgerState
    moved_since: Callable[[str, Address], bool] = lambda _entry, _resource: False


TreeOpener = Callable[[GitReader, str, str], SourceTree]
"""Opens a cluster folder by its tree id and its path in the repository."""


def read_trail(
    reader: GitReader, head: str, open_tree: TreeOpener | None = None, *, texts: bool = True
) -> Iterator[LogRecord]:
    """Yield the audit trail, newest entry first, and read each entry on demand. An unreadable entry is shown as unreadable.

    Without `open_tree`, texts of schemas, which are only in the cluster folder, are not compared. Without `texts`, no texts
    are compared, so no record has `republished` queries or `formatting`. Raises GitopsError for a history that cannot be
    followed.
    """
    trail = _Trail(reader, LedgerEntries(reader, head), open_tree, texts)
    at: str | None = head
    while at is not None:
        commit = reader.commit(at)
        yield _record(trail, at)
        trail.states.pop(at, None)
        at = next(iter(commit.parents), None)


@dataclass(slots=True)
class _Trail:
    """What the records of one trail share. The state before an entry is the one after the previous entry, so it is kept."""

    reader: GitReader
    entries: LedgerEntries
    open_tree: TreeOpener | None
    texts: bool
    known: TrustCache = field(default_factory=dict)
    states: dict[str, LedgerState | None] = field(default_factory=dict)

    def state(self, commit_id: str) -> LedgerState | None:
        """Return the state after an entry. Raises GitopsError."""
        if commit_id not in self.states:
            self.states[commit_id] = state_of(self.reader, commit_id)
        return self.states[commit_id]


def _record(trail: _Trail, commit_id: str) -> LogRecord:
    reader = trail.reader
    try:
        found = read_verified_entry(reader, commit_id, trail.known)
        before = None if found.entry.previous is None else trail.state(found.entry.previous)
        after = trail.state(commit_id)
        debts_before = () if before is None else before.debts
        debts_after = () if after is None else after.debts
    except GitopsError as error:
        return LogRecord(commit_id, _unverified_entry(reader, commit_id), (), error.code)
    position = AuditedPosition(found, trail.entries, before or LedgerState())
    same = _same_texts(reader, commit_id, found.entry, trail.open_tree) if trail.texts else SameTexts()
    return LogRecord(
        commit_id,
        found.entry,
        tuple(_used_approval(reader, use, position) for use in found.entry.approvals),
        settlements=tuple(_used_countersignature(reader, each, debts_before, position) for each in found.entry.settled),
        owed=tuple(debt.approval_id for debt in debts_after),
        rules=rule_changes(trust_address(found.entry.target.cluster), found.before, found.after),
        republished=same.republished,
        formatting=same.formatting,
    )


def _same_texts(reader: GitReader, commit_id: str, entry: LedgerEntry, open_tree: TreeOpener | None) -> SameTexts:
    """Return an entry's updates that don't change any meaning, according to its catalog and the commits it was made from."""

    def read(address: Address, digest: str) -> bytes | None:
        if address.kind is Kind.SCHEMA:
            return open_tree and recorded_schema(reader, commit_id, address.name, digest, open_tree)
        key = layout.blob_key(address, digest)
        with suppress(GitopsError):
            return reader.read(reader.commit(commit_id).tree, key) if key else None
        return None

    changes = [each for each in entry.changes if each.tier is None]
    return same_texts(((each.resource, each.before, each.after) for each in changes), read)


def _used_approval(reader: GitReader, use: ApprovalUse, position: AuditedPosition) -> UsedApproval:
    try:
        verification = verify_used_approval(reader, use, position)
    except GitopsError as error:
        return UsedApproval(use, error.code)
    result = "good" if verification.accepted else verification.diagnostics.codes()[0]
    statement = verification.evidence.statement
    return UsedApproval(use, result, None if statement is None else statement.seen)


def _used_countersignature(
    reader: GitReader, each: DebtSettlement, debts: Sequence[Debt], position: AuditedPosition
) -> UsedCountersignature:
    debt = next((d for d in debts if d.approval_id == each.approval_id), None)
    good = debt is not None and not settlement_problem(reader, each, debt, position)
    return UsedCountersignature(each, "good" if good else Code.LEDGER_DEBT_MISMATCH)


def _unverified_entry(reader: GitReader, commit_id: str) -> LedgerEntry | None:
    """Return the document of an entry that cannot be verified, if it can be read."""
    try:
        content = reader.read(reader.commit(commit_id).tree, ENTRY)
        return None if content is None else read_entry(content)
    except GitopsError:
        return None


def state_of(reader: GitReader, commit_id: str) -> LedgerState | None:
    """Return an entry's state document. Raises IntegrityError if it is not valid."""
    content = reader.read(reader.commit(commit_id).tree, layout.STATE)
    return None if content is None else read_state(content)


def verify_used_approval(reader: GitReader, use: ApprovalUse, position: AuditedPosition) -> ApprovalVerification:
    """Verify an approval that an entry used, by the steps that a plan at that entry's position would apply.

    Raises IntegrityError `ledger_entry_invalid` if the entry does not list the change that it was used for.
    """
    entry, before = position.found.entry, position.found.before
    listed = next((c for c in entry.changes if c.resource == use.resource), None)
    if listed is None:
        raise IntegrityError(
            Code.LEDGER_ENTRY_INVALID, f"it uses an approval for {use.resource}, which it does not change"
        )
    evidence = read_evidence(reader, "", use.commit, position.chain)
    named = (
        Authors()
        if made_by_no_commit(change_of(listed), position.before.vanished)
        else authors([each for each in entry.origins if not each.resources or use.resource in each.resources])
    )
    need = ApprovalNeed(
        target=entry.target,
        cluster_tree="" if entry.source is None else entry.source.tree,
        config_digest=entry.config_digest or "",
        policy_digest=before.digest_in(entry.version),
        change=change_of(listed),
        at=entry_time(entry),
        consumed=frozenset(position.before.approval_records),
        revoked=recorded_revocations(position.before),
        authors=frozenset(entry.authors) if entry.version < WITH_ORIGINS else named.people,
        version=entry.version,
        digest=listed.digest,
        moved=evidence.statement is not None and position.moved_since(evidence.statement.ledger_head, listed.resource),
        unknown=() if entry.version < WITH_ORIGINS else named.unknown,
        forge=entry.forge or "",
    )
    verification = verify_approval(evidence, need, before)
    approval, statement = evidence.approval, evidence.statement
    if not verification.accepted or approval is None or statement is None:
        return verification
    if (verification.principal, approval.approval_id, statement.via) != (use.principal, use.approval_id, use.via):
        detail = f"the entry names approval {use.approval_id} of {use.principal} ({use.via}), but its commit contradicts this"
        verification.diagnostics.add(Code.APPROVAL_MALFORMED, use.resource, detail)
    return verification


def settlement_problem(reader: GitReader, settlement: DebtSettlement, debt: Debt, position: AuditedPosition) -> str:
    """Explain why a recorded countersignature does not settle `debt` at that position, or return an empty string if it does."""
    entry, before = position.found.entry, position.found.before
    evidence = read_decision_evidence(reader, "", settlement.commit, position.chain)
    need = DecisionNeed(entry.target, entry_time(entry), debt.approval_id, debt.commit, debt.principal, entry.version)
    verification = verify_decision(evidence, DecisionKind.COUNTERSIGN, need, before)
    decision = evidence.decision
    if not verification.accepted or decision is None:
        return verification.problem or "it contains no decision"
    if (verification.principal, decision.decision_id) != (settlement.principal, settlement.countersignature):
        return (
            f"the entry names {settlement.countersignature} of {settlement.principal}, but its commit contradicts this"
        )
    return ""


def entry_time(entry: LedgerEntry) -> datetime:
    """Return an entry's time. An unreadable time counts as the earliest one."""
    return parse_timestamp(entry.at) or datetime.min.replace(tzinfo=UTC)


def change_of(listed: EntryChange) -> Change:
    """Return a change that an entry lists. Raises IntegrityError `ledger_entry_invalid` for an unknown operation."""
    try:
        action = Action(listed.operation)
    except ValueError:
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"the operation {listed.operation!r} does not exist") from None
    return Change(
        listed.resource,
        action,
        listed.before,
        listed.after,
        binding_change=listed.binding_change,
        seen=listed.seen,
        tier=listed.tier,
        gates=listed.gates,
        callers=listed.callers,
    )
