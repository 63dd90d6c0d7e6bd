"""Whole processes: start-up, and the reading verbs on a small cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.clusters import edit_query, write_cluster, write_wide_cluster
from tests.bench.engine import people
from tests.bench.measure import GITOPS, Effort, Figure, Goals, Program, Usage, process_figures

_START_GOAL_MS = 60.0
_SMALL_GOAL_MS = 200.0
_SMALL_QUERIES = 40
_STEADY_GOAL_MS, _STEADY_GRAPHS = 150.0, 50
_KEY_GOAL_MS, _KEY_ROWS, _FEW_ROWS = 150.0, 100_000, 1_000
_BY_KEY = "query q($k: String) { match { $p: Person { handle: $k } } return { $p.name, $p.age } }\n"
# Larger than any that is generated.
_NEW_LIMIT = 20_000


def figures(effort: Effort) -> Iterator[Figure]:
    """Start-up and reading verbs."""
    yield from _start_up(effort)
    yield from _small(effort)
    yield from _steady(effort)
    yield from _by_key(effort)


def _program(effort: Effort, folder: Path, *arguments: str) -> Program:
    return Program((*GITOPS, *arguments), folder, effort.environment())


def _fresh(effort: Effort, program: Program) -> tuple[Usage, ...]:
    """Several fresh processes, after one that leaves compiled modules and warm file caches behind."""
    program.run()
    return tuple(program.run() for _ in range(effort.processes))


def _start_up(effort: Effort) -> Iterator[Figure]:
    folder = effort.folder("start")
    empty = _fresh(effort, Program((sys.executable, "-c", "pass"), folder, effort.environment()))
    yield from process_figures("python, nothing to do", empty)
    goals = Goals(_START_GOAL_MS)
    for option in ("--version", "--help"):
        usages = _fresh(effort, _program(effort, folder, option))
        yield from process_figures(f"gitops {option}", usages, goals)
        yield _ratio(f"gitops {option} : python, CPU", usages, empty)


def _small(effort: Effort) -> Iterator[Figure]:
    folder = write_cluster(effort.folder("small"), graphs=1, queries=_SMALL_QUERIES)
    goals, label = Goals(_SMALL_GOAL_MS), f"1 graph, {_SMALL_QUERIES} queries"
    yield from process_figures(f"validate, {label}", _fresh(effort, _program(effort, folder, "validate")), goals)
    without = _fresh(effort, _program(effort, folder, "plan", "--no-cache"))
    yield from process_figures(f"plan, no ledger, no cache, {label}", without, goals)
    yield from process_figures(f"plan, no ledger, {label}", _fresh(effort, _program(effort, folder, "plan")), goals)
    _program(effort, folder, "--as", "bench", "import").run()
    applied = _program(effort, folder, "--as", "bench", "apply").run()
    yield from process_figures("apply, first: create the graph, 40 blobs", (applied,))
    yield from process_figures(f"plan, nothing to do, {label}", _fresh(effort, _program(effort, folder, "plan")), goals)
    edit_query(folder, _NEW_LIMIT)
    changed = _fresh(effort, _program(effort, folder, "plan"))
    yield from process_figures(f"plan, one query changed, {label}", changed, goals)
    yield from process_figures("status", _fresh(effort, _program(effort, folder, "status")))


def _steady(effort: Effort) -> Iterator[Figure]:
    """An apply that finds nothing to do."""
    folder = write_wide_cluster(effort.folder("steady"), graphs=_STEADY_GRAPHS)
    for verb in ("import", "apply"):
        _program(effort, folder, "--as", "bench", verb).run()
    usages = _fresh(effort, _program(effort, folder, "--as", "bench", "apply"))
    label = f"apply, nothing to do, {_STEADY_GRAPHS} graphs of 12 types"
    yield from process_figures(label, usages, Goals(cpu_ms=_STEADY_GOAL_MS))


def _by_key(effort: Effort) -> Iterator[Figure]:
    """One row by its key: from the key file, with Lance, and with Lance while the file is written."""
    folder = write_cluster(effort.folder("by key"), graphs=1, queries=1)
    rows = _FEW_ROWS if effort.quick else _KEY_ROWS
    (folder / "rows.ndjson").write_bytes(people(rows))
    (folder / "g0000" / "queries" / "q.gq").write_text(_BY_KEY)
    for arguments in (("import",), ("apply",), ("graph", "load", "g0000", "rows.ndjson")):
        _program(effort, folder, "--as", "bench", *arguments).run()
    query = ("graph", "query", "g0000", "q", "--param", f"k=p{rows // 2}")
    cached = _program(effort, folder, *query)
    driven = replace(cached, environ={**cached.environ, "GITOPS_CACHE": "off"})
    by_driver = _fresh(effort, driven)
    cached.run()
    yield from process_figures(f"graph query by key, {rows} rows, writes the key file", (cached.run(),))
    by_file = _fresh(effort, cached)
    yield from process_figures(f"graph query by key, {rows} rows, key file", by_file, Goals(cpu_ms=_KEY_GOAL_MS))
    yield from process_figures(f"graph query by key, {rows} rows, Lance", by_driver)
    yield _ratio("graph query by key, Lance : key file, CPU", by_driver, by_file)


def _ratio(name: str, above: Sequence[Usage], below: Sequence[Usage]) -> Figure:
    """How many times as much CPU, of neighbouring processes of the same run."""
    return Figure(name, "x", tuple(a.cpu_ms / max(b.cpu_ms, 0.001) for a, b in zip(above, below, strict=True)))
