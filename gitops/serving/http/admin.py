"""Admin address with a server's probes (startup, liveness, readiness) and metrics, in a process beside the workers.

| path | 200 | otherwise 503 |
|---|---|---|
| `/startupz` | all workers have responded once | |
| `/livez` | no worker hangs; a worker that is starting or being replaced doesn't count as hanging | |
| `/readyz` | all workers respond, each from a generation that it accepted, no thread is stuck, and no copy is too old | |
| `/readyz?strict=1` | additionally, no graph is quarantined, no newer revision was refused, and no copy is stale | |
| `/metrics` | always | |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from gitops.cluster.model.identity import Identity
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import AccessRequest
from gitops.core.dataclass import dataclass
from gitops.serving.access import authorize, is_loopback, refuse_other_sites
from gitops.serving.answers import (
    ApiCode,
    ApiProblem,
    BodyAnswer,
    ProblemError,
    bad_request,
    encode_headers,
    json_answer,
    not_found,
    problem_answer,
)
from gitops.serving.generation import Generation
from gitops.serving.http.route import Parameter, read_parameters
from gitops.serving.http.who import Authenticator, issuers_of
from gitops.serving.http.work import HttpContext
from gitops.serving.process import Reload, ServingGeneration

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STRICT = Parameter("strict", "1 for no quarantined graph and no refused revision.")
_READS = ("GET", "HEAD")
_LONGEST_TOKEN = 8192
_OF_REPLICA = ("lag_s", "stale", "code", "held_bytes", "most_bytes")


class AdminApp:
    """ASGI application that answers probes and metrics requests."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, Any]], Awaitable[Asked]],
        workers: int,
        numbers: Callable[[Asked], tuple[str, bytes]],
        log: Callable[[str], None],
    ) -> None:
        """Create the app.

        `ask` queries the workers; `workers` is their expected number. `numbers` returns a media type and a text.
        """
        self._ask, self._workers, self._numbers, self._log = ask, workers, numbers, log
        self._started = False
        self._paths = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/startupz": self._startup,
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI protocol."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        answer = await self._answered(scope)
        headers = {"Content-Type": answer.media_type, "Content-Length": str(len(answer.body)), **answer.headers}
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **headers}
        await send({"type": "http.response.start", "status": answer.status, "headers": encode_headers(headers)})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answered(self, scope: Scope) -> BodyAnswer:
        try:
            # Probes and metrics requests can use any host name, except on a loopback address.
            refuse_other_sites(scope, any_host=not is_loopback(scope["server"][0]))
            return await self._handler(scope)(scope)
        except ProblemError as error:
            return problem_answer(error.problem)
        except Exception as error:  # noqa: BLE001 - the log describes a defect, the answer does not
            self._log(f"the admin address failed at {scope['path']}: {type(error).__name__}: {error}")
            message = "the request failed; the log of the server says why"
            return problem_answer(ApiProblem(500, ApiCode.INTERNAL, message))

    def _handler(self, scope: Scope) -> Callable[[Scope], Awaitable[BodyAnswer]]:
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

    async def _startup(self, scope: Scope) -> BodyAnswer:
        read_parameters(scope["query_string"], ())
        await self._look({})
        return json_answer({"started": self._started}, 200 if self._started else 503)

    async def _live(self, scope: Scope) -> BodyAnswer:
        read_parameters(scope["query_string"], ())
        silent = (await self._look({})).silent
        return json_answer({"live": silent == 0, "workers": {"silent": silent}}, 503 if silent else 200)

    async def _ready(self, scope: Scope) -> BodyAnswer:
        strict = read_parameters(scope["query_string"], (_STRICT,)).get("strict", "0")
        if strict not in ("0", "1"):
            raise bad_request("strict is 0 or 1")
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        asked = await self._look({"authorization": given if sum(map(len, given)) <= _LONGEST_TOKEN else []})
        missing, reasons, form = self._workers - len(asked.statuses), list[str](), dict[str, Any]()
        if missing:
            reasons.append(f"{missing} of {self._workers} workers do not respond")
        if stuck := sum(each.load.stuck for each in asked.statuses):
            reasons.append(f"threads that are blocked by work past its time limit: {stuck}")
        oldest = asked.oldest
        if oldest is not None:
            form = {
                "state_revision": oldest.revision.state_revision,
                "applied_digest": f"sha256:{oldest.revision.digest}",
                "config_digest": oldest.revision.config_digest,
                "converged": oldest.revision.converged,
                "graph_counts": {"ready": oldest.ready, "quarantined": oldest.quarantined},
                "pending_revision": next((each.pending for each in asked.statuses if each.pending is not None), None),
            }
            if oldest.graphs is not None:
                form["graphs"] = [
                    {"id": id_, "ready": code is None, "code": code} for id_, code in oldest.graphs.items()
                ]
            if strict == "1" and oldest.quarantined:
                reasons.append(f"quarantined graphs: {oldest.quarantined}")
            if strict == "1" and form["pending_revision"] is not None:
                reasons.append("a newer revision cannot be served")
        if oldest is not None and oldest.replica is not None:
            listed = {} if oldest.graphs is None else {"graphs": oldest.replica["graphs"]}
            form["replica"] = {**{name: oldest.replica[name] for name in _OF_REPLICA}, **listed}
            if oldest.replica["too_stale"] or (strict == "1" and oldest.replica["stale"]):
                reasons.append(f"the copy of the bucket is {oldest.replica['lag_s']} s old")
        if issuers := asked.issuers:
            # Requests with static tokens, or with tokens from other issuers, are still answered.
            form["issuers"] = [{"issuer": name, "available": why is None} for name, why in issuers.items()]
        workers = {"wanted": self._workers, "answering": len(asked.statuses)}
        answer = {"ready": not reasons, "reasons": reasons, "workers": workers, **form}
        return json_answer(answer, 503 if reasons else 200)

    async def _metrics(self, scope: Scope) -> BodyAnswer:
        read_parameters(scope["query_string"], ())
        media_type, text = self._numbers(await self._look({"graphs": True}))
        return BodyAnswer(200, text, media_type)


