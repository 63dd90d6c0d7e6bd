"""Approvals given: what they attest, in an emergency, and with a security key."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from gitops.bot.attestations import approving_reviews, attest, newest_reviews, revoke_lapsed
from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.documents import decision_message, statement_message, write_approval
from gitops.cluster.approvals.origins import KnownOrigins, Pushed
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.approving.decide import countersign, revoke
from gitops.cluster.ledger.chain import COUNTERSIGNATURES
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    Approval,
    ApprovalStatement,
    Decision,
    DecisionKind,
    GrantSource,
    Via,
)
from gitops.cluster.model.ledger import EntryKind, How
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import status
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.forge.port import Account, Review, ReviewState
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.git.sshsig import ARMOR_BEGIN, ARMOR_END
from gitops.render import json
from gitops.repository.repository import Candidate
from tests.support.audited import CONFIG, LEDGER, MAIN, START, Life, declared, person
from tests.support.governed import (
    ACCOUNTS,
    PERMISSIVE,
    alone,
    attested,
    branches,
    deleted,
    errors,
    grant,
    made,
    means,
    newest,
    office,
    pushed_again,
    unlisted,
    waiting,
    warnings,
)
from tests.support.signed import signer

YES, NO, GONE, TALK = (
    ReviewState.APPROVED,
    ReviewState.CHANGES_REQUESTED,
    ReviewState.DISMISSED,
    ReviewState.COMMENTED,
)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A delete by mallory waits; reviews count for it."""
    return waiting(tmp_path)


def test_a_review_counts_as_the_approval_of_that_person(life: Life) -> None:
    identity = made(attested(life, grant(life, "ada")))
    assert deleted(life.apply())
    (use,) = newest(life).approvals
    assert (use.approval_id, use.principal, use.via) == (identity, "ada", Via.FORGE)
    assert newest(life).debts == ()
    assert life.audit(life.chain()[-1]).ok


def test_a_review_is_attested_once(life: Life) -> None:
    given = grant(life, "ada")
    first = attested(life, given)
    again = attested(life, replace(given, login="ada-renamed", url="https://forge.example/7"))
    assert (again.approval, again.commit) == (first.approval, first.commit)
    assert len(branches(life)) == 1


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (PERMISSIVE.replace("[reversible, irreversible]", "[reversible]"), "approval_via_refused"),
        (PERMISSIVE.replace("[reversible, irreversible]", "[]"), "approval_via_refused"),
        (CONFIG, "approval_account_unknown"),
        (PERMISSIVE.replace('"github:1": ada', '"github:1": zoe'), "approval_signer_not_allowed"),
        (PERMISSIVE.replace('"github:1": ada', '"github:1": bot'), "approval_signer_not_allowed"),
    ],
)
def test_the_rules_decide_whether_it_counts(tmp_path: Path, config: str, code: str) -> None:
    life = waiting(tmp_path, config)
    assert errors(attested(life, grant(life, "ada"))) == [code]
    assert branches(life) == []


def test_only_the_bot_attests(life: Life) -> None:
    assert errors(attested(life, grant(life, "ada"), signer="ben")) == ["approval_signer_not_allowed"]
    assert errors(attested(life, grant(life, "ada"), signer="mallory")) == ["approval_signer_unknown"]


def test_an_approver_cannot_pass_for_the_bot(life: Life) -> None:
    """Ben signs by himself what the bot would attest of ada, so that two people seem to have approved."""
    identity = made(attested(life, grant(life, "ada")))
    (ref,) = branches(life)
    approval, said = life.approval(life.git.resolve(ref) or "")
    assert approval.approval_id == identity
    life.git.update_refs([_gone(life, ref)])
    forged = life.forge_approval(approval, said, "ben")
    life.git.update_refs([_new(ref, forged)])
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_signer_not_allowed" in warnings(outcome)


def _gone(life: Life, ref: str) -> RefUpdate:
    return RefUpdate(ref, life.git.resolve(ref) or ZERO, ZERO)


def _new(ref: str, commit: str) -> RefUpdate:
    return RefUpdate(ref, ZERO, commit)


