"""Builds executors, and runs tasks in their workers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gitops
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.database.executor.port import TaskExecutor, Tools, run_task
from gitops.repository.wiring.stores import open_store
from gitops.repository.wiring.system import RandomIds, SystemClock

ENGINES = ("local", "files", "ray")


def open_executor(
    engine: str, workers: int | None, address: str | None, *, patience_s: float | None = None
) -> TaskExecutor:
    """Return the executor for an engine: `local`, `files` or `ray`.

    `workers` is the number of processes (default: one for each processor), or for `files` the number of workers that
    you start. `address` is the folder or bucket of `files`, or the address of a Ray cluster. With `patience_s`, `files`
    waits only that long for workers, and then raises RemoteError `executor_failed`. Raises UsageError
    `usage_error`, and the errors of the adapters.
    """
    count = workers or _processors()
    if engine == "ray":
        from gitops.database.executor.ray import RayExecutor

        return RayExecutor(run_here, address, count if address is None else None)
    if engine == "files":
        from gitops.database.executor.files import FilesExecutor

        if address is None:
            fix = "pass the folder or bucket that the workers serve: --engine files --tasks FOLDER"
            raise UsageError(Code.USAGE_ERROR, "the engine files needs a folder for its tasks", fix=fix)
        pause = time.sleep if patience_s is None else _limited(patience_s)
        return FilesExecutor(open_store(_place(address)), count, pause)
    if address is not None:
        raise UsageError(Code.USAGE_ERROR, f"the engine {engine} has no address", fix="omit it, or use --engine ray")
    from gitops.database.executor.local import LocalExecutor

    return LocalExecutor(worker_command(), count)


def _limited(patience_s: float) -> Callable[[float], None]:
    """Return a sleep that fails when it is needed for too long."""
    last = time.monotonic() + patience_s

    def pause(seconds: float) -> None:
        if time.monotonic() > last:
            raise RemoteError(Code.EXECUTOR_FAILED, f"no worker has answered within {patience_s:.0f} s")
        time.sleep(seconds)

    return pause


def serve_tasks(folder: str, idle_s: float) -> int:
    """Carry out the tasks in a folder or bucket until its driver ends. Return their number. See `serve_folder`."""
    from gitops.database.executor.files import serve_folder

    store = open_store(_place(folder))
    return serve_folder(store, run_here, clock=SystemClock(), ids=RandomIds(), pause=time.sleep, idle_s=idle_s)


def run_here(document: str) -> str:
    """Run a task in this process."""
    return run_task(document, Tools(SystemClock(), RandomIds()))


def worker_command() -> tuple[str, ...]:
    """Return the argument vector of a local worker, which runs the same code as this process.

    As in `own_command`, nothing of the working directory or the environment is imported.
    """
    home = str(Path(gitops.__file__).parent.parent)
    start = "import sys; sys.path.insert(0, sys.argv[1]); from gitops.repository.wiring.executors import serve; serve()"
    return (sys.executable, "-I", "-c", start, home)


def serve() -> None:
    """Run tasks from standard input, one per line, until it ends."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        answers.write(run_here(line.decode()).encode() + b"\n")
        answers.flush()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _place(address: str) -> str:
    return address if address.startswith("s3:") else str(Path(address).absolute())
