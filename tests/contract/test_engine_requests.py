"""What the graph engine asks of an object store, deed by deed: the figures of docs/storage.md."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import Existence
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.s3 import S3Place

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
BASE = b"node Person { name: String @key }\nedge Knows: Person -> Person\n"
GROWN = b"node Person { name: String @key  mail: String? }\nedge Knows: Person -> Person\n"


def test_the_requests_of_each_deed_are_those_of_the_page(s3: S3Place) -> None:
    ids = SequentialIds()
    engine, context = LanceEngine(CLOCK, ids), WriteContext(CLOCK, ids)
    engine.prepare_create(f"{s3.root}/graphs/warm.omni", BASE, actor=None).publish()
    uri = f"{s3.root}/graphs/g.omni"
    rows = []

    def person(name: str) -> LoadRequest:
        return LoadRequest(uri, io.BytesIO(json.dumps({"type": "Person", "data": {"name": name}}).encode()))

    def cost(deed: str, call: Callable[[], Any]) -> Any:
        s3.server.log.clear()
        told = call()
        asked = s3.server.requests()
        kinds = ", ".join(f"{number} {kind}" for kind, number in asked.items())
        rows.append(f"| {deed} | {sum(asked.values())} | {kinds} |")
        return told

    def migrate(source: bytes) -> int:
        return engine.prepare_migration(uri, source, actor=None).publish()

    assert cost("find a root free", lambda: engine.exists(uri)) is Existence.ABSENT
    cost("create a graph of two types", lambda: engine.prepare_create(uri, BASE, actor=None).publish())
    assert cost("find a graph", lambda: engine.exists(uri)) is Existence.PRESENT
    assert cost("read the accepted schema", lambda: engine.read(uri)).schema_source == BASE
    load_records(person("ada"), context)
    assert cost("load one row into a table with rows", lambda: load_records(person("bob"), context)).rows == {
        "node:Person": 1
    }
    assert cost("migrate: add a property", lambda: migrate(GROWN)) == 4
    assert cost("migrate: a comment only", lambda: migrate(b"// why\n" + GROWN)) == 5
    assert len(cost("show rows of a type", lambda: read.read_rows(uri, "Person", 20))) == 2
    below = len([key for key in s3.server.keys(s3.bucket) if "/g.omni/" in key])
    cost(f"delete the graph, {below} objects", lambda: engine.delete_tree(uri))
    page = (ROOT / "docs/storage.md").read_text(encoding="utf-8")
    missing = [row for row in rows if row not in page]
    assert not missing, "\n".join(missing)
