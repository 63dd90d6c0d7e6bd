"""A restore on real tables: what was loaded since is replaced and stays readable, and the next writer goes on from there."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.manifest import find_manifest
from gitops.database.graph.port import RestoreOrder
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Type City has two rows in version 2, and five in version 3."""
    place = str(tmp_path / "k.omni")
    LanceEngine(FixedClock(START), SequentialIds()).prepare_create(
        place, b"node City { name: String @key }\n", actor=None
    ).publish()
    _load(place, "ab")
    _load(place, "cde")
    return place


def _load(uri: str, names: str) -> None:
    lines = "".join(json.dumps({"type": "City", "data": {"name": name}}) + "\n" for name in names)
    load_records(
        LoadRequest(uri, io.BytesIO(lines.encode())),
        WriteContext(FixedClock(START), SequentialIds(900_000 + 1000 * ord(names[0]))),
    )


def _names(uri: str, version: int | None = None) -> str:
    return "".join(sorted(row["name"] for row in read.read_rows(uri, "City", 10, version)))


def _restore(uri: str, version: int) -> int:
    engine = LanceEngine(FixedClock(START), SequentialIds(500_000 + 1000 * version))
    return engine.restore(uri, RestoreOrder(version, ("City",)), actor="ann")


def test_a_restore_replaces_what_was_loaded_since_and_can_be_undone(uri: str) -> None:
    assert _restore(uri, 2) == 4
    assert (_names(uri), _names(uri, 3)) == ("ab", "abcde")
    _load(uri, "x")
    assert (_names(uri), _names(uri, 3), _names(uri, 4)) == ("abx", "abcde", "ab")
    assert _restore(uri, 3) == 6
    assert _names(uri) == "abcde"
    assert open_snapshot(uri).manifest.message == "City of version 3"
    assert verify_graph(uri, deep=True).findings == ()


def test_gc_keeps_the_version_before_a_restore_for_a_time(uri: str) -> None:
    _restore(uri, 2)
    short = Retention(keep_versions=1, older_than=timedelta(0), grace=timedelta(0))
    for days, kept in ((1, [4, 3]), (8, [4])):
        context = WriteContext(FixedClock(START + timedelta(days=days)), SequentialIds(700_000 + days))
        collect_garbage(uri, context, short)
        found = [n for n in (4, 3, 2, 1) if find_manifest(open_snapshot(uri).store, n) is not None]
        assert found == kept
    assert _names(uri) == "ab"


def test_whether_it_happened_is_not_known_once_its_version_is_gone(uri: str) -> None:
    engine = LanceEngine(FixedClock(START), SequentialIds(500_000))
    engine.restore(uri, RestoreOrder(2, ("City",)), actor=None, fence=7)
    _load(uri, "x")
    _load(uri, "y")
    assert engine.was_restored(uri, 7, 3)
    context = WriteContext(FixedClock(START + timedelta(days=9)), SequentialIds(700_000))
    collect_garbage(uri, context, Retention(keep_versions=1, older_than=timedelta(0), grace=timedelta(0)))
    with pytest.raises(GitopsError) as unknown:
        engine.was_restored(uri, 7, 3)
    assert unknown.value.code == "graph_version_gone"
    # No version since then could be it.
    assert not engine.was_restored(uri, 8, 3)
    assert not engine.was_restored(uri, 7, 6)
