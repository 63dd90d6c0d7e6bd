"""Approval commits as found in git, read without believing anything: what counts is decided by the planner's steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gitops.core.errors import GitopsError
from gitops.model.approval import ApprovalEvidence, CommitSignature
from gitops.ports.git import GitReader
from gitops.wire.approval import read_approval
from gitops.wire.statement import read_statement

__all__ = ["read_evidence"]

_APPROVALS = "__cluster/approvals/"
_MAX_PATHS = 100

T = TypeVar("T")


def read_evidence(store: GitReader, ref: str, commit_id: str, chain: frozenset[str]) -> ApprovalEvidence:
    """The evidence that a commit gives; `chain` are the ids of all ledger entries. Never raises for its content.

    What can be read is returned together with the first problem, so that a refusal can name the change it was meant for.
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
    approval, unread = None, "it holds no approval document, or more than one"
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
    )


def _attempt(read: Callable[[], T]) -> tuple[T | None, str]:
    """What `read` gives, or why it cannot."""
    try:
        return read(), ""
    except GitopsError as error:
        return None, error.detail
