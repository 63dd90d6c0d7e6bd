"""Work on graphs, with limits on threads, writers of a branch, changes of an actor, and streamed responses.

1. A change that has begun is finished, even if its client disconnects; its resources are released when it ends. 2. On
   one branch, one change runs at a time in this process, in the order of arrival; responses are sent after that.
3. The two limits of an actor are checked in one step.
4. Work begins when what began before it has ended or has proven to be long, in the thread that was at work last. Short
   reads are mostly Python, of which one thread runs at a time: where four of them compete, each takes three times as
   long.
5. Work may have a time limit. A thread cannot be stopped from outside, least of all inside a call of a driver: past the
   limit the thread is stuck until the work returns. The caller of a query gets an error. That of a change goes on
   waiting, because nobody knows yet whether the change is carried out; if the process is replaced, its connection is
   cut off.
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

if TYPE_CHECKING:
    from gitops.identity.verify import TokenVerifier

T = TypeVar("T")
ANONYMOUS = "anonymous"
_RETRY_AFTER_S = "60"
# Some times what a stored query by key takes.
_SHORT_S = 0.005


class Workers:
    """The threads, and the locks of branches. For one event loop."""

    def __init__(self, threads: int, short_s: float = _SHORT_S) -> None:
        """Threads are started when they are needed. Work that takes longer than `short_s` is long."""
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

        After `limit_s` seconds `exceeded` is called, even if the caller is gone. Raises GitopsError `query_timeout`
        then, unless the caller is `patient`.
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
                    # The caller may not be there to see an error.
                    ended.exception()

            ending.add_done_callback(give_back)
            await asyncio.wait((ending,), timeout=self._short_s)
        # Where the caller is cancelled, the thread goes on.
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
        """Run work while no other exclusive work runs on the branch of the graph; `limit_s` and `exceeded` as in `run`."""
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
        """Run work to its end and return its result, even if the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)

        def ended(task: asyncio.Task[T]) -> None:
            self._unfinished.discard(task)
            if not task.cancelled():
                # Where the caller was cancelled, it is not there to see an error.
                task.exception()

        task.add_done_callback(ended)
        return await asyncio.shield(task)

    @property
    def waiting(self) -> int:
        """Return how many wait for their turn on a branch."""
        return sum(waiting - 1 for _, waiting in self._writers.values())

    @property
    def stuck(self) -> int:
        """Return the number of threads that run work past its limit."""
        return len(self._stuck)

    def close(self) -> None:
        """Finish running work and start no more. Stuck work is not awaited."""
        for thread in self._threads:
            thread.shutdown(wait=thread not in self._stuck, cancel_futures=True)


class Admission:
    """Number and bytes of each actor's changes in progress. For one event loop."""

    def __init__(self, limits: HttpLimits, rejected: Callable[[str], None] | None = None) -> None:
        """Create the counter. `rejected` is called with the reason of each refusal."""
        self._limits, self._rejected = limits, rejected
        self._held: dict[str, tuple[int, int]] = {}

    async def run(self, actor: str | None, nbytes: int, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a change that counts as `nbytes`. Raises ProblemError 429."""
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
        """Return the number of changes in progress, including those that wait for their turn."""
        return sum(count for count, _ in self._held.values())

    def _refuse(self, reason: str, message: str) -> ProblemError:
        if self._rejected is not None:
            self._rejected(reason)
        headers = {"Retry-After": _RETRY_AFTER_S}
        return ProblemError(ApiProblem(429, ApiCode.TOO_MANY_REQUESTS, message, headers=headers))


class StreamSlots:
    """Number of concurrent streamed responses. For one event loop."""

    def __init__(self, count: int, rejected: Callable[[str], None] | None = None, wait_s: float = 0.25) -> None:
        """Create the slots.

        A further response waits up to this long for a free slot; `rejected` is called with a reason on timeout.
        """
        self._count, self._rejected, self._wait = count, rejected, wait_s
        self.taken = 0
        self._free = asyncio.Semaphore(count)

    async def take(self) -> None:
        """Take a slot. Raises ProblemError 413."""
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


# What the application is given: generations, tokens, limits, time, ids and a log.

LogRecord = Mapping[str, Any]
_MIB = 2**20
_VARIABLES = {
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "inflight",
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX": "inflight_bytes",
    "OMNIGRAPH_MAX_CONNECTIONS": "connections",
    "OMNIGRAPH_WORK_SECONDS_MAX": "work_s",
}
_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)


class GenerationSource(Protocol):
    """Has the generation that new requests are answered from."""

    def current(self) -> Generation:
        """Return the newest accepted generation. A request uses one generation until its last byte."""
        ...


class Observer(Protocol):
    """Counts events; safe between threads, and fast."""

    def answered(self, record: LogRecord) -> None:
        """Count a request, by its record in the log."""
        ...

    def decided(self, scope: str, action: PolicyAction, decision: AccessDecision | None) -> None:
        """A decision about access on the server or a graph; None if the policy could not decide."""
        ...

    def stuck(self) -> None:
        """Work that is past its time limit and still holds a thread."""
        ...

    def refused(self, reason: str) -> None:
        """Count a token that does not identify its holder, by the reason."""
        ...

    def rejected(self, reason: str) -> None:
        """A request that was refused for lack of room: `changes`, `bytes` or `exports`."""
        ...


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one process.

    `threads` work on graphs concurrently. A query has `query_s` seconds and `query_bytes` of memory; one that still
    occupies its thread `stuck_s` seconds later is stuck, as is any other work, changes and loads included, after
    `work_s` seconds on a thread. An actor has at most `inflight` changes under way at once, of `inflight_bytes`
    together. `hide_graphs` treats graphs without any permission for an actor like graphs that are not served. A
    change of a graph in `strict` that would overwrite concurrent changes is refused, unless the request says otherwise.
    `streams` is the number of concurrent streamed responses. A client that sends or reads nothing for `idle_s` seconds in the
    middle of a body is disconnected. `connections` is the number of open connections.
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
    """Return the limits set by variables, and the problems of variables that are replaced by defaults."""
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
    """Shared context of all requests.

    `reload` serves the newest revision and returns the result as JSON; None if the revision is pinned. `tokens` returns
    the current tokens. `log` receives a record for each request and for each defect; it is called from the event loop's
    thread. `observer` is None without metrics. `replace` replaces this process, which has a stuck thread, with a new
    one; None if nothing would start it. `verifier` returns the verifier of identity provider tokens, always the same
    one. `public_url` is the address at which clients reach the server, `https://HOST`.
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
