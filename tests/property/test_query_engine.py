"""Law: whatever the schema, the graph, the query and the strategy, the engine gives what the reference evaluator gives.

Rows without order are compared as bags, rows with a total order one by one. The same holds after mutations, migrations,
compaction and index builds, each of which must leave exactly the rows that the reference leaves, and every older version as
it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from gitops.database.graph import HashEmbedder
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.query import QueryResult, ReadCache, Strategy
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.schema import NodeType, Schema
from tests.reference import Graph, Mode, Options, Refused, answer, empty, load, mutate
from tests.reference.ranking import mock_embedding
from tests.support import query_engine, random_graphs, random_queries
from tests.support.effort import FULL
from tests.support.ids import SequentialIds
from tests.support.query_cases import NOW, contents, same_result
from tests.support.query_engine import Run, outcome, refused_alike
from tests.support.random_graphs import Shape
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
        """The engine gives what the reference gives; one strategy goes through the cache of all runs."""
        expected = outcome(lambda: answer(schema, graph, run.query, run.params, run.options))
        for strategy in Strategy:
            each = replace(run, cache=self._cache if strategy is Strategy.AUTO else None)
            result = outcome(lambda each=each, strategy=strategy: each.under(strategy))
            if isinstance(expected, Refused):
                assert refused_alike(expected.why, result), f"{strategy}: {result}, expected {expected}"
                continue
            assert isinstance(result, QueryResult), f"{strategy}: {result}, expected {expected.rows}"
            assert same_result(expected, result.rows()), f"{strategy}: {result.rows()}\nexpected: {expected.rows}"
            assert tuple(result.columns) == expected.columns
            assert result.touched == frozenset(run.query.reads)

    def mutate(self, query: Query) -> None:
        """Run a mutation: the same rows are affected, and the same rows are there afterwards."""
        checked = self._checked(query)
        before = open_snapshot(self.uri).manifest
        given = Options(now=NOW)
        expected = outcome(lambda: mutate(self.schema, self.graph, checked, query.params, given))
        result = outcome(lambda: query_engine.write(self.uri, checked, query.params, given, self._next()))
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
