"""Reads of the LDBC Social Network Benchmark (Interactive) on a network after its schema, in our engine and in its rivals.

All answers must be equal, cell by cell and in order, or there is no benchmark. This is no audited run of that benchmark: the
network is smaller, its texts are made up, nothing is written meanwhile, and reads that `.gq` cannot say are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from tests.bench.graphs import OURS, RIVALS, SERVER, absent, left_out, running
from tests.bench.measure import Effort, Figure, Program

_MANY, _PEOPLE, _FEW = 10_000, 1_000, 60
_TIMEOUT_S = 7200.0


def figures(effort: Effort) -> Iterator[Figure]:
    """Load, then each query: milliseconds of one call, and against the fastest of the others."""
    people = _FEW if effort.quick else _MANY if effort.large else _PEOPLE
    folder = effort.folder("snb")
    found: dict[str, Mapping[str, Any]] = {}
    for name in (OURS, *(name for name in RIVALS if not absent(name))):
        argv = (sys.executable, "-m", "tests.bench.snb_systems", name, str(folder), str(people), str(effort.samples))
        with running(name, folder):
            Program(argv, folder, effort.environment(), timeout_s=_TIMEOUT_S).run()
        found[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        yield Figure(f"load a network of {people:,} people, with indexes, {name}", "ms", (found[name]["load_ms"],))
    queries = {name: each["queries"] for name, each in found.items()}
    require_equal(queries)
    for query in queries[OURS]:
        yield from _query(query, {name: each[query] for name, each in queries.items()})
    left_out(RIVALS)


def _query(query: str, taken: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    for name, each in taken.items():
        yield Figure(f"{query}, {name}", "ms", tuple(each["ms"]))
        if name != SERVER:
            yield Figure(f"{query}, CPU, {name}", "ms CPU", tuple(each["cpu_ms"]))
    medians = [median(each["ms"]) for name, each in taken.items() if name != OURS]
    if medians:
        yield Figure(f"{query}, {OURS} : best rival", "x", (median(taken[OURS]["ms"]) / min(medians),))


def require_equal(queries: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises RuntimeError if two systems answer a query differently. `queries`: by system and name, each with its `rows`."""
    for query, answer in queries[OURS].items():
        for name, each in queries.items():
            if each[query]["rows"] != answer["rows"]:
                raise RuntimeError(f"{query}: {name} and {OURS} answer differently")
