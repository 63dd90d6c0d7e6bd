"""Ways to the same answer: strategies, adjacency kept in memory, and reading by the addresses of rows."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.query import adjacency, expand, plan, run, tables
from gitops.database.graph.query.adjacency import Adjacency, AdjacencyFolder, NodeNumbering
from gitops.database.graph.query.bindings import SortedTexts, searchable, sorted_cells
from gitops.database.graph.query.cache import ReadCache, WantedAdjacency
from gitops.database.graph.query.compiled import bind_read
from gitops.database.graph.query.options import Budget, QueryOptions, Strategy
from gitops.database.graph.query.overlay import EndTables
from gitops.database.graph.query.tables import (
    ReadTable,
    ResidentColumns,
    RowOrder,
)
from gitops.database.graph.search import VectorMatrix
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import raw_type
from gitops.database.language.query import check_query, parse_queries
from tests.support.effort import cases
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.query_graphs import CLOCK, NOW, ask, create, put, road, town, towns, values

DATA = ROOT / "tests" / "data" / "explain.json"
NODES = 90
PAIRS = (
    [(n, (n * n + 1) % NODES) for n in range(NODES)]
    + [(n, n) for n in range(0, NODES, 9)]
    + [((n * 7) % NODES, (n * 3) % NODES) for n in range(2 * NODES)]
)
MATCHES = [
    '$a: Town  $b: Town {key: "t10"}  $a road $b',
    '$a: Town  $a road{1,3} $b  $b.key = "t10"',
    '$a: Town  $a road{2,3} $b  $c: Town {key: "t3"}  $b road $c',
    '$a: Town  $a $e:road $b  $b $f:road $c  $c.key = "t10"',
    '$a: Town  $a <road>{1,2} $b  $b.key = "t6"  not { $a road $b }',
    '$a: Town  $a road $_  $a road $b  $b.name = "name 1"  $b.key = "t6"',
    "$a: Town  $b: Town  $a.name = $b.name  $a.size > $b.size",
    "$a: Town  $a.size >= 5  $a road $b  $b road $a",
    '$a: Town  $b: Town {key: "t1"}  $a road $c  $b road $d  $c.size = $d.size',
    '$a: Town  not { $a road{1,2} $b  $b.key = "t9" }',
    '$a: Town  not { $b: Town {key: "t5"}  $b road $a }',
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), NODES, PAIRS)


def both(text: str) -> str:
    return f"query q() {{ match {{ {text} }} return {{ $a.key, $a.size }} }}"


@pytest.mark.parametrize("match", MATCHES)
def test_every_strategy_gives_the_same_rows_in_the_same_order(graph: str, match: str) -> None:
    found = [values(ask(graph, both(match), strategy=each)) for each in Strategy]
    assert found[0]
    assert all(rows == found[0] for rows in found)


@pytest.mark.parametrize("match", MATCHES)
def test_where_a_walk_starts_makes_no_difference(graph: str, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for factor in (10**9, 20, 0.001):
        monkeypatch.setattr(plan, "_BETTER", factor)
        found.append(values(ask(graph, both(match))))
    assert found[0] == found[1] == found[2]


def operators(result: Any) -> list[str]:
    return [each["operator"] for each in result.explanation]


def test_a_walk_starts_where_there_are_few(graph: str) -> None:
    late = '$a: Town  $a road $b  $b.key = "t10"'
    assert operators(ask(graph, both(late), explain=True)) == ["scan", "expand", "sort"]
    steps = '$a: Town  $a road{1,2} $b  $b.key = "t10"'
    assert operators(ask(graph, both(steps), explain=True)) == ["scan", "expand", "sort"]
    far = '$a: Town  $a road{2,2} $b  $b.key = "t10"'
    assert operators(ask(graph, both(far), explain=True)) == ["scan", "expand"], "from its far end it is another hop"


@pytest.mark.parametrize("name", json.loads(DATA.read_text()))
def test_an_explanation_is_as_recorded(graph: str, name: str) -> None:
    case = json.loads(DATA.read_text())[name]
    strategy = Strategy(case.get("strategy", "auto"))
    result = ask(graph, case["query"], case.get("params"), explain=True, strategy=strategy)
    assert list(result.explanation) == case["operators"]
    assert "secret" not in json.dumps(result.explanation)


def test_nothing_is_explained_unasked(graph: str) -> None:
    assert ask(graph, both(MATCHES[0])).explanation == ()


def test_an_index_makes_no_difference_to_the_rows(graph: str, tmp_path: Path) -> None:
    copy = tmp_path / "i.omni"
    shutil.copytree(graph, copy)
    put(str(copy), [town("far away")], start=200_000)
    before = open_snapshot(str(copy))
    done = optimize_tables(
        str(copy), WriteContext(CLOCK, SequentialIds(900_000)), OptimizeOptions(fragments=2, scalar_rows=1)
    )
    assert done.tables.keys() == {"node:Town", "edge:Road"}
    snapshot = open_snapshot(str(copy))
    for match in MATCHES:
        expected = values(ask(before, both(match)))
        assert [values(ask(snapshot, both(match), strategy=each)) for each in Strategy] == [expected] * 4
    assert ReadCache().table(snapshot, "edge:Road").indexed >= {"src", "dst"}


def chosen(result: Any) -> list[str]:
    return [each["strategy"] for each in result.explanation if "strategy" in each]


def test_what_is_asked_decides_how(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, far = '$a: Town {key: "t1"}  $a road $b', "$a: Town  $a road{1,3} $b"
    cache = ReadCache()
    monkeypatch.setattr(expand, "_ROUND", 0)
    monkeypatch.setattr(expand, "_ASKED", 0)
    assert chosen(ask(graph, both(one), explain=True, cache=cache)) == ["index"], "little is asked of a small table"
    monkeypatch.setattr(expand, "_FEW", 100)
    assert chosen(ask(graph, both(far), explain=True)) == ["csr"], "much is asked"
    assert chosen(ask(graph, both("$a: Town  $a road $b"), explain=True)) == ["scan"], "one step, and nothing is kept"
    assert chosen(ask(graph, both("$a: Town  $a road $b"), explain=True, cache_dir=tmp_path)) == ["csr"]
    assert chosen(ask(graph, both(far), explain=True, cache=cache)) == ["csr"]
    assert chosen(ask(graph, both(one), explain=True, cache=cache)) == ["csr"], "what is in memory is taken"
    assert chosen(ask(graph, both(one), explain=True, cache_dir=tmp_path)) == ["index"], "a file costs to open"
    assert chosen(ask(graph, both(one), explain=True, cache_dir=tmp_path, cache=ReadCache())) == ["csr"], (
        "but once only"
    )
    monkeypatch.setattr(expand, "_FEW", 20)
    deep = '$a: Town {key: "t1"}  $a road{1,3} $b'
    assert chosen(ask(graph, both(one), explain=True)) == ["index"]
    assert chosen(ask(graph, both(deep), explain=True)) == ["csr"], "every step multiplies what is asked"
    monkeypatch.setattr(expand, "_FEW", 100)
    monkeypatch.setattr(expand, "_MOST_EDGES", 10)
    assert chosen(ask(graph, both(far), explain=True)) == ["scan"], "too many edges to build"
    monkeypatch.setattr(expand, "_SMALL", 10)
    monkeypatch.setattr(expand, "_MOST_EDGES", 10**9)
    assert chosen(ask(graph, both(one), explain=True, cache_dir=tmp_path)) == ["csr"], (
        "no index, and the table is not small"
    )


def test_what_is_asked_often_is_walked_in_memory(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = both('$a: Town {key: "t1"}  $a road $b')
    monkeypatch.setattr(expand, "_ROUND", 150)
    monkeypatch.setattr(expand, "_ASKED", 0)

    def five(**limits: Any) -> list[list[str]]:
        cache = ReadCache()
        found = [ask(graph, one, explain=True, cache=cache, **limits) for _ in range(5)]
        assert [values(each) for each in found] == [values(ask(graph, one))] * 5
        return [chosen(each) for each in found]

    assert five(memory_bytes=2**24, timeout_s=60) == [["index"]] * 3 + [["csr"]] * 2
    assert five(memory_bytes=2**14) == [["index"]] * 5, "what does not fit is done without"
    assert [chosen(ask(graph, one, explain=True)) for _ in range(5)] == [["index"]] * 5, "nothing is kept"
    monkeypatch.setattr(expand, "_AHEAD_IN_S", 1)
    assert five(timeout_s=60) == [["index"]] * 5, "a query with a deadline builds only what is soon done"


def test_several_steps_over_few_edges_are_walked_in_memory(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deep, one = '$a: Town {key: "t1"}  $a road{1,2} $b', '$a: Town {key: "t1"}  $a road $b'
    assert chosen(ask(graph, both(deep), explain=True)) == ["csr"]
    assert chosen(ask(graph, both(one), explain=True)) == ["index"]
    assert chosen(ask(graph, both(deep), explain=True, memory_bytes=2**30)) == ["index"], "it takes no memory unasked"
    monkeypatch.setattr(expand, "_ROUND", 10)
    monkeypatch.setattr(expand, "_ASKED", 1)
    assert chosen(ask(graph, both(deep), explain=True)) == ["index"], "there are too many edges for that"


PAIRINGS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)


@settings(max_examples=cases(25), deadline=None)
@given(pairs=PAIRINGS, low=st.integers(1, 3), more=st.integers(0, 3))
def test_a_hop_reaches_what_walking_edge_by_edge_reaches(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], low: int, more: int
) -> None:
    root = towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 6, pairs)
    cache = ReadCache()
    for arrow, ways in (("road", pairs), ("<road>", [*pairs, *((b, a) for a, b in pairs)])):
        expected = sorted(walked(ways, low, low + more))
        text = f"query q() {{ match {{ $a: Town  $a {arrow}{{{low},{low + more}}} $b }} return {{ $a.key, $b.key }} }}"
        for each in Strategy:
            assert sorted(values(ask(root, text, strategy=each, cache=cache))) == expected


def walked(ways: list[tuple[int, int]], low: int, high: int) -> set[tuple[str, str]]:
    found = set()
    for start in range(6):
        depths, depth, here = {start: 0}, 0, {start}
        while here and depth < high:
            depth += 1
            here = {b for a, b in ways if a in here} - depths.keys()
            depths.update(dict.fromkeys(here, depth))
        found |= {
            (f"t{start}", f"t{node}")
            for node, at in depths.items()
            if low <= at or ((node, node) in ways and low <= at + 1 <= high)
        }
    return found


def test_threads_share_what_they_read(graph: str) -> None:
    cache = ReadCache()
    expected = values(ask(graph, both(MATCHES[1])))
    snapshot = open_snapshot(graph)
    found: list[Any] = []
    barrier = threading.Barrier(6)

    def work(strategy: Strategy) -> None:
        barrier.wait()
        asked = (MATCHES[1], MATCHES[4], MATCHES[1])
        found.extend((match, values(ask(snapshot, both(match), strategy=strategy, cache=cache))) for match in asked)

    threads = [threading.Thread(target=work, args=(each,)) for each in (*Strategy, Strategy.CSR, Strategy.AUTO)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 18
    assert all(rows == expected for match, rows in found if match == MATCHES[1])


def test_a_cache_too_small_for_anything_changes_nothing(graph: str) -> None:
    cache = ReadCache(max_bytes=1)
    for match in MATCHES:
        assert values(ask(graph, both(match), strategy=Strategy.CSR, cache=cache)) == values(ask(graph, both(match)))


def test_work_is_cut_into_parts(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [values(ask(graph, both(match))) for match in MATCHES]
    small = {expand: ("_FIRST", "_PAIRS", "_PROBE"), run: ("_OUTER", "_PRODUCT", "_FEW")}
    for place, names in {**small, tables: ("_PROBE",), adjacency: ("_BATCH",)}.items():
        for name in names:
            monkeypatch.setattr(place, name, 20)
    for each in (Strategy.CSR, Strategy.INDEX, Strategy.SCAN):
        assert [values(ask(graph, both(match), strategy=each)) for match in MATCHES] == expected


FREE = Budget(None, None)
ADJACENCY_PAIRS = [(0, 1), (0, 1), (1, 2), (2, 2), (3, 0), (2, 0), (4, 4)]
NEXT = 'query q() { match { $t: Town {key: "t0"} $t road{1,3} $u } return { $u.key } order { $u.key } }'
KEY = "k" * 64


@pytest.fixture(scope="module")
def graph_of_adjacency(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 6, ADJACENCY_PAIRS)


@pytest.fixture(scope="module")
def kept_adjacency(graph_of_adjacency: str) -> Adjacency:
    snapshot, cache = open_snapshot(graph_of_adjacency), ReadCache()
    found = cache.adjacency(wanted(snapshot, cache), FREE, None)
    assert isinstance(found, Adjacency)
    return found


def wanted(snapshot: Snapshot, cache: ReadCache) -> WantedAdjacency:
    node, edge = cache.table(snapshot, "node:Town"), cache.table(snapshot, "edge:Road")
    return WantedAdjacency.of(snapshot, EndTables(edge, node, node))


def pairs(adjacency: Adjacency, *, out: bool = True) -> list[tuple[int, int]]:
    half = adjacency.out if out else adjacency.into
    near, far = (adjacency.sources, adjacency.targets) if out else (adjacency.targets, adjacency.sources)
    every = np.arange(len(half.offsets) - 1)
    origins, places = half.steps(every)
    return sorted(zip(near.row_ids(origins).tolist(), far.row_ids(half.nodes[places]).tolist(), strict=True))


def test_every_edge_is_there_in_both_directions(kept_adjacency: Adjacency) -> None:
    assert pairs(kept_adjacency) == sorted(ADJACENCY_PAIRS)
    assert pairs(kept_adjacency, out=False) == sorted((b, a) for a, b in ADJACENCY_PAIRS)


@given(st.sets(st.integers(0, 10**9), max_size=30))
def test_positions_and_row_ids_are_each_others_inverse(ids: set[int]) -> None:
    rows = np.array(sorted(ids), np.int64)
    numbering = NodeNumbering.of(rows)
    assert numbering.row_ids(numbering.positions(rows)).tolist() == rows.tolist()
    assert len(rows) == 0 or int(numbering.positions(rows).max()) < numbering.count


def test_it_comes_back_as_it_was_written(tmp_path: Path, kept_adjacency: Adjacency) -> None:
    folder = AdjacencyFolder(tmp_path)
    assert folder.read(KEY) is None
    folder.write(KEY, kept_adjacency)
    again = folder.read(KEY)
    assert again is not None
    assert pairs(again) == sorted(ADJACENCY_PAIRS)
    assert pairs(again, out=False) == pairs(kept_adjacency, out=False)
    assert (tmp_path / "adjacency").stat().st_mode & 0o777 == 0o700
    assert folder.read("j" * 64) is None


def written(tmp_path: Path, adjacency: Adjacency) -> Path:
    AdjacencyFolder(tmp_path).write(KEY, adjacency)
    (path,) = (tmp_path / "adjacency").iterdir()
    return path


@settings(max_examples=cases(200), deadline=None)
@given(data=st.data())
def test_one_changed_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, kept_adjacency: Adjacency, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    path = written(folder, kept_adjacency)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    found = AdjacencyFolder(folder).read(KEY)
    # The space between arrays carries nothing: a change there is the only one that may go unnoticed.
    assert found is None or (pairs(found), pairs(found, out=False)) == (
        pairs(kept_adjacency),
        pairs(kept_adjacency, out=False),
    )


@pytest.mark.parametrize("keep", [0, 5, 20, 100, -1])
def test_a_file_cut_short_is_no_file(tmp_path: Path, kept_adjacency: Adjacency, keep: int) -> None:
    path = written(tmp_path, kept_adjacency)
    path.write_bytes(path.read_bytes()[:keep])
    assert AdjacencyFolder(tmp_path).read(KEY) is None


def test_a_file_under_another_name_is_no_file(tmp_path: Path, kept_adjacency: Adjacency) -> None:
    path = written(tmp_path, kept_adjacency)
    path.rename(path.with_name("j" * 64 + ".csr"))
    assert AdjacencyFolder(tmp_path).read("j" * 64) is None


@pytest.mark.parametrize("open_to", [0o720, 0o702, 0o777])
def test_what_others_may_write_is_not_believed(tmp_path: Path, kept_adjacency: Adjacency, open_to: int) -> None:
    path = written(tmp_path, kept_adjacency)
    path.chmod(open_to)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    path.chmod(0o600)
    assert AdjacencyFolder(tmp_path).read(KEY) is not None
    path.parent.chmod(open_to)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    AdjacencyFolder(tmp_path).write("j" * 64, kept_adjacency)
    assert len(list(path.parent.iterdir())) == 1, "nothing is put into a folder that others may write"


def test_links_are_not_followed(tmp_path: Path, kept_adjacency: Adjacency) -> None:
    path = written(tmp_path, kept_adjacency)
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(tmp_path / "moved")
    assert AdjacencyFolder(tmp_path).read(KEY) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_file_of_somebody_else_is_not_believed(tmp_path: Path, kept_adjacency: Adjacency) -> None:
    path = written(tmp_path, kept_adjacency)
    os.chown(path, 12345, 12345)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    os.chown(path, 0, 0)
    os.chown(path.parent, 12345, 12345)
    assert AdjacencyFolder(tmp_path).read(KEY) is None


def test_the_folder_stays_within_its_bound(tmp_path: Path, kept_adjacency: Adjacency) -> None:
    size = written(tmp_path, kept_adjacency).stat().st_size
    folder = AdjacencyFolder(tmp_path, max_bytes=3 * size)
    folder.write("a" * 64, kept_adjacency)
    folder.write("b" * 64, kept_adjacency)
    for age, path in enumerate(sorted((tmp_path / "adjacency").iterdir())):
        os.utime(path, ns=(age, age))
    assert folder.read("a" * 64) is not None
    folder.write("c" * 64, kept_adjacency)
    assert {path.name[0] for path in (tmp_path / "adjacency").iterdir()} == {"a", "k", "c"}, "b was used longest ago"
    AdjacencyFolder(tmp_path, max_bytes=10).write("d" * 64, kept_adjacency)
    assert not (tmp_path / "adjacency" / ("d" * 64 + ".csr")).exists(), "what never fits is not kept"


def test_no_place_for_files_is_no_error(tmp_path: Path, graph_of_adjacency: str) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert values(ask(graph_of_adjacency, NEXT, strategy=Strategy.CSR, cache_dir=blocked)) == ["t1", "t2"]


def test_a_damaged_file_is_made_anew_and_another_version_has_its_own(tmp_path: Path, graph_of_adjacency: str) -> None:
    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "cache" / "adjacency").iterdir()}

    own = towns(str(tmp_path / "own.omni"), 6, ADJACENCY_PAIRS)

    def asked(where: str | Snapshot) -> list[str]:
        return values(ask(where, NEXT, strategy=Strategy.CSR, cache_dir=tmp_path / "cache"))

    assert asked(own) == ["t1", "t2"]
    ((name, content),) = kept().items()
    (tmp_path / "cache" / "adjacency" / name).write_bytes(content[:-8] + bytes(8))
    assert asked(own) == ["t1", "t2"]
    assert kept() == {name: content}
    old = open_snapshot(own)
    put(own, [town("t6"), road("t2", "t6")], start=300_000)
    assert asked(own) == ["t1", "t2", "t6"]
    assert asked(old) == ["t1", "t2"]
    assert len(kept()) == 2
    assert not any(path.suffix == ".csr" for path in Path(own).rglob("*")), "nothing is kept in the root of a graph"


RESIDENT_NODES = 60
RESIDENT_PAIRS = [(n, (n * 6 + 3) % RESIDENT_NODES) for n in range(RESIDENT_NODES)] + [
    (n, (n * n) % RESIDENT_NODES) for n in range(RESIDENT_NODES)
]
QUESTIONS = [
    'query q() { match { $a: Town {key: "t7"} $a road{1,3} $b } return { $b.key, $b.size, $b.name } }',
    "query q() { match { $a: Town } return { $a.name, count($a) as n, avg($a.size) as s } }",
    "query q() { match { $a: Town $a.size > 1 } return { $a.name, count($a) as n } }",
    "query q() { match { $a: Town } return { $a.key } order { $a.size desc } limit 4 }",
    "query q() { match { $a: Town } return { $a.key } order { $a.name, $a.key desc } limit 9 }",
    "query q() { match { $a: Town not { $b road $a } } return { $a.key, $a.size } }",
    "query q() { match { $a: Town $a.size > 3 } return { $a.key, $a.name } }",
    'query q() { match { $a: Town {key: "t12"} } return { $a.size, $a.name } }',
    'query q() { match { $a: Town {key: "t12", size: 999} } return { $a.size } limit 0 }',
    'query q() { match { $a: Town $a.size > 1 $a.name = "name 1" } return { $a.key } order { $a.size desc } limit 3 }',
    'query q() { match { $a: Town {key: "t9"} $b: Town {name: "name 2"} $a.size > $b.size } return { $b.key } }',
]
NOTHING = QUESTIONS[8]


@pytest.fixture(scope="module")
def graph_of_resident(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some rows were written again, so row ids have gaps; some sizes are null."""
    root = towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), RESIDENT_NODES, RESIDENT_PAIRS)
    put(root, [town(f"t{n}", size=n % 5 or None, name="renamed") for n in range(0, RESIDENT_NODES, 4)], start=500_000)
    return root


