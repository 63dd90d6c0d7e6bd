"""`gitops graph` without queries: importing and exporting rows, versions and maintenance.

Also selects a graph from the options.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import IO, BinaryIO

from gitops.cli.finding import cluster_folder
from gitops.cli.graph.progress import reporting
from gitops.cli.graph.query_form import open_records
from gitops.cli.shared import OK, UNWRITTEN, actor_of, complain
from gitops.cluster.config.cluster_yaml import header_of, read_cluster
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.model.address import is_name
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database import graph
from gitops.database.executor.port import TaskExecutor
from gitops.database.graph import results
from gitops.database.graph.port import Existence
from gitops.database.language.suggest import choices
from gitops.render.commands import with_typed
from gitops.repository.wiring.stores import graph_engine, graph_uri, open_embedder, storage_root
from gitops.repository.wiring.system import RandomIds, SystemClock


def with_file(options: argparse.Namespace, fix: str | None) -> str | None:
    """Let a remedy that loads the file in another mode name it, with the other options that were typed."""
    if fix is None or not isinstance(options.file, str) or options.file == "-":
        return fix
    return with_typed("graph load", options.line, fix.replace("graph load GRAPH FILE", "graph load"))


def load(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph load GRAPH FILE`."""
    if bool(options.parquet) == (options.file is not None):
        fix = f"name the file: gitops graph load {options.graph} FILE; or standard input: gitops graph load {options.graph} -"
        raise UsageError(Code.USAGE_ERROR, "give either a file of records or --parquet TYPE=FILE", fix=fix)
    if options.resume and options.file in (None, "-"):
        detail = "--resume continues the load of a file of records, not of standard input or Parquet files"
        raise UsageError(Code.USAGE_ERROR, detail)
    try:
        return _load_rows(options)
    except graph.LoadError as error:
        _note(error, options)
        # Line numbers refer to the file that the user gave.
        name = "standard input" if options.file in (None, "-") else options.file
        places = {each: each.source and replace(each.source, file=name) for each in error.problems}
        found = (replace(each, source=at, fix=with_file(options, each.fix)) for each, at in places.items())
        return results.LoadRefusal(Diagnostics(found))
    except GitopsError as error:
        _note(error, options)
        raise
    except KeyboardInterrupt as interrupt:
        _note(interrupt, options, "interrupted")
        raise


def _note(error: BaseException, options: argparse.Namespace, *before: str) -> None:
    """Print the notes of an error, which say what the graph has of the load and how to continue it."""
    names = {"GRAPH": options.graph, "FILE": shlex.quote(str(options.file))}
    notes = (re.sub(r"\b(GRAPH|FILE)\b", lambda at: names[at[0]], note) for note in getattr(error, "__notes__", ()))
    if parts := [*before, *notes]:
        complain(": ".join(parts))


def _load_rows(options: argparse.Namespace) -> results.LoadResult:
    """Publish the rows, then build the indexes of their tables."""
    with contextlib.ExitStack() as stack:
        records, source, size = None, None, None
        if not options.parquet:
            records = stack.enter_context(open_records(options.file))
            if options.file != "-" and Path(options.file).is_file():
                status = Path(options.file).stat()
                name, size = str(Path(options.file).resolve()), status.st_size
                source = graph.LoadSource(name, size, status.st_mtime_ns, options.embeddings)
        reporter = stack.enter_context(reporting(options, "load", mode=options.mode, branch=options.branch, bytes=size))
        watch = reporter or results.unwatched
        done = _load_parquet(options) if records is None else _load_records(options, records, source, watch)
        if reporter is not None:
            reporter.outcome = done.to_json()
        if not options.no_index:
            done = replace(done, optimized=build_indexes(options, done, watch))
            if reporter is not None:
                reporter.outcome = done.to_json()
        return done


