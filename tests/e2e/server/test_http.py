"""A real server on loopback: what strangers, slow ones and forges get, and what is left when it starts again."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.errors import UsageError
from gitops.forge.events import Event, PushEvent, RequestEvent, TimerEvent
from gitops.repository.results import LogLine
from tests.support.serving import Serving, Setting, moved, pushed, serving, signed

pytestmark = pytest.mark.e2e


class Handler:
    """Notes what it is given; works only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.seen: list[Event] = []

    def __call__(self, repository: str, event: Event) -> Iterator[LogLine]:
        self.seen.append(event)
        yield LogLine("begun")
        self.gate.wait(30)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def setting(tmp_path: Path, handler: Handler) -> Setting:
    return Setting(tmp_path, handler)


@pytest.fixture
def server(setting: Setting) -> Iterator[Serving]:
    with serving(setting) as running:
        yield running


def raw(server: Serving, sent: bytes) -> bytes:
    """Whatever the server says to these bytes until it closes the connection."""
    with socket.create_connection((server.where.host, server.where.port), timeout=60) as connection:
        connection.sendall(sent)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


def ended(connection: socket.socket) -> bool:
    """Waits for the server to say something, or to close the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def healthy(server: Serving) -> bool:
    """Whether one of many attempts is answered: on a busy machine an honest sender may be too slow as well."""
    for _ in range(100):
        with contextlib.suppress(ConnectionResetError):
            return server.request("GET", "/healthz").status == 200
    return False


def test_a_webhook_is_taken_and_handled(server, handler) -> None:
    answer = server.deliver("push", pushed())
    assert (answer.status, answer.text) == (202, "queued\n")
    server.log.until(": done")
    assert handler.seen == [PushEvent("refs/heads/main", "a" * 40, "b" * 40, "github:7")]
    assert server.left() == ()


def test_the_forge_has_its_answer_while_a_worker_works(server, handler) -> None:
    handler.gate.clear()
    assert server.deliver("push", pushed("b" * 40), "d-1").status == 202
    server.log.until("begun")
    assert server.deliver("push", pushed("c" * 40), "d-2").status == 202
    assert server.request("GET", "/healthz").status == 200
    handler.gate.set()
    server.log.until(": done", 2)


def test_what_is_not_signed_is_nothing(server, handler) -> None:
    headers, body = signed("push", pushed(), "d-1", "not-the-secret-of-anybody")
    assert server.request("POST", "/hooks/github", headers, body).status == 401
    del headers["x-hub-signature-256"]
    assert server.request("POST", "/hooks/github", headers, body).status == 401
    assert server.left() == ()
    assert handler.seen == []


def test_what_is_refused_is_logged_with_its_sender_and_no_secret(server) -> None:
    wrong = "not-the-secret-of-anybody"
    headers, body = signed("push", pushed(), "d-1", wrong)
    server.request("POST", "/hooks/github", headers, body)
    (line,) = server.log.until("bad signature")
    assert line == "WARNING github: 401 bad signature, from 127.0.0.1"
    token = {"content-type": "application/json", "x-gitlab-token": wrong, "x-forwarded-for": "203.0.113.7, 10.0.0.1"}
    server.request("POST", "/hooks/gitlab", token, body)
    (line,) = server.log.until("gitlab: 401")
    assert line.endswith(", from 127.0.0.1, which says that it forwards for 203.0.113.7, 10.0.0.1")
    assert all(wrong not in line and headers["x-hub-signature-256"] not in line for line in server.log.lines)


def test_each_delivery_is_logged_for_those_who_look_closely(server) -> None:
    server.deliver("push", pushed())
    assert server.log.until("202 queued") == ["DEBUG github: 202 queued, from 127.0.0.1"]


def test_a_server_is_ready_while_its_queue_has_room(setting, handler) -> None:
    handler.gate.clear()
    with serving(replace(setting, most=1)) as server:
        assert (server.request("GET", "/readyz").status, server.request("GET", "/readyz").text) == (200, "ok\n")
        server.deliver("push", pushed("b" * 40), "d-1")
        server.log.until("begun")
        server.deliver("push", pushed("c" * 40), "d-2")
        full = server.request("GET", "/readyz")
        assert (full.status, full.text) == (503, "not ready\n")
        assert server.request("GET", "/healthz").status == 200
        handler.gate.set()
        server.log.until(": done", 2)
        assert server.request("GET", "/readyz").status == 200


def test_a_server_whose_queue_is_unusable_is_not_ready(server, tmp_path) -> None:
    with closing(sqlite3.connect(tmp_path / "queue.db")) as other:
        other.execute("DROP TABLE event")
    assert server.request("GET", "/readyz").status == 503
    assert server.request("GET", "/healthz").status == 200
    assert server.log.until("ERROR queue_unusable")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/hooks/github", 405),
        ("PUT", "/hooks/github", 405),
        ("POST", "/healthz", 405),
        ("POST", "/hooks/bitbucket", 404),
        ("POST", "/hooks/github/", 404),
        ("POST", "/hooks", 404),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("POST", "/readyz", 405),
        ("GET", "/healthz/", 404),
    ],
)
def test_other_ways_lead_nowhere(server, method, path, status) -> None:
    headers, body = signed("push", pushed(), "d-1")
    answer = server.request(method, path, headers, body if method == "POST" else b"")
    assert answer.status == status
    assert server.left() == ()


@pytest.mark.parametrize("sent_as", ["application/x-www-form-urlencoded", "text/plain", "", "application/json5"])
def test_only_json_is_read(server, sent_as) -> None:
    answer = server.deliver("push", pushed(), content_type=sent_as)
    assert (answer.status, answer.text) == (415, "set the content type of the webhook to application/json\n")


def test_answers_tell_nothing_of_the_program(server) -> None:
    answers = [
        server.deliver("push", pushed()),
        server.request("GET", "/healthz"),
        server.request("GET", "/nothing"),
        server.request("POST", "/hooks/github", {"content-type": "application/json"}, b"{}"),
    ]
    assert [answer.status for answer in answers] == [202, 200, 404, 401]
    assert {name for answer in answers for name in answer.headers} <= {"content-length", "content-type", "connection"}
    assert answers[1].text == "ok\n"
    assert b"uvicorn" not in raw(server, b"nonsense\r\n\r\n").lower()


def test_large_bodies_are_refused_before_they_are_read(setting) -> None:
    with serving(setting.but(max_body_bytes=1000)) as server:
        head = b"POST /hooks/github HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        assert b" 413 " in raw(server, head + b"content-length: 1001\r\n\r\n")
        chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
        assert b" 413 " in raw(server, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 3)
        assert b" 401 " in raw(server, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 2 + b"0\r\n\r\n")
        assert b" 400 " in raw(server, b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + b"x-more: " + b"x" * 40_000)
        assert server.left() == ()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /hooks/github HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"POST /hooks/github HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{",
    ],
)
def test_a_slow_sender_is_cut_off(setting, begun) -> None:
    """Whatever it is slow with: the test ends because the server closes the connection."""
    with serving(setting.but(address=replace(setting.settings.address, connection_s=0.2))) as server:
        with socket.create_connection((server.where.host, server.where.port), timeout=60) as connection:
            connection.sendall(begun)
            assert ended(connection)
        assert healthy(server)


def test_crowds_are_kept_out(setting) -> None:
    """Beyond the bound connections are closed at once, and the place of one that leaves is free again."""
    with serving(setting.but(address=replace(setting.settings.address, max_connections=4))) as server:
        place = (server.where.host, server.where.port)
        crowd = [socket.create_connection(place, timeout=60) for _ in range(4)]
        for one in crowd:
            one.sendall(b"GET /healthz HTTP/1.1\r\n")
        with socket.create_connection(place, timeout=60) as late:
            assert ended(late)
        for one in crowd:
            one.sendall(b"host: x\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"
            one.close()
        assert server.request("GET", "/healthz").status == 200


def test_a_delivery_that_comes_again_is_done_once(server, handler) -> None:
    assert server.deliver("push", pushed(), "d-1").status == 202
    server.log.until(": done")
    assert (server.deliver("push", pushed(), "d-1").status, server.deliver("push", pushed(), "d-2").status) == (
        200,
        200,
    )
    assert server.deliver("push", pushed("c" * 40), "d-3").status == 202
    server.log.until(": done", 2)
    assert len(handler.seen) == 2


def test_a_burst_of_200_is_two_runs(server, handler) -> None:
    handler.gate.clear()
    assert server.deliver("pull_request", moved(7, f"{0:040x}"), "d-0").status == 202
    server.log.until("begun")
    answers: list[int] = []

    def deliver(first: int) -> None:
        answers.extend(
            server.deliver("pull_request", moved(7, f"{n:040x}"), f"d-{n}").status for n in range(first, 200, 4)
        )

    senders = [threading.Thread(target=deliver, args=(first,)) for first in range(1, 5)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert answers == [202] * 199
    assert [each.state.value for each in server.left()] == ["running", "waiting"]
    handler.gate.set()
    server.log.until(": done", 2)
    assert [event.number for event in handler.seen if isinstance(event, RequestEvent)] == [7, 7]
    assert server.left() == ()


def test_what_was_accepted_is_handled_by_the_next_server(setting, handler) -> None:
    handler.gate.clear()
    with serving(setting.but(grace=timedelta(0))) as first:
        for number in (1, 2):
            assert first.deliver("pull_request", moved(number, "b" * 40), f"d-{number}").status == 202
        first.log.until("begun")
    first.log.until("will be handled again")
    handler.gate.set()
    with serving(setting) as second:
        assert second.deliver("pull_request", moved(1, "b" * 40), "d-1").status == 200
        second.log.until(": done", 2)
        assert second.left() == ()
    assert [event.number for event in handler.seen if isinstance(event, RequestEvent)] == [1, 1, 2]


def test_counts_are_shown_where_they_are_wanted(setting) -> None:
    with serving(setting.but(metrics=True)) as server:
        server.deliver("push", pushed())
        server.log.until(": done")
        answer = server.request("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        assert 'gitops_deliveries_total{status="202"} 1' in lines
        assert 'gitops_events_total{outcome="done"} 1' in lines
        assert 'gitops_queue_events{state="waiting"} 0' in lines
        for metric in ("gitops_event_wait_seconds", "gitops_event_seconds"):
            assert f"# TYPE {metric} histogram" in lines
            assert f'{metric}_bucket{{le="+Inf"}} 1' in lines
            assert f"{metric}_count 1" in lines


def test_a_timer_runs_when_the_server_starts(setting, handler) -> None:
    with serving(setting.but(every=timedelta(hours=1))) as server:
        server.log.until(": done")
        assert handler.seen == [TimerEvent()]


def test_an_address_that_is_taken_is_said(setting, tmp_path) -> None:
    with serving(setting) as server:
        (tmp_path / "other").mkdir()
        with (
            pytest.raises(UsageError) as failure,
            serving(replace(setting, folder=tmp_path / "other").but(address=server.where)),
        ):
            pass
        assert failure.value.code == "listen_failed"
        assert server.request("GET", "/healthz").status == 200


def test_a_defect_of_ours_is_no_answer(server, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the reason")

    monkeypatch.setattr("gitops.server.deliveries.EventQueue.enqueue", broken)
    answer = server.deliver("push", pushed())
    assert (answer.status, answer.text) == (500, "not now\n")
    server.log.until("internal_error: ZeroDivisionError: the reason")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_whose_worker_is_gone_is_not_well(setting) -> None:
    def end(repository: str, event: Event) -> Iterator[LogLine]:
        raise KeyboardInterrupt
        yield LogLine("never")

    with serving(replace(setting, handle=end)) as server:
        assert server.request("GET", "/healthz").text == "ok\n"
        server.deliver("push", pushed())
        server.log.until("push refs/heads/main")
        for thread in threading.enumerate():
            if thread.name == "worker-1":
                thread.join(60)
        answer = server.request("GET", "/healthz")
        assert (answer.status, answer.text) == (503, "not ok\n")