@pytest.fixture(params=["dense", "gaps"])
def snapshot(request: pytest.FixtureRequest, graph_of_resident: str) -> Snapshot:
    return open_snapshot(graph_of_resident, ReadTarget(version={"dense": 3, "gaps": None}[request.param]))


@pytest.mark.parametrize("text", QUESTIONS)
def test_an_answer_does_not_depend_on_what_was_asked_before(snapshot: Snapshot, text: str) -> None:
    expected, cache = values(ask(snapshot, text)), ReadCache()
    assert expected or text == NOTHING
    for _ in range(4):
        for other in QUESTIONS:
            ask(snapshot, other, cache=cache)
        assert values(ask(snapshot, text, cache=cache)) == expected
    assert cache.table(snapshot, "node:Town").held(["id", "name", "size"]) is not None


def test_every_version_has_columns_of_its_own(graph_of_resident: str) -> None:
    cache, text = ReadCache(), QUESTIONS[6]
    for version in (3, None, 3, None):
        opened = open_snapshot(graph_of_resident, ReadTarget(version=version))
        assert values(ask(opened, text, cache=cache)) == values(ask(opened, text))


def cells(table: ReadTable, row_ids: list[int], budget: Budget = FREE) -> list[int | None]:
    found: list[int | None] = table.take(np.array(row_ids), ["size"], budget)["size"].to_pylist()
    return found


