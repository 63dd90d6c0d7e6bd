"""The ASGI application.

Every request is processed in this order:

1. The request gets an id and a generation.
2. A server without tokens refuses requests from other sites. The path is matched to a route, if any. Only `public`
   routes skip the next step.
3. The bearer token identifies the caller.
4. The id in the path selects a graph.
5. The method, the expected revision and the query parameters are checked, then the body's type, size and form.
6. The handler requests permission, does its work and responds. Any problem is returned in the common envelope.
7. The response is sent with its revision. The request is logged without headers and values.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops import __version__
from gitops.cluster.model.address import is_servable
from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import is_mentioned
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError
from gitops.database import graph as database
from gitops.database.language.suggest import choices
from gitops.serving import answers
from gitops.serving.access import refuse_other_sites
from gitops.serving.answers import JSON, ApiCode, ApiProblem, BodyAnswer, ProblemError, json_answer, not_found
from gitops.serving.generation import PolicyCover, ServedGraph
from gitops.serving.http import (
    change_routes,
    feed_routes,
    graph_routes,
    preview_routes,
    queries,
    report_routes,
    tools,
)
from gitops.serving.http.admin import Load
from gitops.serving.http.bodies import GraphsAnswer, HealthAnswer, ProtectedResourceAnswer, ReloadAnswer
from gitops.serving.http.call import Call, ClientGoneError, Receive, Scope, Send, Shared, send_stream
from gitops.serving.http.direct import DirectReads
from gitops.serving.http.openapi import ApiDocument
from gitops.serving.http.preview_routes import PreviewMount
from gitops.serving.http.route import Match, Route, RouteTable
from gitops.serving.http.who import Authenticator, issuers_of
from gitops.serving.http.work import Admission, HttpContext, StreamSlots, Workers, request_names, request_record
from gitops.serving.queries import QueryTexts

if TYPE_CHECKING:
    from gitops.serving.http.mcp import ToolServer

REVISION, EXPECTED_REVISION = "omnigraph-applied-revision", "omnigraph-if-applied-revision"
_HTML = "text/html; charset=utf-8"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_OK, _UNCHANGED, _TOO_LARGE, _FAILED = 200, 304, 413, 500


class HttpApp:
    """Answers requests. Close it after the last one."""

    def __init__(self, context: HttpContext, routes: Sequence[Route], *, direct: bool = True) -> None:
        """Create the application. With `direct`, it answers reads of rows in memory as in `direct`."""
        self._context = context
        # A read replica adds the age of its copy to every answer.
        self._direct = DirectReads(context) if direct and context.replica is None else None
        self._table = RouteTable(routes)
        rejected = None if context.observer is None else context.observer.rejected
        self._shared = Shared(
            context,
            Workers(context.limits.threads),
            Admission(context.limits, rejected),
            QueryTexts(),
            StreamSlots(context.limits.streams, rejected),
            ApiDocument(routes, secured=context.state is not PolicyCover.OPEN),
            self._answer_agent,
        )
        self._who = Authenticator(context)
        self._previews = PreviewMount(context)
        self._tools: ToolServer | None = None
        self._loading = asyncio.Lock()

    @property
    def load(self) -> Load:
        """The current load."""
        shared = self._shared
        return Load(shared.admission.under_way, shared.workers.waiting, shared.streams.taken, shared.workers.stuck)

    def close(self) -> None:
        """Finish the work that has started."""
        self._shared.workers.close()
        self._who.close()
        self._previews.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI protocol: https://asgi.readthedocs.io/en/latest/specs/www.html."""
        if scope["type"] == "http":
            left = receive if self._direct is None else await self._direct.answer(scope, receive, send)
            if left is not None:
                await self._exchange(scope, left, send)
        elif scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            self.close()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": f"{scope['type']}.close", "code": 1000})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context
        started = context.clock.monotonic()
        call = Call(self._shared, scope, receive, context.generations.current())
        answer: answers.BodyAnswer | answers.StreamAnswer | None = None
        sent = 0
        try:
            answer = await self._answered(call)
            if answer is not None:
                sent = await self._send(call, answer, send)
        except Exception as error:
            # The response has already started and cannot be replaced, so the connection is cut off.
            self._defect(call, f"the answer was cut off: {type(error).__name__}: {error}")
            raise
        finally:
            self._record(call, answer, sent, context.clock.monotonic() - started)

    async def _answered(self, call: Call) -> answers.BodyAnswer | answers.StreamAnswer | None:
        """Return the answer; None if the client has disconnected."""
        try:
            given = call.header("x-request-id")
            call.request_id = given if given and _REQUEST_ID.fullmatch(given) else self._context.ids.ulid()
            return await self._handled(call)
        except ClientGoneError:
            return None
        except answers.ProblemError as error:
            return answers.problem_answer(error.problem)
        except GitopsError as error:
            problem = call.problem(error)
            if problem.status >= _FAILED:
                self._defect(call, f"{error.code}: {error.detail}")
            return answers.problem_answer(problem)
        except Exception as error:  # noqa: BLE001 - the log describes a defect, the answer does not
            self._defect(call, f"{type(error).__name__}: {error}")
            return answers.problem_answer(
                answers.ApiProblem(500, answers.ApiCode.INTERNAL, "the request failed; the log of the server says why")
            )

    async def _handled(self, call: Call) -> answers.BodyAnswer | answers.StreamAnswer:
        if self._context.state is PolicyCover.OPEN:
            refuse_other_sites(call.scope, any_host=False)
        match = self._table.find(call.method, call.scope["raw_path"])
        if match.route is None or not match.route.public:
            try:
                found = await self._who.identify(call.generation, call.headers("authorization"), call.request_id)
            except answers.ProblemError as error:
                raise self._challenged(error, match) from None
            if found is not None:
                call.actor, call.groups = found.actor, found.groups
        graph = self._graph(call, match)
        route = match.route
        if route is None:
            if not match.allowed:
                raise answers.not_found("no route has this path; all paths are in /openapi.json")
            allowed = ", ".join(match.allowed)
            message = f"the method is not allowed here; allowed: {allowed}"
            raise answers.ProblemError(
                answers.ApiProblem(405, answers.ApiCode.METHOD_NOT_ALLOWED, message, headers={"Allow": allowed})
            )
        call.resolve(route, match.read_values(), graph)
        if self._context.replica is not None:
            call.more_headers = self._context.replica.admit(call.graph_id)
        expected, actual = call.header(EXPECTED_REVISION), f"sha256:{call.generation.revision.digest}"
        if expected is not None and expected != actual:
            more: Mapping[str, Any] = {"precondition_failure": {"expected": expected[:200], "actual": actual}}
            raise answers.ProblemError(answers.ApiProblem(412, None, "the server serves another revision", more))
        call.query()
        if route.body is not None:
            # Otherwise any web page could send the body as a form.
            if call.has_body or not route.body_optional:
                call.require_media_type(answers.JSON)
            call.require_identity()
            call.body = await call.read_json(route.body)
            if call.body is None and not route.body_optional:
                raise answers.bad_request("the body is empty; a JSON object is expected")
        requested = preview_routes.asked_request(match.values)
        answer = await (route.handler(call) if requested is None else self._previewed(call, route, *requested))
        call.require_asked()
        if route.successor is not None:
            deprecated = {"Deprecation": "true", "Link": f'<{route.successor}>; rel="successor-version"'}
            answer = replace(answer, headers={**answer.headers, **deprecated})
        return (
            _cached(call, answer)
            if route.cached and isinstance(answer, answers.BodyAnswer) and answer.status == _OK
            else answer
        )

    async def _previewed(
        self, call: Call, route: Route, number: str, graph_id: str
    ) -> answers.BodyAnswer | answers.StreamAnswer:
        """Return the answer of a graph of a change request, after everything that does not depend on it was checked."""
        if route.body_type is not None:
            call.require_media_type(route.body_type)
        call.resolve(route, call.values, await self._previews.enter(call, number, graph_id))
        try:
            return await route.handler(call)
        except GitopsError as error:
            if call.has_begun_change or not self._previews.lose(call, error):
                raise
            if route.body_type is not None:
                # Its body was received, and cannot be received again.
                raise preview_routes.made_again() from None
            call.enter(self._shared, self._context.generations.current())
            call.resolve(route, call.values, await self._previews.enter(call, number, graph_id))
            return await route.handler(call)

    def _challenged(self, error: answers.ProblemError, match: Match) -> answers.ProblemError:
        """Return a refusal that shows an agent where to find the accepted token issuers."""
        base, problem, graph_id = self._context.public_url, error.problem, match.graph_id or ""
        challenge = problem.headers.get("WWW-Authenticate")
        agent = match.route is not None and match.route.operation == "mcp" and is_servable(graph_id)
        if base is None or challenge is None or not agent:
            return error
        more = f'resource_metadata="{base}{_METADATA}/graphs/{graph_id}/mcp"'
        challenge = f"{challenge}{',' if '=' in challenge else ''} {more}"
        return answers.ProblemError(replace(problem, headers={**problem.headers, "WWW-Authenticate": challenge}))

    async def _answer_agent(self, call: Call, message: bytes) -> answers.BodyAnswer:
        """Return the answer of the Model Context Protocol SDK.

        The first message loads the SDK, because most servers have no agents as clients.
        """

        def load() -> type[ToolServer]:
            from gitops.serving.http.mcp import ToolServer

            return ToolServer

        async with self._loading:
            # Importing it in the event loop would block all other requests for as long.
            tools = self._tools = self._tools or (await call.work(load))()
        return await tools.answer(call, message)

    def _graph(self, call: Call, match: Match) -> ServedGraph | None:
        graph_id = match.graph_id
        if graph_id is None:
            return None
        if not is_servable(graph_id):
            raise answers.bad_request("the id of the graph is malformed: 1 to 64 letters, digits and - are expected")
        graph = call.generation.graphs.get(graph_id)
        engine = graph.engine if graph is not None and self._context.limits.hide_graphs else None
        # Without a policy, any actor may read a graph. With a policy, the graph is hidden from actors without any
        # permission.
        if graph is None or (engine is not None and not is_mentioned(engine.bundle, call.actor or "", call.groups)):
            known = {*call.generation.graphs} - {graph_id}
            listed = choices(graph_id, known) if call.may(PolicyAction.GRAPH_LIST) else ""
            raise answers.not_found(f"graph '{graph_id}' not found{listed}")
        return graph

    async def _send(self, call: Call, answer: answers.BodyAnswer | answers.StreamAnswer, send: Send) -> int:
        """Send an answer, and return the number of body bytes sent."""
        headers = {
            "Content-Type": answer.media_type,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Request-Id": call.request_id,
            REVISION: f"sha256:{call.generation.revision.digest}",
            **call.more_headers,
            **answer.headers,
        }
        if isinstance(answer, answers.StreamAnswer):
            return await send_stream(call, answer, answers.encode_headers(headers), send)
        if answer.status != _UNCHANGED:
            # The length of a 304 would be that of the client's cached body (RFC 9110, 8.6).
            headers["Content-Length"] = str(len(answer.body))
        await send({"type": "http.response.start", "status": answer.status, "headers": answers.encode_headers(headers)})
        body = b"" if call.method == "HEAD" else answer.body
        if answer.status == _TOO_LARGE:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await call.drop_rest()
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": body})
        return len(body)

    def _defect(self, call: Call, what: str) -> None:
        self._context.log({"event": "defect", "request_id": call.request_id, "route": call.operation, "error": what})

    def _record(
        self, call: Call, answer: answers.BodyAnswer | answers.StreamAnswer | None, sent: int, seconds: float
    ) -> None:
        names = request_names(call.method, call.operation, call.graph_id, call.stored_query, call.actor)
        status = None if answer is None else answer.status
        revision: dict[str, Any] = {"revision": call.generation.revision.digest}
        if (preview := call.generation.preview) is not None:
            revision |= {"change_request": preview.number, "head": preview.head}
        record = request_record(call.request_id, names, status, sent, seconds, revision)
        self._context.log(record)
        if self._context.observer is not None:
            self._context.observer.answered(record)


