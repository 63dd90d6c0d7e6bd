"""The addresses below `/v1/clusters`: what `gitops.server.api` answers, as HTTP.

    /v1/clusters/CLUSTER/events    JSON Lines, or server-sent events for a reader that accepts `text/event-stream`
    /v1/clusters/CLUSTER/...       JSON documents

A stream gives what is recorded, and then what happens during `wait` seconds, as far as the time of a connection permits.
Its reader comes back with the `seq` of its last item, as browsers do by themselves. Beyond a number of streams that wait at once,
a further one does not wait.
Source of server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gitops.cluster.changesets.stream import StreamItem
from gitops.core.errors import GitopsError
from gitops.render.changesets import item_form
from gitops.render.json import to_line, to_text
from gitops.server.api import ApiAnswer, ApiRequest, ClusterApi, EventStream
from gitops.server.http import read_body
from gitops.server.shared import ServerContext

__all__ = ["api_routes"]

_MOST = 64 * 1024
_SHORTEST_S, _LONGEST_S, _SLICE_S = 1.0, 10.0, 0.5
# Each stream that waits keeps a thread, of which webhooks need some.
_WAITING = 16
_SSE, _LINES = "text/event-stream", "application/x-ndjson"
_CLOSE = {"connection": "close", "cache-control": "no-store"}


def api_routes(
    api: ClusterApi, context: ServerContext, *, longest_s: float, stopping: Callable[[], bool]
) -> list[Route]:
    """The addresses; a stream lasts at most `longest_s` seconds, and ends when the server is `stopping`."""
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
        return _response(await run_in_threadpool(api.answer, asked))

    async def events(request: Request) -> Response:
        asked = await _asked(request)
        found = ApiAnswer(413, {"ok": False}) if asked is None else await run_in_threadpool(api.stream, asked)
        if isinstance(found, ApiAnswer):
            return _response(found)
        kind = _SSE if _SSE in request.headers.get("accept", "") else _LINES
        given = request.query_params.get("wait", "")
        wait = float(given) if given.isascii() and given.isdigit() else longest_s if kind == _SSE else 0.0
        return StreamingResponse(pieces(*found, kind, min(wait, longest_s)), media_type=kind, headers=_CLOSE)

    return [
        Route("/v1/clusters/{cluster}/events", events, methods=["GET"]),
        Route("/v1/clusters/{cluster}/{path:path}", document, methods=["GET", "POST"]),
    ]


async def _asked(request: Request) -> ApiRequest | None:
    """A request as the interface reads it; None if its body is too large."""
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
    """The items of a stream until its time is over or the server stops. Raises GitopsError if the ledger cannot be read."""
    pause = _SHORTEST_S
    while True:
        for item in items:
            yield _encoded(item, kind)
        pause = _SHORTEST_S if items else min(2 * pause, _LONGEST_S)
        again = min(end, time.monotonic() + pause)
        while (left := again - time.monotonic()) > 0:
            if stopping():
                return
            time.sleep(min(_SLICE_S, left))
        if time.monotonic() >= end:
            return
        items = stream.poll()


def _encoded(item: StreamItem, kind: str) -> str:
    form = item_form(item)
    line = to_line(form)
    return f"id: {item.seq}\nevent: {form['type']}\ndata: {line}\n\n" if kind == _SSE else f"{line}\n"


def _response(answer: ApiAnswer) -> Response:
    return Response(to_text(answer.form), answer.status, headers=_CLOSE, media_type="application/json")
