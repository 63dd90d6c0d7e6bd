"""Commands in comments: who may give them, what they may speak of, and that saying one twice does no harm."""

from __future__ import annotations

import pytest

from gitops.bot.attestations import approving_reviews
from gitops.forge.events import ReviewEvent
from gitops.forge.port import Account, Permission, Review, ReviewState
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import RunResult
from tests.support.bot_stage import LATE, QUERY, Stage, said, take_lock, verdict
from tests.support.loop import CLUSTER, DELETE_LEGACY, Loop

pytestmark = pytest.mark.e2e

ALICE, BOB, CAROL = "11", "12", "13"
WRITERS = dict.fromkeys((ALICE, BOB, CAROL), Permission.WRITE)


@pytest.fixture
def stage(known: Loop) -> Stage:
    return Stage(known, people=dict(WRITERS))


def _planned(stage: Stage) -> str:
    """Request 1 of alice deletes a graph; the digest of its plan, as its comment shows it."""
    stage.propose("alice", "retire", dict(DELETE_LEGACY), message="Retire legacy\n")
    stage.say(BOB, 1, "/gitops plan")
    return _digest(stage)


def _digest(stage: Stage, number: int = 1) -> str:
    record = kept_plan(stage.local.project, CLUSTER, number)
    assert record is not None
    assert record.plan_digest is not None
    return record.plan_digest


def test_strangers_get_a_reaction_and_no_work(stage: Stage) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.people["99"] = Permission.READ
    stage.calls.clear()
    for line in ("/gitops plan", "/gitops nonsense"):
        notes = stage.say("99", 1, line)
        assert "command_refused" in said(notes)
        assert stage.reactions(1) == ["refused"]
    assert dict(stage.calls) == {"permission": 2, "react": 2}
    assert stage.loop.book.statuses(head) == ()


