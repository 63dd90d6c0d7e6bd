"""Revocation: who may take an approval back, that it then never counts, and that what was done stays done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.approvals.documents import decision_message, read_decision
from gitops.cluster.approving.decide import countersign, revoke
from gitops.cluster.ledger.branch import BranchLedger
from gitops.cluster.ledger.chain import REVOCATIONS
from gitops.cluster.model.approval import Decision, DecisionKind
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from tests.support.audited import CONFIG, Life, person
from tests.support.git_fixture import ssh_key
from tests.support.governed import (
    attested,
    branches,
    deleted,
    errors,
    grant,
    office,
    pushed_again,
    unlisted,
    waiting,
    warnings,
)
from tests.support.signed import drafted, signer

ULID = "01BX5ZZKBKACTAV9WEVGEMMVS0"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A delete by mallory waits."""
    return waiting(tmp_path)


@pytest.fixture
def given(life: Life) -> tuple[Life, str]:
    """The same with ada's approval."""
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    return life, ref.rpartition("/")[2]


@pytest.mark.parametrize(("who", "name"), [("ada", "ada"), ("ben", "ben@example.org"), ("bot", "bot")])
def test_the_approver_any_approver_and_the_bot_take_it_back(given: tuple[Life, str], who: str, name: str) -> None:
    life, identity = given
    (ref,) = branches(life)
    commit = life.git.resolve(ref) or ""
    done = revoke(office(life, who), identity, "not yet")
    assert (done.ok, done.decided_by, done.resource, done.deleted) == (True, name, "graph.legacy", (ref,))
    # The bot has the ledger's key, and records its own at once.
    assert done.recorded is (who == "bot")
    assert warnings(done) == ([] if done.recorded else ["revocation_not_recorded"])
    pushed_again(life, ref, commit)
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_revoked" in warnings(outcome)
    life.approve("ada", "graph.legacy")
    assert deleted(life.apply())
    assert life.audit(life.chain()[-1]).ok


def test_a_stranger_takes_nothing_back(given: tuple[Life, str]) -> None:
    life, identity = given
    refused = revoke(office(life, "mallory"), identity, "no")
    assert errors(refused) == ["decision_refused"]
    assert len(branches(life)) == 1
    assert deleted(life.apply())


def test_an_id_that_somebody_else_uses_too_takes_nothing_back(tmp_path: Path) -> None:
    """Ben is trusted and no approver: he gives an approval of his own the id of ada's, and takes that back."""
    life = waiting(tmp_path, CONFIG.replace("approvers: [ada, ben@example.org]", "approvers: [ada]"))
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    approval, said = life.approval(life.git.resolve(ref) or "")
    own = life.forge_approval(replace(approval, approved_by="ben@example.org"), said, "ben")
    life.git.update_refs([RefUpdate(ref, life.git.resolve(ref) or ZERO, own)])
    assert revoke(office(life, "ben"), approval.approval_id, "mine").ok
    again = life.forge_approval(approval, said, "ada")
    life.git.update_refs([RefUpdate(f"{ref}X", ZERO, again)])
    assert deleted(life.apply())


def test_of_two_approvals_with_one_id_the_one_on_the_branch_of_that_id_is_revoked(given: tuple[Life, str]) -> None:
    life, identity = given
    (ref,) = branches(life)
    commit = life.git.resolve(ref) or ""
    approval, statement = life.approval(commit)
    copy = life.forge_approval(replace(approval, approved_by="ben@example.org"), statement, "ben")
    # It is listed before the other one.
    life.git.update_refs([RefUpdate(f"{ref.rpartition('/')[0]}/00", ZERO, copy)])
    done = revoke(office(life, "ada"), identity, "not yet")
    assert read_decision(life.git.commit(done.commit or "").message).subject == commit


def test_who_is_no_approver_any_more_still_takes_back_what_was_theirs(tmp_path: Path) -> None:
    life = waiting(tmp_path, CONFIG + "  required: 2\n")
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    rules = CONFIG.replace("approvers: [ada, ben@example.org]", "approvers: [ben@example.org]")
    life.change("dora", {"gitops.yaml": rules.encode()})
    for who in ("ada", "ben"):
        life.approve(who, "trust.brain")
    assert life.apply().ok
    assert revoke(office(life, "ada"), ref.rpartition("/")[2], "mine").ok
    known = set(branches(life))
    life.approve("ben", "graph.legacy")
    (other,) = set(branches(life)) - known
    assert errors(revoke(office(life, "ada"), other.rpartition("/")[2], "not mine")) == ["decision_refused"]


