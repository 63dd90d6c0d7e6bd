"""Listening on an address: the HTTP server, with bounds on what a stranger can make it hold.

1. A connection lasts a bounded time, from its first byte to the last byte of the answer, however slowly it is spoken on.
2. There is a bounded number of connections; any further one is closed at once.
3. The head of a request has a bounded size. Bodies are bounded by the application.
4. Nothing in an answer names the program. No address of a sender is believed, and none is logged.

Source of the options: https://www.uvicorn.org/settings/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gitops.core.codes import Code
from gitops.core.errors import UsageError

__all__ = ["Listener", "Where"]

_HEAD_BYTES = 32 * 1024
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Where:
    """An address to listen on; port 0 is any that is free. `lasts_s` and `most` bound connections."""

    host: str
    port: int
    lasts_s: float = 30.0
    most: int = 128

    def __str__(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener:
    """Serves an application on an address, in the thread that calls `run`, until `stop` is called from any other, or a signal."""

    def __init__(self, app: ASGIApp, where: Where, ready: Callable[[Where], None]) -> None:
        """`ready` is told the address once connections are taken."""
        self._where = where
        config = uvicorn.Config(
            app,
            host=where.host,
            port=where.port,
            loop="asyncio",
            http=_bounded(where),
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
            timeout_graceful_shutdown=int(where.lasts_s) + 1,
        )
        self._server = _Server(config, lambda host, port: ready(Where(host, port, where.lasts_s, where.most)))

    def run(self) -> None:
        """Serve. Raises UsageError `listen_failed` if the address cannot be had."""
        try:
            self._server.run()
        except SystemExit:
            # That is how the server says that it could not begin; its message goes to a log that is off.
            detail = f"cannot listen on {self._where}: it is in use, or not an address of this machine"
            raise UsageError(Code.LISTEN_FAILED, detail) from None

    def stop(self) -> None:
        """Take no further connection, answer what is there, and return from `run`."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """The server, which leaves signals to the program and says where it listens."""

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


def _bounded(where: Where) -> type[H11Protocol]:
    """The protocol of one connection, with its bounds."""

    class Bounded(H11Protocol):
        _end: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > where.most:
                transport.abort()
                return
            self._end = self.loop.call_later(where.lasts_s, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._end is not None:
                self._end.cancel()
            super().connection_lost(exc)

    return Bounded
