"""Signed approvals: one refusal per numbered step, what a digest covers, and counting people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.approvals.verify import (
    STEPS,
    ApprovalNeed,
    change_digest,
    covers_change,
    one_per_person,
    verify_approval,
)
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    Approval,
    ApprovalEvidence,
    ApprovalStatement,
    ClusterTarget,
    ForgeGrant,
    GrantSource,
    Via,
)
from gitops.cluster.model.change import Action, Disposition, Reason
from gitops.cluster.model.trust import DataGrowth, Signer, TrustRoot
from gitops.core.clock import timestamp
from gitops.database.graph.port import MigrationPreview
from gitops.git.port import CommitSignature
from tests.support.planning import SEEN, change, hexed
from tests.support.signed import own_signature

NOW = datetime(2026, 6, 11, 8, tzinfo=UTC)
HEAD, COMMIT = "1" * 40, "2" * 40
CONFIG, POLICY, TREE = hexed("c"), hexed("d"), "3" * 40
TARGET = ClusterTarget("repo-1", "library", "production", "refs/heads/main", "clusters/library")
DELETE = change("graph.g", "delete")
TRUST = TrustRoot(
    digest=POLICY,
    signers=(
        Signer(("sam",), "KEY-SAM", "ssh-ed25519"),
        Signer(("alex",), "KEY-ALEX", "ssh-ed25519"),
        Signer(("visitor",), "KEY-VISITOR", "ssh-ed25519"),
        Signer(("bot",), "KEY-BOT", "ssh-ed25519"),
    ),
    approvers=frozenset({"sam", "alex"}),
    ledger_signers=frozenset({"bot"}),
)
NEED = ApprovalNeed(TARGET, TREE, CONFIG, POLICY, DELETE, NOW)


def approval(by: str = "sam", identity: str = "AP1") -> Approval:
    created = timestamp(NOW - timedelta(hours=1))
    return Approval(
        identity, Address("graph.g"), Action.DELETE, "why", CONFIG, DELETE.before, None, by, created, seen=SEEN
    )


def statement(identity: str = "AP1") -> ApprovalStatement:
    return ApprovalStatement(
        approval_id=identity,
        target=TARGET,
        cluster_tree=TREE,
        plan_digest=hexed("e"),
        config_digest=CONFIG,
        change_digest=change_digest(DELETE),
        policy_digest=POLICY,
        ledger_head=HEAD,
        expires_at=timestamp(NOW + timedelta(days=1)),
        nonce="N",
        seen=SEEN,
    )


def signature(by: str = "sam") -> CommitSignature:
    return CommitSignature(signed=True, good=True, key=f"KEY-{by.upper()}", key_type="ssh-ed25519", namespace="git")


def evidence(by: str = "sam", identity: str = "AP1") -> ApprovalEvidence:
    return ApprovalEvidence(
        commit=COMMIT,
        ref=f"refs/gitops/approvals/{identity}",
        parents=(HEAD,),
        changed_paths=(f"__cluster/approvals/{identity}.json",),
        approval=approval(by, identity),
        statement=statement(identity),
        signature=signature(by),
        on_chain=True,
        own_signature=own_signature(f"KEY-{by.upper()}"),
    )


GOOD = evidence()


def refusal(item: ApprovalEvidence = GOOD, need: ApprovalNeed = NEED, trust: TrustRoot = TRUST) -> tuple[str, str]:
    verdict = verify_approval(item, need, trust)
    assert not verdict.accepted
    assert verdict.principal is None
    (problem,) = verdict.diagnostics
    assert problem.code in STEPS[problem.step - 1].codes
    assert problem.path == need.change.address
    assert COMMIT[:12] in problem.message
    return problem.code, problem.message


def test_good_evidence_counts_for_its_signer():
    verdict = verify_approval(GOOD, NEED, TRUST)
    assert verdict.accepted
    assert verdict.principal == "sam"


@pytest.mark.parametrize(
    "item",
    [
        replace(GOOD, problem="the document is not JSON"),
        replace(GOOD, approval=None),
        replace(GOOD, statement=None),
        replace(GOOD, parents=()),
        replace(GOOD, parents=(HEAD, "4" * 40)),
        replace(GOOD, parents=("4" * 40,)),
        replace(GOOD, on_chain=False),
        replace(GOOD, changed_paths=()),
        replace(GOOD, changed_paths=(*GOOD.changed_paths, "cluster.yaml")),
        replace(GOOD, changed_paths=("__cluster/approvals/AP2.json",)),
        replace(GOOD, statement=replace(statement(), approval_id="AP2")),
        replace(GOOD, statement=replace(statement(), config_digest=hexed("0"))),
        replace(GOOD, approval=replace(approval(), bound_config_digest=hexed("0"))),
    ],
)
def test_step_1_form(item):
    assert refusal(item)[0] == "approval_malformed"


def test_step_1_comes_before_the_signature():
    assert (
        refusal(replace(GOOD, parents=(), signature=CommitSignature(signed=False, good=False)))[0]
        == "approval_malformed"
    )


def test_step_2_unsigned():
    assert refusal(replace(GOOD, signature=CommitSignature(signed=False, good=False)))[0] == "approval_unsigned"


@pytest.mark.parametrize(
    "bad",
    [
        replace(signature(), good=False, problem="two signatures"),
        replace(signature(), good=False),
        replace(signature(), namespace="file"),
        replace(signature(), namespace=""),
    ],
)
def test_step_2_signature(bad):
    code, message = refusal(replace(GOOD, signature=bad))
    assert code == "approval_signature_invalid"
    assert bad.problem in message


@pytest.mark.parametrize(
    "inner",
    [
        None,
        replace(own_signature("KEY-SAM"), good=False),
        replace(own_signature("KEY-SAM"), namespace="git"),
        own_signature("KEY-ALEX"),
    ],
    ids=["absent", "bad", "of another purpose", "by another key"],
)
def test_step_2_the_statement_is_signed_by_the_key_of_its_commit(inner):
    assert refusal(replace(GOOD, own_signature=inner))[0] == "approval_signature_invalid"


@pytest.mark.parametrize("version", [1, 2])
def test_step_2_what_the_first_release_signed_counts_for_its_own_entries_alone(version):
    early = replace(GOOD, statement=replace(statement(), version=version), own_signature=None)
    code, message = refusal(early)
    assert code == "approval_stale"
    assert "approve again" in message
    assert verify_approval(early, replace(NEED, version=2), TRUST).accepted


@pytest.mark.parametrize(
    "trust",
    [
        replace(TRUST, signers=()),
        replace(TRUST, revoked=frozenset({"KEY-SAM"})),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", namespaces=("file",)),)),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", valid_before=NOW),)),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", valid_after=NOW + timedelta(seconds=1)),)),
    ],
)
def test_step_3_unknown_signer(trust):
    assert refusal(trust=trust)[0] == "approval_signer_unknown"


def test_step_3_a_key_counts_in_its_time():
    window = Signer(("sam",), "KEY-SAM", "ssh-ed25519", ("git",), NOW, NOW + timedelta(seconds=1))
    assert verify_approval(GOOD, NEED, replace(TRUST, signers=(window,))).accepted


def test_step_3_in_the_name_of_another():
    code, message = refusal(replace(GOOD, approval=approval("alex")))
    assert code == "approval_malformed"
    assert "sam in the name of alex" in message


@pytest.mark.parametrize("by", ["visitor", "bot"])
def test_step_4_not_an_approver(by):
    assert refusal(evidence(by))[0] == "approval_signer_not_allowed"


def test_step_4_the_ledger_signer_never_approves_even_if_everybody_may():
    assert refusal(evidence("bot"), trust=replace(TRUST, approvers=frozenset()))[0] == "approval_signer_not_allowed"
    assert verify_approval(evidence("visitor"), NEED, replace(TRUST, approvers=frozenset())).accepted


@pytest.mark.parametrize("author", ["sam", "SAM"])
def test_step_4_own_change(author):
    assert refusal(need=replace(NEED, authors=frozenset({"alex", author})))[0] == "approval_self"


@pytest.mark.parametrize("name", ["sam", "sam@home.example", "SAM@work.example"])
def test_step_4_own_change_under_any_name_of_the_key(name):
    signers = (Signer(("sam", "sam@home.example", "sam@work.example"), "KEY-SAM", "ssh-ed25519"), *TRUST.signers[1:])
    need = replace(NEED, authors=frozenset({name}))
    assert refusal(need=need, trust=replace(TRUST, signers=signers))[0] == "approval_self"


@pytest.mark.parametrize("name", ["repository", "cluster", "environment", "ref", "path"])
def test_step_5_wrong_target(name):
    code, message = refusal(
        replace(GOOD, statement=replace(statement(), target=replace(TARGET, **{name: "elsewhere"})))
    )
    assert code == "approval_wrong_target"
    assert f"{name} 'elsewhere'" in message


def test_step_6_spent_by_the_ledger():
    assert refusal(need=replace(NEED, consumed=frozenset({"AP1"})))[0] == "approval_spent"


def test_step_6_spent_by_its_own_word():
    used = replace(approval(), consumed_at="2026-06-11T07:30:00Z")
    assert refusal(replace(GOOD, approval=used))[0] == "approval_spent"


@pytest.mark.parametrize(
    "item",
    [
        replace(GOOD, statement=replace(statement(), expires_at=timestamp(NOW))),
        replace(GOOD, statement=replace(statement(), expires_at="soon")),
        replace(GOOD, approval=replace(approval(), created_at="once")),
        replace(GOOD, approval=replace(approval(), created_at=timestamp(NOW - timedelta(days=7)))),
    ],
)
def test_step_6_expired(item):
    assert refusal(item)[0] == "approval_expired"


def test_step_6_the_rule_limits_what_an_approver_may_grant():
    generous = replace(GOOD, statement=replace(statement(), expires_at=timestamp(NOW + timedelta(days=900))))
    assert verify_approval(generous, NEED, TRUST).accepted
    assert refusal(generous, trust=replace(TRUST, expires_after=timedelta(minutes=59)))[0] == "approval_expired"


STALE = [
    ("the cluster folder changed", GOOD, replace(NEED, cluster_tree="4" * 40)),
    (
        "the cluster folder changed: a.gq, b.gq",
        replace(GOOD, moved=("a.gq", "b.gq")),
        replace(NEED, cluster_tree="4" * 40),
    ),
    ("and 2 more", replace(GOOD, moved=tuple("abcdefg")), replace(NEED, cluster_tree="4" * 40)),
    ("it is for delete graph.g", GOOD, replace(NEED, change=change("graph.h", "delete"))),
    ("it is for delete graph.g", GOOD, replace(NEED, change=change("graph.g", "create"))),
    ("the configuration changed", GOOD, replace(NEED, config_digest=hexed("0"))),
    ("the recorded state of the resource changed", GOOD, replace(NEED, change=change("graph.g", "delete", "f"))),
    (
        "the desired state of the resource changed",
        replace(GOOD, approval=replace(approval(), bound_after_digest=hexed("0"))),
        NEED,
    ),
    ("the change changed", replace(GOOD, statement=replace(statement(), change_digest=hexed("0"))), NEED),
    ("the approval rules changed", GOOD, replace(NEED, policy_digest=hexed("0"))),
]


@pytest.mark.parametrize(("said", "item", "need"), STALE, ids=[case[0] for case in STALE])
def test_step_7_stale_says_what_moved(said, item, need):
    code, message = refusal(item, need)
    assert code == "approval_stale"
    assert said in message


GRANT = ForgeGrant("github:1", "sam", 1, GrantSource.REVIEW, "9", "4" * 40, timestamp(NOW))
SHARED = [
    (1, "approval_malformed", replace(GOOD, on_chain=False), NEED),
    (2, "approval_stale", replace(GOOD, statement=replace(statement(), version=2)), NEED),
    (3, "approval_malformed", replace(GOOD, approval=approval("alex")), NEED),
    (3, "approval_signer_not_allowed", replace(GOOD, statement=replace(statement(), via=Via.FORGE, grant=GRANT)), NEED),
    (4, "approval_signer_not_allowed", evidence("visitor"), NEED),
    (7, "approval_stale", GOOD, replace(NEED, config_digest=hexed("0"))),
]


@pytest.mark.parametrize(("step", "code", "item", "need"), SHARED, ids=[f"{case[0]} {case[1]}" for case in SHARED])
def test_a_code_of_several_steps_says_at_which_one_it_refused(step, code, item, need):
    (problem,) = verify_approval(item, need, TRUST).diagnostics
    assert (problem.step, problem.code) == (step, code)


# Digests.


def test_the_digest_of_a_change_is_its_effect_and_nothing_else():
    one = change("schema.g", "update")
    same = replace(one, disposition=Disposition.BLOCKED, reason=Reason.APPROVAL_REQUIRED)
    assert change_digest(same) == change_digest(one)
    others = [
        change("schema.h", "update"),
        change("schema.g", "update", before="0"),
        change("schema.g", "update", after="0"),
        change("schema.g", "delete"),
        replace(one, binding_change=True),
        replace(one, migration=MigrationPreview(True, ({"kind": "add_property"},))),
        replace(one, migration=MigrationPreview(True, ({"kind": "drop_property"},))),
    ]
    assert len({change_digest(c) for c in [one, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    "item",
    [
        replace(approval(), consumed_at="2026-06-11T07:30:00Z"),
        replace(approval(), resource=Address("graph.h")),
        replace(approval(), operation=Action.UPDATE),
        replace(approval(), bound_config_digest=hexed("0")),
        replace(approval(), bound_before_digest=None),
        replace(approval(), bound_after_digest=hexed("0")),
    ],
)
def test_a_document_covers_one_change_only(item):
    assert covers_change(approval(), DELETE, CONFIG, DataGrowth())
    assert not covers_change(item, DELETE, CONFIG, DataGrowth())


# Counting.


def test_people_are_counted_once_and_refused_evidence_never():
    items = [evidence("sam", "AP3"), evidence("alex", "AP2"), evidence("sam", "AP1"), evidence("visitor", "AP0")]
    verdicts = [verify_approval(item, NEED, TRUST) for item in items]
    for order in (verdicts, verdicts[::-1]):
        assert [(v.principal, v.evidence.ref[-3:]) for v in one_per_person(order)] == [("sam", "AP1"), ("alex", "AP2")]
