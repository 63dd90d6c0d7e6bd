"""The admin address: whether a server has started, lives and is ready, and its numbers, from a process beside the workers.

| path | 200 | otherwise 503 |
|---|---|---|
| `/startupz` | all workers have answered once | |
| `/livez` | no worker hangs; one that is being started or replaced does not hang | |
| `/readyz` | all workers answer, each from a generation that it accepted, and no query is stuck | |
| `/readyz?strict=1` | and no graph is quarantined, and no newer revision was refused | |
| `/metrics` | always | |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from gitops.serving.http.answers import Answer, json_answer, problem_answer
from gitops.serving.http.browsers import is_loopback, refuse_other_sites
from gitops.serving.http.matching import read_parameters
from gitops.serving.http.route import Parameter
from gitops.serving.http.status import Asked, WorkerStatus
from gitops.serving.problem import ApiCode, ApiProblem, ProblemError, bad_request, not_found

__all__ = ["AdminApp"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STRICT = Parameter("strict", "1 for no quarantined graph and no refused revision.")
_READS = ("GET", "HEAD")
_LONGEST_TOKEN = 8192


class AdminApp:
    """Answers probes and scrapes, as an ASGI application."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, Any]], Awaitable[Asked]],
        workers: int,
        numbers: Callable[[Asked], tuple[str, bytes]],
        log: Callable[[str], None],
    ) -> None:
        """`ask` asks the workers, of which there should be so many; `numbers` gives a media type and a text."""
        self._ask, self._workers, self._numbers, self._log = ask, workers, numbers, log
        self._started = False
        self._paths = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/startupz": self._startup,
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of the ASGI protocol."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        answer = await self._answered(scope)
        headers = {"Content-Type": answer.media_type, "Content-Length": str(len(answer.body)), **answer.headers}
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answered(self, scope: Scope) -> Answer:
        try:
            # Probes and scrapes may come by any name, but not to a loopback address.
            refuse_other_sites(scope, any_host=not is_loopback(scope["server"][0]))
            return await self._handler(scope)(scope)
        except ProblemError as error:
            return problem_answer(error.problem)
        except Exception as error:  # noqa: BLE001 - the log describes a defect, the answer does not
            self._log(f"the admin address failed at {scope['path']}: {type(error).__name__}: {error}")
            message = "the request failed; the log of the server says why"
            return problem_answer(ApiProblem(500, ApiCode.INTERNAL, message))

    def _handler(self, scope: Scope) -> Callable[[Scope], Awaitable[Answer]]:
        found = self._paths.get(scope["path"])
        if found is None:
            raise not_found(f"the admin address has {', '.join(self._paths)}")
        if scope["method"] not in _READS:
            message = "the method is not allowed here; allowed: GET, HEAD"
            headers = {"Allow": ", ".join(_READS)}
            raise ProblemError(ApiProblem(405, ApiCode.METHOD_NOT_ALLOWED, message, headers=headers))
        return found

    async def _look(self, question: Mapping[str, Any]) -> Asked:
        asked = await self._ask(question)
        self._started = self._started or len(asked.statuses) == self._workers
        return asked

    async def _startup(self, scope: Scope) -> Answer:
        read_parameters(scope["query_string"], ())
        await self._look({})
        return json_answer({"started": self._started}, 200 if self._started else 503)

    async def _live(self, scope: Scope) -> Answer:
        read_parameters(scope["query_string"], ())
        silent = (await self._look({})).silent
        return json_answer({"live": silent == 0, "workers": {"silent": silent}}, 503 if silent else 200)

    async def _ready(self, scope: Scope) -> Answer:
        strict = read_parameters(scope["query_string"], (_STRICT,)).get("strict", "0")
        if strict not in ("0", "1"):
            raise bad_request("strict is 0 or 1")
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        asked = await self._look({"authorization": given if sum(map(len, given)) <= _LONGEST_TOKEN else []})
        missing, reasons, form = self._workers - len(asked.statuses), list[str](), dict[str, Any]()
        if missing:
            reasons.append(f"{missing} of {self._workers} workers do not answer")
        if stuck := sum(each.load.stuck for each in asked.statuses):
            reasons.append(f"threads that are held by queries past their time limit: {stuck}")
        oldest = asked.oldest
        if oldest is not None:
            form = _seen(oldest, next((each.pending for each in asked.statuses if each.pending is not None), None))
            if strict == "1" and oldest.quarantined:
                reasons.append(f"{oldest.quarantined} graph(s) are quarantined")
            if strict == "1" and form["pending_revision"] is not None:
                reasons.append("a newer revision cannot be served")
        workers = {"wanted": self._workers, "answering": len(asked.statuses)}
        answer = {"ready": not reasons, "reasons": reasons, "workers": workers, **form}
        return json_answer(answer, 503 if reasons else 200)

    async def _metrics(self, scope: Scope) -> Answer:
        read_parameters(scope["query_string"], ())
        media_type, text = self._numbers(await self._look({"graphs": True}))
        return Answer(200, text, media_type)


def _seen(oldest: WorkerStatus, pending: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a server serves; the graphs only where the worker gave their ids."""
    form = {
        "state_revision": oldest.revision.state_revision,
        "applied_digest": f"sha256:{oldest.revision.digest}",
        "config_digest": oldest.revision.config_digest,
        "converged": oldest.revision.converged,
        "graph_counts": {"ready": oldest.ready, "quarantined": oldest.quarantined},
        "pending_revision": pending,
    }
    if oldest.graphs is None:
        return form
    return {
        **form,
        "graphs": [{"id": name, "ready": code is None, "code": code} for name, code in oldest.graphs.items()],
    }
