"""What is read: exactly one version, with the types and properties of that version, on disk and on an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.query import ReadCache, Strategy
from gitops.database.graph.snapshot import open_snapshot
from tests.support.ids import SequentialIds
from tests.support.query_graphs import CLOCK, TOWNS, ask, create, put, road, town, values

if TYPE_CHECKING:
    from tests.support.s3 import S3Place

ALL = "query q() { match { $t: Town } return { $t.key } order { $t.key } }"
NEXT = "query q() { match { $t: Town  $t road $u } return { $t.key, $u.key } order { $t.key, $u.key } }"


def migrate(root: str, schema: bytes, start: int = 5_000) -> None:
    LanceEngine(CLOCK, SequentialIds(start)).prepare_migration(root, schema, actor=None).publish()


@pytest.fixture
def graph(tmp_path: Path) -> str:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town("a", size=1), town("b", size=2), road("a", "b")])
    return root


@pytest.mark.parametrize("strategy", Strategy)
def test_an_old_version_is_read_as_it_was(graph: str, strategy: Strategy) -> None:
    cache, old = ReadCache(), open_snapshot(graph)
    put(graph, [town("c"), town("a", size=9), road("b", "c"), road("b", "a")], start=2_000)
    for _ in range(2):
        assert values(ask(old, NEXT, cache=cache, strategy=strategy)) == [("a", "b")]
        assert values(ask(graph, NEXT, cache=cache, strategy=strategy)) == [("a", "b"), ("b", "a"), ("b", "c")]
        assert values(ask(old, ALL, cache=cache, strategy=strategy)) == ["a", "b"]
    assert ask(old, ALL).manifest_version + 1 == ask(graph, ALL).manifest_version


def test_a_type_or_property_that_the_version_lacks_is_an_error(graph: str) -> None:
    old = open_snapshot(graph)
    migrate(
        graph, TOWNS.replace(b"name: String?", b"name: String?  mayor: String?") + b"\nnode Lake { key: String @key }\n"
    )
    catalog = open_snapshot(graph).schema().catalog
    for text, told in {
        "query q() { match { $l: Lake } return { $l.key } }": "Lake",
        'query q() { match { $t: Town {mayor: "x"} } return { $t.key } }': "Town.mayor",
        "query q() { match { $t: Town } return { $t.mayor } }": "Town.mayor",
        "query q() { match { $t: Town } return { count($t.mayor) as n } }": "Town.mayor",
        "query q() { match { $t: Town } return { $t.key } order { $t.mayor } }": "Town.mayor",
        "query q() { match { $t: Town not { $l: Lake $l.key = $t.key } } return { $t.key } limit 0 }": "Lake",
    }.items():
        with pytest.raises(GitopsError) as refused:
            ask(old, text, catalog=catalog)
        assert refused.value.code == "query_target_differs"
        assert refused.value.path == told
        assert values(ask(graph, text)) in ([], [0], ["a", "b"], [None, None])


def test_a_type_that_was_dropped_and_made_anew_is_empty(graph: str) -> None:
    cache = ReadCache()
    assert values(ask(graph, NEXT, cache=cache, strategy=Strategy.CSR)) == [("a", "b")]
    migrate(graph, TOWNS.partition(b"edge")[0])
    migrate(graph, TOWNS, start=6_000)
    assert values(ask(graph, NEXT, cache=cache, strategy=Strategy.CSR)) == []
    assert values(ask(graph, ALL, cache=cache)) == ["a", "b"]


def test_parameters_are_refused_before_anything_is_read(graph: str) -> None:
    text = "query q($n: I32, $d: Date?) { match { $t: Town  $t.size > $n } return { $t.key } }"
    for params, told in (({}, "n"), ({"n": None}, "n"), ({"n": "x"}, "n"), ({"n": 2**40}, "n"), ([], "")):
        with pytest.raises(GitopsError) as refused:
            ask(graph, text, params)
        assert (refused.value.code, refused.value.path) == ("query_params_invalid", told)
    for bad in ("2001-02-29", "yesterday", "\ud800"):
        with pytest.raises(GitopsError) as refused:
            ask(graph, text, {"n": 1, "d": bad})
        assert (refused.value.code, refused.value.path) == ("query_params_invalid", "d")
    assert values(ask(graph, text, {"n": "1", "d": "2000-02-29", "unknown": {}})) == ["b"]


def test_a_literal_that_is_no_day_is_an_error_wherever_it_stands(graph: str) -> None:
    for text in (
        'query q() { match { $t: Town  date("1999-02-29") = date("2000-01-01") } return { $t.key } }',
        'query q() { match { $t: Town } return { date("noon") as d } }',
    ):
        with pytest.raises(GitopsError) as refused:
            ask(graph, text)
        assert refused.value.code == "query_literal_invalid"


def test_a_mutation_is_no_read(graph: str) -> None:
    with pytest.raises(GitopsError) as refused:
        ask(graph, 'query q() { insert Town { key: "z" } }')
    assert refused.value.code == "query_unsupported"


TYPES = ["Blob", "Vector(3)", "Bool", "F32", "U32", "U64", "Date", "DateTime", "enum(x, y)"]
LISTS = ["[String]", "[Bool]", "[I64]", "[U32]", "[U64]", "[F32]", "[F64]", "[Date]", "[DateTime]"]


@pytest.mark.parametrize("other", [*TYPES, *LISTS])
def test_filters_work_whatever_else_a_table_holds(tmp_path: Path, other: str) -> None:
    kinds = f"node Town {{ key: String @key  size: I32?  other: {other}? }}"
    root = create(str(tmp_path / "g.omni"), f"{kinds}\nedge Road: Town -> Town {{ other: {other}? }}".encode())
    put(root, [*(town(f"t{n}", size=n % 4) for n in range(8)), road("t1", "t3"), road("t2", "t3"), road("t3", "t5")])
    text = 'query q() { match { $t: Town {size: 3, key: "t3"}  $t road $u  $u.size < 2 } return { $u.key } }'
    for each in Strategy:
        assert values(ask(root, text, strategy=each)) == ["t5"]
    top = "query q() { match { $t: Town {size: 3} } return { $t.key } order { $t.key desc } limit 1 }"
    assert values(ask(root, top)) == ["t7"]
    ends = 'query q() { match { $t: Town  $t.key starts_with "t"  $t.size >= 2.5 } return { $t.key } order { $t.key } }'
    assert values(ask(root, ends)) == ["t3", "t7"]


@pytest.mark.parametrize("strategy", Strategy)
def test_an_object_store_gives_the_same(s3: S3Place, tmp_path: Path, strategy: Strategy) -> None:
    root = create(f"s3://{s3.bucket}/graphs/g.omni")
    put(root, [town("a", size=1), town("b", size=2), town("c"), road("a", "b"), road("b", "c"), road("c", "a")])
    text = "query q() { match { $t: Town  $t road{1,2} $u  not { $u road $t } } return { $t.key, $u.key } }"
    for _ in range(2):
        found = ask(root, text, strategy=strategy, cache_dir=tmp_path)
        assert values(found) == [("a", "b"), ("b", "c"), ("c", "a")]
    if strategy is not Strategy.AUTO:
        assert len(list(tmp_path.rglob("*.csr"))) == (strategy is Strategy.CSR)
