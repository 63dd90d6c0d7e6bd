"""Laws of reading a graph: answers, exports, filters, and expansions.

Law: whatever the schema, the graph, the query and the strategy, the engine gives what the reference evaluator gives.

Rows without order are compared as bags, rows with a total order one by one. The same holds after mutations, migrations,
compaction and index builds, each of which must leave exactly the rows that the reference leaves, and every older version as
it was.

The law of filters: the driver lets every row through that the exact comparison lets through.

Texts are the hostile part: whatever a text holds, the driver must take it for that text and nothing else.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pytest
from hypothesis import HealthCheck, assume, event, example, given, note, settings
from hypothesis import strategies as st

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.plan.classes import effects_of
from gitops.core.errors import GitopsError
from gitops.database.graph import HashEmbedder
from gitops.database.graph import read as export_module
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.port import MigrationPreview
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.compiled import bind_read
from gitops.database.graph.query.options import QueryOptions, Strategy
from gitops.database.graph.query.run import QueryResult
from gitops.database.graph.read import export_records
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import arrow_schema, arrow_table
from gitops.database.graph.write.committed import (
    NEVER,
    comparison_filter,
    comparison_holds,
    id_range_filter,
    membership_filter,
)
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import ComparisonOperator
from gitops.database.language.schema import NodeType, PropType, Scalar, Schema, SchemaIR, TypeKind, compile_schema
from gitops.database.language.schema.migration import expanded_source, plan_migration
from gitops.database.language.schema.steps import (
    AddProperty,
    ChangeType,
    DropProperty,
    DropType,
    ExtendEnum,
    Migration,
)
from tests.reference import Graph, Mode, Options, Refused, answer, empty, load, mutate
from tests.reference.ranking import mock_embedding
from tests.support import query_engine, random_graphs, random_queries
from tests.support.effort import FULL, cases
from tests.support.evolution import evolve, revisions, shape
from tests.support.ids import SequentialIds
from tests.support.mutations import WrittenGraph
from tests.support.query_cases import NOW, contents, same_result
from tests.support.query_engine import CLOCK, Run, contents_of, load_lines, outcome, refused_alike
from tests.support.random_graphs import SCALARS, Shape, records, shapes
from tests.support.random_queries import Query

EAGER = OptimizeOptions(fragments=2, deleted_share=0.01, scalar_rows=1, text_rows=1)


class Twin:
    """One graph twice: on disk, and in the reference."""

    def __init__(self, folder: Path, shape: Shape, lines: list[str]) -> None:
        self.uri = str(folder / "graph.omni")
        self.shape = shape
        self.schema = shape.schema()
        self.graph = load(self.schema, empty(self.schema.catalog), lines, Mode.APPEND)
        self.past: list[tuple[int, Schema, Graph]] = []
        self.bound = 0
        self._ids = 0
        self._cache = ReadCache()
        note(f"{shape.source.decode()}\n{chr(10).join(lines)}")
        self._engine().prepare_create(self.uri, shape.source, actor=None).publish()
        if lines:
            query_engine.load_lines(self.uri, lines, LoadMode.APPEND, self._next())

    def read(self, query: Query, options: Options) -> None:
        """Run a read under every strategy."""
        run = Run(open_snapshot(self.uri), self._checked(query), query.params, options)
        self._agree(run, self.schema, self.graph)

    def read_bound(self, query: Query, options: Options) -> None:
        """A read that is bound to rows in memory gives what the executor gives: rows, order, types and errors."""
        checked, snapshot = self._checked(query), open_snapshot(self.uri, None, self._cache)
        run = Run(snapshot, checked, query.params, options)

        def told(result: Callable[[], tuple[Sequence[str], list[dict[str, Any]]]]) -> str:
            try:
                return json.dumps(result())
            except GitopsError as error:
                return f"{error.code} {error.detail} {error.path}"

        def executed(cache: ReadCache | None) -> tuple[Sequence[str], list[dict[str, Any]]]:
            found = replace(run, cache=cache).under(Strategy.AUTO)
            return found.columns, found.rows()

        expected = told(lambda: executed(None))
        for _ in range(3):
            assert told(lambda: executed(self._cache)) == expected
            bound = bind_read(snapshot, checked, self._cache, QueryOptions(NOW))
            if bound is not None:
                rows = told(lambda bound=bound: (bound.columns, bound.rows(query.params, NOW)))
                assert rows == expected, f"bound: {rows}\nexecutor: {expected}"
                self.bound += 1

    def look_back(self) -> None:
        """Every version so far has the rows that it had when it was made, found through the same cache."""
        for version, schema, graph in self.past:
            assert contents(schema, query_engine.contents_of(self.uri, schema, version)) == contents(schema, graph)
            for name, declared in (*schema.catalog.nodes.items(), *schema.catalog.edges.items()):
                match = f"$a: {name}" if isinstance(declared, NodeType) else f"$a {name[0].lower()}{name[1:]} $b"
                (parsed,) = parse_queries(f"query q() {{ match {{ {match} }} return {{ $a }} }}".encode())
                checked = check_query(parsed, schema.catalog)
                self._agree(
                    Run(open_snapshot(self.uri, ReadTarget(version=version)), checked, None, Options(now=NOW)),
                    schema,
                    graph,
                )

    def _agree(self, run: Run, schema: Schema, graph: Graph) -> None:
        """The engine gives what the reference gives; two strategies go through the cache of all runs."""
        expected = outcome(lambda: answer(schema, graph, run.query, run.params, run.options))
        for strategy in Strategy:
            each = replace(run, cache=self._cache if strategy in (Strategy.AUTO, Strategy.CSR) else None)
            result = outcome(lambda each=each, strategy=strategy: each.under(strategy))
            if isinstance(expected, Refused):
                assert refused_alike(expected.why, result), f"{strategy}: {result}, expected {expected}"
                continue
            assert isinstance(result, QueryResult), f"{strategy}: {result}, expected {expected.rows}"
            assert same_result(expected, result.rows()), f"{strategy}: {result.rows()}\nexpected: {expected.rows}"
            assert tuple(result.columns) == expected.columns
            assert result.touched == frozenset(run.query.reads)

    def mutate(self, query: Query, *, beside: bool = False) -> None:
        """Run a mutation, perhaps in the process of the readers: the same rows are affected, and there afterwards."""
        checked = self._checked(query)
        before = open_snapshot(self.uri).manifest
        given = Options(now=NOW)
        expected = outcome(lambda: mutate(self.schema, self.graph, checked, query.params, given))
        cache = self._cache if beside else None
        result = outcome(lambda: query_engine.write(self.uri, checked, query.params, given, self._next(), cache))
        if isinstance(expected, Refused):
            assert refused_alike(expected.why, result), f"{result}, expected {expected}"
            assert open_snapshot(self.uri).manifest == before
            return
        assert isinstance(result, MutationResult), f"{result}, expected {expected.nodes} and {expected.edges}"
        assert [result.affected_nodes, result.affected_edges] == [expected.nodes, expected.edges]
        after = open_snapshot(self.uri).manifest
        changed = {key for key, entry in after.tables.items() if before.tables[key] != entry}
        assert changed <= {f"{each.kind.value}:{each.type_name}" for each in checked.writes}
        assert after.n == before.n + bool(changed)
        self._adopt(expected.graph)

    def migrate(self, shape: Shape, graph: Graph) -> None:
        """Migrate to another schema."""
        note(f"migrate to\n{shape.source.decode()}")
        self._engine().prepare_migration(self.uri, shape.source, actor=None).publish()
        self.shape, self.schema = random_graphs.plain_shape(shape), shape.schema()
        self._adopt(graph)

    def optimize(self) -> None:
        """Compact and index everything."""
        note("optimize")
        optimize_tables(self.uri, WriteContext(query_engine.CLOCK, SequentialIds(self._next())), EAGER)
        self._adopt(self.graph)

    def verify(self) -> None:
        """The graph on disk is sound."""
        assert [each for each in verify_graph(self.uri, deep=True).findings if each.is_problem] == []

    def _adopt(self, expected: Graph) -> None:
        """The engine has these rows. Ids that it made up are taken over, since ties are broken by them."""
        found = query_engine.contents_of(self.uri, self.schema)
        assert contents(self.schema, found) == contents(self.schema, expected)
        self.graph = found
        self.past.append((open_snapshot(self.uri).manifest.n, self.schema, found))

    def _checked(self, query: Query) -> CheckedQuery:
        note(f"{query.text}\n{query.params}")
        (parsed,) = parse_queries(query.text.encode())
        return check_query(parsed, self.schema.catalog)

    def _engine(self) -> LanceEngine:
        return LanceEngine(query_engine.CLOCK, SequentialIds(self._next()))

    def _next(self) -> int:
        self._ids += 1_000
        return self._ids


@contextmanager
def twin(data: st.DataObject) -> Iterator[Twin]:
    """A random graph."""
    shape = data.draw(random_graphs.shapes())
    with tempfile.TemporaryDirectory() as folder:
        yield Twin(Path(folder), shape, data.draw(random_graphs.records(shape)))


def every_read(data: st.DataObject, queries: int) -> None:
    with twin(data) as both:
        for _ in range(queries):
            both.read(data.draw(random_queries.reads(both.shape)), Options(now=NOW))


def every_life(data: st.DataObject, steps: int, queries: int) -> None:
    with twin(data) as both:
        for _ in range(steps):
            step = data.draw(st.sampled_from(("mutate", "mutate", "migrate", "optimize")))
            if step == "mutate":
                both.mutate(data.draw(random_queries.mutations(both.shape, both.graph)))
            elif step == "migrate":
                shape, change = data.draw(random_graphs.changes(both.shape))
                both.migrate(shape, change(both.graph))
            else:
                both.optimize()
            for _ in range(queries):
                both.read(data.draw(random_queries.reads(both.shape)), Options(now=NOW))
        both.look_back()
        both.verify()


def every_bound_read(data: st.DataObject, steps: int) -> None:
    with twin(data) as both:
        for step in range(steps):
            if step:
                query = data.draw(random_queries.mutations(both.shape, both.graph))
                both.mutate(query, beside=data.draw(st.booleans()))
            if data.draw(st.integers(0, 9)) == 0:
                both.optimize()
            for _ in range(3):
                both.read_bound(data.draw(random_queries.key_reads(both.shape, both.graph)), Options(now=NOW))
        event(f"bound: {min(both.bound, 10)}")


QUICK = settings(max_examples=8 if FULL else 4, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=300, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=100, suppress_health_check=list(HealthCheck))


@QUICK
@given(st.data())
def test_reads_equal_the_reference(data: st.DataObject) -> None:
    every_read(data, queries=6)


@QUICK
@given(st.data())
def test_reads_equal_the_reference_through_a_life(data: st.DataObject) -> None:
    every_life(data, steps=4, queries=2)


@settings(QUICK, max_examples=cases(60))
@given(st.data())
def test_bound_reads_equal_the_executor(data: st.DataObject) -> None:
    every_bound_read(data, steps=4)


CHANGED = """
node P { k: String @key  t: String?  n: I32?  d: Date? }
node Q { k: String @key  n: I32?  u: U64? }
edge E: P -> P
edge F: P -> Q
"""
ASKED = [
    "match { $a: P { k: $x } } return { $a.k, $a.t, $a.n, $a }",
    "match { $a: P { t: $x } } return { $a.k, $a.n }",
    "match { $a: P { k: $x }  $a e $b } return { $a.n, $b.k, $b.t, $b.n }",
    "match { $a: P { t: $x }  $b e $a } return { $b.k, $b.n, $a.k }",
    "match { $a: P { k: $x }  $a <e> $b } return { $b.k, $b.n }",
    "match { $b e $a  $a: P { k: $x } } return { $b.k, $a.n }",
    "match { $a: P { k: $x }  $a f $q } return { $a.t, $q.k, $q.n }",
    "match { $q: Q { k: $x }  $a f $q } return { $q.n, $a.k, $a.n }",
    "match { $a: P { n: $n } } return { $a.k, $a.t }",
    "match { $q: Q { u: $n }  $a f $q } return { $a.k, $q.k, $q.u }",
    "match { $a: P { d: $d }  $a e $b } return { $a.k, $b.k, $b.d }",
]
TYPES = {"x": "String", "n": "I64", "d": "Date"}
DAYS = ("1969-12-31", "2000-02-29")
DEEDS = {
    "update P set { n: $n, d: $d } where t = $x": "$n: I32, $x: String, $d: Date",
    "update P set { n: $n, t: $y } where k >= $x": "$n: I32, $x: String, $y: String",
    "insert P { k: $x, t: $y, n: $n }  insert P { k: $y, t: $x }": "$n: I32, $x: String, $y: String",
    "insert P { k: $x, t: $y }  insert E { from: $x, to: $x }": "$x: String, $y: String",
    "insert Q { k: $y, n: $n, u: $u }  insert F { from: $x, to: $y }": "$n: I32, $u: U64, $x: String, $y: String",
    "insert E { from: $x, to: $y }  insert E { from: $y, to: $x }": "$x: String, $y: String",
    "delete P where k = $x": "$x: String",
    "delete E where from = $x": "$x: String",
}
WORDS = "abcdef"


@settings(max_examples=cases(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*DEEDS, "load", "optimize"]),
            st.sampled_from(WORDS),
            st.sampled_from(WORDS),
            st.integers(0, 9),
            st.booleans(),
        ),
        min_size=3,
        max_size=8,
    )
)
def test_bound_reads_equal_the_executor_after_every_change(steps: list[tuple[str, str, str, int, bool]]) -> None:
    """Rows are rewritten, go and come, by the process of the reader or by another one, and each read is asked again."""
    with TemporaryDirectory() as folder:
        graph = WrittenGraph(Path(folder) / "g.omni").create(CHANGED)
        other, cache, bound, asked = WrittenGraph(graph.uri, 50_000), ReadCache(), 0, 0
        graph.memory = WriterMemory(cache)
        # Row ids are not in the order of the keys, and the first of them are gone.
        rows = [
            {"type": "P", "data": {"k": k, "t": "ab"[n % 2], "n": n, "d": DAYS[n % 2]}}
            for n, k in enumerate("xydbfcae")
        ]
        graph.load([*rows, *({"type": "Q", "data": {"k": k, "n": n, "u": n}} for n, k in enumerate("ca"))])
        graph.load([{"edge": "E", "from": "dbfca"[n], "to": "acbfd"[n]} for n in range(5)])
        graph.mutate('delete P where k >= "x"')
        catalog = open_snapshot(graph.uri).schema().catalog
        queries = []
        for text in ASKED:
            name = next(name for name in TYPES if f"${name} }}" in text)
            parsed = parse_queries(f"query q(${name}: {TYPES[name]}) {{ {text} }}".encode())
            queries.append((name, check_query(parsed[0], catalog)))
        for deed, x, y, n, beside in [("optimize", "a", "a", 0, True), *steps]:
            writer = graph if beside else other
            if deed == "load":
                writer.load([{"type": "P", "data": {"k": k, "t": x, "n": n}} for k in sorted({x, y})])
            elif deed == "optimize":
                optimize_tables(graph.uri, WriteContext(CLOCK, graph.ids), EAGER)
            else:
                values = {"x": x, "y": y, "n": n, "u": n, "d": DAYS[n % 2]}
                given = {name: value for name, value in values.items() if f"${name}:" in DEEDS[deed]}
                with suppress(GitopsError):
                    writer.mutate(deed, given, DEEDS[deed])
            snapshot, fresh = open_snapshot(graph.uri, None, cache), ReadCache()
            asks = {"x": sorted({x, y, "a"}), "n": [n, n + 1, -1], "d": DAYS}
            for params, query in (({name: value}, query) for name, query in queries for value in asks[name]):
                run = Run(snapshot, query, params, Options(now=NOW))
                expected = replace(run, cache=fresh).under(Strategy.AUTO).rows()
                read = bind_read(snapshot, query, cache, QueryOptions(NOW))
                if read is None:
                    assert replace(run, cache=cache).under(Strategy.CSR).rows() == expected
                else:
                    assert read.rows(params, NOW) == expected
                    bound += 1
                asked += 1
        event(f"bound: {10 * bound // asked} of 10")
        assert bound > asked / 4


@given(st.text(max_size=20), st.integers(1, 40))
def test_the_embedder_of_tests_is_the_one_of_the_language(text: str, dimension: int) -> None:
    (vector,) = HashEmbedder().embed([text], dimension=dimension, model=None)
    assert vector == pytest.approx(mock_embedding(text, dimension), rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@THOROUGH
@given(st.data())
def test_thousands_of_reads_equal_the_reference(data: st.DataObject) -> None:
    every_read(data, queries=12)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@LONG
@given(st.data())
def test_thousands_of_reads_equal_the_reference_through_a_life(data: st.DataObject) -> None:
    every_life(data, steps=8, queries=2)


SCHEMA = """
node P {
  k: String @key
  b: Bool?  i: I32?  j: I64?  u: U32?  v: U64?  f: F32?  d: F64?
  day: Date?  at: DateTime?  vec: Vector(3)? @embed("text")  doc: Blob?  text: String?
  tags: [String]?  nums: [F32]?  moments: [DateTime]?  flags: [Bool]?
  e: enum(x, in-progress)?
}
node Free { n: I32? }
node Pair { a: String  b: F64  @key(a, b) }
edge E: P -> P { w: F64?  day: Date? }
edge F: Free -> Pair
"""
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
DAY = st.dates().map(lambda day: day.isoformat())
MOMENT = st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")
BLOB = st.sampled_from(["base64:", "base64:AA==", "base64:" + "AAAA" * 100])


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


DATA = st.fixed_dictionaries(
    {
        "b": some(st.booleans()),
        "i": some(st.integers(-(2**31), 2**31 - 1)),
        "j": some(st.integers(-(2**63), 2**63 - 1)),
        "u": some(st.integers(0, 2**32 - 1)),
        "v": some(st.integers(0, 2**64 - 1)),
        "f": some(SINGLE),
        "d": some(DOUBLE),
        "day": some(DAY),
        "at": some(MOMENT),
        "vec": some(st.lists(SINGLE, min_size=3, max_size=3)),
        "doc": some(BLOB),
        "text": some(TEXT),
        "tags": some(st.lists(TEXT, max_size=2)),
        "nums": some(st.lists(SINGLE, max_size=2)),
        "moments": some(st.lists(MOMENT, max_size=2)),
        "flags": some(st.lists(st.booleans(), max_size=2)),
        "e": some(st.sampled_from(["x", "in-progress"])),
    }
)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    keys = draw(st.lists(TEXT, min_size=1, max_size=6, unique=True))
    rows: list[dict[str, Any]] = [{"type": "P", "data": {"k": key, **draw(DATA)}} for key in keys]
    rows += [{"type": "Free", "data": {"id": f"f{n}", "n": n}} for n in range(draw(st.integers(0, 2)))]
    for source, target in draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(keys)), max_size=5)):
        rows.append(
            {"edge": "e", "from": source, "to": target, "data": {"w": draw(some(DOUBLE)), "day": draw(some(DAY))}}
        )
    return rows


def described(graph: WrittenGraph) -> dict[str, list[dict[str, Any]]]:
    return {name: graph.shown(name) for name in graph.counts()}


@settings(max_examples=cases(25))
@given(graphs(), st.sampled_from([LoadMode.MERGE, LoadMode.OVERWRITE]), st.sampled_from([1, 300, 1 << 24]))
def test_what_is_exported_loads_to_an_equal_graph(rows: list[dict[str, Any]], mode: LoadMode, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_module, "RANGE_BYTES", size)
        first = WrittenGraph(Path(folder) / "a.omni").create(SCHEMA)
        first.load(rows)
        lines = first.lines()
        second = WrittenGraph(Path(folder) / "b.omni", 5_000).create(SCHEMA)
        second.load(lines)
        assert described(second) == described(first)
        assert second.lines() == lines
        first.load(lines, mode)
        assert first.lines() == lines


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    found = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    found.load(
        [
            {"edge": "e", "from": "b", "to": "a", "data": {"id": "2"}},
            {"edge": "E", "from": "a", "to": "b", "data": {"id": "10", "w": 0.5}},
            {"type": "P", "data": {"k": "b", "text": "x"}},
            {"type": "P", "data": {"k": "a", "f": 0.1, "vec": [0.1, 1e-7, 2]}},
            {"type": "Free", "data": {"id": "z"}},
        ]
    )
    return found


def test_edges_come_first_and_rows_by_id(graph: WrittenGraph) -> None:
    assert graph.lines() == [
        '{"edge":"E","from":"a","to":"b","data":{"id":"10","w":0.5}}',
        '{"edge":"E","from":"b","to":"a","data":{"id":"2"}}',
        '{"type":"Free","data":{"id":"z"}}',
        '{"type":"P","data":{"id":"a","f":0.1,"k":"a","vec":[0.1,1e-07,2.0]}}',
        '{"type":"P","data":{"id":"b","k":"b","text":"x","vec":null}}',
    ]


def test_types_and_tables_are_chosen_by_name(graph: WrittenGraph) -> None:
    snapshot = open_snapshot(graph.uri)
    assert [json.loads(line).get("type") for line in export_records(snapshot, ["Free", "node:P"])] == ["Free", "P", "P"]
    assert len(list(export_records(snapshot, ["edge:E"]))) == 2
    assert list(export_records(snapshot, [])) == []
    for unknown in ("Q", "node:E", "e", ""):
        with pytest.raises(GitopsError) as failure:
            export_records(snapshot, [unknown])
        assert failure.value.code == "graph_type_unknown"


def test_an_export_is_of_its_snapshot_whatever_is_written_meanwhile(graph: WrittenGraph) -> None:
    lines = graph.lines()
    reading = export_records(open_snapshot(graph.uri))
    begun = list(itertools.islice(reading, 2))
    graph.mutate('delete P where k = "a"')
    assert begun + list(reading) == lines


def test_large_tables_are_read_in_ranges_of_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "RANGE_BYTES", 1)
    graph = WrittenGraph(tmp_path / "g.omni").create("node T { k: String @key  n: I32 }")
    graph.load({"type": "T", "data": {"k": f"{n * 7919 % 5000:04}", "n": n}} for n in range(5000))
    assert [row["data"]["k"] for row in graph.rows("T")] == [f"{n:04}" for n in range(5000)]


def test_long_texts_make_the_ranges_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def record_lines(table: Any, declared: Any, rows: Any) -> Iterator[str]:
        sizes.append(rows.nbytes)
        yield from original(table, declared, rows)

    original = export_module._record_lines
    monkeypatch.setattr(export_module, "_record_lines", record_lines)
    monkeypatch.setattr(export_module, "RANGE_BYTES", 2**20)
    graph = WrittenGraph(tmp_path / "g.omni").create("node T { k: String @key  text: String }")
    graph.load({"type": "T", "data": {"k": f"{n:03}", "text": "x" * 20_000}} for n in range(400))
    assert [row["data"]["k"] for row in graph.rows("T")] == [f"{n:03}" for n in range(400)]
    assert sum(sizes) > 400 * 20_000
    assert max(sizes) < 3 * 2**20


SPELLING = st.text(st.sampled_from(list("'\"\\`%_;-/*$?{}:aAé\0\n\r\t😀 ")), max_size=6)
FILTER_LAWS_SINGLE = [
    0.0,
    -0.0,
    0.10000000149011612,
    -1.5,
    9.99994610111476e-41,
    3.4028234663852886e38,
    1.401298464324817e-45,
    16777216.0,
]
FILTER_LAWS_DOUBLE = [0.0, -0.0, 0.1, -1.5, 5e-324, 1.7976931348623157e308, 9007199254740992.0, 1.8446744073709552e19]
KINDS: dict[str, tuple[PropType, list[Any]]] = {
    "b": (PropType(Scalar.BOOL, nullable=True), [True, False]),
    "i": (PropType(Scalar.I32, nullable=True), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "j": (PropType(Scalar.I64, nullable=True), [-(2**63), 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "u": (PropType(Scalar.U32, nullable=True), [0, 1, 2**32 - 1]),
    "v": (PropType(Scalar.U64, nullable=True), [0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
    "f": (PropType(Scalar.F32, nullable=True), FILTER_LAWS_SINGLE),
    "d": (PropType(Scalar.F64, nullable=True), FILTER_LAWS_DOUBLE),
    "day": (PropType(Scalar.DATE, nullable=True), [-719162, -1, 0, 1, 2932896]),
    "at": (PropType(Scalar.DATETIME, nullable=True), [-62135596800000, -1, 0, 1, 86_400_001, 253402300799999]),
    "t": (PropType(Scalar.STRING, nullable=True), ["", "'", "''", "\\", "\\'", "a", "é", "\0", "😀", "a' or 'a'='a"]),
    "doc": (PropType(Scalar.BLOB, nullable=True), [b"x"]),
    "tags": (PropType(Scalar.STRING, nullable=True, is_list=True), [[], ["a"]]),
}
TYPE = NodeType("T", {name: KINDS[name][0] for name in sorted(KINDS)})
ROWS = 12
COMPARED = sorted(set(KINDS) - {"doc", "tags"})
NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(FILTER_LAWS_SINGLE + FILTER_LAWS_DOUBLE)
)


@pytest.fixture(scope="module", params=["without indexes", "with indexes"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    cells = {name: [*values, None] for name, (_, values) in KINDS.items()}
    columns = {name: [values[at % len(values)] for at in range(ROWS)] for name, values in cells.items()}
    columns["id"] = [f"{text}{at}" for at, text in enumerate((KINDS["t"][1] * 2)[:ROWS])]
    path = str(tmp_path_factory.mktemp("filters") / "t.lance")
    dataset = lance.write_dataset(
        arrow_table(TYPE, columns),
        path,
        schema=arrow_schema(TYPE),
        data_storage_version="2.2",
        enable_stable_row_ids=True,
    )
    if request.param == "with indexes":
        for name in ("id", *COMPARED):
            dataset.create_scalar_index(name, "BTREE")
    return lance.dataset(path)


def cells_of(name: str) -> list[Any]:
    values = [*KINDS[name][1], None]
    return [values[at % len(values)] for at in range(ROWS)]


def passed(table: lance.LanceDataset, where: str | None) -> set[int]:
    """The rows that the driver lets through, by their place."""
    return set(table.scanner(columns=[], filter=where, with_row_id=True).to_table()["_rowid"].to_pylist())


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, ComparisonOperator, Any]:
    name = draw(st.sampled_from(COMPARED))
    kind, values = KINDS[name]
    operand: Any = draw(st.sampled_from(values))
    if kind.scalar is Scalar.STRING:
        operand = draw(st.sampled_from(values) | SPELLING)
    elif kind.scalar not in (Scalar.BOOL, Scalar.DATE, Scalar.DATETIME):
        operand = draw(st.sampled_from(values) | NUMBERS)
    sign = draw(
        st.sampled_from(
            [
                each
                for each in ComparisonOperator
                if each not in (ComparisonOperator.CONTAINS, ComparisonOperator.STARTS_WITH)
            ]
        )
    )
    return name, sign, operand


@settings(max_examples=cases(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(comparisons())
def test_no_row_that_passes_is_filtered_out(
    table: lance.LanceDataset, comparison: tuple[str, ComparisonOperator, Any]
) -> None:
    name, sign, operand = comparison
    exact = {at for at, cell in enumerate(cells_of(name)) if comparison_holds(cell, sign, operand)}
    narrowed = comparison_filter(name, KINDS[name][0], sign, operand)
    if narrowed == NEVER:
        assert exact == set()
    assert exact <= passed(table, narrowed)


@settings(max_examples=cases(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPELLING | st.sampled_from(KINDS["t"][1]), SPELLING)
def test_a_text_is_that_text_and_nothing_else(table: lance.LanceDataset, text: str, other: str) -> None:
    where = membership_filter("t", KINDS["t"][0], [text, other])
    assert passed(table, where) == {at for at, cell in enumerate(cells_of("t")) if cell in (text, other)}


@pytest.mark.parametrize("name", COMPARED)
def test_each_value_is_found(table: lance.LanceDataset, name: str) -> None:
    kind, values = KINDS[name]
    for value in values:
        found = {at for at, cell in enumerate(cells_of(name)) if cell is not None and cell == value}
        assert passed(table, membership_filter(name, kind, [value])) == found


@pytest.mark.parametrize("name", ["doc", "tags"])
def test_what_the_driver_cannot_look_up_has_no_filter(name: str) -> None:
    assert membership_filter(name, KINDS[name][0], ["a"]) is None


@settings(max_examples=cases(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPELLING, SPELLING)
def test_a_range_of_ids_is_cut_by_code_points(table: lance.LanceDataset, low: str, high: str) -> None:
    ids = table.to_table(columns=["id"])["id"].to_pylist()
    assert passed(table, id_range_filter(low, high)) == {at for at, row_id in enumerate(ids) if low <= row_id < high}


def test_nothing_compares_with_a_null() -> None:
    assert all(comparison_filter(name, KINDS[name][0], ComparisonOperator.NE, None) == NEVER for name in COMPARED)


WITH_INTERFACES = (
    b"interface I { a: I32?  b: I32? } node N implements I { k: String @key } node M { k: String @key }",
    b"interface I { b: I32?  c: I32? } node N implements I { k: String @key } node O { k: String @key }",
)
"""A property that an interface gives up and one that it gets, a node type that goes and one that comes."""
JOINED_WHILE_IT_LOSES = (
    b"interface I { a: I32?  b: I32? } node N implements I { k: String @key }",
    b"interface I { b: I32? } node N implements I { k: String @key } node M implements I { k: String @key }",
)
GROWN_WHILE_IT_GOES = (
    b"interface I { a: I32? } node N implements I { k: String @key } node M { k: String @key }",
    b"interface I { a: I32?  b: I32? } node M { k: String @key }",
)


@st.composite
def moved(draw: st.DrawFn, before: Shape) -> Shape:
    """A shape in which a type has other properties, and perhaps an edge type less."""
    owner = draw(st.sampled_from([each for each in (*before.nodes, *before.edges) if each.properties]))
    plain = [name for name, kind in owner.properties if "@" not in kind]
    gone = draw(st.sampled_from(plain)) if plain else None
    kept = tuple(each for each in owner.properties if each[0] != gone)
    added = tuple(
        (f"new{at}", kind) for at, kind in enumerate(draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=2)))
    )
    nodes, edges = (
        tuple(replace(each, properties=(*kept, *added)) if each is owner else each for each in types)
        for types in (before.nodes, before.edges)
    )
    return Shape(nodes, edges[draw(st.integers(0, 1)) :])


@st.composite
def moves(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The texts of a shape and of what it moves to."""
    start = draw(shapes())
    return start.source, draw(moved(start)).source


