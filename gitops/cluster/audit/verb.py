"""The offline audit: checks every entry against the keys and rules in force at its position.

For each entry, in order; the first failing step is the finding, and nothing after it is checked:

1. The entry follows the previous one: parents, number, time, target.
2. It is signed by a ledger key in force before it, at its own time.
3. Its changeset records match their events, and its message matches its document and its events.
4. Its approvals, emergencies, countersignatures and recorded revocations are valid (`gitops.cluster.audit.approvals`).
5. The keys and rules after it match the digests in it, and changed only through an approved change.
6. Its state is readable, and changed only as `gitops.cluster.audit.state` allows.
7. Every catalog blob in its state exists with its digest.
8. Its source commit continues the previous one and has the folder, configuration, keys and authors of the entry
   (if the repository has the commit), and a converged state matches the commit's declarations.
9. Its changes have the gates that they need, as far as their texts are available (`gitops.cluster.audit.approvals`).

Then the complete ledger is compared with the witnesses.

A source commit that the repository does not have is only a note, because a ledger can be kept separately from its sources.
Anything else that is missing is a finding. Each entry is read once, and the work per entry does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import count

from gitops.cluster.audit.approvals import (
    approved_addresses,
    check_approvals,
    check_debt_records,
    check_gates,
    check_revocation_records,
    check_revocations,
    revocation_notes,
)
from gitops.cluster.audit.report import AuditFinding, AuditReport, AuditWitnesses
from gitops.cluster.audit.scope import check_adoption, check_place, check_scope
from gitops.cluster.audit.source import check_source
from gitops.cluster.audit.state import StateTransition, check_transition
from gitops.cluster.audit.trail import state_of
from gitops.cluster.audit.walk import (
    SourceRules,
    TreeOpener,
    Walk,
    announced_operations,
    entry_ids,
    start_after,
)
from gitops.cluster.ledger.chain import REVOCATIONS, VerifiedEntry, read_verified_entry
from gitops.cluster.ledger.evidence import (
    Anchor,
    EntryWitness,
    WitnessedLedger,
    WitnessKind,
    document_problem,
    named_entry,
    read_decision_evidence,
    verify_witness,
)
from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.ledger.trailers import check_records, commit_message
from gitops.cluster.model.address import trust_address
from gitops.cluster.model.approval import DecisionEvidence
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import WITH_ORIGINS, EntryKind, LedgerState
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader

__all__ = ["AuditScope", "TreeOpener", "audit", "find_contradictions"]


_RESOURCES = "__cluster/resources"
_FIRST_RELEASE = (
    "entries of the first release are verified by its rules: they record authors without the origins of commits, approvals of a "
    "graph by its name and not of its data, and statements without a signature of their own"
)


def _no_anchor(first: VerifiedEntry) -> None:
    """Report that the first entry of the cluster is unknown, so an unrelated chain proves nothing about this ledger."""
    raise IntegrityError(Code.LEDGER_DIVERGED, f"{first.commit.id[:12]} has no anchor")


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Scope of an audit: the entries after `since` (None: all), and the evidence in `witnesses`.

    `anchor` checks whether the first entry of another ledger is one of this cluster. `verified` is called with every valid
    entry, in order.
    """

    since: str | None = None
    witnesses: AuditWitnesses = field(default_factory=AuditWitnesses)
    anchor: Anchor = _no_anchor
    verified: Callable[[VerifiedEntry], None] = lambda _: None


def audit(
    reader: GitReader, head: str, cluster: str, open_tree: TreeOpener, scope: AuditScope | None = None
) -> AuditReport:
    """Verify the ledger branch that ends at `head`. Never raises, whatever the repository contains or lacks.

    A chain that cannot be read back to its first entry, or that has no entry `since`, produces a finding with number 0
    at `head`. Exceptions from `scope.verified` are passed on.
    """
    scope = scope or AuditScope()
    try:
        chain = entry_ids(reader, head)
    except GitopsError as error:
        return AuditReport(cluster, head, 0, 0, (AuditFinding(head, 0, error.code, error.detail),))
    numbers = {commit: number for number, commit in enumerate(chain, start=1)}
    walk = Walk(reader, open_tree, cluster, numbers, _revocations(reader, scope, numbers), SourceRules(reader))
    findings, start = _start(walk, scope, head)
    verified = start
    for number, commit in enumerate(chain[start:] if not findings else (), start=start + 1):
        try:
            found = _check_entry(walk, commit, number)
        except GitopsError as error:
            findings.append(AuditFinding(commit, number, error.code, error.detail))
            break
        verified = number
        scope.verified(found)
    if not findings:
        walk.notes += revocation_notes(walk, frozenset(scope.witnesses.signed.values()))
    if not findings and walk.previous is not None:
        last = walk.previous.entry
        if cluster not in (last.target.cluster, *last.new_names):
            detail = f"its last entry is for cluster {last.target.cluster}"
            findings.append(AuditFinding(head, last.number, Code.LEDGER_ENTRY_INVALID, detail))
    repository = None if walk.previous is None else walk.previous.entry.target.repository
    ledger = WitnessedLedger(cluster, head, numbers, scope.anchor, repository)
    for each in find_contradictions(reader, ledger, numbers, scope.witnesses):
        if isinstance(each, str):
            walk.notes.append(each)
        else:
            findings.append(each)
    return AuditReport(cluster, head, len(chain), verified, tuple(findings), tuple(walk.notes), start)


