"""The commands of `gitops graph`."""

from __future__ import annotations

from gitops.cli.commands.arguments import Argument, Command, Group, count, seconds

_DATA, _QUERY, _VERSIONS = "gitops.cli.graph.data", "gitops.cli.graph.query", "gitops.cli.graph.versions"
_WHEN = "a version number, a commit id or a time (2026-01-31T12:00:00Z)"
_REVISION = f"BRANCH, BRANCH@WHEN or WHEN, where WHEN is {_WHEN}"

_GRAPH = (
    Argument("graph", metavar="GRAPH", help="graph id; with --root it is only a label"),
    Argument("--config", metavar="DIR", default=".", help="cluster folder (default: the current folder)"),
    Argument("--root", metavar="PATH", help="graph root, instead of the one in the cluster folder"),
)
_BRANCH = Argument("--branch", metavar="BRANCH", default="main", help="branch (default: main)")
_AT = Argument("--at", metavar="WHEN", help=f"as of {_WHEN}")
_TYPES = Argument("--type", metavar="NAME", action="append", default=[], help="only this type; repeatable")
_DRY_RUN = Argument("--dry-run", action="store_true", help="remove nothing; print what would be removed")
_BRANCH_NAME = Argument("name", metavar="BRANCH", help="name of the branch")
_EMBEDDINGS = Argument(
    "--embeddings", metavar="MODEL", help="model that turns texts into vectors: hash, or MODEL@https://HOST/v1"
)
_QUERY_ARGUMENTS = (
    *_GRAPH,
    Argument("query", metavar="QUERY", nargs="?", help="name of a stored query, or of a query in --file"),
    Group(
        Argument("--file", metavar="FILE", help="query file, or - for standard input"),
        Argument("--text", metavar="TEXT", help="text of the query"),
    ),
    Argument("--param", metavar="NAME=VALUE", action="append", default=[], help="value of a parameter; repeatable"),
    Argument("--params", metavar="FILE", help="JSON object of parameters, or - for standard input"),
    _EMBEDDINGS,
)

_BRANCHES = Command(
    "branch",
    "create, list, merge and delete branches of a graph",
    commands=(
        Command("list", "list the branches", f"{_VERSIONS}:branch_list", *_GRAPH),
        Command(
            "create",
            "create a branch; no rows are copied",
            f"{_VERSIONS}:branch_create",
            *_GRAPH,
            _BRANCH_NAME,
            Argument(
                "--from",
                dest="base",
                metavar="REVISION",
                default="main",
                help="where it starts: BRANCH, BRANCH@WHEN or WHEN (default: main)",
            ),
        ),
        Command("delete", "delete a branch", f"{_VERSIONS}:branch_delete", *_GRAPH, _BRANCH_NAME),
        Command(
            "merge",
            "merge the changes of a branch into another branch",
            f"{_VERSIONS}:branch_merge",
            *_GRAPH,
            _BRANCH_NAME,
            Argument("--into", metavar="BRANCH", default="main", help="branch to merge into (default: main)"),
        ),
    ),
)