def test_it_is_made_once(given: tuple[Life, str]) -> None:
    life, identity = given
    first = revoke(office(life, "ada"), identity, "not yet")
    assert revoke(office(life, "ben"), identity, "again").commit == first.commit
    assert len(branches(life)) == 1
    assert life.apply().ok
    again = revoke(office(life, "ben"), identity, "again")
    assert (again.ok, again.recorded, again.commit, warnings(again)) == (True, True, first.commit, [])


def test_who_deletes_its_branch_before_any_run_has_not_undone_it(given: tuple[Life, str]) -> None:
    """On a host without rules for refs; it would take the approval too, which is gone."""
    life, identity = given
    assert revoke(office(life, "ada"), identity, "not yet").ok
    for ref, commit in life.git.refs(REVOCATIONS.rstrip("/")).items():
        life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    assert not deleted(life.apply())


def test_an_attestation_stays_for_the_bot_to_know_the_review_again(tmp_path: Path) -> None:
    life = waiting(tmp_path)
    assert attested(life, grant(life, "ada")).ok
    (ref,) = branches(life)
    done = revoke(office(life, "ben"), ref.rpartition("/")[2], "not yet")
    assert (done.ok, done.deleted, done.kept != "") == (True, (), True)
    assert ref in branches(life)


def test_what_was_used_is_not_taken_back(given: tuple[Life, str]) -> None:
    life, identity = given
    assert deleted(life.apply())
    assert errors(revoke(office(life, "ada"), identity, "late")) == ["approval_spent"]
    assert life.audit(life.chain()[-1]).ok


@pytest.mark.parametrize("identity", [ULID, "", "../x", "01bx5zzkbkactav9wevgemmvs0"])
def test_an_approval_that_is_not_there(life: Life, identity: str) -> None:
    assert errors(revoke(office(life, "ada"), identity, "what")) == ["approval_not_found"]
    assert errors(countersign(office(life, "ada"), identity, "what")) == ["debt_not_found"]


def test_a_reason_is_one_plain_line(given: tuple[Life, str]) -> None:
    life, identity = given
    for reason in ("", "a\nb", "\x1b[2K", "\u202e"):
        assert errors(revoke(office(life, "ada"), identity, reason)) == ["decision_malformed"]
    assert len(branches(life)) == 1


def test_a_run_that_holds_the_lock_is_waited_for(given: tuple[Life, str]) -> None:
    life, identity = given
    desk = office(life, "ada")
    info = LockInfo(ULID, "apply", "2026-07-02T10:00:00Z", 1)
    desk.ledger.acquire(info)
    assert errors(revoke(desk, identity, "now")) == ["state_lock_held"]
    desk.ledger.release(ULID)
    assert revoke(desk, identity, "now").ok
    assert not desk.ledger.observe_lock().held


def test_where_locks_are_refused_it_is_taken_back_all_the_same(given: tuple[Life, str]) -> None:
    life, identity = given

    class Closed(BranchLedger):
        """A ledger whose host lets this person make no lock."""

        def acquire(self, info: LockInfo) -> None:
            """Refuse."""
            raise GitopsError("state_lock_error", f"the host refuses {info.operation}", path="lock")

    life.ledger_type = Closed
    done = revoke(office(life, "ada"), identity, "now")
    life.ledger_type = BranchLedger
    assert done.ok
    assert warnings(done) == ["state_lock_error", "revocation_not_recorded"]
    assert not deleted(life.apply())


@pytest.mark.parametrize(("point", "visible"), [("before_push", False), ("after_push", True)])
def test_a_command_that_dies_leaves_all_of_it_or_nothing(given: tuple[Life, str], point: str, visible: bool) -> None:
    life, identity = given
    life.faults.point = f"cluster_decide.{point}"
    died = revoke(office(life, "ada"), identity, "not yet")
    life.faults.point = ""
    assert errors(died) == ["injected_failpoint"]
    assert not life.ledger(life.repository.config().cluster(None)).observe_lock().held
    assert [ref.startswith(REVOCATIONS) for ref in branches(life)] == [visible]
    again = revoke(office(life, "ada"), identity, "not yet")
    assert again.ok
    assert [ref.startswith(REVOCATIONS) for ref in branches(life)] == [True]
    assert not deleted(life.apply())


# -- forged and misused ------------------------------------------------------------------------------------------------


def decision(life: Life, identity: str, **values: object) -> Decision:
    """A revocation that would count."""
    (ref,) = [r for r in branches(life) if r.endswith(identity)]
    head = life.chain()[-1]
    made_of: dict[str, object] = {
        "kind": DecisionKind.REVOKE,
        "decision_id": ULID,
        "target": life.entry(1).target,
        "approval_id": identity,
        "subject": life.git.resolve(ref),
        "reason": "forged",
        "ledger_head": head,
        "created_at": "2026-07-02T10:00:00Z",
        "nonce": "n",
    }
    return Decision(**{**made_of, **values})  # type: ignore[arg-type]


