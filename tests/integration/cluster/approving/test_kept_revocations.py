"""An entry takes each revocation in: who deletes its branch afterwards undoes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.decisions import find_revocations
from gitops.cluster.approving.decide import countersign, revoke
from gitops.cluster.audit.report import AuditWitnesses
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.chain import APPROVALS, REVOCATIONS
from gitops.cluster.model.ledger import EntryKind, LedgerState
from gitops.cluster.session.session import RevocationContext, record_under_lock
from gitops.git.port import ZERO, RefUpdate
from gitops.render.audit import log_form, log_text
from tests.support.audited import CONFIG, Lie, Life, saying
from tests.support.governed import branches, deleted, errors, newest, office, pushed_again, waiting, warnings


@pytest.fixture
def given(tmp_path: Path) -> tuple[Life, str]:
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


def test_a_revocation_outlives_its_branch(given: tuple[Life, str]) -> None:
    life, identity = given
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


def test_the_entry_carries_the_commit_and_git_log_shows_it(given: tuple[Life, str]) -> None:
    life, identity = given
    done = revoke(office(life, "ben"), identity, "not yet")
    assert record_under_lock(recorder(life))
    assert record_under_lock(recorder(life)) == ()
    head = life.git.commit(life.chain()[-1])
    assert head.parents == (life.chain()[-2], done.commit)
    assert f"Revokes: {identity}" in head.message
    record = next(read_trail(life.git, head.id))
    assert f"revoked {identity} by ben@example.org" in log_text([record])
    assert log_form([record])["entries"][0]["revoked"][0]["approval_id"] == identity


@pytest.mark.parametrize("verb", ["apply", "refresh"])
def test_every_run_that_writes_takes_in_what_is_new_first(given: tuple[Life, str], verb: str) -> None:
    life, identity = given
    assert revoke(office(life, "ada"), identity, "not yet").ok
    before = len(life.chain())
    assert (refresh(life.workspace()) if verb == "refresh" else life.apply()).ok
    assert life.entry(before + 1).kind is EntryKind.REVOKE
    assert identity in {r.approval_id for r in life.entry(before + 1).revoked}
    assert life.audit(life.chain()[-1]).ok


def test_the_bot_records_its_own_revocation_at_once(given: tuple[Life, str]) -> None:
    life, identity = given
    assert revoke(office(life, "bot"), identity, "the review was dismissed").ok
    assert newest(life).revoked[0].principal == "bot"


def test_an_approver_revokes_an_approval_whose_branch_was_deleted_first(given: tuple[Life, str]) -> None:
    """Who wants the approval to survive hides it, waits until the revocation is read, and shows it again."""
    life, identity = given
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


def test_a_run_takes_in_a_bounded_number(given: tuple[Life, str], monkeypatch: pytest.MonkeyPatch) -> None:
    life, _ = given
    life.approve("ben", "graph.legacy")
    monkeypatch.setattr("gitops.cluster.approvals.decisions.MOST_RECORDED", 1)
    # With two of two revoked nothing is applied, whatever the order in which entries take them in.
    for ref in branches(life):
        assert revoke(office(life, "ada"), ref.rpartition("/")[2], "not yet").ok
    assert len(record_under_lock(recorder(life))) == 1
    assert len(record_under_lock(recorder(life))) == 1
    assert record_under_lock(recorder(life)) == ()


def test_countersignatures_and_debts_are_read_beside_revocations(given: tuple[Life, str]) -> None:
    life, identity = given
    assert revoke(office(life, "ada"), identity, "not yet").ok
    assert record_under_lock(recorder(life))
    assert errors(countersign(office(life, "ada"), identity, "what")) == ["debt_not_found"]


# -- the auditor -------------------------------------------------------------------------------------------------------


def test_a_revocation_that_no_entry_has_is_a_warning(given: tuple[Life, str]) -> None:
    life, identity = given
    assert revoke(office(life, "ada"), identity, "not yet").ok
    witnesses = AuditWitnesses(signed=dict(life.git.refs("refs/heads/gitops")))
    report = life.audit(life.chain()[-1], scope=AuditScope(witnesses=witnesses))
    assert report.ok
    assert [note for note in report.notes if note.startswith("warning: no entry records gitops/revocations/brain/")]


def without_records(state: LedgerState) -> LedgerState:
    """As if nothing had been revoked."""
    return replace(state, approval_records={k: v for k, v in state.approval_records.items() if "revokes" not in v})


def test_the_auditor_finds_forged_and_forgotten_revocations(given: tuple[Life, str]) -> None:
    life, identity = given
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


def test_the_auditor_finds_a_record_that_is_dropped_later(given: tuple[Life, str]) -> None:
    life, identity = given
    assert revoke(office(life, "ada"), identity, "not yet").ok
    assert life.apply().ok
    assert refresh(life.workspace()).ok
    finding = life.audit(life.forge(len(life.chain()), Lie(state=without_records))).finding
    assert finding is not None
    assert finding.code == "ledger_state_mismatch"


def test_nothing_is_found_without_decisions(given: tuple[Life, str]) -> None:
    life, _ = given
    rule = life.repository.config().cluster(None)
    view = life.ledger(rule).view()
    assert view.trust is not None
    target = life.repository.target(rule)
    assert find_revocations(LedgerState(), (), (), view.trust, target=target, at=life.clock.now()) == ()
