"""Columns that stay in memory: the same answers as from disk, within the bounds of the cache, and only where it pays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.query import ReadCache, tables
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, ResidentColumns, SortedTexts
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from tests.support.query_graphs import ask, create, put, town, towns, values

FREE = Budget(None, None)
NODES = 60
PAIRS = [(n, (n * 6 + 3) % NODES) for n in range(NODES)] + [(n, (n * n) % NODES) for n in range(NODES)]
QUESTIONS = [
    'query q() { match { $a: Town {key: "t7"} $a road{1,3} $b } return { $b.key, $b.size, $b.name } }',
    "query q() { match { $a: Town } return { $a.name, count($a) as n, avg($a.size) as s } }",
    "query q() { match { $a: Town } return { $a.key } order { $a.size desc } limit 4 }",
    "query q() { match { $a: Town } return { $a.key } order { $a.name, $a.key desc } limit 9 }",
    "query q() { match { $a: Town not { $b road $a } } return { $a.key, $a.size } }",
    "query q() { match { $a: Town $a.size > 3 } return { $a.key, $a.name } }",
    'query q() { match { $a: Town {key: "t12"} } return { $a.size, $a.name } }',
    'query q() { match { $a: Town {key: "t12", size: 999} } return { $a.size } limit 0 }',
    'query q() { match { $a: Town $a.size > 1 $a.name = "name 1" } return { $a.key } order { $a.size desc } limit 3 }',
    'query q() { match { $a: Town {key: "t9"} $b: Town {name: "name 2"} $a.size > $b.size } return { $b.key } }',
]
NOTHING = QUESTIONS[7]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some rows were written again, so row ids have gaps; some sizes are null."""
    root = towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), NODES, PAIRS)
    put(root, [town(f"t{n}", size=n % 5 or None, name="renamed") for n in range(0, NODES, 4)], start=500_000)
    return root


@pytest.fixture(params=["dense", "gaps"])
def snapshot(request: pytest.FixtureRequest, graph: str) -> Snapshot:
    return open_snapshot(graph, ReadTarget(version={"dense": 3, "gaps": None}[request.param]))


@pytest.mark.parametrize("text", QUESTIONS)
def test_an_answer_does_not_depend_on_what_was_asked_before(snapshot: Snapshot, text: str) -> None:
    expected, cache = values(ask(snapshot, text)), ReadCache()
    assert expected or text == NOTHING
    for _ in range(4):
        for other in QUESTIONS:
            ask(snapshot, other, cache=cache)
        assert values(ask(snapshot, text, cache=cache)) == expected
    assert cache.table(snapshot, "node:Town").held(["id", "name", "size"]) is not None


def test_every_version_has_columns_of_its_own(graph: str) -> None:
    cache, text = ReadCache(), QUESTIONS[5]
    for version in (3, None, 3, None):
        opened = open_snapshot(graph, ReadTarget(version=version))
        assert values(ask(opened, text, cache=cache)) == values(ask(opened, text))


def cells(table: ReadTable, row_ids: list[int], budget: Budget = FREE) -> list[int | None]:
    found: list[int | None] = table.take(np.array(row_ids), ["size"], budget)["size"].to_pylist()
    return found


def test_a_column_is_kept_when_it_was_asked_for_often_enough(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CALL", 0)
    monkeypatch.setattr(tables, "_ROW", 1)
    table = ReadCache().table(open_snapshot(graph, ReadTarget(version=3)), "node:Town")
    held = []
    for _ in range(6):
        cells(table, [1, 2, 3, 4, 5])
        held.append(table.held(["size"]) is not None)
    # A fourth of the 60 rows.
    assert held == [False, False, True, True, True, True]


def test_a_column_that_is_too_large_is_not_kept(graph: str) -> None:
    opened = open_snapshot(graph)
    for cache, kept in ((ReadCache(max_column_bytes=NODES * 2), False), (ReadCache(), True)):
        table = cache.table(opened, "node:Town")
        for _ in range(3):
            cells(table, [NODES - 1, 1])
        table.whole(["name"], FREE)
        assert (table.held(["size"]) is not None) is kept
        assert (table.held(["name"]) is not None) is kept


@pytest.mark.parametrize(("limit", "kept"), [(NODES * 12, False), (2**20, True)])
def test_a_query_of_bounded_memory_keeps_what_its_limit_has_room_for(graph: str, limit: int, kept: bool) -> None:
    table = ReadCache().table(open_snapshot(graph), "node:Town")
    for _ in range(5):
        cells(table, [NODES - 1], Budget(None, limit))
    assert (table.held(["size"]) is not None) is kept


def test_a_column_that_is_larger_than_it_seemed_stays_on_disk_and_fails_no_query(tmp_path: Path) -> None:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town(f"t{n}", name="short" if n < 2 else "long" * 500) for n in range(NODES)])
    text, cache = 'query q() { match { $a: Town {name: "short"} } return { $a.key } order { $a.key asc } }', ReadCache()
    opened = open_snapshot(root)
    for _ in range(5):
        assert values(ask(opened, text, cache=cache, memory_bytes=2**16)) == ["t0", "t1"]
    assert cache.table(opened, "node:Town").held(["name"]) is None


def test_what_is_kept_counts_and_gives_way(graph: str) -> None:
    opened, text = open_snapshot(graph), QUESTIONS[0]
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


CELLS = st.lists(
    st.none() | st.sampled_from(["", "a", "A", "a\x00", "\ufffd", "\U0001f600", "ab"]) | st.text(max_size=3)
)


@given(CELLS, st.data())
def test_a_text_is_found_where_it_is(cells: list[str | None], data: st.DataObject) -> None:
    text = data.draw(st.text(max_size=3) | st.sampled_from([each for each in cells if each is not None] or [""]))
    row_ids = np.arange(len(cells)) * 3 + 1
    found = SortedTexts.of(row_ids, pa.array(cells, pa.string())).find(text)
    assert found.tolist() == [3 * at + 1 for at, each in enumerate(cells) if each == text]


def test_a_column_is_sorted_when_texts_were_looked_for_often_enough(
    graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_SEARCH", 1)
    monkeypatch.setattr(tables, "_SORT", 0.2)
    for most, expected in ((2**20, [None, None, [7], [7]]), (NODES, [None] * 4)):
        table = ReadCache(max_column_bytes=most).table(open_snapshot(graph, ReadTarget(version=3)), "node:Town")
        found = [table.equal("key", "t7", FREE) for _ in range(4)]
        assert [None if each is None else each.tolist() for each in found] == expected
        assert table.equal("name", "name 1", Budget(None, 2**30)) is None


def test_a_row_that_is_not_there_is_an_error_from_memory_too(graph: str) -> None:
    from gitops.core.errors import GitopsError

    for version in (3, None):
        table = ReadCache().table(open_snapshot(graph, ReadTarget(version=version)), "node:Town")
        table.whole(["size"], FREE)
        for lost in (10**6, -1):
            with pytest.raises(GitopsError) as error:
                cells(table, [NODES - 1, lost])
            assert error.value.code == "query_failed"


def test_the_only_row_of_a_table_is_read_by_its_id_under_a_limit_of_memory(tmp_path: Path) -> None:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town("t0", size=3)])
    opened = open_snapshot(root)
    [row] = ReadCache().table(opened, "node:Town").whole(["id"], FREE).ids.tolist()
    assert cells(ReadCache().table(opened, "node:Town"), [row], Budget(None, 2**20)) == [3]
