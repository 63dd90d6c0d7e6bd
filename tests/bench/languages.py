"""The two languages: importing them, per file in a warm process, and a large cluster of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count

from tests.bench.clusters import SCHEMA, query_text, widened, write_cluster
from tests.bench.measure import GITOPS, ROOT, Effort, Figure, Goals, Program, clocked, process_figures, repeated

_IMPORT = """
import time
start = time.perf_counter_ns()
import {0}
print(time.perf_counter_ns() - start)
"""
_NS_PER_MS = 1e6
_IMPORT_GOAL_MS = 15.0
_FILES_GOAL_MS = 2500.0
_MEMORY_GOAL_MIB = 150.0
_TEXTS = count(1_000_000)


def figures(effort: Effort) -> Iterator[Figure]:
    """Import both; compile a schema, plan a migration, parse and check a query; load many query files."""
    yield from _imports(effort)
    yield from _one_file(effort)
    yield from _many_files(effort)


def _imports(effort: Effort) -> Iterator[Figure]:
    names = "gitops.database.language.query, gitops.database.language.schema"
    argv = [sys.executable, "-c", _IMPORT.format(names)]
    environ = effort.environment()
    found = [
        int(subprocess.run(argv, env=environ, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout)
        for _ in range(effort.processes + 1)
    ]
    yield Figure("import both languages", "ms", tuple(ns / _NS_PER_MS for ns in found[1:]), _IMPORT_GOAL_MS)


def _one_file(effort: Effort) -> Iterator[Figure]:
    from gitops.database.language.query import check_query, parse_queries
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.schema.migration import plan_migration

    inner = 5 if effort.quick else 50
    source, query = SCHEMA.encode(), query_text("q", 7).encode()
    schema, wider = compile_schema(source), compile_schema(widened(SCHEMA, "email").encode())
    parsed = parse_queries(query)[0]
    samples = effort.samples
    yield Figure("compile a schema file", "ms", repeated(samples, lambda: compile_schema(source), inner=inner))
    yield Figure("plan a migration", "ms", repeated(samples, lambda: plan_migration(schema, wider), inner=inner))
    yield Figure("parse a query file", "ms", repeated(samples, lambda: parse_queries(query), inner=inner))
    yield Figure("check a query", "ms", repeated(samples, lambda: check_query(parsed, schema.catalog), inner=inner))


def _many_files(effort: Effort) -> Iterator[Figure]:
    """One graph with many query files, in memory; then what a process on a disk takes."""
    from gitops.cluster.config.cache import Hints, MemoryCache
    from gitops.cluster.config.load import load_desired
    from gitops.cluster.config.source import MemoryTree

    number = 100 if effort.quick else 10_000
    folder = write_cluster(effort.folder("files"), graphs=1, queries=number)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    cache = MemoryCache()

    def warm() -> None:
        load_desired(MemoryTree(files), hints=Hints(MemoryTree(files), cache))

    def changed() -> None:
        files["g0000/queries/q000.gq"] = query_text("q000", next(_TEXTS)).encode()
        warm()

    cold = tuple(clocked(lambda: load_desired(MemoryTree(files)))[1] for _ in range(3))
    yield Figure(f"load {number} query files", "ms", cold, _FILES_GOAL_MS)
    yield Figure(f"load {number} query files, empty cache", "ms", (clocked(warm)[1],), _FILES_GOAL_MS)
    yield Figure(f"load {number} query files, nothing changed", "ms", repeated(effort.processes, warm))
    yield Figure(f"load {number} query files, one changed", "ms", repeated(effort.processes, changed))
    environ = {**effort.environment(), "GITOPS_CACHE": "off"}
    usage = Program((*GITOPS, "plan"), folder, environ).run()
    yield from process_figures(f"plan, no cache, 1 graph, {number} queries", (usage,), Goals(peak_mib=_MEMORY_GOAL_MIB))
