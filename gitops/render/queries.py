"""A list of stored queries: what each takes, returns, reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitops.cluster.session.queries import QueriesOutcome
from gitops.database.language.query import CheckedQuery
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines


def queries_text(outcome: QueriesOutcome, *, verbose: bool = False) -> str:
    """The queries of each graph, then the problems; each line ended by a line feed."""
    lines = [line for graph, queries in outcome.graphs.items() for line in _graph(graph, queries)]
    lines += diagnostic_lines(outcome.diagnostics, verbose=verbose)
    return "".join(visible(line) + "\n" for line in lines)


def queries_form(outcome: QueriesOutcome) -> dict[str, Any]:
    """`{ok, config_dir, applied, queries: [{graph, name, kind, parameters, result, reads, writes, ...}], diagnostics}`."""
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "applied": outcome.applied,
        "queries": [_form(graph, query) for graph, queries in outcome.graphs.items() for query in queries],
        "diagnostics": [each.to_json() for each in outcome.diagnostics],
    }


def _graph(graph: str, queries: tuple[CheckedQuery, ...]) -> Iterator[str]:
    yield f"graph {graph}: {len(queries)} stored {'query' if len(queries) == 1 else 'queries'}"
    for query in queries:
        parameters = ", ".join(f"${name}: {kind}" for name, kind in query.params.items())
        yield f"  {query.name}({parameters}): {query.kind}"
        if query.description:
            yield f"    {query.description}"
        if query.columns:
            columns = ", ".join(f"{each.column}: {each.type or 'Node'}" for each in query.columns)
            yield f"    returns {columns}"
        for verb, accesses in (("reads", query.reads), ("writes", query.writes)):
            if accesses:
                yield f"    {verb} {', '.join(f'{each.kind} {each.type_name}' for each in accesses)}"


def _form(graph: str, query: CheckedQuery) -> dict[str, Any]:
    parameters = [{"name": name, "type": str(kind)} for name, kind in query.params.items()]
    texts = {"description": query.description, "instruction": query.instruction}
    described = {name: text for name, text in texts.items() if text is not None}
    head = {"graph": graph, "name": query.name, "kind": query.kind.value}
    return {**head, **described, "parameters": parameters, **query.operation()}
