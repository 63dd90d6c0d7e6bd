"""`gitops graph query` and `gitops graph mutate`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gitops.cli.graph.inputs import embedder_of, parameters_of, query_of, root_of, target_of
from gitops.cli.options import actor_of
from gitops.cli.output import OK, USAGE, complain, say, show_form
from gitops.graph.engine import driver
from gitops.graph.versions import ReadTarget
from gitops.render.characters import visible, visible_json
from gitops.wiring.caching import cache_folder
from gitops.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.graph.query import QueryOptions, QueryResult

_MIB = 2**20


@driver()
def query(options: argparse.Namespace) -> int:
    """`gitops graph query GRAPH QUERY`: rows as a table, one JSON document, or a JSON object a line."""
    from gitops.graph.query import run_query
    from gitops.graph.snapshot import open_at

    form = options.format or ("json" if options.json else "table")
    if options.json and form != "json":
        complain("--json and --format name two formats; leave one out")
        return USAGE
    uri, target = root_of(options), target_of(options)
    # A query is checked against the graph as it is, also when it looks back.
    checked = query_of(options, open_at(uri, ReadTarget(target.branch)).schema().catalog)
    result = run_query(open_at(uri, target), checked, parameters_of(options, checked), _settings(options))
    if form == "json":
        show_form(
            {
                "ok": True,
                "manifest_version": result.manifest_version,
                "row_count": result.row_count,
                "columns": list(result.columns),
                "rows": result.rows(),
                **({"explanation": list(result.explanation)} if options.explain else {}),
                "diagnostics": [],
            }
        )
    elif form == "ndjson":
        for row in result.rows():
            sys.stdout.write(visible_json(json.dumps(row, ensure_ascii=False)) + "\n")
    else:
        _show_table(result)
    if options.explain and form != "json":
        complain("\n".join(_operators(result.explanation, "")))
    return OK


def _settings(options: argparse.Namespace) -> QueryOptions:
    from gitops.graph.query import QueryOptions, Strategy

    folder = cache_folder(os.environ)
    return QueryOptions(
        now=SystemClock().now(),
        timeout_s=options.timeout,
        memory_bytes=options.memory * _MIB,
        strategy=Strategy(options.strategy),
        self_loops=options.self_loops,
        explain=options.explain,
        embedder=embedder_of(options),
        cache_dir=folder,
        approximate=options.approximate,
    )


def _show_table(result: QueryResult) -> None:
    from gitops.render.table import to_table

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(to_table(result.columns, result.rows(), width=width))
    rows = "1 row" if result.row_count == 1 else f"{result.row_count} rows"
    say(f"{rows}, manifest version {result.manifest_version}")


def _operators(forms: tuple[Mapping[str, Any], ...] | list[Any], indent: str) -> list[str]:
    """Operators in the order in which they ran, those of an inner block below theirs."""
    lines = []
    for form in forms:
        named = [str(form[name]) for name in ("variable", "table", "hop") if name in form]
        conditions = [f"[{' and '.join(form['conditions'])}]"] if form.get("conditions") else []
        counted = f"rows {form['rows']} (estimated {form['estimated_rows']})"
        known = {
            "operator",
            "variable",
            "table",
            "hop",
            "conditions",
            "rows",
            "estimated_rows",
            "runs",
            "operators",
            "outer",
        }
        notes = [f"{name} {form[name]}" for name in form if name not in known]
        lines.append(visible(indent + " ".join([form["operator"], *named, *conditions, counted, *notes])))
        lines += _operators(form.get("operators", []), indent + "  ")
    return lines


@driver()
def mutate(options: argparse.Namespace) -> int:
    """`gitops graph mutate GRAPH QUERY`."""
    from gitops.graph.snapshot import open_at
    from gitops.graph.write.mutate import MutationOptions, Mutator

    uri, clock = root_of(options), SystemClock()
    checked = query_of(options, open_at(uri, ReadTarget(options.branch)).schema().catalog)
    settings = MutationOptions(
        now=clock.now(),
        branch=options.branch,
        actor=actor_of(options),
        expected_head=options.expect_head,
        embedder=embedder_of(options),
    )
    result = Mutator(clock, RandomIds()).run(uri, checked, parameters_of(options, checked), settings)
    if options.json:
        show_form({"ok": True, **result.to_json(), "diagnostics": []})
        return OK
    counted = f"{result.affected_nodes} node(s) and {result.affected_edges} edge(s)"
    said = f"manifest version {result.manifest_version}" if result.changed else "nothing to publish"
    say(f"graph mutate: {counted} of {options.graph}, {said}")
    return OK
