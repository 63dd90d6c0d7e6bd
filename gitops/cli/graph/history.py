"""`gitops graph log`, `snapshot`, `diff` and `branch`: the versions of a graph."""

from __future__ import annotations

import argparse
import sys

from gitops.cli.graph.inputs import graph_root, parse_revision, read_target, show_result, write_context
from gitops.cli.output import OK
from gitops.graph.results import BranchCreated, BranchDeleted, BranchList, VersionLog


def log(options: argparse.Namespace) -> int:
    """`gitops graph log GRAPH`."""
    from gitops.graph import read_log

    return show_result(VersionLog(read_log(graph_root(options), options.branch, options.limit)), options)


def snapshot(options: argparse.Namespace) -> int:
    """`gitops graph snapshot GRAPH`."""
    from gitops.graph import describe_version

    return show_result(describe_version(graph_root(options), read_target(options)), options)


def diff(options: argparse.Namespace) -> int:
    """`gitops graph diff GRAPH BEFORE AFTER`: a line for each row that differs, printed as it is found; or counts."""
    from gitops.graph import diff_versions, summarize_diff
    from gitops.render.graph_data import change_line

    root, types = graph_root(options), tuple(options.type)
    before, after = parse_revision(options.before), parse_revision(options.after)
    if options.summary:
        return show_result(summarize_diff(root, before, after, types), options)
    for change in diff_versions(root, before, after, types):
        sys.stdout.write(change_line(change, as_json=options.json) + "\n")
    return OK


def branch_list(options: argparse.Namespace) -> int:
    """`gitops graph branch list GRAPH`."""
    from gitops.graph import list_branches

    return show_result(BranchList(list_branches(graph_root(options))), options)


def branch_create(options: argparse.Namespace) -> int:
    """`gitops graph branch create GRAPH BRANCH`."""
    from gitops.graph import create_branch

    base = parse_revision(options.base)
    return show_result(
        BranchCreated(create_branch(graph_root(options), options.name, write_context(options), base)), options
    )


def branch_delete(options: argparse.Namespace) -> int:
    """`gitops graph branch delete GRAPH BRANCH`."""
    from gitops.graph import delete_branch

    delete_branch(graph_root(options), options.name, write_context(options))
    return show_result(BranchDeleted(options.name), options)


def branch_merge(options: argparse.Namespace) -> int:
    """`gitops graph branch merge GRAPH BRANCH`; exit code 1 when there is a conflict, after all of them were printed."""
    from gitops.graph import merge_branch

    return show_result(merge_branch(graph_root(options), options.name, options.into, write_context(options)), options)