@pytest.mark.parametrize("author", ["ada", "ADA", "github:1"])
def test_an_author_does_not_approve_by_another_name(life: Life, author: str) -> None:
    """Ada is an author by her name, or by her account alone, as a forge names who pushed."""
    rule = life.repository.config().cluster(None)
    head, position = life.repository.head_of(MAIN) or "", life.repository.position(rule)
    pushed = Pushed(How.FORGE, author, "ada", frozenset({author}))
    known = KnownOrigins(lambda _: (pushed,))
    here = life.repository.at(rule, position, Candidate(head), known=lambda: known)
    workspace = here.workspace("bot@example.org")
    for outcome in (
        attest(workspace, Address("graph.legacy"), grant(life, "ada"), means(life, "bot")),
        sign_approval(workspace, Address("graph.legacy"), means(life, "ada")),
    ):
        assert errors(outcome) == ["approval_self"]


def test_one_person_is_counted_once_however_they_approve(tmp_path: Path) -> None:
    life = waiting(tmp_path, PERMISSIVE + "  required: 2\n")
    life.approve("ada", "graph.legacy")
    made(attested(life, grant(life, "ada")))
    made(attested(life, grant(life, "ada", GrantSource.COMMENT)))
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_quorum" in warnings(outcome)
    made(attested(life, grant(life, "ben")))
    assert deleted(life.apply())
    assert {use.principal for use in newest(life).approvals} == {"ada", "ben@example.org"}
    assert life.audit(life.chain()[-1]).ok


def test_what_was_reviewed_must_be_the_folder_that_is_applied(life: Life) -> None:
    reviewed = grant(life, "ada")
    life.change("dora", {"cluster/cluster.yaml": declared()})
    assert errors(attested(life, reviewed)) == ["approval_stale"]


def test_a_review_of_another_commit_with_the_same_folder_counts(life: Life) -> None:
    reviewed = grant(life, "ada")
    life.change("dora", {"README.md": b"Elsewhere.\n"})
    made(attested(life, reviewed))
    assert deleted(life.apply())


def test_an_attestation_is_void_as_soon_as_the_folder_moves(life: Life) -> None:
    made(attested(life, grant(life, "ada")))
    life.change("dora", {"cluster/README.md": b"Words.\n"})
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_stale" in warnings(outcome)


def test_a_commit_that_is_not_here_cannot_be_attested(life: Life) -> None:
    assert errors(attested(life, grant(life, "ada", commit="1" * 40))) == ["git_object_missing"]


def test_the_attestation_must_tell_the_folder_of_the_commit(life: Life) -> None:
    """The bot's key says of an older commit that it has the folder of today."""
    old = grant(life, "ada", commit=life.git.commit(life.repository.head_of("refs/heads/main") or "").parents[0])
    made(attested(life, grant(life, "ada")))
    (ref,) = branches(life)
    approval, said = life.approval(life.git.resolve(ref) or "")
    assert said.grant is not None
    lying = life.forge_approval(approval, replace(said, grant=replace(said.grant, commit=old.commit)), "bot")
    life.git.update_refs([_gone(life, ref)])
    life.git.update_refs([_new(ref, lying)])
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_malformed" in warnings(outcome)


def test_the_life_of_an_approval_begins_with_the_review(life: Life) -> None:
    old = timestamp(START - timedelta(days=8))
    assert errors(attested(life, grant(life, "ada", at=old))) == ["approval_expired"]


@pytest.mark.parametrize("who", ["ada", "ben", "bot"])
@pytest.mark.parametrize("source", list(GrantSource))
def test_what_was_taken_back_is_not_attested_again(life: Life, source: GrantSource, who: str) -> None:
    """The event comes once more, or the next one looks at the same review again."""
    given = grant(life, "ada", source)
    assert revoke(office(life, who), made(attested(life, given)), "not yet").ok
    assert errors(attested(life, given)) == ["approval_revoked"]
    assert not deleted(life.apply())
    made(attested(life, replace(given, reference="another")))
    assert deleted(life.apply())


def test_nobody_else_can_say_that_it_was_taken_back(life: Life) -> None:
    """Mallory signs what the bot would attest of ada, as her own, and takes that back."""
    given = grant(life, "ada")
    made(attested(life, given))
    (ref,) = branches(life)
    approval, said = life.approval(life.git.resolve(ref) or "")
    life.git.update_refs([_gone(life, ref)])
    own = replace(approval, approved_by="mallory@example.org")
    life.git.update_refs([_new(ref, life.forge_approval(own, said, "mallory"))])
    revoke(office(life, "mallory"), approval.approval_id, "mine")
    made(attested(life, given))
    assert deleted(life.apply())