@given(revisions(mixed=True))
@example(WITH_INTERFACES)
def test_halves_carried_out_one_after_the_other_are_the_migration(pair: tuple[bytes, bytes]) -> None:
    before, after = map(compile_schema, pair)
    whole = plan_migration(before, after)
    text = expanded_source(before, after, whole)
    assume(text is not None)
    between = compile_schema(text or b"")
    first, second = plan_migration(before, between), plan_migration(between, after)
    assert first.steps
    assert not any(isinstance(step, DropProperty | DropType) for step in first.steps)
    assert all(isinstance(step, DropProperty | DropType) for step in second.steps)
    assert {*first.steps, *second.steps} == {*whole.steps}
    halfway = evolve(shape(before.ir), first.steps, shape(after.ir))
    assert halfway == shape(between.ir)
    assert evolve(halfway, second.steps, shape(after.ir)) == shape(after.ir)
    assert expanded_source(before, between, first) is None


@given(moves())
@example(WITH_INTERFACES)
def test_what_is_staged_can_be_taken_back(pair: tuple[bytes, bytes]) -> None:
    """Back in the accepted schema everything is as it was, by a migration that drops only what the first half added."""
    before, after = map(compile_schema, pair)
    preview = MigrationPreview.between(before, after)
    change = Change(Address("schema.g"), Action.UPDATE, "0" * 64, "1" * 64, migration=preview)
    classified = effects_of([change])[change.address]
    assume(classified.expanded is not None)
    assert classified.effect is Effect.STAGE
    between = compile_schema(preview.expanded or b"")
    back = plan_migration(between, before)
    assert back.supported
    assert evolve(shape(between.ir), back.steps, shape(before.ir)) == shape(before.ir)
    names = shape(before.ir)
    for step in back.steps:
        if isinstance(step, DropType):
            assert (step.type_kind.value, step.name) not in names
        elif isinstance(step, DropProperty):
            assert step.property_name not in names[step.type_kind.value, step.type_name]["properties"]


