"""What the application is given: generations, tokens, limits, time, ids and a log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gitops.cluster.policy.bundle import Action
from gitops.cluster.policy.decide import AccessDecision
from gitops.core.clock import Clock, IdSource
from gitops.core.dataclass import dataclass
from gitops.serving.generation import Generation, RuntimeState
from gitops.serving.tokens import BearerTokens

if TYPE_CHECKING:
    from gitops.database.graph import Embedder

__all__ = ["GenerationSource", "HttpContext", "HttpLimits", "LogRecord", "Observer", "read_limits"]

LogRecord = Mapping[str, Any]
_MIB = 2**20
_VARIABLES = {
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "inflight",
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX": "inflight_bytes",
    "OMNIGRAPH_MAX_CONNECTIONS": "connections",
}
_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)


class GenerationSource(Protocol):
    """Has the generation that new requests are answered from."""

    def current(self) -> Generation:
        """The newest one that was accepted. A request keeps what it got until its last byte."""
        ...


class Observer(Protocol):
    """Counts what happens; safe between threads, and quick."""

    def answered(self, record: LogRecord) -> None:
        """A request, by its record in the log."""
        ...

    def decided(self, scope: str, action: Action, decision: AccessDecision | None) -> None:
        """A decision about access on the server or a graph; None where the policy could not decide."""
        ...

    def stuck(self) -> None:
        """A query that is past its time limit and still holds a thread."""
        ...

    def rejected(self, reason: str) -> None:
        """A request that was refused for lack of room: `changes`, `bytes` or `exports`."""
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one process.

    `threads` work on graphs at the same time. A query has `query_s` seconds and `query_bytes` of memory; one that still holds its
    thread `stuck_s` seconds later is stuck. An actor has at most
    `inflight` changes under way at once, of `inflight_bytes` together. `hide_graphs` answers for graphs on which an actor is
    permitted nothing as for graphs that are not served. `streams` answers in pieces are under way at once. A client that sends
    or takes nothing for `idle_s` seconds in the middle of a body has given up. `connections` are open at the same time.
    """

    threads: int = 4
    query_s: float = 60.0
    stuck_s: float = 15.0
    query_bytes: int = 1024 * _MIB
    inflight: int = 16
    inflight_bytes: int = 4096 * _MIB
    hide_graphs: bool = False
    streams: int = 8
    idle_s: float = 60.0
    connections: int = 10_000


def read_limits(environ: Mapping[str, str], *, hide_graphs: bool = False) -> tuple[HttpLimits, tuple[str, ...]]:
    """The limits that variables set, and what is wrong with those of which the default is used instead."""
    found, problems = dict[str, Any](), list[str]()
    for variable, name in _VARIABLES.items():
        text = environ.get(variable, "").strip()
        if _COUNT.fullmatch(text):
            found[name] = int(text)
        elif text:
            problems.append(f"{variable} is not a whole number above 0; {getattr(HttpLimits(), name)} is used")
    return HttpLimits(hide_graphs=hide_graphs, **found), tuple(problems)


@dataclass(frozen=True, slots=True)
class HttpContext:
    """All of it.

    `reload` serves the newest revision, and gives the form of what became of it; None where the revision does not change.
    `tokens` gives the tokens that are known now. `log` takes a record for each request and for each defect; it is called from the
    thread of the event loop. `observer` is None where nothing is counted.
    `replace` has another process take the place of this one, which has a stuck query; None where no process would.
    """

    generations: GenerationSource
    state: RuntimeState
    tokens: Callable[[], BearerTokens]
    clock: Clock
    ids: IdSource
    log: Callable[[LogRecord], None]
    limits: HttpLimits = HttpLimits()
    embedder: Embedder | None = None
    cache_dir: Path | None = None
    reload: Callable[[], Mapping[str, Any]] | None = None
    observer: Observer | None = None
    replace: Callable[[], None] | None = None
