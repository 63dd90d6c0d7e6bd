"""Migrations of graphs with rows: what is counted, what is refused, the rows afterwards, and the way back."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.database.graph import read
from gitops.database.graph.embedding import HashEmbedder
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.diff import diff_versions
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.preview import preview_migration
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.migrate import purge_dropped
from gitops.database.graph.port import RestoreOrder, StepCount
from gitops.database.graph.query.by_key import read_by_key
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.compiled import bind_read, bound_read
from gitops.database.graph.query.options import QueryOptions, Strategy
from gitops.database.graph.query.run import run_query
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.values import json_to_cell
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import PropType, compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source
from gitops.database.language.schema.step_terms import Reversibility
from tests.reference.converting import DoesNotConvertError, convert
from tests.support.cases import read_yaml
from tests.support.clock import FixedClock
from tests.support.effort import cases as cases_of
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
        self.engine = LanceEngine(CLOCK, self.ids, embedder=HashEmbedder)
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
    told = {"breaking": count.breaking, "keys": list(count.keys), "lost": count.lost, "characters": count.characters}
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
        first = next(count for count in counts if count is not None and count.breaking)
        assert refused.value.detail.endswith(f": {first.text}"), "people who may not read the graph see no ids"
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
        left = graph.engine.count_steps(place, reverse)
        assert story["stuck"] == next(list(count.keys) for count in left if count is not None and count.breaking)
    else:
        graph.migrate(reverse)
        assert graph.contents() == story.get("back", start)
        assert graph.is_sound()
        assert graph.contents(version=3) == story["rows"]
        if plan_migration(before, after).reversibility is Reversibility.LOSSY:
            assert "back" in story
    collect_garbage(place, graph.work(), Retention())
    assert graph.contents(version=2) == start


BASE = "node T { k: String @key n: I32? @index s: String? } edge E: T -> T"
WIDER = BASE.replace("n: I32?", "n: String?")
REKEYED = "node T { k: String n: I32 @key s: String? } edge E: T -> T"
ROWS = [{"type": "T", "data": {"k": name, "n": at, "s": f"text {at}"}} for at, name in enumerate("abcdefgh")]
ROWS += [{"edge": "E", "from": "a", "to": "b", "data": {"id": "e1"}}]
QUERIES = """
query by_number($n: String) { match { $t: T { n: $n } } return { $t.k as k, $t.n as n } }
query by_key($k: String) { match { $t: T { k: $k } } return { $t.n as n } }
query next($k: String) { match { $t: T { k: $k } $t e $u } return { $u.n as n } }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(str(tmp_path / "g.omni"), BASE, *ROWS)


