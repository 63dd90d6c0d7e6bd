"""Loads over an executor on this machine: rows a second and CPU by number of workers, and what the driver does alone.

The share of the driver is what more workers do not shorten. Its CPU is compared with all CPU of the same run, so other work
on the machine changes it little.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Effort, Figure

_GOAL_PERCENT = 2.0
_SCHEMA = b"node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"


class _Run(NamedTuple):
    """Seconds of one load."""

    wall: float
    driver: float
    publishing: float
    workers: float


def figures(effort: Effort) -> Iterator[Figure]:
    """A load in this process, and with 1, 2 and 4 workers."""
    nodes, rounds = (2_000, 1) if effort.quick else (200_000, 3)
    folder = effort.scratch / "distributed"
    folder.mkdir()
    file = folder / "rows.jsonl"
    rows = _write(file, nodes)
    runs: dict[int, list[_Run]] = {workers: [] for workers in (0, 1, 2, 4)}
    for turn in range(rounds):
        for workers, done in runs.items():
            done.append(_run(folder / f"{workers}-{turn}.omni", file, workers))
    for workers, done in runs.items():
        name = f"load of {rows:,} rows, {f'workers: {workers}' if workers else 'in one process'}"
        yield Figure(name, "rows/s", tuple(rows / run.wall for run in done))
        yield Figure(f"{name}: CPU", "us/row", tuple(1e6 * (run.driver + run.workers) / rows for run in done))
        if workers:
            whole = [run.driver + run.workers for run in done]
            shares = [run.driver / all_cpu for run, all_cpu in zip(done, whole, strict=True)]
            yield Figure(f"{name}: CPU of the driver", "%", tuple(100 * share for share in shares))
            shares = [run.publishing / all_cpu for run, all_cpu in zip(done, whole, strict=True)]
            yield Figure(f"{name}: CPU of publishing", "%", tuple(100 * share for share in shares), _GOAL_PERCENT)


def _write(file: Path, nodes: int) -> int:
    with file.open("w") as out:
        for n in range(nodes):
            out.write(json.dumps({"type": "Person", "data": {"name": f"person-{n:07}", "age": n % 100}}) + "\n")
        for n in range(4 * nodes):
            ends = {"from": f"person-{n % nodes:07}", "to": f"person-{n * 7 % nodes:07}"}
            out.write(json.dumps({"edge": "Knows", **ends, "data": {}}) + "\n")
    return 5 * nodes


def _run(root: Path, file: Path, workers: int) -> _Run:
    from gitops.database.graph import LanceEngine, LoadRequest, WriteContext, load_records
    from gitops.database.graph.distributed.driver import load_files
    from gitops.database.graph.distributed.sources import cut_lines
    from gitops.database.graph.results import PUBLISHING, StepProgress
    from gitops.repository.wiring.executors import open_executor
    from gitops.repository.wiring.system import RandomIds, SystemClock

    context = WriteContext(SystemClock(), RandomIds())
    LanceEngine(SystemClock(), RandomIds()).prepare_create(str(root), _SCHEMA, actor=None).publish()
    began, own, others = time.perf_counter(), time.process_time(), _children()
    published = own
    if workers == 0:
        with file.open("rb") as records:
            load_records(LoadRequest(str(root), records), context)
        return _Run(time.perf_counter() - began, time.process_time() - own, 0, 0)

    def watch(progress: StepProgress) -> None:
        nonlocal published
        if progress.step == PUBLISHING:
            published = time.process_time()

    executor = open_executor("local", workers, None)
    try:
        load_files(str(root), cut_lines([str(file)], workers), executor, context, progress=watch)
        wall, end = time.perf_counter() - began, time.process_time()
    finally:
        executor.close()
    return _Run(wall, end - own, end - published, _children() - others)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
