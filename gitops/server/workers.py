"""The threads of a server: workers, which take events out of the queue one by one, and a ticker, which puts the timer's in.

1. A worker handles one event after the other; the queue sees to it that no two of one repository are handled at once.
2. An event that fails for a reason that may pass (a remote that does not answer, a race that was lost, a defect of the program)
   is tried again with growing pauses, a bounded number of times. Any other failure is final. What is given up stays in the
   queue with its reason, until somebody decides.
3. What a handler reports is not a failure: a plan with errors has been told to those whom it concerns.
4. When the server stops, nothing new is taken. A running event has some time to end, and is given back if it takes longer:
   it is handled again at the next start, as after a crash. Handlers can be run twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gitops.bot.results import LogLine, RunResult, combined_result
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import around
from gitops.forge.events import Event, TimerEvent
from gitops.server.documents import read_event, subject_of
from gitops.server.queue import Offer, Queue, Task
from gitops.server.shared import Context

__all__ = ["Crew", "Handle", "Patience"]

Handle = Callable[[str, Event], Iterator[LogLine]]
"""Handles an event of a repository, named as in the queue. Raises whatever ended it."""

_LOOK_AGAIN = timedelta(seconds=2)
"""How long a worker that has nothing to do stays away from the file, which another process may change."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often an event is tried, and how long the pauses are: doubled from the first to the longest."""

    attempts: int = 8
    first: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(minutes=15)

    def pause(self, attempts: int) -> timedelta | None:
        """The pause after so many attempts; None if there is no further one."""
        if attempts >= self.attempts:
            return None
        return min(self.longest, self.first * (1 << min(attempts - 1, 32)))


class Crew:
    """Workers and ticker on one queue."""

    def __init__(
        self,
        queue: Queue,
        handle: Handle,
        context: Context,
        patience: Patience | None = None,
    ) -> None:
        """Nothing runs yet."""
        self._queue, self._handle, self._context = queue, handle, context
        self._stop, self._say = context.stop, context.say
        self._patience = patience or Patience()
        self._guard = threading.Lock()
        self._running: dict[int, Task] = {}
        self._threads: list[threading.Thread] = []

    def start(self, workers: int, repositories: Sequence[str], every: timedelta | None) -> None:
        """Start so many workers, and a ticker for the repositories if there is a time between two ticks."""
        wanted: list[tuple[str, Callable[[], None]]] = [(f"worker-{n + 1}", self._work) for n in range(workers)]
        if every is not None:
            wanted.append(("ticker", lambda: self._tick(repositories, every)))
        # A thread that does not end in time must not keep the process.
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in wanted]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether all threads are there."""
        return all(thread.is_alive() for thread in self._threads)

    def stop(self, grace: timedelta) -> bool:
        """Take nothing new, and wait for what runs, but not longer than this. Returns whether everything had ended."""
        self._stop.set()
        self._queue.wake()
        end = time.monotonic() + grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._guard:
            left = list(self._running.values())
        for task in left:
            self._queue.give_back(task)
            self._say(f"{task.repository}: event {task.number} did not end in time and will be handled again")
        return not left

    # -- the threads -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set:
            seen = self._queue.changes
            try:
                task = self._queue.take()
                if task is None:
                    self._queue.wait(seen, _LOOK_AGAIN)
                    continue
            except GitopsError as error:
                self._say(f"{error.code}: {error.detail}")
                self._stop.wait(_LOOK_AGAIN)
                continue
            with self._guard:
                self._running[task.number] = task
            try:
                self._run(task)
            finally:
                with self._guard:
                    del self._running[task.number]

    def _run(self, task: Task) -> None:
        """Handle one event, and say in the queue what became of it."""
        try:
            with around(self._context.faults, "server.worker", "handle"):
                failure = self._handled(task)
        except Exception as error:  # noqa: BLE001 - a defect in a handler ends its event, not the server
            if isinstance(error, GitopsError):
                passes = isinstance(error, ConflictError) or (isinstance(error, RemoteError) and error.retryable)
                reason = f"{error.code}: {error.detail}"
            else:
                passes, reason = True, f"internal_error: {type(error).__name__}: {error}"
        else:
            passes, reason = True, failure
        if not reason:
            self._settle("done", lambda: self._queue.finish(task))
            self._log(task, "done")
            return
        self._log(task, reason)
        pause = self._patience.pause(task.attempts) if passes else None
        if self._stop.is_set and passes:
            self._settle("stopped", lambda: self._queue.give_back(task))
            self._log(task, "given back")
        elif pause is not None:
            self._settle("retried", lambda: self._queue.postpone(task, pause, self._context.shown(reason)))
            self._log(task, f"will be tried again in {pause}")
        else:
            self._settle("failed", lambda: self._queue.give_up(task, self._context.shown(reason)))
            self._log(task, f"given up after {task.attempts} attempt(s)")

    def _handled(self, task: Task) -> str:
        """Handle an event; returns why it has to be handled again, if it has to."""
        event = read_event(task.document)
        self._log(task, subject_of(event))
        notes = []
        for note in self._handle(task.repository, event):
            notes.append(note)
            self._log(task, f"  {note.text}")
        if combined_result(note.result for note in notes) is not RunResult.LOST:
            return ""
        return next(note.text for note in notes if note.result is RunResult.LOST)

    def _settle(self, outcome: str, change: Callable[[], None]) -> None:
        """Write down what became of an event. Until that is possible nothing else is done, and nothing is lost."""
        while True:
            try:
                change()
            except GitopsError as error:
                self._say(f"{error.code}: {error.detail}")
                if self._stop.wait(_LOOK_AGAIN):
                    return
            else:
                self._context.counters.add("events", outcome)
                return

    def _tick(self, repositories: Sequence[str], every: timedelta) -> None:
        """The first tick comes at once: whatever was missed while the server was away is found by looking."""
        while not self._stop.is_set:
            for repository in repositories:
                try:
                    self._queue.offer(Offer(repository, TimerEvent()))
                except GitopsError as error:
                    self._say(f"{error.code}: {error.detail}")
            self._stop.wait(every)

    def _log(self, task: Task, text: str) -> None:
        self._say(f"{task.repository} #{task.number}: {text}")
