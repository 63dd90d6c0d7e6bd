"""`gitops graph preview`, `optimize`, `gc`, `purge` and `verify`."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from gitops.cli.graph.inputs import graph_root, open_records, show_result, write_context
from gitops.core.codes import Code
from gitops.core.errors import UsageError

_AGE = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_NEVER = 2**62


def optimize(options: argparse.Namespace) -> int:
    """`gitops graph optimize GRAPH`."""
    from gitops.graph import OptimizeOptions, optimize_tables

    chosen = OptimizeOptions() if options.vectors else OptimizeOptions(vector_rows=_NEVER)
    return show_result(optimize_tables(graph_root(options), write_context(options), chosen, options.branch), options)


def gc(options: argparse.Namespace) -> int:
    """`gitops graph gc GRAPH`."""
    from gitops.graph import Retention, collect_garbage

    match = _AGE.fullmatch(options.older_than)
    if match is None:
        raise UsageError(
            Code.USAGE_ERROR, f"--older-than {options.older_than[:40]!r}: use an age such as 7d, 12h or 30m"
        )
    if options.keep < 1:
        raise UsageError(Code.USAGE_ERROR, "--keep must be at least 1: the newest version of a branch always stays")
    retention = Retention(options.keep, timedelta(**{_UNITS[match[2]]: int(match[1])}))
    result = collect_garbage(graph_root(options), write_context(options), retention, dry_run=options.dry_run)
    return show_result(result, options)


def purge(options: argparse.Namespace) -> int:
    """`gitops graph purge GRAPH`: removes nothing without `--allow-data-loss`."""
    from gitops.graph import purge_dropped

    if not (options.allow_data_loss or options.dry_run):
        raise UsageError(
            Code.USAGE_ERROR, "this cannot be undone: look first with --dry-run, then add --allow-data-loss"
        )
    return show_result(purge_dropped(graph_root(options), write_context(options), dry_run=options.dry_run), options)


def verify(options: argparse.Namespace) -> int:
    """`gitops graph verify GRAPH`; exit code 1 when there is a problem."""
    from gitops.graph import verify_graph

    return show_result(verify_graph(graph_root(options), deep=options.deep), options)


def preview(options: argparse.Namespace) -> int:
    """`gitops graph preview GRAPH FILE`; exit code 1 for a schema that the graph cannot be migrated to."""
    from gitops.graph import preview_migration

    with open_records(options.schema) as file:
        source = file.read()
    return show_result(preview_migration(graph_root(options), source, write_context(options)), options)
