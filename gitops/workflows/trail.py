"""The audit trail as people read it: every entry, with the verdict on its signature and on the approvals that it used.

It shows; it does not judge whether entries tell the truth. That is `gitops.workflows.audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gitops.chain.entries import ENTRY, ChainEntry, TrustCache, read_chain_entry
from gitops.chain.evidence import read_evidence
from gitops.core.clock import parse_timestamp
from gitops.core.errors import GitopsError, IntegrityError
from gitops.model.address import Address
from gitops.model.audit import ApprovalVerdict, LogRecord
from gitops.model.change import Action, Change
from gitops.model.entry import ApprovalUse, EntryChange, LedgerEntry
from gitops.model.state import State
from gitops.planning.approvals import Need, Verdict, verify_approval
from gitops.ports.git import GitReader
from gitops.wire.entry import read_entry
from gitops.wire.state import read_state

__all__ = ["Moment", "change_of", "state_of", "trail", "verify_use"]


_STATE = "__cluster/state.json"


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a ledger an approval is judged: at an entry, after `chain` (ids of all entries), with these ids spent."""

    found: ChainEntry
    chain: frozenset[str]
    spent: frozenset[str]


def trail(reader: GitReader, head: str) -> Iterator[LogRecord]:
    """The audit trail, newest entry first; one that cannot be read is shown as such. Raises GitopsError for no history."""
    chain = reader.commits_between(None, head, first_parent=True)
    ids, known = frozenset(c.id for c in chain), TrustCache()
    for commit in chain:
        try:
            found = read_chain_entry(reader, commit.id, known)
            before = None if found.entry.previous is None else state_of(reader, found.entry.previous)
        except GitopsError as error:
            yield LogRecord(commit.id, _legible(reader, commit.id), (), error.code)
            continue
        moment = Moment(found, ids, frozenset(() if before is None else before.approval_records))
        verdicts = tuple(ApprovalVerdict(use, _word(reader, use, moment)) for use in found.entry.approvals)
        yield LogRecord(commit.id, found.entry, verdicts)


def _word(reader: GitReader, use: ApprovalUse, moment: Moment) -> str:
    """`good`, or the code of why not."""
    try:
        verdict = verify_use(reader, use, moment)
    except GitopsError as error:
        return error.code
    return "good" if verdict.good else verdict.diagnostics.codes()[0]


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
            "ledger_entry_invalid", f"it uses an approval for {use.resource}, which it does not change"
        )
    evidence = read_evidence(reader, "", use.commit, moment.chain)
    need = Need(
        target=entry.target,
        cluster_tree="" if entry.source is None else entry.source.tree,
        config_digest=entry.config_digest or "",
        policy_digest=before.digest,
        change=change_of(listed),
        at=parse_timestamp(entry.at) or datetime.min.replace(tzinfo=UTC),
        spent=moment.spent,
        authors=frozenset(entry.authors),
    )
    verdict = verify_approval(evidence, need, before)
    approval = evidence.approval
    if verdict.good and (
        verdict.principal != use.principal or approval is None or approval.approval_id != use.approval_id
    ):
        detail = f"the entry names approval {use.approval_id} of {use.principal}, its commit says otherwise"
        verdict.diagnostics.add("approval_malformed", use.resource, detail)
    return verdict


def change_of(listed: EntryChange) -> Change:
    """A change as an entry lists it. Raises IntegrityError `ledger_entry_invalid` for an operation that there is not."""
    try:
        action = Action(listed.operation)
    except ValueError:
        raise IntegrityError("ledger_entry_invalid", f"there is no operation {listed.operation!r}") from None
    address = Address.parse(listed.resource)
    return Change(address, action, listed.before, listed.after, binding_change=listed.binding_change)
