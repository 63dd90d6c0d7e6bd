"""Checked and converting steps of a migration, beside the count queries and `ALTER TABLE` of DuckDB.

Each step runs in a process of its own, on a table of that size on the disk. DuckDB's table is checkpointed after it changes, as
ours is durable then. ladybug cannot change the type of a property.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.bench.growth import exponent
from tests.bench.measure import NS_PER_MS, ROOT, Effort, Figure, LeftOutError

_SIZES, _FEW = (10_000, 1_000_000, 10_000_000), (200, 2_000)
_PIECE = 1_000_000
_RATIO, _PEAK_MIB = 2.0, 300.0
_KIB_PER_MIB = 1024
_BEFORE = "node Item {\n    number: I32\n    code: I64\n    text: String\n    note: String?\n}\n"
CHECKS: Mapping[str, tuple[str, str, str]] = {
    "check a range": (
        "text: String\n",
        "text: String\n    @range(number, 0..100000000)\n",
        "number < 0 OR number > 100000000",
    ),
    "check a required property": ("note: String?", "note: String", "note IS NULL"),
    "check a unique group": ("code: I64", "code: I64 @unique", ""),
    "check that texts are numbers": ("text: String\n", "text: I32\n", "TRY_CAST(text AS INTEGER) IS NULL"),
}
"""Each check: what changes in our schema, and the rows that DuckDB looks for."""

CONVERSIONS: Mapping[str, tuple[str, str, str]] = {
    "convert I32 to I64": ("number: I32", "number: I64", "ALTER number TYPE BIGINT"),
    "convert text to I32": ("text: String\n", "text: I32\n", "ALTER text TYPE INTEGER"),
}
_UNIQUE = "SELECT count(*) - count(DISTINCT code) FROM item"


def figures(effort: Effort) -> Iterator[Figure]:
    """Times and memory by size, their growth, and how many times as long as DuckDB a step takes. Raises LeftOutError."""
    sizes = _FEW if effort.quick else _SIZES
    rivals = find_spec("duckdb") is not None
    for step in (*CHECKS, *CONVERSIONS):
        took: dict[int, float] = {}
        for rows in sizes:
            ours = _asked("ours", rows, step, effort)
            took[rows] = ours["ms"]
            yield Figure(f"{step}, {rows:,} rows", "ms", (ours["ms"],))
            if step in CONVERSIONS:
                yield Figure(f"{step}, {rows:,} rows, memory", "MiB", (ours["peak_mib"],), _PEAK_MIB)
            if rivals:
                duck = _asked("duckdb", rows, step, effort)
                yield Figure(f"{step}, {rows:,} rows, DuckDB", "ms", (duck["ms"],))
                goal = None if effort.quick or rows < _PIECE else _RATIO
                yield Figure(f"{step}, {rows:,} rows, ours : DuckDB", "x", (ours["ms"] / duck["ms"],), goal)
        yield Figure(f"{step}, growth with rows", "exponent", (exponent(list(took), list(took.values())),))
    if not rivals:
        raise LeftOutError("DuckDB is not installed, so its part is left out")


def _asked(system: str, rows: int, step: str, effort: Effort) -> Mapping[str, float]:
    folder = effort.folder(f"{system}-{rows}-{step.replace(' ', '-')}")
    argv = [sys.executable, "-m", __name__, system, str(rows), str(folder), step]
    found: Mapping[str, float] = {}
    for job in ("build", "run"):
        done = subprocess.run([*argv, job], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{argv}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout)
    return found


def _columns(start: int, count: int) -> Any:
    import pyarrow as pa

    numbers = range(start, start + count)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "code": pa.array(numbers, pa.int64()),
            "text": pa.array(numbers, pa.int64()).cast(pa.string()),
            "note": pa.array(["a note"], pa.string()).take(pa.array([0] * count)),
        }
    )


def _ours(rows: int, folder: Path, step: str) -> tuple[Callable[[], object], Callable[[], object]]:
    # As DuckDB, the program is loaded before the time is taken.
    import gitops.database.graph.migrate
    import gitops.database.graph.step_counts  # noqa: F401 - see above
    from gitops.database.graph.engine import LanceEngine
    from gitops.database.graph.snapshot import open_snapshot
    from gitops.database.graph.staged import StagedVersion, WriteContext
    from gitops.database.graph.tables import TableWriter, arrow_schema
    from gitops.repository.wiring.system import RandomIds, SystemClock

    clock, ids, uri = SystemClock(), RandomIds(), str(folder / "g.omni")
    engine = LanceEngine(clock, ids)
    old, new, _ = {**CHECKS, **CONVERSIONS}[step]
    source = _BEFORE.replace(old, new).encode()

    def build() -> None:
        import pyarrow as pa

        engine.prepare_create(uri, _BEFORE.encode(), actor=None).publish()
        base = open_snapshot(uri)
        entry, declared = base.manifest.tables["node:Item"], base.schema().catalog.nodes["Item"]
        writer, staged = TableWriter(base.folder, entry), []
        for start in range(0, rows, _PIECE):
            count = min(_PIECE, rows - start)
            columns = _columns(start, count).append_column("id", pa.array(ids.ulids(count), pa.string()))
            schema = arrow_schema(declared)
            staged += writer.stage(columns.select(schema.names).cast(schema))
        writer.exchange(staged, ())
        tables = {**base.manifest.tables, "node:Item": writer.finish(recount=True)}
        StagedVersion(base, "load", WriteContext(clock, ids), tables=tables).publish()

    def check() -> None:
        (count,) = engine.count_steps(uri, source)
        if count is None or count.breaking or count.rows != rows:
            raise RuntimeError(f"{step}: {count}")

    def convert() -> None:
        engine.prepare_migration(uri, source, actor=None).publish()

    return build, check if step in CHECKS else convert


def _duckdb(rows: int, folder: Path, step: str) -> tuple[Callable[[], object], Callable[[], object]]:
    import duckdb

    connection = duckdb.connect(str(folder / "table"))

    def build() -> None:
        connection.execute("CREATE TABLE item(id BIGINT, number INTEGER, code BIGINT, text VARCHAR, note VARCHAR)")
        connection.execute(
            f"INSERT INTO item SELECT i, i, i, i::VARCHAR, 'a note' FROM range({rows}) t(i)"  # noqa: S608 - a number
        )
        connection.execute("CHECKPOINT")

    def check() -> None:
        broken = CHECKS[step][2]
        question = f"SELECT count(*) FROM item WHERE {broken}" if broken else _UNIQUE  # noqa: S608 - from above
        if connection.execute(question).fetchall() != [(0,)]:
            raise RuntimeError(step)

    def convert() -> None:
        connection.execute(f"ALTER TABLE item {CONVERSIONS[step][2]}")
        connection.execute("CHECKPOINT")

    return build, check if step in CHECKS else convert


def main(system: str, rows: int, folder: Path, step: str, job: str) -> None:
    """Build a table, or carry out one step on it and print what it took."""
    build, run = {"ours": _ours, "duckdb": _duckdb}[system](rows, folder, step)
    if job == "build":
        build()
        print("{}")
        return
    start = time.monotonic_ns()
    run()
    took = (time.monotonic_ns() - start) / NS_PER_MS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB
    print(json.dumps({"ms": took, "peak_mib": peak}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])
