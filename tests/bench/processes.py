"""Whole processes: start-up, and the reading verbs on a small cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.clusters import edit_query, write_cluster
from tests.bench.measure import GITOPS, Effort, Figure, Goals, Program, Usage, process_figures

_START_GOAL_MS = 60.0
_SMALL_GOAL_MS = 200.0
_SMALL_QUERIES = 40
# Larger than any that is generated.
_NEW_LIMIT = 20_000


def figures(effort: Effort) -> Iterator[Figure]:
    """Start-up and reading verbs."""
    yield from _start_up(effort)
    yield from _small(effort)


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


def _ratio(name: str, above: Sequence[Usage], below: Sequence[Usage]) -> Figure:
    """How many times as much CPU, of neighbouring processes of the same run."""
    return Figure(name, "x", tuple(a.cpu_ms / max(b.cpu_ms, 0.001) for a, b in zip(above, below, strict=True)))