def test_an_approval_of_a_plan_is_of_no_other_plan(life: Life) -> None:
    """The ledger moved between looking at the plan and signing."""
    outcome = attest(
        life.workspace(), Address("graph.legacy"), grant(life, "ada"), means(life, "bot"), plan_digest="0" * 64
    )
    assert errors(outcome) == ["command_refused"]
    assert branches(life) == []


def test_keys_and_rules_are_never_approved_on_a_forge(life: Life) -> None:
    life.change("dora", {"gitops.yaml": life.config.replace("[ada]", "[]").encode()})
    assert errors(attested(life, grant(life, "ada"), "trust.brain")) == ["approval_via_refused"]


# -- which reviews stand -----------------------------------------------------------------------------------------------


def reviews(*given: tuple[str, ReviewState]) -> tuple[Review, ...]:
    """Reviews in order, one second apart, all of one commit."""
    return tuple(
        Review(
            str(n),
            Account(ACCOUNTS[who].partition(":")[2], who),
            state,
            "1" * 40,
            timestamp(START + timedelta(seconds=n)),
        )
        for n, (who, state) in enumerate(given)
    )


CASES: list[tuple[str, tuple[tuple[str, ReviewState], ...], set[str]]] = [
    ("nothing", (), set()),
    ("a word is no verdict", (("ada", TALK),), set()),
    ("yes", (("ada", YES),), {"ada"}),
    ("a word after yes changes nothing", (("ada", YES), ("ada", TALK)), {"ada"}),
    ("no after yes", (("ada", YES), ("ada", NO)), set()),
    ("yes after no", (("ada", NO), ("ada", YES)), {"ada"}),
    ("dismissed", (("ada", YES), ("ada", GONE)), set()),
    ("each for themself", (("ada", YES), ("ben", NO), ("ben", YES), ("ada", NO)), {"ben"}),
]


@pytest.mark.parametrize(("given", "standing"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_of_each_account_the_newest_verdict_stands(
    given: tuple[tuple[str, ReviewState], ...], standing: set[str]
) -> None:
    found = reviews(*given)
    assert {r.account.login for r in approving_reviews(found, lambda _: True)} == standing
    assert approving_reviews(found, lambda _: False) == ()
    assert {r.state for r in newest_reviews(found).values()} <= {YES, NO, GONE}


def named(account: Account) -> str:
    return f"github:{account.id}"


@pytest.mark.parametrize("after", [NO, GONE])
def test_a_verdict_that_is_taken_back_takes_the_attestation_along(life: Life, after: ReviewState) -> None:
    identity = made(attested(life, grant(life, "ada")))
    assert revoke_lapsed(office(life, "bot"), 7, reviews(("ada", YES)), named) == ()
    (done,) = revoke_lapsed(office(life, "bot"), 7, reviews(("ada", YES), ("ada", after)), named)
    assert (done.ok, done.approval_id, done.decided_by) == (True, identity, "bot")
    assert revoke_lapsed(office(life, "bot"), 7, reviews(("ada", YES), ("ada", after)), named) == ()
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_revoked" in warnings(outcome)


def test_what_was_taken_back_stays_so_while_the_remote_does_not_answer(life: Life) -> None:
    """Without the list, the same review would be taken for one that is not attested yet."""
    made(attested(life, given := grant(life, "ada")))
    assert revoke_lapsed(office(life, "bot"), 7, reviews(("ada", NO)), named)
    with unlisted(life):
        assert errors(attested(life, given)) == ["approval_read_error"]
        with pytest.raises(GitopsError, match="Connection closed"):
            revoke_lapsed(office(life, "bot"), 7, reviews(("ada", NO)), named)
    assert errors(attested(life, given)) == ["approval_revoked"]


def test_a_command_is_taken_back_by_a_later_verdict_only(life: Life) -> None:
    made(attested(life, grant(life, "ada", GrantSource.COMMENT, at=timestamp(START + timedelta(minutes=2)))))
    assert revoke_lapsed(office(life, "bot"), 7, reviews(), named) == ()
    assert revoke_lapsed(office(life, "bot"), 7, reviews(("ada", NO)), named) == ()
    late = tuple(replace(r, at=timestamp(START + timedelta(minutes=3))) for r in reviews(("ada", NO)))
    (done,) = revoke_lapsed(office(life, "bot"), 7, late, named)
    assert done.ok


def test_reviews_of_another_request_take_nothing_back(life: Life) -> None:
    made(attested(life, grant(life, "ada")))
    assert revoke_lapsed(office(life, "bot"), 8, reviews(("ada", NO)), named) == ()


def test_an_attestation_that_was_used_is_left_alone(life: Life) -> None:
    identity = made(attested(life, grant(life, "ada")))
    assert deleted(life.apply())
    assert revoke_lapsed(office(life, "bot"), 7, reviews(("ada", NO)), named) == ()
    assert errors(revoke(office(life, "ada"), identity, "late")) == ["approval_spent"]


QUERY = {
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.title as t }\n}\n"
}