GRAPH = Command(
    "graph",
    "load, query, change, branch and maintain the data of a graph",
    commands=(
        Command(
            "load",
            "load NDJSON records in one publish",
            f"{_DATA}:load",
            *_GRAPH,
            Argument("file", metavar="FILE", nargs="?", help="records, or - for standard input"),
            Argument(
                "--parquet",
                metavar="TYPE=FILE",
                action="append",
                default=[],
                help="rows of a type, instead of FILE; columns have the names of properties, and from and to; repeatable",
            ),
            Argument(
                "--mode",
                choices=("merge", "append", "overwrite"),
                default="merge",
                help="what to do with an existing id: replace its row, refuse, or replace whole tables (default: merge)",
            ),
            _BRANCH,
            Argument(
                "--from", dest="base", metavar="BRANCH", help="create the branch from this one if it does not exist"
            ),
            _EMBEDDINGS,
        ),
        Command(
            "export",
            "print the records of a graph, in the format that load reads",
            f"{_DATA}:export",
            *_GRAPH,
            _TYPES,
            Argument(
                "--output", metavar="FILE", help="write a file, completely or not at all (default: standard output)"
            ),
            _BRANCH,
            _AT,
        ),
        Command(
            "show",
            "show tables, versions and rows",
            f"{_DATA}:show",
            *_GRAPH,
            Argument("--type", metavar="NAME", help="print rows of this node or edge type"),
            Argument("--limit", metavar="N", type=count, default=20, help="maximum number of rows (default 20)"),
            Argument("--at", metavar="VERSION", type=int, help="as of this manifest version"),
        ),
        Command(
            "query",
            "run a read query and print its rows",
            f"{_QUERY}:query",
            *_QUERY_ARGUMENTS,
            _BRANCH,
            _AT,
            Argument("--format", choices=("table", "json", "ndjson"), help="format of the rows (default: table)"),
            Argument("--explain", action="store_true", help="print the operators with estimated and actual rows"),
            Argument("--timeout", metavar="SECONDS", type=seconds, help="stop after this time"),
            Argument("--memory", metavar="MIB", type=count, default=1024, help="memory limit (default 1024)"),
            Argument("--self-loops", action="store_true", help="let hops follow an edge from a node to itself"),
            Argument("--approximate", action="store_true", help="allow a vector index, which may miss near rows"),
            Argument(
                "--strategy", choices=("auto", "index", "csr", "scan"), default="auto", help="how hops find neighbours"
            ),
        ),
        Command(
            "mutate",
            "run a mutation in one publish",
            f"{_QUERY}:mutate",
            *_QUERY_ARGUMENTS,
            _BRANCH,
            Argument("--expect-head", metavar="VERSION", type=int, help="refuse if the branch is not at this version"),
        ),
        Command(
            "log",
            "list the versions of a branch, newest first",
            f"{_VERSIONS}:log",
            *_GRAPH,
            _BRANCH,
            Argument("--limit", metavar="N", type=count, default=20, help="maximum number of versions (default 20)"),
        ),
        Command("snapshot", "describe one version and its tables", f"{_VERSIONS}:snapshot", *_GRAPH, _BRANCH, _AT),
        Command(
            "diff",
            "show the rows that differ between two versions",
            f"{_VERSIONS}:diff",
            *_GRAPH,
            Argument("before", metavar="BEFORE", help=_REVISION),
            Argument("after", metavar="AFTER", help=_REVISION),
            _TYPES,
            Argument("--summary", action="store_true", help="print counts instead of rows"),
        ),
        _BRANCHES,
        Command(
            "preview",
            "try a schema on a copy, and count the affected rows",
            f"{_VERSIONS}:preview",
            *_GRAPH,
            Argument("schema", metavar="FILE", help="schema to try"),
        ),
        Command(
            "optimize",
            "compact the tables and build their indexes",
            f"{_VERSIONS}:optimize",
            *_GRAPH,
            _BRANCH,
            Argument("--vectors", action="store_true", help="build vector indexes too, which takes long"),
        ),
        Command(
            "gc",
            "remove data that no kept version, branch or reader needs",
            f"{_VERSIONS}:gc",
            *_GRAPH,
            Argument(
                "--keep",
                metavar="N",
                type=int,
                default=10,
                help="keep the newest N versions of each branch (default 10)",
            ),
            Argument(
                "--older-than",
                metavar="AGE",
                default="7d",
                help="keep also all versions younger than this: 7d, 12h or 30m (default 7d)",
            ),
            _DRY_RUN,
        ),
        Command(
            "purge",
            "remove the data of dropped types and properties permanently",
            f"{_VERSIONS}:purge",
            *_GRAPH,
            Argument("--allow-data-loss", action="store_true", help="confirm; older versions lose these tables"),
            _DRY_RUN,
        ),
        Command(
            "verify",
            "check every document, table and reference of a graph",
            f"{_VERSIONS}:verify",
            *_GRAPH,
            Argument("--deep", action="store_true", help="read all rows: ids, ends of edges, constraints"),
        ),
    ),
)
