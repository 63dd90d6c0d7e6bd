"""A handler's view of a request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN, AccessRequest
from gitops.cluster.policy.verbs import TELLS, VERBS
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError, GitopsError
from gitops.database.graph import WriteContext, scratch_size
from gitops.review.previews import order as orders
from gitops.serving.access import authorize, decide_access
from gitops.serving.answers import (
    ApiCode,
    ApiProblem,
    BodyAnswer,
    ProblemError,
    StreamAnswer,
    bad_request,
    problem_of,
    withhold,
)
from gitops.serving.generation import Generation, PreviewSource, ServedGraph
from gitops.serving.http.bodies import Model, read_json
from gitops.serving.http.openapi import ApiDocument
from gitops.serving.http.route import Route, query_pairs, read_parameters
from gitops.serving.http.work import ANONYMOUS, Admission, HttpContext, StreamSlots, Workers
from gitops.serving.queries import QueryTexts

B = TypeVar("B")
T = TypeVar("T")
M = TypeVar("M", bound=Model)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_DROPPED_BYTES, _DROPPED_S = 64 * 2**20, 10.0
SMALL_BODY = 64 * 1024
"""Larger bodies are parsed in a thread, so that other requests don't wait."""


CLIENT = "omnigraph-client"
"""The header in which a client without a token gives its name for the record of calls."""

_CLIENT = re.compile(rb"[0-9A-Za-z][0-9A-Za-z_.-]{0,63}\Z")


def client_name(given: Sequence[bytes]) -> str:
    """Return the name that a client gives itself in its header, or `anonymous`."""
    plain = len(given) == 1 and _CLIENT.match(given[0]) is not None
    return given[0].decode() if plain else ANONYMOUS


class ClientGoneError(Exception):
    """Raised if the client disconnects before its request is complete."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Objects that all of a process's requests share. `agents` answers a message in the agents' protocol."""

    context: HttpContext
    workers: Workers
    admission: Admission
    texts: QueryTexts
    streams: StreamSlots
    document: ApiDocument
    agents: Callable[[Call, bytes], Awaitable[BodyAnswer]]


