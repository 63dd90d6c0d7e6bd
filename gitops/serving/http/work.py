"""Work on graphs, with limits on threads, writers per branch, changes per actor, and streamed responses.

1. A change that has started is finished, even if its client disconnects. Its resources are released when it ends.
2. On each branch, this process runs one change at a time, in the order of arrival. Responses are sent after that.
3. An actor's two limits are checked in one step.
4. Work starts when earlier work has ended or turned out to take long, in the thread that was last active. Short reads
   are mostly Python code, which only one thread can run at a time: if four of them compete, each takes three times as
   long.
5. Work can have a time limit. A thread cannot be stopped from outside, least of all inside a driver call, so after the
   limit the thread is stuck until the work returns. The caller of a query gets an error. The caller of a change
   continues to wait, because it is not known yet whether the change will succeed; if the process is replaced, the
   connection is cut off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import AccessDecision
from gitops.core.clock import Clock, IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.serving.access import BearerTokens
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.generation import Generation, PolicyCover
from gitops.serving.logs import JoinedForm

if TYPE_CHECKING:
    from gitops.identity.verify import TokenVerifier
    from gitops.repository.report_folder import ServedReport
    from gitops.serving.previews import PreviewReader
    from gitops.serving.replica import ReadReplica
    from gitops.serving.use import UseRecorder

T = TypeVar("T")
ANONYMOUS = "anonymous"
_RETRY_AFTER_S = "60"
# A few times the duration of a stored query by key.
_SHORT_S = 0.005


class Workers:
    """Threads and branch locks for one event loop."""

    def __init__(self, threads: int, short_s: float = _SHORT_S) -> None:
        """Threads are started on demand. Work that takes more than `short_s` seconds counts as long."""
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"graph-{number}") for number in range(threads)]
        self._idle = self._threads[::-1]
        self._room = asyncio.Semaphore(threads)
        self._turn = asyncio.Semaphore(1)
        self._short_s = short_s
        self._stuck: set[ThreadPoolExecutor] = set()
        self._writers: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}
        self._unfinished: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[], T],
        limit_s: float | None = None,
        exceeded: Callable[[], None] = lambda: None,
        *,
        patient: bool = False,
    ) -> T:
        """Run work in a thread and return its result.

        After `limit_s` seconds, `exceeded` is called, even if the caller has gone. Then GitopsError `query_timeout` is
        raised, unless the caller is `patient`.
        """
        loop = asyncio.get_running_loop()
        late = loop.create_future()
        async with self._turn:
            await self._room.acquire()
            thread = self._idle.pop()
            running = thread.submit(work)
            ending = asyncio.wrap_future(running)

            def give_up() -> None:
                if not running.done():
                    self._stuck.add(thread)
                    if not patient:
                        late.set_result(None)
                    exceeded()

            timer = None if limit_s is None else loop.call_later(limit_s, give_up)

            def give_back(ended: asyncio.Future[T]) -> None:
                if timer is not None:
                    timer.cancel()
                self._stuck.discard(thread)
                self._idle.append(thread)
                self._room.release()
                if not ended.cancelled():
                    # The caller might no longer be there to see an error.
                    ended.exception()

            ending.add_done_callback(give_back)
            await asyncio.wait((ending,), timeout=self._short_s)
        # If the caller is cancelled, the thread continues.
        if not ending.done():
            await asyncio.wait((ending, late), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            raise GitopsError(Code.QUERY_TIMEOUT, f"the query did not end within {limit_s:g} s, and cannot be stopped")
        return ending.result()

    async def run_alone(
        self,
        uri: str,
        branch: str,
        work: Callable[[], T],
        limit_s: float | None = None,
        exceeded: Callable[[], None] = lambda: None,
    ) -> T:
        """Run work while no other exclusive work runs on the graph's branch.

        `limit_s` and `exceeded` are as in `run`.
        """
        key = uri, branch
        lock, waiting = self._writers.get(key, (None, 0))
        lock = lock or asyncio.Lock()
        self._writers[key] = lock, waiting + 1
        try:
            async with lock:
                return await self.run(work, limit_s, exceeded, patient=True)
        finally:
            lock, waiting = self._writers.pop(key)
            if waiting > 1:
                self._writers[key] = lock, waiting - 1

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to completion and return its result, even if the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)

        def ended(task: asyncio.Task[T]) -> None:
            self._unfinished.discard(task)
            if not task.cancelled():
                # If the caller was cancelled, it cannot see an error.
                task.exception()

        task.add_done_callback(ended)
        return await asyncio.shield(task)

    @property
    def waiting(self) -> int:
        """The number of changes waiting for their turn on a branch."""
        return sum(waiting - 1 for _, waiting in self._writers.values())

    @property
    def stuck(self) -> int:
        """The number of threads whose work has run longer than allowed."""
        return len(self._stuck)

    def close(self) -> None:
        """Finish running work and start no more. Does not wait for stuck work."""
        for thread in self._threads:
            thread.shutdown(wait=thread not in self._stuck, cancel_futures=True)


class Admission:
    """Limits the number and total bytes of each actor's changes in progress, in one event loop."""

    def __init__(self, limits: HttpLimits, rejected: Callable[[str], None] | None = None) -> None:
        """Create the counter. `rejected` is called with the reason for each refusal."""
        self._limits, self._rejected = limits, rejected
        self._held: dict[str, tuple[int, int]] = {}

    async def run(self, actor: str | None, nbytes: int, work: Callable[[], Awaitable[T]]) -> T:
        """Run a change that counts as `nbytes`, and return its result. Raises ProblemError 429."""
        name = actor or ANONYMOUS
        count, held = self._held.get(name, (0, 0))
        if count >= self._limits.inflight:
            raise self._refuse(
                "changes", f"'{name}' has {count} changes under way; at most {self._limits.inflight} are allowed"
            )
        if held + nbytes > self._limits.inflight_bytes:
            most = self._limits.inflight_bytes
            raise self._refuse(
                "bytes", f"the changes of '{name}' would hold {held + nbytes} bytes; at most {most} are allowed"
            )
        self._held[name] = count + 1, held + nbytes
        try:
            return await work()
        finally:
            count, held = self._held.pop(name)
            if count > 1:
                self._held[name] = count - 1, held - nbytes

    @property
    def under_way(self) -> int:
        """The number of changes in progress, including those that wait for their turn."""
        return sum(count for count, _ in self._held.values())

    def _refuse(self, reason: str, message: str) -> ProblemError:
        if self._rejected is not None:
            self._rejected(reason)
        headers = {"Retry-After": _RETRY_AFTER_S}
        return ProblemError(ApiProblem(429, ApiCode.TOO_MANY_REQUESTS, message, headers=headers))


