"""An adjacency that is brought to another version equals one that is built from that version."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import pytest

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode
from gitops.database.graph.query import tables
from gitops.database.graph.query.adjacency import Adjacency, build_adjacency
from gitops.database.graph.query.cache import ReadCache, WantedAdjacency
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.overlay import EndTables, OverlaidAdjacency
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from tests.support.effort import cases
from tests.support.ids import SequentialIds
from tests.support.query_graphs import CLOCK, NOW, ask, create, put, road, town, values

FREE = Budget(None, None)
SCHEMA = b"""
node Town { key: String @key  size: I32?  name: String? }
node Lake { key: String @key }
edge Road: Town -> Town { miles: I32? }
edge Shore: Town -> Lake
"""
EDGES = {"Road": "Town", "Shore": "Lake"}
CHANGES = [
    'update Town set {{ size: {n} }} where key = "t{a}"',
    'update Town set {{ size: {n} }} where key >= "t{a}"',
    'delete Town where key = "t{a}"',
    'insert Town {{ key: "t{n}" }}  insert Road {{ from: "t{n}", to: "t{b}" }}',
    'insert Town {{ key: "t{a}", size: {n} }}  insert Road {{ from: "t{a}", to: "t{a}" }}',
    'insert Road {{ from: "t{a}", to: "t{b}" }}  insert Road {{ from: "t{b}", to: "t{a}" }}',
    'delete Road where from = "t{a}"',
    'insert Lake {{ key: "l{n}" }}  insert Shore {{ from: "t{b}", to: "l{n}" }}',
    'delete Lake where key = "l{a}"',
    'delete Shore where from = "t{b}"',
]


def wanted(snapshot: Snapshot, edge: str, cache: ReadCache) -> WantedAdjacency:
    edges, source, target = (
        cache.table(snapshot, f"{key}") for key in (f"edge:{edge}", "node:Town", f"node:{EDGES[edge]}")
    )
    return WantedAdjacency.of(snapshot, EndTables(edges, source, target))


def described(adjacency: Adjacency | OverlaidAdjacency, tables: EndTables) -> list[object]:
    """Every edge from either end by row ids, and which nodes have any."""
    found: list[object] = [adjacency.edges]
    for out, table in ((True, tables.source), (False, tables.target)):
        nodes = table.whole(["id"], FREE).ids
        origins, ends, edges = adjacency.steps(nodes, out=out, budget=FREE)
        found.append(sorted(zip(nodes[origins].tolist(), ends.tolist(), edges.tolist(), strict=True)))
        found.append(nodes[adjacency.has_any(nodes, out=out)].tolist())
    return found


def equal_to_built(root: str, cache: ReadCache, version: int | None = None) -> list[bool]:
    """Whether each adjacency was there without building it; it equals one that is built."""
    brought = []
    for edge in EDGES:
        each = wanted(open_snapshot(root, ReadTarget(version=version)), edge, cache)
        found, tables = cache.stored(each, FREE, None), each.tables
        brought.append(found is not None)
        built = build_adjacency(tables.edges, tables.source, tables.target, FREE)
        assert described(cache.adjacency(each, FREE, None), tables) == described(built, tables)
    return brought


QUESTIONS = [
    'query q() { match { $a: Town { key: "t7" } } return { $a.size, $a.name } }',
    'query q() { match { $a: Town { name: "again" } } return { $a.key, $a.size } }',
    'query q() { match { $a: Town { key: "t3" } $a road{1,3} $b } return { $b.key, $b.name, $b.size } }',
    "query q() { match { $a: Town $a shore $b not { $a road $a } } return { $a.key, $b.key } }",
    "query q() { match { $a: Town } return { $a.name, count($a) as n, max($a.size) as m } }",
    "query q() { match { $a: Town } return { $a.key } order { $a.size desc } limit 5 }",
]


def answers(root: str, cache: ReadCache | None) -> list[object]:
    return [values(ask(root, text, cache=cache)) for text in QUESTIONS]


def mutate(root: str, text: str, ids: int) -> None:
    checked = check_query(parse_queries(f"query q() {{ {text} }}".encode())[0], open_snapshot(root).schema().catalog)
    Mutator(CLOCK, SequentialIds(ids)).run(root, checked, None, MutationOptions(now=NOW))


def filled(root: str) -> str:
    create(root, SCHEMA)
    lakes = [{"type": "Lake", "data": {"key": f"l{n}"}} for n in range(9)]
    put(root, [*(town(f"t{n}", size=n) for n in range(30)), *lakes])
    shores = [{"edge": "shore", "from": f"t{n}", "to": f"l{n % 9}", "data": {}} for n in range(20)]
    put(root, [*(road(f"t{n}", f"t{n * n % 30}") for n in range(30)), road("t3", "t3"), *shores], start=100_000)
    return root


@pytest.mark.parametrize("most", [12, 1_000], ids=["merged", "kept apart"])
@pytest.mark.parametrize("seed", range(cases(6)))
def test_what_is_brought_equals_what_is_built(
    tmp_path: Path, seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_LEAST", most)
    if seed % 2:
        # Deletions are asked of the driver, as in a bucket.
        monkeypatch.setattr(tables, "_LIST", "")
    root, cache = filled(str(tmp_path / "g.omni")), ReadCache()
    random, ids = np.random.default_rng(seed), count(200_000, 1_000)
    for _ in range(8):
        answers(root, cache)
    equal_to_built(root, cache)
    brought, recalled = [], []
    for _ in range(8):
        a, b = random.integers(0, 30, 2).tolist()
        put(root, [town(f"t{b}", name="again")], start=next(ids), mode=LoadMode.MERGE)
        mutate(root, str(random.choice(CHANGES)).format(a=a, b=b, n=next(ids)), next(ids))
        brought += equal_to_built(root, cache)
        assert answers(root, cache) == answers(root, None)
        recalled.append(cache.table(open_snapshot(root), "node:Town").other is not None)
    # At most so many rows at once are brought.
    assert all(brought) and all(recalled) if most == 1_000 else sum(brought) > 3
    # Also back to what it was, through the differences of all versions at once.
    equal_to_built(root, cache, version=3)
    optimize_tables(root, WriteContext(CLOCK, SequentialIds(next(ids))), OptimizeOptions(fragments=1, scalar_rows=1))
    equal_to_built(root, cache)


def test_a_property_that_is_declared_again_is_not_remembered(tmp_path: Path) -> None:
    root, cache = filled(str(tmp_path / "g.omni")), ReadCache()
    text = 'query q() { match { $a: Town { key: "t7" } } return { $a.size } }'
    for _ in range(8):
        assert values(ask(root, text, cache=cache)) == [7]
    for source in (SCHEMA.replace(b"size: I32?", b""), SCHEMA):
        LanceEngine(CLOCK, SequentialIds(900_000)).prepare_migration(root, source, actor=None).publish()
    assert values(ask(root, text, cache=cache)) == [None]
