"""What the executor takes for granted of the driver: a row keeps its id, and is found by it, whatever happens around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, RowOrder

FREE = Budget(None, None)
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
