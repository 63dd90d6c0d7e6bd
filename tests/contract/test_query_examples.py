"""The example clusters of real users: every stored query and mutation gives what the reference gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.database.graph.query.options import Strategy
from gitops.database.graph.query.run import QueryResult
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.language.query import QueryEffect, check_query, parse_queries
from gitops.database.language.schema import Schema, compile_schema
from tests.reference import Graph, Mode, Refused, answer, empty, load, mutate
from tests.support import query_engine
from tests.support.query_cases import OPTIONS, Ground, contents, same_result
from tests.support.query_engine import Run, outcome, refused_alike
from tests.support.query_parameters import parameters

EXAMPLES = Path(__file__).parents[3] / "shared" / "examples"
CLUSTERS = ("industry-intel", "pharma-intel")
PICKS = 3

pytestmark = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="the shared example clusters are not beside this checkout"
)


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request, tmp_path_factory):
    """The schema, the checked queries, the reference graph and the root of an example."""
    folder = EXAMPLES / request.param
    source = (folder / "schema.pg").read_bytes()
    schema = compile_schema(source)
    lines = tuple((folder / "seed.jsonl").read_text(encoding="utf-8").splitlines())
    world = query_engine.World(tmp_path_factory.mktemp("examples"))
    graph = load(schema, empty(schema.catalog), lines, Mode.APPEND)
    uri = world.make(Ground(source, schema, lines))
    files = sorted((folder / "queries").glob("*.gq"))
    queries = [check_query(query, schema.catalog) for file in files for query in parse_queries(file.read_bytes())]
    return schema, queries, graph, world, uri


def test_the_seed_is_loaded_whole(cluster):
    schema, _, graph, _, uri = cluster
    assert contents(schema, query_engine.contents_of(uri, schema)) == contents(schema, graph)


def test_every_stored_read_gives_what_the_reference_gives(cluster):
    schema, queries, _, _, uri = cluster
    # Ids of edges that the seed leaves open are made by the engine, and ties may be broken by them.
    graph, snapshot = query_engine.contents_of(uri, schema), open_snapshot(uri)
    found = 0
    for query in queries:
        if query.kind is not QueryEffect.READ:
            continue
        for pick in range(PICKS):
            params = parameters(query, schema, graph, pick)
            found += agree(schema, graph, Run(snapshot, query, params, OPTIONS))
    assert found > len(queries) // 2, "most reads find something"


def agree(schema: Schema, graph: Graph, run: Run) -> bool:
    """Run one read under every strategy; whether it found rows."""
    expected = outcome(lambda: answer(schema, graph, run.query, run.params, run.options))
    for strategy in Strategy:
        result = outcome(lambda strategy=strategy: run.under(strategy))
        if isinstance(expected, Refused):
            assert refused_alike(expected.why, result), (run.query.name, result, expected)
            continue
        assert isinstance(result, QueryResult), (run.query.name, result)
        assert same_result(expected, result.rows()), (run.query.name, run.params, strategy)
        assert result.touched == frozenset(run.query.reads), run.query.name
    return not isinstance(expected, Refused) and bool(expected.rows)


def test_every_stored_mutation_leaves_what_the_reference_leaves(cluster):
    schema, queries, _, world, shared = cluster
    uri = world.copy(shared)
    for number, query in enumerate(queries):
        if query.kind is not QueryEffect.MUTATION:
            continue
        graph = query_engine.contents_of(uri, schema)
        params = parameters(query, schema, graph, pick=number)
        expected = outcome(lambda: mutate(schema, graph, query, params, OPTIONS))  # noqa: B023 - called at once
        result = outcome(lambda: query_engine.write(uri, query, params, OPTIONS, start=(number + 1) * 1_000_000))  # noqa: B023
        if isinstance(expected, Refused):
            assert refused_alike(expected.why, result), (query.name, result, expected)
            continue
        assert [result.affected_nodes, result.affected_edges] == [expected.nodes, expected.edges], query.name
        assert contents(schema, query_engine.contents_of(uri, schema)) == contents(schema, expected.graph), query.name
