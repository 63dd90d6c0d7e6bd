"""What a route is: the one declaration from which requests are matched and the OpenAPI document is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.serving.http.answers import Answer, StreamAnswer
    from gitops.serving.http.bodies import Model

__all__ = ["LOAD_BYTES", "MIB", "Handler", "Parameter", "Route"]

MIB = 2**20
LOAD_BYTES = 32 * MIB

# Its argument is a Call, which knows its route.
Handler = Callable[[Any], Awaitable["Answer | StreamAnswer"]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header; `schema` is its JSON schema, `{"type": "string"}` where None."""

    name: str
    description: str
    required: bool = False
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """`method` on `path`, whose parts in braces are single segments, percent-decoded except `graph_id`.

    `operation` is the id in the OpenAPI document, there prefixed with `cluster_` below a graph. `answer` is the model of the body
    of a success, or several, or its media type where that is not a JSON document. With `body`, the application reads and checks
    the body before the handler runs: a JSON document of this form, absent only if `body_optional`. Without it a handler with
    a body reads it with `Call.read_body` or `Call.pieces`; `body_type` is its media type. Bodies have at most `limit` bytes.

    A deprecated route has a `successor`, relative to its own address. `public` routes need no token. `cached` answers get an
    `ETag`. `problems` are the statuses of refusals beside those that every route has. `partial`: a range may be asked for.
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

    @property
    def on_graph(self) -> bool:
        """Whether it is about one graph."""
        return self.path.startswith("/graphs/{graph_id}/")
