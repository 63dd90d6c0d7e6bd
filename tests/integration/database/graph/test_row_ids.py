"""Row ids that stay, and what a manifest says of the rows and columns that a change left as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode
from gitops.database.graph.port import RestoreOrder
from gitops.database.graph.query.cache import ReadCache, WantedAdjacency
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.overlay import EndTables
from gitops.database.graph.results import MergeStatus
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import open_table
from gitops.database.graph.write import memory
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, WrittenGraph

SCHEMA = """
node P { k: String @key  age: I32?  note: String?  doc: Blob?  @index(age)  @index(note) }
edge E: P -> P { w: I32? }
"""
WORK = WriteContext(CLOCK, SequentialIds(500_000))
FREE = Budget(None, 2**30)


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    made = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    nodes = [{"type": "P", "data": {"k": k, "age": n, "note": f"word{k}"}} for n, k in enumerate("abcde")]
    made.load([*nodes, {"edge": "E", "from": "a", "to": "b"}, {"edge": "E", "from": "b", "to": "c"}])
    return made


def row_ids(snapshot: Snapshot) -> dict[str, int]:
    table = open_table(snapshot.folder, snapshot.manifest.tables["node:P"])
    found = table.scanner(columns=["id"], with_row_id=True).to_table().to_pydict()
    return dict(zip(found["id"], found["_rowid"], strict=True))


def update(graph: WrittenGraph, key: str, age: int, **options: Any) -> None:
    graph.mutate("update P set { age: $a } where k = $k", {"k": key, "a": age}, "$k: String, $a: I32", **options)


def adjacency(snapshot: Snapshot) -> str:
    edges, nodes = (ReadCache().table(snapshot, key) for key in ("edge:E", "node:P"))
    return WantedAdjacency.of(snapshot, EndTables(edges, nodes, nodes)).name


def entry(graph: WrittenGraph, **which: Any) -> Any:
    return open_snapshot(graph.uri, ReadTarget(**which)).manifest.tables["node:P"]


def test_an_updated_row_keeps_its_row_id_and_the_columns_that_it_leaves(graph: WrittenGraph) -> None:
    before = open_snapshot(graph.uri)
    # In an order that is not that of their row ids, beside a new one.
    for key, age in (("d", 70), ("a", 71)):
        update(graph, key, age)
    after = open_snapshot(graph.uri)
    assert row_ids(after) == row_ids(before)
    now, then = after.manifest.tables["node:P"], before.manifest.tables["node:P"]
    assert (now.members, now.changed) == (then.members, {"age": now.version})
    assert adjacency(after) == adjacency(before)
    graph.mutate('insert P { k: "new" }  update P set { note: "x" } where k >= "d"')
    mixed = open_snapshot(graph.uri)
    assert {key: found for key, found in row_ids(mixed).items() if key != "new"} == row_ids(before)
    last = mixed.manifest.tables["node:P"]
    assert (last.members, last.changed) == (last.version, {})
    assert adjacency(mixed) != adjacency(before)


@pytest.mark.parametrize(
    "change",
    [
        'insert P { k: "new" }',
        'delete P where k = "e"',
        'insert P { k: "a", age: 7 }  insert P { k: "new" }',
    ],
)
def test_a_row_that_comes_or_goes_is_known(graph: WrittenGraph, change: str) -> None:
    update(graph, "a", 1)
    before = adjacency(open_snapshot(graph.uri))
    graph.mutate(change)
    found = entry(graph)
    assert (found.members, found.changed) == (found.version, {})
    assert adjacency(open_snapshot(graph.uri)) != before


def test_edges_that_come_and_go_are_known(graph: WrittenGraph) -> None:
    names = [adjacency(open_snapshot(graph.uri))]
    for change in ('insert E { from: "a", to: "c" }', 'delete E where from = "b"'):
        graph.mutate(change)
        names.append(adjacency(open_snapshot(graph.uri)))
    # An edge that a load gives other ends has the same id.
    for end in "bd":
        graph.load([{"edge": "E", "from": "a", "to": end, "data": {"id": "one"}}])
        names.append(adjacency(open_snapshot(graph.uri)))
    assert len(set(names)) == len(names)


def test_a_row_that_is_replaced_whole_changes_every_column_and_stays(graph: WrittenGraph) -> None:
    before, ids = entry(graph), row_ids(open_snapshot(graph.uri))
    graph.mutate('insert P { k: "a", age: 9 }')
    found = entry(graph)
    assert row_ids(open_snapshot(graph.uri)) == ids
    assert (found.members, set(found.changed)) == (before.members, {"k", "age", "note", "doc"})


def test_compaction_and_indexes_change_nothing_that_is_known(graph: WrittenGraph) -> None:
    update(graph, "b", 50)
    before, name = entry(graph), adjacency(open_snapshot(graph.uri))
    assert optimize_tables(graph.uri, WORK, OptimizeOptions(fragments=1, scalar_rows=1)).tables
    after = entry(graph)
    assert after.version > before.version
    assert (after.members, after.changed) == (before.members, before.changed)
    assert adjacency(open_snapshot(graph.uri)) == name


def test_what_is_in_memory_serves_until_its_column_changes(graph: WrittenGraph) -> None:
    """Also on branches, which number their versions of a table together, after a merge, and after a restore."""
    cache = ReadCache()

    def columns(**which: Any) -> dict[str, tuple[int, str]]:
        """What a process has that remembers columns, beside what is there."""
        snapshot = open_snapshot(graph.uri, ReadTarget(**which))
        held = cache.table(snapshot, "node:P").whole(["id", "age", "note"], FREE)
        fresh = ReadCache().table(snapshot, "node:P").whole(["id", "age", "note"], FREE)
        assert held.ids.tolist() == fresh.ids.tolist()
        assert {name: column.to_pylist() for name, column in held.columns.items()} == {
            name: column.to_pylist() for name, column in fresh.columns.items()
        }
        return dict(zip(held.columns["id"].to_pylist(), held.columns["age"].to_pylist(), strict=True))

    columns()
    create_branch(graph.uri, "side", WORK)
    update(graph, "a", 10, branch="side")
    update(graph, "a", 20)
    update(graph, "b", 30, branch="side")
    assert columns()["a"] == 20
    assert (columns(branch="side")["a"], columns(branch="side")["b"]) == (10, 30)
    graph.mutate('insert P { k: "x", age: 1 }', branch="side")
    graph.mutate('insert P { k: "y", age: 2 }')
    assert columns(branch="side").keys() ^ columns().keys() == {"x", "y"}
    update(graph, "a", 10)
    assert merge_branch(graph.uri, "side", "main", WORK).status is MergeStatus.MERGED
    assert columns() == {"a": 10, "b": 30, "c": 2, "d": 3, "e": 4, "x": 1, "y": 2}
    update(graph, "c", 99)
    columns()
    LanceEngine(CLOCK, graph.ids).restore(graph.uri, RestoreOrder(2, ("P",)), actor=None)
    assert columns() == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    update(graph, "c", 98)
    assert columns()["c"] == 98
    graph.load([{"type": "P", "data": {"k": "c", "age": 97}}])
    assert columns()["c"] == 97
    graph.load([{"type": "P", "data": {"k": k, "age": 5}} for k in "abc"], LoadMode.OVERWRITE)
    assert columns() == {"a": 5, "b": 5, "c": 5}


def test_an_index_does_not_find_what_a_row_was(graph: WrittenGraph) -> None:
    """The row id of the old row leads to the new one: the driver has to know which of its entries are old."""
    options = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1)
    steps = optimize_tables(graph.uri, WORK, options).tables["node:P"]
    assert {"built age_idx (BTREE)", "built note_text (INVERTED)", "built note_ngram (NGRAM)"} <= set(steps)
    graph.mutate('update P set { age: 70, note: "brandnew" } where k = "b"')
    for _ in range(2):
        snapshot = open_snapshot(graph.uri)
        table = open_table(snapshot.folder, snapshot.manifest.tables["node:P"])
        for where, found in {
            "age = 1": [],
            "age = 70": ["b"],
            "contains(note, 'wordb')": [],
            "contains(note, 'brandnew')": ["b"],
        }.items():
            assert table.scanner(columns=["id"], filter=where).to_table().column("id").to_pylist() == found, where
        for word, found in {"wordb": [], "brandnew": ["b"], "worda": ["a"]}.items():
            scanner = table.scanner(columns=["id"], full_text_query=word, disable_scoring_autoprojection=True)
            assert scanner.to_table().column("id").to_pylist() == found, word
        # Again when the indexes cover the new row, and the table is joined.
        optimize_tables(graph.uri, WORK, OptimizeOptions(fragments=0, scalar_rows=1, text_rows=1, stale_rows=0))


def test_versions_that_were_read_keep_no_chain_of_earlier_ones(graph: WrittenGraph) -> None:
    cache = ReadCache()
    for number in range(4):
        table = cache.table(open_snapshot(graph.uri), "node:P")
        table.whole(["note"], FREE)
        update(graph, "a", number)
    earlier, table = 0, cache.table(open_snapshot(graph.uri), "node:P")
    while (table := table._previous) is not None:  # type: ignore[assignment]
        earlier += 1
    assert earlier <= 1


def test_a_file_whose_reading_failed_is_read_again(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_FEW_ROWS", 0)
    keys = memory.TableMemory(2**20)

    def find(key: str) -> list[int] | None:
        snapshot = open_snapshot(graph.uri)
        table = open_table(snapshot.folder, snapshot.manifest.tables["node:P"])
        files = {part.data_files()[0].path: part for part in table.get_fragments()}
        return keys.places(table, files, 0, "id", [key])

    for _ in range(3):
        found = find("a")
    assert found is not None
    graph.load([{"type": "P", "data": {"k": "x"}}])
    graph.load([{"type": "P", "data": {"k": "y"}}])
    hashes, read = memory._hashes, list[object]()

    def fail_at_the_second(cells: Any) -> Any:
        read.append(cells)
        if len(read) == 2:
            raise OSError("timeout")
        return hashes(cells)

    monkeypatch.setattr(memory, "_hashes", fail_at_the_second)
    with pytest.raises(OSError, match="timeout"):
        find("a")
    assert [len(find(key) or ()) for key in "axy"] == [1, 1, 1]
