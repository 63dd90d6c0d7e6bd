"""The way back from a migration on a real graph: what the planner calls reversible loses no row and no value."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import HeldData
from gitops.database.graph.staged import WriteContext
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.steps import Reversibility
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
BASE = "node P { k: String @key  age: I32?  tag: enum(x, y)? } node Q { k: String @key } edge E: P -> Q { w: F32? }"
RECORDS = [
    {"type": "P", "data": {"k": "a", "age": 7, "tag": "x"}},
    {"type": "P", "data": {"k": "b"}},
    {"type": "Q", "data": {"k": "q"}},
    {"edge": "e", "from": "a", "to": "q", "data": {"id": "e1", "w": 0.5}},
]


IDS = SequentialIds()
REVERSIBLE = {
    "additions": """
        node P { k: String @key  age: I32?  tag: enum(x, y)?  n: Date? }  node Q { k: String @key }  node R { a: I32 }
        edge E: P -> Q { w: F32? }  edge F: R -> P
    """,
    "renames": """
        node S @rename_from("P") {
            key: String @key @rename_from("k")  years: I32? @rename_from("age")  label: enum(x, y)? @rename_from("tag")
            more: [String]?
        }
        node T @rename_from("Q") { k: String @key }
        edge G: S -> T @rename_from("E") { weight: F32? @rename_from("w") }
    """,
    "descriptions": """
        node P @description("people") { k: String @key  age: I32? @description("years")  tag: enum(x, y)? }
        node Q { k: String @key }  edge E: P -> Q { w: F32? }
    """,
}


@pytest.fixture
def uri(tmp_path):
    root = str(tmp_path / "g.omni")
    LanceEngine(CLOCK, IDS).prepare_create(root, BASE.encode(), actor="ann").publish()
    stream = io.BytesIO("\n".join(map(json.dumps, RECORDS)).encode())
    load_records(LoadRequest(root, stream), WriteContext(CLOCK, IDS, actor="bob"))
    return root


def migrate(uri, source):
    LanceEngine(CLOCK, IDS).prepare_migration(uri, source, actor="cyd").publish()


def there_and_back(uri, desired):
    """Migrate and take it back; returns the class of the way there."""
    before, after = compile_schema(BASE.encode()), compile_schema(desired.encode())
    migrate(uri, after.source)
    migrate(uri, down_source(before, after))
    return plan_migration(before, after).reversibility


def contents(uri, version=None):
    return {name: read.read_rows(uri, name, 100, version) for name in ("P", "Q", "E")}


@pytest.mark.parametrize("desired", REVERSIBLE.values(), ids=list(REVERSIBLE))
def test_what_is_reversible_comes_back_with_every_row(uri, desired):
    before = contents(uri)
    assert there_and_back(uri, desired) is Reversibility.REVERSIBLE
    assert contents(uri) == before


def test_what_is_lost_comes_back_empty_and_stays_in_the_older_version(uri):
    before = contents(uri)
    desired = "node P { k: String @key tag: enum(x, y)? } node Q { k: String @key }"
    assert there_and_back(uri, desired) is Reversibility.LOSSY
    after = contents(uri)
    assert after["P"] == [{**row, "age": None} for row in before["P"]]
    assert after["Q"] == before["Q"]
    assert after["E"] == []
    assert contents(uri, version=2) == before


def test_values_are_counted_and_not_rows(uri):
    """Two rows: one has a value of each, and a property that nobody filled has none."""
    engine = LanceEngine(CLOCK, IDS)
    assert engine.kept_data(uri, {"node:P.age", "node:P.k"}).rows == {
        "node:P": 2, "node:Q": 1, "edge:E": 1, "node:P.age": 1, "node:P.k": 2,
    }  # fmt: skip
    migrate(uri, BASE.replace("age: I32?", "more: [String]?").encode())
    found = engine.kept_data(uri, {"node:P.age", "node:P.more"})
    assert (found.held, found.rows["node:P.more"]) == ({"node:P.age": HeldData(2, 1)}, 0)


def test_what_is_irreversible_is_refused_on_the_way_back(uri):
    before = compile_schema(BASE.encode())
    after = compile_schema(BASE.replace("enum(x, y)", "enum(x, y, z)").encode())
    migrate(uri, after.source)
    assert not plan_down(before, after).supported
    with pytest.raises(GitopsError) as refused:
        migrate(uri, down_source(before, after))
    assert refused.value.code == "graph_migration_unsupported"
    assert read.read_rows(uri, "P", 1)[0]["tag"] == "x"
