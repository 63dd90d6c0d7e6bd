"""One graph of people who know people, in this package's engine, ladybug, DuckDB and PostgreSQL: what each question costs where.

Every system loads and is asked in a process of its own, one after the other, on the same rows. The answers must be equal, or
there is no benchmark. Ratios are of one run: what the machine does besides hits all systems of it alike, more or less.

There are ten times as many edges as people: 100,000 people, or a million with `GITOPS_BENCH_LARGE=1`, or as many as
`GITOPS_BENCH_PEOPLE` says. `GITOPS_BENCH_DATA` is a folder for the generated files, which are used again if they are there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

from tests.bench.contender import AGAIN
from tests.bench.measure import Effort, Figure, LeftOutError, Program, Usage, repeated
from tests.bench.rivals import CHANGE
from tests.bench.social import APPROXIMATE, EXACT, Social
from tests.support.materialize.postgres import PostgresServer, installed

OURS = "gitops"
RIVALS = ("ladybug", "DuckDB", SERVER := "PostgreSQL")
# Its manual advises a quarter of the memory; what is synced, and when, is as it comes.
_SETTINGS = {"shared_buffers": "1GB", "maintenance_work_mem": "256MB", "listen_addresses": ""}
_MANY, _PEOPLE, _FEW = 1_000_000, 100_000, 2_000
DEGREE = 10
_TIMEOUT_S = 7200.0
_WALKS = ("1 hop", "2 hops", "{1,3} hops", "anti-join", *(f"{question} after a change" for question in AGAIN))
_SAME, _TWICE = 1.0, 2.0
_PUBLISH = "publish step of a change"
_GOALS = {"point": 1.5, "1 hop": 3.0, "{1,3} hops": 0.5, CHANGE: 30.0}
_PUBLISH_GOAL = 1.0
_REOPEN_GOAL = 60.0
_MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Found:
    """What the two processes of a system said, and what they took."""

    load: Mapping[str, Any]
    loading: Usage
    ask: Mapping[str, Any]
    asking: Usage

    def median(self, question: str) -> float:
        """The middle of the warm samples."""
        return Figure(question, "ms", tuple(self.ask["answers"][question]["ms"])).median


def figures(effort: Effort) -> Iterator[Figure]:
    """Load, size, memory, reopen, then every question: first, warm, and against the best rival."""
    people = int(
        os.environ.get("GITOPS_BENCH_PEOPLE") or (_FEW if effort.quick else _MANY if effort.large else _PEOPLE)
    )
    found = compared(effort, people)
    yield from _whole(found, people * (1 + DEGREE))
    yield Figure(
        "append 4 KiB to a file and sync it, this disk", "ms", _syncs(effort.scratch / "appended", effort.samples)
    )
    questions = found[OURS].ask["answers"]
    for question in questions:
        yield from _question(found, question)
    exact, approximate = (set(questions[name]["head"]) for name in (EXACT, APPROXIMATE))
    yield Figure(f"{APPROXIMATE}, of the exact answer", "%", (100 * len(exact & approximate) / len(exact),))
    yield Figure(_PUBLISH, "ms", tuple(found[OURS].ask["publish_ms"]), _PUBLISH_GOAL)
    left_out(RIVALS)


def left_out(names: Iterable[str]) -> None:
    """Raises LeftOutError if any of these systems is not there."""
    reasons = [f"{name} is not installed: {why}" for name in names if (why := absent(name))]
    if reasons:
        raise LeftOutError("; ".join(reasons))


@cache
def compared(effort: Effort, people: int) -> Mapping[str, Found]:
    """What every system that is here said about so many people, by its name. Raises RuntimeError if two answers differ.

    Measured once in a run: groups share it.
    """
    social = Social(people, people * DEGREE)
    folder = _prepared(effort, social)
    names = OURS, *(name for name in RIVALS if not absent(name))
    found = {name: _measured(effort, folder, social, name) for name in names}
    require_equal(found)
    rmtree(folder)
    return found


def absent(name: str) -> str | None:
    """How to install a system that is not there."""
    if name == SERVER:
        return None if installed() else "apt-get install postgresql"
    return None if find_spec(name.casefold()) else "pip install --require-hashes -r requirements-bench.lock"


@contextmanager
def running(name: str, folder: Path) -> Iterator[None]:
    """If the system is a server, it runs meanwhile, and its folder below `folder` has a link to that of its socket."""
    if name != SERVER:
        yield
        return
    with PostgresServer(_SETTINGS) as server:
        (folder / name).mkdir()
        (folder / name / "server").symlink_to(server.folder)
        yield


def _prepared(effort: Effort, social: Social) -> Path:
    """The folder of the files that the systems load."""
    kept = os.environ.get("GITOPS_BENCH_DATA")
    folder = effort.folder(f"graphs-{social.nodes}")
    files = folder if kept is None else Path(kept) / str(social.nodes)
    files.mkdir(parents=True, exist_ok=True)
    social.records(files)
    social.parquet(files)
    for path in () if files == folder else files.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def _syncs(path: Path, samples: int) -> tuple[float, ...]:
    """Milliseconds: no system can acknowledge a durable change sooner."""
    with path.open("wb", buffering=0) as file:

        def append() -> None:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())

        return repeated(samples, append)


def _measured(effort: Effort, folder: Path, social: Social, name: str) -> Found:
    def run(step: str) -> tuple[Mapping[str, Any], Usage]:
        sizes = (str(social.nodes), str(social.edges), str(effort.samples))
        argv = (sys.executable, "-m", "tests.bench.contender", name, step, str(folder), *sizes)
        usage = Program(argv, folder, effort.environment(), timeout_s=_TIMEOUT_S).run()
        return json.loads((folder / f"{name}-{step}.json").read_text(encoding="utf-8")), usage

    with running(name, folder):
        return Found(*run("load"), *run("ask"))


def require_equal(found: Mapping[str, Found]) -> None:
    """Raises RuntimeError if two systems answer a question differently."""
    for question, answer in found[OURS].ask["answers"].items():
        for name, other in found.items():
            theirs = other.ask["answers"].get(question, answer)
            if (theirs["rows"], theirs["digest"]) != (answer["rows"], answer["digest"]):
                detail = f"{name} has {theirs['rows']} rows, {OURS} has {answer['rows']}"
                raise RuntimeError(f"{question}: the answers differ: {detail}")


def _whole(found: Mapping[str, Found], rows: int) -> Iterator[Figure]:
    """What is no question."""
    for name, each in found.items():
        steps = each.load["steps"]
        for step, took in steps.items():
            yield Figure(f"{step}, {name}", "ms", (took,))
        yield Figure(f"load rate, with indexes, {name}", "1/s", (rows / sum(steps.values()) * 1000,))
        if name != SERVER:  # whose memory is not that of the process that asks
            yield Figure(f"load, peak memory, {name}", "MiB", (each.loading.peak_mib,))
            yield Figure(f"all questions, peak memory, {name}", "MiB", (each.asking.peak_mib,))
        yield Figure(f"size on disk, {name}", "MiB", (each.load["bytes"] / _MIB,))
        goal = _REOPEN_GOAL if name == OURS else None
        yield Figure(f"reopen and read one row, {name}", "ms", (each.ask["reopen_ms"],), goal)


def _question(found: Mapping[str, Found], question: str) -> Iterator[Figure]:
    rivals = []
    for name, each in found.items():
        answer = each.ask["answers"].get(question)
        if answer is None:
            continue
        goal = _GOALS.get(question) if name == OURS else None
        yield Figure(f"{question}, {name}", "ms", tuple(answer["ms"]), goal)
        if name != SERVER:  # which works in other processes
            yield Figure(f"{question}, CPU, {name}", "ms CPU", tuple(answer["cpu_ms"]))
        yield Figure(f"{question}, first, {name}", "ms", (answer["first_ms"],))
        if name != OURS:
            rivals.append(each.median(question))
    if rivals:
        goal = _SAME if question in _WALKS else _TWICE
        yield Figure(f"{question}, gitops : best rival", "x", (found[OURS].median(question) / min(rivals),), goal)
