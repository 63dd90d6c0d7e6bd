"""Revocation: who may take an approval back, that it then never counts, and that what was done stays done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.decisions import find_revocations
from gitops.cluster.approvals.documents import decision_message, read_decision
from gitops.cluster.approving.decide import await_recorded, countersign, revoke
from gitops.cluster.audit.report import AuditWitnesses
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.branch import BranchLedger
from gitops.cluster.ledger.chain import APPROVALS, REVOCATIONS
from gitops.cluster.model.approval import Decision, DecisionKind
from gitops.cluster.model.ledger import EntryKind, LedgerState, LockInfo
from gitops.cluster.session.session import RevocationContext, record_under_lock
from gitops.core.cancel import Cancellation
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.audit import log_form, log_text
from tests.support.audited import CONFIG, Lie, Life, person, saying
from tests.support.clock import FixedClock
from tests.support.git_fixture import ssh_key
from tests.support.governed import (
    attested,
    branches,
    deleted,
    errors,
    grant,
    newest,
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


class _Runs(Cancellation):
    """Stands for the time that passes: the bot runs in it, or nothing happens."""

    def __init__(self, life: Life, runs: Callable[[], object]) -> None:
        super().__init__()
        self._life, self._runs = life, runs

    def wait(self, seconds: float) -> None:
        assert isinstance(self._life.clock, FixedClock)
        self._life.clock.advance(timedelta(seconds=seconds))
        self._runs()


def test_the_command_waits_for_the_entry_that_records_it(given: tuple[Life, str]) -> None:
    life, identity = given
    by = office(life, "ada")
    done = revoke(by, identity, "not yet")
    late = await_recorded(by, done, timedelta(seconds=5), _Runs(life, lambda: None))
    assert (late.ok, late.recorded, warnings(late)) == (True, False, ["revocation_not_recorded"])
    told = await_recorded(by, done, timedelta(minutes=5), _Runs(life, life.apply))
    assert (told.ok, told.recorded, warnings(told)) == (True, True, [])
    assert told.commit == done.commit


def test_a_signal_ends_the_wait_and_what_was_revoked_is_reported(given: tuple[Life, str]) -> None:
    life, identity = given
    by = office(life, "ada")
    done = revoke(by, identity, "not yet")
    asked = _Runs(life, lambda: None)
    asked.request()
    assert await_recorded(by, done, timedelta(days=1), asked).recorded is False


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


@pytest.fixture
def given_of_kept_revocations(tmp_path: Path) -> tuple[Life, str]:
    """Two people are needed for mallory's delete; ada approved."""
    life = waiting(tmp_path, CONFIG + "  required: 2\n")
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    return life, ref.rpartition("/")[2]


def drop(life: Life, folder: str) -> None:
    """Delete the branches below a folder, as everybody may who pushes to a host without hooks."""
    for ref, commit in life.git.refs(folder.rstrip("/")).items():
        life.git.update_refs([RefUpdate(ref, commit, ZERO)])


def recorder(life: Life) -> RevocationContext:
    """What the bot does at the event of a push."""
    rule = life.repository.config().cluster(None)
    return RevocationContext(life.ledger(rule), life.repository.target(rule), life.clock, life.ids, "bot")


