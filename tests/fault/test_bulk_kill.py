"""Kill workers and drivers of a load over an executor: the load can be continued, and all of it is published or nothing.

Answers that are lost, tasks that run twice or end after the publish are in `test_distributed.py`.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.database.executor.local import LocalExecutor
from gitops.database.executor.port import InProcess, Tools, run_task
from gitops.database.graph.distributed.driver import begin_load, run_load
from gitops.database.graph.distributed.sources import cut_lines
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.staged import read_leases
from gitops.repository.wiring.executors import worker_command
from tests.support.faults import Death, DieAt, EndAt
from tests.support.histories import History, lives, person, town

RECORDS = [
    *({"type": "Person", "data": {"name": f"p{n}", "age": n, "mail": f"{n}@x"}} for n in range(8)),
    *({"edge": "Lives", "from": f"p{n}", "to": "oslo", "data": {"id": f"l{n}"}} for n in range(8)),
]
WORKER = [
    ("bulk.write", "engine.bulk.after_files"),
    *(
        (kind, f"engine.bulk.{moment}_answer")
        for kind in ("bulk.write", "bulk.scan", "bulk.check")
        for moment in ("before", "after")
    ),
]
DRIVER = [
    "engine.bulk.after_task",
    "engine.load.before_tables",
    "engine.load.staged",
    "engine.load.before_publish",
    "engine.load.after_publish",
    "engine.bulk.after_publish",
]
SHARP = Retention(2, timedelta(0), timedelta(0))


def begin(history: History, folder: Path) -> str:
    """A graph with rows that the load replaces, and the load."""
    history.put(
        "main",
        {
            "node:Person": [person("p0", 90), person("old", 1)],
            "node:Town": [town("oslo")],
            "edge:Lives": [lives("l0", "old", "oslo")],
        },
    )
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return begin_load(
        history.uri, cut_lines([str(file)], 1), history.work(), LoadMode.MERGE, "main", slots=2, buckets=2
    )


def look(history: History, *, published: bool) -> None:
    """All of the load is there or nothing, and everything can be read."""
    assert verify_graph(history.uri, deep=True).ok
    ages = history.ages()
    assert (len(ages), ages["p0"]) == ((9, 0) if published else (2, 90))
    assert len(history.rows("edge:Lives")) == (8 if published else 1)


@pytest.fixture
def local(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def executor_of(history: History) -> InProcess:
    return InProcess(lambda document: run_task(document, Tools(history.clock, history.ids)))


@pytest.mark.parametrize(("kind", "point"), WORKER)
def test_a_worker_that_dies_is_replaced(local: History, tmp_path: Path, kind: str, point: str) -> None:
    bulk, deaths = begin(local, tmp_path), []

    def run(document: str) -> str:
        if not deaths and json.loads(document)["kind"] == kind:
            try:
                run_task(document, Tools(local.clock, local.ids, EndAt(point)))
            except Death:
                deaths.append(document)
                look(local, published=False)
        return run_task(document, Tools(local.clock, local.ids))

    run_load(local.uri, bulk, InProcess(run), local.work())
    assert len(deaths) == 1
    look(local, published=True)
    collect_garbage(local.uri, local.work(), SHARP)
    look(local, published=True)


def drive(uri: str, bulk: str, point: str) -> None:
    """What the driver does that dies."""
    mine = History(uri, b"", start=500_000)
    run_load(uri, bulk, executor_of(mine), mine.work(DieAt(point)))


@pytest.mark.parametrize("point", DRIVER)
def test_a_driver_that_is_killed_is_continued(local: History, tmp_path: Path, point: str) -> None:
    bulk = begin(local, tmp_path)
    child = multiprocessing.get_context("spawn").Process(target=drive, args=(local.uri, bulk, point))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    published = point.endswith("after_publish")
    look(local, published=published)
    later = History(local.uri, b"", start=900_000)
    collect_garbage(local.uri, later.work(), SHARP)
    look(later, published=published)
    if point != "engine.bulk.after_publish":
        assert dict(run_load(local.uri, bulk, executor_of(later), later.work()).rows) == {
            "node:Person": 8,
            "edge:Lives": 8,
        }
    look(later, published=True)
    collect_garbage(local.uri, later.work(), SHARP)
    look(later, published=True)
    # The lease of the process that was killed expires.
    assert bulk not in {lease.id for lease in read_leases(later.at().store)}
    assert later.at().folder.children("bulk") == ()


def test_a_process_that_is_killed_in_a_task_is_replaced(local: History, tmp_path: Path) -> None:
    bulk, died = begin(local, tmp_path), tmp_path / "died"
    script = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
from gitops.repository.wiring.executors import serve
class Once:
    def reach(self, point):
        if point == "engine.bulk.before_answer" and not os.path.exists({str(died)!r}):
            open({str(died)!r}, "x").close()
            os.kill(os.getpid(), 9)
from gitops.repository.wiring import executors
from gitops.database.executor.port import Tools, run_task
executors.run_here = lambda text: run_task(text, Tools(executors.SystemClock(), executors.RandomIds(), Once()))
serve()
"""
    executor = LocalExecutor((sys.executable, "-I", "-c", script, worker_command()[-1]), 2)
    try:
        run_load(local.uri, bulk, executor, local.work())
    finally:
        executor.close()
    assert died.exists()
    look(local, published=True)
