"""Answers `POST /graphs/ID/queries/NAME` directly if the query reads only rows that are in memory.

Rules of this module:

1. The response, the log and the counts are the same as for the general path through `app`. Tests send requests both
   ways.
2. A request takes the general path if anything about it is unusual: a header that is not listed here, a token of an
   identity provider, a refused permission, a body with more than `params`, a problem, or rows that must be read. Until
   then, nothing is logged or counted, and only the body is received, which is passed on.
3. Decisions about access depend only on the generation, the graph, the query and the actor, so they are made once for
   each combination, but logged and counted for each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN, AccessRequest
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import GitopsError
from gitops.serving.access import DECISIONS, DecisionRecord, bearer_of, decide_access
from gitops.serving.answers import JSON, ProblemError, encode_headers
from gitops.serving.generation import Generation, PolicyCover, ServedGraph, StoredQuery
from gitops.serving.http.call import SMALL_BODY, Receive, Scope, Send
from gitops.serving.http.queries import read_answer
from gitops.serving.http.work import HttpContext, request_names, request_record
from gitops.serving.logs import FixedMembers, JoinedForm, log_forms
from gitops.serving.queries import run_bound

_OPERATION = "invoke_query"
_HARMLESS = frozenset((b"host", b"accept", b"accept-encoding", b"accept-language", b"user-agent", b"connection")) | {
    b"via",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"traceparent",
}
_KEPT = 4096
_MEMBERS = {"params"}


@dataclass(frozen=True, slots=True)
class _Permitted:
    """An actor's permitted use of a stored query, with the decisions and the members of log records that are fixed."""

    graph: ServedGraph
    stored: StoredQuery
    decisions: tuple[tuple[DecisionRecord, FixedMembers], ...]
    names: FixedMembers
    actor: str


class DirectReads:
    """Answers such requests in one event loop."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._generation: Generation | None = None
        self._permitted: dict[tuple[bytes, str], _Permitted | None] = {}
        self._headers: list[tuple[bytes, bytes]] = []
        self._revision = FixedMembers({})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answer a request and return None, or return the `receive` function for the general path."""
        context, generation = self._context, self._context.generations.current()
        started = context.clock.monotonic()
        if generation is not self._generation:
            self._exchange(generation)
        use = self._use(generation, scope)
        if use is None:
            return receive
        try:
            async with asyncio.timeout(context.limits.idle_s):
                first = await receive()
        except TimeoutError:
            return _never
        request_id = context.ids.ulid()
        answered = self._read(use, first)
        if answered is None:
            return _replayed(first, receive)
        body, params = answered
        if context.use is not None:
            context.use.count(generation, use.graph, use.stored.name, params, use.actor)
        headers = [*self._headers, (b"x-request-id", request_id.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._record(use, request_id, len(body), context.clock.monotonic() - started)
        return None

    def _exchange(self, generation: Generation) -> None:
        """Forget everything about an earlier generation."""
        self._generation, self._permitted = generation, {}
        self._revision = FixedMembers({"revision": generation.revision.digest})
        self._headers = encode_headers(
            {
                "Content-Type": JSON,
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Omnigraph-Applied-Revision": f"sha256:{generation.revision.digest}",
            }
        )

    def _use(self, generation: Generation, scope: Scope) -> _Permitted | None:
        """Return the permitted use that a request is for."""
        if scope["method"] != "POST" or scope["query_string"] or self._context.state is PolicyCover.OPEN:
            return None
        tokens, types = [], []
        for name, value in scope["headers"]:
            if name == b"authorization":
                tokens.append(value)
            elif name == b"content-type":
                types.append(value)
            elif name == b"content-length":
                if len(value) > len(str(SMALL_BODY)) or not value.isdigit() or int(value) > SMALL_BODY:
                    return None
            elif name not in _HARMLESS:
                return None
        if types != [JSON.encode()]:
            return None
        try:
            actor = self._context.tokens().actor_of(bearer_of(tokens))
            if actor is None:
                return None
            key = scope["raw_path"], actor
            if key not in self._permitted:
                if len(self._permitted) >= _KEPT:
                    self._permitted.clear()
                self._permitted[key] = _permitted(generation, *key)
            return self._permitted[key]
        except (ProblemError, GitopsError):
            return None

    def _read(self, use: _Permitted, message: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any] | None] | None:
        """Return the answer's body to a body that was received, and the parameters in that."""
        data = message.get("body", b"")
        if message["type"] != "http.request" or message.get("more_body", False) or len(data) > SMALL_BODY:
            return None
        try:
            body = parse(data) if data else None
            if body is not None and (
                type(body) is not dict or body.keys() != _MEMBERS or type(body["params"]) is not dict
            ):
                return None
            params = None if body is None else body["params"]
            found = run_bound(use.graph, MAIN, use.stored.checked, params, self._context.clock.now())
        except (MalformedError, ProblemError, GitopsError):
            return None
        return None if found is None else (read_answer(MAIN, None, *found).body, params)

    def _record(self, use: _Permitted, request_id: str, sent: int, seconds: float) -> None:
        observer = self._context.observer
        head = {"event": "decision", "request_id": request_id}
        log_forms(DECISIONS, logging.INFO, [JoinedForm(head, form) for _, form in use.decisions])
        if observer is not None:
            for decided, _ in use.decisions:
                observer.decided(decided.scope, decided.wanted.action, decided.decision)
        record = request_record(request_id, use.names, 200, sent, seconds, self._revision)
        self._context.log(record)
        if observer is not None:
            observer.answered(record)


def _permitted(generation: Generation, raw_path: bytes, actor: str) -> _Permitted | None:
    """Return the use of the stored read at a path, if all of its permissions are granted."""
    parts = raw_path.split(b"/")
    if len(parts) != 5 or parts[:2] + parts[3:4] != [b"", b"graphs", b"queries"] or b"%" in raw_path:  # noqa: PLR2004
        return None
    graph = generation.graphs.get(parts[2].decode("latin-1"))
    stored = None if graph is None else graph.queries.get(parts[4].decode("latin-1"))
    if graph is None or stored is None:
        return None
    invoke = AccessRequest(actor, PolicyAction.INVOKE_QUERY, query=stored.name)
    decided = [
        decide_access(generation, graph, each) for each in (invoke, AccessRequest(actor, PolicyAction.READ, MAIN))
    ]
    if not all(each.decision.allowed for each in decided):
        return None
    forms = [{name: value for name, value in each.form.items() if name != "request_id"} for each in decided]
    names = FixedMembers(request_names("POST", _OPERATION, graph.graph_id, stored.name, actor))
    return _Permitted(graph, stored, tuple(zip(decided, map(FixedMembers, forms), strict=True)), names, actor)


async def _never() -> MutableMapping[str, Any]:
    """Stand for the rest of a body that did not arrive in time."""
    raise TimeoutError


def _replayed(first: MutableMapping[str, Any], receive: Receive) -> Receive:
    """Return a function that receives a message again, and then the messages after it."""
    waiting = [first]

    async def again() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return again
