"""Approval and decision commits from git, unverified. `gitops.cluster.approvals` decides which of them count.

The entries that they refer to are also evidence about the ledger, and so is another copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import field
from enum import StrEnum
from typing import Any, TypeVar

from gitops.cluster.approvals.documents import (
    DECISION_MESSAGE,
    STATEMENT_MESSAGE,
    read_approval,
    read_decision,
    read_statement,
)
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import ENTRY, VerifiedEntry, first_entry, read_verified_entry, verify_chain
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    ApprovalEvidence,
    ApprovalStatement,
    Decision,
    DecisionEvidence,
)
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import SignedMessage
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import CommitSignature, GitReader

_APPROVALS = f"{layout.APPROVALS}/"
_MAX_PATHS = 100
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_WITH_APPROVALS = 2

T = TypeVar("T")


def read_evidence(store: GitReader, ref: str, commit_id: str, chain: Container[str]) -> ApprovalEvidence:
    """Read the evidence in a commit. `chain` are the ids of all ledger entries. Never raises for its content.

    The readable part is returned with the first problem, so that a refusal can show the change.
    """
    try:
        commit = store.commit(commit_id)
        parent = commit.parents[0] if commit.parents else None
        base = None if parent is None else store.commit(parent).tree
        changed = store.changed_paths(base, commit.tree)
        signature = store.signature(commit_id)
    except GitopsError as error:
        unsigned = CommitSignature(signed=False, good=False)
        return ApprovalEvidence(commit_id, ref, (), (), None, None, unsigned, problem=error.detail)
    named = [path for path in changed if path.startswith(_APPROVALS)]
    statement, misread = _attempt(lambda: read_statement(commit.message))
    approval, unread = None, "it contains no approval document, or more than one"
    if len(named) == 1:
        approval, unread = _attempt(lambda: read_approval(store.read(commit.tree, named[0]) or b""))
    more = "" if changed == tuple(named) else "it changes more than its own document"
    return ApprovalEvidence(
        commit=commit_id,
        ref=ref,
        parents=commit.parents,
        changed_paths=changed[:_MAX_PATHS],
        approval=approval,
        statement=statement,
        signature=signature,
        on_chain=parent in chain,
        problem=misread or unread or more,
        reviewed_tree=None if statement is None else _reviewed_tree(store, statement),
        own_signature=None if statement is None else _own_signature(store, STATEMENT_MESSAGE, commit.message),
    )


def _reviewed_tree(store: GitReader, statement: ApprovalStatement) -> str | None:
    """Return the cluster folder of the commit that was reviewed on a forge, if it is available.

    A commit without the folder has the empty tree, which statements never contain.
    """
    if statement.grant is None or store.resolve(statement.grant.commit) is None:
        return None
    tree = store.commit(statement.grant.commit).tree
    return store.subtree(tree, statement.target.path) or _EMPTY_TREE


def announced_evidence(store: GitReader, head: str, approval_ids: Iterable[str]) -> tuple[ApprovalEvidence, ...]:
    """Return the approvals with these ids from the newest entries that use them, even if their branches are gone.

    This is for approvals that an entry announced but no state records as consumed, because their operation was
    interrupted.
    """
    wanted, found = set(approval_ids), list[ApprovalEvidence]()
    at: str | None = head
    while wanted and at is not None:
        commit = store.commit(at)
        content = store.read(commit.tree, ENTRY)
        uses = () if content is None or len(commit.parents) < _WITH_APPROVALS else read_entry(content).approvals
        for use in uses:
            if use.approval_id in wanted:
                wanted.discard(use.approval_id)
                found.append(read_evidence(store, "", use.commit, frozenset()))
        at = next(iter(commit.parents), None)
    return tuple(found)


def read_decision_evidence(store: GitReader, ref: str, commit_id: str, chain: Container[str]) -> DecisionEvidence:
    """Read the evidence in a commit. `chain` are the ids of all ledger entries. Never raises for its content."""
    try:
        commit = store.commit(commit_id)
        parent = commit.parents[0] if commit.parents else None
        same = parent is not None and store.commit(parent).tree == commit.tree
        signature = store.signature(commit_id)
    except GitopsError as error:
        unsigned = CommitSignature(signed=False, good=False)
        return DecisionEvidence(commit_id, ref, (), None, unsigned, problem=error.detail)
    decision, problem = None, "" if same else "it changes files"
    try:
        decision = read_decision(commit.message)
    except GitopsError as error:
        problem = error.detail
    return DecisionEvidence(
        commit=commit_id,
        ref=ref,
        parents=commit.parents,
        decision=decision,
        signature=signature,
        on_chain=parent in chain,
        problem=problem,
        own_signature=None if decision is None else _own_signature(store, DECISION_MESSAGE, commit.message),
    )


def read_signed_document(
    store: GitReader, commit_id: str
) -> tuple[ApprovalStatement | Decision | None, CommitSignature | None]:
    """Return a commit message's statement or decision and the check of its separate signature, or None for other messages."""
    message = store.commit(commit_id).message
    statement, _ = _attempt(lambda: read_statement(message))
    if statement is not None:
        return statement, _own_signature(store, STATEMENT_MESSAGE, message)
    decision, _ = _attempt(lambda: read_decision(message))
    return decision, None if decision is None else _own_signature(store, DECISION_MESSAGE, message)