def _load_records(
    options: argparse.Namespace, records: BinaryIO, source: graph.LoadSource | None, watch: results.Watcher
) -> results.LoadResult:
    request = graph.LoadRequest(
        graph_root(options),
        records,
        graph.LoadMode(options.mode),
        options.branch,
        options.base,
        watch,
        open_embedder(options.embeddings, os.environ),
        source,
        options.resume,
    )
    return graph.load_records(request, write_context(options))


def build_indexes(
    options: argparse.Namespace, done: results.LoadResult, watch: results.Watcher, executor: TaskExecutor | None = None
) -> results.OptimizeResult | None:
    """Compact and index the loaded tables. Returns None if this is unnecessary or fails; the load is kept in any case."""
    fix = f"version {done.manifest_version} has the rows; to build their indexes: gitops graph optimize GRAPH"
    chosen = _optimizations(options)
    tables = {} if done.published is None else done.published.tables
    large = tuple(key for key in done.rows if tables[key].rows >= chosen.scalar_rows)
    if not large:
        return None
    try:
        chosen = replace(chosen, types=large)
        root = graph_root(options) if executor is None else shared_root(graph_root(options))
        built = graph.optimize_tables(root, write_context(options), chosen, options.branch, watch, executor)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(fix)
        raise
    except GitopsError as error:
        error.add_note(fix)
        _note(error, options, f"WARN  {error.code}: {error.detail}")
        return None
    return built if built.tables else None


def _load_parquet(options: argparse.Namespace) -> results.LoadResult:
    root = graph_root(options)
    if options.embeddings:
        raise UsageError(Code.USAGE_ERROR, "--parquet loads vectors unchanged, so omit --embeddings")
    files = [(name, Path(file)) for name, file in parquet_files(options)]
    context = write_context(options)
    if options.base is not None:
        graph.ensure_branch(root, options.branch, context, graph.ReadTarget(options.base))
    return graph.load_parquet(root, files, context, graph.LoadMode(options.mode), options.branch)


