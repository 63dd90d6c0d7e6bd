"""One suite for every TaskExecutor: the same tasks get the same answers, once, on processes, in folders and on a cluster."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops.core.errors import BugError, GitopsError, UsageError
from gitops.database.executor.files import FilesExecutor, serve_folder
from gitops.database.executor.local import LocalExecutor
from gitops.database.executor.port import InProcess, TaskExecutor, task_document, task_key
from gitops.database.executor.version import code_version
from gitops.database.storage.local import LocalStore
from gitops.database.storage.port import ObjectStore
from gitops.database.storage.s3 import S3Store
from gitops.doctor.executors import executor_findings
from gitops.repository.wiring.executors import open_executor, run_here, worker_command
from gitops.repository.wiring.system import RandomIds, SystemClock

RAY = pytest.param(
    "ray",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the package ray is not installed"),
    ],
)
_MODULES = {"process": "port", "local": "local", "files": "files", "bucket": "files", "ray": "ray"}


@contextmanager
def served(store: ObjectStore, workers: int) -> Iterator[FilesExecutor]:
    """A folder with workers, as threads. They end when the executor closes."""
    executor = FilesExecutor(store, workers, time.sleep)

    def work() -> None:
        serve_folder(store, run_here, clock=SystemClock(), ids=RandomIds(), pause=time.sleep, idle_s=60)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield executor
    finally:
        executor.close()
        for thread in threads:
            thread.join()


@pytest.fixture(params=["process", "local", "files", "bucket", RAY])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def cluster() -> Iterator[TaskExecutor]:
    """A Ray cluster of two processes. It takes long to start, so the tests share it."""
    executor = open_executor("ray", 2, None)
    yield executor
    executor.close()


@pytest.fixture
def executor(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TaskExecutor]:
    if kind in ("files", "bucket"):
        store = LocalStore(tmp_path) if kind == "files" else S3Store(request.getfixturevalue("s3").root)
        with served(store, 2) as found:
            yield found
        return
    if kind == "ray":
        yield request.getfixturevalue("cluster")
        return
    opened: TaskExecutor = InProcess(run_here) if kind == "process" else open_executor(kind, 2, None)
    try:
        yield opened
    finally:
        opened.close()


def test_every_task_is_answered_once(executor: TaskExecutor) -> None:
    keys = [executor.submit("probe", {"n": n}) for n in range(8)]
    assert keys == [task_key("probe", {"n": n}) for n in range(8)]
    answers = dict(executor.wait() for _ in keys)
    assert answers.keys() == set(keys)
    assert {each["code"] for each in answers.values()} == {code_version()}
    assert len({each["id"] for each in answers.values()}) == 8
    with pytest.raises(BugError):
        executor.wait()


def test_equal_tasks_are_one(executor: TaskExecutor) -> None:
    assert executor.submit("probe", {"n": 1}) == executor.submit("probe", {"n": 1})
    executor.wait()
    with pytest.raises(BugError):
        executor.wait()


def test_a_task_that_fails_says_why(executor: TaskExecutor) -> None:
    executor.submit("bulk.check", {})
    with pytest.raises(GitopsError) as failure:
        executor.wait()
    assert failure.value.code == "executor_failed"
    executor.submit("probe", {})
    executor.wait()


def test_a_cancelled_task_is_not_answered(executor: TaskExecutor) -> None:
    gone, kept = executor.submit("probe", {"n": 1}), executor.submit("probe", {"n": 2})
    executor.cancel(gone)
    assert executor.wait()[0] == kept
    with pytest.raises(BugError):
        executor.wait()


def test_a_worker_runs_only_code_of_its_own_version(
    executor: TaskExecutor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(name: str, form: dict[str, object]) -> tuple[str, str]:
        key, text = task_document(name, form)
        return key, json.dumps({**json.loads(text), "code": "0.0.0+later"})

    module = importlib.import_module(f"gitops.database.executor.{_MODULES[kind]}")
    monkeypatch.setattr(module, "task_document", later)
    executor.submit("probe", {})
    with pytest.raises(GitopsError) as failure:
        executor.wait()
    assert failure.value.code == "executor_version_differs"
    assert "0.0.0+later" in failure.value.detail


def test_a_kind_that_nobody_declared_is_not_submitted(executor: TaskExecutor) -> None:
    with pytest.raises(BugError):
        executor.submit("os.system", {"command": "true"})


# Processes of this machine.


def test_a_worker_that_always_ends_fails_its_task() -> None:
    executor = LocalExecutor((sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.readline(); sys.exit(3)"), 1)
    executor.submit("probe", {})
    with pytest.raises(GitopsError) as failure:
        executor.wait()
    executor.close()
    assert failure.value.code == "executor_failed"
    assert "status 3" in failure.value.detail


def test_a_worker_that_ends_once_is_replaced(tmp_path: Path) -> None:
    once = f"import os, sys; sys.stdin.readline(); open({str(tmp_path / 'died')!r}, 'x'); os._exit(1)"
    begin = worker_command()[3]
    script = f"import os\nif not os.path.exists({str(tmp_path / 'died')!r}):\n {once}\n{begin}"
    executor = LocalExecutor((sys.executable, "-I", "-c", script, worker_command()[-1]), 1)
    key = executor.submit("probe", {})
    assert executor.wait()[0] == key
    executor.close()
    assert (tmp_path / "died").exists()


# Documents in a folder.


def test_a_driver_that_comes_back_gets_the_answer_that_is_there(tmp_path: Path) -> None:
    with served(LocalStore(tmp_path), 1) as first:
        key = first.submit("probe", {})
        answer = first.wait()
        # It dies here: another driver submits the same task.
        again = FilesExecutor(LocalStore(tmp_path), 1, time.sleep)
        assert again.submit("probe", {}) == key
        assert again.wait() == answer


def test_the_task_of_a_dead_worker_is_taken_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    executor = FilesExecutor(store, 1, time.sleep)
    key = executor.submit("probe", {})
    store.create(f"claims/{key}.json", b'{"number":0,"v":1,"worker":"dead"}\n')

    def serve() -> None:
        clock = SystemClock()
        serve_folder(store, run_here, clock=clock, ids=RandomIds(), pause=time.sleep, idle_s=60, dead_s=0.1)

    worker = threading.Thread(target=serve)
    worker.start()
    assert executor.wait()[0] == key
    executor.close()
    worker.join()
    assert [*store.names("tasks"), *store.names("claims"), *store.names("answers")] == []


# Ray.


def test_a_cluster_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UsageError) as failure:
        open_executor("ray", None, "192.0.2.1:6379")
    assert failure.value.code == "executor_unsafe"


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="the package ray is installed")
def test_the_engine_ray_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(UsageError) as failure:
        open_executor("ray", None, None)
    assert failure.value.code == "executor_unavailable"


def test_an_engine_without_its_place_is_refused() -> None:
    for engine, place in (("files", None), ("local", "head:6379")):
        with pytest.raises(UsageError) as failure:
            open_executor(engine, None, place)
        assert failure.value.code == "usage_error"


# What the doctor says of workers.


def test_the_doctor_asks_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(engine: str, address: str | None) -> list[tuple[str, str, str]]:
        return [(each.check, str(each.health), each.detail) for each in executor_findings(engine, 2, address)]

    local = said("local", None)
    assert [each[:2] for each in local] == [("executor.workers", "good"), ("executor.version", "good")]
    assert code_version() in local[1][2]
    monkeypatch.setattr("gitops.doctor.executors._PATIENCE_S", 0.0)
    ((check, health, detail),) = said("files", str(tmp_path))
    assert (check, health) == ("executor.workers", "error")
    assert "no worker has answered" in detail
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert said("ray", "192.0.2.1:6379")[0][:2] == ("executor.workers", "error")
