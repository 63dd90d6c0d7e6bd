"""`gitops graph query` and `gitops graph mutate`."""

from __future__ import annotations

import argparse
import json
import os
import sys

from gitops.cli.graph.inputs import (
    checked_query,
    find_embedder,
    graph_root,
    query_parameters,
    read_target,
    show_result,
    write_context,
)
from gitops.cli.output import OK, USAGE, complain
from gitops.render.characters import visible_json
from gitops.wiring.caching import cache_folder
from gitops.wiring.system import SystemClock

_MIB = 2**20


def query(options: argparse.Namespace) -> int:
    """`gitops graph query GRAPH QUERY`: rows as a table, as one JSON document, or as a JSON object per line."""
    from gitops.graph import QueryOptions, ReadTarget, Strategy, open_snapshot, run_query
    from gitops.graph.results import QueryRows
    from gitops.render.graph_data import operator_lines

    form = options.format or ("json" if options.json else "table")
    if options.json and form != "json":
        complain("--json and --format name two formats; leave one out")
        return USAGE
    root, target = graph_root(options), read_target(options)
    # A query is checked against the newest schema of the branch, also when it reads an older version.
    checked = checked_query(options, open_snapshot(root, ReadTarget(target.branch)).schema().catalog)
    snapshot, parameters = open_snapshot(root, target), query_parameters(options, checked)
    settings = QueryOptions(
        now=SystemClock().now(),
        timeout_s=options.timeout,
        memory_bytes=options.memory * _MIB,
        strategy=Strategy(options.strategy),
        self_loops=options.self_loops,
        explain=options.explain,
        embedder=find_embedder(options),
        cache_dir=cache_folder(os.environ),
        approximate=options.approximate,
    )
    result = run_query(snapshot, checked, parameters, settings)
    rows = QueryRows(
        result.manifest_version, result.columns, result.rows(), result.explanation if options.explain else None
    )
    if form == "ndjson":
        for row in rows.rows:
            sys.stdout.write(visible_json(json.dumps(row, ensure_ascii=False)) + "\n")
    else:
        options.json = form == "json"
        show_result(rows, options)
    if options.explain and form != "json":
        complain("\n".join(operator_lines(result.explanation)))
    return OK


def mutate(options: argparse.Namespace) -> int:
    """`gitops graph mutate GRAPH QUERY`."""
    from gitops.graph import MutationOptions, Mutator, ReadTarget, open_snapshot

    root, context = graph_root(options), write_context(options)
    checked = checked_query(options, open_snapshot(root, ReadTarget(options.branch)).schema().catalog)
    parameters = query_parameters(options, checked)
    settings = MutationOptions(
        now=context.now(),
        branch=options.branch,
        actor=context.actor,
        expected_head=options.expect_head,
        embedder=find_embedder(options),
    )
    return show_result(Mutator(context.clock, context.ids).run(root, checked, parameters, settings), options)
