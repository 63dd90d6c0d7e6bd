"""The route for agents: a graph's stored queries as tools in the Model Context Protocol.

1. A tool is a stored query that the actor may invoke and whose read or change the actor may make on `main`.
2. A tool's arguments are its query's parameters. It runs on `main`, like the stored query's route.
3. Queries that an actor must not invoke are hidden from that actor.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import GitopsError
from gitops.database.language.query import QueryEffect
from gitops.serving.access import refuse_other_sites
from gitops.serving.answers import JSON, ApiCode, BodyAnswer, ProblemError, bad_request, problem_answer
from gitops.serving.http.bodies import InvokeBody
from gitops.serving.http.call import Call
from gitops.serving.http.queries import NoSuchQueryError, run_stored
from gitops.serving.http.route import Route
from gitops.serving.queries import describe_query, parameters_schema, stored_text


@dataclass(frozen=True, slots=True)
class Tool:
    """A stored query as shown to agents. `input_schema` is the JSON schema for its arguments."""

    name: str
    description: str | None
    mutation: bool
    input_schema: Mapping[str, Any]


async def serve_tools(call: Call) -> BodyAnswer:
    """Answer one message from an agent.

    With tokens, any `Host` is accepted, because the server does not know its own names, and a web page has no token.
    """
    refuse_other_sites(call.scope, any_host=True)
    call.require_media_type(JSON)
    body = await call.read_body()
    try:
        parse(body)
    except MalformedError as error:
        raise bad_request(f"the body is {error}") from None
    return await call.shared.agents(call, body)


def tools_of(call: Call) -> list[Tool]:
    """Return the actor's tools, sorted by name."""
    inner = {effect: call.may(action, branch=MAIN) for effect, action in _INNER.items()}
    found = []
    for stored in call.graph.queries.values():
        if not inner[stored.checked.kind] or not call.may(PolicyAction.INVOKE_QUERY, query=stored.name):
            continue
        listed = describe_query(stored)
        schema = parameters_schema(listed["params"])
        found.append(Tool(listed["tool_name"], stored_text(listed), listed["mutation"], schema))
    return found


_INNER = {QueryEffect.READ: PolicyAction.READ, QueryEffect.MUTATION: PolicyAction.CHANGE}


async def run_tool(call: Call, name: str, arguments: Mapping[str, Any] | None) -> BodyAnswer | None:
    """Return the stored query's response, even if it reports a problem with the request.

    Returns None if there is no such tool.

    Raises GitopsError if the server failed.
    """
    try:
        return await run_stored(call, name, InvokeBody(params=None if arguments is None else dict(arguments)))
    except NoSuchQueryError:
        return None
    except ProblemError as error:
        return problem_answer(error.problem)
    except GitopsError as error:
        problem = call.problem(error)
        if problem.code is ApiCode.INTERNAL:
            raise
        return problem_answer(problem)


ROUTES = (
    Route(
        "POST",
        "/graphs/{graph_id}/mcp",
        "mcp",
        "The stored queries as tools of agents, by the Model Context Protocol",
        serve_tools,
        JSON,
        body_type=JSON,
        problems=(406,),
    ),
)