@given(revisions())
@example(JOINED_WHILE_IT_LOSES)
@example(GROWN_WHILE_IT_GOES)
def test_only_what_drops_and_does_something_else_has_halves(pair: tuple[bytes, bytes]) -> None:
    """Some have none: those with an interface that changes while a type joins or leaves it."""
    before, after = map(compile_schema, pair)
    whole = plan_migration(before, after)
    kinds = {(step.drops, step.keeps_readers) for step in whole.steps}
    cut = expanded_source(before, after, whole) is not None
    mixed = kinds == {(True, False), (False, True)}
    assert cut == mixed or (mixed and _changed_interfaces(whole) & _joined_or_left(before.ir, after.ir))


def _changed_interfaces(whole: Migration) -> set[str]:
    changes = (AddProperty, ChangeType, DropProperty, ExtendEnum)
    return {
        step.type_name for step in whole.steps if isinstance(step, changes) and step.type_kind is TypeKind.INTERFACE
    }


def _joined_or_left(before: SchemaIR, after: SchemaIR) -> set[str]:
    old, new = ({(name, node.name) for node in each.nodes for name in node.implements} for each in (before, after))
    return {interface for interface, _ in old ^ new}


def _seen(graph: Graph, schema: Schema) -> list[object]:
    """What a reader by a schema finds in a graph that has more."""
    catalog = schema.catalog
    nodes = [
        (name, key, {column: row[column] for column in declared.properties})
        for name, declared in catalog.nodes.items()
        for key, row in sorted(graph.nodes[name].items())
    ]
    edges = [
        (name, key, edge.src, edge.dst, {column: edge.row[column] for column in declared.properties})
        for name, declared in catalog.edges.items()
        for key, edge in sorted(graph.edges[name].items())
    ]
    return [*nodes, *edges]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_rows_after_the_halves_are_those_after_the_migration(data: st.DataObject) -> None:
    """On real tables; readers by the accepted schema miss nothing between them, and the first half can be taken back."""
    start = data.draw(shapes())
    lines, end = data.draw(records(start)), data.draw(moved(start))
    before, after = start.schema(), end.schema()
    preview = MigrationPreview.between(before, after)
    assume(preview.expanded is not None)
    between = compile_schema(preview.expanded or b"")
    engine = LanceEngine(CLOCK, SequentialIds())
    with TemporaryDirectory() as folder:
        at_once, halved, taken_back = (str(Path(folder, name)) for name in ("once.omni", "halved.omni", "back.omni"))
        engine.prepare_create(at_once, before.source, actor=None).publish()
        if lines:
            load_lines(at_once, lines, LoadMode.APPEND)
        rows = contents_of(at_once, before)
        for other in (halved, taken_back):
            shutil.copytree(at_once, other, symlinks=True)
        engine.prepare_migration(at_once, after.source, actor=None).publish()
        for uri in (halved, taken_back):
            engine.prepare_migration(uri, between.source, actor=None).publish()
            assert _seen(contents_of(uri, between), before) == _seen(rows, before)
        engine.prepare_migration(halved, after.source, actor=None).publish()
        engine.prepare_migration(taken_back, before.source, actor=None).publish()
        assert contents_of(halved, after) == contents_of(at_once, after)
        assert engine.read(halved).schema_source == engine.read(at_once).schema_source == after.source
        assert contents_of(taken_back, before) == rows
        assert engine.read(taken_back).schema_source == before.source