def parquet_files(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the types and files of `--parquet`. Raises UsageError `usage_error`."""
    files = []
    for text in options.parquet:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            fix = "write the type before the file, such as --parquet Person=people.parquet"
            raise UsageError(Code.USAGE_ERROR, f"--parquet {text[:80]!r}: use TYPE=FILE", fix=fix)
        files.append((name, file))
    return files


def export(options: argparse.Namespace) -> results.GraphOutcome | int:
    """`gitops graph export GRAPH`: write records to standard output or to a file."""
    lines = graph.export_records(
        graph.open_snapshot(graph_root(options), read_target(options.branch, options.at)), options.type or None
    )
    if options.output is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        return OK
    return results.ExportResult(_written(options.output, lines), options.output)


def _written(path: str, lines: Iterable[str]) -> int:
    """Report how many lines were written to a file."""
    count = 0
    with whole_file(Path(path)) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return count


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears at its path only once its content is complete.

    A pipe or a device is written to directly and never replaced.
    """
    try:
        if path.exists() and not path.is_file():
            target, scratch, descriptor = path, None, os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        else:
            target = path.resolve()
            descriptor, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if scratch is not None:
            Path(scratch).replace(target)
    except BaseException as error:
        if scratch is not None:
            Path(scratch).unlink(missing_ok=True)
        if isinstance(error, OSError):
            detail = f"cannot write {path}: {error.strerror}"
            raise GitopsError(Code.STORAGE_FAILED, detail, path=str(path), fix=UNWRITTEN) from error
        raise


def _unwritable(path: Path, error: OSError | ValueError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else "this is not a file name"
    return UsageError(Code.USAGE_ERROR, f"cannot write {path}: {reason}", path=str(path), fix=UNWRITTEN)


def show(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph show GRAPH`: print a description, or the rows of one type."""
    root, version = graph_root(options), None
    if options.at is not None:
        version = graph.describe_version(root, read_target("main", options.at)).manifest.n
    if options.type is None:
        return graph.describe_graph(root, version)
    return results.RowList(graph.read_rows(root, options.type, options.limit, version))


# -- the graph, the version and the input that options select ----------------------------------------------------------

_PLACE = re.compile(r"(?:(?P<branch>[^@]+)@)?(?P<when>.+)")


def write_context(options: argparse.Namespace) -> graph.WriteContext:
    """Return the context that a writing command needs: the clock, the id source and the actor."""
    return graph.WriteContext(SystemClock(), RandomIds(), actor_of(options))


def graph_root(options: argparse.Namespace) -> str:
    """Return the root of the graph that the options select."""
    if options.root is not None:
        return str(options.root)
    if not is_name(options.graph):
        raise GitopsError(Code.INVALID_RESOURCE_ID, f"{options.graph!r} is not a graph id", path="graph")
    options.config = cluster_folder(options)
    cluster, problems = read_cluster(FolderTree(options.config, confined=True))
    header = None if cluster is None else header_of(cluster, problems)
    if cluster is None or header is None:
        first = next(iter(problems))
        raise GitopsError(first.code, first.message, path=first.path, fix=first.fix)
    uri = graph_uri(storage_root(header.storage, options.config), options.graph)
    declared = {each.id.value for each in cluster.graphs}
    in_bucket = uri.startswith("s3:") and options.graph in declared
    # A deleted graph whose delete waits for an approval is no longer declared.
    if in_bucket or graph_engine(NoFaults()).exists(uri) is not Existence.ABSENT:
        return uri
    if options.graph in declared:
        return served_root(options.config, options.graph) or uri
    detail = f"cluster.yaml does not declare a graph {options.graph!r}{choices(options.graph, declared)}"
    raise GitopsError(Code.GRAPH_UNKNOWN, detail, path="graphs")


def parse_revision(text: str) -> graph.ReadTarget:
    """Return the version that `BRANCH`, `WHEN` or `BRANCH@WHEN` refers to; WHEN is a version, a commit or a time."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is not a version: use BRANCH, BRANCH@VERSION or a commit id")
    branch, when = match["branch"], match["when"]
    if branch is None and not (when.isdecimal() or is_ulid(when) or parse_timestamp(when)):
        return graph.ReadTarget(when)
    return read_target(branch or "main", when)


def read_target(branch: str, when: str | None) -> graph.ReadTarget:
    """Return a branch's version, given as a version number, commit id or time. The default is the newest."""
    if when is None:
        return graph.ReadTarget(branch)
    if when.isascii() and when.isdecimal():
        return graph.ReadTarget(branch, version=int(when[:20]))
    if is_ulid(when):
        return graph.ReadTarget(branch, commit=when)
    return graph.ReadTarget(branch, time=when)


# -- `gitops graph changes`: follow a branch; `gitops graph blob`: cells of Blob properties ----------------------------


def poll(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph changes poll GRAPH`."""
    root = graph_root(options)
    if options.cursor is not None:
        position = graph.parse_position(options.cursor)
    else:
        position = graph.feed_position(root, options.branch, options.start)
    return graph.read_feed(root, position, tuple(options.type), graph.FeedLimits(changes=options.limit))


def baseline(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph changes baseline GRAPH --output FILE`."""
    snapshot = graph.open_snapshot(graph_root(options), graph.ReadTarget(options.branch))
    lines = graph.export_records(snapshot, options.type or None)
    count = _written(options.output, lines)
    return results.BaselineResult(count, snapshot.manifest.txn_id, graph.position_of(snapshot).token, options.output)


def blob_get(options: argparse.Namespace) -> int:
    """`gitops graph blob get GRAPH TYPE ID PROPERTY`: write the bytes to standard output or to a file."""
    from gitops.serving.answers import ProblemError, find_part

    cell, asked = _cell(options), options.range
    try:
        part = find_part(cell, None if asked is None else f"bytes={asked}", None)
    except ProblemError as error:
        raise UsageError(Code.USAGE_ERROR, error.problem.message) from None
    if asked is not None and part.whole:
        raise UsageError(Code.USAGE_ERROR, f"--range {asked[:40]!r}: use FIRST-LAST, FIRST- or -LENGTH")
    if options.output is None:
        for piece in part.pieces():
            sys.stdout.buffer.write(piece)
        return OK
    with whole_file(Path(options.output)) as file:
        for piece in part.pieces():
            file.write(piece)
    return OK


def blob_stat(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph blob stat GRAPH TYPE ID PROPERTY`."""
    cell = _cell(options)
    return results.BlobFacts(cell.size, cell.tag)


def _cell(options: argparse.Namespace) -> graph.BlobCell:
    snapshot = graph.open_snapshot(graph_root(options), read_target(options.branch, options.at))
    named = [key for key in (f"node:{options.type}", f"edge:{options.type}") if key in snapshot.manifest.tables]
    cell = graph.open_blob(snapshot, named[0] if named else f"node:{options.type}", options.id, options.property)
    if cell is None:
        detail = f"{options.type} {options.id[:80]!r} has no blob in {options.property[:80]!r}"
        fix = f"name a row that has one: gitops graph show {options.graph} --type {options.type}"
        raise UsageError(Code.USAGE_ERROR, detail, path=options.type, fix=fix)
    return cell


# -- graphs of a ledger that a server stores, at the locations it records below its root -------------------------------


def served_root(folder: str, graph: str) -> str | None:
    """Return the root of a graph, given the cluster folder in a clone.

    None if no ledger on its `origin` records the cluster.

    The repository must be on this machine, because its git configuration contains the location of the graphs. Raises
    GitopsError `graph_missing` if it is on a different machine, and the errors of the server's stores.
    """
    from gitops.repository.wiring.local import LocalRepository

    try:
        local = LocalRepository(folder)
        rule = local.rule(folder=folder)
        scope = local.position(rule).scope
    except GitopsError:
        return None  # not in a clone, a folder that gitops.yaml does not list, or an unreachable remote
    if scope is None:
        return None
    url = local.remote.url
    if not Path(url).is_dir():
        place = f"--root ROOT/{scope.home}/graphs/{graph}.omni"
        detail = f"the rows of cluster {rule.name} are on the machine of {url}; there, with its gitops.root as ROOT, add {place}"
        raise GitopsError(Code.GRAPH_MISSING, detail, path=graph, fix="")
    base = LocalRepository(url).storage_base(rule, scope.storage, scope.home)
    if base is None:
        detail = f"the rows of cluster {rule.name} have no storage yet: {url} has no git config gitops.root"
        raise GitopsError(Code.GRAPH_MISSING, detail, path=graph)
    return graph_uri(base, graph)


# -- versions: `gitops graph log`, `snapshot`, `diff` and `branch` -----------------------------------------------------

_AGE = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_NEVER = 2**62


def log(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph log GRAPH`."""
    return results.VersionLog(graph.read_log(graph_root(options), options.branch, options.limit))


def snapshot(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph snapshot GRAPH`."""
    return graph.describe_version(graph_root(options), read_target(options.branch, options.at))


def diff(options: argparse.Namespace) -> results.GraphOutcome | int:
    """`gitops graph diff GRAPH BEFORE AFTER`: print changed rows one per line while comparing, or only the counts."""
    from gitops.render.graph_data import change_line

    root, types = graph_root(options), tuple(options.type)
    before, after = parse_revision(options.before), parse_revision(options.after)
    if options.summary:
        return graph.summarize_diff(root, before, after, types)
    for change in graph.diff_versions(root, before, after, types):
        sys.stdout.write(change_line(change, as_json=options.json) + "\n")
    return OK


def branch_list(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph branch list GRAPH`."""
    return results.BranchList(graph.list_branches(graph_root(options)))


def branch_create(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph branch create GRAPH BRANCH`."""
    base = parse_revision(options.base)
    return results.BranchCreated(graph.create_branch(graph_root(options), options.name, write_context(options), base))


def branch_delete(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph branch delete GRAPH BRANCH`."""
    graph.delete_branch(graph_root(options), options.name, write_context(options))
    return results.BranchDeleted(options.name)


def branch_merge(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph branch merge GRAPH BRANCH`; prints all conflicts and exits 1 if there are any.

    A completed merge counts as a success even if its branch could not be deleted.
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


def optimize(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph optimize GRAPH`."""
    chosen, context, root = _optimizations(options), write_context(options), graph_root(options)
    with contextlib.ExitStack() as stack:
        reporter = stack.enter_context(reporting(options, "optimize", branch=options.branch))
        watch, executor = reporter or results.unwatched, chosen_executor(options)
        if executor is not None:
            stack.callback(executor.close)
            root = shared_root(root)
        done = graph.optimize_tables(root, context, chosen, options.branch, watch, executor)
        if reporter is not None:
            reporter.outcome = done.to_json()
        return done


def chosen_executor(options: argparse.Namespace) -> TaskExecutor | None:
    """Return the executor that `--engine` selects, or None without that option. Raises the errors of `open_executor`."""
    if options.engine is None:
        if options.workers is not None or options.address is not None:
            raise UsageError(Code.USAGE_ERROR, "--workers and --address need --engine", fix="add --engine local")
        return None
    # Workers are rare, so their code is loaded only then.
    from gitops.repository.wiring.executors import open_executor

    return open_executor(options.engine, options.workers, options.address)


def shared_root(root: str) -> str:
    """Return a graph's root in a form that workers can use from a different working directory."""
    return root if ":" in root else str(Path(root).absolute())


def _optimizations(options: argparse.Namespace) -> graph.OptimizeOptions:
    return graph.OptimizeOptions() if options.vectors else graph.OptimizeOptions(vector_rows=_NEVER)


def gc(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph gc GRAPH`."""
    match = _AGE.fullmatch(options.older_than)
    if match is None:
        raise UsageError(
            Code.USAGE_ERROR,
            f"--older-than {options.older_than[:40]!r} is not an age",
            fix="write a number with d, h or m, such as --older-than 7d",
        )
    if options.keep < 1:
        detail = "--keep must be at least 1, because the newest version of a branch is never removed"
        raise UsageError(Code.USAGE_ERROR, detail, fix="keep at least one version: --keep 1")
    retention = graph.Retention(options.keep, timedelta(**{_UNITS[match[2]]: int(match[1])}))
    return graph.collect_garbage(graph_root(options), write_context(options), retention, dry_run=options.dry_run)


def purge(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph purge GRAPH`. Removes nothing without `--allow-data-loss`."""
    if not (options.allow_data_loss or options.dry_run):
        raise UsageError(
            Code.USAGE_ERROR,
            "this cannot be undone, so it needs --allow-data-loss",
            fix=f"see what would be removed: gitops graph purge {options.graph} --dry-run; then add --allow-data-loss",
        )
    return graph.purge_dropped(graph_root(options), write_context(options), dry_run=options.dry_run)


def verify(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph verify GRAPH`. Exits 1 if there is a problem."""
    return graph.verify_graph(graph_root(options), deep=options.deep)


def preview(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph preview GRAPH FILE`. Exits 1 if the graph cannot be migrated to this schema."""
    with open_records(options.schema) as file:
        source = file.read()
    root = graph_root(options)
    try:
        return graph.preview_migration(root, source, write_context(options))
    except GitopsError as error:
        if error.code not in (Code.SCHEMA_PARSE_ERROR, Code.SCHEMA_CATALOG_ERROR):
            raise
        raise GitopsError(error.code, error.detail, path=options.schema, fix=error.fix) from None
