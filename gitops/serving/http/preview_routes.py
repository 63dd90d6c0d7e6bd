"""Previewed change requests: their queries and policies, on copies of the live graphs, below `/-/requests/NUMBER`.

1. Only the holder of a token who may read the live graph, and whom the rules list, learns that a request exists. For
   everybody else, and on a server without tokens, each of these addresses looks like that of a request that does not
   exist.
2. What a request declares decides what its caller may do there. It cannot widen what the live policy permits, because
   the first rule holds for each request.
3. The first use opens a request. Later ones share it, for as long as its record, the target branch, the served revision
   and the rules stay the same and its copies may be kept. Everything that may take time runs in separate threads.
4. A copy that turns out to be unreadable, for example after gc, is made again.
5. At most `MOST_OPEN` are open. The one that was not used for the longest time is closed for another.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN, AccessRequest
from gitops.cluster.policy.verbs import PREVIEWED
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.repository.served_previews import may_use
from gitops.serving.access import authorize
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError, not_found
from gitops.serving.generation import Generation, PolicyCover, ServedGraph
from gitops.serving.http import graph_routes, queries, tools
from gitops.serving.http.call import Call, Shared
from gitops.serving.http.route import Parameter, Route
from gitops.serving.http.work import HttpContext
from gitops.serving.queries import QueryTexts

if TYPE_CHECKING:
    from gitops.repository.served_previews import PreviewOffer
    from gitops.serving.previews import OpenedPreview, PreviewReader

T = TypeVar("T")
REQUEST, HEAD = "gitops-request", "gitops-request-head"
"""The headers of an answer with the number of the change request and the head that was previewed."""
MOST_OPEN = 8
LOOK_S = 5.0
"""How long what was read from the repository is used, and how long a request that cannot be opened is not tried again."""
_QUERY_S, _QUERY_BYTES = 5.0, 512 * 2**20
_THREADS = 2
_FORBIDDEN = 403
_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z", re.ASCII)
_UNKNOWN = "no such change request is served, or this token may not use it"
_AGAIN_S = "5"
_GONE = frozenset({Code.GRAPH_UNREADABLE, Code.GRAPH_MISSING, Code.STORAGE_FAILED, Code.QUERY_FAILED})
"""The codes of reads from a copy whose files are gone. Its data files are read by the driver, in a query."""
_AGAIN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class _Identity:
    """Everything that an open request depends on."""

    commit: str
    base: str | None
    revision: str
    writes: bool


@dataclass(slots=True)
class _Open:
    """A request that is open or being opened. `shared` is what its calls share."""

    identity: _Identity
    opening: asyncio.Task[OpenedPreview]
    shared: Shared
    failed_at: float | None = None


class PreviewMount:
    """The previewed change requests of one event loop. Close it after the last request."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._reader: PreviewReader | None = None if context.state is PolicyCover.OPEN else context.previews
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._looking: asyncio.Task[PreviewOffer] | None = None
        self._looked_at = 0.0
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._lost: dict[int, str] = {}
        self._lost_until: dict[int, float] = {}

    def close(self) -> None:
        """Stop opening requests."""
        for each in self._threads.values():
            each.shutdown(wait=False, cancel_futures=True)

    async def enter(self, call: Call, number: str, graph_id: str) -> ServedGraph:
        """Make a request's graph the subject of a call, and return the graph.

        Raises ProblemError 404 for callers who must not learn of the request, 410 if it is closed, 409 if it cannot be
        served, 503 if that may change.
        """
        live, reader = call.generation, self._reader
        graph = live.graphs.get(graph_id)
        if reader is None or graph is None or not _NUMBER.match(number) or not call.actor or not _reads(call, graph):
            raise not_found(_UNKNOWN)
        offer = await self._offer(reader)
        commit = offer.records.get(int(number))
        if not may_use(offer.previewers, call.actor, call.groups) or commit is None:
            raise not_found(_UNKNOWN)
        identity = _Identity(commit, offer.base, live.revision.digest, offer.writes)
        opened, shared = await self._opened(call, reader, int(number), identity)
        found = opened.generation.graphs.get(graph_id)
        if found is None:
            detail = f"request {number} changes neither the schema nor a query of graph '{graph_id}'"
            raise not_found(f"{detail}; the graph is at {graph.address}")
        call.enter(shared, opened.generation)
        if (source := opened.generation.preview) is not None:
            call.more_headers = {REQUEST: number, HEAD: source.head}
        return found

    def lose(self, call: Call, error: GitopsError) -> bool:
        """Return True if a call failed because files of its copy are gone. The copy is then made again on its next use."""
        source, now = call.generation.preview, self._context.clock.monotonic()
        if source is None or error.code not in _GONE:
            return False
        opened = self._open.get(source.number)
        if opened is None or opened.shared is not call.shared:
            # Another call has found out already.
            return True
        # Whatever else makes reads fail must not keep a machine busy with copies.
        if now < self._lost_until.get(source.number, 0.0):
            return False
        self._lost_until[source.number] = now + _AGAIN_AFTER_S
        self._lost[source.number] = opened.opening.result().place
        del self._open[source.number]
        return True

    async def _offer(self, reader: PreviewReader) -> PreviewOffer:
        """Return what may be served, read at most once in `LOOK_S` seconds."""
        now = self._context.clock.monotonic()
        looking = self._looking
        if looking is None or (looking.done() and now >= self._looked_at + LOOK_S):
            self._looked_at = now
            looking = self._looking = asyncio.ensure_future(self._apart("look", reader.look))
        try:
            return await asyncio.shield(looking)
        except GitopsError as error:
            raise self._failure(error) from None

    async def _opened(
        self, call: Call, reader: PreviewReader, number: int, identity: _Identity
    ) -> tuple[OpenedPreview, Shared]:
        """Return the open request, which is opened if it is not. All callers wait for the same attempt."""
        known = self._open.pop(number, None)
        if known is None or known.identity != identity or self._is_over(known):
            self._make_room()
            live, lost = call.generation, self._lost.pop(number, None)
            opening = asyncio.ensure_future(self._apart("open", lambda: _open(reader, number, identity, live, lost)))
            known = _Open(identity, opening, _shared(call.shared))
            opening.add_done_callback(partial(self._note_failure, known))
        # The one that was used last is at the end.
        self._open[number] = known
        try:
            return await asyncio.shield(known.opening), known.shared
        except GitopsError as error:
            raise self._failure(error) from None

    def _note_failure(self, opened: _Open, ended: asyncio.Task[OpenedPreview]) -> None:
        # All callers may have gone by now, so the exception is looked at here.
        if ended.cancelled() or ended.exception() is not None:
            opened.failed_at = self._context.clock.monotonic()

    def _is_over(self, known: _Open) -> bool:
        if not known.opening.done():
            return False
        if known.failed_at is not None:
            return self._context.clock.monotonic() >= known.failed_at + LOOK_S
        return known.opening.result().until <= self._context.clock.now()

    def _make_room(self) -> None:
        """Close requests that were not used for the longest time. Raises ProblemError 503 if all are being opened."""
        for number in [*self._open][: max(0, len(self._open) - MOST_OPEN + 1)]:
            if self._open[number].opening.done():
                del self._open[number]
        if len(self._open) >= MOST_OPEN:
            raise _later("too many change requests are being opened")

    def _failure(self, error: GitopsError) -> ProblemError:
        self._context.log({"event": error.code.value, "detail": error.detail})
        if error.code is Code.PREVIEW_RECORD_REFUSED:
            # Anyone with push rights can move the ref, so this is not a preview.
            return not_found(_UNKNOWN)
        if error.code is Code.PREVIEW_NOT_SERVED:
            more = {"change_request": {"reason": error.code.value}}
            return ProblemError(
                ApiProblem(409, ApiCode.CONFLICT, error.detail, more, headers={"Retry-After": _AGAIN_S})
            )
        if isinstance(error, RemoteError):
            return _later("the repository does not answer")
        return ProblemError(
            ApiProblem(500, ApiCode.INTERNAL, f"the change request cannot be served: {error.code}; the log says why")
        )

    async def _apart(self, name: str, work: Callable[[], T]) -> T:
        """Run work in a thread of this name, so that it does not take a thread of the queries."""
        thread = self._threads.setdefault(name, ThreadPoolExecutor(_THREADS, thread_name_prefix=f"preview-{name}"))
        return await asyncio.get_running_loop().run_in_executor(thread, work)


