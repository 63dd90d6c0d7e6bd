"""GitHub's own description of its interfaces as a judge of requests and answers, real, canned and faked.

The descriptions lie in `tests/data/forge/github`, cut down to what the bot uses; `origin.json` there says of which packages.
A broken contract is an `AssertionError` that names the operation and the place. Stricter than GitHub where it forgives: a
parameter or a field of a body that is not described is refused, so that a misspelt one does not pass in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema_rs
from graphql import GraphQLSchema, OperationDefinitionNode, build_schema, execute_sync, parse, validate
from graphql.execution.values import get_variable_values

from gitops.core.errors import RemoteError
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.pages import ROOT

DATA = ROOT / "tests/data/forge/github"
# What any request may meet, whatever its own description lists. See
# https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api
_ANYWHERE = frozenset({401, 403, 404, 422, 429, 500, 502, 503, 504})
# Parameters of paths that are names with slashes in them, and are sent unquoted.
_LONG = ("/git/ref/{ref}", "/git/refs/{ref}")
_TOKENS_OF_VERSIONS = re.compile(r"\d{4}-\d\d-\d\d")
_NO_BODY = frozenset({204, 304})
_URN = "urn:github"


@dataclass(frozen=True)
class Operation:
    """One described operation; `arguments` are the parameters in a path that matched."""

    method: str
    template: str
    pattern: re.Pattern[str]
    form: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"


class Contract:
    """The REST half."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._components = description["components"]
        self._registry = jsonschema_rs.Registry(
            [(_URN, {"components": {"schemas": _as_json_schema(self._components["schemas"])}})]
        )
        self._validators: dict[str, Any] = {}
        # Paths without parameters first: `/issues/comments/{comment_id}` is no issue called "comments".
        self.operations = sorted(_operations(description["paths"]), key=lambda o: o.template.count("{"))

    def find(self, method: str, path: str) -> Operation:
        """The operation that a request is for, by its path below the service's address."""
        for operation in self.operations:
            if operation.method == method and operation.pattern.fullmatch(path):
                return operation
        raise AssertionError(f"{method} {path} is no operation of the description")

    def request(self, method: str, path: str, query: Sequence[tuple[str, str]], body: Any) -> Operation:
        """Check one request. Raises AssertionError."""
        operation = self.find(method, path)
        parameters = [self._resolved(p) for p in operation.form.get("parameters", ())]
        texts = operation.pattern.fullmatch(path)
        given = {} if texts is None else {k: unquote(v) for k, v in texts.groupdict().items()}
        self._values(operation, "path", parameters, list(given.items()))
        self._values(operation, "query", parameters, query)
        described = self._resolved(operation.form.get("requestBody", {}))
        schema = described.get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            if body not in (None, {}):
                raise AssertionError(f"{operation.name} takes no body")
        elif body is not None or described.get("required"):
            self._valid(f"{operation.name} body", self._closed(schema), body)
        return operation

    def response(self, method: str, path: str, status: int, body: Any) -> None:
        """Check one answer. Raises AssertionError."""
        operation = self.find(method, path)
        responses = operation.form["responses"]
        if str(status) not in responses:
            if status not in _ANYWHERE:
                raise AssertionError(f"{operation.name} does not answer {status}, but {', '.join(responses)}")
            if body is not None and not (isinstance(body, dict) and isinstance(body.get("message"), str)):
                raise AssertionError(f"{operation.name} {status}: a refusal has a message")
            return
        content = self._resolved(responses[str(status)]).get("content", {})
        if not content or status in _NO_BODY:
            if body is not None:
                raise AssertionError(f"{operation.name} {status} has no body")
            return
        # Errors come in several forms, of which the description names some: a message is what all have.
        schema = content.get("application/json", next(iter(content.values()))).get("schema")
        if schema is not None:
            self._valid(f"{operation.name} {status}", _as_json_schema(schema), body)

    def example(self, method: str, template: str, status: int = 200) -> Any:
        """The first example of an answer in the description, a copy: a start for canned ones."""
        operation = next(o for o in self.operations if (o.method, o.template) == (method, template))
        content = self._resolved(operation.form["responses"][str(status)])["content"]
        examples = next(iter(content.values()))["examples"]
        return json.loads(json.dumps(self._resolved(next(iter(examples.values())))["value"]))

    def _values(
        self,
        operation: Operation,
        place: str,
        parameters: Sequence[Mapping[str, Any]],
        given: Sequence[tuple[str, str]],
    ) -> None:
        """Values of a path or query against their parameters."""
        known = {p["name"]: p for p in parameters if p["in"] == place}
        for name, text in given:
            if name not in known:
                raise AssertionError(f"{operation.name} has no {place} parameter {name!r}")
            schema = self._closed(known[name]["schema"])
            self._valid(f"{operation.name} {place} {name}", schema, self._typed(known[name]["schema"], text))
        missing = {n for n, p in known.items() if p.get("required")} - {name for name, _ in given}
        if missing:
            raise AssertionError(f"{operation.name} needs {', '.join(sorted(missing))}")

    def _typed(self, schema: Mapping[str, Any], text: str) -> Any:
        """A text as the type that its parameter has; text if it is none."""
        schema = self._resolved(schema)
        kind = schema.get("type")
        if kind == "integer" and re.fullmatch(r"-?\d+", text):
            return int(text)
        if kind == "boolean" and text in ("true", "false"):
            return text == "true"
        if "oneOf" in schema:
            return int(text) if text.isdecimal() and {"type": "integer"} in schema["oneOf"] else text
        return text

    def _resolved(self, value: Mapping[str, Any]) -> Any:
        """What a reference leads to, or the value itself."""
        while "$ref" in value:
            kind, name = value["$ref"].removeprefix("#/components/").split("/")
            value = self._components[kind][name]
        return value

    def _closed(self, schema: Any) -> Any:
        """A schema of what we send: objects have no field that is not described."""
        if "$ref" in schema:
            return self._closed(self._resolved(schema))
        form = _as_json_schema(schema)
        return _close(form)

    def _valid(self, what: str, schema: Any, value: Any) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            self._validators[key] = jsonschema_rs.Draft202012Validator(schema, registry=self._registry)
        problems = [f"{'/'.join(str(p) for p in e.instance_path)}: {e.message}" for e in self._errors(key, value)]
        if problems:
            raise AssertionError(f"{what}: " + "; ".join(problems)[:1500])

    def _errors(self, key: str, value: Any) -> Iterator[Any]:
        yield from self._validators[key].iter_errors(value)


