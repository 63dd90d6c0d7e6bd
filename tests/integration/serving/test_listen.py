"""Connections of strangers: what each may keep, and for how long."""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from gitops.serving import listen
from tests.support.query_server import serving

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
Connect = Callable[[], socket.socket]


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connects to a server with small bounds."""
    # Longer than any test waits.
    monkeypatch.setattr(listen, "_HEAD_S", 600)
    monkeypatch.setattr(listen._Bounded, "most", 3)
    monkeypatch.setattr(listen, "_HEAD_BYTES", 4096)
    with ExitStack() as stack:
        port = stack.enter_context(serving(application, http=listen._Bounded))

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))

        yield opened


def answer(connection: socket.socket) -> bytes:
    """The next answer, whose head and body may arrive apart; empty where the server has closed the connection."""
    found = b""
    with suppress(ConnectionError):
        while not _is_whole(found) and (more := connection.recv(4096)):
            found += more
    return found


def _is_whole(data: bytes) -> bool:
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


@pytest.fixture
def files() -> Iterator[tuple[int, int]]:
    """The limits on open files of this process, which few of them are left of."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_may_open_as_many_files_as_its_connections_need(files: tuple[int, int]) -> None:
    for connections, allowed in ((50, 600), (1000, 1512)):
        assert listen.find_room(connections) == connections
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, files[1])


def test_where_the_system_allows_fewer_files_there_are_fewer_connections(files: tuple[int, int]) -> None:
    if files[1] == resource.RLIM_INFINITY:
        pytest.skip("the system allows any number of files")
    assert listen.find_room(files[1]) == files[1] - 512
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (files[1], files[1])


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", HEALTH[:-2]])
def test_a_head_that_does_not_arrive_ends_its_connection(connect: Connect, monkeypatch, begun: bytes) -> None:
    monkeypatch.setattr(listen, "_HEAD_S", 0.1)
    half_open = connect()
    half_open.sendall(begun)
    assert answer(half_open) == b""


def test_a_large_head_ends_its_connection(connect: Connect) -> None:
    large = connect()
    large.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Much: " + b"x" * 8192)
    assert answer(large) == b""


def test_connections_beyond_the_bound_are_closed_and_the_others_are_served(connect: Connect) -> None:
    kept = [connect() for _ in range(3)]
    for each in kept:
        each.sendall(HEALTH)
        assert answer(each).endswith(b"ok")
    assert answer(connect()) == b""
    kept[0].sendall(HEALTH)
    assert answer(kept[0]).endswith(b"ok")
    kept[1].sendall(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answer(kept[1]).endswith(b"ok")
    # The server has closed it when this one knows.
    assert answer(kept[1]) == b""
    later = connect()
    later.sendall(HEALTH)
    assert answer(later).endswith(b"ok")
