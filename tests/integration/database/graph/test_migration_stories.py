"""Migrations of graphs with rows: what is counted, what is refused, the rows afterwards, and the way back."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.preview import preview_migration
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.port import StepCount
from gitops.database.graph.staged import WriteContext
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source
from gitops.database.language.schema.steps import Reversibility
from tests.support.cases import read_yaml
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.s3 import S3Place

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
STORIES = [story for path in sorted((ROOT / "tests/data/migrations").glob("*.yaml")) for story in read_yaml(path)]
Contents = dict[str, list[dict[str, Any]]]


class Graph:
    """A graph at any address."""

    def __init__(self, uri: str, schema: str, *records: dict[str, Any]) -> None:
        self.uri, self.ids = uri, SequentialIds()
        self.engine = LanceEngine(CLOCK, self.ids)
        self.engine.prepare_create(uri, schema.encode(), actor=None).publish()
        self.load(*records)

    def work(self) -> WriteContext:
        return WriteContext(CLOCK, self.ids)

    def load(self, *records: dict[str, Any], mode: LoadMode = LoadMode.MERGE) -> None:
        stream = io.BytesIO("\n".join(map(json.dumps, records)).encode())
        load_records(LoadRequest(self.uri, stream, mode), self.work())

    def migrate(self, schema: str | bytes) -> None:
        source = schema.encode() if isinstance(schema, str) else schema
        self.engine.prepare_migration(self.uri, source, actor=None).publish()

    def contents(self, version: int | None = None) -> Contents:
        names = [key.partition(":")[2] for key in read.describe_graph(self.uri, version).tables]
        return {name: read.read_rows(self.uri, name, 100, version) for name in names}

    def is_sound(self) -> bool:
        """Whether nothing is wrong, besides files of previews that wait for garbage collection."""
        return verify_graph(self.uri, deep=True).ok


def in_words(count: StepCount | None) -> dict[str, Any] | None:
    if count is None:
        return None
    told = {"breaking": count.breaking, "keys": list(count.keys), "lost": count.lost}
    return {"rows": count.rows} | {name: value for name, value in told.items() if value}


@pytest.mark.parametrize("story", [story for story in STORIES if "bucket" in story], ids=lambda story: story["name"])
def test_a_migration_of_rows_in_a_bucket(s3: S3Place, story: dict[str, Any]) -> None:
    carry_out(f"{s3.root}/graphs/g.omni", story)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_a_migration_of_rows(tmp_path: Path, story: dict[str, Any]) -> None:
    carry_out(str(tmp_path / "g.omni"), story)


def carry_out(place: str, story: dict[str, Any]) -> None:
    graph = Graph(place, story["before"], *story["records"])
    before, after = compile_schema(story["before"].encode()), compile_schema(story["after"].encode())
    start = graph.contents()
    counts = graph.engine.count_steps(place, after.source)
    assert [in_words(count) for count in counts] == story["counts"]
    preview = preview_migration(place, after.source, graph.work())
    assert [effect.count for effect in preview.steps] == list(counts)
    assert preview.supported is ("rows" in story)
    if "rows" not in story:
        with pytest.raises(GitopsError) as refused:
            graph.migrate(after.source)
        assert refused.value.code == "graph_rows_break_schema"
        keys = next(count.keys for count in counts if count is not None and count.breaking)
        assert all(repr(key) in refused.value.detail for key in keys)
        assert (graph.contents(), graph.engine.read(place).manifest_version) == (start, 2)
        return
    graph.migrate(after.source)
    assert graph.contents() == story["rows"]
    assert graph.contents(version=2) == start
    assert graph.is_sound()
    reverse = down_source(before, after)
    if "stuck" in story:
        with pytest.raises(GitopsError) as refused:
            graph.migrate(reverse)
        assert refused.value.code == "graph_rows_break_schema"
        assert all(repr(key) in refused.value.detail for key in story["stuck"])
    else:
        graph.migrate(reverse)
        assert graph.contents() == story.get("back", start)
        assert graph.is_sound()
        assert graph.contents(version=3) == story["rows"]
        if plan_migration(before, after).reversibility is Reversibility.LOSSY:
            assert "back" in story
    collect_garbage(place, graph.work(), Retention())
    assert graph.contents(version=2) == start