def place(life: Life, told: Decision, who: str | None, *, parent: str | None = None, files: bool = False) -> None:
    """Put a decision where decisions are looked for."""
    parent = parent or told.ledger_head
    base = life.git.commit(parent).tree
    tree = life.git.write_files(base, {"__cluster/more": b"x"}) if files else base
    key = None if who is None else str(life.keys[who])
    sign = drafted if key is None else signer(life.git, key)
    commit = NewCommit(tree, (parent,), person("ada"), decision_message(told, sign=sign))
    draft = life.git.write_commit(commit, signing_key=key)
    life.git.update_refs([RefUpdate(f"{REVOCATIONS}brain/{told.decision_id}", ZERO, draft)])


Forger = Callable[[Life, str], None]
OTHER = {"repository": "other", "cluster": "other", "environment": "other", "ref": "refs/heads/other", "path": "other"}
FORGERIES: dict[str, Forger] = {
    "unsigned": lambda life, i: place(life, decision(life, i), None),
    "by a stranger": lambda life, i: place(life, decision(life, i), "mallory"),
    "of another commit": lambda life, i: place(life, decision(life, i, subject="1" * 40), "ada"),
    "beside the ledger": lambda life, i: place(
        life, decision(life, i), "ada", parent=life.repository.head_of("refs/heads/main")
    ),
    "on top of the approval": lambda life, i: place(
        life, decision(life, i, ledger_head=decision(life, i).subject), "ada"
    ),
    "with a file": lambda life, i: place(life, decision(life, i), "ada", files=True),
    "of the other kind": lambda life, i: place(life, decision(life, i, kind=DecisionKind.COUNTERSIGN), "ada"),
    **{
        f"for another {name}": lambda life, i, name=name, value=value: place(  # type: ignore[misc]
            life, decision(life, i, target=replace(life.entry(1).target, **{name: value})), "ada"
        )
        for name, value in OTHER.items()
    },
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_revocation_takes_nothing_back(given: tuple[Life, str], forgery: str) -> None:
    life, identity = given
    FORGERIES[forgery](life, identity)
    outcome = life.apply()
    assert deleted(outcome)
    assert ("decision_refused" in warnings(outcome)) is (forgery != "of the other kind")


def test_the_forger_above_can_make_a_good_one(given: tuple[Life, str]) -> None:
    life, identity = given
    place(life, decision(life, identity), "ada")
    assert not deleted(life.apply())


def test_a_revoked_key_takes_nothing_back(tmp_path: Path) -> None:
    """The keys in force decide, not those of the clone of who signs."""
    life = waiting(tmp_path)
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    identity = ref.rpartition("/")[2]
    life.keys["ben"] = ssh_key(tmp_path, "bens-new-key")
    assert errors(revoke(office(life, "ben"), identity, "no")) == ["decision_refused"]
    assert deleted(life.apply())


def test_the_message_is_all_of_it(given: tuple[Life, str]) -> None:
    life, identity = given
    done = revoke(office(life, "ada"), identity, "the export is not finished")
    commit = life.git.commit(done.commit or "")
    told = read_decision(commit.message)
    assert commit.message.startswith(f"revoke(brain): approval {identity}\n\n{{")
    assert (told.reason, told.ledger_head) == ("the export is not finished", life.chain()[-1])
    assert commit.parents == (told.ledger_head,)
    assert commit.tree == life.git.commit(told.ledger_head).tree


def test_a_remote_that_does_not_answer_has_not_lost_the_approval(given: tuple[Life, str]) -> None:
    """What cannot be listed is not what does not exist: the person would take the approval for gone, and it still counts."""
    life, identity = given
    with unlisted(life):
        refused = revoke(office(life, "ada"), identity, "not yet")
    assert [(d.code, d.message) for d in refused.diagnostics] == [("approval_read_error", "server: Connection closed")]
    assert revoke(office(life, "ada"), identity, "not yet").ok


def test_an_approval_that_cannot_be_read_is_not_called_missing(given: tuple[Life, str]) -> None:
    life, identity = given
    (ref,) = branches(life)
    life.git.update_refs([RefUpdate(ref, life.git.resolve(ref) or ZERO, life.chain()[0])])
    (problem,) = revoke(office(life, "ada"), identity, "not yet").diagnostics
    assert problem.code == "approval_not_found"
    assert "its branch has no readable approval" in problem.message
