"""Scratch copies of a graph: they read, migrate and change like the graph, and the graph's own bytes stay as they were."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from gitops.database import graph
from gitops.database.graph.clone import clone_graph
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.snapshot import find_root
from tests.integration.database.graph.test_schema_changes import NEXT, SCHEMA, fill
from tests.support.histories import History
from tests.support.s3 import S3Place


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path)
    s3: S3Place = request.getfixturevalue("s3")
    return s3.root


def objects(uri: str) -> dict[str, tuple[int, datetime]]:
    """Every object below a root with its size and the time of its last write."""
    _, folder = find_root(uri).open()
    names = ("graph.json", "manifests", "schema", "nodes", "edges", "branches", "leases", "floors")
    return {each.path: (each.bytes, each.written) for name in names for each in folder.files(name)}


def test_a_copy_migrates_and_changes_like_the_graph_and_the_graph_stays_as_it_was(place: str) -> None:
    history = fill(History(f"{place}/graphs/g.omni", SCHEMA))
    before, rows = objects(history.uri), list(graph.export_records(graph.open_snapshot(history.uri)))
    copy = f"{place}/scratch/g.omni"
    opened = clone_graph(history.uri, copy)
    assert list(graph.export_records(opened)) == rows
    assert opened.manifest == graph.open_snapshot(history.uri).manifest
    assert graph.verify_graph(copy, deep=True).ok
    engine = LanceEngine(history.clock, history.ids)
    assert engine.prepare_migration(copy, NEXT, actor=None).publish() == opened.manifest.n + 1
    assert graph.verify_graph(copy, deep=True).ok, graph.verify_graph(copy, deep=True)
    moved = list(graph.export_records(graph.open_snapshot(copy)))
    assert objects(history.uri) == before
    assert list(graph.export_records(graph.open_snapshot(history.uri))) == rows
    engine.prepare_migration(history.uri, NEXT, actor=None).publish()
    assert list(graph.export_records(graph.open_snapshot(history.uri))) == moved