class Call:
    """A request. `generation` stays the same during the whole request. `scope` comes from the ASGI server.

    Processing sets the following: `actor` (None if no token is required) and its `groups`; `route` and `graph`, which
    raise LookupError if the request has none; the `values` in the path; `body`, the parsed document for a route with a
    body, and `body_bytes`, the number of received bytes; `stored_query`, the name of the stored query that the actor may
    invoke; and `more_headers`, which a read replica and a previewed change request send with every answer.
    """

    def __init__(self, shared: Shared, scope: Mapping[str, Any], receive: Receive, generation: Generation) -> None:
        """Create the call as received. The application sets the rest."""
        self.shared, self.context, self.scope, self.generation = shared, shared.context, scope, generation
        self.method: str = scope["method"]
        self.request_id = ""
        self.actor: str | None = None
        self.groups: tuple[str, ...] = ()
        self.values: Mapping[str, str] = {}
        self.body: Any = None
        self.body_bytes = 0
        self.stored_query: str | None = None
        self.more_headers: Mapping[str, str] = {}
        self._receive = receive
        self._query: Mapping[str, str] | None = None
        self._route: Route | None = None
        self._graph: ServedGraph | None = None
        self._changing: str | None = None
        self._received = False
        self._asked = Counter[PolicyAction]()

    # Route and graph

    @property
    def route(self) -> Route:
        """The request's route."""
        if self._route is None:
            raise LookupError("the request has no route")
        return self._route

    @property
    def operation(self) -> str | None:
        """The route's operation, or None if there is no route."""
        return None if self._route is None else self._route.operation

    @property
    def graph(self) -> ServedGraph:
        """The graph in the path."""
        if self._graph is None:
            raise LookupError("the route is not about a graph")
        return self._graph

    @property
    def graph_id(self) -> str | None:
        """The id of the graph in the path, or None if there is none."""
        return None if self._graph is None else self._graph.graph_id

    def resolve(self, route: Route, values: Mapping[str, str], graph: ServedGraph | None) -> None:
        """Set the route of the request, with its values and graph."""
        self._route, self.values, self._graph = route, values, graph

    def enter(self, shared: Shared, generation: Generation) -> None:
        """Let the rest of the request be about a previewed change request."""
        self.shared, self.context, self.generation = shared, shared.context, generation

    @property
    def has_begun_change(self) -> bool:
        """Whether a change was passed on to the graph."""
        return self._changing is not None

    # Headers and query parameters

    def headers(self, name: str) -> list[bytes]:
        """Return all headers with a name, which must be lower case."""
        wanted = name.encode()
        return [value for key, value in self.scope["headers"] if key == wanted]

    def header(self, name: str) -> str | None:
        """Return a header. `name` is lower case. Raises ProblemError 400 if the header is repeated or not text."""
        found = self.headers(name)
        if not found:
            return None
        if len(found) > 1:
            raise bad_request(f"the header {name} is given twice")
        try:
            return found[0].decode()
        except UnicodeDecodeError:
            raise bad_request(f"the header {name} is not UTF-8") from None

    def query(self) -> Mapping[str, str]:
        """Return the query parameters, without those that only the handler reads.

        Raises ProblemError 400 for a parameter that is unknown, repeated or missing.
        """
        if self._query is None:
            declared = self.route.query
            self._query = {} if self.route.free_query else read_parameters(self.scope["query_string"], declared)
        return self._query

    def query_values(self, name: str) -> list[str]:
        """Return all values of a query parameter that can be repeated."""
        return [value for known, value in query_pairs(self.scope["query_string"]) if known == name]

    # Body

    @property
    def has_body(self) -> bool:
        """Return whether the request announces a body."""
        return (self.header("content-length") or "0").strip("0") != "" or bool(self.headers("transfer-encoding"))

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises ProblemError 413 above the route's limit, 408, and ClientGoneError."""
        limit, taken = self.route.limit, 0
        announced = self.header("content-length") or "0"
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise _too_large(limit)
        while True:
            try:
                async with asyncio.timeout(self.context.limits.idle_s):
                    arrived = await self._receive_message()
            except TimeoutError:
                message = "the rest of the body did not arrive in time"
                headers = {"Connection": "close"}
                raise ProblemError(ApiProblem(408, ApiCode.BAD_REQUEST, message, headers=headers)) from None
            if arrived["type"] == "http.disconnect":
                raise ClientGoneError
            piece = arrived.get("body", b"")
            taken += len(piece)
            self.body_bytes = taken
            if taken > limit:
                raise _too_large(limit)
            if piece:
                yield piece
            if not arrived.get("more_body", False):
                return

    async def drop_rest(self) -> None:
        """After the response, read and discard the rest of the body, up to 64 MiB and for at most 10 seconds.

        If a connection is closed with unread bytes, it is reset, and the client may lose the response.
        """
        dropped = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DROPPED_S):
                while not self._received and dropped < _DROPPED_BYTES:
                    dropped += len((await self._receive_message()).get("body", b""))

    async def _receive_message(self) -> MutableMapping[str, Any]:
        arrived = await self._receive()
        self._received = not arrived.get("more_body", False)
        return arrived

    async def read_body(self) -> bytes:
        """Return the complete body. Raises the same errors as `pieces`."""
        return b"".join([piece async for piece in self.pieces()])

    async def read_json(self, model: type[M]) -> M | None:
        """Return the body as a document with this form, or None if it is empty or `null`.

        Raises ProblemError 400, and the errors of `pieces`.
        """
        data = await self.read_body()
        if len(data) <= SMALL_BODY:
            return read_json(model, data)
        return await self.work(lambda: read_json(model, data))

    def require_media_type(self, expected: str) -> None:
        """Require a body with this media type.

        Raises ProblemError 415 if the body has a different media type or is compressed.
        """
        given = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if given != expected:
            raise _unsupported(f"set the content type to {expected}")
        self.require_identity()

    def require_identity(self) -> None:
        """Require an uncompressed body.

        Raises ProblemError 415 if the content or the transfer encoding is compressed.
        """
        encoding, transfer = (
            self.header("content-encoding") or "identity",
            self.header("transfer-encoding") or "chunked",
        )
        if (encoding.strip().lower(), transfer.strip().lower()) != ("identity", "chunked"):
            raise _unsupported("send the body without compression")

    async def until_gone(self) -> None:
        """Wait until the client disconnects. Call this only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # Permissions and work

    def require(
        self,
        action: PolicyAction,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        query: str | None = None,
    ) -> None:
        """Require that the actor may do this on the graph or server. Raises ProblemError 401, 403, 500.

        Raises BugError for a permission that is not in the table of verbs.
        """
        if all(each.action is not action for each in VERBS[self.route.operation]):
            raise BugError(f"{self.route.operation} asks for {action}, and the table of verbs does not say so")
        self._asked[action] += 1
        wanted = AccessRequest(self.actor or "", action, branch, target_branch, query, self.groups)
        observer = self.context.observer
        count = None if observer is None else observer.decided
        authorize(self.generation, self._graph, wanted, self.request_id, count)

    def may(self, action: PolicyAction, *, branch: str | None = None, query: str | None = None) -> bool:
        """Return True if the actor may do this. Like `require`, but does not write a log record.

        Use it only to choose a response's content.
        """
        wanted = AccessRequest(self.actor or "", action, branch, query=query, groups=self.groups)
        return decide_access(self.generation, self._graph, wanted).decision.allowed

    def require_asked(self) -> None:
        """Raise BugError unless the operation has requested all permissions in the table of verbs."""
        needed = Counter(each.action for each in VERBS[self.route.operation] if not each.when)
        if not needed <= self._asked:
            raise BugError(f"{self.route.operation} answers without asking for {', '.join(needed - self._asked)}")

    def used(self, stored: str, params: Mapping[str, Any] | None) -> None:
        """Record that a stored query answered, if calls are recorded."""
        if self.context.use is not None:
            client = self.actor or client_name(self.headers(CLIENT))
            self.context.use.count(self.generation, self.graph, stored, params, client)

    def knows(self, branch: str) -> bool:
        """Return whether the actor may see a branch's content."""
        return any(self.may(action, branch=branch) for action in TELLS)

    def receipt(self, branch: str, form: dict[str, Any], *rows: str) -> dict[str, Any]:
        """Return the response to a change.

        The members in `rows` reveal the branch's content, so they are null without permission.
        """
        return form if self.knows(branch) else {**form, **dict.fromkeys(rows)}

    def problem(self, error: GitopsError) -> ApiProblem:
        """Return the response for a failure.

        Graphs are shown by id, and branch names only to callers who may list them.
        """
        if self._graph is None:
            return problem_of(error)
        place, uri = f"graph '{self._graph.graph_id}'", self._graph.uri
        detail = error.detail.replace(uri.removeprefix("file://"), place) if uri else error.detail
        if error.code is Code.GRAPH_BRANCH_MISSING and not self.may(PolicyAction.READ, branch=MAIN):
            detail = f"{place} has no branch '{error.path}'"
        found = problem_of(error, detail.replace(f"file://{place}", place))
        if error.code is Code.GRAPH_CONFLICT:
            return replace(found, more={"read_set_conflict": {"member": f"graph_head:{self._changing or MAIN}"}})
        return found

    @property
    def writing(self) -> WriteContext:
        """Return a write's external inputs, on behalf of the actor."""
        return WriteContext(self.context.clock, self.context.ids, self.actor)

    async def work(self, work: Callable[[], T]) -> T:
        """Run work on graphs in a thread and return its result."""
        limit = self.context.limits.work_s
        return await self.shared.workers.run(work, limit, partial(self._report_stuck, limit), patient=True)

    async def read(self, work: Callable[[], T]) -> T:
        """Run a query in a thread and return its result.

        Raises GitopsError `query_timeout` if it exceeds its time limit.
        """
        limits = self.context.limits
        exceeded = partial(self._report_stuck, limits.query_s)
        return await self.shared.workers.run(work, limits.query_s + limits.stuck_s, exceeded)

    async def _alone(self, branch: str, work: Callable[[], T]) -> T:
        limit = self.context.limits.work_s
        exceeded = partial(self._report_stuck, limit)
        if self.generation.preview is not None:
            work = partial(self._on_copy, self.generation.preview, work)
        return await self.shared.workers.run_alone(self.graph.uri, branch, work, limit, exceeded)

    def _on_copy(self, preview: PreviewSource, work: Callable[[], T]) -> T:
        """Change the copy of a previewed request, unless that has become too large. Raises ProblemError 403."""
        if scratch_size(self.graph.uri).bytes >= orders.COPY_BYTES:
            most = orders.COPY_BYTES // 2**20
            message = f"the copy of request {preview.number} is full: changes to it can store at most {most} MiB"
            more = {"change_request": {"reason": Code.PREVIEW_LIMIT.value}}
            raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message, more))
        return work()

    def _report_stuck(self, limit_s: float) -> None:
        context = self.context
        record = {
            "event": "stuck",
            "request_id": self.request_id,
            "route": self.operation,
            "graph": self.graph_id,
            "query": self.stored_query,
            "actor": self.actor,
            "limit_s": limit_s,
        }
        context.log(record)
        if context.observer is not None:
            context.observer.stuck()
        # Only once, because at a second signal, a server no longer finishes work in progress.
        if context.replace is not None and self.shared.workers.stuck == 1:
            context.replace()

    def _begin_change(self, branch: str) -> None:
        if self.context.replica is not None:
            raise self.context.replica.refuse_change()
        preview = self.generation.preview
        if preview is not None and not preview.writes:
            message = f"request {preview.number} is served for reading: preview.writes in gitops.yaml is refuse"
            more = {"change_request": {"reason": Code.PREVIEW_READ_ONLY.value}}
            raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message, more))
        self._changing = branch

    async def change(self, branch: str, nbytes: int, work: Callable[[], T]) -> T:
        """Run an exclusive change to a branch and return its result. It counts as `nbytes` towards the actor's limit.

        It is finished even if the client disconnects. Raises ProblemError 429, and 409 for problems that depend on the
        branch's rows, without a reason if the actor must not see them.
        """
        self._begin_change(branch)
        admitted = self.shared.admission.run(self.actor, nbytes, lambda: self._alone(branch, work))
        with withhold(branch, unless=lambda: self.knows(branch)):
            return await self.shared.workers.finish(admitted)

    async def change_after(
        self, branch: str, nbytes: int, first: Callable[[], B], work: Callable[[B], T], *, reads: bool
    ) -> T:
        """Run a change as `change` does, with the result of work done after admission and before its turn.

        That work needs a thread only if it `reads`. In a thread, it would wait for other changes to end instead of
        joining them.
        """
        self._begin_change(branch)

        async def prepare() -> T:
            prepared = await self.shared.workers.run(first, patient=True) if reads else first()
            return await self._alone(branch, lambda: work(prepared))

        with withhold(branch, unless=lambda: self.knows(branch)):
            return await self.shared.workers.finish(self.shared.admission.run(self.actor, nbytes, prepare))

    async def change_of(
        self, branch: str, nbytes: int, body: AbstractAsyncContextManager[B], work: Callable[[B], T]
    ) -> T:
        """Run a change as `change` does, with a body.

        The body is received after the change is admitted, and before its turn on the branch.
        """
        self._begin_change(branch)

        async def receive() -> T:
            async with body as received:
                return await self._alone(branch, lambda: work(received))

        with withhold(branch, unless=lambda: self.knows(branch)):
            return await self.shared.workers.finish(self.shared.admission.run(self.actor, nbytes, receive))


