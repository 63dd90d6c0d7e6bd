"""The parent's half of the isolation: starts workers, gives them jobs and parses their untrusted answers strictly.

1. A worker is a new process, because the Lance driver does not survive a fork. It has its own session and process
   group, so that everything it starts is killed with it.
2. Its environment contains no variable of the parent, so no token, key, agent or home, except for those that the
   caller passes so that it can reach the storage of graphs, and the one without which the interpreter may not start:
   a Python that a job has set up finds its own library by `LD_LIBRARY_PATH`. Its working directory and `TMPDIR` are
   its own empty folder.
3. The worker limits itself before it sees a job: memory, processor time, file size, processes, no new privileges. See
   `child`.
4. A job has a deadline, at which its process group is killed. A worker that fails a job is replaced, and the next job
   of its batch runs on the new one, after the batch's setup has run again.
5. An answer is one JSON object of at most `answer_mib`, read strictly. It stays untrusted.

The folders of the workers are in memory where the machine has room for that, and otherwise in the temporary folder.
They are removed with the pool. Those of a pool that was killed are removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.review.trial.child import LENGTH_BYTES, MIB

MAX_WORKERS = 16
_START_S = 60.0
_PREFIX = "gitops-trial-"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder with a random name is made in it
_ROOM = 512 * MIB
_CHUNK = 1 << 16
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gitops.review.trial.child import main; main()"
# The engine's threads would otherwise grow with the machine, in each worker.
_SETTINGS = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "LANCE_LOG": "lance=off"}
_OF_THE_INTERPRETER = ("LD_LIBRARY_PATH",)


class TrialFailure(StrEnum):
    """The reason why a job has no answer."""

    DIED = "died"
    DEADLINE = "deadline"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Limits of a worker. `deadline_s` and `cpu_s` are seconds for each job; the other limits are in MiB.

    `memory_mib` is in addition to the memory that the worker uses before its first job.
    """

    deadline_s: float = 5.0
    cpu_s: int = 30
    memory_mib: int = 512
    file_mib: int = 64
    answer_mib: int = 4


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """Jobs for one worker, in order. `setup` is sent before the first job, and again to a worker that replaces it."""

    jobs: Sequence[Mapping[str, Any]]
    setup: Mapping[str, Any] | None = None


class TrialPlace(NamedTuple):
    """The job and the batch that an answer belongs to."""

    batch: int
    job: int


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """A job's answer in `value`, or its `failure` with details that a person can read, and the time it took in ms."""

    value: Mapping[str, Any] | None
    failure: TrialFailure | None = None
    detail: str = ""
    ms: int = 0