@pytest.fixture
def life_of_emergencies(tmp_path: Path) -> Life:
    """Two people would be needed; ada may act alone; the delete of a graph by mallory waits."""
    return waiting(tmp_path, PERMISSIVE + "  required: 2\n")


@pytest.fixture
def owing(life_of_emergencies: Life) -> tuple[Life, str]:
    """The same after ada acted alone."""
    identity = made(alone(life_of_emergencies))
    assert deleted(life_of_emergencies.apply())
    return life_of_emergencies, identity


def test_one_person_is_enough_and_leaves_one_debt(life_of_emergencies: Life) -> None:
    assert not deleted(life_of_emergencies.apply())
    identity = made(alone(life_of_emergencies))
    outcome = life_of_emergencies.apply()
    assert deleted(outcome)
    entry = newest(life_of_emergencies)
    (debt,) = entry.debts
    assert (debt.approval_id, debt.resource, debt.principal, debt.reason) == (
        identity,
        "graph.legacy",
        "ada",
        "it leaks",
    )
    assert [use.via for use in entry.approvals] == [Via.BREAK_GLASS]
    assert debt.commit in life_of_emergencies.git.commit(life_of_emergencies.chain()[-1]).parents
    assert life_of_emergencies.state(len(life_of_emergencies.chain())).debts == (debt,)
    assert outcome.debts == (debt,)
    assert life_of_emergencies.audit(life_of_emergencies.chain()[-1]).ok


def test_nothing_else_is_applied_while_the_debt_is_open(owing: tuple[Life, str]) -> None:
    life, identity = owing
    (debt,) = newest(life).debts
    life.change("dora", QUERY)
    head = life.git.resolve(LEDGER)
    planned = plan(life.workspace())
    assert (planned.lands, [each.code for each in planned.obstacles]) == (False, ["debt_open"])
    refused = life.apply()
    assert errors(refused) == ["debt_open"]
    (told,) = [d for d in refused.diagnostics if d.code == "debt_open"]
    assert told.fix is not None
    assert told.fix.endswith(f" to run: gitops countersign {identity} --commit {debt.commit} --cluster brain")
    assert life.git.resolve(LEDGER) == head


def test_plan_status_and_refresh_warn_of_the_debt(owing: tuple[Life, str]) -> None:
    life, identity = owing
    planned = plan(life.workspace())
    assert [d.approval_id for d in planned.debts] == [identity]
    (told,) = json.envelope(planned)["debts"]
    assert (told["approval_id"], told["principal"], told["reason"]) == (identity, "ada", "it leaks")
    for outcome in (planned, status(life.workspace()), refresh(life.workspace())):
        assert outcome.ok
        assert "debt_open" in warnings(outcome)


def test_a_run_without_changes_passes_and_warns(owing: tuple[Life, str]) -> None:
    life, _ = owing
    assert plan(life.workspace()).lands
    outcome = life.apply()
    assert outcome.ok
    assert "debt_open" in warnings(outcome)


def test_another_approver_settles_it_and_the_next_run_goes_on(owing: tuple[Life, str]) -> None:
    life, identity = owing
    life.change("dora", QUERY)
    assert errors(life.apply()) == ["debt_open"]
    agreed = countersign(office(life, "ben"), identity, "seen")
    assert (agreed.ok, agreed.decided_by, agreed.resource) == (True, "ben@example.org", "graph.legacy")
    assert plan(life.workspace()).debts == ()
    outcome = life.apply()
    assert (outcome.ok, outcome.converged, outcome.debts) == (True, True, ())
    settling, applied = life.entry(len(life.chain()) - 1), newest(life)
    assert (settling.kind, applied.kind) == (EntryKind.COUNTERSIGN, EntryKind.APPLY)
    assert [(s.approval_id, s.principal) for s in settling.settled] == [(identity, "ben@example.org")]
    assert settling.changes == ()
    assert agreed.commit in life.git.commit(life.chain()[-2]).parents
    assert life.state(len(life.chain())).debts == ()
    assert life.audit(life.chain()[-1]).ok


