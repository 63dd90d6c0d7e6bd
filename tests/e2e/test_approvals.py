"""Approvals that must not count: of strangers, of authors, for something else, used, late, forged. Who may change the rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.model.approval import Approval, ApprovalStatement
from gitops.cluster.model.outcome import ApproveOutcome
from gitops.forge.merge import MergeMethod
from gitops.forge.port import RequestState
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.signatures import sign
from tests.support.loop import (
    APPROVALS,
    CLUSTER_YAML,
    CONFIG,
    DELETE_LEGACY,
    LEDGER,
    MAIN,
    SIGNERS,
    TRUSTED,
    Loop,
    codes,
    email,
)
from tests.support.signed import signer

pytestmark = pytest.mark.e2e

Forger = Callable[[Loop, Approval, ApprovalStatement], str]
NOW = datetime.now(UTC)  # noqa: TID251 - the product's clock is the machine's here
LONG_AGO, MUCH_LATER = "2001-01-01T00:00:00Z", "2091-01-01T00:00:00Z"


def _code(outcome: ApproveOutcome) -> str:
    """Why an approval was not even made."""
    assert outcome.approval is None
    (problem,) = [d for d in outcome.diagnostics if d.severity == "error"]
    return problem.code


def _given(loop: Loop, who: str, address: str = "graph.legacy") -> list[str]:
    """Approve what is merged; what the bot then says."""
    outcome = loop.sign_approval(who, address)
    assert outcome.approval is not None, outcome.diagnostics
    return loop.arrived(APPROVALS + outcome.approval.approval_id)


def _placed(loop: Loop, commit: str) -> list[str]:
    """Put an approval commit where approvals are looked for, past the guard; what the bot then says."""
    name = f"{APPROVALS}01BBBBBBBBBBBBBBBBBBBBBBBB"
    loop.store.update_refs([RefUpdate(name, ZERO, commit)])
    return loop.arrived(name)


# Forged and misused


def _signed(key: str | None, approved_by: str | None = None, **statement: object) -> Forger:
    def forge(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
        document = replace(approval, approved_by=approved_by or approval.approved_by)
        return loop.write_approval(document, replace(told, **statement), key)  # type: ignore[arg-type]

    return forge


def _elsewhere(**target: str) -> Forger:
    def forge(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
        return loop.write_approval(approval, replace(told, target=replace(told.target, **target)), "bob")

    return forge


def _document(**fields: object) -> Forger:
    def forge(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
        return loop.write_approval(replace(approval, **fields), told, "bob")  # type: ignore[arg-type]

    return forge


def _parts(loop: Loop, approval: Approval, told: ApprovalStatement) -> tuple[dict[str, bytes | None], str]:
    files: dict[str, bytes | None] = {
        f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval),
    }
    sign = signer(loop.store, loop.key("bob"))
    return files, statement_message(told, f"{approval.operation} {approval.resource}", sign=sign)


def _tampered(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
    raw = loop.store._read(loop.write_approval(approval, told, "bob"), "commit")
    return loop.store._write("commit", raw.replace(told.nonce.encode(), told.nonce[::-1].encode()))


def _namespace(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
    files, message = _parts(loop, approval, told)
    tree = loop.store.write_files(loop.store.commit(told.ledger_head).tree, files)
    raw = format_commit(NewCommit(tree, (told.ledger_head,), Person("bob", email("bob"), 1), message))
    return loop.store._write("commit", with_signature(raw, sign(raw, str(loop.key("bob")), namespace="file")))


def _extra_file(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
    files, message = _parts(loop, approval, told)
    files["__cluster/state.json"] = b"{}"
    return loop.commit("bob", files, told.ledger_head, message=message, key="bob")


def _second_parent(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
    files, message = _parts(loop, approval, told)
    return loop.commit("bob", files, told.ledger_head, loop.tip(), message=message, key="bob")


def _off_the_ledger(loop: Loop, approval: Approval, told: ApprovalStatement) -> str:
    fork = loop.commit("bob", {}, told.ledger_head, key="bob")
    return loop.write_approval(approval, replace(told, ledger_head=fork), "bob")


FORGERIES: dict[str, tuple[str, Forger]] = {
    "unknown key": ("approval_signer_unknown", _signed("mallory")),
    "unknown key in its own name": ("approval_signer_unknown", _signed("mallory", email("mallory"))),
    "no signature": ("approval_unsigned", _signed(None)),
    "in the name of another": ("approval_malformed", _signed("carol")),
    "the author": ("approval_self", _signed("alice", email("alice"))),
    "the bot": ("approval_signer_not_allowed", _signed("bot", email("bot"))),
    "changed after signing": ("approval_signature_invalid", _tampered),
    "signed for another purpose": ("approval_signature_invalid", _namespace),
    "two parents": ("approval_malformed", _second_parent),
    "beside the ledger": ("approval_malformed", _off_the_ledger),
    "other cluster": ("approval_wrong_target", _elsewhere(cluster="other")),
    "other repository": ("approval_wrong_target", _elsewhere(repository="other")),
    "other environment": ("approval_wrong_target", _elsewhere(environment="staging")),
    "other branch": ("approval_wrong_target", _elsewhere(ref="refs/heads/next")),
    "other folder": ("approval_wrong_target", _elsewhere(path="other")),
    "past its own time": ("approval_expired", _signed("bob", expires_at=LONG_AGO)),
    "longer than the rules allow": ("approval_expired", _document(created_at=LONG_AGO)),
    "other folder content": ("approval_stale", _signed("bob", cluster_tree="1" * 40)),
    "other rules": ("approval_stale", _signed("bob", policy_digest="1" * 64)),
    "other change": ("approval_stale", _signed("bob", change_digest="1" * 64)),
    "other state before": ("approval_stale", _document(bound_before_digest="1" * 64)),
    "other state after": ("approval_stale", _document(bound_after_digest="1" * 64)),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_approval_does_not_count_and_does_no_harm(pending: Loop, forgery: str) -> None:
    code, forge = FORGERIES[forgery]
    outcome = pending.sign_approval("bob", "graph.legacy")
    assert outcome.approval is not None
    assert outcome.commit is not None
    (ref,) = pending.approvals()
    pending.drop(ref)
    approval, statement = pending.evidence(outcome.commit)
    if forgery == "longer than the rules allow":
        statement = replace(statement, expires_at=MUCH_LATER)

    lines = _placed(pending, forge(pending, approval, statement))
    assert code in codes(lines)
    assert pending.graph("legacy").exists()
    assert pending.status(pending.tip(), "apply").startswith("failure")
    assert len(pending.store.commit(pending.tip(LEDGER)).parents) == 1

    _given(pending, "carol")
    assert not pending.graph("legacy").exists()


def test_what_is_wrong_with_another_approval_is_said_once(pending: Loop) -> None:
    genuine = pending.sign_approval("bob", "graph.legacy")
    (ref,) = pending.approvals()
    pending.drop(ref)
    approval, statement = pending.evidence(genuine.commit or "")
    _placed(pending, _signed(None)(pending, approval, statement))
    outcome = pending.sign_approval("carol", "graph.legacy")
    assert outcome.approval is not None
    assert [d.code for d in outcome.diagnostics] == ["approval_unsigned"]


@pytest.mark.parametrize("key", [None, "mallory"])
def test_a_forged_approval_does_not_hide_why_a_real_one_does_not_count(pending: Loop, key: str | None) -> None:
    """Of a person's approvals for other changes, only the newest is reported; one that somebody forged is none of theirs."""
    genuine = pending.sign_approval("bob", "graph.legacy")
    (ref,) = pending.approvals()
    pending.drop(ref)
    approval, statement = pending.evidence(genuine.commit or "")
    assert "approval_stale" in codes(
        _placed(pending, _signed("bob", cluster_tree="1" * 40)(pending, approval, statement))
    )
    last = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    document, told = replace(approval, approval_id=last), replace(statement, approval_id=last, cluster_tree="1" * 40)
    pending.store.update_refs([RefUpdate(f"{APPROVALS}{last}", ZERO, pending.write_approval(document, told, key))])
    lines = pending.arrived(f"{APPROVALS}{last}")
    assert {"approval_stale", "approval_unsigned" if key is None else "approval_signer_unknown"} <= set(codes(lines))


