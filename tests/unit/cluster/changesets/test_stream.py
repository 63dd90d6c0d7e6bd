"""The stream of changesets: a full state first, then each event once and in order, and again a full state where some are gone."""

from __future__ import annotations

from gitops.cluster.changesets.stream import FullState, StreamItem, StreamReading, pull
from gitops.cluster.model.changeset import ChangesetEvent
from tests.support.changeset_stories import AT, MERGES, after, created, failed, landed, numbered

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
