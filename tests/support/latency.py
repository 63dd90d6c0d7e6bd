"""A TCP proxy on loopback that puts distance between a client and a service: each byte arrives later, in both directions.

Bytes that are on their way together arrive together, so a client gains by asking for several things at once, as over a long
line. A new connection costs a round trip of its own before its first byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import Any, Self

_CHUNK = 1 << 16


@dataclass
class DistantService:
    """Forwards connections to a port of this machine; use as a context manager. `round_trip` is in seconds."""

    port: int
    round_trip: float

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._forward, "127.0.0.1", 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Address of the service as it is seen from afar."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _finish(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _forward(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        # Connections that are open at the end are dropped in silence.
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await asyncio.sleep(self.round_trip)
            service, asked = await asyncio.open_connection("127.0.0.1", self.port)
            await asyncio.gather(self._carry(client, asked), self._carry(service, answers))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Hand on what comes, half a round trip later; the end of the stream too."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            with contextlib.suppress(OSError):
                while True:
                    at, data = await under_way.get()
                    await asyncio.sleep(at - loop.time())
                    if not data:
                        break
                    target.write(data)
                    await target.drain()
            target.close()

        delivery = asyncio.create_task(deliver())
        data: Any = b"-"
        while data:
            try:
                data = await source.read(_CHUNK)
            except OSError:
                data = b""
            under_way.put_nowait((loop.time() + self.round_trip / 2, data))
        await delivery
