"""What the application is given: generations, who may do what, limits, time, ids and a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gitops.core.clock import Clock, IdSource
from gitops.core.dataclass import dataclass
from gitops.policy.bundle import Action
from gitops.serving.generation import Generation, RuntimeState, ServedGraph

if TYPE_CHECKING:
    from gitops.graph import Embedder

__all__ = ["AccessQuestion", "Gate", "GenerationSource", "HttpContext", "HttpLimits", "LogRecord"]

LogRecord = Mapping[str, Any]
_MIB = 2**20


class GenerationSource(Protocol):
    """Has the generation that new requests are answered from."""

    def current(self) -> Generation:
        """The newest one that was accepted. A request keeps what it got until its last byte."""
        ...


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """What an actor, None without a token, wants to do on a graph, or on the server where `graph` is None."""

    action: Action
    actor: str | None
    graph: ServedGraph | None
    branch: str | None = None
    target_branch: str | None = None
    query: str | None = None
    request_id: str = ""


class Gate(Protocol):
    """Who a request is from, and whether it may do what it asks."""

    @property
    def state(self) -> RuntimeState:
        """How requests without a policy are treated."""
        ...

    def authenticate(self, authorization: str | None) -> str | None:
        """The actor of a header; None where no token is asked for. Raises ProblemError 401."""
        ...

    def authorize(self, generation: Generation, question: AccessQuestion) -> None:
        """Nothing, if it is permitted. Raises ProblemError 401, 403, and 500 where the decision itself fails."""
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one process.

    `threads` work on graphs at the same time. A query has `query_s` seconds and `query_bytes` of memory. An actor has at most
    `inflight` changes under way at once, of `inflight_bytes` together. `hide_graphs` answers for graphs on which an actor is
    permitted nothing as for graphs that are not served.
    """

    threads: int = 4
    query_s: float = 60.0
    query_bytes: int = 1024 * _MIB
    inflight: int = 16
    inflight_bytes: int = 4096 * _MIB
    hide_graphs: bool = False


@dataclass(frozen=True, slots=True)
class HttpContext:
    """All of it. `log` takes a record per request, and one for each defect; it is called from the thread of the event loop."""

    generations: GenerationSource
    gate: Gate
    clock: Clock
    ids: IdSource
    log: Callable[[LogRecord], None]
    limits: HttpLimits = HttpLimits()
    embedder: Embedder | None = None
    cache_dir: Path | None = None
