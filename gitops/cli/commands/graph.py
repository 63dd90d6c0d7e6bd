"""The `gitops graph` commands."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    CLUSTER,
    ENGINE,
    FOLDER,
    REQUEST,
    Argument,
    Command,
    Group,
    count,
    flag,
    seconds,
)

_WHEN = "a version number, a commit id or a time (2026-01-31T12:00:00Z)"
_REVISION = f"BRANCH, BRANCH@WHEN or WHEN, where WHEN is {_WHEN}"

_GRAPH = (
    Argument("graph", "GRAPH", "graph id; with --root, only a label"),
    FOLDER,
    Argument("--root", "PATH", "graph root to use instead of the one from the cluster folder"),
)
_BRANCH = Argument("--branch", "BRANCH", "branch (default: main)", default="main")
_AT = Argument("--at", "WHEN", f"read the data as of {_WHEN}")
_TYPES = Argument("--type", "NAME", "only this type; repeatable", action="append", default=[])
_DRY_RUN = flag("--dry-run", "print what would be removed, without removing it")
_BRANCH_NAME = Argument("name", "BRANCH", "name of the branch")
_FORMAT = Argument("--format", ("table", "json", "ndjson", "csv", "kv"), "format of the rows (default: table)")
_EMBEDDINGS = Argument("--embeddings", "MODEL", "embedding model: hash, or MODEL@https://HOST/v1")
_VECTORS = flag("--vectors", "also build vector indexes, which takes a long time")
_LOG_FORMAT = Argument(
    "--log-format",
    ("text", "json"),
    "log on standard error: text, or json, which writes events with the step, rows, rate and time left",
    default="text",
)
_QUERY_TEXTS = (
    Argument("query", "QUERY", "name of a stored query, or of a query in --file", nargs="?"),
    Group(
        Argument("--file", "FILE", "query file, or - for standard input"),
        Argument("--text", "TEXT", "query to run, as text"),
    ),
    Argument("--param", "NAME=VALUE", "value of a parameter; repeatable", action="append", default=[]),
    Argument("--params", "FILE", "JSON object of parameters, or - for standard input"),
)
_QUERY_ARGUMENTS = (*_QUERY_TEXTS, _EMBEDDINGS)


def _on_graph(name: str, summary: str, handler: str, *arguments: Argument | Group) -> Command:
    """Return a command on the graph that its first arguments select.

    `handler` is `module:function` below `gitops.cli.graph`.
    """
    return Command(name, summary, f"gitops.cli.graph.{handler}", *_GRAPH, *arguments)


_BRANCHES = Command(
    "branch",
    "create, list, merge and delete branches of a graph",
    commands=(
        _on_graph("list", "list the branches", "data:branch_list"),
        _on_graph(
            "create",
            "create a branch without copying rows",
            "data:branch_create",
            _BRANCH_NAME,
            Argument(
                "--from",
                "REVISION",
                "starting point: BRANCH, BRANCH@WHEN or WHEN (default: main)",
                dest="base",
                default="main",
            ),
        ),
        _on_graph("delete", "delete a branch", "data:branch_delete", _BRANCH_NAME),
        _on_graph(
            "merge",
            "merge a branch into another branch",
            "data:branch_merge",
            _BRANCH_NAME,
            Argument("--into", "BRANCH", "branch to merge into (default: main)", default="main"),
            flag("--delete-branch", "delete the branch afterwards, unless it has new changes"),
        ),
    ),
)

_CHANGES = Command(
    "changes",
    "follow the changes on a branch",
    commands=(
        _on_graph(
            "poll",
            "print a page of the changes since a cursor, and the cursor of the next page",
            "data:poll",
            Group(
                Argument("--cursor", "CURSOR", "cursor from an earlier page or a baseline"),
                Argument(
                    "--start",
                    "START",
                    "starting point: now, beginning or after:COMMIT (default: beginning)",
                    default="beginning",
                ),
            ),
            _BRANCH,
            _TYPES,
            Argument("--limit", "N", "maximum number of changes (default 1000)", type=count, default=1000),
        ),
        _on_graph(
            "baseline",
            "write all records of a branch to a file, and print the cursor for later changes",
            "data:baseline",
            Argument("--output", "FILE", "file to write, atomically", required=True),
            _BRANCH,
            _TYPES,
        ),
    ),
)
_CELL = (
    Argument("type", "TYPE", "node or edge type"),
    Argument("id", "ID", "id of the row"),
    Argument("property", "PROPERTY", "name of the Blob property"),
    _BRANCH,
    _AT,
)
_BLOBS = Command(
    "blob",
    "read cells of Blob properties",
    commands=(
        _on_graph(
            "get",
            "write all or some bytes of a cell",
            "data:blob_get",
            *_CELL,
            Argument("--range", "RANGE", "only this byte range, such as 0-1023, 1024- or -512"),
            Argument("--output", "FILE", "file to write, atomically (default: standard output)"),
        ),
        _on_graph("stat", "print the size and tag of a cell", "data:blob_stat", *_CELL),
    ),
)

GRAPH = Command(
    "graph",
    "load, query, change, branch and maintain the data of a graph",
    commands=(
        _on_graph(
            "load",
            "load NDJSON records as one new version",
            "load:load",
            Argument("file", "FILE", "file with the records, or - for standard input", nargs="?"),
            Argument(
                "--parquet",
                "TYPE=FILE",
                "rows of a type, instead of FILE; columns are named after properties, plus from and to for edges; repeatable",
                action="append",
                default=[],
            ),
            Argument(
                "--mode",
                ("merge", "append", "overwrite"),
                "merge replaces rows with an existing id, append refuses them, overwrite replaces whole tables (default: merge)",
                default="merge",
            ),
            _BRANCH,
            Argument("--from", "BRANCH", "create the branch from this one if it does not exist", dest="base"),
            flag("--resume", "continue the interrupted load of this file, without reading again what is staged"),
            *ENGINE,
            _EMBEDDINGS,
            flag("--no-index", "do not build indexes after the rows are published"),
            _VECTORS,
            _LOG_FORMAT,
        ),
        _on_graph(
            "export",
            "print the records of a graph in the format of graph load",
            "data:export",
            _TYPES,
            Argument("--output", "FILE", "file to write, atomically (default: standard output)"),
            _BRANCH,
            _AT,
        ),
        _on_graph(
            "show",
            "show tables, versions and rows",
            "data:show",
            Argument("--type", "NAME", "print rows of this node or edge type"),
            Argument("--limit", "N", "maximum number of rows (default 20)", type=count, default=20),
            _AT,
        ),
        _on_graph(
            "query",
            "run a read query and print its rows",
            "query:query",
            *_QUERY_ARGUMENTS,
            _BRANCH,
            _AT,
            Argument("--preview", "N", "read the copy that the bot made for change request N", type=count),
            _FORMAT,
            flag("--explain", "print the operators with their estimated and actual row counts"),
            Argument("--timeout", "SECONDS", "stop after this time", type=seconds),
            Argument("--memory", "MIB", "memory limit (default 1024)", type=count, default=1024),
            flag("--approximate", "allow a vector index, which can miss some nearest rows"),
            Argument(
                "--strategy",
                ("auto", "index", "csr", "scan"),
                "how hops find neighbours (default: auto)",
                default="auto",
            ),
        ),
        Command(
            "queries",
            "list the declared or applied stored queries with their parameters and results",
            "gitops.cli.graph.query:queries",
            Argument("graph", "GRAPH", "only queries of this graph (default: all graphs)", nargs="?"),
            flag("--applied", "list the queries of the applied revision, the ones that servers offer"),
            CLUSTER,
            REQUEST,
            reads=True,
        ),
        _on_graph(
            "mutate",
            "run a mutation as one new version",
            "query:mutate",
            *_QUERY_ARGUMENTS,
            _BRANCH,
            Argument("--expect-head", "VERSION", "refuse if the branch is not at this version", type=int),
        ),
        _on_graph(
            "log",
            "list the versions of a branch, newest first",
            "data:log",
            _BRANCH,
            Argument("--limit", "N", "maximum number of versions (default 20)", type=count, default=20),
        ),
        _on_graph("snapshot", "describe one version and its tables", "data:snapshot", _BRANCH, _AT),
        _on_graph(
            "diff",
            "show the rows that differ between two versions",
            "data:diff",
            Argument("before", "BEFORE", _REVISION),
            Argument("after", "AFTER", _REVISION),
            _TYPES,
            flag("--summary", "print counts instead of rows"),
        ),
        _BRANCHES,
        _CHANGES,
        _BLOBS,
        _on_graph(
            "preview",
            "try a schema on a copy of the graph and count the affected rows",
            "data:preview",
            Argument("schema", "FILE", "schema file to try"),
        ),
        _on_graph(
            "optimize",
            "compact tables and build indexes",
            "data:optimize",
            _BRANCH,
            _VECTORS,
            *ENGINE,
            _LOG_FORMAT,
        ),
        Command(
            "work",
            "carry out the tasks of a command with --engine files, until it ends",
            "gitops.cli.graph.load:work",
            Argument("folder", "PLACE", "folder or bucket that holds the tasks"),
            Argument(
                "--idle", "SECONDS", "end after this time without a task (default 600)", type=seconds, default=600
            ),
        ),
        _on_graph(
            "gc",
            "remove data that no kept version, branch or reader needs",
            "data:gc",
            Argument("--keep", "N", "keep the newest N versions of each branch (default 10)", type=int, default=10),
            Argument(
                "--older-than",
                "AGE",
                "also keep all versions younger than this, such as 7d, 12h or 30m (default 7d)",
                default="7d",
            ),
            _DRY_RUN,
        ),
        _on_graph(
            "purge",
            "permanently remove the data of dropped types and properties",
            "data:purge",
            flag("--allow-data-loss", "confirm the purge, which removes these tables from older versions"),
            _DRY_RUN,
        ),
        _on_graph(
            "verify",
            "check every document, table and reference of a graph",
            "data:verify",
            flag("--deep", "read all rows to check ids, edge endpoints and constraints"),
        ),
    ),
)

QUERY = Command(
    "query",
    "run a query on a query server (`gitops serve`) and print its rows",
    "gitops.cli.query:query",
    Argument("graph", "GRAPH", "graph id"),
    *_QUERY_TEXTS,
    Argument("--server", "URL", "address of the server (default: the environment variable GITOPS_SERVER)"),
    Argument("--token-file", "FILE", "file with the token (default: the environment variable GITOPS_SERVER_TOKEN)"),
    flag("--plain-http", "allow sending the token to another host without TLS"),
    Group(
        Argument("--branch", "BRANCH", "branch (default: main)"),
        Argument("--snapshot", "COMMIT", "read the data as of this commit"),
    ),
    flag("--mutate", "allow a mutation"),
    Argument(
        "--conflict",
        ("last_wins", "strict"),
        "with --mutate: whether to run (last_wins) or refuse (strict) a mutation that would overwrite changes made since it "
        "was sent (default: as the server is set up)",
    ),
    _FORMAT,
)
