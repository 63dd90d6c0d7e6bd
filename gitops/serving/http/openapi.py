"""The OpenAPI document for the routes: https://spec.openapis.org/oas/v3.1.0.

Parts common to all routes are added here: the envelope for problems, the revision, and the request id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gitops import __version__
from gitops.cluster.policy.verbs import PREVIEWED
from gitops.database.language.query import QueryEffect
from gitops.serving.answers import JSON
from gitops.serving.http.bodies import ProblemBody
from gitops.serving.http.route import Parameter, Route
from gitops.serving.queries import describe_query, parameters_schema, row_schema, stored_text, value_schema

if TYPE_CHECKING:
    from gitops.serving.generation import PreviewSource, StoredQuery
    from gitops.serving.http.bodies import Model

_REFERENCE = "#/components/schemas/{model}"
_TEXT: Mapping[str, Any] = {"type": "string"}
_BYTES: Mapping[str, Any] = {"type": "string", "format": "binary"}
_GRAPH_ID = {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"}
_EXPECTED = Parameter("Omnigraph-If-Applied-Revision", "The revision that the server must serve, else 412.")
_KNOWN = Parameter("If-None-Match", "The tags that the client has, else 304.")
_REQUEST = Parameter("X-Request-Id", "An id for this request in logs; one is made where it is absent.")
_PROBLEMS = {
    400: "The request cannot be understood or carried out as it is.",
    401: "The bearer token is missing or unknown.",
    403: "The actor is not permitted to do this.",
    404: "Something that the request names does not exist.",
    405: "The method is not allowed here; the header Allow names those that are.",
    406: "The client does not take the form of the answer.",
    408: "The body did not arrive in time.",
    409: "The change conflicts with what others did, or with what the graph has.",
    410: "What the request names is no longer kept.",
    412: "The server or the branch is not where the request expects it.",
    413: "The request, or what it asks for, exceeds a limit.",
    415: "The body has another type, or is compressed.",
    416: "The range is not in the content.",
    421: "A server without tokens answers only for localhost and its own address.",
    424: "Something that the content refers to is not available.",
    429: "The actor has too many changes under way.",
    500: "The server failed; its log says why.",
    503: "Something that is needed does not answer, or has to be recovered first.",
}
_RANGE = {"description": "The part, or for 416 the length of the content.", "schema": _TEXT}
_OF_THE_CONTENT, _RANGED = (412, 416), (416,)
_EVERYWHERE, _AS_ACTOR, _ON_GRAPH, _WITH_BODY = (400, 412, 500), (401, 403, 503), (404, 409, 413, 503), (408, 413, 415)


class ApiDocument:
    """A server's OpenAPI document, generated on first use. `secured` means that requests need tokens."""

    def __init__(self, routes: Sequence[Route], *, secured: bool) -> None:
        self._routes, self._secured = routes, secured

    def of_graph(self, graph_id: str, queries: Iterable[StoredQuery], preview: PreviewSource | None = None) -> bytes:
        """Return the document for one graph with these stored queries, in the form in which it is sent.

        With a `preview`, it is that of a change request's graph, whose addresses begin with that of the request.
        """
        routes = [each for each in self._routes if preview is None or each.operation in PREVIEWED]
        form = make_graph_document(routes, graph_id, queries, secured=self._secured)
        if preview is not None:
            form["servers"] = [{"url": f"/-/requests/{preview.number}"}]
            form["info"]["title"] = f"Graph {graph_id} in change request {preview.number}"
        return json.dumps(form, separators=(",", ":")).encode()

    @cached_property
    def body(self) -> bytes:
        """The document in the form in which it is sent."""
        return json.dumps(make_document(self._routes, secured=self._secured), separators=(",", ":")).encode()


def make_document(routes: Iterable[Route], *, secured: bool) -> dict[str, Any]:
    """Return the document. Without `secured`, it does not mention tokens."""
    schemas: dict[str, Any] = {}
    _reference(ProblemBody, schemas, "serialization")
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        form = paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, secured=secured)
        if route.partial:
            paths[route.path]["head"] = _head_of(form)
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


