"""Several processes that serve on one socket, and the one that watches over them.

1. The supervisor opens nothing and loads no driver, so that it can be copied at any time: what was opened in a child stays there.
2. A worker that ends unasked is replaced, after a pause that grows while workers end at once.
3. SIGTERM and SIGINT go to every worker; who has not ended some time after the deadline of the drain is killed. SIGHUP goes to
   every worker, too.
4. A worker whose supervisor has ended, however it did, ends as well: it holds one end of a pipe of which the other end is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

from gitops.serving.children import run_child

__all__ = ["supervise"]

_HEEDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_SHORT_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_AFTER_DRAIN_S = 5.0


def supervise(
    work: Callable[[bool], int], workers: int, *, ready: Callable[[], None], drain_s: float, log: Callable[[str], None]
) -> int:
    """Keep this many copies of this process at work until a signal; returns the exit code. `work` gives that of one worker.

    Its argument says whether SIGHUP was there, so that others may serve something newer by now.

    `ready` is called once signals are heeded. To be called in the only thread of a process.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)
    held, lifeline = os.pipe()
    try:
        ready()
        return _Supervisor(work, workers, (held, lifeline), drain_s, log).run()
    finally:
        os.close(held)
        os.close(lifeline)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class _Supervisor:
    def __init__(
        self,
        work: Callable[[bool], int],
        workers: int,
        pipe: tuple[int, int],
        drain_s: float,
        log: Callable[[str], None],
    ) -> None:
        self._work = work
        self._wanted = workers
        self._held, self._lifeline = pipe
        self._drain_s = drain_s
        self._log = log
        self._began: dict[int, float] = {}
        self._ended: list[int] = []
        self._pause_s = 0.0
        self._next = 0.0
        self._deadline: float | None = None
        self._hung_up = False

    def run(self) -> int:
        while True:
            now = time.monotonic()
            if self._deadline is None:
                while len(self._began) < self._wanted and now >= self._next:
                    self._start()
            elif not self._began:
                return 0
            elif now >= self._deadline:
                self._send(signal.SIGKILL)
            found = signal.sigtimedwait(_HEEDED, self._wait_s(now))
            if found is not None:
                self._heed(found.si_signo)
            self._reap()

    def _wait_s(self, now: float) -> float:
        due = self._next if len(self._began) < self._wanted and self._deadline is None else self._deadline
        return 1.0 if due is None else min(1.0, max(0.0, due - now))

    def _heed(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._hung_up = True
            self._send(signal.SIGHUP)
        elif number != signal.SIGCHLD:
            self._deadline = self._deadline or time.monotonic() + self._drain_s + _AFTER_DRAIN_S
            self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, number)

    def _start(self) -> None:
        worker = os.fork()
        if worker == 0:
            run_child(self._worker)
        self._began[worker] = time.monotonic()
        if self._ended:
            self._log(f"worker {worker} takes the place of {self._ended.pop(0)}")

    def _worker(self) -> int:
        for number in _HEEDED:
            signal.signal(number, signal.SIG_DFL)
        # SIGHUP waits until the worker can heed it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEEDED - {signal.SIGHUP})
        os.close(self._lifeline)
        threading.Thread(target=_end_with_supervisor, args=(self._held,), daemon=True).start()
        return self._work(self._hung_up)

    def _reap(self) -> None:
        while True:
            try:
                worker, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if worker == 0:
                return
            began = self._began.pop(worker, 0.0)
            if self._deadline is not None:
                continue
            now = time.monotonic()
            short = now - began < _SHORT_S
            self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S) if short else 0.0
            self._next = now + self._pause_s
            self._ended.append(worker)
            self._log(f"worker {worker} ended ({_how(status)})")


def _end_with_supervisor(held: int) -> None:
    """Wait for the end of the supervisor, then end this process as a signal would."""
    os.read(held, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
