"""Route declarations, used for matching requests and generating the OpenAPI document, and route lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from gitops.core.dataclass import dataclass
from gitops.serving.answers import bad_request

if TYPE_CHECKING:
    from gitops.serving.answers import BodyAnswer, StreamAnswer
    from gitops.serving.http.bodies import Model

MIB = 2**20
LOAD_BYTES = 32 * MIB

# Its argument is a Call, which knows its route.
Handler = Callable[[Any], Awaitable["BodyAnswer | StreamAnswer"]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header. `schema` is its JSON schema, where None means `{"type": "string"}`.

    Arrays can be repeated.
    """

    name: str
    description: str
    required: bool = False
    schema: Mapping[str, Any] | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the parameter can be repeated."""
        return self.schema is not None and self.schema.get("type") == "array"


@dataclass(frozen=True, slots=True)
class Route:
    """`method` on `path`. Parts in braces are single segments, percent-decoded except for `graph_id`.

    `operation` is the id in the OpenAPI document, where routes below a graph have the prefix `cluster_`. `answer` is
    the model of a successful response's body, or several models, or its media type if it is not JSON. With `body`, the
    application reads and checks the body before the handler runs: a JSON document of this form, absent only if
    `body_optional`. Without it, a handler reads the body with `Call.read_body` or `Call.pieces`; `body_type` is its
    media type. Bodies have at most `limit` bytes.

    A deprecated route has a `successor`, relative to its own path. `public` routes don't need a token. `cached` answers
    get an `ETag`. `problems` are statuses of refusals in addition to those that every route has. `partial` means that
    ranges can be requested, and `free_query` that the handler reads further query parameters. `gives` has the headers
    of a successful response, and `line` is the form of its last line.
    """

    method: str
    path: str
    operation: str
    summary: str
    handler: Handler
    answer: type[Model] | tuple[type[Model], ...] | str
    body: type[Model] | None = None
    body_optional: bool = False
    body_type: str | None = None
    limit: int = MIB
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    successor: str | None = None
    public: bool = False
    cached: bool = False
    problems: tuple[int, ...] = ()
    partial: bool = False
    free_query: bool = False
    gives: tuple[Parameter, ...] = ()
    line: type[Model] | None = None

    @property
    def parts(self) -> Sequence[str]:
        """The path's segments."""
        return self.path[1:].split("/")

    @property
    def on_graph(self) -> bool:
        """Whether the route is for one graph."""
        return self.path.startswith("/graphs/{graph_id}/")


# Finds the route and the parameters for a request path.
#
# The raw path is used, not the decoded one that servers pass on, because an encoded slash is part of a name, and graph
# ids are not decoded at all. (Starlette's router matches the decoded path, one route after the other.) Literal segments
# take precedence over those in braces, unless the literal route lacks the method, so a branch called `merge` can be
# deleted.

_FIELDS = 64


@dataclass(frozen=True, slots=True)
class Match:
    """Result of matching a path: a route and the path's raw values or, if no route matches, the methods the path allows.

    `graph_id` is the text in the position of a graph's id, even if no route matches.
    """

    route: Route | None
    values: Mapping[str, bytes]
    allowed: tuple[str, ...]
    graph_id: str | None

    def read_values(self) -> Mapping[str, str]:
        """Return the values in the path. Raises ProblemError 400 for a value that is not UTF-8."""
        found = {}
        for name, value in self.values.items():
            try:
                found[name] = value.decode("latin-1") if name == "graph_id" else unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                raise bad_request(f"the {name} in the path is not UTF-8") from None
        return found


class RouteTable:
    """Routes by path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Create the table. A `GET` route also handles `HEAD`."""
        # By length and by which segments are in braces, then by literal segments, then by method.
        found: dict[int, dict[tuple[bool, ...], dict[tuple[bytes, ...], dict[str, Route]]]] = {}
        for route in routes:
            named = tuple(part.startswith("{") for part in route.parts)
            written = tuple(part.encode() for part in route.parts if not part.startswith("{"))
            methods = found.setdefault(len(named), {}).setdefault(named, {}).setdefault(written, {})
            methods |= dict.fromkeys((route.method, *(["HEAD"] if route.method == "GET" else [])), route)
        self._shapes = {length: sorted(shapes.items()) for length, shapes in found.items()}

    def find(self, method: str, raw_path: bytes) -> Match:
        """Match a path to a route."""
        parts = raw_path[1:].split(b"/") if raw_path.startswith(b"/") else [raw_path]
        below = len(parts) > 2 and parts[0] == b"graphs"  # noqa: PLR2004 - /graphs/ID/..
        graph_id = parts[1].decode("latin-1") if below else None
        allowed: set[str] = set()
        for named, routes in self._shapes.get(len(parts), ()):
            methods = routes.get(tuple([part for part, free in zip(parts, named, strict=True) if not free]))
            if methods is None or not all(compress(parts, named)):
                continue
            if method in methods:
                route = methods[method]
                names = [part[1:-1] for part in compress(route.parts, named)]
                return Match(route, dict(zip(names, compress(parts, named), strict=True)), (), graph_id)
            allowed |= methods.keys()
        return Match(None, {}, tuple(sorted(allowed)), graph_id)


def query_pairs(query_string: bytes) -> list[tuple[str, str]]:
    """Return the query string's names and values in order.

    Raises ProblemError 400 if it is not text or has too many pairs.
    """
    try:
        return parse_qsl(query_string.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError:
        raise bad_request("the query parameters are not UTF-8, or too many") from None


def read_parameters(query_string: bytes, declared: Sequence[Parameter]) -> dict[str, str]:
    """Return the query parameters. If a parameter can be repeated, its last value counts.

    Raises ProblemError 400 for a parameter that is undeclared, repeated or missing.
    """
    if not query_string and not declared:
        return {}
    found: dict[str, str] = {}
    for name, value in query_pairs(query_string):
        if all(each.name != name for each in declared):
            known = ", ".join(each.name for each in declared) or "none"
            raise bad_request(f"unknown query parameter '{name[:80]}'; the parameters of this route: {known}")
        if name in found and not any(each.name == name and each.repeatable for each in declared):
            raise bad_request(f"the query parameter '{name}' is given twice")
        found[name] = value
    for each in declared:
        if each.required and each.name not in found:
            raise bad_request(f"the query parameter '{each.name}' is missing")
    return found
