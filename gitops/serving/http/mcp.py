"""Stored queries as tools, using the server from the official Model Context Protocol SDK, without sessions.

Each message is answered independently, from the generation of its request, so that any process can answer the next one.

Source: https://github.com/modelcontextprotocol/python-sdk.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from gitops import __version__
from gitops.serving.answers import JSON, BodyAnswer
from gitops.serving.http.call import Call
from gitops.serving.http.tools import run_tool, tools_of

_EXCHANGE = "gitops.exchange"
_BAD = 400
_INSTRUCTIONS = (
    "The tools are the stored queries of one graph, as they are applied. Whole numbers of 64 bits are texts."
)


class _Exchange:
    """A message: its call, the SDK's response, and a tool failure that ends the request."""

    def __init__(self, call: Call, body: bytes) -> None:
        self.call = call
        self.failure: Exception | None = None
        self._body: bytes | None = body
        self._start: MutableMapping[str, Any] = {"status": 500, "headers": []}
        self._sent = bytearray()

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the body, which was already received, and then the end of the connection."""
        body, self._body = self._body, None
        if body is None:
            await self.call.until_gone()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Collect part of the response."""
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._sent += message.get("body", b"")

    @property
    def answer(self) -> BodyAnswer:
        """Return the complete response."""
        kinds = [value.decode("latin-1") for name, value in self._start["headers"] if name.lower() == b"content-type"]
        return BodyAnswer(self._start["status"], bytes(self._sent), kinds[0] if kinds else JSON)


class ToolServer:
    """Answers messages from agents. An instance belongs to one event loop and stops when the loop ends."""

    def __init__(self) -> None:
        server: Server[Any] = Server(
            "cluster-gitops",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
        )
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self._running: asyncio.Task[None] | None = None

    async def answer(self, call: Call, message: bytes) -> BodyAnswer:
        """Answer the message in a call. Raises the tools' errors."""
        if self._running is None:
            started = asyncio.Event()

            async def run() -> None:
                async with self._manager.run():
                    started.set()
                    await asyncio.Event().wait()

            self._running = asyncio.create_task(run())
            await started.wait()
        exchange = _Exchange(call, message)
        scope = {**call.scope, _EXCHANGE: exchange}
        await self._manager.handle_request(scope, exchange.receive, exchange.send)
        if exchange.failure is not None:
            raise exchange.failure
        return exchange.answer


def _exchange(context: ServerRequestContext[Any, Any]) -> _Exchange:
    request: Any = context.request
    found: _Exchange = request.scope[_EXCHANGE]
    return found


async def _list_tools(
    context: ServerRequestContext[Any, Any],
    params: types.PaginatedRequestParams | None,  # noqa: ARG001 - there is one page
) -> types.ListToolsResult:
    call = _exchange(context).call
    tools = await call.work(lambda: tools_of(call))
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=each.name,
                description=each.description,
                input_schema=dict(each.input_schema),
                annotations=types.ToolAnnotations(read_only_hint=not each.mutation, open_world_hint=False),
            )
            for each in tools
        ]
    )


async def _call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    exchange = _exchange(context)
    try:
        answer = await run_tool(exchange.call, params.name, params.arguments)
    except Exception as error:  # noqa: BLE001 - raised again by `ToolServer.answer`
        # The SDK would quote it to the agent. The application logs it, and answers like for any other defect.
        exchange.failure = error
        raise MCPError(types.INTERNAL_ERROR, "the request failed") from None
    if answer is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown tool: {params.name[:80]}")
    text = answer.body.decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=json.loads(text),
        is_error=answer.status >= _BAD,
    )
