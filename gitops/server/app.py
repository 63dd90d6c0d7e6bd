"""The addresses of a server, as an ASGI application: bytes in, one word out.

POST /hooks/KIND   a webhook: its headers and body as they came, with a bound on the body
GET /healthz       `ok` while everything that should run does
GET /metrics       counts, where the operator wants them shown

Nothing is parsed here, and no answer tells anything of the program. Slow senders are the business of `gitops.server.listen`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gitops.server.counters import MEDIA_TYPE
from gitops.server.deliveries import NOWHERE, Intake, Reply
from gitops.server.queue import Queue
from gitops.server.shared import Context

__all__ = ["Front", "make_app"]

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Front:
    """What the application shows: `healthy` says whether everything runs; bodies above `most` bytes are refused."""

    intake: Intake
    queue: Queue
    context: Context
    healthy: Callable[[], bool]
    most: int
    metrics: bool = False


def make_app(front: Front) -> Starlette:
    """The application."""

    async def hook(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            return _answer(await _received(front, request, kind) if front.intake.knows(kind) else NOWHERE)
        except ClientDisconnect:
            return _answer(Reply(400, "incomplete"))
        except Exception as error:  # noqa: BLE001 - an answer says nothing of a defect, the log does
            front.context.say(f"internal_error: {type(error).__name__}: {error}")
            return _answer(Reply(500, "not now"))

    async def health(_: Request) -> Response:
        return _answer(Reply(200, "ok") if front.healthy() else Reply(503, "not ok"))

    async def metrics(_: Request) -> Response:
        counts = await run_in_threadpool(front.queue.counts)
        return PlainTextResponse(front.context.counters.text(counts), media_type=MEDIA_TYPE)

    routes = [Route("/hooks/{kind}", hook, methods=["POST"]), Route("/healthz", health, methods=["GET"])]
    if front.metrics:
        routes.append(Route("/metrics", metrics, methods=["GET"]))
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


async def _received(front: Front, request: Request, kind: str) -> Reply:
    sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent_as != _JSON:
        return Reply(415, f"set the content type of the webhook to {_JSON}")
    body = await _body(request, front.most)
    if body is None:
        return Reply(413, "too large")
    headers = dict(request.headers.items())
    # Signatures of megabytes and the disk take their time, which is not that of other connections.
    return await run_in_threadpool(front.intake.receive, kind, headers, body)


async def _body(request: Request, most: int) -> bytes | None:
    """The body, or None if it is larger than `most`: then the rest of it is not waited for."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > most:
        return None
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            return None
    return bytes(found)


def _answer(reply: Reply) -> Response:
    # One request for each connection: how long one may last is easy to say then.
    return PlainTextResponse(f"{reply.text}\n", reply.status, headers={"connection": "close"})
