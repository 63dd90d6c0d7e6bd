"""Merges that wait: the branch is the queue. The numbers are those of the scenarios of the design note on changesets."""

from __future__ import annotations

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Changeset, ChangesetState, Committed, Created, Prepared, Removal
from gitops.forge.events import ManualEvent, TimerEvent
from gitops.forge.port import Permission
from gitops.git.port import RefUpdate
from gitops.repository.changes import brings_nothing
from gitops.repository.results import RunResult
from tests.support.bot_stage import QUERY, Stage, said, take_lock, verdict
from tests.support.changeset_stories import created, failed, landed, record
from tests.support.loop import CLUSTER_YAML, DELETE_LEGACY, LEDGER, MAIN, Loop

pytestmark = pytest.mark.e2e

BOB = "12"
OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"
THIRD = b"query titles() { match { $z: Note } return { $z.title } }\n"
BROKEN = b"query titles() { match { $z: Nothing } return { $z.title } }\n"


@pytest.fixture
def stage(known: Loop) -> Stage:
    return Stage(known, people={BOB: Permission.WRITE})


def _merge(stage: Stage, *texts: bytes) -> list[str]:
    """Merges of which the bot hears nothing, each of another text of the query; their commits."""
    first = len(stage.loop.book.requests()) + 1
    found = []
    for number, text in enumerate(texts, start=first):
        stage.propose("alice", f"topic-{number}", {"cluster/notes.gq": text}, stage.loop.tip())
        found.append(stage.land(number))
    return found


def _fail(stage: Stage, merge: str, **facts: object) -> Changeset:
    """A merge whose changeset failed, as a whole."""
    made = created(merge, atomic=True, **facts)
    record(stage.loop, made, failed(made))
    return made


def _covers(stage: Stage) -> list[tuple[str, ...]]:
    """What the changesets of a test brought in, the oldest first."""
    return [each.covers for each in reversed(stage.changesets()[:-1])]


def _report(stage: Stage) -> str:
    """The bot's comment on request 1, on which people comment as well."""
    (body,) = [
        each.body for each in stage.loop.book.comments(1) if each.body.startswith("<!-- gitops cluster=brain -->")
    ]
    return body


def test_each_merge_that_waits_gets_its_own_changeset_and_entry(stage: Stage) -> None:
    one, two, three = _merge(stage, QUERY, OTHER, THIRD)
    stage.pushed(one, three)
    assert _covers(stage) == [(one,), (two,), (three,)]
    merges = [each.source.merge_commit for each in stage.changesets()[:3]]
    assert merges == [three, two, one]
    assert [stage.loop.request(n).labels for n in (1, 2, 3)] == [("gitops/applied",)] * 3


def test_18_with_coalesce_one_changeset_brings_in_three_merges_and_each_finds_it(stage: Stage) -> None:
    stage.configure("apply: {queue: coalesce}\n")
    one, two, three = _merge(stage, QUERY, OTHER, THIRD)
    stage.pushed(one, three)
    (found,) = [each for each in stage.changesets() if three in each.covers]
    assert {one, two, three} <= set(found.covers)
    ledger = stage.local.ledger(stage.local.config().cluster("brain"))
    assert {ledger.changeset_of(commit) for commit in (one, two, three)} == {(found.key,)}


def test_what_a_later_merge_takes_back_is_never_done(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    stage.land(1)
    stage.propose("alice", "keep", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}, stage.loop.tip())
    stage.land(2)
    (third,) = _merge(stage, QUERY)
    # The delete is approved, and nobody wants it any more.
    assert verdict(stage.pushed(before, third)) is RunResult.DONE
    assert stage.loop.graph("legacy").exists()
    assert stage.changesets()[0].covers[-1] == third