def _operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[Operation]:
    for template, item in paths.items():
        some = ".+" if template.endswith(_LONG) else "[^/]+"
        parts = re.split(r"\{(\w+)\}", template)
        # The last parameter of some paths may have slashes in it, the others may not.
        names = parts[1::2]
        pattern = re.escape(parts[0])
        for number, (name, rest) in enumerate(zip(names, parts[2::2], strict=True), start=1):
            pattern += f"(?P<{name}>{some if number == len(names) else '[^/]+'}){re.escape(rest)}"
        for method, form in item.items():
            yield Operation(method.upper(), template, re.compile(pattern), form)


def _as_json_schema(value: Any) -> Any:
    """OpenAPI 3.0 to JSON Schema: what is nullable says so by its type; references lead into the registry."""
    if isinstance(value, list):
        return [_as_json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    form = {k: v if k == "enum" else _as_json_schema(v) for k, v in value.items() if k != "example"}
    if isinstance(form.get("$ref"), str):
        form["$ref"] = _URN + form["$ref"].removeprefix(_URN)
    if form.get("nullable") is True:
        form.pop("nullable")
        return {"anyOf": [form, {"type": "null"}]}
    return form


def _close(form: Any) -> Any:
    """The same with `additionalProperties: false` at every object that lists its fields and combines nothing."""
    if isinstance(form, list):
        return [_close(item) for item in form]
    if not isinstance(form, dict):
        return form
    closed = {key: _close(item) for key, item in form.items()}
    if "properties" in form and not form.keys() & {"allOf", "oneOf", "anyOf"}:
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def contract() -> Contract:
    """The contract, read once for each process."""
    description = json.loads((DATA / "openapi.json").read_bytes())
    for name in ("pull-request", "pull-request-simple"):
        # The description forgets that a fork may have been deleted: its repository is null then.
        head = description["components"]["schemas"][name]["properties"]["head"]["properties"]
        head["repo"] = {"nullable": True, "allOf": [head["repo"]]}
    return Contract(description)


@cache
def schema() -> GraphQLSchema:
    """The GraphQL schema, read once for each process."""
    return build_schema((DATA / "schema.graphql").read_text(encoding="utf-8"))


def check_request(
    method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], body: Any
) -> None:
    """Check a request to GitHub: `path` is below the service's address, without a query. Raises AssertionError."""
    names = {name.lower(): value for name, value in headers.items()}
    accept = names.get("accept", "application/vnd.github+json")
    if not any(form in accept for form in ("application/vnd.github", "application/json", "*/*")):
        raise AssertionError(f"{method} {path}: GitHub answers application/vnd.github+json, not {accept!r}")
    version = names.get("x-github-api-version", "2022-11-28")
    if not _TOKENS_OF_VERSIONS.fullmatch(version):
        raise AssertionError(f"{version!r} is no version of the interface")
    if path == "/graphql":
        if method != "POST" or query:
            raise AssertionError("GraphQL is asked by POST, without a query")
        check_graphql(body)
        return
    contract().request(method, path, query, body)


