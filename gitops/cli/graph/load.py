"""`gitops graph load` and `gitops graph work`: a load in this process, or in several processes or on several machines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gitops.cli.graph.data import (
    build_indexes,
    chosen_executor,
    graph_root,
    parquet_files,
    shared_root,
    with_file,
    write_context,
)
from gitops.cli.graph.data import load as load_here
from gitops.cli.graph.progress import reporting
from gitops.cli.shared import OK, complain
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.executor.port import TaskExecutor
from gitops.database.graph import results


def load(options: argparse.Namespace) -> results.GraphOutcome:
    """`gitops graph load GRAPH FILE`: load in this process or through an executor."""
    executor = chosen_executor(options)
    if executor is None:
        return load_here(options)
    try:
        return _load_over(options, executor)
    finally:
        executor.close()


def _load_over(options: argparse.Namespace, executor: TaskExecutor) -> results.GraphOutcome:
    if options.embeddings:
        raise UsageError(Code.USAGE_ERROR, "--engine loads vectors unchanged, so omit --embeddings")
    if options.file == "-" or (options.file is None and not options.parquet):
        fix = f"gitops graph load {options.graph} FILE --engine {options.engine}"
        raise UsageError(Code.USAGE_ERROR, "--engine reads files, which all workers must reach", fix=fix)
    root, context = graph_root(options), write_context(options)
    root = shared_root(root)
    bulk = None
    try:
        if options.base is not None:
            graph.ensure_branch(root, options.branch, context, graph.ReadTarget(options.base))
        catalog = graph.open_snapshot(root, graph.ReadTarget(options.branch)).schema().catalog
        pieces = graph.input_pieces(options.file, parquet_files(options), catalog, executor.slots)
        facts = {"mode": options.mode, "branch": options.branch, "engine": options.engine, "pieces": len(pieces)}
        with reporting(options, "load", **facts) as reporter:
            bulk = _begun(options, root, pieces, executor.slots)
            watch = reporter or results.unwatched
            done = graph.run_load(root, bulk, executor, context, watch)
            bulk = None
            if not options.no_index:
                done = replace(done, optimized=build_indexes(options, done, watch, executor))
            if reporter is not None:
                reporter.outcome = done.to_json()
            return done
    except graph.LoadError as error:
        found = (replace(_shortened(each), fix=with_file(options, each.fix)) for each in error.problems)
        return results.LoadRefusal(Diagnostics(found))
    except BaseException:
        if bulk is not None:
            complain(f"load {bulk} is not finished; to continue it, run the same command with --resume")
        raise


def _begun(options: argparse.Namespace, root: str, pieces: Sequence[graph.Piece], slots: int) -> str:
    """Return the id of the load to continue, or of a new one."""
    mode = graph.LoadMode(options.mode)
    if not options.resume:
        return graph.begin_load(root, pieces, write_context(options), mode, options.branch, slots=slots)
    found = graph.find_load(root, pieces, mode, options.branch)
    if found is None:
        detail = f"no interrupted load of these files with --mode {options.mode} and --branch {options.branch}"
        raise GitopsError(Code.LOAD_NOT_STAGED, detail, path=options.file or "", fix="run it without --resume")
    return found


def _shortened(problem: Diagnostic) -> Diagnostic:
    """Return a problem with its file relative to the working directory, if it is inside."""
    here = f"{Path.cwd()}/"
    source = problem.source and replace(problem.source, file=(problem.source.file or "").removeprefix(here))
    return replace(problem, message=problem.message.removeprefix(here), source=source)


def work(options: argparse.Namespace) -> int:
    """`gitops graph work PLACE`: carry out tasks until their driver ends."""
    from gitops.repository.wiring.executors import serve_tasks

    complain(f"graph work: {serve_tasks(options.folder, options.idle):,} tasks carried out")
    return OK