def test_a_column_is_kept_when_it_was_asked_for_often_enough(
    graph_of_resident: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_CALL", 0)
    monkeypatch.setattr(tables, "_ROW", 1)
    table = ReadCache().table(open_snapshot(graph_of_resident, ReadTarget(version=3)), "node:Town")
    held = []
    for _ in range(6):
        cells(table, [1, 2, 3, 4, 5])
        held.append(table.held(["size"]) is not None)
    # A fourth of the 60 rows.
    assert held == [False, False, True, True, True, True]


def test_a_column_that_is_too_large_is_not_kept(graph_of_resident: str) -> None:
    opened = open_snapshot(graph_of_resident)
    for cache, kept in ((ReadCache(max_column_bytes=RESIDENT_NODES * 2), False), (ReadCache(), True)):
        table = cache.table(opened, "node:Town")
        for _ in range(3):
            cells(table, [RESIDENT_NODES - 1, 1])
        table.whole(["name"], FREE)
        assert (table.held(["size"]) is not None) is kept
        assert (table.held(["name"]) is not None) is kept


@pytest.mark.parametrize(("limit", "kept"), [(RESIDENT_NODES * 12, False), (2**20, True)])
def test_a_query_of_bounded_memory_keeps_what_its_limit_has_room_for(
    graph_of_resident: str, limit: int, kept: bool
) -> None:
    table = ReadCache().table(open_snapshot(graph_of_resident), "node:Town")
    for _ in range(5):
        cells(table, [RESIDENT_NODES - 1], Budget(None, limit))
    assert (table.held(["size"]) is not None) is kept


def test_a_column_that_is_larger_than_it_seemed_stays_on_disk_and_fails_no_query(tmp_path: Path) -> None:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town(f"t{n}", name="short" if n < 2 else "long" * 500) for n in range(RESIDENT_NODES)])
    text, cache = 'query q() { match { $a: Town {name: "short"} } return { $a.key } order { $a.key asc } }', ReadCache()
    opened = open_snapshot(root)
    for _ in range(5):
        assert values(ask(opened, text, cache=cache, memory_bytes=2**16)) == ["t0", "t1"]
    assert cache.table(opened, "node:Town").held(["name"]) is None