def test_who_has_no_key_cannot_approve(pending: Loop) -> None:
    home = pending.home("bob")
    (home / ".gitconfig").write_text(f"[user]\n\tname = bob\n\temail = {email('bob')}\n")
    asked = pending.confirmed("bob", "approve", "graph.legacy")
    assert (asked.code, re.findall(r"^ERROR (\w+)", asked.text, re.MULTILINE)) == (2, ["signing_key_missing"])
    assert pending.approvals() == ()


def test_stranger_is_refused_by_the_command_and_by_the_server(pending: Loop) -> None:
    asked = pending.confirmed("mallory", "approve", "graph.legacy")
    assert (asked.code, "approval_signer_unknown" in asked.text) == (1, True)
    genuine = pending.sign_approval("bob", "graph.legacy")
    (ref,) = pending.approvals()
    pending.drop(ref)
    approval, statement = pending.evidence(genuine.commit or "")
    forged = pending.write_approval(approval, statement, "mallory", away=True)
    pushed = pending.push("mallory", f"{forged}:{ref}", check=False)
    assert pushed.code
    assert "approval_signer_unknown" in pushed.text
    assert pending.approvals() == ()


def test_approval_that_carries_more_than_its_document_is_none(pending: Loop) -> None:
    genuine = pending.sign_approval("bob", "graph.legacy")
    (ref,) = pending.approvals()
    pending.drop(ref)
    extra = _extra_file(pending, *pending.evidence(genuine.commit or ""))
    pushed = pending.push("bob", f"{extra}:{ref}", check=False)
    assert pushed.code
    assert "approval_malformed" in pushed.text
    _placed(pending, extra)
    assert pending.graph("legacy").exists()


