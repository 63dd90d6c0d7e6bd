"""Decision commits as found in git, unverified: `gitops.approvals.decisions` decides which of them count."""

from __future__ import annotations

from collections.abc import Container

from gitops.approvals.documents import read_decision
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader
from gitops.model.approval import CommitSignature, DecisionEvidence

__all__ = ["read_decision_evidence"]


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
    )
