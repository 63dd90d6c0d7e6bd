"""What git itself calls a good signature, and what must not count for all that: measured pitfalls, each as a commit on a server.

Their numbers are those of `tests/data/forge_acceptance.tsv`, where the other pitfalls name the tests that are about them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.model.approval import STATEMENT_VERSION, Approval, ApprovalStatement
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.signatures import sign
from tests.support.loop import APPROVALS, CONFIG, DELETE_LEGACY, LEDGER, MAIN, SIGNERS, Loop, codes, email
from tests.support.signed import signer

pytestmark = pytest.mark.e2e

PLACE = f"{APPROVALS}01BBBBBBBBBBBBBBBBBBBBBBBB"
BEFORE_IT_EXPIRED = 1_500_000_000
OTHER_SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n\niQEzBAABCAAdFiEE\n=abcd\n-----END PGP SIGNATURE-----"


def _made(loop: Loop, who: str = "bob") -> tuple[Approval, ApprovalStatement]:
    """What somebody's approval of the pending delete says; the approval itself is taken away again."""
    made = loop.sign_approval(who, "graph.legacy")
    (ref,) = loop.approvals()
    loop.drop(ref)
    return loop.evidence(made.commit or "")


def _commit(loop: Loop, approval: Approval, told: ApprovalStatement, committer: Person, who: str = "bob") -> NewCommit:
    """The commit of an approval by any committer at any time; `who` signed the statement."""
    files = {f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval)}
    tree = loop.store.write_files(loop.store.commit(told.ledger_head).tree, files)
    message = statement_message(
        told, f"{approval.operation} {approval.resource}", sign=signer(loop.store, loop.key(who))
    )
    return NewCommit(tree, (told.ledger_head,), committer, message)


def _placed(loop: Loop, commit: str) -> list[str]:
    """Put a commit where approvals are looked for, past the guard; what the bot then says."""
    loop.store.update_refs([RefUpdate(PLACE, ZERO, commit)])
    return loop.arrived(PLACE)


def _refused(loop: Loop, lines: list[str], code: str) -> None:
    assert code in codes(lines)
    assert loop.graph("legacy").exists()
    assert loop.tip(PLACE) not in loop.store.commit(loop.tip(LEDGER)).parents


def test_the_committer_is_a_name_and_the_key_is_the_person(pending: Loop) -> None:
    """Row 1: git says "good" of a commit by alice that bob signed. It is bob's approval, not the author's own."""
    approval, told = _made(pending)
    commit = _commit(pending, approval, told, Person("alice", email("alice"), BEFORE_IT_EXPIRED))
    _placed(pending, pending.store.write_commit(commit, signing_key=str(pending.key("bob"))))
    assert not pending.graph("legacy").exists()
    entry = pending.applied()
    pending.program("bob", "git", "fetch", "-q", "origin")
    assert f"approved by {email('bob')}" in pending.gitops("bob", "log").text
    assert entry.parents[1:] == (pending.tip(PLACE),)


def test_a_committer_with_a_good_name_and_a_strange_key_is_nobody(pending: Loop) -> None:
    """Row 1, the other way round: bob's name, mallory's key."""
    approval, told = _made(pending)
    commit = _commit(pending, approval, told, Person("bob", email("bob"), BEFORE_IT_EXPIRED), "mallory")
    forged = pending.store.write_commit(commit, signing_key=str(pending.key("mallory")))
    _refused(pending, _placed(pending, forged), "approval_signer_unknown")


@pytest.mark.parametrize("version", [1, 3])
def test_amending_a_commit_that_somebody_drafted_approves_nothing(pending: Loop, version: int) -> None:
    """Mallory drafts bob's approval, as either release would write it; bob signs it as he signs every commit."""
    approval, told = _made(pending)
    pending.push("bob", f"{told.ledger_head}:refs/heads/topic")
    told = replace(told, version=version, seen=told.seen if version == STATEMENT_VERSION else None)
    draft = pending.write_approval(approval, told, "mallory", away=True)
    pending.push("mallory", f"{draft}:refs/heads/topic")
    pending.program("bob", "git", "fetch", "-q", "origin", "topic")
    pending.program("bob", "git", "checkout", "-q", "FETCH_HEAD")
    pending.program("bob", "git", "-c", "gpg.format=ssh", "commit", "-q", "--amend", "--no-edit", "-S")
    ref = f"{APPROVALS}{approval.approval_id}"
    pushed = pending.push("bob", f"HEAD:{ref}", check=False)
    code = "approval_stale" if version == 1 else "approval_signature_invalid"
    assert (pushed.code, code in pushed.text) == (1, True)
    pending.push("bob", "HEAD:refs/heads/topic", "--force")
    _refused(pending, _placed(pending, pending.tip("refs/heads/topic")), code)