# How the process of the admin address queries a worker's status.
#
# 1. A worker listens on a socket in a folder that only the server's user can access, while it accepts connections.
# 2. A question is one line, and its answer one document. Both sides come from the same release.
# 3. The worker's event loop answers, so there is no answer while it hangs.

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """A process's current activity: changes, how many of them wait for their turn on a branch, and exports.

    `stuck` is the number of threads whose work has exceeded its time limit.
    """

    changes: int
    waiting: int
    exports: int
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A serving process's status: its revision, when it accepted that revision (seconds since 1970), and its load.

    `ready` and `quarantined` are numbers of graphs. `graphs` maps their ids to the code of the problem, or to None if
    the graph is served; the field is None for callers who must not list graphs. `pending` is a failed attempt to serve
    a newer revision, and `behind` is the number of states by which that revision is newer. `issuers` maps identity
    providers to the reason why the last attempt to read their keys failed, or to None. `replica` describes a read
    replica's copy.
    """

    revision: RevisionIdentity
    accepted_at: float
    ready: int
    quarantined: int
    graphs: Mapping[str, str | None] | None
    pending: Mapping[str, Any] | None
    behind: int
    load: Load
    issuers: Mapping[str, str | None] = field(default_factory=dict)
    replica: Mapping[str, Any] | None = None

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the status in the form in which it is sent."""
        revision, load = self.revision, self.load
        return {
            "revision": [revision.digest, revision.state_revision, revision.config_digest],
            "accepted_at": self.accepted_at,
            "ready": self.ready,
            "quarantined": self.quarantined,
            "graphs": self.graphs,
            "pending": self.pending,
            "behind": self.behind,
            "load": [load.changes, load.waiting, load.exports, load.stuck],
            "issuers": dict(self.issuers),
            "replica": self.replica,
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> ProcessStatus:
        """Restore a status from its sent form."""
        return cls(**{**form, "revision": RevisionIdentity(*form["revision"]), "load": Load(*form["load"])})


class StatusDoor:
    """Reports one worker's status on request."""

    def __init__(
        self,
        place: Path,
        context: HttpContext,
        source: ServingGeneration,
        pending: Callable[[], Reload | None],
        load: Callable[[], Load],
    ) -> None:
        """`place` is the sockets' folder followed by the worker's number, such as `/run/x/0`."""
        self._place, self._context, self._source = _socket(place), context, source
        self._pending, self._load = pending, load
        self._who = Authenticator(context)

    async def open(self) -> asyncio.AbstractServer:
        """Answer status requests until the returned server is closed."""
        self._place.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._answer, self._place)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = json.loads(await reader.readline() or b"{}")
            writer.write(json.dumps((await self.status(question)).form).encode() + b"\n")
        finally:
            writer.close()

    async def status(self, question: Mapping[str, Any]) -> ProcessStatus:
        """Return the status of this process.

        It includes the ids of graphs for `{"graphs": true}`, and for an actor who is allowed to list them.
        """
        generation, pending = self._source.current(), self._pending()
        codes = {name: found[0].code.value for name, found in generation.quarantined.items()}
        named = question.get("graphs") or await self._may_list(generation, question.get("authorization", ()))
        return ProcessStatus(
            generation.revision,
            self._source.accepted_at.timestamp(),
            len(generation.graphs),
            len(generation.quarantined),
            dict(sorted({**dict.fromkeys(generation.graphs), **codes}.items())) if named else None,
            None if pending is None else pending.form,
            0 if pending is None else pending.behind,
            self._load(),
            self._failures(generation),
            None if self._context.replica is None else self._context.replica.form,
        )

    def _failures(self, generation: Generation) -> Mapping[str, str | None]:
        issuers, verifier = issuers_of(self._context, generation), self._context.verifier
        return verifier().ring.failures(issuers) if issuers and verifier is not None else {}

    async def _may_list(self, generation: Generation, authorization: Sequence[str]) -> bool:
        if not authorization:
            return False
        given = [each.encode("latin-1") for each in authorization]
        try:
            # A client that asks for the status won't wait long.
            found = await self._who.identify(generation, given, may_wait=False) or Identity("")
            wanted = AccessRequest(found.actor, PolicyAction.GRAPH_LIST, groups=found.groups)
            authorize(generation, None, wanted, self._context.ids.ulid())
        except ProblemError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Asked:
    """All workers' answers, and how many workers exist but did not respond in time."""

    statuses: tuple[ProcessStatus, ...]
    silent: int

    @property
    def issuers(self) -> dict[str, str | None]:
        """The identity providers, each with a reason why a worker cannot read its keys, or None without a problem."""
        found: dict[str, str | None] = {}
        for name, why in [pair for each in self.statuses for pair in each.issuers.items()]:
            found[name] = found.get(name) or why
        return dict(sorted(found.items()))

    @property
    def oldest(self) -> ProcessStatus | None:
        """The status with the oldest revision, or None if no worker responded."""
        return min(self.statuses, key=lambda each: each.revision.state_revision, default=None)


async def ask_workers(folder: Path, workers: int, question: Mapping[str, Any]) -> Asked:
    """Ask all workers at the same time. Leaves out any worker that is missing or exits meanwhile."""
    line = json.dumps(question).encode() + b"\n"
    answers = await asyncio.gather(*(_ask(folder / str(number), line) for number in range(workers)))
    statuses = [ProcessStatus.of_form(json.loads(each)) for each in answers if each]
    return Asked(tuple(statuses), answers.count(None))


async def _ask(place: Path, line: bytes) -> bytes | None:
    """Return the answer; empty if there is no worker, None if it arrived too late."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(_socket(place))
            try:
                writer.write(line)
                answer = await reader.read()
                # A worker that ended while answering counts as missing.
                return answer if answer.endswith(b"\n") else b""
            finally:
                writer.close()
    except (FileNotFoundError, ConnectionError):
        return b""
    except OSError:
        # The answer is too late, or the worker has been hanging so long that its socket's queue is full.
        return None


def _socket(place: Path) -> Path:
    return place.with_name(f"{place.name}.sock")
