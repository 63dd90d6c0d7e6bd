"""The arguments of `gitops graph`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

Command = Callable[[Any, str, str, "str | None"], argparse.ArgumentParser]
"""Makes a subcommand: the group, its name, a summary, and the function that runs it."""

_DATA, _QUERY, _HISTORY, _CARE = (
    "gitops.cli.graph.rows",
    "gitops.cli.graph.query",
    "gitops.cli.graph.history",
    "gitops.cli.graph.care",
)
_WHEN = "a version number, a commit id or a time (2026-01-31T12:00:00Z)"


def add_graph(commands: Any, command: Command) -> None:
    """Add `gitops graph` with its parts."""
    parser = command(commands, "graph", "the data of a graph: load, query, change, branch, keep in order", None)
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_data(parts, command)
    _add_queries(parts, command)
    _add_history(parts, command)
    _add_branches(parts, command)
    _add_care(parts, command)


def _add_data(parts: Any, command: Command) -> None:
    load = _part(parts, command, "load", "load NDJSON records in one publish", f"{_DATA}:load")
    load.add_argument("file", metavar="FILE", nargs="?", help="records, or - for standard input")
    load.add_argument(
        "--parquet",
        metavar="TYPE=FILE",
        action="append",
        default=[],
        help="rows of a type, columns named like its properties, and from and to; instead of FILE; repeatable",
    )
    load.add_argument(
        "--mode",
        choices=("merge", "append", "overwrite"),
        default="merge",
        help="what an existing id means: replace its row, refuse, or replace whole tables (default: merge)",
    )
    _branch(load)
    load.add_argument("--from", dest="base", metavar="BRANCH", help="make the branch from this one if it is not there")
    _embeddings(load)
    export = _part(parts, command, "export", "print the records of a graph, as load takes them", f"{_DATA}:export")
    export.add_argument("--type", metavar="NAME", action="append", default=[], help="only this type; repeatable")
    export.add_argument(
        "--output", metavar="FILE", help="file to write, whole or not at all (default: standard output)"
    )
    _version(export)
    show = _part(parts, command, "show", "show tables, versions and rows", f"{_DATA}:show")
    show.add_argument("--type", metavar="NAME", help="print rows of this node or edge type")
    show.add_argument("--limit", metavar="N", type=_count, default=20, help="rows at most (default 20)")
    show.add_argument("--at", metavar="VERSION", type=int, help="as of this manifest version")


def _add_queries(parts: Any, command: Command) -> None:
    query = _part(parts, command, "query", "run a read and print its rows", f"{_QUERY}:query")
    mutate = _part(parts, command, "mutate", "run a mutation in one publish", f"{_QUERY}:mutate")
    for part in (query, mutate):
        part.add_argument("query", metavar="QUERY", nargs="?", help="name of a stored query, or of one in --file")
        source = part.add_mutually_exclusive_group()
        source.add_argument("--file", metavar="FILE", help="query file, or - for standard input")
        source.add_argument("--text", metavar="TEXT", help="the query itself")
        part.add_argument(
            "--param", metavar="NAME=VALUE", action="append", default=[], help="value of a parameter; repeatable"
        )
        part.add_argument("--params", metavar="FILE", help="JSON object of parameters, or - for standard input")
        _embeddings(part)
    _version(query)
    query.add_argument("--format", choices=("table", "json", "ndjson"), help="form of the rows (default: table)")
    query.add_argument("--explain", action="store_true", help="print the operators with estimates and real rows")
    query.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="give up after this time")
    query.add_argument("--memory", metavar="MIB", type=_count, default=1024, help="memory for the query (default 1024)")
    query.add_argument("--self-loops", action="store_true", help="let hops return over an edge from a node to itself")
    query.add_argument("--approximate", action="store_true", help="allow a vector index, which may miss near rows")
    query.add_argument(
        "--strategy", choices=("auto", "index", "csr", "scan"), default="auto", help="how hops find neighbours"
    )
    _branch(mutate)
    mutate.add_argument(
        "--expect-head", metavar="VERSION", type=int, help="refuse if the branch is not at this version"
    )


def _add_history(parts: Any, command: Command) -> None:
    log = _part(parts, command, "log", "list the versions of a branch, newest first", f"{_HISTORY}:log")
    _branch(log)
    log.add_argument("--limit", metavar="N", type=_count, default=20, help="versions at most (default 20)")
    snapshot = _part(parts, command, "snapshot", "describe one version with its tables", f"{_HISTORY}:snapshot")
    _version(snapshot)
    diff = _part(parts, command, "diff", "show the rows that differ between two versions", f"{_HISTORY}:diff")
    for name in ("before", "after"):
        help_text = "BRANCH, BRANCH@WHEN or WHEN, which is " + _WHEN
        diff.add_argument(name, metavar=name.upper(), help=help_text)
    diff.add_argument("--type", metavar="NAME", action="append", default=[], help="only this type; repeatable")
    diff.add_argument("--summary", action="store_true", help="print numbers instead of rows")


def _add_branches(parts: Any, command: Command) -> None:
    parser = command(parts, "branch", "branches of a graph", None)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _part(verbs, command, "list", "list the branches", f"{_HISTORY}:branch_list")
    create = _part(verbs, command, "create", "make a branch; no row is copied", f"{_HISTORY}:branch_create")
    delete = _part(verbs, command, "delete", "remove a branch", f"{_HISTORY}:branch_delete")
    merge = _part(verbs, command, "merge", "bring what a branch has into another one", f"{_HISTORY}:branch_merge")
    for part in (create, delete, merge):
        part.add_argument("name", metavar="BRANCH", help="name of the branch")
    create.add_argument("--from", dest="base", metavar="PLACE", default="main", help="BRANCH, BRANCH@WHEN or WHEN")
    merge.add_argument("--into", metavar="BRANCH", default="main", help="where it goes (default: main)")


def _add_care(parts: Any, command: Command) -> None:
    preview = _part(
        parts, command, "preview", "try a schema on a copy, and count the rows it touches", f"{_CARE}:preview"
    )
    preview.add_argument("schema", metavar="FILE", help="the schema text to try")
    optimize = _part(parts, command, "optimize", "compact the tables and build their indexes", f"{_CARE}:optimize")
    _branch(optimize)
    optimize.add_argument("--vectors", action="store_true", help="build vector indexes too, which takes long")
    gc = _part(parts, command, "gc", "remove what no kept version, branch or reader needs", f"{_CARE}:gc")
    gc.add_argument("--keep", metavar="N", type=int, default=10, help="newest versions of each branch (default 10)")
    gc.add_argument(
        "--older-than", metavar="AGE", default="7d", help="and all younger than 7d, 12h or 30m (default 7d)"
    )
    gc.add_argument("--dry-run", action="store_true", help="remove nothing; say what would go")
    purge = _part(parts, command, "purge", "remove dropped types and properties for good", f"{_CARE}:purge")
    purge.add_argument("--allow-data-loss", action="store_true", help="do it; older versions lose these tables")
    purge.add_argument("--dry-run", action="store_true", help="remove nothing; say what would go")
    verify = _part(parts, command, "verify", "check every document, table and reference of a graph", f"{_CARE}:verify")
    verify.add_argument("--deep", action="store_true", help="read all rows: ids, ends of edges, constraints")


def _part(parts: Any, command: Command, name: str, summary: str, handler: str) -> argparse.ArgumentParser:
    part = command(parts, name, summary, handler)
    part.add_argument("graph", metavar="GRAPH", help="graph id, or with --root nothing but a label")
    part.add_argument("--config", metavar="DIR", default=".", help="cluster folder (default: the current folder)")
    part.add_argument("--root", metavar="PATH", help="graph root, instead of the one that the folder gives")
    return part


def _branch(part: argparse.ArgumentParser) -> None:
    part.add_argument("--branch", metavar="BRANCH", default="main", help="branch (default: main)")


def _version(part: argparse.ArgumentParser) -> None:
    _branch(part)
    part.add_argument("--at", metavar="WHEN", help=f"as of {_WHEN}")


def _embeddings(part: argparse.ArgumentParser) -> None:
    part.add_argument("--embeddings", metavar="WHO", help="who makes vectors of texts: hash, or MODEL@https://HOST/v1")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("use a number of at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("use a number of seconds above 0")
    return value
