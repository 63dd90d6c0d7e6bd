"""Commands, reviews, attacks, bounds and queues of the bot: who may say what, and what is asked of whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.bot.attestations import approving_reviews
from gitops.bot.dispatch import run_verb
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.approving.decide import DecisionContext, revoke
from gitops.cluster.ledger.chain import revocations_prefix
from gitops.forge.events import CommentEvent, ManualEvent, PushEvent, QueueEvent, ReviewEvent
from gitops.forge.port import Account, Permission, Review, ReviewDecision, ReviewState
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import LogLine, RunResult
from gitops.repository.wiring.local import LocalRepository
from tests.support.bot_stage import ALICE, BOB, CAROL, LATE, QUERY, WRITERS, Stage, said, take_lock, verdict
from tests.support.loop import APPROVALS, CLUSTER, CLUSTER_YAML, DELETE_LEGACY, MAIN, Loop, email

pytestmark = pytest.mark.e2e


def _planned(stage: Stage) -> str:
    """Request 1 of alice deletes a graph; the digest of its plan, as its comment shows it."""
    stage.propose("alice", "retire", dict(DELETE_LEGACY), message="Retire legacy\n")
    stage.say(BOB, 1, "/gitops plan")
    return _digest(stage)


def _digest(stage: Stage, number: int = 1) -> str:
    record = kept_plan(stage.local, CLUSTER, number)
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
    assert "already approved" in said(again)
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


def test_approve_is_refused_while_an_author_is_unknown(stage: Stage) -> None:
    head = stage.loop.commit("mallory", dict(DELETE_LEGACY), key=None)
    stage.loop.store.update_refs([RefUpdate("refs/heads/retire", ZERO, head)])
    stage.loop.book.open_or_update("refs/heads/retire", MAIN, head, "Retire", email("mallory"))
    stage.say(BOB, 1, "/gitops plan")
    notes = stage.say(BOB, 1, f"/gitops approve graph.legacy {_digest(stage)}")
    assert "command refused: approval_authors_unknown" in said(notes)
    assert stage.reactions(1) == ["refused"]
    assert stage.loop.approvals() == ()
    # One remedy, which is for the author and can be copied as it is.
    comment = _own_comment(stage)
    assert comment.count("git rebase --exec 'git commit --amend --no-edit -S' origin/main") == 1
    assert "git push --force-with-lease origin retire" in comment
    assert "BRANCH" not in comment


def test_approve_names_something_that_needs_it(stage: Stage) -> None:
    digest = _planned(stage)
    refused = said(stage.say(BOB, 1, f"/gitops approve graph.notes {digest}"))
    assert "approval_not_required" in refused
    assert "list the changes that need approval: `gitops plan --request 1`" in _own_comment(stage)


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


@pytest.fixture
def planned(known: Loop) -> Stage:
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


def test_a_comment_that_the_forge_does_not_have_is_no_command(planned: Stage) -> None:
    """Alice starts a job by hand and hands it an event: bob approves."""
    notes = planned.handle(CommentEvent(1, "0999", Account(BOB, "bob"), _approve(planned), LATE))
    assert "command_refused" in said(notes)
    assert verdict(notes) is RunResult.PROBLEMS
    assert planned.loop.approvals() == ()


def test_a_comment_of_somebody_else_is_not_attested(planned: Stage) -> None:
    """The words are there, but alice wrote them."""
    line = _approve(planned)
    planned.say(ALICE, 1, line)
    notes = planned.handle(replace(planned.last, author=Account(BOB, "bob")))
    assert "command_refused" in said(notes)
    assert planned.loop.approvals() == ()


def test_a_comment_that_says_something_else_by_now_is_not_attested(planned: Stage) -> None:
    line = _approve(planned)
    planned.say(BOB, 1, "Looks fine to me.")
    notes = planned.handle(replace(planned.last, body=line))
    assert "command_refused" in said(notes)
    assert planned.loop.approvals() == ()


def test_a_comment_that_somebody_edited_is_neither_an_approval_nor_a_command(planned: Stage) -> None:
    """Alice may write to the repository: she puts the command into a comment of bob, and starts the job with an event."""
    notes = planned.say(BOB, 1, _approve(planned), edited=True)
    assert "was edited" in said(notes)
    assert (planned.loop.approvals(), planned.reactions(1)) == ((), [])


def test_a_comment_is_as_old_as_the_forge_says(planned: Stage) -> None:
    """An event may claim any time; the comment was written before the head was pushed."""
    line = _approve(planned)
    planned.say(BOB, 1, "/gitops plan", at="2025-06-15T00:00:00Z")
    assert "older than the head" in said(planned.handle(replace(planned.last, at=LATE)))
    planned.say(BOB, 1, line)
    assert len(planned.loop.approvals()) == 1


def test_a_review_of_somebody_who_has_left_is_not_attested(planned: Stage) -> None:
    """In a public repository anybody may review, and bob is still in the rules."""
    planned.people[BOB] = Permission.READ
    planned.review(BOB, ReviewState.APPROVED, planned.loop.request(1).head)
    assert "command_refused" in said(planned.handle(ReviewEvent(1)))
    assert planned.loop.approvals() == ()


# What was taken back stays so


def _revoke(stage: Stage, who: str) -> bool:
    local: LocalRepository = stage.local
    (ref,) = stage.loop.approvals()
    store = stage.loop.store
    rule = local.config().cluster(CLUSTER)
    by = ApprovalPublisher(store, SelfRemote(store), Person(who, email(who)), str(stage.loop.key(who)), APPROVALS)
    office = DecisionContext(local.ledger(rule), local.target(rule), by, local.clock, local.ids, local.faults)
    return revoke(office, ref.removeprefix(APPROVALS), "I looked again").ok


def test_a_review_that_was_taken_back_is_not_attested_by_the_next_event(planned: Stage) -> None:
    planned.review(BOB, ReviewState.APPROVED, planned.loop.request(1).head)
    planned.handle(ReviewEvent(1))
    assert _revoke(planned, "bob")
    assert "approval_revoked" in said(planned.handle(ReviewEvent(1)))
    assert len(planned.loop.approvals()) == 1
    before = planned.loop.tip()
    assert verdict(planned.pushed(before, planned.land(1))) is RunResult.WAITS
    assert planned.loop.graph("legacy").exists()


def test_a_command_that_was_taken_back_is_not_carried_out_again(planned: Stage) -> None:
    planned.say(BOB, 1, _approve(planned))
    assert _revoke(planned, "carol")
    assert "approval_revoked" in said(planned.handle(planned.last))
    assert len(planned.loop.approvals()) == 1
    assert len(planned.loop.store.refs(revocations_prefix(CLUSTER).rstrip("/"))) == 1


# One's own work under another name


def test_an_address_that_the_forge_made_up_is_its_account(planned: Stage) -> None:
    """Bob edits alice's branch in the browser: the author is `12+bob@users.noreply.github.com`, whom no key names."""
    store, request = planned.loop.store, planned.loop.request(1)
    back = {"cluster/cluster.yaml": CLUSTER_YAML.encode()}
    tree = store.write_files(store.commit(request.head).tree, back)
    author = Person("bob", "12+bob@users.noreply.github.com", store.commit(request.head).author.time)
    again = store.write_commit(NewCommit(tree, (request.head,), author, "Keep it\n"), signing_key=None)
    planned.loop.move("refs/heads/retire", planned.loop.commit("alice", dict(DELETE_LEGACY), again))
    refused = planned.loop.sign_approval("bob", "graph.legacy", request=1)
    assert [d.code for d in refused.diagnostics if d.severity == "error"] == ["approval_self"]
    refused = planned.loop.sign_approval("carol", "graph.legacy", request=1)
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


OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"
THIRD = b"query titles() { match { $z: Note } return { $z.title } }\n"


def _sweep(stage: Stage) -> list[LogLine]:
    return list(run_verb(stage.bot(), "sweep", ManualEvent()))


COALESCE = "apply: {queue: coalesce}\n"
"""All that waits is brought in at once, so that there is more of it than is asked about."""


def _ask_about_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("bot.apply_clusters", "repository.authors"):
        monkeypatch.setattr(f"gitops.{module}.MOST_ASKED", 1)


def _landed(stage: Stage) -> str:
    """Alice's request, squashed by carol, so that nothing in the commit names alice; another merge is on top of it."""
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.land(1)
    stage.propose("bob", "words", {"README.md": b"More words.\n"}, stage.loop.tip())
    stage.land(2)
    return before


def test_whoever_was_squashed_is_asked_for(stage: Stage) -> None:
    before = _landed(stage)
    assert stage.loop.sign_approval("alice", "graph.legacy", blind=True).ok
    notes = stage.pushed(before, stage.loop.tip())
    assert "approval_self" in said(notes)
    assert "approval_authors_unknown" not in said(notes)
    assert stage.loop.graph("legacy").exists()


def test_beyond_the_bound_nobodys_approval_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_about_one(monkeypatch)
    stage.configure(COALESCE)
    before = _landed(stage)
    assert stage.loop.sign_approval("alice", "graph.legacy", blind=True).ok
    notes = stage.pushed(before, stage.loop.tip())
    assert verdict(notes) is RunResult.WAITS
    assert "approval_authors_unknown" in said(notes)
    assert stage.loop.graph("legacy").exists()
    # It stays unknown: what could not be asked for then cannot be asked for later.
    assert verdict(_sweep(stage)) is RunResult.WAITS
    assert stage.loop.graph("legacy").exists()


def test_beyond_the_bound_what_needs_no_approval_is_applied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_about_one(monkeypatch)
    stage.configure(COALESCE)
    before = stage.loop.tip()
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.land(1)
    stage.propose("bob", "words", {"README.md": b"More words.\n"}, stage.loop.tip())
    stage.land(2)
    notes = stage.pushed(before, stage.loop.tip())
    assert verdict(notes) is RunResult.DONE
    assert "approval_authors_unknown" not in said(notes)


