"""What changesets say about a merge: the newest attempt counts, with its worst part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.changesets.stream import ChangesetAnswer, Until, answer, answer_of_merge, newest_attempt
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetKind,
    ChangesetResult,
    Excluded,
    Finalized,
    RuntimeState,
    RuntimeUpdated,
)
from tests.support.changeset_stories import AT, GONE, MERGES, after, created, failed, landed

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
