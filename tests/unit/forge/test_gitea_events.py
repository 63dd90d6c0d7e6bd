"""Events of Gitea: one file for each, and bodies that nobody would send."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.forge.actions import MAX_EVENT
from gitops.forge.events import CommentEvent, Delivery, IgnoredEvent, TimerEvent
from gitops.forge.gitea import check_signature, decode, decode_file
from tests.support.forges.gitea import contract
from tests.support.pages import ROOT

CASES = sorted((ROOT / "tests/data/forge/gitea/events").glob("*.json"))
SECRET = b"s3cret"


def case(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def headers(event: str, kind: str = "gitea") -> dict[str, str]:
    return {f"x-{kind}-event": event, f"x-{kind}-delivery": "f6266f16-1bf3", "content-type": "application/json"}


def form_of(delivery: Delivery) -> dict[str, Any]:
    """The event by its name and fields; why one is ignored is for people."""
    event = delivery.event
    fields = {} if isinstance(event, IgnoredEvent) else dataclasses.asdict(event)
    found: dict[str, Any] = json.loads(json.dumps({type(event).__name__: fields}))
    return found


def sign(body: bytes) -> str:
    return hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def refused(headers: dict[str, str], body: bytes) -> str:
    with pytest.raises(GitopsError) as caught:
        decode(headers, body)
    assert caught.value.code == "event_invalid"
    return caught.value.detail


def code_of(event: str, body: bytes) -> str:
    """The code that a body is refused with, or nothing."""
    try:
        decode(headers(event), body)
    except GitopsError as error:
        return error.code
    return ""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_webhooks_and_event_files_say_the_same(path: Path) -> None:
    """A webhook of either forge and the file of a job are the same event, but for ids."""
    found = case(path)
    body = json.dumps(found["body"]).encode()
    for kind in ("gitea", "forgejo"):
        delivery = decode(headers(found["event"], kind), body)
        assert (delivery.id, delivery.repository) == ("f6266f16-1bf3", "team/library")
        assert form_of(delivery) == found["expected"]
    environ = {"GITHUB_EVENT_NAME": found["event"], "GITHUB_RUN_ID": "12", "GITHUB_REPOSITORY": "team/library"}
    delivery = decode_file(environ, body)
    assert (delivery.id, delivery.repository) == ("12-1", "team/library")
    assert form_of(delivery) == found["expected"]
    assert isinstance(decode_file(environ | {"GITHUB_REPOSITORY": "team/other"}, body).event, IgnoredEvent)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_cases_hold_to_the_description(path: Path) -> None:
    """What webhooks carry are the objects of the description."""
    prefix = "/repos/team/library"
    places = {"pull_request": f"{prefix}/pulls/7", "comment": f"{prefix}/issues/comments/91"}
    for name, value in case(path)["body"].items():
        if name in places and value is not None:
            method = "GET" if name == "pull_request" else "PATCH"
            contract().response(method, places[name], 200, value)
        if name in ("sender", "pusher"):
            contract().response("GET", "/user", 200, value)


def test_a_timer_may_write_nothing() -> None:
    environ = {"GITHUB_EVENT_NAME": "schedule", "GITHUB_REPOSITORY": "team/library"}
    assert decode_file(environ, b"").event == TimerEvent()


def test_a_long_comment_is_cut() -> None:
    found = case(next(path for path in CASES if path.stem == "issue_comment.created"))["body"]
    found["comment"]["body"] = "/gitops plan\n" + "x" * 100_000
    event = decode(headers("issue_comment"), json.dumps(found).encode()).event
    assert isinstance(event, CommentEvent)
    assert event.body == ("/gitops plan\n" + "x" * 100_000)[:65_536]


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ("push", b""),
        ("push", b"[]"),
        ("push", b"{" * 100_000),
        ("push", b'{"ref": "refs/heads/main"}'),
        ("push", json.dumps({"ref": "main", "before": "0" * 40, "after": "a" * 40}).encode()),
        ("push", json.dumps({"ref": "refs/heads/main", "before": "0" * 40, "after": "A" * 40}).encode()),
        ("push", json.dumps({"ref": "refs/heads/a b", "before": "0" * 40, "after": "a" * 40}).encode()),
        ("pull_request", b'{"action": "opened", "pull_request": {"number": true, "head": {"sha": "x"}}}'),
        ("pull_request", b'{"action": 3, "pull_request": {"number": 1}}'),
        ("push", b'{"repository": {"full_name": "../../etc"}}'),
        ("workflow_dispatch", json.dumps({"inputs": {f"i{n}": "x" for n in range(51)}}).encode()),
        ("workflow_dispatch", json.dumps({"inputs": {"i": "x" * 1025}}).encode()),
        ("workflow_dispatch", json.dumps({"inputs": ["x"]}).encode()),
        (
            "issue_comment",
            b'{"action":"created","is_pull":true,"issue":{"number":7},"comment":{"id":1,"user":{"id":0}}}',
        ),
    ],
)
def test_bodies_that_nobody_sends(event: str, body: bytes) -> None:
    refused(headers(event), body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-gitea-event": ""},
        {"x-gitea-event": "Push"},
        {"x-gitea-event": "push\nx"},
        {"x-gitea-delivery": ""},
        {"x-gitea-delivery": "../x"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
def test_headers_that_nobody_sends(wrong: dict[str, str]) -> None:
    refused({**headers("push"), **wrong}, b"{}")


def test_a_body_has_a_largest_size() -> None:
    assert "bytes" in refused(headers("push"), b" " * (MAX_EVENT + 1))


@given(
    st.dictionaries(
        st.sampled_from(("action", "pull_request", "issue", "comment", "ref", "repository")),
        st.from_type(type(None))
        | st.integers()
        | st.text(max_size=5)
        | st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    )
)
def test_any_object_is_read_or_refused_with_the_code(body: dict[str, Any]) -> None:
    for path in CASES:
        assert code_of(case(path)["event"], json.dumps(body).encode()) in ("", "event_invalid")


@pytest.mark.parametrize("name", ["x-gitea-signature", "x-forgejo-signature", "x-hub-signature-256"])
def test_a_signature_is_that_of_the_raw_bytes(name: str) -> None:
    body = b'{"a": 1}'
    good = ("sha256=" if "hub" in name else "") + sign(body)
    assert check_signature({name: good}, body, SECRET)
    assert not check_signature({name: good}, b'{"a":1}', SECRET)
    assert not check_signature({name: good}, body, b"other")
    assert not check_signature({name: good.upper()}, body, SECRET)
    assert not check_signature({name: ""}, body, SECRET)
    assert not check_signature({name: good[:-1]}, body, SECRET)


def test_without_a_signature_or_a_secret_nothing_is_good() -> None:
    empty = hmac.new(b"", b"x", hashlib.sha256).hexdigest()
    assert not check_signature({}, b"x", SECRET)
    assert not check_signature({"x-gitea-signature": empty}, b"x", b"")


def test_every_signature_counts() -> None:
    body = b"x"
    both = {"x-gitea-signature": sign(body), "x-hub-signature-256": "sha256=" + sign(body)}
    assert check_signature(both, body, SECRET)
    assert not check_signature({**both, "x-hub-signature-256": "sha256=" + "0" * 64}, body, SECRET)
    assert not check_signature({**both, "x-hub-signature-256": sign(body)}, body, SECRET)
    assert not check_signature({**both, "x-gitea-signature": "é" * 64}, body, SECRET)
