"""The pytest plugin of `make mutants`: write down which tests reach which mutants, or run those that do with each mutant active.

With `GITOPS_MUTANT_JOBS` naming a JSON file, `[[mutant, [nodeid, ...]], ...]`, the tests are collected once, and a process is
forked for each mutant; of number 0, which is none, all tests run. Without it, the tests run as always, and each process that
runs some writes `PID.tests`, with a line for each test and its seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from gitops._mutant import HERE, PAGE, open_page  # type: ignore[import-not-found]

# Before the first module of the program is imported: a process asks once for its page, and keeps the answer.
open_page(os.getpid())
from tests.support import prefork  # noqa: E402

# The processor time that the tests of one mutant may take, and how long they may take with everything else that the machine does.
BUDGET_S, HANGS_S = 6.0, 240.0
_begun = 0
_failed: set[str] = set()


def pytest_configure() -> None:
    """Find a counterexample, but do not make it small, nor remember it."""
    hypothesis.settings.register_profile(
        "mutants", hypothesis.settings(), phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate), database=None
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count the tests of this process; one that was forked for a mutant only runs them."""
    global _begun  # noqa: PLW0603
    if "GITOPS_MUTANT_JOBS" in os.environ:
        return (yield)
    _begun += 1
    page = open_page(os.getpid())
    page[:] = PAGE.pack(0, _begun)
    began = time.perf_counter()
    result = yield
    with (HERE / f"{os.getpid()}.tests").open("a", encoding="utf-8") as file:
        file.write(f"{_begun}\t{time.perf_counter() - began:.4f}\t{item.nodeid}\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember who failed."""
    if report.failed:
        _failed.add(report.nodeid)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the jobs, if there are some, in place of the tests."""
    if "GITOPS_MUTANT_JOBS" not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    for number, nodeids in json.loads(Path(os.environ["GITOPS_MUTANT_JOBS"]).read_text("utf-8")):
        child = os.fork()
        if not child:
            os.setsid()
            _run(number, [items[nodeid] for nodeid in nodeids if nodeid in items])
        if not _ended(child, time.monotonic() + (HANGS_S if number else 10 * HANGS_S)):
            _write(number, "hangs", "")
        _kill(child)
        # Its name is that of this process, for every child.
        shutil.rmtree(Path(prefork.PYTHON[0]).parent, ignore_errors=True)
    return True


def _run(number: int, items: list[pytest.Item]) -> None:
    open_page(os.getpid())[:] = PAGE.pack(number, 0)
    noticed: set[Path] = set()
    began = sum(os.times()[:4])
    try:
        for item in items:
            if number and item.path in noticed:
                continue
            if number and sum(os.times()[:4]) - began > BUDGET_S:
                _write(number, "cut", item.nodeid)
                break
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if item.nodeid in _failed:
                noticed.add(item.path)
                _write(number, "killed", item.nodeid)
        _write(number, "done", "")
    finally:
        os._exit(0)


def _write(number: int, what: str, nodeid: str) -> None:
    with (HERE / "outcomes").open("ab", buffering=0) as file:
        file.write(f"{number}\t{what}\t{nodeid}\n".encode())


def _ended(child: int, until: float) -> bool:
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _kill(child: int) -> None:
    """End what the tests have started, too: it is of their session."""
    try:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError, PermissionError):
        pass
