"""What a graph costs as it grows: every question of the group `graphs` at several sizes, and a change after many others.

The exponent of a question is the slope of the logarithm of its time over that of the size: 0 where size costs nothing, and 1
where all of the time grows with the size. It is taken from the CPU time of the fastest samples, since a machine that does other
work makes a sample slower, and of PostgreSQL, which works in other processes, from the time.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import linear_regression

from tests.bench.contender import AGAIN
from tests.bench.graphs import DEGREE, OURS, SERVER, Found, compared
from tests.bench.measure import NS_PER_MS, BeyondBoundError, Effort, Figure, clocked
from tests.bench.ours import Ours
from tests.bench.rivals import CHANGE, CHECKPOINTED
from tests.bench.social import Social

_PEOPLE, _FEW = (1_000, 10_000, 100_000), (100, 300)
_MANY = 1_000_000
_STEADY = {
    "point",
    "1 hop",
    "2 hops",
    "{1,3} hops",
    CHANGE,
    CHECKPOINTED,
    "reopen and read one row",
    *(f"{question} after a change" for question in AGAIN),
}
"""What may not grow with the graph; anything else reads all of it and may grow as it does."""

# With ten times the size, a time may double; or grow a little faster than the size.
_STEADY_BOUND, _SCAN_BOUND = 0.3, 1.2
_ROWS, _FEW_ROWS = (10_000, 100_000, 1_000_000), (200, 400)
_CHANGE_GOAL_MS = 25.0
_COMMITS, _MANY_COMMITS, _FEW_COMMITS = (10, 100, 1_000), (10, 100, 1_000, 10_000), (5, 20)
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder below it is private


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """How fast times grow with sizes; see the module."""
    return linear_regression([math.log(size) for size in sizes], [math.log(took) for took in times]).slope


def figures(effort: Effort) -> Iterator[Figure]:
    """Times by size with their exponents, then changes of large tables and of long histories. Raises BeyondBoundError."""
    beyond: list[str] = []
    for figure in chain(_questions(effort), _tables(effort), _histories(effort)):
        yield figure
        # Of a short run the sizes are too small: what is always there hides the rest.
        if figure.unit == "exponent" and figure.goal is not None and figure.median > figure.goal and not effort.quick:
            beyond.append(f"{figure.name} is {figure.median:.2f}, and may be {figure.goal}")
    if beyond:
        raise BeyondBoundError("; ".join(beyond))


def _questions(effort: Effort) -> Iterator[Figure]:
    people = _FEW if effort.quick else (*_PEOPLE, _MANY) if effort.large else _PEOPLE
    found = {count * DEGREE: compared(effort, count) for count in people}
    for name in next(iter(found.values())):
        series = {edges: _samples(each[name], "ms" if name == SERVER else "cpu_ms") for edges, each in found.items()}
        for question in next(iter(series.values())):
            samples = {edges: each[question] for edges, each in series.items()}
            yield from _grown(f"{question}, {name}", samples, "edges", ours=name == OURS, steady=question in _STEADY)


def _samples(found: Found, clock: str) -> Mapping[str, Sequence[float]]:
    """What took how many milliseconds, by the clock of this name."""
    answers = {question: answer[clock] for question, answer in found.ask["answers"].items()}
    load = found.loading.cpu_ms if clock == "cpu_ms" else sum(found.load["steps"].values())
    return {"load, with indexes": (load,), "reopen and read one row": (found.ask[f"reopen_{clock}"],), **answers}


def _grown(
    what: str, samples: Mapping[int, Sequence[float]], unit: str, *, ours: bool, steady: bool
) -> Iterator[Figure]:
    """The times of our engine at each size; and how they grow, of every system."""
    for size, each in samples.items() if ours else ():
        yield Figure(f"{what}, {size:,} {unit}", "ms CPU", tuple(each))
    sizes, least = tuple(samples), [min(each) for each in samples.values()]
    yield Figure(f"{what}, growth with {unit}", "exponent", (exponent(sizes, least),))
    if ours:
        # What costs nothing at first would hide here what grows later.
        bound = _STEADY_BOUND if steady else _SCAN_BOUND
        yield Figure(f"{what}, growth with {unit} at the end", "exponent", (exponent(sizes[-2:], least[-2:]),), bound)


def _tables(effort: Effort) -> Iterator[Figure]:
    """One client that changes one row of a table of so many rows, on the disk."""
    took: dict[int, Sequence[float]] = {}
    used: dict[int, Sequence[float]] = {}
    for rows in _FEW_ROWS if effort.quick else _ROWS:
        folder = effort.folder(f"rows-{rows}")
        change = _loaded(folder, rows).questions()[CHANGE]
        change()
        took[rows] = [clocked(change)[1] for _ in range(effort.samples)]
        used[rows] = [_cpu(change) for _ in range(effort.samples)]
        shutil.rmtree(folder)
    *_, most = took
    yield Figure(f"{CHANGE} of a table of {most:,} rows", "ms", tuple(took[most]), _CHANGE_GOAL_MS)
    yield from _grown(f"{CHANGE} of a table", used, "rows", ours=True, steady=True)


def _histories(effort: Effort) -> Iterator[Figure]:
    """The CPU time of a change, and of a read by a process that opens the graph, after so many changes.

    Where memory is a folder, the graph is there: ten thousand changes would wait for a disk for minutes.
    """
    changed: dict[int, Sequence[float]] = {}
    opened: dict[int, Sequence[float]] = {}
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else effort.scratch) as place:
        folder, done = Path(place), 0
        graph = _loaded(folder, _FEW_ROWS[0])
        change = graph.questions()[CHANGE]
        for commits in _FEW_COMMITS if effort.quick else _MANY_COMMITS if effort.large else _COMMITS:
            for _ in range(done, commits):
                change()
            changed[commits] = [_cpu(change) for _ in range(effort.samples)]
            opened[commits] = [
                _cpu(Ours(folder / OURS, graph.social).questions()["point"]) for _ in range(effort.samples)
            ]
            done = commits + effort.samples
    yield from _grown(CHANGE, changed, "commits", ours=True, steady=True)
    yield from _grown("open and read one row", opened, "commits", ours=True, steady=True)


def _loaded(folder: Path, rows: int) -> Ours:
    """A graph with a table of so many rows."""
    (folder / OURS).mkdir()
    graph = Ours(folder / OURS, Social(rows, DEGREE, dimension=2))
    steps = graph.load()
    for step in ("load", "index"):
        steps[step]()
    return graph


def _cpu(call: Callable[[], object]) -> float:
    start = time.process_time_ns()
    call()
    return (time.process_time_ns() - start) / NS_PER_MS
