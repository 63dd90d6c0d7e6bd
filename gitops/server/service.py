"""Runs a complete server: the queue, the listener and the workers, started and stopped in this order.

1. Open the queue: an event that was being handled when a process crashed becomes pending again.
2. Accept connections.
3. Only then start the workers.
4. To stop, accept no more connections.
5. Stop the workers, and release events that do not finish in time.
6. Close the queue last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from functools import partial

from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import around
from gitops.core.redact import Secret
from gitops.forge.events import Event, TickEvent, TimerEvent
from gitops.render.words import count
from gitops.repository.report_folder import ServedReport
from gitops.repository.results import LogLine, RunResult, combined_result
from gitops.server.api import ClusterApi
from gitops.server.deliveries import DeliveryReceiver, WebhookFormat
from gitops.server.http import ListenAddress, Listener, api_routes, make_app, report_routes
from gitops.server.queue import EventQueue, QueuedEvent, event_subject, read_event
from gitops.server.shared import ServerContext, UnwrittenError

# The threads of a server: workers handle the events in the queue, and timers add events.
#
# 1. A worker handles one event after another. The queue ensures that it never hands out two events of one repository at
#    the same time.
# 2. An event that fails for a temporary reason (an unresponsive remote, a conflict, a bug in the program) is retried a
#    limited number of times, with growing pauses. Any other failure is final. Failed events remain in the queue with
#    their reason until a person decides about them.
# 3. A problem that a handler reports is not a failure: a plan with errors is reported to the people of its change
#    request. If the forge refuses to write the report, the event is given up, because people have not seen it.
# 4. When the server stops, no more events are taken. A running event has some time to finish. If it takes longer, it is
#    released and handled again at the next start, as after a crash. Handlers are idempotent.


EventHandler = Callable[[str, Event], Iterator[LogLine]]
"""Handles an event of a repository, given by its name in the queue. Raises the error that ended the handling."""

_LOOK_AGAIN = timedelta(seconds=2)
"""How long an idle worker waits before it reads the file again, which another process can change."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often an event is tried, and the pause before each attempt.

    The pause doubles, from the first up to the longest.
    """

    attempts: int = 8
    first: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(minutes=15)

    def pause(self, attempts: int) -> timedelta | None:
        """Return the pause after this many attempts. None if there are no more attempts."""
        if attempts >= self.attempts:
            return None
        return min(self.longest, self.first * (1 << min(attempts - 1, 32)))


class WorkerPool:
    """Workers and timers that share a queue."""

    def __init__(
        self, queue: EventQueue, handle: EventHandler, context: ServerContext, retry: RetryPolicy | None = None
    ) -> None:
        self._queue, self._handle, self._context = queue, handle, context
        self._stop = context.stop
        self._retry = retry or RetryPolicy()
        self._guard = threading.Lock()
        self._running: dict[int, QueuedEvent] = {}
        self._threads: list[threading.Thread] = []

    def start(
        self, workers: int, repositories: Sequence[str], every: timedelta | None, tick_every: timedelta | None = None
    ) -> None:
        """Start workers and timers.

        For each repository, the timers add a timer event every `every`, and a tick every `tick_every`. None turns these
        events off.
        """
        wanted: list[tuple[str, Callable[[], None]]] = [(f"worker-{n + 1}", self._work) for n in range(workers)]
        if every is not None:
            wanted.append(("timer", partial(self._repeat, repositories, TimerEvent(), every)))
        if tick_every is not None:
            wanted.append(("ticker", partial(self._repeat, repositories, TickEvent(), tick_every)))
        # Daemon threads, so that a thread that does not end in time cannot keep the process alive.
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in wanted]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Return True if all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def stop(self, grace: timedelta) -> bool:
        """Stop taking events, and wait at most `grace` for running ones. Returns True if all have finished."""
        self._stop.set()
        self._queue.wake()
        end = time.monotonic() + grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._guard:
            left = list(self._running.values())
        for queued in left:
            self._queue.release(queued)
            self._context.log(
                f"{queued.repository}: event {queued.number} did not end in time and will be handled again",
                logging.WARNING,
            )
        return not left

    # -- the threads -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            seen = self._queue.changes
            try:
                queued = self._queue.take()
                if queued is None:
                    self._queue.wait(seen, _LOOK_AGAIN)
                    continue
            except GitopsError as error:
                self._context.log(f"{error.code}: {error.detail}", logging.ERROR)
                self._stop.wait(_LOOK_AGAIN.total_seconds())
                continue
            with self._guard:
                self._running[queued.number] = queued
            try:
                self._run(queued)
            finally:
                with self._guard:
                    del self._running[queued.number]

    def _run(self, queued: QueuedEvent) -> None:
        """Handle one event, and record its result in the queue."""
        began, metrics, given_up = self._context.clock.now(), self._context.metrics, "failed"
        metrics.time("waits", queued.waited)
        try:
            with around(self._context.faults, "server.worker", "handle"):
                event = read_event(queued.document)
                self._log(queued, event_subject(event))
                lines = []
                for line in self._handle(queued.repository, event):
                    lines.append(line)
                    self._log(queued, f"  {line.text}")
                failure = ""
                if combined_result(line.result for line in lines) is RunResult.LOST:
                    failure = next(line.text for line in lines if line.result is RunResult.LOST)
        except Exception as error:  # noqa: BLE001 - a defect in a handler ends its event, not the server
            if isinstance(error, GitopsError):
                temporary = isinstance(error, ConflictError) or (isinstance(error, RemoteError) and error.retryable)
                reason = f"{error.code}: {error.detail}"
                if isinstance(error, UnwrittenError):
                    given_up, reason = error.outcome, f"{error.outcome}: {reason}"
            else:
                temporary, reason = True, f"internal_error: {type(error).__name__}: {error}"
        else:
            temporary, reason = True, failure
        metrics.time("runs", (self._context.clock.now() - began).total_seconds())
        if not reason:
            self._record("done", lambda: self._queue.finish(queued))
            self._log(queued, "done")
            return
        self._log(queued, reason, logging.WARNING)
        pause = self._retry.pause(queued.attempts) if temporary else None
        if self._stop.is_set() and temporary:
            self._record("stopped", lambda: self._queue.release(queued))
            self._log(queued, "released")
        elif pause is not None:
            self._record("retried", lambda: self._queue.postpone(queued, pause, self._context.safe(reason)))
            self._log(queued, f"will be retried in {pause}", logging.WARNING)
        else:
            self._record(given_up, lambda: self._queue.give_up(queued, self._context.safe(reason)))
            self._log(queued, f"given up after {count(queued.attempts, 'attempt')}", logging.ERROR)

    def _record(self, outcome: str, change: Callable[[], None]) -> None:
        """Record an event's result, retrying until this succeeds, so that no result is lost."""
        while True:
            try:
                change()
            except GitopsError as error:
                self._context.log(f"{error.code}: {error.detail}", logging.ERROR)
                if self._stop.wait(_LOOK_AGAIN.total_seconds()):
                    return
            else:
                self._context.metrics.count("events", outcome)
                return

    def _repeat(self, repositories: Sequence[str], event: Event, every: timedelta) -> None:
        """Add an event for each repository now and then every `every`.

        The first sweep finds changes missed while the server was down.
        """
        while not self._stop.is_set():
            for repository in repositories:
                try:
                    self._queue.enqueue(repository, event)
                except GitopsError as error:
                    self._context.log(f"{error.code}: {error.detail}", logging.ERROR)
            self._stop.wait(every.total_seconds())

    def _log(self, queued: QueuedEvent, text: str, level: int = logging.INFO) -> None:
        self._context.log(f"{queued.repository} #{queued.number}: {text}", level)


