"""An executor that runs tasks in processes on this machine.

Each worker is a program that reads tasks from standard input, one per line, and writes the answers to standard output.
It is started as a new process, because Lance does not survive a fork. A worker exits at the end of its input. So if the
driver is killed, each worker finishes its current task and exits.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gitops.database.executor.port import ATTEMPTS, OpenTasks, failed_document, lost, read_answer, task_document


class LocalExecutor:
    """Runs tasks in `slots` processes, which start when the first tasks are submitted."""

    def __init__(self, command: Sequence[str], slots: int) -> None:
        """`command` starts a worker."""
        self._command = list(command)
        self.slots = slots
        self._waiting = OpenTasks()
        self._tasks: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def submit(self, kind: str, form: Mapping[str, Any]) -> str:
        """Queue a task for the next free worker."""
        key, text = task_document(kind, form)
        if self._waiting.add(key):
            self._tasks.put((key, text))
            if len(self._threads) < self.slots:
                self._threads.append(threading.Thread(target=self._serve, daemon=True))
                self._threads[-1].start()
        return key

    def wait(self) -> tuple[str, Any]:
        """Wait for the next answer from a worker."""
        self._waiting.keys()
        while True:
            key, text = self._answers.get()
            if self._waiting.take(key):
                return key, read_answer(text)

    def cancel(self, key: str) -> None:
        """Forget a task."""
        self._waiting.take(key)

    def close(self) -> None:
        """Stop the workers, even in the middle of a task."""
        self._closed = True
        self._waiting.clear()
        for _ in self._threads:
            self._tasks.put(None)
        for process in list(self._processes):
            process.kill()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        """Carry out tasks with one worker, which is started again if it ends."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while (task := self._tasks.get()) is not None:
                key, text = task
                answer, reason = b"", "it was not started"
                for _ in range(ATTEMPTS):
                    if key not in self._waiting or self._closed:
                        break
                    try:
                        process = process or self._start()
                        answer = _ask(process, text)
                    except OSError as error:
                        answer, reason = b"", str(error)
                    if answer:
                        break
                    if process is not None:
                        reason = f"its worker ended with status {self._end(process)}"
                        process = None
                said = answer.decode() if answer else failed_document(lost(key, f"{reason}, {ATTEMPTS} times"))
                self._answers.put((key, said))
        finally:
            if process is not None:
                self._end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        # In a new session, so that an interrupt on the terminal reaches only the driver.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._processes.add(process)
        if self._closed:
            process.kill()
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        self._processes.discard(process)
        with contextlib.suppress(OSError):
            process.kill()
        with contextlib.suppress(OSError):
            process.communicate()
        return process.returncode


def _ask(process: subprocess.Popen[bytes], text: str) -> bytes:
    """Return the answer of a worker; no bytes if it ended."""
    if process.stdin is None or process.stdout is None:
        return b""
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    return line if line.endswith(b"\n") else b""
