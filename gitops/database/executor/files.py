"""An executor that exchanges documents in a folder on disk or in a bucket. Workers can be started in any way.

    tasks/<key>.json     a task
    claims/<key>.json    the worker that runs it, with a counter that it increments while it is alive
    answers/<key>.json   the first answer
    done.json            no more tasks will come, so workers end

1. A worker claims a task with create-if-absent. If a claim stays unchanged for a minute by another worker's clock, that
   worker takes the task over with compare-and-replace. So clocks on different machines are never compared.
2. If two workers run the same task, the first answer counts and the other one is dropped.
3. A driver that submits a task again, for example after a crash, gets the existing answer.
4. Anyone who can write to the folder can give tasks to the workers, so only drivers and workers may write there.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from gitops.core.canonical import canonical
from gitops.core.clock import Clock, IdSource
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.executor.port import OpenTasks, read_answer, task_document
from gitops.database.storage.port import ObjectStore

Pause = Callable[[float], None]

_DONE = "done.json"
_BEAT_S = 10.0
_DEAD_S = 60.0
_SHORTEST_S, _LONGEST_S = 0.02, 1.0


class FilesExecutor:
    """Runs tasks on the workers that serve a folder. `slots` is the expected number of workers."""

    def __init__(self, store: ObjectStore, slots: int, pause: Pause) -> None:
        """`pause` sleeps for some seconds."""
        self._store = store
        self.slots = slots
        self._pause = pause
        self._waiting = OpenTasks()
        self._mine: list[str] = []
        store.delete(_DONE)

    def submit(self, kind: str, form: Mapping[str, Any]) -> str:
        """Write the task's document, unless it already exists."""
        key, text = task_document(kind, form)
        if self._waiting.add(key):
            self._store.create(f"tasks/{key}.json", text.encode())
            self._mine.append(key)
        return key

    def wait(self) -> tuple[str, Any]:
        """Wait for the next answer in the folder."""
        wanted, delay = self._waiting.keys(), _SHORTEST_S
        while True:
            there = set(self._store.names("answers"))
            for key in wanted:
                if f"{key}.json" in there and (data := self._store.read(f"answers/{key}.json")) is not None:
                    self._waiting.take(key)
                    return key, read_answer(data.decode(errors="replace"))
            self._pause(delay)
            delay = min(_LONGEST_S, 2 * delay)

    def cancel(self, key: str) -> None:
        """Remove a task. A worker that is already running it continues."""
        if self._waiting.take(key):
            self._store.delete(f"tasks/{key}.json")

    def close(self) -> None:
        """Remove the documents of this driver's tasks and stop the workers."""
        with contextlib.suppress(RemoteError):
            for key in self._mine:
                for folder in ("tasks", "claims", "answers"):
                    self._store.delete(f"{folder}/{key}.json")
            self._store.write(_DONE, b"{}\n")
        self._waiting.clear()


def serve_folder(
    store: ObjectStore,
    run: Callable[[str], str],
    *,
    clock: Clock,
    ids: IdSource,
    pause: Pause,
    idle_s: float,
    heartbeat_s: float = _BEAT_S,
    dead_s: float = _DEAD_S,
) -> int:
    """Run a folder's tasks until its driver ends or no task arrives for `idle_s` seconds. Return the number of tasks.

    `run` runs one task. Raises RemoteError `storage_failed`.
    """
    claims, done, delay, last = _Claims(store, ids.ulid(), clock, dead_s), 0, _SHORTEST_S, clock.monotonic()
    while True:
        key = claims.take()
        if key is None:
            if store.read(_DONE) is not None or clock.monotonic() - last > idle_s:
                return done
            pause(delay)
            delay = min(_LONGEST_S, 2 * delay)
            continue
        task = store.read(f"tasks/{key}.json")
        if task is not None:
            with claims.held(key, heartbeat_s):
                answer = run(task.decode(errors="replace"))
            store.create(f"answers/{key}.json", answer.encode())
            done += 1
        delay, last = _SHORTEST_S, clock.monotonic()


class _Claims:
    """The claims of one worker."""

    def __init__(self, store: ObjectStore, worker: str, clock: Clock, dead_s: float) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._dead_s = dead_s
        self._seen: dict[str, tuple[bytes, float]] = {}

    def take(self) -> str | None:
        """Claim a task without an answer and without a living worker; None if there is none."""
        answered = set(self._store.names("answers"))
        claimed = set(self._store.names("claims"))
        open_tasks = [name for name in self._store.names("tasks") if name not in answered]
        # Workers that start at the same time try different tasks.
        random.shuffle(open_tasks)
        for name in sorted(open_tasks, key=claimed.__contains__):
            key, place = name.removesuffix(".json"), f"claims/{name}"
            if name not in claimed:
                if self._store.create(place, self._claim(0)):
                    return key
            elif self._is_dead(place) and self._store.replace(place, self._claim(0), expected=self._seen[place][0]):
                return key
        return None

    @contextlib.contextmanager
    def held(self, key: str, every_s: float) -> Any:
        """Increase the number of a claim while the block runs."""
        over = threading.Event()

        def beat() -> None:
            number = 0
            while not over.wait(every_s):
                number += 1
                # Without a beat, another worker may run the task too, which is harmless.
                with contextlib.suppress(GitopsError):
                    self._store.write(f"claims/{key}.json", self._claim(number))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _is_dead(self, place: str) -> bool:
        claim, now = self._store.read(place), self._clock.monotonic()
        if claim is None:
            return False
        if self._seen.get(place, (b"", 0.0))[0] != claim:
            self._seen[place] = claim, now
        return now - self._seen[place][1] >= self._dead_s

    def _claim(self, number: int) -> bytes:
        return canonical({"v": 1, "worker": self._worker, "number": number}) + b"\n"
