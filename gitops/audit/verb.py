"""The offline auditor: from the first entry on, every entry must hold under the keys and rules of its own moment.

Per entry, in order; the first step that fails is the finding, and what follows it is not looked at:

1. The entry follows the one before: parents, number, time, target.
2. It is signed by a ledger key in force before it, at its own time.
3. Its message says what its document says.
4. Its approvals, emergencies and countersignatures hold, as `gitops.audit.approvals` says.
5. Keys and rules after it are those that it names, and moved only by an approved change.
6. Its state is readable, and moved only as `gitops.audit.state` allows.
7. Every catalog blob that its state names is there with its digest.
8. Its source commit continues the one before and has the folder, the configuration, the keys and the authors that the entry
   names (where the repository has the commit), and a state that calls itself converged is what that commit declares.

Then the ledger as a whole is held against what others know of it (`gitops.audit.heads`).

A commit that the repository lacks is a note when it is a source commit, since a ledger can be kept apart from its sources;
anything else that is missing is a finding. Each entry is read once, and the work per entry does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gitops.audit.approvals import approved_by, check_approvals, check_dues
from gitops.audit.heads import contradictions
from gitops.audit.report import AuditFinding, AuditReport, Hearsay
from gitops.audit.source import check_source
from gitops.audit.state import Movement, check_movement
from gitops.audit.trail import state_of
from gitops.audit.walk import (
    SourceRules,
    TreeOpener,
    Walk,
    announced_by,
    begin_behind,
    chain_of,
    settled_after,
)
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader
from gitops.ledger.chain import REVOCATIONS, ChainEntry, read_chain_entry
from gitops.ledger.decisions import read_decision_evidence
from gitops.ledger.layout import blob_key
from gitops.ledger.trailers import commit_message
from gitops.ledger.witnesses import Anchor, Ledger
from gitops.model.address import Address, trust_address
from gitops.model.approval import DecisionEvidence
from gitops.model.entry import EntryKind
from gitops.model.kinds import rules_of
from gitops.model.state import State

__all__ = ["AuditScope", "TreeOpener", "audit"]

_RESOURCES = "__cluster/resources"


def _unanchored(first: ChainEntry) -> None:
    """Nothing says where a ledger of this cluster begins, so what does not join the one at hand proves nothing."""
    raise IntegrityError(Code.LEDGER_DIVERGED, f"{first.commit.id[:12]} has no anchor")


def _ignore(found: ChainEntry) -> None:
    """Nobody wants to hear of entries."""


@dataclass(frozen=True, slots=True)
class AuditScope:
    """How far an audit goes: from behind entry `since` (None: from the first), and what it is told besides the branch.

    `anchor` is what the first entry of another ledger must stand up to, to count as one of this cluster. `verified` is told every
    entry that holds, in order.
    """

    since: str | None = None
    hearsay: Hearsay = field(default_factory=Hearsay)
    anchor: Anchor = _unanchored
    verified: Callable[[ChainEntry], None] = _ignore


def audit(
    reader: GitReader, head: str, cluster: str, open_tree: TreeOpener, scope: AuditScope | None = None
) -> AuditReport:
    """Verify the ledger branch that ends in `head`. Never raises for what the repository holds or lacks.

    A chain that cannot be walked to its first entry, or that has no entry `since`, gives a finding with number 0 at `head`.
    What `scope.verified` raises is let through.
    """
    scope = scope or AuditScope()
    try:
        chain = chain_of(reader, head)
    except GitopsError as error:
        return AuditReport(cluster, head, 0, 0, (AuditFinding(head, 0, error.code, error.detail),))
    numbers = {commit: number for number, commit in enumerate(chain, start=1)}
    walk = Walk(reader, open_tree, cluster, numbers, _revocations(reader, scope, numbers), SourceRules(reader))
    findings, start = _begun(walk, scope, head)
    verified = start
    for number, commit in enumerate(chain[start:] if not findings else (), start=start + 1):
        try:
            found = _check_entry(walk, commit, number)
        except GitopsError as error:
            findings.append(AuditFinding(commit, number, error.code, error.detail))
            break
        verified = number
        scope.verified(found)
    ledger = Ledger(cluster, head, numbers, scope.anchor)
    for each in contradictions(reader, ledger, numbers, scope.hearsay):
        if isinstance(each, str):
            walk.notes.append(each)
        else:
            findings.append(each)
    return AuditReport(cluster, head, len(chain), verified, tuple(findings), tuple(walk.notes), start)


def _begun(walk: Walk, scope: AuditScope, head: str) -> tuple[list[AuditFinding], int]:
    """Where the walk begins, and why it cannot."""
    if scope.since is None:
        return [], 0
    number = walk.numbers.get(scope.since)
    if number is None:
        detail = f"head {head[:12]} does not continue {scope.since[:12]}, which the audit was to begin from"
        return [AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)], 0
    try:
        begin_behind(walk, scope.since, approved_by)
    except GitopsError as error:
        return [AuditFinding(scope.since, number, error.code, error.detail)], number
    return [], number


def _revocations(
    reader: GitReader, scope: AuditScope, numbers: Mapping[str, int]
) -> Mapping[str, tuple[DecisionEvidence, ...]]:
    found: dict[str, tuple[DecisionEvidence, ...]] = {}
    for ref, commit in scope.hearsay.signed.items():
        evidence = read_decision_evidence(reader, ref, commit, numbers) if ref.startswith(REVOCATIONS) else None
        if evidence is not None and evidence.decision is not None:
            approval = evidence.decision.approval_id
            found[approval] = (*found.get(approval, ()), evidence)
    return found


def _check_entry(walk: Walk, commit_id: str, number: int) -> ChainEntry:
    found = read_chain_entry(walk.reader, commit_id, walk.known)  # 1 (parents) and 2
    _check_order(walk, found, number)  # 1
    if found.commit.message != commit_message(found.entry):  # 3
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the commit message does not say what the entry says")
    approved = check_approvals(walk, found)  # 4
    _check_trust(walk, found, approved)  # 5
    state = state_of(walk.reader, commit_id)
    if state is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, "the entry has no state document")
    check_movement(Movement(found.entry, walk.state, state, approved, walk.announced))  # 6
    check_dues(walk, found, state)  # 4, of the state
    _check_blobs(walk, found, state)  # 7
    check_source(walk, found, state)  # 8
    for operation, begun in announced_by(walk.reader, found, approved).items():
        walk.announced.setdefault(operation, begun)
    walk.previous, walk.state = found, state
    walk.settled = settled_after(walk, found.entry, state)
    return found


def _check_order(walk: Walk, found: ChainEntry, number: int) -> None:
    """Step 1."""
    entry, previous = found.entry, walk.previous
    if entry.previous != (None if previous is None else previous.commit.id) or entry.number != number:
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, f"entry {number} calls itself {entry.number}")
    at, before = parse_timestamp(entry.at), None if previous is None else parse_timestamp(previous.entry.at)
    if at is None or (before is not None and at < before):
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, f"entry {number} is dated before the one it follows")
    if entry.target.cluster != walk.cluster or (previous is not None and entry.target != previous.entry.target):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the entry is for another cluster, branch or folder")


def _check_trust(walk: Walk, found: ChainEntry, approved: frozenset[str]) -> None:
    """Step 5."""
    entry, before, after = found.entry, found.before.digest, found.after.digest
    if (entry.policy_digest, entry.trust_digest) != (before, after):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the entry names other keys and rules than it holds")
    if before == after:
        return
    address = trust_address(walk.cluster)
    moves = [(c.before, c.after) for c in entry.changes if c.resource == address]
    if entry.kind is not EntryKind.APPLY or address not in approved or moves != [(before, after)]:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "keys or rules changed without an approval of just that")


def _check_blobs(walk: Walk, found: ChainEntry, state: State) -> None:
    """Step 7; where neither the blobs nor the state moved, they were checked with the entry before."""
    folder = walk.reader.subtree(found.commit.tree, _RESOURCES)
    same = folder == walk.blobs
    for text, of in _blobs(state):
        if same and walk.state.resources.get(text) == state.resources[text]:
            continue
        content = None if of is None else walk.reader.read(found.commit.tree, of)
        if content is None or digest(content) != state.resources[text].digest:
            detail = f"the blob of {text} does not have digest {state.resources[text].digest}"
            raise IntegrityError(Code.LEDGER_BLOB_MISMATCH, detail)
    walk.blobs = folder


def _blobs(state: State) -> Sequence[tuple[Address, str | None]]:
    """The resources whose texts are in the catalog, each with the path of its text; None for a name that cannot be one."""
    return [
        (address, blob_key(address, resource.digest))
        for address, resource in sorted(state.resources.items())
        if rules_of(address).catalog_suffix
    ]