@pytest.mark.parametrize(
    ("who", "said"), [("ada", "gave the emergency approval"), ("bot", "not an approver"), ("mallory", "not trusted")]
)
def test_nobody_else_settles_it(owing: tuple[Life, str], who: str, said: str) -> None:
    life, identity = owing
    before = branches(life)
    draft = _countersigned(life, who, identity, "01BX5ZZKBKACTAV9WEVGEMMVS0")
    assert said in next(d.message for d in plan(life.workspace()).diagnostics if d.code == "decision_refused")
    life.git.update_refs([RefUpdate(f"{COUNTERSIGNATURES}brain/01BX5ZZKBKACTAV9WEVGEMMVS0", draft, ZERO)])
    refused = countersign(office(life, who), identity, "fine")
    assert errors(refused) == ["decision_refused"]
    assert said in refused.diagnostics[0].message
    assert branches(life) == before


def _countersigned(life: Life, who: str, approval_id: str, name: str) -> str:
    """A countersignature of the newest entry's debt, put past the guard under any name; its commit."""
    told = Decision(
        kind=DecisionKind.COUNTERSIGN,
        decision_id=name,
        target=newest(life).target,
        approval_id=approval_id,
        subject=newest(life).debts[0].commit,
        reason="x",
        ledger_head=life.chain()[-1],
        created_at="2026-07-02T10:00:00Z",
        nonce="n",
    )
    tree = life.git.commit(told.ledger_head).tree
    commit = NewCommit(
        tree, (told.ledger_head,), person(who), decision_message(told, sign=signer(life.git, life.keys[who]))
    )
    draft = life.git.write_commit(commit, signing_key=str(life.keys[who]))
    life.git.update_refs([RefUpdate(f"{COUNTERSIGNATURES}brain/{name}", ZERO, draft)])
    return draft


def test_a_countersignature_under_an_id_that_is_taken_settles_nothing(owing: tuple[Life, str]) -> None:
    """Ben names his countersignature like the approval, whose record would hide it."""
    life, identity = owing
    (debt,) = newest(life).debts
    _countersigned(life, "ben", identity, identity)
    assert life.apply().debts == (debt,)
    assert newest(life).kind is EntryKind.APPLY
    assert countersign(office(life, "ben"), identity, "again").ok
    assert life.apply().debts == ()
    assert life.audit(life.chain()[-1]).ok


def test_a_countersignature_is_made_once(owing: tuple[Life, str]) -> None:
    life, identity = owing
    first = countersign(office(life, "ben"), identity, "seen")
    assert countersign(office(life, "ben"), identity, "again").commit == first.commit
    life.apply()
    assert errors(countersign(office(life, "ben"), identity, "late")) == ["debt_not_found"]