def _start(walk: Walk, scope: AuditScope, head: str) -> tuple[list[AuditFinding], int]:
    """Return the number of the entry after which the audit starts, and the findings that prevent it."""
    if scope.since is None:
        return [], 0
    number = walk.numbers.get(scope.since)
    if number is None:
        detail = f"the audit should start after {scope.since[:12]}, which is not an ancestor of head {head[:12]}"
        return [AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)], 0
    try:
        start_after(walk, scope.since, approved_addresses)
    except GitopsError as error:
        return [AuditFinding(scope.since, number, error.code, error.detail)], number
    return [], number


def _revocations(
    reader: GitReader, scope: AuditScope, numbers: Mapping[str, int]
) -> Mapping[str, tuple[DecisionEvidence, ...]]:
    found: dict[str, tuple[DecisionEvidence, ...]] = {}
    for ref, commit in scope.witnesses.signed.items():
        evidence = read_decision_evidence(reader, ref, commit, numbers) if ref.startswith(REVOCATIONS) else None
        if evidence is not None and evidence.decision is not None:
            approval = evidence.decision.approval_id
            found[approval] = (*found.get(approval, ()), evidence)
    return found


def _check_entry(walk: Walk, commit_id: str, number: int) -> VerifiedEntry:
    found = read_verified_entry(walk.reader, commit_id, walk.known)  # 1 (parents) and 2
    _check_order(walk, found, number)  # 1
    before = None if walk.previous is None else walk.previous.commit.tree
    recorded = check_records(walk.reader, before, found.commit.tree)  # 3
    if found.commit.message != commit_message(found.entry, recorded):  # 3
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the commit message does not match the entry")
    approved = check_approvals(walk, found)  # 4
    check_revocations(walk, found)  # 4
    _check_repair(walk, found)  # 4
    check_adoption(walk, found, approved)  # 4
    _check_trust(found, approved)  # 5
    check_scope(walk, found, approved)  # 5
    state = state_of(walk.reader, commit_id)
    if state is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, "the entry has no state document")
    check_transition(StateTransition(found.entry, walk.state, state, approved, walk.announced))  # 6
    check_debt_records(walk, found, state)  # 4, of the state
    check_revocation_records(walk, found, state)  # 4, of the state
    _check_blobs(walk, found, state)  # 7
    check_source(walk, found, state, recorded)  # 8
    check_gates(walk, found, state)  # 9
    for operation, begun in announced_operations(walk.reader, found, approved).items():
        walk.announced.setdefault(operation, begun)
    walk.previous, walk.state = found, state
    _note_vanished(walk, found, state)
    if found.entry.version < WITH_ORIGINS and _FIRST_RELEASE not in walk.notes:
        walk.notes.append(_FIRST_RELEASE)
    walk.moved |= dict.fromkeys(found.entry.moved, number)
    walk.settle(found.entry, state)
    return found