def make_graph_document(
    routes: Iterable[Route], graph_id: str, queries: Iterable[StoredQuery], *, secured: bool
) -> dict[str, Any]:
    """Return one graph's document, with the operations of every graph and one for each of these stored queries.

    A read has one operation for `GET` and one for `POST`. Parameters and rows have the types that the query declares.
    """
    document = make_document([each for each in routes if each.on_graph], secured=secured)
    general, schemas, paths = document["paths"], document["components"]["schemas"], dict[str, Any]()
    for path, methods in general.items():
        kept = {
            method: {**form, "parameters": [each for each in form["parameters"] if each["name"] != "graph_id"]}
            for method, form in methods.items()
        }
        paths[path.replace("{graph_id}", graph_id)] = kept
    invoke = paths[f"/graphs/{graph_id}/queries/{{name}}"]
    for stored in queries:
        paths[f"/graphs/{graph_id}/queries/{stored.name}"] = _stored_operations(stored, invoke, schemas)
    document["info"]["title"] = f"Graph {graph_id}"
    document["info"]["description"] = (
        "The stored queries of one graph that the caller may list, and what every graph has."
    )
    document["paths"] = dict(sorted(paths.items()))
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _stored_operations(
    stored: StoredQuery, invoke: Mapping[str, Mapping[str, Any]], schemas: dict[str, Any]
) -> dict[str, Any]:
    """Return a stored query's operations, derived from the general ones for invoking queries.

    The form of its rows is added to the schemas.
    """
    listed, mutation = describe_query(stored), stored.checked.kind is QueryEffect.MUTATION
    text, answer = stored_text(listed), "ChangeAnswer"
    if not mutation:
        answer = f"{stored.name}_rows"
        form = schemas["QueryAnswer"]
        rows = {**form["properties"]["rows"], "items": row_schema(stored.checked)}
        schemas[answer] = {**form, "title": answer, "properties": {**form["properties"], "rows": rows}}
    about = {"summary": (text or stored.name).partition("\n")[0], **({} if text is None else {"description": text})}

    def answered(form: Mapping[str, Any]) -> dict[str, Any]:
        done = {**form["responses"]["200"], "content": {JSON: {"schema": {"$ref": _REFERENCE.format(model=answer)}}}}
        return {**form, **about, "responses": {**form["responses"], "200": done}}

    post, body = answered(invoke["post"]), parameters_schema(listed["params"])
    members = {"params": body, "branch": _TEXT} | ({} if mutation else {"snapshot": _TEXT})
    required = {"required": ["params"]} if body["required"] else {}
    schema = {"type": "object", "properties": members, **required, "additionalProperties": False}
    post |= {
        "operationId": f"{'mutate' if mutation else 'query'}_{stored.name}",
        "parameters": [each for each in post["parameters"] if each["in"] != "path"],
        "requestBody": {"required": bool(body["required"]), "content": {JSON: {"schema": schema}}},
    }
    if mutation:
        return {"post": post}
    others = [each for each in invoke["get"]["parameters"] if each["in"] == "header"]
    others += [
        each
        for each in invoke["get"]["parameters"]
        if each["name"] in ("branch", "snapshot") and each["name"] not in body["properties"]
    ]
    own = [
        {"name": each["name"], "in": "query", "required": not each["nullable"], "schema": value_schema(each)}
        for each in listed["params"]
    ]
    get = {**answered(invoke["get"]), "operationId": f"get_{stored.name}", "parameters": own + others}
    return {"get": get, "post": post}


def _operation(route: Route, schemas: dict[str, Any], *, secured: bool) -> dict[str, Any]:
    parameters = [_parameter(each, "query") for each in route.query]
    for each in parameters:
        if "additionalProperties" in each["schema"]:
            each |= {"style": "form", "explode": True}
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
        form = {"type": "object"} if route.answer == JSON else _BYTES if route.partial else _TEXT
        if route.line is not None:
            form = _reference(route.line, schemas, "serialization")
        content: dict[str, Any] = {route.answer: {"schema": form}}
    else:
        models = route.answer if isinstance(route.answer, tuple) else (route.answer,)
        forms = [_reference(each, schemas, "serialization") for each in models]
        content = {JSON: {"schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}}
    headers = {name: {"schema": _TEXT} for name in ("Omnigraph-Applied-Revision", "X-Request-Id")}
    given = {each.name: {"description": each.description, "schema": each.schema or _TEXT} for each in route.gives}
    if route.cached:
        given["ETag"] = {"description": "The tag of this document.", "schema": _TEXT}
    if route.successor is not None:
        headers |= {"Deprecation": {"schema": _TEXT}, "Link": {"schema": _TEXT}}
    found: dict[str, Any] = {"200": {"description": "Done.", "content": content, "headers": headers | given}}
    if route.partial:
        found["206"] = {
            "description": "The part of it that was asked for.",
            "content": content,
            "headers": headers | given | {"Content-Range": _RANGE},
        }
    if route.cached or route.partial:
        found["304"] = {"description": "The client has it.", "headers": headers | given}
    statuses = {*_EVERYWHERE, *route.problems}
    # Without tokens, requests from other sites are refused.
    statuses |= {403, 421} if not secured else set() if route.public else {*_AS_ACTOR}
    statuses |= {*_ON_GRAPH} if route.on_graph else set()
    statuses |= {*_WITH_BODY} if route.body is not None or route.body_type is not None else set()
    problem: dict[str, Any] = _reference(ProblemBody, schemas, "serialization")
    if route.body_type == JSON:
        # Another protocol also reports problems in its own format.
        problem = {"anyOf": [problem, {"type": "object"}]}
    for status in sorted(statuses):
        found[str(status)] = {"description": _PROBLEMS[status], "content": {JSON: {"schema": problem}}}
        if route.partial and status in _OF_THE_CONTENT:
            # A refusal of the content shows which one exists.
            found[str(status)]["headers"] = headers | given | ({"Content-Range": _RANGE} if status in _RANGED else {})
    return found


def _head_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HEAD operation for a GET operation, without a body and for the complete content."""
    answers = {
        status: {name: each for name, each in answer.items() if name != "content"}
        for status, answer in form["responses"].items()
        if status not in ("206", "416")
    }
    return {
        **form,
        "operationId": form["operationId"].replace("get", "head"),
        "summary": f"{form['summary']}: only the headers; a range is ignored",
        "responses": answers,
    }


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "description": parameter.description,
        "required": parameter.required,
        "schema": parameter.schema or _TEXT,
    }


def _reference(model: type[Model], schemas: dict[str, Any], mode: Any) -> dict[str, str]:
    """Return a reference to a model's schema, which is added together with the schemas that it refers to."""
    if model.__name__ not in schemas:
        schema = model.model_json_schema(ref_template=_REFERENCE, mode=mode)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    return {"$ref": _REFERENCE.format(model=model.__name__)}
