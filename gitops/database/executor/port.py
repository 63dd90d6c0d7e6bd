"""The port for tasks, the table of task kinds, and the documents that drivers and workers exchange."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from gitops.core.canonical import canonical, canonical_digest
from gitops.core.clock import Clock, IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import BugError, ConflictError, GitopsError, IntegrityError, RemoteError, UsageError
from gitops.core.faults import Faults, NoFaults
from gitops.database.executor.version import code_version

KINDS: Mapping[str, str] = {
    "probe": "gitops.database.executor.port:probe",
    "bulk.write": "gitops.database.graph.distributed.tasks:write_piece",
    "bulk.scan": "gitops.database.graph.distributed.tasks:scan_keys",
    "bulk.check": "gitops.database.graph.distributed.tasks:check_bucket",
    "optimize.compact": "gitops.database.graph.history.optimize_tasks:compact_task",
    "optimize.index": "gitops.database.graph.history.optimize_tasks:index_task",
}
"""The function of each kind, as `module:function`. It gets the task's JSON value and the `Tools`, and returns JSON.

Every function may run twice or late for the same task, so it writes only files with fresh names.
"""

_ERRORS: Mapping[str, type[GitopsError]] = {
    "usage": UsageError,
    "conflict": ConflictError,
    "remote": RemoteError,
    "integrity": IntegrityError,
    "other": GitopsError,
}

ATTEMPTS = 3
"""How often a task is started whose worker ends without an answer."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The resources that a worker provides to tasks."""

    clock: Clock
    ids: IdSource
    faults: Faults = field(default_factory=NoFaults)


class TaskExecutor(Protocol):
    """Runs tasks in other processes or on other machines. Used by one thread. `close` stops it."""

    @property
    def slots(self) -> int:
        """Return how many tasks can run at once, as far as this is known."""
        ...

    def submit(self, kind: str, form: Mapping[str, Any]) -> str:
        """Submit a task and return its key. Equal tasks have equal keys, and count as one task while it runs.

        Raises RemoteError `executor_failed`.
        """
        ...

    def wait(self) -> tuple[str, Any]:
        """Wait for the next answer, in no particular order, and return it with the task's key.

        Raises the GitopsError of a failed task; RemoteError `executor_failed` if its workers exited without an answer
        three times; GitopsError `executor_version_differs` if a worker runs different code; BugError if no task is
        running.
        """
        ...

    def cancel(self, key: str) -> None:
        """Forget a task. If possible, a task that has not started never runs. Its answer is not returned."""
        ...

    def close(self) -> None:
        """Forget all tasks and release the workers. Running tasks may continue, because a late task is harmless."""
        ...


def task_key(kind: str, form: Mapping[str, Any]) -> str:
    """Return the key of a task."""
    return canonical_digest([kind, dict(form)])[:32]


def task_document(kind: str, form: Mapping[str, Any]) -> tuple[str, str]:
    """Return a task's key and its JSON document. Raises BugError for an unknown kind."""
    if kind not in KINDS:
        raise BugError(f"no kind {kind!r}")
    return task_key(kind, form), canonical({"v": 1, "kind": kind, "code": code_version(), "form": dict(form)}).decode()


def run_task(document: str, tools: Tools) -> str:
    """Run a task in a worker and return its answer as JSON text. If the task failed, the answer contains the error."""
    try:
        return canonical({"v": 1, "answer": _run(_read(document, "task"), tools)}).decode()
    except GitopsError as error:
        return failed_document(error)


def failed_document(error: GitopsError) -> str:
    """Return the JSON text of an answer that contains an error."""
    kind = next(name for name, each in _ERRORS.items() if isinstance(error, each))
    form = {"kind": kind, "code": error.code.value, "detail": error.detail, "path": error.path, "fix": error.fix}
    return canonical({"v": 1, "error": form}).decode()


def read_answer(document: str) -> Any:
    """Parse an answer. Raises the task's GitopsError, or RemoteError `executor_failed` if `text` is not an answer."""
    form = _read(document, "answer")
    error = form.get("error")
    if error is None:
        return form.get("answer")
    code = Code(error["code"]) if error.get("code") in set(Code) else Code.EXECUTOR_FAILED
    raise _ERRORS.get(str(error.get("kind")), GitopsError)(
        code, str(error.get("detail")), path=str(error.get("path") or ""), fix=error.get("fix")
    )


def lost(key: str, reason: str) -> RemoteError:
    """Return the error for a task whose workers exited without an answer."""
    return RemoteError(Code.EXECUTOR_FAILED, f"task {key}: {reason}", retryable=True)


def probe(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Describe a worker. This task kind only reports where tasks run and with which code."""
    del form
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "code": code_version(),
        "id": tools.ids.ulid(),
    }


def _run(task: Mapping[str, Any], tools: Tools) -> Any:
    place = KINDS.get(task.get("kind", ""))
    if task.get("code") != code_version() or place is None:
        detail = f"the driver runs {task.get('code')}, and the worker on {platform.node()} runs {code_version()}"
        raise GitopsError(Code.EXECUTOR_VERSION_DIFFERS, detail)
    module, _, name = place.partition(":")
    function: Callable[[Mapping[str, Any], Tools], Any] = getattr(importlib.import_module(module), name)
    try:
        return function(task["form"], tools)
    except (KeyError, TypeError) as error:
        raise UsageError(Code.EXECUTOR_FAILED, f"the task is not well formed: {error!r}") from error


def _read(document: str, what: str) -> Mapping[str, Any]:
    try:
        form = parse(document.encode())
    except (MalformedError, UnicodeError) as error:
        raise RemoteError(Code.EXECUTOR_FAILED, f"the {what} is not JSON: {error}") from error
    if not isinstance(form, dict) or form.get("v") != 1:
        raise RemoteError(Code.EXECUTOR_FAILED, f"the {what} is not a document of version 1")
    return form


class OpenTasks:
    """The tasks of an executor that have no answer yet."""

    def __init__(self) -> None:
        """Start without tasks."""
        self._keys: dict[str, None] = {}

    def add(self, key: str) -> bool:
        """Add a task. Return whether it is new."""
        new = key not in self._keys
        self._keys[key] = None
        return new

    def take(self, key: str) -> bool:
        """Remove a task. Return whether it was waiting."""
        return self._keys.pop(key, self) is None

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def keys(self) -> list[str]:
        """Return the keys in the order of submission. Raises BugError if there are none."""
        if not self._keys:
            raise BugError("no task is running")
        return list(self._keys)

    def clear(self) -> None:
        """Remove all tasks."""
        self._keys.clear()


class InProcess:
    """An executor that runs each task in this process, when `wait` is called."""

    slots = 1

    def __init__(self, run: Callable[[str], str]) -> None:
        """`run` is the worker: from the text of a task to the text of its answer."""
        self._run = run
        self._texts: dict[str, str] = {}

    def submit(self, kind: str, form: Mapping[str, Any]) -> str:
        """Keep a task until `wait` is called."""
        key, text = task_document(kind, form)
        self._texts[key] = text
        return key

    def wait(self) -> tuple[str, Any]:
        """Run the oldest task."""
        if not self._texts:
            raise BugError("no task is running")
        key = next(iter(self._texts))
        return key, read_answer(self._run(self._texts.pop(key)))

    def cancel(self, key: str) -> None:
        """Forget a task."""
        self._texts.pop(key, None)

    def close(self) -> None:
        """Forget all tasks."""
        self._texts.clear()
