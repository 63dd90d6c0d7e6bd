"""The addresses of a server, as an ASGI application.

POST /hooks/KIND   a webhook: its headers and body as they came, with a bound on the body
GET /healthz       `ok` while all threads run
GET /metrics       counters, if the operator enables them

Nothing is parsed here, and no answer says anything about the program. Slow senders are handled in `gitops.server.listen`.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gitops.server.counters import MEDIA_TYPE
from gitops.server.deliveries import NOT_FOUND, DeliveryReceiver, HttpAnswer
from gitops.server.queue import EventQueue
from gitops.server.shared import ServerContext

__all__ = ["make_app"]

_JSON = "application/json"


def make_app(
    receiver: DeliveryReceiver,
    queue: EventQueue,
    context: ServerContext,
    *,
    healthy: Callable[[], bool],
    max_body_bytes: int,
    metrics: bool = False,
) -> Starlette:
    """The application. `healthy` says whether all threads run; larger bodies than `max_body_bytes` are refused."""

    async def hook(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            answer = NOT_FOUND
            if receiver.accepts(kind):
                answer = await _receive(receiver, request, kind, max_body_bytes)
        except ClientDisconnect:
            answer = HttpAnswer(400, "incomplete")
        except Exception as error:  # noqa: BLE001 - the log describes a defect, the answer does not
            context.log(f"internal_error: {type(error).__name__}: {error}")
            answer = HttpAnswer(500, "not now")
        return _response(answer)

    async def health(_: Request) -> Response:
        return _response(HttpAnswer(200, "ok") if healthy() else HttpAnswer(503, "not ok"))

    async def counters(_: Request) -> Response:
        queued = await run_in_threadpool(queue.counts)
        return PlainTextResponse(context.counters.text(queued), media_type=MEDIA_TYPE)

    routes = [Route("/hooks/{kind}", hook, methods=["POST"]), Route("/healthz", health, methods=["GET"])]
    if metrics:
        routes.append(Route("/metrics", counters, methods=["GET"]))
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


async def _receive(receiver: DeliveryReceiver, request: Request, kind: str, max_body_bytes: int) -> HttpAnswer:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _JSON:
        return HttpAnswer(415, f"set the content type of the webhook to {_JSON}")
    too_large = HttpAnswer(413, "too large")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > max_body_bytes:
        return too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_body_bytes:
            # The rest is not read.
            return too_large
    # To check the signature of megabytes and to write to disk takes time, which must not delay other connections.
    return await run_in_threadpool(receiver.receive, kind, dict(request.headers.items()), bytes(body))


def _response(answer: HttpAnswer) -> Response:
    # One request per connection, so that the time of a connection can be bounded.
    return PlainTextResponse(f"{answer.text}\n", answer.status, headers={"connection": "close"})
