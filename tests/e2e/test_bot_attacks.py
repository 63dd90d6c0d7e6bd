"""Attacks on the bot of a forge: made-up events, comments that change, approvals of one's own work under another name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.approving.decide import DecisionContext, revoke
from gitops.cluster.ledger.chain import revocations_prefix
from gitops.forge.events import CommentEvent, PushEvent, ReviewEvent
from gitops.forge.port import Account, Permission, ReviewDecision, ReviewState
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import RunResult
from gitops.repository.wiring.local import LocalRepository
from tests.support.bot_stage import LATE, QUERY, Stage, said, verdict
from tests.support.loop import APPROVALS, CLUSTER, CLUSTER_YAML, DELETE_LEGACY, MAIN, Loop, email

pytestmark = pytest.mark.e2e

ALICE, BOB, CAROL = "11", "12", "13"
WRITERS = dict.fromkeys((ALICE, BOB, CAROL), Permission.WRITE)


@pytest.fixture
def stage(known: Loop) -> Stage:
    """Request 1 of alice deletes a graph, and its plan is told; everybody may write."""
    stage = Stage(known, people=dict(WRITERS))
    stage.propose("alice", "retire", dict(DELETE_LEGACY), message="Retire legacy\n")
    stage.say(CAROL, 1, "/gitops plan")
    return stage


def _approve(stage: Stage) -> str:
    record = kept_plan(stage.local, CLUSTER, 1)
    assert record is not None
    return f"/gitops approve graph.legacy {record.plan_digest}"


# Made-up and changed comments


def test_a_comment_that_the_forge_does_not_have_is_no_command(stage: Stage) -> None:
    """Alice starts a job by hand and hands it an event: bob approves."""
    notes = stage.handle(CommentEvent(1, "0999", Account(BOB, "bob"), _approve(stage), LATE))
    assert "command_refused" in said(notes)
    assert verdict(notes) is RunResult.PROBLEMS
    assert stage.loop.approvals() == ()


def test_a_comment_of_somebody_else_is_not_attested(stage: Stage) -> None:
    """The words are there, but alice wrote them."""
    line = _approve(stage)
    stage.say(ALICE, 1, line)
    notes = stage.handle(replace(stage.last, author=Account(BOB, "bob")))
    assert "command_refused" in said(notes)
    assert stage.loop.approvals() == ()


def test_a_comment_that_says_something_else_by_now_is_not_attested(stage: Stage) -> None:
    line = _approve(stage)
    stage.say(BOB, 1, "Looks fine to me.")
    notes = stage.handle(replace(stage.last, body=line))
    assert "command_refused" in said(notes)
    assert stage.loop.approvals() == ()


def test_a_comment_that_somebody_edited_is_neither_an_approval_nor_a_command(stage: Stage) -> None:
    """Alice may write to the repository: she puts the command into a comment of bob, and starts the job with an event."""
    notes = stage.say(BOB, 1, _approve(stage), edited=True)
    assert "was edited" in said(notes)
    assert (stage.loop.approvals(), stage.reactions(1)) == ((), [])


def test_a_comment_is_as_old_as_the_forge_says(stage: Stage) -> None:
    """An event may claim any time; the comment was written before the head was pushed."""
    line = _approve(stage)
    stage.say(BOB, 1, "/gitops plan", at="2025-06-15T00:00:00Z")
    assert "older than the head" in said(stage.handle(replace(stage.last, at=LATE)))
    stage.say(BOB, 1, line)
    assert len(stage.loop.approvals()) == 1


def test_a_review_of_somebody_who_has_left_is_not_attested(stage: Stage) -> None:
    """In a public repository anybody may review, and bob is still in the rules."""
    stage.people[BOB] = Permission.READ
    stage.review(BOB, ReviewState.APPROVED, stage.loop.request(1).head)
    assert "command_refused" in said(stage.handle(ReviewEvent(1)))
    assert stage.loop.approvals() == ()


# What was taken back stays so


def _revoke(stage: Stage, who: str) -> bool:
    local: LocalRepository = stage.local
    (ref,) = stage.loop.approvals()
    store = stage.loop.store
    rule = local.config().cluster(CLUSTER)
    by = ApprovalPublisher(store, SelfRemote(store), Person(who, email(who)), str(stage.loop.key(who)), APPROVALS)
    office = DecisionContext(local.ledger(rule), local.target(rule), by, local.clock, local.ids, local.faults)
    return revoke(office, ref.removeprefix(APPROVALS), "I looked again").ok


def test_a_review_that_was_taken_back_is_not_attested_by_the_next_event(stage: Stage) -> None:
    stage.review(BOB, ReviewState.APPROVED, stage.loop.request(1).head)
    stage.handle(ReviewEvent(1))
    assert _revoke(stage, "bob")
    assert "approval_revoked" in said(stage.handle(ReviewEvent(1)))
    assert len(stage.loop.approvals()) == 1
    before = stage.loop.tip()
    assert verdict(stage.pushed(before, stage.land(1))) is RunResult.WAITS
    assert stage.loop.graph("legacy").exists()


def test_a_command_that_was_taken_back_is_not_carried_out_again(stage: Stage) -> None:
    stage.say(BOB, 1, _approve(stage))
    assert _revoke(stage, "carol")
    assert "approval_revoked" in said(stage.handle(stage.last))
    assert len(stage.loop.approvals()) == 1
    assert len(stage.loop.store.refs(revocations_prefix(CLUSTER).rstrip("/"))) == 1


# One's own work under another name


def test_an_address_that_the_forge_made_up_is_its_account(stage: Stage) -> None:
    """Bob edits alice's branch in the browser: the author is `12+bob@users.noreply.github.com`, whom no key names."""
    store, request = stage.loop.store, stage.loop.request(1)
    back = {"cluster/cluster.yaml": CLUSTER_YAML.encode()}
    tree = store.write_files(store.commit(request.head).tree, back)
    author = Person("bob", "12+bob@users.noreply.github.com", store.commit(request.head).author.time)
    again = store.write_commit(NewCommit(tree, (request.head,), author, "Keep it\n"), signing_key=None)
    stage.loop.move("refs/heads/retire", stage.loop.commit("alice", dict(DELETE_LEGACY), again))
    refused = stage.loop.sign_approval("bob", "graph.legacy", request=1)
    assert [d.code for d in refused.diagnostics if d.severity == "error"] == ["approval_self"]
    refused = stage.loop.sign_approval("carol", "graph.legacy", request=1)
    assert [d.code for d in refused.diagnostics if d.severity == "error"] == ["approval_authors_unknown"]