def _with_rules(loop: Loop, files: dict[str, bytes | None]) -> None:
    """Other keys and rules, by alice, approved by carol: in force with the next entry."""
    loop.move(MAIN, loop.commit("alice", files))
    assert loop.sign_approval("carol", "trust.brain").ok
    for ref in loop.approvals():
        loop.arrived(ref)


def test_dating_a_commit_back_does_not_bring_an_expired_key_back(pending: Loop) -> None:
    """Row 2: ssh-keygen holds the end of a key against the commit's own date, which its author chooses."""
    kind, blob = pending.key("bob").with_suffix(".pub").read_text().split()[:2]
    expired = f'{email("bob")} namespaces="git",valid-before="20240101Z" {kind} {blob}\n'
    approval, told = _made(pending)
    _with_rules(pending, {SIGNERS: pending.signers("bot", "alice", "carol", others=expired)})
    told = replace(told, ledger_head=pending.tip(LEDGER))
    commit = _commit(pending, approval, told, Person("bob", email("bob"), BEFORE_IT_EXPIRED))
    forged = pending.store.write_commit(commit, signing_key=str(pending.key("bob")))
    _refused(pending, _placed(pending, forged), "approval_signer_unknown")


def test_a_revoked_key_approves_no_more_and_the_past_stands(pending: Loop) -> None:
    """Row 8: a revocation file takes back the whole past; here it counts from the entry that brought it."""
    assert pending.sign_approval("bob", "graph.legacy").ok
    pending.arrived(pending.approvals()[0])
    assert not pending.graph("legacy").exists()
    revoked = pending.key("bob").with_suffix(".pub").read_bytes()
    config = CONFIG + "  revoked_keys: .gitops/revoked_keys\n"
    _with_rules(pending, {"gitops.yaml": config.encode(), ".gitops/revoked_keys": revoked})
    pending.move(MAIN, pending.commit("alice", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"}))
    outcome = pending.sign_approval("bob", "graph.notes")
    assert [d.code for d in outcome.diagnostics if d.severity == "error"] == ["approval_signer_unknown"]
    pending.program("carol", "git", "fetch", "-q", "origin")
    audit = pending.gitops("carol", "audit")
    assert (audit.code, audit.text.splitlines()[0].startswith("audit good")) == (0, True)


@pytest.mark.parametrize("key", [None, "bob"])
def test_signatures_of_another_kind_are_none(pending: Loop, key: str | None) -> None:
    """Rows 10 and 11: git takes OpenPGP keys that nobody vouched for, and those that have ended; here only SSH keys speak."""
    approval, told = _made(pending)
    raw = format_commit(_commit(pending, approval, told, Person("bob", email("bob"), 1)))
    armored = OTHER_SIGNATURE if key is None else sign(raw, str(pending.key(key))).replace("SSH SIG", "PGP SIG")
    forged = pending.store._write("commit", with_signature(raw, armored))
    _refused(pending, _placed(pending, forged), "approval_signature_invalid")


def test_replacement_of_objects_is_not_followed(pending: Loop) -> None:
    """Row 12: with `refs/replace`, git verifies the good commit in place of the evil one."""
    approval, told = _made(pending)
    unsigned = pending.write_approval(approval, told, None)
    good = pending.write_approval(approval, told, "bob")
    pending.program("bot", "git", "replace", unsigned, good, at=pending.server)
    (pending.folder / "allowed").write_bytes(pending.signers("bob"))
    assert (
        "Good"
        in pending.program(
            "bot",
            "git",
            "-c",
            f"gpg.ssh.allowedSignersFile={pending.folder}/allowed",
            "verify-commit",
            unsigned,
            at=pending.server,
            check=False,
        ).text
    )
    _refused(pending, _placed(pending, unsigned), "approval_unsigned")


def test_an_approval_of_another_repository_is_none_here(pending: Loop) -> None:
    """Row 13: a signature is good wherever the commit is taken to; the statement says which repository was meant."""
    approval, told = _made(pending)
    target = replace(told.target, repository="another")
    genuine_there = pending.write_approval(approval, replace(told, target=target), "bob")
    _refused(pending, _placed(pending, genuine_there), "approval_wrong_target")


@pytest.mark.parametrize("parents", [1, 2])
def test_a_signed_merge_is_no_approval(loop: Loop, parents: int) -> None:
    """Row 14: whoever merges, squashes or rebases says nothing about the gate, even with a key that could open it."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    tree = loop.store.commit(head).tree
    given = (loop.tip(), head)[:parents]
    merged = NewCommit(tree, given, Person("bob", email("bob"), BEFORE_IT_EXPIRED), "Approve everything\n")
    lines = loop.move(MAIN, loop.store.write_commit(merged, signing_key=str(loop.key("bob"))))
    assert loop.graph("legacy").exists()
    assert any("needs" in line or "deferred" in line for line in lines)
    assert loop.status(loop.tip(), "apply").startswith("failure")
    assert loop.approvals() == ()
