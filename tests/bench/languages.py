"""The two languages, per file, in a warm process."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.clusters import SCHEMA, query_text, widened
from tests.bench.measure import Effort, Figure, repeated


def figures(effort: Effort) -> Iterator[Figure]:
    """Compile a schema, plan a migration, parse and check a query."""
    from gitops.lang.query import check_query, parse_queries
    from gitops.lang.schema import compile_schema, plan_migration

    inner = 5 if effort.quick else 50
    source, query = SCHEMA.encode(), query_text("q", 7).encode()
    schema, wider = compile_schema(source), compile_schema(widened(SCHEMA, "email").encode())
    parsed = parse_queries(query)[0]
    count = effort.samples
    yield Figure("compile a schema file", "ms", repeated(count, lambda: compile_schema(source), inner=inner))
    yield Figure("plan a migration", "ms", repeated(count, lambda: plan_migration(schema, wider), inner=inner))
    yield Figure("parse a query file", "ms", repeated(count, lambda: parse_queries(query), inner=inner))
    yield Figure("check a query", "ms", repeated(count, lambda: check_query(parsed, schema.catalog), inner=inner))
