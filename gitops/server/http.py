"""HTTP: a server's paths and its listener. Limits the resources that strangers can use.

    POST /hooks/KIND    a webhook, whose headers and body are passed on unchanged
    GET /healthz        `ok` while all threads run
    GET /readyz         `ok` while all threads run and the queue can accept an event
    GET /metrics        metrics for Prometheus, if the operator enables them
    GET /-/report/      the pages of a written report, if the operator names its folder
    /v1/clusters/...    the API for programs, if the operator issues tokens: `gitops.server.api`

1. The time of a connection is limited, from its first byte to the last byte of the answer, however slowly bytes arrive.
2. The number of connections is limited. Further connections are closed immediately.
3. The sizes of request headers and request bodies are limited.
4. Nothing is parsed here, and answers don't identify the program. The sender's address is never trusted, only logged.

Source of the options: https://www.uvicorn.org/settings/.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gitops.cluster.changesets.stream import StreamItem
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import Secret
from gitops.render.changesets import item_form
from gitops.render.json_text import to_line, to_text
from gitops.repository.report_folder import PAGE_HEADERS, ServedReport
from gitops.server.api import ApiAnswer, ApiRequest, ClusterApi, EventStream
from gitops.server.deliveries import NOT_FOUND, DeliveryReceiver, HttpAnswer
from gitops.server.queue import EventQueue
from gitops.server.shared import MEDIA_TYPE, ServerContext

_JSON = "application/json"
_HEAD_BYTES = 32 * 1024
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on. Port 0 means any free port.

    `connection_s` limits the duration of a connection in seconds, `max_connections` the number of connections.
    """

    host: str
    port: int
    connection_s: float = 30.0
    max_connections: int = 128

    def __str__(self) -> str:
        """Return `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(uvicorn.Server):
    """Serves an application on an address, in the thread that calls `run`, until a signal or a call of `stop`."""

    def __init__(self, app: ASGIApp, address: ListenAddress, ready: Callable[[ListenAddress], None]) -> None:
        """`ready` is called with the address once connections are accepted."""
        self._address, self._ready = address, ready
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
        super().__init__(config)

    def run(self, sockets: Any = None) -> None:
        """Serve. Raises UsageError `listen_failed` if the address cannot be used."""
        try:
            super().run(sockets)
        except SystemExit:
            # The server reports a failed start like this. Its message goes to a log that is turned off.
            detail = f"cannot listen on {self._address}: it is in use, or not an address of this machine"
            raise UsageError(Code.LISTEN_FAILED, detail) from None

    def stop(self) -> None:
        """Stop accepting connections, answer the open ones, and end `run`."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the program's signal handlers in place."""
        yield

    async def startup(self, sockets: Any = None) -> None:
        """Start listening and report the address."""
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._ready(replace(self._address, host=host, port=port))


def _bounded(address: ListenAddress) -> type[H11Protocol]:
    """Return the protocol class of a connection, with the limits of `address`."""

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


