"""The one table of routes: those about the server itself, which are here, and the `ROUTES` of the modules below."""

from __future__ import annotations

from gitops import __version__
from gitops.cluster.policy.bundle import PolicyAction
from gitops.serving.answers import JSON, ApiCode, ApiProblem, BodyAnswer, ProblemError, json_answer, not_found
from gitops.serving.http import change_routes, graph_routes, queries, tools
from gitops.serving.http.bodies import GraphsAnswer, HealthAnswer, ReloadAnswer
from gitops.serving.http.call import Call
from gitops.serving.http.route import Route


async def health(call: Call) -> BodyAnswer:
    """The event loop answers, and no query is stuck: its thread comes back only with another process."""
    if stuck := call.shared.workers.stuck:
        message = "threads of this process are held by queries past their time limit: start the server again"
        raise ProblemError(ApiProblem(503, None, message, {"stuck_queries": stuck}))
    return json_answer({"status": "ok", "version": __version__})


async def list_graphs(call: Call) -> BodyAnswer:
    """The graphs that are served."""
    call.require(PolicyAction.GRAPH_LIST)
    graphs = sorted(call.generation.graphs.values(), key=lambda each: each.graph_id)
    return json_answer({"graphs": [{"graph_id": each.graph_id, "uri": each.uri} for each in graphs]})


async def reload(call: Call) -> BodyAnswer:
    """Serve the newest revision."""
    call.require(PolicyAction.RELOAD)
    attempt = call.context.reload
    if attempt is None:
        raise not_found("this server does not exchange its revision: it serves a past one")
    form = await call.work(attempt)
    if form["result"] in ("waiting", "refused"):
        message = "the newest revision cannot be served now; the log of the server says why"
        raise ProblemError(ApiProblem(409, ApiCode.CONFLICT, message, {"reload": form}))
    return json_answer(form)


async def describe(call: Call) -> BodyAnswer:
    """The OpenAPI document."""
    return BodyAnswer(200, await call.work(lambda: call.shared.document.body))


_OF_SERVER = (
    Route(
        "GET", "/healthz", "health", "Whether the server answers", health, HealthAnswer, public=True, problems=(503,)
    ),
    Route("GET", "/openapi.json", "openapi", "What can be asked", describe, JSON, public=True, cached=True),
    Route("POST", "/-/reload", "reload", "Serve the newest revision", reload, ReloadAnswer, problems=(404, 409)),
    Route("GET", "/graphs", "listGraphs", "The graphs that are served", list_graphs, GraphsAnswer, cached=True),
)


ROUTES: tuple[Route, ...] = (
    *_OF_SERVER,
    *queries.ROUTES,
    *graph_routes.ROUTES,
    *change_routes.ROUTES,
    *tools.ROUTES,
)