def test_what_is_kept_counts_and_gives_way(graph_of_resident: str) -> None:
    opened, text = open_snapshot(graph_of_resident), QUESTIONS[0]
    cache = ReadCache(max_bytes=2 * 2**20)
    for _ in range(4):
        assert values(ask(opened, text, cache=cache)) == values(ask(opened, text))
    cache.table(opened, "edge:Road")
    for number in range(2**11):
        cache.value(number, lambda: None)
    assert cache.table(opened, "node:Town").held(["id"]) is None


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.list_(pa.float32(), 3), pa.binary(), pa.large_binary()])
def test_lists_vectors_and_blobs_are_never_kept(kind: pa.DataType) -> None:
    shelf: dict[str, object] = {}
    kept = ResidentColumns(shelf.get, shelf.__setitem__, 3, 2**20)
    kept.keep(np.arange(3), {"x": pa.nulls(3, kind), "y": pa.array([1, 2, 3])})
    assert set(shelf) == {"_rowid", "y"}
    kept.measure({"x": pa.nulls(3, kind)}, 3)
    assert not kept.worth({"x": kind}, 10**6)


POINTS = b"node Point { key: String @key  place: Vector(2)? }"
NEAR = "query q($v: Vector(2)) { match { $p: Point } return { $p.key } order { nearest($p.place, $v) } limit 3 }"
NEAR_SOME = NEAR.replace("$p: Point", '$p: Point $p.key >= "p22"')
POINT_BYTES = 51 * (2 * 4 + 16)


