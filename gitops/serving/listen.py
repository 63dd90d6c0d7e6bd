"""A server's socket and serving loop. Only this module in the package uses the web server library.

1. The number of connections and the time and size of request headers are limited, so that outsiders cannot occupy all
   connections.
2. After the first SIGINT or SIGTERM, no more connections are accepted, and running requests are finished, up to a
   deadline. The second signal ends the server immediately.

Source of the options: https://www.uvicorn.org/settings/.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.serving.answers import ApiCode, ApiProblem, problem_answer

BoundSocket = socket.socket

_HEAD_S = 15.0
_HEAD_BYTES = 64 * 1024
# Longer than proxies keep idle connections. Otherwise they would send requests on a connection that is just being
# closed.
_KEEP_ALIVE_S = 75
_BACKLOG = 4096
# Open files of a process apart from its connections.
_OTHER_FILES = 512


def bind(host: str, port: int, option: str = "--bind") -> BoundSocket:
    """Return a socket bound to the address in the option `option`. Port 0 means any free port.

    Raises UsageError `listen_failed`.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # From now on, the address counts as taken for all other programs.
        bound.listen(_BACKLOG)
    except OSError as error:
        detail = f"cannot listen on {where}: {error.strerror or error}"
        raise UsageError(Code.LISTEN_FAILED, detail, fix=f"choose a free address: {option} 127.0.0.1:8081") from error
    return bound


def find_room(connections: int) -> int:
    """Return how many connections this process can open, up to `most`.

    Its limit on open files is raised as needed. If the system allows only a few files, half of them are for
    connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most // 2, most - _OTHER_FILES)


def address_of(bound: BoundSocket) -> str:
    """Return a socket's host and port in command line form."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(
    app: Any,
    bound: BoundSocket,
    *,
    connections: int,
    ready: Callable[[], None],
    drain_s: float,
    on_signal: Mapping[int, Callable[[], None]],
    beside: Callable[[], Awaitable[Any]] | None = None,
) -> None:
    """Serve an application until a signal. `ready` is called once connections are accepted and signals are handled.

    At most `connections` are open concurrently; further ones are closed immediately. `beside` opens an additional
    resource in the loop, which is closed when no more connections are accepted. `on_signal` has actions for other
    signals, which run in the loop's thread. Signals that were blocked until then are also handled.
    """
    config = uvicorn.Config(
        app,
        http=type("_Limited", (_Bounded,), {"most": connections}),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(drain_s)),
    )
    uvloop.run(_Server(config, ready, on_signal, beside).serve(sockets=[bound]))


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        on_signal: Mapping[int, Callable[[], None]],
        beside: Callable[[], Awaitable[Any]] | None,
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._on_signal = on_signal
        self._beside = beside
        self._opened: Any = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._beside is not None:
            self._opened = await self._beside()
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._opened is not None:
            self._opened.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while running, without raising them again afterwards.

        The process chooses its own exit code.
        """

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

        def act(number: int, _frame: FrameType | None) -> None:
            self._on_signal[number]()

        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: stop,
            signal.SIGTERM: stop,
            **dict.fromkeys(self._on_signal, act),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Bounded(HttpToolsProtocol):
    """A connection that ends if the request headers are too large or do not arrive in time.

    Input that is not HTTP is answered with a problem in the common envelope. Trailers don't count as headers, because a
    proxy in front has not checked them.
    """

    most = 1000
    _late: Any = None
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        # The reader of the body limits its size.
        self._head += len(data) if self._head >= 0 else 0
        super().data_received(data)
        if self._head > _HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._head = max(self._head, 0)
        self._await_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head >= 0:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head = -1
        self._head_is_there()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the text of the web server is not that of an answer
        answer = problem_answer(ApiProblem(400, ApiCode.BAD_REQUEST, "the request is not valid HTTP/1.1"))
        head = (
            "HTTP/1.1 400 Bad Request",
            f"content-type: {answer.media_type}",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            f"content-length: {len(answer.body)}",
            "connection: close",
        )
        self.transport.write("\r\n".join((*head, "", "")).encode() + answer.body)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _head_is_there(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