class _FailedError(Exception):
    def __init__(self, failure: TrialFailure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class TrialPool:
    """Runs batches of jobs on at most `workers` workers. Use it as a context manager, from one thread."""

    def __init__(
        self,
        program: str,
        *,
        workers: int,
        limits: TrialLimits | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """`program` is `module:function`, which a worker calls once with its folder, and which returns an `Answering`.

        `storage` are variables that a worker gets in addition, such as the credentials of a bucket that it reads.
        """
        self._program = program
        self._workers = max(1, min(workers, MAX_WORKERS))
        self._limits = limits or TrialLimits()
        self._storage = dict(storage or {})
        self._base: _Folder | None = None
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Create the folder of the workers. They start with the first batches. Raises OSError."""
        self._base = _Folder()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the workers and remove their folders."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self._base is not None:
            self._base.remove()

    def run(
        self, batches: Sequence[TrialBatch], *, budget_s: float | None = None
    ) -> Iterator[tuple[TrialPlace, TrialAnswer]]:
        """Yield the answer to every job, in the order in which they arrive.

        Jobs that have not started after `budget_s` seconds fail as NOT_RUN.
        """
        if self._base is None:
            raise RuntimeError("the pool is not open")
        until = None if budget_s is None else time.monotonic() + budget_s
        waiting: queue.SimpleQueue[tuple[int, TrialBatch]] = queue.SimpleQueue()
        answers: queue.SimpleQueue[tuple[TrialPlace, TrialAnswer] | BaseException] = queue.SimpleQueue()
        for each in enumerate(batches):
            waiting.put(each)
        for _ in range(min(self._workers, len(batches))):
            lane = _Lane(self._program, self._limits, self._base.path, self._stopped, self._storage)
            self._threads.append(threading.Thread(target=lane.serve, args=(waiting, answers, until), daemon=True))
            self._threads[-1].start()
        for _ in range(sum(len(batch.jobs) for batch in batches)):
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer


class _Folder:
    """The folder of a pool, locked while the pool lives, and the removal of those that no pool holds now."""

    def __init__(self) -> None:
        parent = _MEMORY
        try:
            room = shutil.disk_usage(parent).free
        except OSError:
            room = 0
        if room < _ROOM or not os.access(parent, os.W_OK | os.X_OK):
            parent = Path(tempfile.gettempdir())
        for each in parent.glob(f"{_PREFIX}*"):
            self._remove_abandoned(each)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._held = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)

    @staticmethod
    def _remove_abandoned(folder: Path) -> None:
        try:
            if folder.lstat().st_uid != os.getuid():
                return
            held = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return  # its pool is just being opened or closed
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            return  # its pool lives
        finally:
            os.close(held)


class _Lane:
    """One thread with one worker at a time."""

    def __init__(
        self, program: str, limits: TrialLimits, base: Path, stopped: threading.Event, storage: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._program = program
        self._limits = limits
        self._base = base
        self._stopped = stopped
        self._worker: _Worker | None = None

    def serve(
        self,
        waiting: queue.SimpleQueue[tuple[int, TrialBatch]],
        answers: queue.SimpleQueue[tuple[TrialPlace, TrialAnswer] | BaseException],
        until: float | None,
    ) -> None:
        """Carry out batches until none is left."""
        try:
            while True:
                try:
                    index, batch = waiting.get_nowait()
                except queue.Empty:
                    return
                for job, answer in self._batch(batch, until):
                    answers.put((TrialPlace(index, job), answer))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits for the answers
            answers.put(error)
        finally:
            self._close()

    def _batch(self, batch: TrialBatch, until: float | None) -> Iterator[tuple[int, TrialAnswer]]:
        fresh = True
        for index, job in enumerate(batch.jobs):
            if self._stopped.is_set() or (until is not None and time.monotonic() >= until):
                yield index, TrialAnswer(None, TrialFailure.NOT_RUN, "the time for the whole run was over")
                continue
            started = time.monotonic()
            try:
                if self._worker is None:
                    self._worker, fresh = self._start(), True
                if fresh and batch.setup is not None:
                    self._ask(self._worker, batch.setup)
                fresh, started = False, time.monotonic()
                value, failed = self._ask(self._worker, job), None
            except _FailedError as error:
                value, failed = None, error
                self._close()
            ms = int((time.monotonic() - started) * 1000)
            if failed is None:
                yield index, TrialAnswer(value, ms=ms)
            else:
                yield index, TrialAnswer(None, failed.failure, failed.detail, ms)

    def _start(self) -> _Worker:
        """Start a worker and wait until it has limited itself. Raises _FailedError."""
        worker = _Worker(Path(tempfile.mkdtemp(prefix="worker-", dir=self._base)), self._stopped, self._storage)
        try:
            worker.send({"limits": asdict(self._limits), "program": self._program}, _START_S)
            worker.receive(_START_S, self._limits.answer_mib * MIB)
        except _FailedError as error:
            worker.close()
            raise _FailedError(error.failure, f"a worker did not start: {error.detail}") from None
        return worker

    def _ask(self, worker: _Worker, job: Mapping[str, Any]) -> Mapping[str, Any]:
        worker.send(job, self._limits.deadline_s)
        return worker.receive(self._limits.deadline_s, self._limits.answer_mib * MIB)

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class _Worker:
    """One process with its pipes and its folder."""

    def __init__(self, folder: Path, stopped: threading.Event, storage: Mapping[str, str]) -> None:
        self._folder = folder
        self._stopped = stopped
        path = json.dumps([entry for entry in sys.path if entry.startswith("/")])
        interpreter = {name: os.environ[name] for name in _OF_THE_INTERPRETER if os.environ.get(name)}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _CODE, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**interpreter, **storage, **_SETTINGS, "TMPDIR": str(folder)},
            start_new_session=True,
            bufsize=0,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a worker has no pipes")
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)

    def send(self, form: Mapping[str, Any], seconds: float) -> None:
        """Write a message. Raises _FailedError."""
        data = json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
        rest, until = memoryview(len(data).to_bytes(LENGTH_BYTES) + data), time.monotonic() + seconds
        while rest:
            self._wait(self._in, select.POLLOUT, until, seconds)
            try:
                rest = rest[os.write(self._in, rest) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._died() from None

    def receive(self, seconds: float, limit: int) -> Mapping[str, Any]:
        """Read a message of at most `limit` bytes. Raises _FailedError."""
        until = time.monotonic() + seconds
        length = int.from_bytes(self._read(LENGTH_BYTES, until, seconds))
        if length > limit:
            raise _FailedError(TrialFailure.TOO_LARGE, f"the answer has {length} bytes; at most {limit} are read")
        try:
            found = parse(self._read(length, until, seconds), limit=limit)
        except MalformedError as error:
            raise _FailedError(TrialFailure.MALFORMED, f"the answer is {error}") from None
        if not isinstance(found, dict):
            raise _FailedError(TrialFailure.MALFORMED, "the answer is not a JSON object")
        return found

    def _read(self, size: int, until: float, seconds: float) -> bytes:
        parts, missing = [], size
        while missing:
            self._wait(self._out, select.POLLIN, until, seconds)
            try:
                part = os.read(self._out, min(missing, _CHUNK))
            except BlockingIOError:
                continue
            if not part:
                raise self._died()
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int, until: float, seconds: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while not self._stopped.is_set():
            left = until - time.monotonic()
            if left <= 0:
                raise _FailedError(TrialFailure.DEADLINE, f"it was stopped after {seconds:g} s")
            # A pool that is closed does not wait for a slow worker.
            if poll.poll(min(left, 0.2) * 1000):
                return
        raise _FailedError(TrialFailure.NOT_RUN, "the run was stopped")

    def _died(self) -> _FailedError:
        # Its pipes can be closed before it has ended, or without its end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._kill()
        status = self._process.wait()
        reason = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return _FailedError(TrialFailure.DIED, f"its worker ended with {reason}")

    def _kill(self) -> None:
        """Kill the process group, which outlives its first process if that started others."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the worker and remove its folder."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