def test_a_command_is_answered_if_the_forge_does_not_say_who_may(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.broken.add("permission")
    notes = stage.say(BOB, 1, "/gitops plan")
    assert verdict(notes) is RunResult.PROBLEMS
    assert "command refused: command_refused: forge_refused: permission: not now" in said(notes)
    assert stage.reactions(1) == ["refused"]


def test_talk_is_not_even_asked_about(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.calls.clear()
    for words in ("I would say /gitops plan", "> /gitops plan", "/gitopsplan"):
        assert said(stage.say("99", 1, words)) == "the comment is not a command"
    assert not stage.calls


@pytest.mark.parametrize("line", ["/gitops plan --destroy", "/gitops plan --config / $(id)", "/gitops apply"])
def test_what_is_almost_a_command_is_told_in_the_one_comment(stage: Stage, line: str) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    notes = stage.say(BOB, 1, line)
    assert verdict(notes) is RunResult.PROBLEMS
    assert stage.reactions(1) == ["refused"]
    assert "command_invalid" in _own_comment(stage)
    assert "graph.legacy" in _own_comment(stage)


def test_a_comment_older_than_the_head_is_refused(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    notes = stage.say(BOB, 1, "/gitops plan", at="2025-06-15T00:00:00Z")
    assert "older than the head" in said(notes)
    assert "command_refused" in _own_comment(stage)


def test_approve_counts_for_the_plan_that_it_names_and_once(stage: Stage) -> None:
    digest = _planned(stage)
    notes = stage.say(BOB, 1, f"/gitops approve graph.legacy {'0' * 64}")
    assert "command_refused" in said(notes)
    assert stage.loop.approvals() == ()
    notes = stage.say(BOB, 1, f"/gitops approve graph.legacy {digest}")
    assert verdict(notes) is RunResult.DONE
    assert stage.reactions(1) == ["done"]
    assert len(stage.loop.approvals()) == 1
    # The same comment, delivered again.
    again = stage.handle(stage.last)
    assert "approved already" in said(again)
    assert len(stage.loop.approvals()) == 1
    before = stage.loop.tip()
    assert verdict(stage.pushed(before, stage.land(1))) is RunResult.DONE
    assert not stage.loop.graph("legacy").exists()
    # And once more after the merge, when it would be refused.
    report = _own_comment(stage)
    late = stage.handle(stage.last)
    assert (verdict(late), "request_closed" in said(late)) == (RunResult.DONE, True)
    assert (stage.reactions(1), _own_comment(stage)) == (["done"], report)


def test_a_moved_head_takes_the_digest_with_it(stage: Stage) -> None:
    digest = _planned(stage)
    head = stage.loop.request(1).head
    stage.propose("alice", "retire", {"cluster/notes.gq": QUERY}, head)
    notes = stage.say(BOB, 1, f"/gitops approve graph.legacy {digest}")
    assert "command_refused" in said(notes)
    assert stage.loop.approvals() == ()


@pytest.mark.parametrize(
    ("account", "code"), [(ALICE, "approval_self"), ("14", "approval_account_unknown")], ids=["the author", "nobody"]
)
def test_approve_is_refused_where_it_would_not_count(stage: Stage, account: str, code: str) -> None:
    digest = _planned(stage)
    stage.people["14"] = Permission.ADMIN
    notes = stage.say(account, 1, f"/gitops approve graph.legacy {digest}")
    assert code in said(notes)
    assert code in _own_comment(stage)
    assert stage.loop.approvals() == ()


def test_approve_names_something_that_needs_it(stage: Stage) -> None:
    digest = _planned(stage)
    assert "approval_not_required" in said(stage.say(BOB, 1, f"/gitops approve graph.notes {digest}"))


def test_a_bot_without_a_key_attests_nothing(stage: Stage) -> None:
    digest = _planned(stage)
    stage.keys = False
    assert "signing_key_missing" in said(stage.say(BOB, 1, f"/gitops approve graph.legacy {digest}"))


def test_unlock_removes_the_lock_that_it_names(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    take_lock(stage.loop)
    assert "state_lock_id_mismatch" in said(stage.say(BOB, 1, "/gitops unlock 01JZ0000000000000000000002"))
    assert stage.reactions(1) == ["refused"]
    notes = stage.say(BOB, 1, "/gitops unlock 01JZ0000000000000000000001")
    assert (verdict(notes), stage.reactions(1)) == (RunResult.DONE, ["done"])
    assert verdict(stage.handle(stage.last)) is RunResult.DONE


def test_explain_tells_more_of_one_change(stage: Stage) -> None:
    _planned(stage)
    short = len(_own_comment(stage))
    assert verdict(stage.say(BOB, 1, "/gitops explain graph.legacy")) is RunResult.WAITS
    assert stage.reactions(1) == ["done"]
    assert len(_own_comment(stage)) > short


def test_retry_applies_a_merge_again(stage: Stage) -> None:
    digest = _planned(stage)
    before = stage.loop.tip()
    assert verdict(stage.pushed(before, stage.land(1))) is RunResult.WAITS
    assert "request_closed" in said(stage.say(BOB, 1, f"/gitops approve graph.legacy {digest}"))
    assert stage.loop.sign_approval("bob", "graph.legacy").ok
    assert verdict(stage.say(BOB, 1, "/gitops retry")) is RunResult.DONE
    assert not stage.loop.graph("legacy").exists()


def test_a_cluster_is_named_by_its_name(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert verdict(stage.say(BOB, 1, "/gitops plan --cluster brain")) is RunResult.WAITS
    assert "cluster_not_found" in said(stage.say(BOB, 1, "/gitops plan --cluster other"))


def test_a_review_is_attested_where_it_counts(stage: Stage) -> None:
    _planned(stage)
    head = stage.loop.request(1).head
    stage.review(ALICE, ReviewState.APPROVED, head)
    stage.review(CAROL, ReviewState.APPROVED, head)
    stage.review(CAROL, ReviewState.CHANGES_REQUESTED, head)
    stage.review(BOB, ReviewState.APPROVED, "1" * 40)
    notes = stage.handle(ReviewEvent(1))
    assert "approval_self" in said(notes)
    assert stage.loop.approvals() == ()
    # An account of which the forge says nothing hides no other one.
    stage.review("99", ReviewState.APPROVED, head)
    stage.broken.add("99")
    stage.review(BOB, ReviewState.APPROVED, head)
    notes = stage.handle(ReviewEvent(1))
    assert "review of login-99: command_refused: forge_refused: permission of 99: not now" in said(notes)
    assert "approved by bob@people.example" in said(notes)
    assert stage.loop.status(head, "plan").startswith("success")
    stage.handle(ReviewEvent(1))
    assert len(stage.loop.approvals()) == 1


def test_reviews_are_not_looked_at_where_they_cannot_count(loop: Loop) -> None:
    stage = Stage(loop)
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.review(BOB, ReviewState.APPROVED, stage.loop.request(1).head)
    stage.handle(ReviewEvent(1))
    assert stage.calls["reviews"] == 0
    assert stage.loop.approvals() == ()


@pytest.mark.parametrize(
    ("states", "counts"),
    [
        (["approved"], True),
        (["approved", "changes_requested"], False),
        (["changes_requested", "approved"], True),
        (["approved", "dismissed"], False),
        (["approved", "commented"], True),
        (["commented"], False),
    ],
)
def test_the_newest_decision_of_an_account_counts(states: list[str], counts: bool) -> None:
    head = "a" * 40
    reviews = tuple(Review(str(n), Account(BOB, "bob"), ReviewState(s), head, LATE) for n, s in enumerate(states))
    assert bool(approving_reviews(reviews, head.__eq__)) is counts
    assert not approving_reviews(reviews, ("b" * 40).__eq__)


def _own_comment(stage: Stage) -> str:
    (body,) = [c.body for c in stage.loop.book.comments(1) if c.marker is not None]
    return body