def test_more_requests_than_are_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.apply_clusters._MOST_REPORTED", 1)
    stage.configure(COALESCE)
    before = stage.loop.tip()
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.land(1)
    stage.propose("bob", "other", {"cluster/notes.gq": OTHER}, stage.loop.tip())
    stage.land(2)
    notes = stage.pushed(before, stage.loop.tip())
    assert "1 more change requests were merged at once and get no report" in said(notes)
    assert [len(stage.loop.book.comments(number)) for number in (1, 2)] == [0, 1]


def test_requests_that_nobody_planned_are_found_oldest_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.sweep._MOST_REQUESTS", 2)
    heads = [
        stage.propose("alice", name, {"cluster/notes.gq": text})
        for name, text in (("one", QUERY), ("two", OTHER), ("three", THIRD))
    ]
    stage.propose("bob", "words", {"README.md": b"More words.\n"})
    first = said(_sweep(stage))
    assert "request 1: no run has planned its head" in first
    assert "request 2: no run has planned its head" in first
    assert "1 more open change request not checked" in first
    assert stage.loop.book.statuses(heads[2]) == ()
    second = said(_sweep(stage))
    assert "request 3: no run has planned its head" in second
    assert [stage.loop.status(head, "plan") for head in heads] == ["success: 1 change"] * 3
    assert "no run planned" not in said(_sweep(stage))


def test_a_plan_of_another_head_is_no_plan(stage: Stage) -> None:
    stage.propose("alice", "one", {"cluster/notes.gq": QUERY})
    _sweep(stage)
    head = stage.propose("alice", "one", {"cluster/notes.gq": OTHER})
    assert "request 1: no run has planned its head" in said(_sweep(stage))
    assert stage.loop.status(head, "plan") == "success: 1 change"


SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


def _plan(stage: Stage, number: int) -> None:
    list(run_verb(stage.bot(), "plan", ManualEvent((("request", str(number)),))))


def _group(stage: Stage, base: str, number: int) -> QueueEvent:
    """What a queue builds: the request squashed on top of `base`."""
    store = stage.loop.store
    tree = store.merge(base, stage.loop.request(number).head).tree
    assert tree is not None
    queue = Person("queue", "queue@forge.example", 1)
    head = store.write_commit(NewCommit(tree, (base,), queue, f"Merge request {number}\n"), signing_key=None)
    return QueueEvent(head, base, MAIN)


def test_the_log_of_a_plan_has_each_error_at_its_place(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": b"query titles() {\n    match { $n: Nte }\n}\n"})
    lines = said(run_verb(stage.bot(), "plan", ManualEvent((("request", "1"),))))
    assert "  error query_" in lines
    assert "(cluster/notes.gq:" in lines


def test_an_unrelated_commit_in_front_changes_nothing(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _plan(stage, 1)
    base = stage.loop.commit("carol", {"README.md": b"Elsewhere.\n"})
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE


def test_a_related_commit_in_front_makes_another_plan(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _plan(stage, 1)
    base = stage.loop.commit("carol", {"cluster/legacy.pg": SCHEMA})
    event = _group(stage, base, 1)
    notes = stage.handle(event)
    assert verdict(notes) is RunResult.PROBLEMS
    assert "queue_plan_differs" in said(notes)
    assert stage.loop.status(event.head, "plan") == "failure: 1 error"
    # The one in front has landed and is applied; the new plan was looked at.
    stage.loop.move(MAIN, base)
    _plan(stage, 1)
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE


def test_a_missing_approval_keeps_a_group_out(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    _plan(stage, 1)
    event = _group(stage, stage.loop.tip(), 1)
    assert verdict(stage.handle(event)) is RunResult.WAITS
    assert stage.loop.status(event.head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    assert verdict(stage.handle(event)) is RunResult.DONE


def test_a_group_of_nobody_known_does_not_pass(stage: Stage) -> None:
    base = stage.loop.tip()
    head = stage.loop.commit("mallory", {"cluster/notes.gq": QUERY})
    notes = stage.handle(QueueEvent(head, base, MAIN))
    assert verdict(notes) is RunResult.PROBLEMS
    assert "queue_plan_differs" in said(notes)


def test_a_plan_that_nobody_kept_is_made_again(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    base = stage.loop.tip()
    assert verdict(stage.handle(_group(stage, base, 1))) is RunResult.DONE
    other = stage.loop.commit("carol", {"cluster/legacy.pg": SCHEMA})
    assert verdict(stage.handle(_group(stage, other, 1))) is RunResult.PROBLEMS


def test_a_group_that_leaves_the_cluster_alone_passes(stage: Stage) -> None:
    stage.propose("alice", "elsewhere", {"README.md": b"Elsewhere.\n"})
    event = _group(stage, stage.loop.tip(), 1)
    assert verdict(stage.handle(event)) is RunResult.DONE
    assert stage.loop.status(event.head, "plan") == "success: does not touch the cluster"


def test_a_group_waits_for_the_forges_own_verdict(judged: Loop) -> None:
    stage = Stage(judged)
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    _plan(stage, 1)
    assert verdict(stage.handle(_group(stage, stage.loop.tip(), 1))) is RunResult.WAITS
