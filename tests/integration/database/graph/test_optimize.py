"""Compaction and indexes: one publish for each table that needs it, and no row is another one afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.search import TEXT_INDEX
from gitops.database.graph.staged import StagedVersion
from gitops.database.graph.tables import TableWriter, open_table
from tests.support.histories import History
from tests.support.s3 import S3Place

SCHEMA = b"""node Doc { name: String @key  title: String? @index  size: I64? @index  kind: enum(x, y)? @index  tags: [String]?
    vec: Vector(4)? @index  @index(tags) }
edge Cites: Doc -> Doc
"""
EAGER = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1, vector_rows=8, stale_rows=0, stale_share=0.0)


def document(number: int) -> dict[str, object]:
    return {
        "id": f"d{number:02}",
        "name": f"d{number:02}",
        "title": f"red stone {number}",
        "size": number,
        "kind": "xy"[number % 2],
        "tags": ["t", str(number)],
        "vec": [float(number), 0.0, 1.0, -1.0],
    }


def fill(history: History) -> History:
    for start in range(0, 12, 4):
        history.put("main", {"node:Doc": [document(n) for n in range(start, start + 4)]})
    history.put("main", {"edge:Cites": [{"id": "e", "src": "d00", "dst": "d01"}]})
    return history


@pytest.fixture
def history(tmp_path: Path) -> History:
    return fill(History(str(tmp_path / "g.omni"), SCHEMA))


def indexes(history: History, key: str, branch: str = "main") -> dict[str, int]:
    snapshot = history.at(branch)
    dataset = open_table(snapshot.folder, snapshot.manifest.tables[key])
    return {index.name: index.num_rows_indexed for index in dataset.describe_indices()}


def test_every_declared_index_is_built_and_the_rows_stay(history: History) -> None:
    before, versions = history.image(), history.at().manifest.n
    result = optimize_tables(history.uri, history.work(), EAGER)
    assert history.image() == before
    assert indexes(history, "node:Doc") == dict.fromkeys(
        [
            "id_idx",
            "kind_idx",
            "name_idx",
            "size_idx",
            "tags_idx",
            "title_idx",
            "title_ngram",
            "title_text",
            "vec_vector",
        ],
        12,
    )
    assert indexes(history, "edge:Cites") == dict.fromkeys(["id_idx", "src_idx", "dst_idx"], 1)
    assert sorted(result.tables) == ["edge:Cites", "node:Doc"]
    assert result.tables["node:Doc"][0] == "compacted"
    assert result.manifest_version == history.at().manifest.n == versions + 2
    assert history.at().manifest.operation == "optimize"
    assert verify_graph(history.uri, deep=True).ok


def test_a_second_run_has_nothing_to_do(history: History) -> None:
    optimize_tables(history.uri, history.work(), EAGER)
    head = history.at().manifest
    assert optimize_tables(history.uri, history.work(), EAGER).tables == {}
    assert history.at().manifest == head


def test_an_index_of_words_with_other_settings_is_built_again(history: History) -> None:
    optimize_tables(history.uri, history.work(), EAGER)
    rebuild_words(history, TEXT_INDEX | {"stem": False, "remove_stop_words": False, "ascii_folding": False})
    assert optimize_tables(history.uri, history.work(), EAGER).tables["node:Doc"] == ("built title_text (INVERTED)",)
    snapshot = history.at()
    dataset = open_table(snapshot.folder, snapshot.manifest.tables["node:Doc"])
    (words,) = (index for index in dataset.describe_indices() if index.name == "title_text")
    assert words.details["stem"]
    assert words.num_rows_indexed == 12
    assert optimize_tables(history.uri, history.work(), EAGER).tables == {}


def rebuild_words(history: History, settings: dict[str, Any]) -> None:
    """Publish a version whose index of words has these settings, as another release would."""
    snapshot = history.at()
    writer = TableWriter(snapshot.folder, snapshot.manifest.tables["node:Doc"])
    writer.change(
        lambda dataset: dataset.create_scalar_index("title", "INVERTED", name="title_text", replace=True, **settings)
    )
    tables = {**snapshot.manifest.tables, "node:Doc": writer.finish(recount=False)}
    StagedVersion(snapshot, "optimize", history.work(), tables=tables).publish()


def test_small_tables_are_left_alone(history: History) -> None:
    head = history.at().manifest
    assert optimize_tables(history.uri, history.work()).to_json() == {"manifest_version": head.n, "tables": {}}


def test_rows_that_came_later_are_indexed_by_the_next_run(history: History) -> None:
    optimize_tables(history.uri, history.work(), EAGER)
    history.put("main", {"node:Doc": [document(20)]})
    assert optimize_tables(history.uri, history.work(), EAGER).tables["node:Doc"][-1] == "refreshed indexes"
    assert set(indexes(history, "node:Doc").values()) == {13}


def test_one_branch_is_optimized_and_the_others_are_not_touched(history: History) -> None:
    create_branch(history.uri, "dev", history.work())
    head, before = history.at().manifest, history.image()
    optimize_tables(history.uri, history.work(), EAGER, "dev")
    assert (history.at().manifest, history.image(), history.image("dev")) == (head, before, before)
    assert (indexes(history, "node:Doc"), len(indexes(history, "node:Doc", "dev"))) == ({}, 9)


def test_only_the_types_that_are_named(history: History) -> None:
    chosen = OptimizeOptions(fragments=1, scalar_rows=1, types=("edge:Cites",))
    assert set(optimize_tables(history.uri, history.work(), chosen).tables) == {"edge:Cites"}


def test_on_an_object_store_too(s3: S3Place) -> None:
    history = fill(History(f"{s3.root}/graphs/g.omni", SCHEMA))
    before = history.image()
    optimize_tables(history.uri, history.work(), EAGER)
    assert history.image() == before
    assert len(indexes(history, "node:Doc")) == 9


class Rival:
    """Publishes a row each time that an optimized table is about to be."""

    def __init__(self, history: History, times: int) -> None:
        self.history, self.left = history, times

    def reach(self, point: str) -> None:
        if point == "engine.optimize.staged" and self.left:
            self.left -= 1
            History(self.history.uri, b"", start=9_000 * (self.left + 1)).put(
                "main", {"node:Doc": [document(30 + self.left)]}
            )


def test_what_another_writer_publishes_meanwhile_is_kept(history: History) -> None:
    optimize_tables(history.uri, history.work(Rival(history, 1)), EAGER)
    assert [row["id"] for row in history.rows("node:Doc")][-1] == "d30"
    assert len(indexes(history, "node:Doc")) == 9


def test_writers_that_are_always_faster_win(history: History) -> None:
    with pytest.raises(ConflictError):
        optimize_tables(history.uri, history.work(Rival(history, 9)), EAGER)
    assert len(history.rows("node:Doc")) == 15
    assert verify_graph(history.uri, deep=True).ok
