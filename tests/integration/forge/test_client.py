"""One service, within bounds, and never a word about secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.forge.client import Service, WebClient
from tests.support.clock import FixedClock
from tests.support.http_service import HttpService, Reply, Request, as_json

CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))
KEY = Secret("KEY", "sk-planted-secret")


def _replies(*replies: Reply) -> Callable[[Request], Reply]:
    rest: Iterator[Reply] = iter(replies)
    return lambda _: next(rest)


def _client(service: HttpService, pauses: list[float], **settings: Any) -> WebClient:
    headers = {"Authorization": Secret("KEY", f"Bearer {KEY.reveal()}"), "X-Key": KEY}
    return WebClient(Service(service.base, "embedding_failed", headers, **settings), pauses.append, CLOCK)


@pytest.mark.parametrize(
    "base",
    [
        "http://example.com/v1",
        "ftp://h/x",
        "https://user:pw@h/x",
        "https://h/x?a=b",
        "https://h/#x",
        "https:///x",
        "",
        "file:///etc",
    ],
)
def test_only_an_encrypted_address_or_this_host_will_do(base: str) -> None:
    with pytest.raises(GitopsError) as refused:
        WebClient(Service(base, "embedding_failed"), lambda _: None, CLOCK)
    assert refused.value.code == "embedding_failed"


def test_the_answer_comes_back_and_the_secret_reaches_its_destination() -> None:
    with HttpService(lambda _: as_json({"x": [1, 2]})) as service:
        assert _client(service, []).post("things", {"q": "ü"}) == {"x": [1, 2]}
    (request,) = service.requests
    assert (request.path, request.body) == ("/v1/things", {"q": "ü"})
    assert request.headers["X-Key"] == KEY.reveal()


def test_a_busy_service_is_asked_again_and_may_say_when() -> None:
    pauses: list[float] = []
    busy = Reply(429, b"slow down", (("Retry-After", "7"),))
    with HttpService(_replies(Reply(503, b""), busy, Reply(200, None), as_json(1))) as service:
        assert _client(service, pauses).post("things", {}) == 1
    assert pauses == [0.5, 7.0, 8.0]


def test_it_is_not_asked_for_ever() -> None:
    pauses: list[float] = []
    with HttpService(lambda _: Reply(503, b"no")) as service, pytest.raises(RemoteError) as failed:
        _client(service, pauses).post("things", {})
    assert (len(service.requests), len(pauses), failed.value.retryable) == (4, 3, True)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(401, b"bad key sk-planted-secret"), "status 401"),
        (Reply(302, b"", (("Location", "http://127.0.0.1:1/"),)), "status 302"),
        (Reply(200, b"<html>"), "not JSON"),
        (Reply(200, b""), "not JSON"),
        (Reply(200, b"[" * 200_000), "not JSON"),
        (Reply(200, b"1" * 300_001), "more than 300000 bytes"),
    ],
)
def test_anything_else_is_refused_at_once(reply: Reply, said: str) -> None:
    pauses: list[float] = []
    with HttpService(lambda _: reply) as service, pytest.raises(RemoteError, match=said) as failed:
        _client(service, pauses, max_bytes=300_000).post("things", {})
    assert (len(service.requests), pauses) == (1, [])
    assert KEY.reveal() not in failed.value.detail
    assert len(failed.value.detail) < 600


def test_nobody_there_is_told() -> None:
    with HttpService(lambda _: as_json(1)) as service:
        base = service.base
    with pytest.raises(RemoteError, match="does not answer"):
        WebClient(Service(base, "embedding_failed", attempts=2), lambda _: None, CLOCK).post("things", {})