@pytest.mark.parametrize(
    ("requests", "query_bytes", "kept"),
    [(1, None, False), (2, None, True), (2, POINT_BYTES - 1, False), (2, 2**20, True)],
)
def test_vectors_stay_in_memory_from_the_second_request_on(
    tmp_path: Path, requests: int, query_bytes: int | None, kept: bool
) -> None:
    root = create(str(tmp_path / "g.omni"), POINTS)
    put(root, [{"type": "Point", "data": {"key": f"p{n}", "place": [n % 10, n // 10]}} for n in range(50)])
    put(root, [{"type": "Point", "data": {"key": "p60"}}, {"type": "Point", "data": {"key": "p33", "place": [9, 9]}}])
    opened, cache, given = open_snapshot(root), ReadCache(), {"v": [3, 2.75]}
    for _ in range(requests):
        assert values(ask(opened, NEAR, given, cache=cache, memory_bytes=query_bytes)) == ["p23", "p32", "p34"]
    # A query that may use no memory reads no vectors.
    assert (cache.table(opened, "node:Point").vectors("place", Budget(None, 0)) is not None) is kept
    assert values(ask(opened, NEAR_SOME, given, cache=cache)) == ["p23", "p32", "p34"]
    put(root, [{"type": "Point", "data": {"key": "p23", "place": [0, 0]}}])
    assert values(ask(root, NEAR_SOME, given, cache=cache)) == ["p32", "p34", "p22"]


@pytest.mark.parametrize(("most", "kept"), [(POINT_BYTES, True), (POINT_BYTES - 1, False)])
def test_vectors_beyond_their_bound_are_not_kept(most: int, kept: bool) -> None:
    shelf: dict[str, object] = {}
    residents = ResidentColumns(shelf.get, shelf.__setitem__, 51, 2**20, most)
    for _ in range(3):
        found = residents.vectors("v", 2, lambda _: VectorMatrix.of([], 51, 2))
    assert (found is not None) is bool(shelf) is kept


CELLS = st.lists(
    st.none() | st.sampled_from(["", "a", "A", "a\x00", "\ufffd", "\U0001f600", "ab"]) | st.text(max_size=3)
)


@given(CELLS, st.data())
def test_a_text_is_found_where_it_is(cells: list[str | None], data: st.DataObject) -> None:
    text = data.draw(st.text(max_size=3) | st.sampled_from([each for each in cells if each is not None] or [""]))
    row_ids = np.arange(len(cells)) * 3 + 1
    found = SortedTexts.of(row_ids, pa.array(cells, pa.string())).find(text)
    assert found.tolist() == [3 * at + 1 for at, each in enumerate(cells) if each == text]


NUMBERS = {
    pa.int32(): (-(2**31), -1, 0, 1, 2**31 - 1),
    pa.int64(): (-(2**63), 2**53, 2**53 + 1, 2**63 - 1),
    pa.uint32(): (0, 1, 2**32 - 1),
    pa.uint64(): (0, 2**53 + 1, 2**64 - 1),
    pa.date32(): (-719_162, -1, 0, 1),
    pa.date64(): (-86_400_000, 0, 86_400_000),
}


@given(st.sampled_from(list(NUMBERS)), st.data())
def test_a_number_is_found_where_it_is(kind: pa.DataType, data: st.DataObject) -> None:
    """Whole numbers, days and milliseconds; also a number that the column cannot hold."""
    cells = data.draw(st.lists(st.none() | st.sampled_from(NUMBERS[kind])))
    number = data.draw(st.sampled_from([*NUMBERS[kind], -(2**65), 2**65]))
    assert searchable(kind)
    found = sorted_cells(np.arange(len(cells)) * 3 + 1, pa.array(cells, raw_type(kind)).cast(kind))
    assert found.find(number).tolist() == (places := [3 * at + 1 for at, each in enumerate(cells) if each == number])
    assert found.find_one(number) in (None, *places[:1])


def test_a_column_is_sorted_when_texts_were_looked_for_often_enough(
    graph_of_resident: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_SEARCH", 1)
    monkeypatch.setattr(tables, "_SORT", 0.2)
    for most, expected in ((2**20, [None, None, [7], [7]]), (RESIDENT_NODES, [None] * 4)):
        table = ReadCache(max_column_bytes=most).table(
            open_snapshot(graph_of_resident, ReadTarget(version=3)), "node:Town"
        )
        found = [table.equal("key", "t7", FREE) for _ in range(4)]
        assert [None if each is None else each.tolist() for each in found] == expected
        assert table.equal("name", "name 1", Budget(None, 2**30)) is None


def test_a_row_that_is_not_there_is_an_error_from_memory_too(graph_of_resident: str) -> None:
    from gitops.core.errors import GitopsError

    for version in (3, None):
        table = ReadCache().table(open_snapshot(graph_of_resident, ReadTarget(version=version)), "node:Town")
        table.whole(["size"], FREE)
        for lost in (10**6, -1):
            with pytest.raises(GitopsError) as error:
                cells(table, [RESIDENT_NODES - 1, lost])
            assert error.value.code == "query_failed"


def test_the_only_row_of_a_table_is_read_by_its_id_under_a_limit_of_memory(tmp_path: Path) -> None:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town("t0", size=3)])
    opened = open_snapshot(root)
    [row] = ReadCache().table(opened, "node:Town").whole(["id"], FREE).ids.tolist()
    assert cells(ReadCache().table(opened, "node:Town"), [row], Budget(None, 2**20)) == [3]


SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={b"lance-schema:unenforced-primary-key": b"true"}),
        pa.field("x", pa.int32()),
    ]
)


def rows(ids: str, x: int) -> pa.Table:
    return pa.table({"id": list(ids), "x": pa.array([x] * len(ids), pa.int32())}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(SCHEMA.empty_table(), place, enable_stable_row_ids=True, data_storage_version="2.2")
    lance.dataset(place).insert(rows("abcd", 1))
    return place


def numbered(path: str, version: int | None = None) -> dict[str, int]:
    dataset = lance.dataset(path, version=version)
    table = ReadTable("node:T", dataset, dataset.count_rows())
    found = table.whole(["id"], FREE)
    order = np.array([int(n) for n in found.ids[::-1]])
    names = table.take(order, ["id"], FREE)["id"].to_pylist()
    assert names == found.columns["id"].to_pylist()[::-1], "a row is found by its id, in the order asked for"
    at = table.locate(pa.array(["nobody", *names]), FREE).tolist()
    assert at == [-1, *order.tolist()] == table.locate(pa.array(["nobody", *names]), FREE, whole=True).tolist()
    return dict(zip(found.columns["id"].to_pylist(), found.ids.tolist(), strict=True))


def merge(path: str, table: pa.Table) -> None:
    change = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    change.conflict_retries(0).execute(table)


def test_a_row_keeps_its_id(path: str) -> None:
    first = numbered(path)
    merge(path, rows("be", 2))
    merged = numbered(path)
    assert {name: merged[name] for name in first} == first, "an update moves the row, not its id"
    base = lance.dataset(path).version
    lance.dataset(path).delete("id = 'c'")
    deleted = numbered(path)
    assert deleted == {name: at for name, at in merged.items() if name != "c"}
    lance.dataset(path).optimize.compact_files()
    assert numbered(path) == deleted
    lance.dataset(path).add_columns(pa.field("y", pa.string()))
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path).create_scalar_index("id", "BTREE")
    assert numbered(path) == deleted
    earlier: Any = lance.dataset(path, version=base)
    earlier.restore()
    assert numbered(path) == merged == numbered(path, base), "a restored version has its ids again"
    lance.dataset(path).insert(rows("f", 3))
    assert {**numbered(path), "f": 0} == {**merged, "f": 0}


def test_ids_are_dense(path: str) -> None:
    for turn in range(5):
        merge(path, rows("abcd", turn))
    assert sorted(numbered(path).values()) == [0, 1, 2, 3], "updates use up no ids"


def test_a_row_may_be_asked_for_twice_and_a_lost_one_is_an_error(path: str) -> None:
    table = ReadTable("node:T", lance.dataset(path), 4)
    assert table.take(np.array([1, 1, 0]), ["id"], FREE)["id"].to_pylist() == ["b", "b", "a"]
    assert table.take(np.array([], np.int64), ["id"], FREE)["id"].to_pylist() == []
    with pytest.raises(GitopsError) as lost:
        table.take(np.array([1, 77]), ["id"], FREE)
    assert lost.value.code == "query_failed"
    many = np.concatenate([np.zeros(2000, np.int64), [77]])
    with pytest.raises(GitopsError) as also:
        table.take(many, ["id"], FREE)
    assert also.value.code == "query_failed"


@pytest.mark.parametrize("up", [True, False])
def test_the_driver_orders_nulls_and_texts_as_the_language_does(tmp_path: Path, up: bool) -> None:
    cells: list[Any] = ["b", None, "\U0001f600", "\ufffd", "B", ""]
    place = tmp_path / "o.lance"
    lance.write_dataset(pa.table({"s": pa.array(cells, pa.string())}), place, enable_stable_row_ids=True)
    table = ReadTable("node:T", lance.dataset(place), 6)
    found = table.collect(["s"], table.scan(["s"], FREE, None, RowOrder((("s", up),), 4)), FREE, sort=False)
    texts = sorted(text for text in cells if text is not None)
    assert found.columns["s"].to_pylist() == ([None, *texts] if up else [*texts[::-1], None])[:4]


def test_a_table_that_is_gone_is_an_error_of_the_query(path: str) -> None:
    table = ReadTable("node:T", lance.dataset(path), 4)
    for file in (Path(path) / "data").iterdir():
        file.unlink()
    with pytest.raises(GitopsError) as failed:
        table.whole(["id"], FREE)
    assert failed.value.code == "query_failed"
    assert "node:T" in failed.value.detail


def test_sorted_texts_find_each_text_in_every_alphabet() -> None:
    cells = ["", "a", "ab", "é", "\ufffd", "\U0001f600", None, "é", "z"]
    texts = SortedTexts.of(np.arange(len(cells)), pa.array(cells))
    for text in ("", "a", "ab", "é", "\ufffd", "\U0001f600", "z", "q", "ü"):
        assert texts.find(text).tolist() == [row for row, cell in enumerate(cells) if cell == text]
    assert texts.find_one("a") is None
    assert SortedTexts.of(np.arange(2), pa.array(["é", "a"])).find_one("é") == 0


def test_an_absent_name_is_not_the_empty_one(tmp_path: Path) -> None:
    root = create(str(tmp_path / "graph"))
    put(root, [town("a", name=""), town("b"), town("c", name="c")])
    snapshot, cache = open_snapshot(root), ReadCache()
    text = "query q($x: String?) { match { $t: Town { name: $x } } return { $t.key as key } }"
    query = check_query(parse_queries(text.encode())[0], snapshot.schema().catalog)
    for _ in range(3):
        ask(snapshot, text, {"x": ""}, cache=cache)
    bound = bind_read(snapshot, query, cache, QueryOptions(NOW))
    assert bound is not None
    for params, found in (({"x": ""}, ["a"]), ({"x": None}, []), ({}, [])):
        assert values(ask(snapshot, text, params)) == found
        assert bound.rows(params, NOW) == [{"key": key} for key in found]
