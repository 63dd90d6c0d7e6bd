"""`gitops graph log`, `snapshot`, `diff`, `branch`: versions; `preview`, `optimize`, `gc`, `purge`, `verify`: maintenance."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from datetime import timedelta

from gitops.cli.graph.data import graph_root, parse_revision, read_target, write_context
from gitops.cli.graph.query_form import open_records
from gitops.cli.shared import OK
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.graph.results import BranchCreated, BranchDeleted, BranchList, GraphOutcome, VersionLog

_AGE = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_NEVER = 2**62


def log(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph log GRAPH`."""
    return VersionLog(graph.read_log(graph_root(options), options.branch, options.limit))


def snapshot(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph snapshot GRAPH`."""
    return graph.describe_version(graph_root(options), read_target(options.branch, options.at))


def diff(options: argparse.Namespace) -> GraphOutcome | int:
    """`gitops graph diff GRAPH BEFORE AFTER`: a line for each row that differs, printed as it is found; or counts."""
    from gitops.render.graph_data import change_line

    root, types = graph_root(options), tuple(options.type)
    before, after = parse_revision(options.before), parse_revision(options.after)
    if options.summary:
        return graph.summarize_diff(root, before, after, types)
    for change in graph.diff_versions(root, before, after, types):
        sys.stdout.write(change_line(change, as_json=options.json) + "\n")
    return OK


def branch_list(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph branch list GRAPH`."""
    return BranchList(graph.list_branches(graph_root(options)))


def branch_create(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph branch create GRAPH BRANCH`."""
    base = parse_revision(options.base)
    return BranchCreated(graph.create_branch(graph_root(options), options.name, write_context(options), base))


def branch_delete(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph branch delete GRAPH BRANCH`."""
    graph.delete_branch(graph_root(options), options.name, write_context(options))
    return BranchDeleted(options.name)


def branch_merge(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph branch merge GRAPH BRANCH`; exit code 1 when there is a conflict, after all of them were printed.

    A merge that has landed is a success, also where its branch could not be deleted.
    """
    root, context = graph_root(options), write_context(options)
    merged = graph.merge_branch(root, options.name, options.into, context)
    if not (options.delete_branch and merged.ok):
        return merged
    try:
        graph.delete_merged_branch(root, options.name, options.into, context)
    except GitopsError as error:
        return replace(merged, branch_deleted=False, branch_delete_error=error.detail)
    return replace(merged, branch_deleted=True)


# -- maintenance -------------------------------------------------------------------------------------------------------


def optimize(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph optimize GRAPH`."""
    chosen = graph.OptimizeOptions() if options.vectors else graph.OptimizeOptions(vector_rows=_NEVER)
    return graph.optimize_tables(graph_root(options), write_context(options), chosen, options.branch)


def gc(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph gc GRAPH`."""
    match = _AGE.fullmatch(options.older_than)
    if match is None:
        raise UsageError(
            Code.USAGE_ERROR,
            f"--older-than {options.older_than[:40]!r} is not an age",
            fix="write a number with d, h or m, such as --older-than 7d",
        )
    if options.keep < 1:
        detail = "--keep must be at least 1: the newest version of a branch always stays"
        raise UsageError(Code.USAGE_ERROR, detail, fix="write --keep 1 or more")
    retention = graph.Retention(options.keep, timedelta(**{_UNITS[match[2]]: int(match[1])}))
    return graph.collect_garbage(graph_root(options), write_context(options), retention, dry_run=options.dry_run)


def purge(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph purge GRAPH`: removes nothing without `--allow-data-loss`."""
    if not (options.allow_data_loss or options.dry_run):
        raise UsageError(
            Code.USAGE_ERROR,
            "this cannot be undone, so it needs --allow-data-loss",
            fix=f"see what would be removed: gitops graph purge {options.graph} --dry-run; then add --allow-data-loss",
        )
    return graph.purge_dropped(graph_root(options), write_context(options), dry_run=options.dry_run)


def verify(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph verify GRAPH`; exit code 1 when there is a problem."""
    return graph.verify_graph(graph_root(options), deep=options.deep)


def preview(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph preview GRAPH FILE`; exit code 1 for a schema that the graph cannot be migrated to."""
    with open_records(options.schema) as file:
        source = file.read()
    root = graph_root(options)
    try:
        return graph.preview_migration(root, source, write_context(options))
    except GitopsError as error:
        if error.code not in (Code.SCHEMA_PARSE_ERROR, Code.SCHEMA_CATALOG_ERROR):
            raise
        raise GitopsError(error.code, error.detail, path=options.schema, fix=error.fix) from None