def test_a_further_emergency_may_pass_and_owes_too(owing: tuple[Life, str]) -> None:
    life, first = owing
    life.change("dora", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    second = made(alone(life, address="graph.notes", reason="worse"))
    assert life.apply().ok
    assert [d.approval_id for d in life.state(len(life.chain())).debts] == sorted([first, second])
    for identity in (first, second):
        assert countersign(office(life, "ben"), identity, "seen").ok
    assert life.apply().ok
    assert life.state(len(life.chain())).debts == ()
    assert len(newest(life).settled) == 2
    assert life.audit(life.chain()[-1]).ok


def test_an_emergency_is_not_used_where_enough_people_approved(tmp_path: Path) -> None:
    life = waiting(tmp_path)
    emergency = made(alone(life))
    life.approve("ben", "graph.legacy")
    assert deleted(life.apply())
    assert newest(life).debts == ()
    assert emergency not in life.state(len(life.chain())).approval_records


def test_who_wrote_the_change_may_act_alone_but_not_countersign_it_themself(tmp_path: Path) -> None:
    life = waiting(tmp_path, author="ada")
    assert errors(alone(life, "ben")) == ["approval_signer_not_allowed"]
    identity = made(alone(life, "ada"))
    assert deleted(life.apply())
    assert errors(countersign(office(life, "ada"), identity, "fine")) == ["decision_refused"]
    assert countersign(office(life, "ben"), identity, "seen").ok


def test_keys_and_rules_are_never_changed_in_an_emergency(life_of_emergencies: Life) -> None:
    life_of_emergencies.change(
        "dora", {"gitops.yaml": life_of_emergencies.config.replace("[ada]", "[ada, ben@example.org]").encode()}
    )
    assert errors(alone(life_of_emergencies, address="trust.brain")) == ["approval_via_refused"]


def test_an_emergency_is_bound_like_any_approval(life_of_emergencies: Life) -> None:
    made(alone(life_of_emergencies))
    life_of_emergencies.change("dora", QUERY)
    outcome = life_of_emergencies.apply()
    assert not deleted(outcome)
    assert "approval_stale" in warnings(outcome)


def test_an_emergency_can_be_taken_back(life_of_emergencies: Life) -> None:
    identity = made(alone(life_of_emergencies))
    (ref,) = branches(life_of_emergencies)
    commit = life_of_emergencies.git.resolve(ref) or ""
    assert revoke(office(life_of_emergencies, "ben"), identity, "no").ok
    pushed_again(life_of_emergencies, ref, commit)
    outcome = life_of_emergencies.apply()
    assert not deleted(outcome)
    assert "approval_revoked" in warnings(outcome)


def test_another_approval_under_the_same_id_changes_nothing(life_of_emergencies: Life) -> None:
    """Ben signs an approval with the id of ada's emergency: nobody gains by it, and the ledger stays true."""
    identity = made(alone(life_of_emergencies))
    (ref,) = branches(life_of_emergencies)
    approval, said = life_of_emergencies.approval(life_of_emergencies.git.resolve(ref) or "")
    plain = replace(said, via=Via.SIGNATURE, emergency=None)
    for name in ("01AAAAAAAAAAAAAAAAAAAAAAAA", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"):
        copy = life_of_emergencies.forge_approval(replace(approval, approved_by="ben@example.org"), plain, "ben")
        life_of_emergencies.git.update_refs([RefUpdate(f"{ref.rpartition('/')[0]}/{name}", ZERO, copy)])
    assert deleted(life_of_emergencies.apply())
    (use,) = newest(life_of_emergencies).approvals
    assert (use.approval_id, use.principal, use.via) == (identity, "ada", Via.BREAK_GLASS)
    assert [d.approval_id for d in newest(life_of_emergencies).debts] == [identity]
    assert life_of_emergencies.audit(life_of_emergencies.chain()[-1]).ok


def test_a_run_cut_short_owes_what_it_announced(life_of_emergencies: Life) -> None:
    identity = made(alone(life_of_emergencies))
    (ref,) = branches(life_of_emergencies)
    life_of_emergencies.apply(dying_at="cluster_apply.after_graph_delete")
    commit = life_of_emergencies.git.resolve(ref) or ""
    life_of_emergencies.git.update_refs([RefUpdate(ref, commit, ZERO)])
    assert life_of_emergencies.apply().ok
    entry = newest(life_of_emergencies)
    assert [d.approval_id for d in entry.debts] == [identity]
    assert entry.recovered
    life_of_emergencies.change("dora", QUERY)
    assert errors(life_of_emergencies.apply()) == ["debt_open"]
    assert life_of_emergencies.audit(life_of_emergencies.chain()[-1]).ok


def test_a_refresh_that_completes_a_run_owes_too(life_of_emergencies: Life) -> None:
    identity = made(alone(life_of_emergencies))
    life_of_emergencies.apply(dying_at="cluster_apply.after_graph_delete")
    done = refresh(life_of_emergencies.workspace())
    assert done.ok
    assert [d.approval_id for d in newest(life_of_emergencies).debts] == [identity]
    assert life_of_emergencies.audit(life_of_emergencies.chain()[-1]).ok


def test_an_announced_emergency_that_did_nothing_owes_nothing(life_of_emergencies: Life) -> None:
    made(alone(life_of_emergencies))
    life_of_emergencies.apply(dying_at="cluster_apply.before_graph_delete")
    outcome = life_of_emergencies.apply()
    assert deleted(outcome)
    assert len(newest(life_of_emergencies).debts) == 1
    assert len(life_of_emergencies.state(len(life_of_emergencies.chain())).debts) == 1


def test_a_countersignature_of_a_clone_travels_by_its_branch(owing: tuple[Life, str], tmp_path: Path) -> None:
    life, identity = owing
    clone = Life(
        tmp_path, config=life.config, clock=life.clock, ids=life.ids, name="ben-clone", url=str(life.git.git_dir)
    )
    clone.remote.fetch(["+refs/heads/*:refs/remotes/origin/*"])
    assert countersign(office(clone, "ben"), identity, "seen").ok
    assert [r.rpartition("/")[0] for r in branches(life) if "countersign" in r] == [
        "refs/heads/gitops/countersignatures/brain"
    ]
    assert life.apply().ok
    assert life.state(len(life.chain())).debts == ()


KIND, APPLICATION = b"sk-ssh-ed25519@openssh.com", b"ssh:"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class SecurityKey:
    """What a FIDO authenticator does, with the flags of our choice."""

    def __init__(self) -> None:
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(b"f" * 32)
        raw = self._private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._blob = string(KIND) + string(raw) + string(APPLICATION)

    @property
    def line(self) -> str:
        """The public key as an allowed-signers file has it."""
        return f"{KIND.decode()} {base64.b64encode(self._blob).decode()}"

    def sign(self, payload: bytes, flags: int, namespace: bytes = b"git") -> str:
        """An armored signature; `flags` 1 is the touch, 4 the PIN."""
        digest = string(hashlib.sha512(payload).digest())
        message = b"SSHSIG" + string(namespace) + string(b"") + string(b"sha512") + digest
        tail = bytes([flags]) + b"\0\0\0\7"
        signed = hashlib.sha256(APPLICATION).digest() + tail + hashlib.sha256(message).digest()
        signature = string(KIND) + string(self._private.sign(signed)) + tail
        parts = (self._blob, namespace, b"", b"sha512", signature)
        text = base64.b64encode(b"SSHSIG\0\0\0\1" + b"".join(map(string, parts))).decode()
        lines = [text[at : at + 70] for at in range(0, len(text), 70)]
        return "\n".join([ARMOR_BEGIN, *lines, ARMOR_END, ""])


class Keyed(Life):
    """A life in which zoe, an approver, has a security key."""

    def signers(self, *people: str) -> bytes:
        """With her line."""
        return super().signers(*people) + f"zoe {SecurityKey().line}\n".encode()


def approved(life: Life, flags: int) -> str:
    """Zoe's approval of what waits, where approvals are looked for."""
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    commit = life.git.resolve(ref) or ""
    approval, statement = life.approval(commit)
    life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    raw = _bytes(life, replace(approval, approved_by="zoe"), statement, flags)
    life.git.update_refs(
        [RefUpdate(ref, ZERO, life.git._write("commit", with_signature(raw, SecurityKey().sign(raw, flags))))]
    )
    return ref


def _bytes(life: Life, approval: Approval, statement: ApprovalStatement, flags: int) -> bytes:
    path = f"__cluster/approvals/{approval.approval_id}.json"
    base = life.git.commit(statement.ledger_head).tree
    tree = life.git.write_files(base, {path: write_approval(approval)})
    sign = partial(SecurityKey().sign, flags=flags, namespace=APPROVAL_NAMESPACE.encode())
    message = statement_message(statement, "delete graph.legacy", sign=sign)
    return format_commit(NewCommit(tree, (statement.ledger_head,), person("mallory"), message))


@pytest.mark.parametrize(("flags", "counts"), [(0, False), (4, False), (1, True), (5, True)])
def test_the_key_must_have_been_touched(tmp_path: Path, flags: int, counts: bool) -> None:
    config = Life.config.replace("[ada, ben@example.org]", "[ada, zoe]")
    life = Keyed(tmp_path, config=config)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    approved(life, flags)
    outcome = life.apply()
    assert deleted(outcome) is counts
    assert ("approval_signature_invalid" in warnings(outcome)) is not counts
    told = [d.message for d in outcome.diagnostics if d.code == "approval_signature_invalid"]
    assert all("not touched" in message for message in told)
    assert life.audit(life.chain()[-1]).ok
