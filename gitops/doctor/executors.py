"""Checks of the workers that would carry out tasks."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.core.codes import Code, remedy
from gitops.core.errors import GitopsError
from gitops.database.executor.version import code_version
from gitops.doctor.findings import DoctorFinding, error, good
from gitops.render.words import count
from gitops.repository.wiring.executors import open_executor

_PATIENCE_S = 60.0
_START = "start a worker, for example: gitops graph work PLACE; then run the doctor again"


def executor_findings(engine: str, workers: int | None, address: str | None) -> Iterator[DoctorFinding]:
    """Ask the workers of an engine with which code they run tasks. No graph is read."""
    hosts: set[str] = set()
    try:
        executor = open_executor(engine, workers, address, patience_s=_PATIENCE_S)
        try:
            for number in range(executor.slots):
                executor.submit("probe", {"number": number})
            for _ in range(executor.slots):
                hosts.add(executor.wait()[1]["host"])
            slots = executor.slots
        finally:
            executor.close()
    except GitopsError as problem:
        check = "version" if problem.code is Code.EXECUTOR_VERSION_DIFFERS else "workers"
        absent = problem.code is Code.EXECUTOR_FAILED and engine == "files"
        fix = _START if absent else problem.fix or remedy(problem.code, "") or ""
        yield error(f"executor.{check}", f"{engine}: {problem.detail}", fix)
        return
    names = ", ".join(sorted(hosts))
    yield good("executor.workers", f"{engine}: {count(slots, 'worker')} on {names}")
    yield good("executor.version", f"{engine}: the workers run {code_version()}, like this command")
