"""Approval and decision commits as found in git, unverified: `gitops.cluster.approvals` decides which of them count."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

from gitops.cluster.approvals.documents import (
    DECISION_MESSAGE,
    STATEMENT_MESSAGE,
    read_approval,
    read_decision,
    read_statement,
)
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    ApprovalEvidence,
    ApprovalStatement,
    Decision,
    DecisionEvidence,
)
from gitops.core.documents.codec import SignedMessage
from gitops.core.errors import GitopsError
from gitops.git.port import CommitSignature, GitReader

__all__ = ["announced_evidence", "read_decision_evidence", "read_evidence", "read_signed_document"]

_APPROVALS = f"{layout.APPROVALS}/"
_MAX_PATHS = 100
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_WITH_APPROVALS = 2

T = TypeVar("T")


def read_evidence(store: GitReader, ref: str, commit_id: str, chain: Container[str]) -> ApprovalEvidence:
    """The evidence that a commit gives; `chain` are the ids of all ledger entries. Never raises for its content.

    What can be read is returned together with the first problem, so that a refusal can name the change that it is for.
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
    """The cluster folder of the commit that was reviewed on a forge, where that is at hand.

    A commit without the folder has the empty tree, which no statement names.
    """
    if statement.grant is None or store.resolve(statement.grant.commit) is None:
        return None
    tree = store.commit(statement.grant.commit).tree
    return store.subtree(tree, statement.target.path) or _EMPTY_TREE


def announced_evidence(store: GitReader, head: str, approval_ids: Iterable[str]) -> tuple[ApprovalEvidence, ...]:
    """The approvals of these ids in the commits named by the newest entries that use them, also without their branches.

    For approvals that an entry announced and no state records as consumed: their operation was interrupted.
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
    """The evidence that a commit gives; `chain` are the ids of all ledger entries. Never raises for its content."""
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
    """The statement or decision in the message of a commit, and what its own signature says; None for any other message."""
    message = store.commit(commit_id).message
    statement, _ = _attempt(lambda: read_statement(message))
    if statement is not None:
        return statement, _own_signature(store, STATEMENT_MESSAGE, message)
    decision, _ = _attempt(lambda: read_decision(message))
    return decision, None if decision is None else _own_signature(store, DECISION_MESSAGE, message)


def _own_signature(store: GitReader, form: SignedMessage[Any], message: str) -> CommitSignature | None:
    """What the signature inside a readable message says; None for a message of a version that has none."""
    covered, armor = form.signature(message)
    return store.verify(covered, armor, APPROVAL_NAMESPACE) if armor else None


def _attempt(read: Callable[[], T]) -> tuple[T | None, str]:
    """What `read` gives, or why it cannot."""
    try:
        return read(), ""
    except GitopsError as error:
        return None, error.detail