def _cached(call: Call, answer: answers.BodyAnswer) -> answers.BodyAnswer:
    """Return the answer with its tag, or 304 if the client already has it."""
    tag = f'"{digest(answer.body)[:32]}"'
    headers = {**answer.headers, "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    known = [each.strip().removeprefix("W/") for each in (call.header("if-none-match") or "").split(",")]
    if tag in known or "*" in known:
        return answers.BodyAnswer(_UNCHANGED, b"", answer.media_type, headers)
    return answers.BodyAnswer(answer.status, answer.body, answer.media_type, headers)


# The complete table of routes: the server's own routes, which are here, and the `ROUTES` of the modules below.


async def health(call: Call) -> BodyAnswer:
    """Report that the event loop runs and no thread is stuck. Only a new process can recover from a stuck thread."""
    if stuck := call.shared.workers.stuck:
        message = "threads of this process are blocked by work past its time limit: start the server again"
        raise ProblemError(ApiProblem(503, None, message, {"stuck_queries": stuck}))
    return json_answer({"status": "ok", "version": __version__, "internal_schema_version": database.MANIFEST_FORMAT})


async def list_graphs(call: Call) -> BodyAnswer:
    """Return the served graphs."""
    call.require(PolicyAction.GRAPH_LIST)
    graphs = sorted(call.generation.graphs.values(), key=lambda each: each.graph_id)
    return json_answer({"graphs": [{"graph_id": each.graph_id, "uri": each.address} for each in graphs]})


async def reload(call: Call) -> BodyAnswer:
    """Switch to the newest revision."""
    call.require(PolicyAction.RELOAD)
    attempt = call.context.reload
    if attempt is None:
        raise not_found("this server cannot change its revision because it serves a past one")
    form = await call.work(attempt)
    if form["result"] in ("waiting", "refused"):
        message = "the newest revision cannot be served now; the log of the server says why"
        raise ProblemError(ApiProblem(409, ApiCode.CONFLICT, message, {"reload": form}))
    return json_answer(form)


async def describe(call: Call) -> BodyAnswer:
    """Return the OpenAPI document."""
    return BodyAnswer(200, await call.work(lambda: call.shared.document.body))


@cache
def _page() -> BodyAnswer:
    """Return the web page, which loads nothing from other hosts and runs only its own script."""
    page = Path(__file__).with_name("docs.html").read_bytes()

    def hashed(tag: bytes) -> str:
        text = page.partition(b"<" + tag + b">")[2].partition(b"</" + tag + b">")[0]
        return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {hashed(b'script')}; style-src {hashed(b'style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    return BodyAnswer(200, page, _HTML, headers)


async def browse(call: Call) -> BodyAnswer:
    """Return the web page."""
    return await call.work(_page)


_METADATA = "/.well-known/oauth-protected-resource"


async def protected_resource(call: Call) -> BodyAnswer:
    """Return the accepted identity providers, so that clients can find out where to get a token. Source: RFC 9728."""
    base, graph_id = call.context.public_url, call.values.get("graph_id")
    if base is None or (graph_id is not None and not is_servable(graph_id)):
        raise not_found("this server does not say at which address it is reached")
    resource = base if graph_id is None else f"{base}/graphs/{graph_id}/mcp"
    issuers = [each.issuer for each in issuers_of(call.context, call.generation)]
    form = {"resource": resource, "authorization_servers": issuers, "bearer_methods_supported": ["header"]}
    return json_answer(form)


_OF_SERVER = (
    Route(
        "GET", "/healthz", "health", "Whether the server answers", health, HealthAnswer, public=True, problems=(503,)
    ),
    Route("GET", "/openapi.json", "openapi", "What can be asked", describe, JSON, public=True, cached=True),
    Route(
        "GET",
        _METADATA,
        "protectedResource",
        "Whose tokens the server takes",
        protected_resource,
        ProtectedResourceAnswer,
        public=True,
        problems=(404,),
    ),
    Route(
        "GET",
        f"{_METADATA}/graphs/{{graph_id}}/mcp",
        "mcpProtectedResource",
        "Whose tokens the agents of a graph need",
        protected_resource,
        ProtectedResourceAnswer,
        public=True,
        problems=(404,),
    ),
    Route("GET", "/docs", "docs", "What can be asked, as a page for people", browse, _HTML, public=True),
    Route("POST", "/-/reload", "reload", "Serve the newest revision", reload, ReloadAnswer, problems=(404, 409)),
    Route("GET", "/graphs", "listGraphs", "The graphs that are served", list_graphs, GraphsAnswer, cached=True),
)


ROUTES: tuple[Route, ...] = (
    *_OF_SERVER,
    *queries.ROUTES,
    *graph_routes.ROUTES,
    *change_routes.ROUTES,
    *feed_routes.ROUTES,
    *tools.ROUTES,
    *report_routes.ROUTES,
    *preview_routes.ROUTES,
)