def canonical_branch(given: str | None) -> str:
    """Return a branch's name, `main` by default, without surrounding whitespace.

    Raises ProblemError 400 for a blank or reserved name.
    """
    if given is None:
        return MAIN
    name = given.strip()
    if not name:
        raise bad_request("the name of the branch is blank; leave it out for main")
    if name.startswith("__"):
        raise bad_request("names of branches that begin with __ are reserved")
    return name


def _too_large(limit: int) -> ProblemError:
    # The rest of the body is not read, so the connection cannot be reused.
    problem = ApiProblem(
        413, ApiCode.BAD_REQUEST, f"the body has more than {limit} bytes", headers={"Connection": "close"}
    )
    return ProblemError(problem)


def _unsupported(message: str) -> ProblemError:
    return ProblemError(ApiProblem(415, ApiCode.BAD_REQUEST, message))


# Bodies that are too large for memory: incoming and outgoing records.
#
# 1. Outgoing bodies are produced piece by piece, each after the previous one was taken, in a thread that is free in
#    between. So a slow reader occupies a stream slot but no thread.
# 2. Incoming bodies are stored on disk before any work begins. So a slow sender occupies neither a thread nor a branch,
#    and an aborted upload leaves nothing behind.


_IN_MEMORY = 2**20
_TOO_LARGE = 413