def _reads(call: Call, graph: ServedGraph) -> bool:
    """Return whether the live policy lets the caller read the live graph. The decision is logged like any other."""
    wanted = AccessRequest(call.actor or "", PolicyAction.READ, MAIN, groups=call.groups)
    observer = call.context.observer
    try:
        authorize(call.generation, graph, wanted, call.request_id, None if observer is None else observer.decided)
    except ProblemError as error:
        if error.problem.status != _FORBIDDEN:
            raise
        return False
    return True


def _open(reader: PreviewReader, number: int, identity: _Identity, live: Generation, lost: str | None) -> OpenedPreview:
    """Open a request. Raises ProblemError 410 if it is closed, GitopsError."""
    record = reader.record(number, identity.commit)
    if record.closed_at is not None:
        message = f"request {number} is closed or merged, so it is no longer served"
        more = {"change_request": {"reason": Code.PREVIEW_CLOSED.value, "closed_at": record.closed_at}}
        raise ProblemError(ApiProblem(410, ApiCode.NOT_FOUND, message, more))
    return reader.open(record, identity.commit, live, writes=identity.writes, lost=lost)


def _shared(shared: Shared) -> Shared:
    """Return what calls of a request share: queries of change requests have smaller limits and are compiled separately."""
    limits = shared.context.limits
    smaller = replace(limits, query_s=min(limits.query_s, _QUERY_S), query_bytes=min(limits.query_bytes, _QUERY_BYTES))
    return replace(shared, context=replace(shared.context, limits=smaller), texts=QueryTexts())


def _later(message: str) -> ProblemError:
    return ProblemError(ApiProblem(503, None, f"{message}; ask again", headers={"Retry-After": _AGAIN_S}))


def made_again() -> ProblemError:
    """Return the problem for a caller who has to repeat its request because the copy is being made again."""
    return _later("the copy of the graph was no longer complete, and is made again")


PREFIX = "/-/requests/{request}"
MOUNTED: tuple[Route, ...] = tuple(
    each for each in (*queries.ROUTES, *graph_routes.ROUTES, *tools.ROUTES) if each.operation in PREVIEWED
)
"""The routes of a graph that a request's graph has, too."""

_GIVES = (
    Parameter("Gitops-Request", "The number of the change request."),
    Parameter("Gitops-Request-Head", "The commit that was previewed, and that is served."),
)
ROUTES: tuple[Route, ...] = tuple(
    replace(
        each,
        path=f"{PREFIX}{each.path}",
        operation=f"preview_{each.operation}",
        summary=f"In a change request: {each.summary[0].lower()}{each.summary[1:]}",
        problems=(*each.problems, 404, 409, 410, 413, 503),
        gives=(*each.gives, *_GIVES),
    )
    for each in MOUNTED
)


def asked_request(values: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return the number and the graph id in the path of these routes. None for other routes."""
    if "request" not in values:
        return None
    return values["request"].decode("latin-1"), values["graph_id"].decode("latin-1")