def _note_vanished(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Add a note for each graph that an observation found missing, from its entry and the state after it."""
    entry = found.entry
    if entry.kind is EntryKind.REFRESH and entry.version >= WITH_ORIGINS and set(entry.vanished) != state.vanished:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, "the entry does not list the graphs that vanished")
    for graph in entry.vanished:
        walk.notes.append(f"entry {entry.number}: {graph} vanished without a delete")


def _check_order(walk: Walk, found: VerifiedEntry, number: int) -> None:
    """Check step 1."""
    entry, previous = found.entry, walk.previous
    if entry.previous != (None if previous is None else previous.commit.id) or entry.number != number:
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, f"entry {number} has number {entry.number} in its document")
    at, before = parse_timestamp(entry.at), None if previous is None else parse_timestamp(previous.entry.at)
    if at is None or (before is not None and at < before):
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, f"entry {number} is dated before the previous entry")
    check_place(walk, entry)


def _check_repair(walk: Walk, found: VerifiedEntry) -> None:
    """Check that a repair changes nothing, and add a note about it. No other entry may list removed commits."""
    entry = found.entry
    repairs = entry.kind is EntryKind.REPAIR
    if (entry.quarantined and not repairs) or (repairs and (entry.changes or entry.number == 1)):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "a repair is an entry that changes nothing else")
    if repairs:
        removed = ", ".join(commit[:12] for commit in entry.quarantined) or "none"
        walk.notes.append(f"entry {entry.number}: the branch was repaired by {entry.actor}; commits removed: {removed}")


def _check_trust(found: VerifiedEntry, approved: frozenset[str]) -> None:
    """Check step 5."""
    entry = found.entry
    before, after = found.before.digest_in(entry.version), found.after.digest_in(entry.version)
    if (entry.policy_digest, entry.trust_digest) != (before, after):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the digest in the entry does not match its keys and rules")
    if before == after:
        return
    address = trust_address(entry.target.cluster)
    moves = [(c.before, c.after) for c in entry.changes if c.resource == address]
    if entry.kind is not EntryKind.APPLY or address not in approved or moves != [(before, after)]:
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, "keys or rules were changed without an approval")


def _check_blobs(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Check step 7. Blobs that neither the folder nor the state changed were checked with the previous entry."""
    folder = walk.reader.subtree(found.commit.tree, _RESOURCES)
    same = folder == walk.blobs
    for address, resource in sorted(state.resources.items()):
        if not rules_of(address).catalog_suffix or (same and walk.state.resources.get(address) == resource):
            continue
        path = blob_key(address, resource.digest)
        content = None if path is None else walk.reader.read(found.commit.tree, path)
        if content is None or digest(content) != resource.digest:
            detail = f"the blob of {address} does not have digest {resource.digest}"
            raise IntegrityError(Code.LEDGER_BLOB_MISMATCH, detail)
    walk.blobs = folder


# Compares a ledger with witnesses, to detect entries that were removed or that are withheld.
#
# 1. Every head that this clone saw earlier is an entry of the ledger.
# 2. Every approval and every decision about one, consumed or not, refers to an entry of the ledger. If it is signed for
#    this repository and refers to an entry of a different chain signed by a ledger key, it proves that the ledger was
#    rewound or forked. Anything else proves nothing and is a note.
# 3. The heads of other copies are the same or older. A newer head means that an old state of the ledger is served here.


_LISTED = 10
"""Maximum number of witnesses in one finding."""


def find_contradictions(
    reader: GitReader, ledger: WitnessedLedger, numbers: Mapping[str, int], witnesses: AuditWitnesses
) -> Iterator[AuditFinding | str]:
    """Yield findings about the whole chain, and notes (as strings). Never raises, whatever the witnesses contain.

    A diverged ledger is one finding, with the details from all witnesses.
    """
    head, diverged = ledger.head or "", list[str]()
    seen: dict[str, list[str]] = {}
    for where, commit in witnesses.seen.items():
        if commit not in numbers:
            seen.setdefault(commit, []).append(where)
    for commit, places in seen.items():
        diverged.append(
            f"head {head[:12]} does not descend from {commit[:12]}, which was seen here before ({', '.join(places)})"
        )
    for ref, commit in witnesses.signed.items():
        entry = named_entry(reader, commit)
        witness = None if entry is None else verify_witness(reader, entry, ledger)
        if witness is not None and witness.contradicts:
            branch = ref.removeprefix("refs/heads/")
            if doubt := _doubt(reader, commit, witness, ledger):
                yield f"{branch} names entry {witness.entry[:12]}, {witness.detail}; {doubt}, so it proves nothing; delete it"
                continue
            diverged.append(
                f"{branch} names entry {witness.entry[:12]}, {witness.detail}, which the ledger does not have"
            )
    for who, commit in witnesses.copies.items():
        found = _compare_copy(reader, ledger, numbers, who, commit)
        if isinstance(found, AuditFinding) and found.code is Code.LEDGER_DIVERGED:
            diverged.append(found.detail)
        else:
            yield found
    if diverged:
        more = f"; and {len(diverged) - _LISTED} more witnesses" if len(diverged) > _LISTED else ""
        yield AuditFinding(head, 0, Code.LEDGER_DIVERGED, "; ".join(diverged[:_LISTED]) + more)


def _doubt(reader: GitReader, commit: str, witness: EntryWitness, ledger: WitnessedLedger) -> str:
    """Explain why a signed document proves nothing, or return an empty string if it is a proof."""
    try:
        return document_problem(reader, commit, witness, ledger)
    except GitopsError as error:
        return error.detail


def _compare_copy(
    reader: GitReader, ledger: WitnessedLedger, numbers: Mapping[str, int], who: str, commit: str
) -> AuditFinding | str:
    """Compare a copy by rule 3."""
    head = ledger.head or ""
    if commit in numbers:
        return f"witness {who} has {'the same head' if commit == head else f'an older head, entry {numbers[commit]}'}"
    # The auditor specified this copy, so its history is read whatever its length.
    witness = verify_witness(reader, commit, replace(ledger, steps=count()))
    if witness.kind is WitnessKind.NEWER:
        detail = f"witness {who} has a newer head, {commit[:12]}, {witness.detail}: an old state is served here"
        return AuditFinding(head, 0, Code.LEDGER_BEHIND, detail)
    if witness.kind is WitnessKind.FOREIGN:
        detail = f"witness {who} has a different ledger: head {commit[:12]}, {witness.detail}"
        return AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)
    return AuditFinding(head, 0, Code.WITNESS_UNPROVEN, f"witness {who} shows {commit[:12]}: {witness.detail}")