class StreamSlots:
    """Limits the number of concurrent streamed responses, in one event loop."""

    def __init__(self, count: int, rejected: Callable[[str], None] | None = None, wait_s: float = 0.25) -> None:
        """Create the slots.

        Another response waits up to `wait_s` seconds for a free slot; on timeout, `rejected` is called with a reason.
        """
        self._count, self._rejected, self._wait = count, rejected, wait_s
        self.taken = 0
        self._free = asyncio.Semaphore(count)

    async def take(self) -> None:
        """Take a slot. Raises ProblemError 413 if none becomes free."""
        try:
            async with asyncio.timeout(self._wait):
                await self._free.acquire()
        except TimeoutError:
            if self._rejected is not None:
                self._rejected("exports")
            message = f"{self._count} exports are under way already: ask again when one of them has ended"
            more = {"resource_limit": {"resource": "exports", "limit": self._count, "actual": self._count + 1}}
            raise ProblemError(ApiProblem(413, ApiCode.BAD_REQUEST, message, more)) from None
        self.taken += 1

    def free(self) -> None:
        """Release the slot."""
        self.taken -= 1
        self._free.release()


# The application's inputs: generations, tokens, limits, time, ids and a log.

LogRecord = Mapping[str, Any]
_MIB = 2**20
_VARIABLES = {
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "inflight",
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX": "inflight_bytes",
    "OMNIGRAPH_MAX_CONNECTIONS": "connections",
    "OMNIGRAPH_WORK_SECONDS_MAX": "work_s",
}
_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)


def request_names(
    method: str, route: str | None, graph: str | None, query: str | None, actor: str | None
) -> Mapping[str, str | None]:
    """Return the names that identify a request's subject, for its log record."""
    return {"method": method, "route": route, "graph": graph, "query": query, "actor": actor}


def request_record(
    request_id: str,
    names: Mapping[str, Any],
    status: int | None,
    sent: int,
    seconds: float,
    revision: Mapping[str, str],
) -> LogRecord:
    """Return the log record of a request, with its names and the served `revision`."""
    outcome = {"status": status, "bytes": sent, "ms": round(seconds * 1000, 3)}
    return JoinedForm({"event": "request", "request_id": request_id}, names, outcome, revision)


