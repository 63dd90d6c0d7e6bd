"""The OpenAPI document of the routes: https://spec.openapis.org/oas/v3.1.0.

What every route has is not written at any of them: the envelope of problems, the revision, and the id of the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gitops import __version__
from gitops.serving.answers import JSON
from gitops.serving.http.bodies import ProblemBody
from gitops.serving.http.route import Parameter, Route

if TYPE_CHECKING:
    from gitops.serving.http.bodies import Model

_REFERENCE = "#/components/schemas/{model}"
_TEXT: Mapping[str, Any] = {"type": "string"}
_GRAPH_ID = {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"}
_EXPECTED = Parameter("Omnigraph-If-Applied-Revision", "The revision that the server must serve, else 412.")
_KNOWN = Parameter("If-None-Match", "The tags that the client has, else 304.")
_REQUEST = Parameter("X-Request-Id", "An id for this request in logs; one is made where it is absent.")
_PROBLEMS = {
    400: "The request cannot be understood or carried out as it is.",
    401: "The bearer token is missing or unknown.",
    403: "The actor is not permitted to do this.",
    404: "Something that the request names does not exist.",
    406: "The client does not take the form of the answer.",
    408: "The body did not arrive in time.",
    409: "The change conflicts with what others did, or with what the graph has.",
    410: "What the request names is no longer kept.",
    412: "The server or the branch is not where the request expects it.",
    413: "The request, or what it asks for, exceeds a limit.",
    415: "The body has another type, or is compressed.",
    416: "The range is not in the content.",
    421: "A server without tokens answers only for localhost and its own address.",
    424: "What the content refers to cannot be had.",
    429: "The actor has too many changes under way.",
    500: "The server failed; its log says why.",
    503: "Something that is needed does not answer, or has to be recovered first.",
}
_EVERYWHERE, _AS_ACTOR, _ON_GRAPH, _WITH_BODY = (400, 412, 500), (401, 403), (404, 409, 413, 503), (408, 413, 415)


class ApiDocument:
    """The document of a server, made when it is first asked for. `secured` says that requests need tokens."""

    def __init__(self, routes: Sequence[Route], *, secured: bool) -> None:
        self._routes, self._secured = routes, secured

    @cached_property
    def body(self) -> bytes:
        """The document as it is sent."""
        return json.dumps(make_document(self._routes, secured=self._secured), separators=(",", ":")).encode()


def make_document(routes: Iterable[Route], *, secured: bool) -> dict[str, Any]:
    """The document; without `secured` it has no tokens."""
    schemas: dict[str, Any] = {}
    _reference(ProblemBody, schemas, "serialization")
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, secured=secured)
    components: dict[str, Any] = {"schemas": dict(sorted(schemas.items()))}
    if secured:
        components["securitySchemes"] = {"bearer_token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Query server of a graph cluster",
            "version": __version__,
            "description": "The applied revision of a cluster: its graphs, their stored queries, and who may use them.",
        },
        "paths": dict(sorted(paths.items())),
        "components": components,
    }


def _operation(route: Route, schemas: dict[str, Any], *, secured: bool) -> dict[str, Any]:
    parameters = [_parameter(each, "query") for each in route.query]
    parameters += [_parameter(each, "header") for each in (*route.headers, _EXPECTED, _REQUEST)]
    parameters += [_parameter(_KNOWN, "header")] if route.cached else []
    names = [part[1:-1] for part in route.parts if part.startswith("{")]
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _GRAPH_ID if name == "graph_id" else _TEXT}
        for name in names
    ]
    form: dict[str, Any] = {
        "operationId": f"cluster_{route.operation}" if route.on_graph else route.operation,
        "summary": route.summary,
        "parameters": in_path + parameters,
        "responses": _answers(route, schemas, secured=secured),
    }
    if route.successor is not None:
        form["deprecated"] = True
    if route.body is not None:
        content = {JSON: {"schema": _reference(route.body, schemas, "validation")}}
        form["requestBody"] = {"required": not route.body_optional, "content": content}
    elif route.body_type is not None:
        form["requestBody"] = {"required": True, "content": {route.body_type: {"schema": _TEXT}}}
    if secured and not route.public:
        form["security"] = [{"bearer_token": []}]
    return form


def _answers(route: Route, schemas: dict[str, Any], *, secured: bool) -> dict[str, Any]:
    if isinstance(route.answer, str):
        content: dict[str, Any] = {route.answer: {"schema": {"type": "object"} if route.answer == JSON else _TEXT}}
    else:
        models = route.answer if isinstance(route.answer, tuple) else (route.answer,)
        forms = [_reference(each, schemas, "serialization") for each in models]
        content = {JSON: {"schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}}
    headers = {name: {"schema": _TEXT} for name in ("Omnigraph-Applied-Revision", "X-Request-Id")}
    if route.cached:
        headers["ETag"] = {"schema": _TEXT}
    if route.successor is not None:
        headers |= {"Deprecation": {"schema": _TEXT}, "Link": {"schema": _TEXT}}
    found: dict[str, Any] = {"200": {"description": "Done.", "content": content, "headers": headers}}
    if route.partial:
        found["206"] = {"description": "The part of it that was asked for.", "content": content, "headers": headers}
    if route.cached or route.partial:
        found["304"] = {"description": "The client has it."}
    statuses = {*_EVERYWHERE, *route.problems}
    # Without tokens, pages of other sites are refused.
    statuses |= {403, 421} if not secured else set() if route.public else {*_AS_ACTOR}
    statuses |= {*_ON_GRAPH} if route.on_graph else set()
    statuses |= {*_WITH_BODY} if route.body is not None or route.body_type is not None else set()
    problem: dict[str, Any] = _reference(ProblemBody, schemas, "serialization")
    if route.body_type == JSON:
        # Another protocol also reports problems in its own form.
        problem = {"anyOf": [problem, {"type": "object"}]}
    for status in sorted(statuses):
        found[str(status)] = {"description": _PROBLEMS[status], "content": {JSON: {"schema": problem}}}
    return found


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "description": parameter.description,
        "required": parameter.required,
        "schema": parameter.schema or _TEXT,
    }


def _reference(model: type[Model], schemas: dict[str, Any], mode: Any) -> dict[str, str]:
    """A reference to the schema of a model, which is added with those that it refers to."""
    if model.__name__ not in schemas:
        schema = model.model_json_schema(ref_template=_REFERENCE, mode=mode)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    return {"$ref": _REFERENCE.format(model=model.__name__)}
