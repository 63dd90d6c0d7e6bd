"""The way to the SDK of the Model Context Protocol, which is loaded with the first message: most servers answer no agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops.serving.http.answers import Answer
    from gitops.serving.http.call import Call
    from gitops.serving.http.mcp import ToolServer

__all__ = ["ToolDoor"]


class ToolDoor:
    """Hands the requests of agents to the SDK. For one event loop."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._server: ToolServer | None = None
        self._loading = asyncio.Lock()

    async def answer(self, call: Call, message: bytes) -> Answer:
        """The answer to one message of the protocol."""
        async with self._loading:
            # To import it in the event loop would stop every other request for as long.
            server = self._server = self._server or (await call.work(_load))()
        return await server.answer(call, message)


def _load() -> type[ToolServer]:
    from gitops.serving.http.mcp import ToolServer

    return ToolServer