class GenerationSource(Protocol):
    """Provides the generation that answers new requests."""

    def current(self) -> Generation:
        """Return the newest accepted generation. A request keeps its generation until its last byte."""
        ...


class Observer(Protocol):
    """Counts events. Must be thread-safe and fast."""

    def answered(self, record: LogRecord) -> None:
        """Count a request, given its log record."""
        ...

    def decided(self, scope: str, action: PolicyAction, decision: AccessDecision | None) -> None:
        """Count an access decision for the server or a graph, or None if the policy could not decide."""
        ...

    def stuck(self) -> None:
        """Count work that has exceeded its time limit and still occupies a thread."""
        ...

    def refused(self, reason: str) -> None:
        """Count a token that does not identify its holder, by reason."""
        ...

    def rejected(self, reason: str) -> None:
        """Count a request that was refused for lack of capacity: `changes`, `bytes` or `exports`."""
        ...

    def recorded(self, result: str) -> None:
        """Count an attempt to write recorded use: `written` or `failed`."""
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """One process's limits.

    Up to `threads` threads work on graphs. A query has `query_s` seconds and `query_bytes` of memory. A query that
    still occupies its thread `stuck_s` seconds later is stuck, as is any other work, including changes and loads, after
    `work_s` seconds on a thread. An actor can have at most `inflight` changes in progress, with at most
    `inflight_bytes` in total. With `hide_graphs`, a graph for which an actor has no permission looks like one that is
    not served. A change to a graph in `strict` that would overwrite concurrent changes is refused, unless the request
    specifies otherwise. `streams` is the maximum number of concurrent streamed responses. A client that neither sends
    nor reads for `idle_s` seconds in the middle of a body is disconnected. `connections` is the maximum number of open
    connections.
    """

    threads: int = 4
    query_s: float = 60.0
    stuck_s: float = 15.0
    work_s: int = 900
    query_bytes: int = 1024 * _MIB
    inflight: int = 16
    inflight_bytes: int = 4096 * _MIB
    hide_graphs: bool = False
    strict: frozenset[str] = frozenset()
    streams: int = 8
    idle_s: float = 60.0
    connections: int = 10_000


def read_limits(
    environ: Mapping[str, str], *, hide_graphs: bool = False, strict: Iterable[str] = ()
) -> tuple[HttpLimits, tuple[str, ...]]:
    """Return the limits from environment variables, and problems with invalid variables, which get defaults."""
    found, problems = dict[str, Any](), list[str]()
    for variable, name in _VARIABLES.items():
        text = environ.get(variable, "").strip()
        if _COUNT.fullmatch(text):
            found[name] = int(text)
        elif text:
            problems.append(f"{variable} is not a whole number above 0; {getattr(HttpLimits(), name)} is used")
    return HttpLimits(hide_graphs=hide_graphs, strict=frozenset(strict), **found), tuple(problems)


@dataclass(frozen=True, slots=True)
class HttpContext:
    """Context shared by all requests.

    `reload` switches to the newest revision and returns the result as JSON, or None if the revision is pinned. `tokens`
    returns the current tokens. `log` receives a record for each request and each defect, and is called from the event
    loop's thread. `observer` is None without metrics. `replace` replaces this process, if it has a stuck thread, with a
    new one, or None if nothing would start it. `verifier` always returns the same verifier of identity provider tokens.
    `public_url` is the address at which clients reach the server, `https://HOST`. `replica` is None unless the server
    is a read replica. `report` is None unless the server also serves a report. `previews` reads previewed change requests,
    or None if there is no repository that could have any. `use` is None unless it can record calls.
    """

    generations: GenerationSource
    state: PolicyCover
    tokens: Callable[[], BearerTokens]
    clock: Clock
    ids: IdSource
    log: Callable[[LogRecord], None]
    limits: HttpLimits = HttpLimits()
    reload: Callable[[], Mapping[str, Any]] | None = None
    observer: Observer | None = None
    replace: Callable[[], None] | None = None
    verifier: Callable[[], TokenVerifier] | None = None
    public_url: str | None = None
    replica: ReadReplica | None = None
    report: ServedReport | None = None
    previews: PreviewReader | None = None
    use: UseRecorder | None = None