# Time that is reserved for closing a connection after its stream ended normally.
_LAST_S = 5.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server. `formats` are by kind of forge. `repositories` are the names in the queue.

    `every` is the time between two timer events, and `tick_every` between two strategy ticks; None for no such events.
    `grace` is the time that running events have to finish.
    """

    address: ListenAddress
    formats: Mapping[str, WebhookFormat]
    repositories: tuple[str, ...]
    workers: int = 1
    every: timedelta | None = None
    tick_every: timedelta | None = None
    grace: timedelta = timedelta(seconds=60)
    max_body_bytes: int = 5 * 1024 * 1024
    metrics: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class Server:
    """The whole server, as described in the module docstring."""

    def __init__(
        self,
        queue: EventQueue,
        settings: ServerSettings,
        handle: EventHandler,
        context: ServerContext,
        ready: Callable[[ListenAddress], None],
        api: ClusterApi | None = None,
        report: tuple[ServedReport, Sequence[Secret]] | None = None,
    ) -> None:
        """Create a server without opening anything. `ready` is called with the address once connections are accepted.

        Without `api`, programs cannot send requests. `report` is served with these tokens.
        """
        self._queue, self._settings, self._context, self._ready = queue, settings, context, ready
        self._workers = WorkerPool(queue, handle, context, settings.retry)
        longest = settings.address.connection_s - _LAST_S

        def stopping() -> bool:
            return self._listener.should_exit

        app = make_app(
            DeliveryReceiver(queue, settings.formats, settings.repositories, context),
            queue,
            context,
            healthy=lambda: self._workers.alive,
            max_body_bytes=settings.max_body_bytes,
            metrics=settings.metrics,
            more=(
                *(() if report is None else report_routes(*report)),
                *(() if api is None else api_routes(api, context, longest_s=longest, stopping=stopping)),
            ),
        )
        self._listener = Listener(app, settings.address, self._start)

    def run(self) -> None:
        """Serve until `stop`. Raises GitopsError `queue_unusable`, `queue_in_use`, `listen_failed`."""
        self._queue.open_owned()
        try:
            self._listener.run()
        finally:
            self._context.log("stopping: takes no more events, and finishes what it has begun")
            self._workers.stop(self._settings.grace)
            self._queue.close()

    def stop(self) -> None:
        """End `run`. Can be called from any thread, and from a signal handler."""
        self._listener.stop()

    def _start(self, address: ListenAddress) -> None:
        settings = self._settings
        self._workers.start(settings.workers, settings.repositories, settings.every, settings.tick_every)
        self._ready(address)
