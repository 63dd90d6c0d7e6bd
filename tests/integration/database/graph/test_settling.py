"""What a change makes durable on a disk, and what it leaves for the next ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gitops.database.graph import tables
from gitops.database.graph.bulk import load_parquet
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.migrate import purge_dropped
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import open_table
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, WrittenGraph

SCHEMA = """
node P { k: String @key  age: I32? @unique  doc: Blob? }
node Gone { k: String @key }
edge E: P -> P { w: I32? }
"""
LATER = SCHEMA.replace("w: I32?", "w: I32?  more: String?").replace("node Gone { k: String @key }\n", "")
HINT = "latest_version_hint.json"
WORK = WriteContext(CLOCK, SequentialIds(500_000))


def _blob(size: int) -> str:
    return f"base64:{'QUJD' * (size // 3)}"


def _migrate(graph: WrittenGraph) -> None:
    engine = LanceEngine(CLOCK, graph.ids)
    engine.prepare_migration(graph.uri, LATER.encode(), actor=None).publish()


def _load_parquet(graph: WrittenGraph) -> None:
    file = Path(graph.uri).with_name("p.parquet")
    pq.write_table(pa.table({"k": ["x", "y"]}), file)
    load_parquet(graph.uri, [("P", file)], WORK)


def _write_both_branches(graph: WrittenGraph) -> None:
    create_branch(graph.uri, "side", WORK)
    graph.mutate('update P set { age: 70 } where k = "a"', branch="side")
    graph.mutate('update P set { age: 71 } where k = "b"')


STEPS: dict[str, Callable[[WrittenGraph], object]] = {
    "create": lambda graph: graph.create(SCHEMA),
    "load small and large blobs": lambda graph: graph.load(
        [
            {"type": "P", "data": {"k": k, "doc": _blob(size)}}
            for k, size in zip("abc", (9, 300_000, 6_000_000), strict=True)
        ]
        + [{"edge": "E", "from": "a", "to": "b"}]
    ),
    "update": lambda graph: graph.mutate('update P set { age: 1 } where k = "a"'),
    "update a large blob": lambda graph: graph.mutate('update P set { age: 2 } where k = "c"'),
    "insert": lambda graph: graph.mutate('insert P { k: "d" }  insert E { from: "d", to: "a" }'),
    "delete": lambda graph: graph.mutate('delete P where k = "d"'),
    "write two branches": _write_both_branches,
    "merge": lambda graph: merge_branch(graph.uri, "side", "main", WORK),
    "delete the branch": lambda graph: delete_branch(graph.uri, "side", WORK),
    "load": lambda graph: graph.load([{"type": "P", "data": {"k": str(n), "age": n + 100}} for n in range(40)]),
    "load Parquet": _load_parquet,
    "index and compact": lambda graph: optimize_tables(graph.uri, WORK, OptimizeOptions(fragments=1, scalar_rows=1)),
    "insert beside an index": lambda graph: graph.mutate('insert P { k: "e", age: 900 }'),
    "refresh indexes": lambda graph: optimize_tables(graph.uri, WORK, OptimizeOptions(stale_rows=0)),
    "migrate": _migrate,
    "overwrite": lambda graph: graph.load(
        [{"type": "P", "data": {"k": k, "doc": _blob(300_000)}} for k in "ab"], LoadMode.OVERWRITE
    ),
    "purge": lambda graph: purge_dropped(graph.uri, WORK),
}


def test_what_a_change_makes_is_synced_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that a step leaves in a table, and every folder with a new name in it; the hint may be lost."""
    synced: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    # The small fragments of these few steps are joined, too.
    monkeypatch.setattr(tables, "_TIDY_FRAGMENTS", 2)
    graph = WrittenGraph(tmp_path / "g.omni")
    seen: set[Path] = set()
    for name, step in STEPS.items():
        synced.clear()
        step(graph)
        found = {place for place in Path(graph.uri).rglob("*.lance/**/*") if place.name != HINT}
        new = found - seen
        lost = {place for place in new if place.is_file() and place not in synced}
        lost |= {place.parent for place in new if place.parent not in synced}
        if name != "create":
            # Until its rename a new graph has another name.
            assert not lost, (name, lost)
        seen = {*seen, *found}
    assert verify_graph(graph.uri, deep=True).ok


def test_a_table_that_changes_often_stays_in_few_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining them changes no row, no id of the driver, and no version that was there before."""
    monkeypatch.setattr(tables, "_TIDY_FRAGMENTS", 4)
    graph = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    graph.load([{"type": "P", "data": {"k": str(n), "age": n}} for n in range(2000)])
    base = open_snapshot(graph.uri)
    for n in range(30):
        graph.mutate("update P set { age: $a } where k = $k", {"k": str(n % 7), "a": 5000 + n}, "$a: I32, $k: String")
    snapshot = open_snapshot(graph.uri)
    assert snapshot.manifest.n == base.manifest.n + 30
    parts = open_table(snapshot.folder, snapshot.manifest.tables["node:P"]).get_fragments()
    assert len(parts) <= 6
    # What was large is not written again for a few changed rows.
    assert parts[0].physical_rows == 2000
    ages = {row["k"]: row["age"] for row in graph.shown("P")}
    assert ages == {str(n): 5000 + max(range(n, 30, 7)) if n < 7 else n for n in range(2000)}
    assert open_table(base.folder, base.manifest.tables["node:P"]).count_rows() == 2000
    assert verify_graph(graph.uri, deep=True).ok
