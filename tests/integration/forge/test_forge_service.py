"""What a forge may make the transport do: wait, repeat, look elsewhere, read for ever. Over real HTTP on this host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.forge.client import WebClient, forge_service
from gitops.forge.web import WebRequest
from tests.support.clock import FixedClock
from tests.support.http_service import HttpService, Reply, Request, as_json

NOW = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)
TOKEN = Secret("GITOPS_TOKEN", "ghs_planted_secret")
READ = WebRequest("GET", "/repos/o/r/pulls", (("state", "open"), ("q", "a b&c=d")))
WRITE = WebRequest("POST", "/repos/o/r/issues/1/comments", body={"body": "x"}, repeatable=False)
SECONDARY = b'{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}'


def _replies(*replies: Reply) -> Callable[[Request], Reply]:
    rest: Iterator[Reply] = iter(replies)
    return lambda _: next(rest)


def _client(service: HttpService, pauses: list[float], clock: FixedClock | None = None, **settings: float) -> WebClient:
    form = replace(forge_service(service.base, {"Authorization": TOKEN.prefixed("Bearer ")}), **settings)  # type: ignore[arg-type]
    return WebClient(form, pauses.append, clock or FixedClock(NOW))


def _limit(status: int, **headers: str) -> Reply:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status, b'{"message": "API rate limit exceeded"}', named)


def test_a_read_arrives_as_it_was_meant() -> None:
    with HttpService(lambda _: as_json([1])) as service:
        client = _client(service, [])
        answer = client.send(READ)
        client.send(WRITE)
    read, write = service.requests
    assert (read.method, read.path, read.body) == ("GET", "/v1/repos/o/r/pulls?state=open&q=a+b%26c%3Dd", None)
    assert (write.method, write.body) == ("POST", {"body": "x"})
    assert read.headers["Authorization"] == "Bearer ghs_planted_secret"
    assert "Content-Type" not in read.headers
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, [1], "3")
    assert (client.traffic.requests, client.traffic.sent, client.traffic.received) == (2, 13, 6)


def test_headers_of_a_request_never_replace_those_of_the_service() -> None:
    request = replace(READ, headers={"Authorization": "Bearer stolen", "Accept": "application/vnd.github+json"})
    with HttpService(lambda _: as_json({})) as service:
        _client(service, []).send(request)
    assert service.requests[0].headers["Authorization"] == "Bearer ghs_planted_secret"
    assert service.requests[0].headers["Accept"] == "application/vnd.github+json"


def test_no_content_is_an_answer() -> None:
    with HttpService(lambda _: Reply(204, b"")) as service:
        assert _client(service, []).send(READ).body is None


@pytest.mark.parametrize("request_", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    ("refusal", "pauses"),
    [
        (_limit(403, retry_after="7"), [7.0]),
        (_limit(429, retry_after="7"), [7.0]),
        (_limit(403, retry_after="100"), [60.0, 40.0]),
        (_limit(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) + 30)), [31.0]),
        (_limit(429, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) - 30)), [1.0]),
        (Reply(403, SECONDARY), [60.0]),
    ],
)
def test_a_rate_limit_is_waited_out_for_anything(request_: WebRequest, refusal: Reply, pauses: list[float]) -> None:
    waited: list[float] = []
    with HttpService(_replies(refusal, as_json({"id": 1}))) as service:
        assert _client(service, waited).send(request_).body == {"id": 1}
    assert waited == pauses
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        _limit(403, retry_after="181"),
        _limit(429, retry_after="9" * 400),
        _limit(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) + 3000)),
    ],
)
def test_a_limit_that_lasts_too_long_ends_the_run_without_a_wait(refusal: Reply) -> None:
    waited: list[float] = []
    with HttpService(lambda _: refusal) as service, pytest.raises(RemoteError, match="asks for a pause") as failed:
        _client(service, waited).send(READ)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)
    assert (waited, len(service.requests)) == ([], 1)


def test_writes_beyond_what_the_service_takes_wait_and_reads_never_do() -> None:
    waited: list[float] = []
    clock = FixedClock(NOW)

    def pause(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(timedelta(seconds=seconds))

    with HttpService(_replies(as_json({}), as_json({}), _limit(403, retry_after="0"), *[as_json({})] * 4)) as service:
        form = replace(forge_service(service.base, {}), writes_a_minute=3)
        client = WebClient(form, pause, clock)
        for request in (WRITE, READ, WRITE, WRITE, READ, WRITE):
            client.send(request)
    # A write that was refused counts as well. Once a minute is over, there is room for another burst.
    assert waited == [0.5, 59.5]
    assert len(service.requests) == 7


def test_all_waits_of_a_request_have_one_budget() -> None:
    waited: list[float] = []
    with HttpService(lambda _: _limit(429, retry_after="50")) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited, attempts=100).send(READ)
    assert failed.value.code == "forge_unavailable"
    assert waited == [50.0, 50.0, 50.0]


def test_a_limit_that_names_no_time_is_waited_for_once() -> None:
    waited: list[float] = []
    with HttpService(lambda _: Reply(429, SECONDARY)) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(READ)
    assert (failed.value.status, failed.value.retryable, waited) == (429, True, [60.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451])
def test_a_plain_no_is_final(status: int) -> None:
    waited: list[float] = []
    body = b'{"message": "Resource not accessible by integration \\u001b[31m ghs_planted_secret"}\x1b\x07'
    with HttpService(lambda _: Reply(status, body)) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(READ)
    assert (failed.value.code, failed.value.status, failed.value.retryable) == ("forge_refused", status, False)
    assert (waited, len(service.requests)) == ([], 1)
    assert failed.value.detail.startswith(f"127.0.0.1 answers GET /repos/o/r/pulls with status {status}: ")
    assert "not accessible" in failed.value.detail
    assert "planted" not in failed.value.detail
    assert failed.value.detail.isprintable()


def test_what_is_expected_is_an_answer_and_no_failure() -> None:
    with HttpService(_replies(Reply(404, b'{"message": "Not Found"}'), Reply(404, b"<html>"))) as service:
        client = _client(service, [])
        request = replace(READ, quiet=frozenset({404}))
        assert (client.send(request).status, client.send(request).body) == (404, None)


@pytest.mark.parametrize(
    "lost", [Reply(200, None), Reply(502, b""), Reply(500, b""), Reply(408, b"")], ids=["dropped", "502", "500", "408"]
)
def test_a_write_whose_answer_is_lost_is_not_sent_again(lost: Reply) -> None:
    waited: list[float] = []
    with HttpService(lambda _: lost) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(WRITE)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)
    assert (waited, len(service.requests)) == ([], 1)


def test_a_read_whose_answer_is_lost_is_sent_again() -> None:
    waited: list[float] = []
    replies = _replies(Reply(200, None), Reply(502, b"<html>"), as_json({"x": 1}))
    with HttpService(replies) as service:
        assert _client(service, waited).send(READ).body == {"x": 1}
    assert waited == [0.5, 2.0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused(status: int) -> None:
    with HttpService(lambda _: as_json({})) as other:
        there = f"{other.base}/stolen?token=hidden".replace("//", "//user:hidden@", 1)
        reply = Reply(status, b"", (("Location", there),))
        with HttpService(lambda _: reply) as service, pytest.raises(RemoteError) as failed:
            _client(service, []).send(READ)
    assert (failed.value.code, failed.value.status, other.requests) == ("forge_refused", status, [])
    assert f"it has moved to '{other.base}/stolen', and redirects are not followed" in failed.value.detail
    assert "hidden" not in failed.value.detail


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    with HttpService(lambda _: Reply(200, b"1" * 3_000_000)) as service:
        client = _client(service, [], max_bytes=100_000)
        with pytest.raises(RemoteError) as failed:
            client.send(READ)
    assert (failed.value.code, failed.value.retryable) == ("forge_limit", False)
    assert client.traffic.received < 200_000


@pytest.mark.parametrize("body", [b"<html>", b"[" * 200_000, b"\xff", b"1" * 5000])
def test_what_is_not_json_is_told(body: bytes) -> None:
    with HttpService(lambda _: Reply(200, body)) as service, pytest.raises(RemoteError, match="not JSON") as failed:
        _client(service, []).send(READ)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", False)


def test_an_answer_that_trickles_is_given_up() -> None:
    # Each reading of the clock is ten seconds later: an answer may take a hundred and twenty.
    clock = FixedClock(NOW, timedelta(seconds=10))
    reply = Reply(200, b" " * 200_000, trickle=True)
    with HttpService(lambda _: reply) as service, pytest.raises(RemoteError, match="takes too long") as failed:
        _client(service, [], clock).send(WRITE)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)


def test_a_server_that_is_silent_is_given_up() -> None:
    done = threading.Event()

    def silent(_: Request) -> Reply:
        done.wait(30)
        return Reply(200, None)

    with HttpService(silent) as service:
        with pytest.raises(RemoteError, match="does not answer: ReadTimeout") as failed:
            _client(service, [], timeout_s=0.05).send(WRITE)
        done.set()
    assert failed.value.retryable


@pytest.mark.parametrize(
    "path", ["../x", "/a/../../x", "a/%2e%2E/x", "a/.", "a?b=c", "a#b", "a b", "a\nb", "a\\..\\b", "a/%2e%2e%5cx"]
)
def test_no_path_leads_out(path: str) -> None:
    with HttpService(lambda _: as_json({})) as service, pytest.raises(RemoteError) as failed:
        _client(service, []).send(WebRequest("GET", path))
    assert (failed.value.code, service.requests) == ("forge_refused", [])


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
    | st.sampled_from(["..", "a/..", "..\\x"])
)
def test_law_a_quoted_name_stays_one_name_or_is_refused(name: str) -> None:
    client = WebClient(forge_service("https://forge.example/api/v1", {}), lambda _: None, FixedClock(NOW))
    request = WebRequest("GET", f"/branches/{quote(name, safe='')}/protection")
    if any(part in (".", "..") for part in name.replace("\\", "/").split("/")):
        with pytest.raises(GitopsError) as refused:
            client._url(request)
        assert refused.value.code == "forge_refused"
        return
    url = client._url(request)
    head, branch, tail = url.rpartition("/branches/")
    assert (head, branch) == ("https://forge.example/api/v1", "/branches/")
    assert unquote(tail) == f"{name}/protection"


def test_the_address_of_enterprise_is_where_both_interfaces_are() -> None:
    assert forge_service("https://git.example/api/v3/", {}).base == "https://git.example/api"
    assert forge_service("https://api.github.com", {}).base == "https://api.github.com"
    assert forge_service("https://git.example/api/v1", {}).base == "https://git.example/api/v1"


@pytest.mark.parametrize("base", ["http://forge.example", "https://bot:pw@forge.example", "ftp://forge.example", ""])
def test_an_address_that_will_not_do_is_refused(base: str) -> None:
    with pytest.raises(GitopsError) as refused:
        WebClient(forge_service(base, {}), lambda _: None, FixedClock(NOW))
    assert refused.value.code == "forge_unavailable"
    assert "pw" not in refused.value.detail
