"""Several processes that serve on one socket, and their supervisor.

1. The supervisor doesn't open resources or load drivers, so that it can be forked at any time. Resources that a child
   opens stay in that child.
2. A worker that exits unexpectedly is replaced, after a pause that grows as long as workers keep exiting immediately.
   The new worker has the same number.
3. SIGTERM and SIGINT are sent to every worker. A worker that has not exited some time after the drain deadline is
   killed. SIGHUP is also sent to every worker.
4. If the supervisor exits for any reason, its workers exit as well, because the other end of their pipe is closed.
5. A companion starts before the workers, is replaced like them, and ends after them.

uvicorn's supervisor does none of the first four: its workers load everything again, are replaced without a pause and at
SIGHUP, and continue when it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError

_HEEDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_SHORT_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_AFTER_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """A worker's start parameters. Numbers count from 0. With `replaces`, it replaces one that exited unexpectedly.

    `hung_up` means that SIGHUP was received earlier, so that other workers may already serve a newer revision.
    """

    number: int
    replaces: bool
    hung_up: bool


class Lifeline:
    """Starts processes that end when this process ends. Use it only in a single-threaded process."""

    def __init__(self) -> None:
        """Create a pipe whose write end only this process holds."""
        self._held, self._end = os.pipe()

    def begin(self, call: Callable[[], int]) -> int:
        """Fork a process that exits with the call's result. In it, SIGHUP stays pending until it is handled."""

        def run() -> int:
            for number in _HEEDED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEEDED - {signal.SIGHUP})
            os.close(self._end)
            threading.Thread(target=end_with_supervisor, daemon=True).start()
            return call()

        def end_with_supervisor() -> None:
            # Like after a signal.
            os.read(self._held, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        child = os.fork()
        if child == 0:
            run_child(run)
        return child

    def close(self) -> None:
        """Call this after the last process has ended. Any process that still runs ends now."""
        os.close(self._held)
        os.close(self._end)


class Companion:
    """A process beside the workers. It has no work that must be finished."""

    def __init__(self, lifeline: Lifeline, call: Callable[[], int]) -> None:
        self._lifeline, self._call = lifeline, call
        self._next = 0.0
        self.process: int | None = lifeline.begin(call)

    def keep(self, now: float, let_go: Callable[[], None]) -> None:
        """Restart the companion if it has ended and the pause is over.

        `let_go` closes resources that only workers need, in the forked process.
        """

        def work() -> int:
            let_go()
            return self._call()

        if self.process is None and now >= self._next:
            self.process = self._lifeline.begin(work)

    def ended(self, now: float) -> None:
        """Return whether the companion ended unexpectedly."""
        self.process, self._next = None, now + 1.0

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Run the companion during the block."""
        try:
            yield
        finally:
            if self.process is not None:
                os.kill(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)


def supervise(
    work: Callable[[WorkerStart], int],
    workers: int,
    lifeline: Lifeline,
    *,
    ready: Callable[[], None],
    let_go: Callable[[], None],
    drain_s: float,
    log: Callable[[str], None],
    companion: Companion | None = None,
) -> int:
    """Keep `workers` forks of this process running until a signal arrives, and return the exit code.

    `work` returns the exit code of one worker.

    `ready` is called once signals are handled. `let_go` is called when no more workers start, and closes resources that
    only workers need. Must be called in a single-threaded process.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)
    try:
        ready()
        return _Supervisor(work, workers, lifeline, let_go, drain_s, log, companion).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@dataclass(slots=True)
class _Supervisor:
    work: Callable[[WorkerStart], int]
    workers: int
    lifeline: Lifeline
    let_go: Callable[[], None]
    drain_s: float
    log: Callable[[str], None]
    companion: Companion | None
    # The number of each worker, and when it started.
    began: dict[int, tuple[int, float]] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    pause_s: float = 0.0
    next: float = 0.0
    deadline: float | None = None
    hung_up: bool = False

    def run(self) -> int:
        while True:
            now = time.monotonic()
            if self.deadline is None:
                while len(self.began) < self.workers and now >= self.next:
                    number = min(set(range(self.workers)) - {number for number, _ in self.began.values()})
                    start = WorkerStart(number, bool(self.ended), self.hung_up)
                    worker = self.lifeline.begin(partial(self.work, start))
                    self.began[worker] = number, time.monotonic()
                    if self.ended:
                        self.log(f"worker {worker} takes the place of {self.ended.pop(0)}")
                if self.companion is not None:
                    self.companion.keep(now, self.let_go)
            elif not self.began:
                return 0
            elif now >= self.deadline:
                self._send(signal.SIGKILL)
            due = self.next if len(self.began) < self.workers and self.deadline is None else self.deadline
            wait_s = 1.0 if due is None else min(1.0, max(0.0, due - now))
            found = signal.sigtimedwait(_HEEDED, wait_s)
            heeded = None if found is None else found.si_signo
            if heeded == signal.SIGHUP:
                self.hung_up = True
                self._send(signal.SIGHUP)
            elif heeded in (signal.SIGTERM, signal.SIGINT):
                self.deadline = self.deadline or time.monotonic() + self.drain_s + _AFTER_DRAIN_S
                # A socket that a process keeps open would accept connections that no one answers.
                self.let_go()
                self._send(signal.SIGTERM)
            self._reap()

    def _send(self, number: signal.Signals) -> None:
        for worker in self.began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, number)

    def _reap(self) -> None:
        while True:
            try:
                worker, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if worker == 0:
                return
            now = time.monotonic()
            if self.companion is not None and worker == self.companion.process:
                self.companion.ended(now)
                self.log(f"the process of the admin address ended ({_how(status)}), and is replaced")
                continue
            _, began = self.began.pop(worker, (0, 0.0))
            if self.deadline is not None:
                continue
            short = now - began < _SHORT_S
            self.pause_s = min(max(self.pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S) if short else 0.0
            self.next = now + self.pause_s
            self.ended.append(worker)
            self.log(f"worker {worker} ended ({_how(status)})")


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# Work in forked processes that end after their answer, so that resources opened there never remain open here.
#
# Must be called before a process starts threads, and before it loads a driver that does.


def in_children(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the functions concurrently in child processes and return their results, converted through JSON.

    Raises BugError if a child ends without a result.
    """
    begun = [_begin(call) for call in calls]
    answers = []
    for child, reading in begun:
        with os.fdopen(reading, "rb") as pipe:
            answers.append(pipe.read())
        os.waitpid(child, 0)
    if not all(answers):
        raise BugError("a process that checks the cluster ended without an answer; its output says why")
    return [json.loads(data) for data in answers]


def run_child(call: Callable[[], Any]) -> None:
    """Run the call in a child that was just forked, and exit with its result as the exit code. Never returns."""
    code = 1
    try:
        code = int(call() or 0)
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _begin(call: Callable[[], Any]) -> tuple[int, int]:
    # Otherwise the child would also write the output that is still buffered here.
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def answer() -> None:
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(call(), pipe)

        run_child(answer)
    os.close(writing)
    return child, reading
