"""One result, however it is found: strategies, starts of a walk, indexes, compaction, caches, threads."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.query import ReadCache, Strategy, adjacency, expand, plan, run, tables
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.support.effort import cases
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.query_graphs import CLOCK, ask, put, town, towns, values

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