def _own_signature(store: GitReader, form: SignedMessage[Any], message: str) -> CommitSignature | None:
    """Check the signature inside a readable message, or None for a message of a version without one."""
    covered, armor = form.signature(message)
    return store.verify(covered, armor, APPROVAL_NAMESPACE) if armor else None


def _attempt(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return the result of `read`, or the reason why it failed."""
    try:
        return read(), ""
    except GitopsError as error:
        return None, error.detail


# -- witnesses ---------------------------------------------------------------------------------------------------------
# Witnesses of a ledger: approvals contain the entry that their signer saw, and other copies have their own heads. An
# entry signed by a ledger key exists permanently. If a witness refers to an entry that the available ledger lacks, that
# ledger was rewound, forked or replaced, or its server shows an old state.
#
# 1. A forged entry proves nothing: a witness counts if the entries back to a known one, or back to the first one with
#    its anchor, pass the rules for every head.
# 2. An entry in another copy of the repository proves nothing either, even if the same bot signed it, because anyone
#    can push a commit on top of it. A signed document is a proof only if its message is a statement or decision, for
#    this repository and cluster, about the entry that is its parent, signed by a key that the rules after that entry
#    trust.
# 3. An entry of a ledger that was replaced by an approved import does not contradict the current one.


MOST_STEPS = 2_000
"""Maximum number of commits outside of a ledger that are examined when its witnesses are read."""

Anchor = Callable[[VerifiedEntry], None]
"""Raises GitopsError for a first entry that is not this cluster's."""


class LedgerEntries(Container[str]):
    """A ledger's entry ids, each read once, from the head back as far as needed."""

    def __init__(self, reader: GitReader, head: str | None) -> None:
        """`head` is the last entry of the ledger, or None if the ledger has no entry."""
        self._reader = reader
        self._next = head
        self._ids: set[str] = set()

    def __contains__(self, commit_id: object) -> bool:
        """Return True if a commit is an entry of this ledger. Raises GitopsError for history that cannot be read."""
        while commit_id not in self._ids and self._next is not None:
            self._ids.add(self._next)
            self._next = next(iter(self._reader.commit(self._next).parents), None)
        return commit_id in self._ids


class WitnessKind(StrEnum):
    """How an entry relates to a ledger: part of it, newer, on another chain, on the previous ledger, or unproven.

    UNREAD means that it is beyond the limit of the history that one check reads.
    """

    PART = "part"
    NEWER = "newer"
    FOREIGN = "foreign"
    FORMER = "former"
    UNPROVEN = "unproven"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class EntryWitness:
    """A verified entry that a document refers to. `detail` explains why it proves nothing, or where its chain diverges."""

    kind: WitnessKind
    entry: str
    detail: str = ""

    @property
    def contradicts(self) -> bool:
        """True if it proves, or could prove, that the local ledger is incomplete."""
        return self.kind in (WitnessKind.NEWER, WitnessKind.FOREIGN, WitnessKind.UNREAD)


@dataclass(frozen=True, slots=True)
class WitnessedLedger:
    """The ledger to compare with witnesses: its cluster, its head (None if there is none) and its entry ids.

    `repository` is the id in its documents; None if unknown, which accepts every id. `steps` is the remaining number of
    commits outside the ledger that may be read, for all witnesses together, because anyone who pushes can create long
    histories.
    """

    cluster: str
    head: str | None
    entries: Container[str]
    anchor: Anchor
    repository: str | None = None
    steps: Iterator[int] = field(default_factory=lambda: iter(range(MOST_STEPS)))


def named_entry(reader: GitReader, commit_id: str) -> str | None:
    """Return the entry that an approval's or decision's signer saw, the commit's only parent. None for other commits."""
    try:
        parents = reader.commit(commit_id).parents
    except GitopsError:
        return None
    return parents[0] if len(parents) == 1 else None


def verify_witness(reader: GitReader, entry: str, ledger: WitnessedLedger) -> EntryWitness:
    """Determine how `entry` relates to the ledger. Never raises, whatever the commits contain."""
    try:
        if entry in ledger.entries:
            return EntryWitness(WitnessKind.PART, entry)
        # If a commit is not itself a signed entry, its history is not read.
        read_verified_entry(reader, entry)
        joins, at = None, entry
        while at not in ledger.entries:
            if next(ledger.steps, None) is None:
                return EntryWitness(
                    WitnessKind.UNREAD, entry, f"which has more than {MOST_STEPS} commits outside of the ledger"
                )
            parents = reader.commit(at).parents
            if not parents:
                break
            at = parents[0]
        else:
            joins = at
        found = verify_chain(reader, entry, joins)
        if ledger.cluster not in (found.entry.target.cluster, *found.entry.new_names):
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"it is an entry of cluster {found.entry.target.cluster}")
        if joins is None:
            first = first_entry(reader, entry)
            ledger.anchor(first)
            former = None if ledger.head is None else first_entry(reader, ledger.head).entry.former
            if former is not None and first.commit.id == former.genesis:
                return EntryWitness(WitnessKind.FORMER, entry, "of the ledger before this one")
            return EntryWitness(WitnessKind.FOREIGN, entry, "of a chain with a different first entry")
    except GitopsError as error:
        return EntryWitness(WitnessKind.UNPROVEN, entry, error.detail)
    kind = WitnessKind.NEWER if joins == ledger.head else WitnessKind.FOREIGN
    return EntryWitness(kind, entry, f"which follows entry {joins[:12]}")


