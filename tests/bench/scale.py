"""Many small graphs in one cluster: what each of them costs must not depend on how many there are.

A folder ledger and the Lance engine on local disk; every graph has three tables and one query, and all queries are equal, as they
are where a cluster is generated. Each verb is a process of its own. The last figure of a verb is its CPU time per graph among
many, less that of a cluster with none, against the same among few: 1 means that the cost is linear. CPU time, since a step
that grows with the cluster is work and not waiting, and since it depends less on what else the machine does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.clusters import SCHEMA, query_text, widened
from tests.bench.measure import Effort, Figure, Goals, Program, Usage, process_figures

_WORKERS = 4
_LIMIT = 1.5
_SHORT = 200
_REPEATS = 9
_TIMEOUT_S = 900.0
_MEMORY_GOAL_MIB = 200.0
_QUERY = query_text("find", 10)
_EDITED = query_text("find", 11)


def figures(effort: Effort) -> Iterator[Figure]:
    """Create, plan, look, observe and change at two sizes, and how the cost per graph grows from one to the other."""
    few, many = (3, 6) if effort.quick else (100, 1000)
    none, small, large = (_life(effort, count) for count in (0, few, many))
    for verb, usage in large.items():
        yield from process_figures(f"{verb}, {many} graphs", (usage,), Goals(peak_mib=_MEMORY_GOAL_MIB))
        yield Figure(f"{verb}, per graph", "ms", (max(0.0, usage.wall_ms - none[verb].wall_ms) / many,))
        growth = _cpu(usage, none[verb], many) / _cpu(small[verb], none[verb], few)
        # Two sizes that are near say nothing about growth.
        yield Figure(f"{verb}, CPU per graph, {many} : {few}", "x", (growth,), None if effort.quick else _LIMIT)


def _life(effort: Effort, count: int) -> dict[str, Usage]:
    """What each verb takes on a cluster of `count` graphs, in the order of its life."""
    folder = _write(effort.folder(f"scale-{count}"), count, _QUERY)
    parallel = ("--parallel", str(_WORKERS))

    def run(*arguments: str) -> Usage:
        argv = (sys.executable, "-m", "gitops", "--as", "bench", *arguments)
        # What a step costs is asked here, and not how many of them can be left out.
        environ = {**effort.environment(), "GITOPS_CACHE": "off"}
        return Program(argv, folder, environ, timeout_s=_TIMEOUT_S).run()

    def best(verb: str) -> Usage:
        # A short run is mostly start-up: what can be repeated is, and the least disturbed run counts.
        return min(
            (run(verb) for _ in range(_REPEATS if count < _SHORT and not effort.quick else 1)), key=lambda u: u.cpu_ms
        )

    run("import")
    life = {"plan, everything new": best("plan"), "apply, everything new": run("apply", *parallel)}
    life |= {"plan, nothing to do": best("plan"), "status": best("status"), "refresh": best("refresh")}
    _write(folder, count, _EDITED)
    life |= {"plan, every query changed": best("plan"), "apply, every query changed": run("apply", *parallel)}
    return life


def _cpu(usage: Usage, start: Usage, count: int) -> float:
    """Milliseconds of CPU per graph; what a start takes is left out, and noise never makes it nothing."""
    return max(usage.cpu_ms - start.cpu_ms, 0.001) / count


def _write(folder: Path, graphs: int, query: str) -> Path:
    """A cluster of graphs with schemas of their own and one query each."""
    lines = ["version: 1", f"graphs:{'' if graphs else ' {}'}"]
    for number in range(graphs):
        graph = f"g{number:04}"
        below = folder / graph
        below.mkdir(exist_ok=True)
        (below / "schema.pg").write_text(widened(SCHEMA, f"of_{graph}"))
        (below / "find.gq").write_text(query)
        lines += [f"  {graph}:", f"    schema: {graph}/schema.pg", f"    queries: {graph}/find.gq"]
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n")
    return folder