def test_a_branch_that_is_pushed_anew_is_its_pushers_work(known: Loop) -> None:
    """Bob removes main and pushes it with a commit more, in the name of mallory."""
    stage = Stage(known, people=dict(WRITERS))
    new = known.commit("mallory", dict(DELETE_LEGACY))
    known.store.update_refs([RefUpdate(MAIN, known.tip(), new)])
    stage.handle(PushEvent(MAIN, ZERO, new, f"github:{BOB}"))
    refused = known.sign_approval("bob", "graph.legacy")
    assert [d.code for d in refused.diagnostics if d.severity == "error"] == ["approval_self"]
    assert known.graph("legacy").exists()


# A verdict of other rules


def test_a_verdict_on_a_request_into_another_branch_opens_nothing(judged: Loop) -> None:
    """The commit on main is also what a request into a branch with laxer rules brought in, which the forge approves."""
    stage = Stage(judged)
    before = judged.tip()
    new = judged.commit("mallory", {"cluster/notes.gq": QUERY})
    judged.book.open_or_update("refs/heads/topic", "refs/heads/lax", new, "Words", email("mallory"))
    judged.book.mark_merged(1, new)
    stage.verdicts[1] = ReviewDecision.APPROVED
    judged.store.update_refs([RefUpdate(MAIN, before, new)])
    assert "came with no request" in said(stage.pushed(before, new))
    assert judged.status(new, "apply") == "failure: forge_verdict_missing"