def test_a_revocation_outlives_its_branch(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    (ref,) = branches(life)
    approval = life.git.resolve(ref) or ""
    done = revoke(office(life, "ada"), identity, "not yet")
    (recorded,) = record_under_lock(recorder(life))
    # Its branch was deleted with the revocation.
    assert (recorded.approval_id, recorded.approver, recorded.principal) == (identity, None, "ada")
    drop(life, REVOCATIONS)

    pushed_again(life, ref, approval)
    life.approve("ben", "graph.legacy")
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_revoked" in warnings(outcome)

    entry = life.entry(4)
    assert (entry.kind, entry.revoked) == (EntryKind.REVOKE, (recorded,))
    report = life.audit(life.chain()[-1])
    assert report.ok
    assert any(f"branch of revocation {(done.commit or '')[:12]} was deleted" in note for note in report.notes)


def test_the_entry_carries_the_commit_and_git_log_shows_it(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    done = revoke(office(life, "ben"), identity, "not yet")
    assert record_under_lock(recorder(life))
    assert record_under_lock(recorder(life)) == ()
    head = life.git.commit(life.chain()[-1])
    assert head.parents == (life.chain()[-2], done.commit)
    assert f"Revokes: {identity}" in head.message
    record = next(read_trail(life.git, head.id))
    assert f"revoked {identity} by ben@example.org" in log_text([record])
    assert log_form([record], Diagnostics())["entries"][0]["revoked"][0]["approval_id"] == identity


@pytest.mark.parametrize("verb", ["apply", "refresh"])
def test_every_run_that_writes_takes_in_what_is_new_first(
    given_of_kept_revocations: tuple[Life, str], verb: str
) -> None:
    life, identity = given_of_kept_revocations
    assert revoke(office(life, "ada"), identity, "not yet").ok
    before = len(life.chain())
    assert (refresh(life.workspace()) if verb == "refresh" else life.apply()).ok
    assert life.entry(before + 1).kind is EntryKind.REVOKE
    assert identity in {r.approval_id for r in life.entry(before + 1).revoked}
    assert life.audit(life.chain()[-1]).ok


def test_the_bot_records_its_own_revocation_at_once(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    assert revoke(office(life, "bot"), identity, "the review was dismissed").ok
    assert newest(life).revoked[0].principal == "bot"


def test_an_approver_revokes_an_approval_whose_branch_was_deleted_first(
    given_of_kept_revocations: tuple[Life, str],
) -> None:
    """Who wants the approval to survive hides it, waits until the revocation is read, and shows it again."""
    life, identity = given_of_kept_revocations
    (ref,) = branches(life)
    approval = life.git.resolve(ref) or ""
    assert revoke(office(life, "ben"), identity, "not yet").ok
    drop(life, APPROVALS)
    (recorded,) = record_under_lock(recorder(life))
    assert (recorded.approver, recorded.principal) == (None, "ben@example.org")
    drop(life, REVOCATIONS)
    life.git.update_refs([RefUpdate(ref, ZERO, approval)])
    life.approve("ben", "graph.legacy")
    assert not deleted(life.apply())
    assert life.audit(life.chain()[-1]).ok


def test_who_is_trusted_and_no_approver_revokes_only_what_they_gave(tmp_path: Path) -> None:
    """Ben gives an approval of his own the id of ada's and revokes that, also while both are hidden: ada's counts."""
    life = waiting(tmp_path, CONFIG.replace("approvers: [ada, ben@example.org]", "approvers: [ada]"))
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    real = life.git.resolve(ref) or ""
    approval, statement = life.approval(real)
    own = life.forge_approval(replace(approval, approved_by="ben@example.org"), statement, "ben")
    life.git.update_refs([RefUpdate(ref, real, own)])
    assert revoke(office(life, "ben"), approval.approval_id, "mine").ok
    drop(life, APPROVALS)
    assert record_under_lock(recorder(life)) == ()
    life.git.update_refs([RefUpdate(ref, ZERO, own)])
    assert record_under_lock(recorder(life))
    life.git.update_refs([RefUpdate(f"{ref}X", ZERO, real)])
    assert deleted(life.apply())
    assert life.audit(life.chain()[-1]).ok


def test_a_run_takes_in_a_bounded_number(
    given_of_kept_revocations: tuple[Life, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    life, _ = given_of_kept_revocations
    life.approve("ben", "graph.legacy")
    monkeypatch.setattr("gitops.cluster.approvals.decisions.MOST_RECORDED", 1)
    # With two of two revoked nothing is applied, whatever the order in which entries take them in.
    for ref in branches(life):
        assert revoke(office(life, "ada"), ref.rpartition("/")[2], "not yet").ok
    assert len(record_under_lock(recorder(life))) == 1
    assert len(record_under_lock(recorder(life))) == 1
    assert record_under_lock(recorder(life)) == ()


def test_countersignatures_and_debts_are_read_beside_revocations(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    assert revoke(office(life, "ada"), identity, "not yet").ok
    assert record_under_lock(recorder(life))
    assert errors(countersign(office(life, "ada"), identity, "what")) == ["debt_not_found"]


# -- the auditor -------------------------------------------------------------------------------------------------------


def test_a_revocation_that_no_entry_has_is_a_warning(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    assert revoke(office(life, "ada"), identity, "not yet").ok
    witnesses = AuditWitnesses(signed=dict(life.git.refs("refs/heads/gitops")))
    report = life.audit(life.chain()[-1], scope=AuditScope(witnesses=witnesses))
    assert report.ok
    assert [note for note in report.notes if note.startswith("warning: no entry records gitops/revocations/brain/")]


def without_records(state: LedgerState) -> LedgerState:
    """As if nothing had been revoked."""
    return replace(state, approval_records={k: v for k, v in state.approval_records.items() if "revokes" not in v})


def test_the_auditor_finds_forged_and_forgotten_revocations(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    (approval,) = life.git.refs(APPROVALS.rstrip("/")).values()
    assert revoke(office(life, "ada"), identity, "not yet").ok
    assert record_under_lock(recorder(life))
    at, (true,) = len(life.chain()), newest(life).revoked
    lies = {
        "no decision": (Lie(entry=saying(revoked=(replace(true, commit=approval),))), "ledger_entry_invalid"),
        "another signer": (Lie(entry=saying(revoked=(replace(true, principal="bot"),))), "ledger_entry_invalid"),
        "another kind": (Lie(entry=saying(kind=EntryKind.REFRESH)), "ledger_entry_invalid"),
        "nothing in it": (Lie(entry=saying(revoked=()), parents=(life.chain()[-2],)), "ledger_entry_invalid"),
        "no record": (Lie(state=without_records), "ledger_state_mismatch"),
    }
    for what, (lie, code) in lies.items():
        finding = life.audit(life.forge(at, lie)).finding
        assert finding is not None, what
        assert (finding.number, finding.code) == (at, code), (what, finding)


def test_the_auditor_finds_a_record_that_is_dropped_later(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, identity = given_of_kept_revocations
    assert revoke(office(life, "ada"), identity, "not yet").ok
    assert life.apply().ok
    assert refresh(life.workspace()).ok
    finding = life.audit(life.forge(len(life.chain()), Lie(state=without_records))).finding
    assert finding is not None
    assert finding.code == "ledger_state_mismatch"


def test_nothing_is_found_without_decisions(given_of_kept_revocations: tuple[Life, str]) -> None:
    life, _ = given_of_kept_revocations
    rule = life.repository.config().cluster(None)
    view = life.ledger(rule).view()
    assert view.trust is not None
    target = life.repository.target(rule)
    assert find_revocations(LedgerState(), (), (), view.trust, target=target, at=life.clock.now()) == ()