class PieceStream:
    """Pieces that a generator produces in threads, one at a time. It occupies a stream slot until it is closed."""

    def __init__(self, call: Call, pieces: Generator[bytes, None, None]) -> None:
        """Create the stream. Its slot must already be taken."""
        self._call, self._pieces = call, pieces
        self._making: asyncio.Future[bytes | None] | None = None
        self._open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._making = asyncio.ensure_future(self._call.work(lambda: next(self._pieces, None)))
        # The task that waits for a piece can be cancelled, but not the thread that produces it.
        piece = await asyncio.shield(self._making)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Finish the current piece, produce no more, and free the slot."""
        if not self._open:
            return
        self._open = False
        try:
            if self._making is not None:
                await asyncio.wait((self._making,))
                if not self._making.cancelled():
                    # If the client disconnected, there is no one to report a failure to.
                    self._making.exception()
            self._pieces.close()
        finally:
            self._call.shared.streams.free()


async def send_stream(call: Call, answer: StreamAnswer, headers: list[tuple[bytes, bytes]], send: Send) -> int:
    """Send a response in pieces. Return the number of bytes sent.

    It ends if the client disconnects. Raises TimeoutError if the client does not read for `idle_s` seconds, and any
    error from producing a piece. The server then closes the connection, so the client sees that the body is incomplete.
    """
    sent = 0

    async def send_pieces() -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.pieces:
            async with asyncio.timeout(call.context.limits.idle_s):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += len(piece)
        await send({"type": "http.response.body", "body": b""})

    sending, gone = asyncio.ensure_future(send_pieces()), asyncio.ensure_future(call.until_gone())
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
        return sent
    finally:
        gone.cancel()
        sending.cancel()
        await asyncio.wait((sending, gone))
        close = getattr(answer.pieces, "aclose", None)
        if close is not None:
            await close()


@contextlib.asynccontextmanager
async def receive_aside(call: Call) -> AsyncIterator[BinaryIO]:
    """Yield a request's body as a temporary file.

    Raises ProblemError 413 `graph_batch_request_bytes`, ClientGoneError.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        held = bytearray()
        try:
            async for piece in call.pieces():
                held += piece
                if len(held) >= _IN_MEMORY:
                    await call.work(lambda data=bytes(held): file.write(data))  # type: ignore[misc]
                    held.clear()
        except ProblemError as error:
            if error.problem.status != _TOO_LARGE:
                raise
            more = {"graph_batch_request_bytes": {"limit": call.route.limit}}
            problem = error.problem
            raise ProblemError(
                ApiProblem(problem.status, problem.code, problem.message, more, problem.headers)
            ) from None
        file.write(held)
        file.seek(0)
        yield cast("BinaryIO", file)
