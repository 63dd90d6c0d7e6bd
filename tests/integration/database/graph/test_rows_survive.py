"""What migrations do to rows: soft drops, renames, and types that come back."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read, read_log
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
BASE = b"node P { k: String @key  age: I32? }\nnode Q { k: String @key }\nedge E: P -> Q { w: F32? }\n"


class Graph:
    """One graph with two rows of P, one of Q and one edge."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.ids = SequentialIds()
        self.engine = LanceEngine(CLOCK, self.ids)
        self.engine.prepare_create(uri, BASE, actor="ann").publish()
        self.load(
            {"type": "P", "data": {"k": "a", "age": 7}},
            {"type": "P", "data": {"k": "b"}},
            {"type": "Q", "data": {"k": "q"}},
            {"edge": "e", "from": "a", "to": "q", "data": {"id": "e1", "w": 0.1}},
        )

    def load(self, *records: object) -> int:
        stream = io.BytesIO("\n".join(map(json.dumps, records)).encode())
        return load_records(LoadRequest(self.uri, stream), WriteContext(CLOCK, self.ids, actor="bob")).manifest_version

    def migrate(self, source: bytes) -> int:
        return self.engine.prepare_migration(self.uri, source, actor="cyd").publish()

    def path(self, key: str) -> str:
        return open_snapshot(self.uri).manifest.tables[key].path


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(str(tmp_path / "g.omni"))


def test_a_dropped_property_is_still_read_at_the_old_version(graph: Graph) -> None:
    assert graph.migrate(BASE.replace(b"age: I32?", b"")) == 3
    assert read.read_rows(graph.uri, "P", 10) == [{"id": "a", "k": "a"}, {"id": "b", "k": "b"}]
    assert read.read_rows(graph.uri, "P", 10, version=2) == [
        {"id": "a", "age": 7, "k": "a"},
        {"id": "b", "age": None, "k": "b"},
    ]


def test_a_property_declared_again_starts_empty(graph: Graph) -> None:
    graph.migrate(BASE.replace(b"age: I32?", b""))
    graph.migrate(BASE)
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10)] == [None, None]
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10, version=2)] == [7, None]


def test_renames_keep_the_data_and_the_folder(graph: Graph) -> None:
    before = graph.path("node:P")
    renamed = (
        b'node P2 @rename_from("P") { k: String @key  years: I32? @rename_from("age") }\n'
        b"node Q { k: String @key }\nedge E: P2 -> Q { w: F32? }\n"
    )
    graph.migrate(renamed)
    assert read.read_rows(graph.uri, "P2", 10)[0] == {"id": "a", "k": "a", "years": 7}
    assert read.read_rows(graph.uri, "E", 10) == [{"id": "e1", "src": "a", "dst": "q", "w": 0.1}]
    assert graph.path("node:P2") == before
    graph.load({"type": "P2", "data": {"k": "c", "years": 1}})
    assert [row["years"] for row in read.read_rows(graph.uri, "P2", 10)] == [7, None, 1]


def test_a_type_declared_again_is_a_new_incarnation(graph: Graph) -> None:
    before = graph.path("node:P")
    graph.migrate(b"node Q { k: String @key }\n")
    assert read.describe_graph(graph.uri).dropped == ("node:P", "edge:E")
    assert read.read_rows(graph.uri, "P", 1, version=2)[0]["age"] == 7
    with pytest.raises(GitopsError) as failure:
        read.read_rows(graph.uri, "P", 1)
    assert failure.value.code == "graph_type_unknown"
    graph.migrate(BASE)
    assert read.read_rows(graph.uri, "P", 10) == []
    assert graph.path("node:P") != before
    assert read.read_rows(graph.uri, "Q", 10) == [{"id": "q", "k": "q"}]


def test_an_abandoned_migration_is_undone_by_the_next_writer(graph: Graph) -> None:
    graph.engine.prepare_migration(graph.uri, BASE.replace(b"age: I32?", b""), actor=None).abort()
    assert read.read_rows(graph.uri, "P", 10)[0]["age"] == 7
    graph.load({"type": "P", "data": {"k": "a", "age": 8}})
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10)] == [8, None]


def test_enum_members_can_be_used_after_widening(graph: Graph) -> None:
    graph.migrate(BASE + b"node C { k: String @key  s: enum(x, y)? }\n")
    graph.load({"type": "C", "data": {"k": "1", "s": "x"}})
    before = graph.path("node:C")
    graph.migrate(BASE + b"node C { k: String @key  s: enum(x, y, z)? }\n")
    graph.load({"type": "C", "data": {"k": "2", "s": "z"}})
    assert [row["s"] for row in read.read_rows(graph.uri, "C", 10)] == ["x", "z"]
    assert graph.path("node:C") == before


def test_history_names_every_version(graph: Graph) -> None:
    graph.migrate(b"// note\n" + BASE)
    told = [(v.n, v.operation, v.actor) for v in reversed(read_log(graph.uri))]
    assert told == [(1, "create", "ann"), (2, "load", "bob"), (3, "migrate", "cyd")]
    description = read.describe_graph(graph.uri, version=2)
    assert description.tables["node:P"] == {"rows": 2, "columns": {"age": "I32?", "k": "String"}}