def check_response(method: str, path: str, status: int, body: Any, *, asked: Any = None) -> None:
    """Check an answer of GitHub, or one that is made up; `asked` is the body of a GraphQL request. Raises AssertionError."""
    if path != "/graphql":
        contract().response(method, path, status, body)
    elif status == 200:
        check_graphql_answer(asked, body)
    elif status not in _ANYWHERE:
        raise AssertionError(f"GraphQL does not answer {status}")


def check_graphql(body: Any) -> None:
    """Check document and variables of a GraphQL request. Raises AssertionError."""
    _need(isinstance(body, dict) and isinstance(body.get("query"), str), "a GraphQL request has a query")
    if body.keys() - {"query", "variables", "operationName"}:
        raise AssertionError(
            f"a GraphQL request has no {sorted(body.keys() - {'query', 'variables', 'operationName'})}"
        )
    document = parse(body["query"])
    problems = validate(schema(), document)
    if problems:
        raise AssertionError("; ".join(p.message for p in problems))
    operations = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
    if len(operations) != 1:
        raise AssertionError("one operation for each request")
    given = body.get("variables") or {}
    declared = operations[0].variable_definitions or ()
    unknown = given.keys() - {d.variable.name.value for d in declared}
    if unknown:
        raise AssertionError(f"variables that the document does not declare: {sorted(unknown)}")
    values = get_variable_values(schema(), declared, given)
    _need(not isinstance(values, list), f"variables: {values}")


def check_graphql_answer(asked: Any, body: Any) -> None:
    """Check that an answer has the very form that was asked for. Raises AssertionError."""
    _need(isinstance(body, dict) and body.keys() & {"data", "errors"}, "an answer of GraphQL has data or errors")
    _need(all(isinstance(e.get("message"), str) for e in body.get("errors", ())), "an error of GraphQL has a message")
    if body.get("errors") or body.get("data") is None:
        return
    again = execute_sync(
        schema(),
        parse(asked["query"]),
        root_value=body["data"],
        variable_values=asked.get("variables"),
        field_resolver=lambda source, info, **_: source[info.path.key],
        type_resolver=lambda source, info, _: source.get("__typename") or _only_type(info.schema, source, _),
    )
    if again.errors:
        raise AssertionError("; ".join(str(e.message) for e in again.errors))
    if again.data != body["data"]:
        raise AssertionError("the answer has fields that were not asked for")


def _need(condition: object, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


def _only_type(graphql: GraphQLSchema, source: Any, abstract: Any) -> str:
    """The first possible type: an answer that was not asked for `__typename` may be any of them."""
    return graphql.get_possible_types(abstract)[0].name


Handler = Callable[[WebRequest], WebAnswer]


@dataclass
class CheckedSender:
    """A sender whose answers come from a table, both ways checked against the contract.

    `handlers` maps `METHOD path` to an answer, a function that gives one, or a list of them that is used up in order.
    `sent` holds all requests.
    """

    handlers: Mapping[str, WebAnswer | Handler | list[WebAnswer]]
    base: str = "https://api.github.com"
    sent: list[WebRequest] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        """Keep how long the adapter waited."""
        self.waited.append(seconds)

    def send(self, request: WebRequest) -> WebAnswer:
        """As `WebSender.send`. Raises AssertionError for a broken contract or a request that the table does not know."""
        if urlsplit(request.path).scheme or not request.path.startswith("/"):
            raise AssertionError(f"{request.path} is not below the service's address")
        check_request(request.method, request.path, request.query, request.headers, request.body)
        self.sent.append(request)
        handler = self.handlers.get(f"{request.method} {request.path}")
        if handler is None:
            raise AssertionError(f"unexpected: {request.method} {request.path}")
        if isinstance(handler, list):
            handler = handler.pop(0)
        answer = handler(request) if callable(handler) else handler
        check_response(request.method, request.path, answer.status, answer.body, asked=request.body)
        if 200 <= answer.status < 300 or answer.status in request.quiet:
            return answer
        code = "forge_unavailable" if answer.status >= 500 or answer.status == 429 else "forge_refused"
        raise RemoteError(code, f"answers with status {answer.status}", status=answer.status)
