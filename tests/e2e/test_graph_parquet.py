"""`gitops graph load --parquet`: files of columns become rows, in one version or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gitops.cli.main import main
from gitops.database.graph.bulk import BulkTask
from gitops.database.graph.snapshot import open_snapshot
from tests.support.histories import History, read_rows

pytestmark = pytest.mark.e2e

SCHEMA = b"""node Station { code: String @key  opened: Date?  vec: Vector(2)? }
edge Link: Station -> Station { minutes: I32? }
"""
Load = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return History(str(tmp_path / "rail.omni"), SCHEMA).uri


@pytest.fixture
def load(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Load:
    def run(*options: str, **tables: dict[str, Any]) -> tuple[int, str, str]:
        files = []
        for name, columns in tables.items():
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
            files += ["--parquet", f"{name}={tmp_path / name}.parquet"]
        code = main(["--as", "ann", "graph", "load", "rail", *files, *options, "--root", root])
        out, err = capsys.readouterr()
        return code, out, err

    return run


STATIONS = {"code": ["a", "b", "c"], "opened": [date(1901, 5, 1), None, None], "vec": [[1.0, 2.0], None, None]}
LINKS = {"from": ["a", "b"], "to": ["b", "c"], "minutes": pa.array([5, None], pa.int64())}


def test_files_become_rows_of_one_version(load: Load, root: str) -> None:
    code, out, _ = load("--json", Link=LINKS, Station=STATIONS)
    assert (code, json.loads(out)["rows"]) == (0, {"edge:Link": 2, "node:Station": 3})
    snapshot = open_snapshot(root)
    assert (snapshot.manifest.n, snapshot.manifest.actor) == (2, "ann")
    assert [row["id"] for row in read_rows(snapshot, "node:Station")] == ["a", "b", "c"]
    assert {(row["src"], row["dst"], row["minutes"]) for row in read_rows(snapshot, "edge:Link")} == {
        ("a", "b", 5),
        ("b", "c", None),
    }


def test_a_row_that_does_not_fit_is_named_and_nothing_stays(load: Load, root: str) -> None:
    code, out, _ = load(Station={"code": ["a", None, "c"]})
    assert code == 1
    assert "Station.parquet, record 2: Station.code is required" in out
    code, out, _ = load("--json", Station=STATIONS, Link={"from": ["a"], "to": ["z"]})
    (problem,) = json.loads(out)["diagnostics"]
    assert (code, problem["path"]) == (1, "parts[1].rows[1]")
    assert "dst 'z' not found in Station" in problem["message"]
    assert open_snapshot(root).manifest.n == 1
    assert list(Path(root).glob("*/*.lance/data/*.lance")) == []
    assert list(Path(root).glob("leases/*.json")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either a file of records or --parquet TYPE=FILE"),
        (["x.jsonl", "--parquet", "Station=x.parquet"], "give either a file of records or --parquet"),
        (["--parquet", "Station"], "use TYPE=FILE"),
        (["--parquet", "Nothing=x.parquet"], "the graph has no type 'Nothing'"),
        (["--parquet", "Station=missing.parquet"], "cannot read missing.parquet as Parquet"),
        (["--parquet", "Station=x.parquet", "--embeddings", "hash"], "leave out --embeddings"),
    ],
)
def test_what_cannot_be_meant_is_refused(load: Load, root: str, options: list[str], message: str) -> None:
    code, out, err = load(*options)
    assert code == 1
    assert "usage_error" in out + err
    assert message in out + err
    assert open_snapshot(root).manifest.n == 1


def test_a_task_has_no_secrets() -> None:
    assert set(BulkTask.__slots__) == {"bulk", "uri", "graph_id", "branch", "version", "schema_ir", "key", "path"}
