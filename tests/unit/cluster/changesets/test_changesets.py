"""What is said about changesets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.changesets.queue import WaitingCommit, next_step, whole_line
from gitops.cluster.changesets.stream import (
    ChangesetAnswer,
    FullState,
    StreamItem,
    StreamReading,
    Until,
    answer,
    answer_of_merge,
    newest_attempt,
    pull,
)
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetEvent,
    ChangesetKind,
    ChangesetResult,
    Excluded,
    Finalized,
    RuntimeState,
    RuntimeUpdated,
)
from tests.support.changeset_stories import AT, GONE, MERGES, after, created, failed, landed, numbered

FIRST = created()
LATER = "2026-06-11T09:00:00Z"


def at(length: int, record: Changeset = FIRST) -> Changeset:
    """The record after so many events of a changeset that lands."""
    return after(record, landed(record)[:length])


@pytest.mark.parametrize(
    ("length", "committed", "finalized"),
    [
        (1, ChangesetAnswer.WAITING, ChangesetAnswer.WAITING),
        (4, ChangesetAnswer.WAITING, ChangesetAnswer.WAITING),
        (5, ChangesetAnswer.DONE, ChangesetAnswer.WAITING),
        (6, ChangesetAnswer.DONE, ChangesetAnswer.WAITING),
        (7, ChangesetAnswer.DONE, ChangesetAnswer.DONE),
    ],
)
def test_a_changeset_is_done_where_it_was_asked_for(length, committed, finalized):
    assert answer_of_merge([at(length)], Until.COMMITTED) is committed
    assert answer_of_merge([at(length)], Until.FINALIZED) is finalized


def test_nothing_is_known_of_a_merge_without_a_changeset():
    assert newest_attempt([]) == ()
    assert answer_of_merge([], Until.COMMITTED) is ChangesetAnswer.WAITING


def test_a_failed_changeset_failed_and_one_that_rolls_back_is_not_known_yet():
    assert answer_of_merge([after(FIRST, failed(FIRST))], Until.FINALIZED) is ChangesetAnswer.FAILED
    assert answer_of_merge([after(FIRST, failed(FIRST)[:3])], Until.COMMITTED) is ChangesetAnswer.WAITING


def test_a_part_that_is_not_created_yet_is_waited_for_and_the_worst_part_counts():
    one, two = created(part="1/2"), created(part="2/2")
    done, broken = after(one, landed(one)), after(two, failed(two))
    assert answer(done, Until.COMMITTED) is ChangesetAnswer.DONE
    assert answer_of_merge(newest_attempt([done]), Until.COMMITTED) is ChangesetAnswer.WAITING
    assert answer_of_merge(newest_attempt([after(two, landed(two)), done]), Until.COMMITTED) is ChangesetAnswer.DONE
    assert [each.part for each in newest_attempt([broken, done])] == ["1/2", "2/2"]
    assert answer_of_merge(newest_attempt([broken, done]), Until.COMMITTED) is ChangesetAnswer.FAILED
    assert answer_of_merge(newest_attempt([after(one, failed(one))]), Until.COMMITTED) is ChangesetAnswer.FAILED


def test_another_attempt_counts_instead_of_the_failed_one():
    again = created(attempt=2, retry_of=FIRST.key)
    found = newest_attempt([after(FIRST, failed(FIRST)), after(again, landed(again))])
    assert [each.key for each in found] == [again.key]
    assert answer_of_merge(found, Until.FINALIZED) is ChangesetAnswer.DONE


def test_a_later_changeset_that_brings_the_merge_in_counts():
    together = created(MERGES[2], covers=(MERGES[2], MERGES[0]), created_at=LATER)
    found = newest_attempt([after(together, landed(together)), after(FIRST, failed(FIRST))])
    assert [each.key for each in found] == [together.key]


def test_a_repair_of_drift_says_nothing_about_the_merge():
    repair = created(created_at=LATER, kind=ChangesetKind.RECONCILE)
    broken = after(FIRST, failed(FIRST))
    assert newest_attempt([after(repair, landed(repair)), broken]) == (broken,)


def test_a_member_that_failed_while_the_rest_landed_fails():
    member = FIRST.members[0]
    lost = replace(member, runtime=replace(member.runtime, state=RuntimeState.FAILED))
    part = replace(at(5), atomic=False, members=(lost,))
    assert answer_of_merge([part], Until.COMMITTED) is ChangesetAnswer.FAILED


def test_what_fails_after_the_commit_is_tried_again_and_not_failed():
    member = replace(FIRST.members[0], effect=Effect.FINISH)
    stuck = replace(member, runtime=replace(member.runtime, state=RuntimeState.FAILED))
    record = replace(at(6), members=(stuck,), needs_attention=True)
    assert answer_of_merge([record], Until.COMMITTED) is ChangesetAnswer.DONE
    assert answer_of_merge([record], Until.FINALIZED) is ChangesetAnswer.WAITING


def test_what_was_left_out_fails_where_all_of_it_is_required():
    partly = replace(at(7), excluded=(Excluded(GONE, "blocked", "approval_required"),))
    assert answer_of_merge([partly], Until.COMMITTED) is ChangesetAnswer.DONE
    assert answer_of_merge([partly], Until.COMMITTED, require_converged=True) is ChangesetAnswer.FAILED
    behind = Finalized(ChangesetResult(2, False, False, {}, 5))
    story = [*landed(FIRST)[:6], behind]
    assert answer_of_merge([after(FIRST, story)], Until.FINALIZED, require_converged=True) is ChangesetAnswer.FAILED
    assert answer_of_merge([after(FIRST, story)], Until.FINALIZED) is ChangesetAnswer.DONE


def test_the_story_is_one_that_may_happen():
    assert isinstance(landed(FIRST)[2], RuntimeUpdated)
    assert at(7).updated_at == AT


LEGACY, FIND, NOTES = (Address(text) for text in ("graph.legacy", "query.notes.find", "schema.notes"))

# A line is written oldest first: a commit in upper case touches the cluster. `ends`: what a merge or a push ends with.
CASES = [
    # one merge after the other, each with its own changeset
    ("A", "", "A", ("A", "A", 0)),
    ("AB", "", "AB", ("A", "A", 1)),
    ("ABC", "A", "ABC", ("B", "AB", 1)),
    ("ABC", "C", "ABC", None),
    # what does not touch the cluster is no step, and nothing that a changeset brings in
    ("xAyB", "", "xAyB", ("A", "A", 1)),
    ("xy", "", "xy", None),
    ("Axy", "A", "Axy", None),
    ("xAy", "x", "xAy", ("A", "A", 0)),
    # the commits of a rebase are one merge, and its last one stands for it
    ("ABCD", "", "CD", ("C", "ABC", 1)),
    ("AbC", "", "bC", ("b", "Ab", 1)),
    # where no end is known, all is one
    ("ABC", "", "", ("C", "ABC", 0)),
    ("ABC", "A", "", ("C", "ABC", 0)),
    # what was tried counts by the newest of it
    ("ABCD", "AC", "ABCD", ("D", "ABCD", 0)),
    ("ABC", "Z", "ABC", ("A", "A", 2)),
]


def step(line: str, tried: str, ends: str, *, coalesce: bool = False, differs=lambda _: frozenset()):
    found = next_step(
        [WaitingCommit(each, each.isupper()) for each in line],
        tried,
        coalesce=coalesce,
        ends_merge=ends.__contains__,
        differs=differs,
    )
    return None if found is None else (found.commit, "".join(found.covers), found.left)


@pytest.mark.parametrize(("line", "tried", "ends", "expected"), CASES)
def test_the_oldest_merge_comes_first(line, tried, ends, expected):
    assert step(line, tried, ends) == expected


@pytest.mark.parametrize(
    ("line", "tried", "expected"),
    [("ABC", "", ("C", "ABC", 0)), ("AxBy", "A", ("y", "ABy", 0)), ("Axy", "A", None), ("AB", "B", None)],
)
def test_with_coalesce_all_that_waits_is_one_step(line, tried, expected):
    assert step(line, tried, line, coalesce=True) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        # A deletes a graph, and C brings it back: the delete is not done on the way.
        ({"A": {LEGACY}, "B": {LEGACY, FIND}, "C": {FIND}}, "C"),
        # A and B are taken back in part: A stands, B comes with C.
        ({"A": {FIND}, "B": {FIND, LEGACY}, "C": {FIND}}, "A"),
        # What B takes back and C wants again stands.
        ({"A": {LEGACY}, "B": set(), "C": {LEGACY}}, "A"),
        # A alone does not load; B repairs it.
        ({"A": None, "B": {FIND}, "C": {FIND, NOTES}}, "B"),
        # The newest does not load: what was merged before it does not wait for its repair.
        ({"A": {FIND}, "B": {FIND, NOTES}, "C": None}, "A"),
        ({"A": None, "B": None, "C": None}, "C"),
    ],
)
def test_what_the_branch_has_taken_back_is_not_done_on_the_way(declared, expected):
    found = step("ABC", "", "ABC", differs=lambda commit: declared[commit])
    assert found is not None
    assert found[0] == expected


def test_a_step_knows_what_was_tried_before_it():
    line = [WaitingCommit(each, touches=True) for each in "ABC"]
    found = next_step(line, "A", coalesce=False, ends_merge=lambda _: True, differs=lambda _: frozenset())
    assert found is not None
    assert (found.commit, found.tried) == ("B", {"A"})


@pytest.mark.parametrize(("line", "expected"), [("AxBy", ("B", ("A", "B"))), ("xy", ("y", ())), ("", ("head", ()))])
def test_without_anything_new_the_newest_merge_is_looked_at_again(line, expected):
    found = whole_line([WaitingCommit(each, each.isupper()) for each in line], line[-1:] or "head")
    assert (found.commit, found.covers) == expected


ONE, TWO = created(), created(MERGES[1])
EVENTS = numbered((ONE, landed(ONE)), (TWO, failed(TWO)))


def reading(seq: int, since: int = 0, *, pruned: int = 0) -> StreamReading:
    """The ledger after event `seq`, with its events after `since`; those up to `pruned` are gone."""
    kept = tuple(each for each in EVENTS if max(since, pruned) < each.seq <= seq)
    return StreamReading("brain", seq, AT, FullState(1, None, {}), kept)


def numbers(items: tuple[StreamItem, ...]) -> list[int]:
    return [each.seq for each in items]


def test_a_late_reader_gets_the_full_state_and_afterwards_no_event_twice():
    first = pull(reading(5), None, first=True)
    assert [type(each.what) for each in first] == [FullState]
    assert (first[0].seq, first[0].more) == (5, False)
    assert numbers(pull(reading(8, 5), 5)) == [6, 7, 8]
    assert pull(reading(8, 8), 8) == ()


def test_a_reader_that_missed_events_gets_all_of_them_in_order():
    items = pull(reading(11, 1), 1)
    assert numbers(items) == list(range(2, 12))
    assert [each.what for each in items] == [each.happening for each in EVENTS[1:]]
    assert not any(each.more for each in items)


def test_more_ends_with_the_first_answer():
    assert [each.more for each in pull(reading(4, 1), 1, first=True)] == [True, True, False]


def test_a_reader_of_one_changeset_gets_its_events_alone():
    items = pull(reading(11), 0, {TWO.key})
    assert {each.changeset for each in items} == {TWO.key}
    assert numbers(items) == [8, 9, 10, 11]


def test_a_position_whose_events_were_pruned_is_reset():
    (item,) = pull(reading(11, 3, pruned=7), 3)
    assert isinstance(item.what, FullState)
    assert item.seq == 11
    assert numbers(pull(reading(11, 7, pruned=7), 7)) == [8, 9, 10, 11]


def test_a_position_of_another_ledger_is_reset():
    (item,) = pull(reading(5, 9), 9)
    assert isinstance(item.what, FullState)


def test_a_hole_in_the_numbers_is_reset():
    hole = StreamReading("brain", 11, AT, FullState(1, None, {}), (*EVENTS[:3], *EVENTS[4:]))
    assert isinstance(pull(hole, 0)[0].what, FullState)


def test_what_a_reader_collects_gives_the_record():
    seen: list[ChangesetEvent] = []
    position = 0
    for seq in (3, 4, 7):
        items = pull(reading(seq, position), position, {ONE.key})
        for each in items:
            assert not isinstance(each.what, FullState)
            seen.append(ChangesetEvent(each.seq, each.at, each.cluster, each.changeset or "", each.what))
        position = seq
    assert seen == list(EVENTS[:7])
    assert after(ONE, landed(ONE)).ended
