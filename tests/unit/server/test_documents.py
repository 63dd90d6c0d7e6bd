"""Events on disk: what is written is read back, and anything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import IntegrityError
from gitops.forge.events import (
    CommentEvent,
    Event,
    HeadEvent,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TickEvent,
    TimerEvent,
)
from gitops.forge.port import Account
from gitops.server.queue import event_subject, read_event, write_event

NUMBERS = st.integers(0, 2**53)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COMMITS = st.text("0123456789abcdef", min_size=40, max_size=40)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(RequestEvent, NUMBERS, st.sampled_from(RequestAction), COMMITS),
    st.builds(CommentEvent, NUMBERS, TEXTS, st.builds(Account, TEXTS, TEXTS, st.booleans()), TEXTS, TEXTS),
    st.builds(ReviewEvent, NUMBERS),
    st.builds(PushEvent, TEXTS, COMMITS, COMMITS, st.none() | TEXTS),
    st.builds(QueueEvent, COMMITS, COMMITS, TEXTS),
    st.builds(HeadEvent, COMMITS),
    st.just(TimerEvent()),
    st.just(TickEvent()),
    st.builds(ManualEvent, st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)),
    st.builds(IgnoredEvent, TEXTS),
)


@given(EVENTS)
def test_reading_inverts_writing(event: Event) -> None:
    assert read_event(write_event(event)) == event


@given(EVENTS, EVENTS)
def test_different_events_of_one_subject_are_the_same_question(one: Event, other: Event) -> None:
    """Only what is asked for anew may differ: whatever counts as it was said is a subject of its own."""
    if event_subject(one) == event_subject(other) and not isinstance(one, ManualEvent | IgnoredEvent | CommentEvent):
        assert type(one) is type(other)
        if isinstance(one, RequestEvent | ReviewEvent):
            assert isinstance(other, RequestEvent | ReviewEvent)
            assert one.number == other.number


def test_two_pushes_are_never_one() -> None:
    """Who pushed what says who may not approve it."""
    pushes = [PushEvent("refs/heads/main", old * 40, new * 40, who) for old, new, who in ("abx", "bcx", "bdy")]
    assert len({event_subject(push) for push in pushes}) == 3


def test_a_review_is_not_replaced_by_a_moved_head() -> None:
    assert event_subject(ReviewEvent(7)) != event_subject(RequestEvent(7, RequestAction.UPDATED, "a" * 40))


GOOD = json.loads(write_event(RequestEvent(7, RequestAction.OPENED, "a" * 40)))


@pytest.mark.parametrize(
    "form",
    [
        {**GOOD, "version": 2},
        {**GOOD, "kind": "verdict"},
        {**GOOD, "kind": None},
        {**GOOD, "more": 1},
        {**GOOD, "number": "7"},
        {**GOOD, "number": True},
        {**GOOD, "number": -1},
        {**GOOD, "action": "approved"},
        {**GOOD, "head": "a" * 39},
        {k: v for k, v in GOOD.items() if k != "head"},
        {"version": 1, "kind": "manual", "inputs": [["a", "b", "c"]]},
        [],
    ],
)
def test_anything_else_is_refused(form: object) -> None:
    with pytest.raises(IntegrityError) as failure:
        read_event(json.dumps(form).encode())
    assert failure.value.code == "queue_event_invalid"
