"""The HTTP server on an address, with bounds on the resources that a stranger can use.

1. A connection lasts a bounded time, from its first byte to the last byte of the answer, however slowly bytes arrive.
2. The number of connections is bounded; any further one is closed at once.
3. The size of the head of a request is bounded. The application bounds bodies.
4. Nothing in an answer names the program. No address of a sender is trusted, and none is logged.

Source of the options: https://www.uvicorn.org/settings/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gitops.core.codes import Code
from gitops.core.errors import UsageError

__all__ = ["ListenAddress", "Listener"]

_HEAD_BYTES = 32 * 1024
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; port 0 is any free port.

    `connection_s` bounds the time of a connection in seconds, `max_connections` their number.
    """

    host: str
    port: int
    connection_s: float = 30.0
    max_connections: int = 128

    def __str__(self) -> str:
        """As `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener:
    """Serves an application on an address, in the thread that calls `run`, until `stop` is called from any other, or a signal."""

    def __init__(self, app: ASGIApp, address: ListenAddress, ready: Callable[[ListenAddress], None]) -> None:
        """`ready` is called with the address once connections are taken."""
        self._address = address
        config = uvicorn.Config(
            app,
            host=address.host,
            port=address.port,
            loop="asyncio",
            http=_bounded(address),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_graceful_shutdown=int(address.connection_s) + 1,
        )
        self._server = _Server(config, lambda host, port: ready(replace(address, host=host, port=port)))

    def run(self) -> None:
        """Serve. Raises UsageError `listen_failed` if the address cannot be used."""
        try:
            self._server.run()
        except SystemExit:
            # The server reports a failed start like this; its message goes to a log that is off.
            detail = f"cannot listen on {self._address}: it is in use, or not an address of this machine"
            raise UsageError(Code.LISTEN_FAILED, detail) from None

    def stop(self) -> None:
        """Take no further connection, answer those that are open, and end `run`."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """The server of uvicorn, without its signal handlers, which reports the address that it listens on."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str, int], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._ready(host, port)


def _bounded(address: ListenAddress) -> type[H11Protocol]:
    """The protocol of one connection, with its bounds."""

    class Bounded(H11Protocol):
        _end: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > address.max_connections:
                transport.abort()
                return
            self._end = self.loop.call_later(address.connection_s, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._end is not None:
                self._end.cancel()
            super().connection_lost(exc)

    return Bounded