def test_approval_is_not_used_twice(pending: Loop) -> None:
    _given(pending, "bob")
    assert not pending.graph("legacy").exists()
    (used,) = pending.approvals()
    first = pending.tip()
    # Back again by the approver: that needs no approval, so one of an earlier change is not checked against it.
    back = pending.move(MAIN, pending.commit("bob", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
    assert pending.graph("legacy").exists()
    assert not {"approval_self", "approval_spent"} & set(codes(back))

    # A request to delete it again misses an approval; the old one is not the reason.
    pending.move("refs/heads/again", pending.commit("alice", DELETE_LEGACY, message="Again\n"))
    (proposed,) = pending.book.requests(state=RequestState.OPEN)
    told = pending.comment(proposed.number)
    assert "graph.legacy" in told
    assert "consumed" not in told
    assert "approval_spent" not in told

    # The same bytes, deleted again: the old approval is for exactly this, but it is used up.
    lines = pending.move(MAIN, pending.commit("alice", DELETE_LEGACY, message="Again\n"))
    trees = [pending.store.subtree(pending.store.commit(c).tree, "cluster") for c in (first, pending.tip())]
    assert trees[0] == trees[1]
    assert "approval_spent" in codes(lines)
    copy = f"{APPROVALS}01AAAAAAAAAAAAAAAAAAAAAAAA"
    pending.store.update_refs([RefUpdate(copy, ZERO, pending.tip(used))])
    assert "approval_spent" in codes(pending.arrived(copy))
    assert pending.graph("legacy").exists()

    _given(pending, "bob")
    assert not pending.graph("legacy").exists()


def test_approval_expires(pending: Loop) -> None:
    assert pending.sign_approval("bob", "graph.legacy").ok
    assert "approval_expired" in codes(pending.arrived(pending.approvals()[0], at=NOW + timedelta(days=8)))
    assert pending.graph("legacy").exists()


def test_approval_expires_by_the_rule_of_the_repository(short: Loop) -> None:
    short.move(MAIN, short.commit("alice", DELETE_LEGACY))
    assert short.sign_approval("bob", "graph.legacy").ok
    later = datetime.now(UTC) + timedelta(hours=2)  # noqa: TID251 - the approval was given a moment ago
    assert "approval_expired" in codes(short.arrived(short.approvals()[0], at=later))
    _given(short, "bob")
    assert not short.graph("legacy").exists()


# Authors


def test_author_is_refused_before_and_after_the_merge(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert _code(loop.sign_approval("alice", "graph.legacy", request=1)) == "approval_self"
    loop.merge("carol", 1)
    assert _code(loop.sign_approval("alice", "graph.legacy")) == "approval_self"
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Something else.\n"}))
    assert _code(loop.sign_approval("alice", "graph.legacy")) == "approval_self"
    _given(loop, "carol")
    assert not loop.graph("legacy").exists()


def test_who_signs_a_commit_of_the_request_is_an_author(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("mallory", DELETE_LEGACY, key="bob"))
    assert _code(loop.sign_approval("bob", "graph.legacy", request=1)) == "approval_self"


def test_earlier_author_of_the_same_request_stays_one(loop: Loop) -> None:
    first = loop.commit("bob", DELETE_LEGACY)
    loop.move("refs/heads/retire", loop.commit("alice", {"README.md": b"On top.\n"}, first))
    assert _code(loop.sign_approval("bob", "graph.legacy", request=1)) == "approval_self"


@pytest.mark.parametrize("method", list(MergeMethod))
def test_every_author_of_a_merged_request_stays_one(loop: Loop, method: MergeMethod) -> None:
    """A squash has one author, and a rebase loses the signature: what they were made of is asked."""
    first = loop.commit("bob", {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    at: String?\n}\n"})
    second = loop.commit("mallory", DELETE_LEGACY, first, key="carol")
    loop.move("refs/heads/retire", loop.commit("mallory", {"cluster/README.md": b"At last.\n"}, second))
    loop.merge("alice", 1, method)
    for who in ("bob", "carol"):
        assert _code(loop.sign_approval(who, "graph.legacy")) == "approval_self"
    _given(loop, "alice")
    assert not loop.graph("legacy").exists()


def test_author_of_what_is_applied_may_approve_what_comes_next(loop: Loop) -> None:
    loop.move("refs/heads/words", loop.commit("bob", {"cluster/README.md": b"Better words.\n"}), pusher=email("bob"))
    loop.merge("carol", 1)
    notes = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    by: String?\n}\n"}
    loop.move(MAIN, loop.commit("bob", notes), pusher=email("bob"))
    assert loop.status(loop.tip(), "apply").startswith("success")
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY), pusher=email("alice"))
    _given(loop, "bob")
    assert not loop.graph("legacy").exists()


def test_who_pushes_is_an_author_whatever_the_commit_says(web: Loop) -> None:
    head = web.commit("alice", DELETE_LEGACY, away=True)
    web.push("bob", f"{head}:refs/heads/retire")
    assert web.request(1).pushers == (email("bob"),)
    for who in ("alice", "bob"):
        assert _code(web.sign_approval(who, "graph.legacy", request=1)) == "approval_self"
    assert web.sign_approval("carol", "graph.legacy", request=1).ok


def test_merging_the_work_of_others_makes_nobody_its_author(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    loop.merge("bob", 1)
    assert _code(loop.sign_approval("alice", "graph.legacy")) == "approval_self"
    _given(loop, "bob")
    assert not loop.graph("legacy").exists()


def test_who_pushes_to_the_target_branch_is_an_author(loop: Loop) -> None:
    """No request is involved, and the commit claims another author."""
    loop.move(MAIN, loop.commit("mallory", DELETE_LEGACY), pusher=email("bob"))
    assert _code(loop.sign_approval("bob", "graph.legacy")) == "approval_self"
    _given(loop, "carol")
    assert not loop.graph("legacy").exists()


def test_who_adds_to_a_merge_is_an_author(loop: Loop) -> None:
    """The push brings request 1 in, and one commit more that claims another author."""
    head = loop.commit("alice", {"cluster/README.md": b"Better words.\n"})
    loop.move("refs/heads/words", head)
    merge = loop.commit("carol", {"cluster/README.md": b"Better words.\n"}, loop.tip(), head)
    loop.move(MAIN, loop.commit("mallory", DELETE_LEGACY, merge), pusher=email("bob"))
    assert _code(loop.sign_approval("bob", "graph.legacy")) == "approval_self"
    assert loop.sign_approval("carol", "graph.legacy").ok


# How many


def test_two_distinct_people_where_two_are_required(quorum: Loop) -> None:
    head = quorum.commit("alice", DELETE_LEGACY)
    quorum.move("refs/heads/retire", head)
    for who in ("bob", "bob"):
        assert quorum.sign_approval(who, "graph.legacy", request=1).ok
    quorum.arrived(quorum.approvals()[-1])
    assert quorum.status(head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    quorum.merge("carol", 1)
    assert quorum.graph("legacy").exists()
    _given(quorum, "carol")
    assert not quorum.graph("legacy").exists()
    entry = quorum.applied()
    assert len(entry.parents) == 4  # also the second approval of the same person is spent
    assert {quorum.store.commit(p).author.email for p in entry.parents[1:]} == {email("bob"), email("carol")}


# Whom to trust


def _with_mallory(loop: Loop) -> dict[str, bytes | None]:
    config = CONFIG.replace("carol@people.example]", "carol@people.example, mallory@people.example]")
    return {"gitops.yaml": config.encode(), SIGNERS: loop.signers(*TRUSTED, "mallory")}


def test_new_key_counts_only_once_it_is_approved_under_the_old_rules(pending: Loop) -> None:
    head = pending.commit("alice", _with_mallory(pending))
    pending.move("refs/heads/keys", head)
    assert "trust.brain" in pending.status(head, "plan")
    assert _code(pending.sign_approval("mallory", "trust.brain", request=2)) == "approval_signer_unknown"
    assert _code(pending.sign_approval("alice", "trust.brain", request=2)) == "approval_self"
    pending.merge("carol", 2)
    for address in ("trust.brain", "graph.legacy"):
        assert _code(pending.sign_approval("mallory", address)) == "approval_signer_unknown"
    _given(pending, "bob", "trust.brain")
    assert pending.graph("legacy").exists()
    _given(pending, "mallory")
    assert not pending.graph("legacy").exists()
    pending.program("bob", "git", "fetch", "-q", "origin")
    assert pending.gitops("bob", "audit").code == 0


def test_author_of_new_rules_cannot_wait_until_nobody_remembers(loop: Loop) -> None:
    """The change of keys is outside of the cluster folder, waits, and other commits land on top of it."""
    loop.move("refs/heads/keys", loop.commit("alice", _with_mallory(loop)))
    loop.merge("carol", 1)
    assert _code(loop.sign_approval("alice", "trust.brain")) == "approval_self"
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Other things.\n"}))
    assert _code(loop.sign_approval("alice", "trust.brain")) == "approval_self"
    loop.move(MAIN, loop.commit("carol", {"cluster/README.md": b"Other words.\n"}))
    assert _code(loop.sign_approval("alice", "trust.brain")) == "approval_self"
    _given(loop, "bob", "trust.brain")
    assert loop.status(loop.tip(), "apply").startswith("success")


def test_pusher_of_new_rules_is_remembered_too(loop: Loop) -> None:
    loop.move("refs/heads/keys", loop.commit("mallory", _with_mallory(loop)), pusher=email("bob"))
    loop.merge("carol", 1)
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Other things.\n"}))
    approved = loop.sign_approval("bob", "trust.brain")
    lines = [line for ref in loop.approvals() for line in loop.arrived(ref)]
    assert approved.approval is None or "approval_self" in codes(lines)
    assert loop.status(loop.tip(), "apply").startswith("failure")


def test_who_pushes_new_rules_to_the_target_branch_is_remembered(loop: Loop) -> None:
    """No commit says who pushed, and nothing but the rules changed: the ledger alone can carry it on."""
    loop.move(MAIN, loop.commit("mallory", _with_mallory(loop)), pusher=email("bob"))
    assert _code(loop.sign_approval("bob", "trust.brain")) == "approval_self"
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Other things.\n"}))
    assert _code(loop.sign_approval("bob", "trust.brain")) == "approval_self"
    before = loop.tip(LEDGER)
    loop.arrived(MAIN)
    assert loop.tip(LEDGER) == before
    _given(loop, "alice", "trust.brain")
    assert loop.status(loop.tip(), "apply").startswith("success")
    loop.program("bob", "git", "fetch", "-q", "origin")
    assert loop.gitops("bob", "audit").code == 0


def test_rules_that_are_removed_hold_until_their_removal_is_approved(loop: Loop) -> None:
    """Alice drops bob, who would object; until carol agrees, bob can approve, and afterwards he cannot."""
    config = CONFIG.replace(" bob@people.example,", "")
    without = {"gitops.yaml": config.encode(), SIGNERS: loop.signers("bot", "alice", "carol")}
    loop.move(MAIN, loop.commit("alice", {**without, **DELETE_LEGACY}))
    assert loop.sign_approval("bob", "graph.legacy").ok
    (waiting,) = loop.approvals()
    before = loop.tip(waiting)
    loop.drop(waiting)
    _given(loop, "carol", "trust.brain")
    assert _code(loop.sign_approval("bob", "graph.legacy")) == "approval_signer_unknown"
    assert "approval_signer_unknown" in codes(_placed(loop, before))
    assert loop.graph("legacy").exists()
    _given(loop, "carol")
    assert not loop.graph("legacy").exists()