def make_app(
    receiver: DeliveryReceiver,
    queue: EventQueue,
    context: ServerContext,
    *,
    healthy: Callable[[], bool],
    max_body_bytes: int,
    metrics: bool = False,
    more: Sequence[Route] = (),
) -> Starlette:
    """Return the application.

    `healthy` returns whether all threads run; bodies larger than `max_body_bytes` are refused.

    `more` are additional routes.
    """

    async def hook(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            answer = NOT_FOUND
            if receiver.accepts(kind):
                answer = await _receive(receiver, request, kind, max_body_bytes)
        except ClientDisconnect:
            answer = HttpAnswer(400, "incomplete")
        except Exception as error:  # noqa: BLE001 - the log describes a defect, the answer does not
            context.log(f"internal_error: {type(error).__name__}: {error}", logging.ERROR)
            answer = HttpAnswer(500, "not now")
        return _response(answer)

    async def health(_: Request) -> Response:
        return _response(HttpAnswer(200, "ok") if healthy() else HttpAnswer(503, "not ok"))

    async def ready(_: Request) -> Response:
        try:
            good = healthy() and await run_in_threadpool(queue.has_room)
        except GitopsError as error:
            context.log(f"{error.code}: {error.detail}", logging.ERROR)
            good = False
        return _response(HttpAnswer(200, "ok") if good else HttpAnswer(503, "not ready"))

    async def numbers(_: Request) -> Response:
        queued = await run_in_threadpool(queue.counts)
        return PlainTextResponse(context.metrics.text(queued), media_type=MEDIA_TYPE)

    routes = [
        Route("/hooks/{kind}", hook, methods=["POST"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
    ]
    if metrics:
        routes.append(Route("/metrics", numbers, methods=["GET"]))
    app = Starlette(routes=[*routes, *more])
    app.router.redirect_slashes = False
    return app


async def _receive(receiver: DeliveryReceiver, request: Request, kind: str, max_body_bytes: int) -> HttpAnswer:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _JSON:
        return HttpAnswer(415, f"set the content type of the webhook to {_JSON}")
    body = await read_body(request, max_body_bytes)
    if body is None:
        return HttpAnswer(413, "too large")
    # Checking the signature of a large body and writing to disk take time, and must not delay other connections.
    sender = "" if request.client is None else request.client.host
    return await run_in_threadpool(receiver.receive, kind, dict(request.headers.items()), body, sender)


async def read_body(request: Request, most: int) -> bytes | None:
    """Return a request's body. If it exceeds `most` bytes, return None without reading the rest."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > most:
        return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)


def _response(answer: HttpAnswer) -> Response:
    # One request per connection, so that the duration of a connection can be limited.
    return PlainTextResponse(f"{answer.text}\n", answer.status, headers={"connection": "close"})


# The routes below `/v1/clusters`: the answers of `gitops.server.api` over HTTP.
#
#     /v1/clusters/CLUSTER/events    JSON Lines, or server-sent events for a reader that accepts `text/event-stream`
#     /v1/clusters/CLUSTER/...       JSON documents
#
# A stream sends the recorded items, then new items during `wait` seconds, limited by the duration of a connection. Its
# reader reconnects with the `seq` of its last item, as browsers do automatically. The number of waiting streams is
# limited; a further stream does not wait. Source of server-sent events:
# https://html.spec.whatwg.org/multipage/server-sent-events.html.

_MOST = 64 * 1024
_SHORTEST_S, _LONGEST_S, _SLICE_S = 1.0, 10.0, 0.5
# Each waiting stream occupies a thread, and webhooks need some as well.
_WAITING = 16
_SSE, _LINES = "text/event-stream", "application/x-ndjson"
_CLOSE = {"connection": "close", "cache-control": "no-store"}


def api_routes(
    api: ClusterApi, context: ServerContext, *, longest_s: float, stopping: Callable[[], bool]
) -> list[Route]:
    """Return the routes. A stream lasts at most `longest_s` seconds, and ends when the server is `stopping`."""
    places = threading.BoundedSemaphore(_WAITING)

    def pieces(stream: EventStream, items: tuple[StreamItem, ...], kind: str, wait: float) -> Iterator[str]:
        waits = places.acquire(blocking=False)
        end = time.monotonic() + (wait if waits else 0.0)
        try:
            yield from _pieces(stream, items, kind, end, stopping)
        except GitopsError as error:
            context.log(f"a stream ends: {error.code}: {error.detail}")
        finally:
            if waits:
                places.release()

    async def document(request: Request) -> Response:
        asked = await _asked(request)
        if asked is None:
            return Response("too large\n", 413, headers=_CLOSE, media_type="text/plain")
        return _json_response(await run_in_threadpool(api.answer, asked))

    async def events(request: Request) -> Response:
        asked = await _asked(request)
        found = ApiAnswer(413, {"ok": False}) if asked is None else await run_in_threadpool(api.stream, asked)
        if isinstance(found, ApiAnswer):
            return _json_response(found)
        kind = _SSE if _SSE in request.headers.get("accept", "") else _LINES
        given = request.query_params.get("wait", "")
        wait = float(given) if given.isascii() and given.isdigit() else longest_s if kind == _SSE else 0.0
        return StreamingResponse(pieces(*found, kind, min(wait, longest_s)), media_type=kind, headers=_CLOSE)

    return [
        Route("/v1/clusters/{cluster}/events", events, methods=["GET"]),
        Route("/v1/clusters/{cluster}/{path:path}", document, methods=["GET", "POST"]),
    ]


async def _asked(request: Request) -> ApiRequest | None:
    """Convert an HTTP request to a request of the API; None if its body is too large."""
    body = await read_body(request, _MOST)
    if body is None:
        return None
    path = request.path_params.get("path", "events")
    method = "GET" if request.method == "HEAD" else request.method
    query, headers = dict(request.query_params.items()), dict(request.headers.items())
    return ApiRequest(method, request.path_params["cluster"], path, query, headers, body)


def _pieces(
    stream: EventStream, items: tuple[StreamItem, ...], kind: str, end: float, stopping: Callable[[], bool]
) -> Iterator[str]:
    """Yield a stream's items until its time is over or the server stops.

    Raises GitopsError if the ledger cannot be read.
    """
    pause = _SHORTEST_S
    while True:
        for item in items:
            form = item_form(item)
            line = to_line(form)
            yield f"id: {item.seq}\nevent: {form['type']}\ndata: {line}\n\n" if kind == _SSE else f"{line}\n"
        pause = _SHORTEST_S if items else min(2 * pause, _LONGEST_S)
        again = min(end, time.monotonic() + pause)
        while (left := again - time.monotonic()) > 0:
            if stopping():
                return
            time.sleep(min(_SLICE_S, left))
        if time.monotonic() >= end:
            return
        items = stream.poll()


def _json_response(answer: ApiAnswer) -> Response:
    headers = {**_CLOSE, **answer.headers}
    return Response(to_text(answer.form), answer.status, headers=headers, media_type="application/json")


# The routes of a written report: `--pages DIR` serves the files of DIR below `/-/report/`.
#
# A report names people. So without tokens it is served only on a loopback address, which `gitops.cli.serve` checks; with
# tokens, each request needs one: as a bearer token or, from a browser, as the password of HTTP Basic authentication (RFC 7617).

_DONE = {"connection": "close"}
_ASK = {
    "connection": "close",
    "www-authenticate": 'Basic realm="gitops report", charset="UTF-8"',
    "cache-control": "no-store",
}
_UNCHANGED = 304


def report_routes(report: ServedReport, tokens: Sequence[Secret]) -> list[Route]:
    """Return the routes. Without `tokens`, everyone who can connect can read the pages."""

    async def page(request: Request) -> Response:
        if tokens and not _is_known(request.headers.get("authorization", ""), tokens):
            return PlainTextResponse("a token is required\n", 401, headers=_ASK)
        found = await run_in_threadpool(report.page, request.path_params.get("path", ""))
        if found is None:
            return PlainTextResponse("not found\n", 404, headers=_DONE)
        headers = {**PAGE_HEADERS, **_DONE, "ETag": found.etag}
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if found.etag in known:
            return Response(status_code=_UNCHANGED, headers=headers)
        return Response(found.data, media_type=found.media_type, headers=headers)

    async def folder(_: Request) -> Response:
        return RedirectResponse("/-/report/", 308, headers=_DONE)

    return [
        Route("/-/report", folder, methods=["GET"]),
        Route("/-/report/{path:path}", page, methods=["GET"]),
    ]


def _is_known(given: str, tokens: Sequence[Secret]) -> bool:
    """Return True if an authorization header has one of the tokens. Takes the same time for each of them."""
    scheme, _, value = given.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("utf-8", "replace").partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    results = [hmac.compare_digest(value.encode(), each.reveal().encode()) for each in tokens]
    return any(results)
