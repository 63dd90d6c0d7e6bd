"""Approval commits as evidence: what is read of good ones, and how far bad ones are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalStatement, ClusterTarget
from gitops.cluster.model.change import Action
from gitops.git.repository import GitRepository
from tests.support.branch_ledger import Keys, make_keys
from tests.support.git_fixture import bare, commit, opened, public_key
from tests.support.signed import drafted, own_signature, signer

ID = "01J00000000000000000000001"
PATH = f"__cluster/approvals/{ID}.json"
REF = f"refs/heads/gitops/approvals/library/{ID}"
APPROVAL = Approval(
    approval_id=ID,
    resource=Address("graph.staging"),
    operation=Action.DELETE,
    reason="irreversible",
    bound_config_digest="1" * 64,
    bound_before_digest="2" * 64,
    bound_after_digest=None,
    approved_by="ada",
    created_at="2026-07-02T08:00:00Z",
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return opened(bare(tmp_path / "far.git"))


@pytest.fixture
def head(repository: GitRepository) -> str:
    return commit(repository, {"entry.json": b"{}", "__cluster/state.json": b"{}"})


def statement(head: str) -> ApprovalStatement:
    return ApprovalStatement(
        approval_id=ID,
        target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
        cluster_tree="3" * 40,
        plan_digest="4" * 64,
        config_digest="1" * 64,
        change_digest="5" * 64,
        policy_digest="6" * 64,
        ledger_head=head,
        expires_at="2026-07-09T08:00:00Z",
        nonce="01J00000000000000000000002",
    )


def told(head: str) -> str:
    return statement_message(statement(head), "delete graph.staging", sign=drafted)


def test_a_good_one(repository: GitRepository, head: str, keys: Keys) -> None:
    files = {PATH: write_approval(APPROVAL)}
    message = statement_message(statement(head), "delete graph.staging", sign=signer(repository, keys.ada))
    one = commit(repository, files, head, message=message, signing_key=str(keys.ada))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.commit, evidence.ref, evidence.parents, evidence.changed_paths) == (one, REF, (head,), (PATH,))
    assert (evidence.approval, evidence.statement, evidence.problem) == (APPROVAL, statement(head), "")
    assert (evidence.signature.good, evidence.signature.key) == (True, public_key(keys.ada).split()[1])
    assert evidence.own_signature == own_signature(public_key(keys.ada).split()[1])
    assert evidence.on_chain
    assert not read_evidence(repository, REF, one, frozenset({one})).on_chain


def test_unsigned_is_said_not_judged(repository: GitRepository, head: str) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL)}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.signature.signed, evidence.signature.good, evidence.problem) == (False, False, "")


@pytest.mark.parametrize(
    "extra", [{"__cluster/state.json": b"[]"}, {"entry.json": None}, {"trust/gitops.yaml": b"version: 1\n"}]
)
def test_more_than_a_document_is_a_problem_of_a_known_change(
    repository: GitRepository, head: str, extra: dict[str, bytes | None]
) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL), **extra}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert evidence.approval == APPROVAL
    assert evidence.problem == "it changes more than its own document"


def test_two_documents_or_none(repository: GitRepository, head: str) -> None:
    other = replace(APPROVAL, approval_id=ID[:-1] + "9")
    two = {PATH: write_approval(APPROVAL), f"__cluster/approvals/{other.approval_id}.json": write_approval(other)}
    for files in (two, {}, {"README": b"hello\n"}):
        evidence = read_evidence(repository, REF, commit(repository, files, head, message=told(head)), frozenset())
        assert (evidence.approval, evidence.problem) == (None, "it contains no approval document, or more than one")


@pytest.mark.parametrize("message", ["", "approve\n", "approve\n\n{}\n", "approve\n\n" + "[" * 100_000 + "\n"])
def test_a_message_that_says_nothing(repository: GitRepository, head: str, message: str) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL)}, head, message=message)
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.approval, evidence.statement) == (APPROVAL, None)
    assert evidence.problem


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b"[" * 100_000, b"x" * 2_000_000])
def test_a_document_that_says_nothing(repository: GitRepository, head: str, document: bytes) -> None:
    one = commit(repository, {PATH: document}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.approval, evidence.statement) == (None, statement(head))
    assert evidence.problem


def test_a_document_that_was_removed(repository: GitRepository) -> None:
    head = commit(repository, {PATH: write_approval(APPROVAL), "entry.json": b"{}"})
    evidence = read_evidence(repository, REF, commit(repository, {PATH: None}, head, message=told(head)), frozenset())
    assert evidence.approval is None
    assert evidence.problem


def test_a_commit_that_is_not_here_or_has_no_parent(repository: GitRepository) -> None:
    absent = read_evidence(repository, REF, "1" * 40, frozenset())
    assert (absent.approval, absent.on_chain, bool(absent.problem)) == (None, False, True)
    lone = commit(repository, {PATH: write_approval(APPROVAL)}, message=told("1" * 40))
    evidence = read_evidence(repository, REF, lone, frozenset({lone}))
    assert (evidence.parents, evidence.on_chain, evidence.approval) == ((), False, APPROVAL)


def test_a_flood_of_paths_is_cut(repository: GitRepository, head: str) -> None:
    files: dict[str, bytes | None] = {f"flood/{number}": b"" for number in range(1000)}
    one = commit(repository, {PATH: write_approval(APPROVAL), **files}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert len(evidence.changed_paths) == 100
    assert evidence.problem
