"""Approvals via a forge: what the bot may attest, for whom, for what, and when it does not stand any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.bot.attestations import approving_reviews, attest, newest_reviews, revoke_lapsed
from gitops.cluster.approvals.origins import KnownOrigins, Pushed
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.approving.decide import revoke
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import GrantSource, Via
from gitops.cluster.model.ledger import How
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.forge.port import Account, Review, ReviewState
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.repository import Candidate
from tests.support.audited import CONFIG, MAIN, START, Life, declared
from tests.support.governed import (
    ACCOUNTS,
    PERMISSIVE,
    attested,
    branches,
    deleted,
    errors,
    grant,
    made,
    means,
    newest,
    office,
    unlisted,
    waiting,
    warnings,
)

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
