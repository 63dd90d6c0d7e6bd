"""Execution of the examples: one function, so that one place says what carries them out. It is the reference evaluator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gitops.database.language.query import QueryEffect, check_query, parse_queries
from gitops.database.language.schema import Schema
from tests.reference import Mode, Refused, empty, evaluate, load, mutate


@dataclass(frozen=True)
class Result:
    """Rows of a read, numbers of changes of a mutation, or the rule that refuses the run."""

    rows: list[dict[str, Any]] | None = None
    affected: dict[str, int] | None = None
    refused: str | None = None


def run_example(schema: Schema, data: str, query: bytes, params: dict[str, Any] | None) -> Result:
    """Load `data` (one record a line) into an empty graph of the schema, and run the query on it."""
    graph = load(schema, empty(schema.catalog), data.splitlines(), Mode.APPEND)
    (parsed,) = parse_queries(query)
    checked = check_query(parsed, schema.catalog)
    try:
        if checked.kind is QueryEffect.READ:
            return Result(rows=evaluate(schema, graph, checked, params))
        outcome = mutate(schema, graph, checked, params)
    except Refused as refusal:
        return Result(refused=refusal.why)
    return Result(affected={"nodes": outcome.nodes, "edges": outcome.edges})


def same_rows(found: list[dict[str, Any]] | None, expected: list[dict[str, Any]], *, ordered: bool) -> bool:
    """Whether rows are those of a page: as a list if they are ordered, else as a bag."""
    if found is None or ordered:
        return found == expected
    return sorted(map(_text, found)) == sorted(map(_text, expected))


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)