class Reader:
    """Runs queries as an open server does, with what earlier runs left in its cache."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.cache = graph, ReadCache()

    def rows(self, name: str, params: dict[str, Any], version: int | None = None) -> list[dict[str, Any]]:
        snapshot = open_snapshot(self.graph.uri, ReadTarget(version=version))
        text = QUERIES if "n: String" in snapshot.schema_source().decode() else QUERIES.replace("$n: String", "$n: I32")
        queries = [check_query(each, snapshot.schema().catalog) for each in parse_queries(text.encode())]
        checked, found = next(each for each in queries if each.name == name), []
        for strategy in Strategy:
            options = QueryOptions(now=CLOCK.now(), strategy=strategy)
            bind_read(snapshot, checked, self.cache, options)
            for cache in (self.cache, None):
                rows = run_query(snapshot, checked, params, options, cache).rows()
                assert not found or rows == found[0]
                found.append(rows)
        direct = read_by_key(snapshot, checked, params, options)
        bound = bound_read(snapshot, checked, self.cache)
        assert direct is None or list(direct.rows) == found[0]
        assert bound is None or bound.rows(params, CLOCK.now()) == found[0]
        return found[0]


def test_an_open_reader_sees_converted_values_and_older_versions_the_former_ones(graph: Graph) -> None:
    """Also by an index that was built before, by a key, and over an edge; and what is loaded later."""
    built = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1)
    optimize_tables(graph.uri, graph.work(), built)
    reader = Reader(graph)
    assert reader.rows("by_number", {"n": 1}) == [{"k": "b", "n": 1}]
    assert reader.rows("by_key", {"k": "b"}) == reader.rows("next", {"k": "a"}) == [{"n": 1}]
    before = graph.engine.read(graph.uri).manifest_version
    graph.migrate(WIDER)
    for _ in range(2):
        assert reader.rows("by_number", {"n": "1"}) == [{"k": "b", "n": "1"}]
        assert reader.rows("by_key", {"k": "b"}) == reader.rows("next", {"k": "a"}) == [{"n": "1"}]
        assert reader.rows("by_number", {"n": 1}, before) == [{"k": "b", "n": 1}]
        optimize_tables(graph.uri, graph.work(), built)
    graph.load({"type": "T", "data": {"k": "b", "n": "one"}})
    graph.load({"type": "T", "data": {"k": "i", "n": "one"}}, mode=LoadMode.APPEND)
    assert sorted(row["k"] for row in reader.rows("by_number", {"n": "one"})) == ["b", "i"]
    assert reader.rows("by_key", {"k": "b"}) == [{"n": "one"}]
    assert graph.is_sound()


def test_an_open_reader_and_loads_follow_a_new_key(graph: Graph) -> None:
    reader = Reader(graph)
    optimize_tables(graph.uri, graph.work(), OptimizeOptions(fragments=1, scalar_rows=1))
    assert reader.rows("by_key", {"k": "b"}) == reader.rows("next", {"k": "a"}) == [{"n": 1}]
    graph.migrate(REKEYED)
    assert reader.rows("by_number", {"n": 1}) == [{"k": "b", "n": 1}]
    assert reader.rows("by_key", {"k": "b"}) == reader.rows("next", {"k": "a"}) == [{"n": 1}]
    graph.load({"type": "T", "data": {"k": "new", "n": 1}}, {"edge": "E", "from": "1", "to": "2", "data": {"id": "e2"}})
    assert reader.rows("by_number", {"n": 1}) == [{"k": "new", "n": 1}]
    assert reader.rows("next", {"k": "new"}) == [{"n": 2}]
    with pytest.raises(GitopsError):
        graph.load({"type": "T", "data": {"k": "again", "n": 1}}, mode=LoadMode.APPEND)
    assert graph.is_sound()


def test_differences_and_restores_across_a_conversion(graph: Graph) -> None:
    graph.migrate(BASE.replace("n: I32?", "n: I64?"))
    graph.load({"type": "T", "data": {"k": "b", "n": 2**40}})
    found = list(diff_versions(graph.uri, ReadTarget(version=2), ReadTarget()))
    assert "b" in {change.id for change in found}
    assert all(change.to_json() for change in found)
    with pytest.raises(GitopsError) as refused:
        graph.engine.restore(graph.uri, RestoreOrder(2, ("T",)), actor=None)
    assert refused.value.code == "graph_restore_refused"
    graph.engine.restore(graph.uri, RestoreOrder(3, ("T",)), actor=None)
    assert graph.contents()["T"] == graph.contents(2)["T"]
    assert graph.is_sound()


def test_a_branch_with_rows_keeps_a_conversion_from_being_applied(graph: Graph) -> None:
    create_branch(graph.uri, "dev", graph.work())
    create_branch(graph.uri, "idle", graph.work())
    stream = io.BytesIO(json.dumps(ROWS[0]).replace('"n": 0', '"n": 9').encode())
    load_records(LoadRequest(graph.uri, stream, branch="dev"), graph.work())
    with pytest.raises(ConflictError) as refused:
        graph.migrate(WIDER)
    assert (refused.value.code, refused.value.detail.endswith(": dev")) == ("graph_has_branches", True)
    with pytest.raises(ConflictError, match=r": dev \(.*n.*: 1 of 8 rows breaks it\)$"):
        graph.engine.check_migration(graph.uri, BASE.replace("s: String?", "s: String? @range(n, 0..8)").encode())
    merge_branch(graph.uri, "dev", "main", graph.work())
    graph.migrate(WIDER)
    assert graph.contents()["T"][0]["n"] == "9"
    idle = open_snapshot(graph.uri, ReadTarget("idle")).manifest
    collect_garbage(graph.uri, graph.work(), Retention(1, timedelta(0), timedelta(0)))
    assert open_snapshot(graph.uri, ReadTarget("idle")).manifest == idle
    assert graph.is_sound()


def test_lost_values_of_a_required_property_come_back_as_a_backfill(graph: Graph) -> None:
    required = BASE.replace("s: String?", "s: String")
    graph.migrate(required)
    graph.load({"type": "T", "data": {"k": "a", "s": "7"}})
    lossy = BASE.replace("s: String?", "s: I32? @convert(null)")
    graph.migrate(lossy)
    reverse = down_source(*(compile_schema(text.encode()) for text in (required, lossy))).decode()
    with pytest.raises(GitopsError) as refused:
        graph.migrate(reverse)
    assert refused.value.detail.endswith(": 7 of 8 rows break it")
    graph.migrate(reverse.replace("s: String", 's: String @backfill("unknown")'))
    assert [row["s"] for row in graph.contents()["T"]] == ["7", *["unknown"] * 7]


def test_a_purge_names_only_what_was_dropped(graph: Graph) -> None:
    """Not the former columns of conversions, renamed ones included, nor the ids and ends of a former key."""
    graph.migrate(BASE.replace("n: I32?", 'm: String? @rename_from("n")'))
    graph.migrate(BASE.replace("n: I32?", "m: I64?"))
    graph.migrate(REKEYED.replace("n: I32 @key", 'n: I64 @key @rename_from("m")'))
    graph.migrate(BASE.replace("n: I32?", "n: I64?"))
    nothing = purge_dropped(graph.uri, graph.work(), dry_run=True)
    assert (nothing.types, nothing.properties) == ((), {})
    graph.migrate(BASE.replace("n: I32? @index s: String?", "n: I64? t: String?"))
    graph.migrate(BASE.replace("n: I32? @index s: String?", 'n: I64? s: String? @rename_from("t")'))
    for _ in range(2):
        found = purge_dropped(graph.uri, graph.work(), dry_run=True)
        assert found.properties == {"node:T": ("s",)}
    purge_dropped(graph.uri, graph.work())
    assert purge_dropped(graph.uri, graph.work(), dry_run=True).properties == {}
    assert graph.is_sound()


def test_garbage_collection_and_purges_leave_converted_rows(graph: Graph) -> None:
    graph.migrate(WIDER.replace("s: String?", ""))
    rows = graph.contents()
    collect_garbage(graph.uri, graph.work(), Retention(1, timedelta(0), timedelta(0)))
    assert graph.contents() == rows
    purge_dropped(graph.uri, graph.work())
    assert graph.contents() == rows
    assert graph.is_sound()


def files_of(graph: Graph) -> set[str]:
    return {str(path) for path in Path(graph.uri).rglob("*.lance")}


def test_values_that_do_not_convert_leave_no_files(graph: Graph) -> None:
    graph.load({"type": "T", "data": {"k": "a", "n": 0, "s": "1"}})
    graph.load({"type": "T", "data": {"k": "z", "n": 9, "s": "2"}}, mode=LoadMode.APPEND)
    files, rows = files_of(graph), graph.contents()
    with pytest.raises(GitopsError) as refused:
        graph.migrate(BASE.replace("n: I32?", "n: String?").replace("s: String?", "s: I32?"))
    assert refused.value.detail.endswith(": 7 of 9 rows break it")
    assert (files_of(graph), graph.contents()) == (files, rows)


EMBEDDED = (
    "node T { k: String @key s: String? v: Vector(2)? @embed(s) } node U { k: String @key s: String v: Vector(2)? }"
)
LONGER = EMBEDDED.replace("Vector(2)? @embed", "Vector(3)? @embed")


class NoService:
    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        raise RemoteError(Code.EMBEDDING_FAILED, f"no answer for {len(texts)} texts")


class ShortService:
    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        return [[1.0] * (dimension - 1) for _ in texts]


def test_vectors_are_computed_only_with_a_service(tmp_path: Path) -> None:
    rows = [{"type": "T", "data": {"k": str(at), "s": f"text {at % 3}", "v": [at, 0]}} for at in range(5)]
    graph = Graph(str(tmp_path / "g.omni"), EMBEDDED, *rows)
    files, start = files_of(graph), graph.contents()
    graph.engine = LanceEngine(CLOCK, graph.ids)
    for attempt in (graph.engine.check_migration, lambda _, source: graph.migrate(source)):
        with pytest.raises(GitopsError) as refused:
            attempt(graph.uri, LONGER.encode())
        assert refused.value.code == "graph_migration_unsupported"
        assert refused.value.detail.endswith("no embedding service is set")
        assert "GITOPS_EMBEDDINGS" in (refused.value.fix or "")
    for service, reason in ((NoService, "no answer for 3 texts"), (ShortService, "one vector for each text")):
        graph.engine = LanceEngine(CLOCK, graph.ids, embedder=service)
        with pytest.raises(GitopsError) as failed:
            graph.migrate(LONGER)
        assert failed.value.code == "embedding_failed"
        assert failed.value.detail.endswith(reason)
    assert (files_of(graph), graph.contents()) == (files, start)
    graph.engine = LanceEngine(CLOCK, graph.ids)
    graph.migrate(EMBEDDED.replace("s: String v: Vector(2)?", "s: String v: Vector(2)? @embed(s)"))
    graph.engine = LanceEngine(CLOCK, graph.ids, embedder=HashEmbedder)
    graph.migrate(LONGER)
    assert [len(row["v"]) for row in graph.contents()["T"]] == [3] * 5


KINDS = [
    "I32",
    "I64?",
    "U32",
    "F64?",
    "String",
    "String?",
    "Date",
    "DateTime?",
    "Bool",
    "enum(x, y)",
    "[I32]",
    "[String]?",
]
CELLS: dict[str, list[Any]] = {
    "String": ["", "7", "-1", "x", "true", "2020-02-29", "1.5", "01"],
    "I32": [0, 7, -1],
    "I64": [0, -1, 2**31, 2**53 + 1],
    "U32": [0, 2**32 - 1],
    "F64": [0.0, 0.5, 7.0, 1e300],
    "Date": ["2020-02-29", "0001-01-01"],
    "DateTime": ["2020-02-29T00:00:00.000Z", "2020-02-29T00:00:00.001Z"],
    "Bool": [True, False],
    "enum(x, y)": ["x", "y"],
    "[I32]": [[], [7], [1, 2]],
    "[String]": [[], ["x"], ["7", "x"]],
}


def cells(kind: str) -> st.SearchStrategy[Any]:
    some = st.sampled_from(CELLS[kind.removesuffix("?")])
    return st.none() | some if kind.endswith("?") else some


def kind_of(text: str) -> PropType:
    return compile_schema(f"node T {{ p: {text} }}".encode()).catalog.nodes["T"].properties["p"]


@settings(max_examples=cases_of(60))
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(["", " @unique"]), st.data())
def test_counts_are_the_rows_that_keep_a_migration_from_being_applied(
    old: str, new: str, rule: str, data: st.DataObject
) -> None:
    before, after = (f"node T {{ k: String @key p: {kind} }}" for kind in (old, new))
    after = after.replace(" }", f"{'' if new.startswith('[') else rule} }}")
    up = plan_migration(*(compile_schema(text.encode()) for text in (before, after)))
    assume(up.supported)
    values = data.draw(st.lists(cells(old), max_size=6))
    with TemporaryDirectory() as folder:
        rows = [{"type": "T", "data": {"k": f"k{at}", "p": value}} for at, value in enumerate(values)]
        graph = Graph(f"{folder}/g.omni", before, *rows)
        counts = graph.engine.count_steps(graph.uri, after.encode())
        breaking = sum(count.breaking for count in counts if count is not None)
        changed = [count for step, count in zip(up.steps, counts, strict=True) if step.kind == "change_property_type"]
        wanted = 0
        for value in values:
            if value is None:
                wanted += not kind_of(new).nullable
                continue
            with contextlib.suppress(DoesNotConvertError):
                convert(json_to_cell(value, kind_of(old)), kind_of(old), kind_of(new), {})
                continue
            wanted += 1
        assert [count and count.breaking for count in changed] == [wanted] * len(changed)
        start = graph.contents()
        if breaking:
            with pytest.raises(GitopsError) as refused:
                graph.migrate(after)
            assert refused.value.code == "graph_rows_break_schema"
            assert graph.contents() == start
            return
        graph.migrate(after)
        assert graph.is_sound()
        graph.migrate(down_source(*(compile_schema(text.encode()) for text in (before, after))))
        if not old.startswith("String"):
            # A text may have been written in another way than its number.
            assert graph.contents() == start