def test_an_approval_for_a_request_counts_for_its_merge_whatever_was_merged_after_it(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    stage.land(1)
    (tip,) = _merge(stage, QUERY)
    assert verdict(stage.pushed(before, tip)) is RunResult.DONE
    assert not stage.loop.graph("legacy").exists()


def test_a_broken_merge_comes_with_its_repair_and_a_broken_head_holds_up_nothing_before_it(stage: Stage) -> None:
    good, broken = _merge(stage, QUERY, BROKEN)
    assert verdict(stage.pushed(good, broken)) is RunResult.PROBLEMS
    assert _covers(stage) == [(good,)]
    assert stage.loop.status(broken, "apply").startswith("failure")
    (repair,) = _merge(stage, THIRD)
    assert verdict(stage.pushed(broken, repair)) is RunResult.DONE
    assert _covers(stage)[-1] == (broken, repair)


def test_more_merges_than_one_run_applies_are_left_to_the_next(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.apply_clusters._MOST_ROUNDS", 1)
    one, two = _merge(stage, QUERY, OTHER)
    notes = stage.pushed(one, two)
    assert verdict(notes) is RunResult.LOST
    assert "1 more commits wait" in said(notes)
    assert verdict(stage.handle(TimerEvent())) is RunResult.DONE
    assert _covers(stage) == [(one,), (two,)]


def test_16_an_event_that_comes_twice_gives_no_second_changeset(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    head = stage.loop.tip(LEDGER)
    for _ in range(2):
        notes = stage.pushed(stage.loop.tip(), merge)
        assert verdict(notes) is RunResult.WAITS
        assert f"gitops changeset retry {made.key}" in said(notes)
    assert verdict(stage.handle(TimerEvent())) is RunResult.WAITS
    assert stage.loop.tip(LEDGER) == head
    # The next merge brings it in.
    (later,) = _merge(stage, OTHER)
    assert verdict(stage.pushed(merge, later)) is RunResult.DONE
    assert stage.changesets()[0].covers == (merge, later)
    assert "is applied with commit" in stage.loop.comment(2)


def test_17_a_retry_is_the_next_attempt_of_the_merge_of_its_request(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert verdict(stage.say(BOB, 1, "/gitops retry")) is RunResult.DONE
    again, first = stage.changesets()[:2]
    assert (again.retry_of, again.attempt, again.source.merge_commit) == (made.key, 2, merge)
    assert (first.key, first.state) == (made.key, ChangesetState.FAILED)
    assert stage.loop.request(1).labels == ("gitops/applied",)
    report = _report(stage)
    for _ in range(2):
        notes = stage.say(BOB, 1, "/gitops retry")
        assert stage.reactions(1) == ["refused"]
        assert f"nothing is left to retry: commit {merge[:12]} is applied with changeset {again.key}" in said(notes)
        # The report stays, with the newest answer below it.
        found = _report(stage)
        assert (found.startswith(report.rstrip()), found.count("nothing is left to retry")) == (True, 1)


def test_17_by_hand_the_newest_merge_that_failed_is_tried_again(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert verdict(list(run_verb(stage.bot(), "apply", ManualEvent()))) is RunResult.DONE
    assert stage.changesets()[0].retry_of == made.key


def test_17_what_a_later_merge_has_taken_over_is_retried_there(stage: Stage) -> None:
    one, two = _merge(stage, QUERY, OTHER)
    _fail(stage, one)
    made = created(two, atomic=True, covers=(one, two), created_at="2026-06-11T09:00:00Z")
    record(stage.loop, made, failed(made))
    notes = stage.say(BOB, 1, "/gitops retry")
    assert verdict(notes) is RunResult.PROBLEMS
    assert f"commit {two[:12]} was merged later and has taken it over with changeset {made.key}" in said(notes)
    assert verdict(stage.say(BOB, 2, "/gitops retry")) is RunResult.DONE
    assert stage.changesets()[0].covers == (one, two)


def test_17_what_is_carried_out_now_is_not_tried_again(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = created(merge, atomic=True)
    record(stage.loop, made, landed(made)[:3])
    take_lock(stage.loop)
    notes = stage.say(BOB, 1, "/gitops retry")
    assert f"changeset_active: changeset {made.key} is carried out now" in said(notes)
    assert stage.changesets()[0].key == made.key


def test_21_what_is_still_cleaned_up_keeps_out_merges_that_touch_it_and_no_others(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    stage.pushed(merge, merge)
    gone = Removal(Address("graph.legacy"), "ab" * 32)
    # Nothing announced the delete, so no run may carry it out.
    made = created("7" * 40, atomic=True, members=(), removals=(gone,), covers=("7" * 40,))
    record(stage.loop, made, [Created(made), Prepared(()), Committed(2, 1, (gone.address,))])
    (other,) = _merge(stage, OTHER)
    stage.pushed(merge, other)
    states = {each.source.merge_commit: each.state for each in stage.changesets()}
    assert (states[other], states["7" * 40]) == (ChangesetState.FINALIZED, ChangesetState.DRAINED)
    schema = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"
    tip = stage.loop.commit("alice", {"cluster/legacy.pg": schema})
    stage.loop.store.update_refs([RefUpdate(MAIN, other, tip)])
    notes = stage.pushed(other, tip)
    assert verdict(notes) is RunResult.PROBLEMS
    assert f"graph.legacy: changeset {made.key} is not finished" in said(notes)
    assert "schema.legacy: cluster_recovery_pending" in said(notes)
    assert {each.source.merge_commit: each.state for each in stage.changesets()} == states


def test_a_retry_needs_the_permission_of_every_command(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert "command_refused" in said(stage.say("99", 1, "/gitops retry"))
    assert stage.changesets()[0].key == made.key


def _nothing(stage: Stage, commit: str) -> bool:
    """Whether a job that waits for a commit has nothing to wait for."""
    project = stage.local
    return brings_nothing(project, project.config().cluster("brain"), commit)


def _elsewhere(stage: Stage) -> str:
    """A merge that does not touch the cluster, of which the bot hears nothing."""
    new = stage.loop.commit("carol", {"README.md": stage.loop.tip().encode()})
    stage.loop.store.update_refs([RefUpdate(MAIN, stage.loop.tip(), new)])
    return new


def test_15_a_merge_elsewhere_is_not_waited_for_while_nothing_before_it_waits(stage: Stage) -> None:
    assert _nothing(stage, first := _elsewhere(stage))
    (merge,) = _merge(stage, QUERY)
    later = _elsewhere(stage)
    # Until the merge before it has an answer, it may belong to that one, such as the last commit of a rebase.
    assert (_nothing(stage, merge), _nothing(stage, later)) == (False, False)
    made = _fail(stage, merge)
    assert (_nothing(stage, merge), _nothing(stage, later)) == (False, True)
    stage.say(BOB, 1, "/gitops retry")
    assert stage.changesets()[0].retry_of == made.key
    assert (_nothing(stage, first), _nothing(stage, later)) == (True, True)
    assert not _nothing(stage, "1" * 40)


def test_15_a_merge_with_an_empty_plan_is_answered_once_it_is_applied_and_one_that_waits_is_not(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("carol", "words", {"cluster/README.md": b"Other words.\n"})
    words = stage.land(1)
    assert not _nothing(stage, words)
    stage.pushed(before, words)
    assert _nothing(stage, words)
    stage.propose("alice", "retire", dict(DELETE_LEGACY), words)
    tip = stage.land(2)
    assert verdict(stage.pushed(words, tip)) is RunResult.WAITS
    assert (_nothing(stage, tip), _nothing(stage, _elsewhere(stage))) == (False, True)


def test_a_merge_elsewhere_gets_no_status_and_no_changeset(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "words", {"README.md": b"Other words.\n"})
    merge = stage.land(1)
    known = len(stage.changesets())
    notes = stage.pushed(before, merge)
    assert "does not touch the cluster" in said(notes)
    assert stage.loop.book.statuses(merge) == ()
    assert len(stage.changesets()) == known
