"""Documents, bodies and the page of the server."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli import serve
from gitops.cluster.model.changeset import Runtime, RuntimeState
from gitops.core.errors import GitopsError, IntegrityError
from gitops.forge.events import (
    CommentEvent,
    Event,
    HeadEvent,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    ReplanEvent,
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TickEvent,
    TimerEvent,
)
from gitops.forge.port import Account
from gitops.server import deliveries, http, queue
from gitops.server.api import Body, CommitBody, FailBody, RuntimeBody, read_request
from gitops.server.http import ListenAddress
from gitops.server.queue import event_subject, read_event, write_event
from gitops.server.service import RetryPolicy, ServerSettings
from tests.support.pages import read_page

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
    st.builds(ReplanEvent, NUMBERS, TEXTS),
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


RUNTIME = {"state": "lost", "attempts": -1, "started_at": "now", "outputs": []}


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        (CommitBody, "", ["commit: Field required"]),
        (CommitBody, "{", ["line 1"]),
        (CommitBody, "[]", ["expected an object, found a list"]),
        (CommitBody, {"commit": "main", "x": 1}, ["commit: expected the full id of a git object", "x: "]),
        (FailBody, '{"error": "x", "error": "y"}', ['"error" appears twice']),
        (FailBody, {"error": "a\nb", "force": 1}, ["error: expected one line", "force: "]),
        (RuntimeBody, {"address": "query.a.b", "runtime": RUNTIME}, [f"runtime.{name}: " for name in RUNTIME]),
    ],
)
def test_refused(kind: type[Body], body: object, says: list[str]) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(GitopsError) as caught:
        read_request(kind, data.encode())
    assert caught.value.code == "api_request_invalid"
    assert [text for text in says if text not in caught.value.detail] == []


def test_what_a_program_need_not_know_has_a_default() -> None:
    body = read_request(RuntimeBody, b'{"address": "query.a.b", "runtime": {"state": "ready"}}')
    assert (body.happening.address, body.happening.runtime) == ("query.a.b", Runtime(RuntimeState.READY))
    assert read_request(FailBody, b'{"error": "the node is full"}').force is False


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    page = " ".join((read_page("serve.md") + read_page("server-reference.md")).split())
    address, retry = ListenAddress("h", 1), RetryPolicy()
    told = (
        f"A connection lasts {address.connection_s:.0f} seconds at most",
        f"at most {address.max_connections} are open at once",
        f"Request headers are limited to {http._HEAD_BYTES // 1024} KiB",
        f"a body above {ServerSettings(address, {}, ()).max_body_bytes // 2**20} MiB",
        f"random secret of {serve._SHORTEST} characters or more",
        f"after {retry.first.seconds}, 20, 40 … seconds, at most {retry.longest.seconds // 60} minutes",
    )
    assert [words for words in told if words not in page] == []
    assert (retry.attempts, "eight times in all" in page) == (8, True)
    assert (deliveries._TOLERANCE, "more than five minutes from now" in page) == (timedelta(minutes=5), True)
    assert (queue._REMEMBERED, "for two weeks" in page) == (timedelta(weeks=2), True)
    assert (ServerSettings(address, {}, ()).grace, "has a minute (`--grace`)" in page) == (timedelta(minutes=1), True)