def document_problem(reader: GitReader, commit_id: str, witness: EntryWitness, ledger: WitnessedLedger) -> str:
    """Explain why a signed document proves nothing about the ledger (rule 2), or return an empty string if it does.

    The chain of the entry has been verified, unless it is unread. In that case the document still counts if the local
    ledger, if there is one, trusts its key, because anyone can sign a long chain with their own keys. Raises GitopsError for
    objects that cannot be read.
    """
    entry = witness.entry
    found = read_verified_entry(reader, entry)
    if ledger.repository not in (None, found.entry.target.repository):
        return f"its ledger is that of repository {found.entry.target.repository}"
    document, own = read_signed_document(reader, commit_id)
    signature, at = reader.signature(commit_id), parse_timestamp(found.entry.at)
    if document is None or document.ledger_head != entry:
        return "it is not an approval or a decision about that entry"
    if (document.target.repository, document.target.cluster) != (found.entry.target.repository, ledger.cluster):
        return f"it is for cluster {document.target.cluster} of repository {document.target.repository}"
    inner = own is None or (own.good and own.key == signature.key)
    if not signature.good or not inner:
        return "it is not signed" if not signature.signed else "its signature is not valid"
    if at is None or found.after.principal(signature.key, at=at) is None:
        return f"its {signature.key_type} key was not trusted after that entry"
    if witness.kind is WitnessKind.UNREAD and ledger.head is not None:
        newest = read_verified_entry(reader, ledger.head)
        now = parse_timestamp(newest.entry.at)
        if now is None or newest.after.principal(signature.key, at=now) is None:
            return f"its {signature.key_type} key is not trusted here"
    return ""
