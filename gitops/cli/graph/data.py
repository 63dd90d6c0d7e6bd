"""`gitops graph load`, `export` and `show`: rows in and out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from gitops.cli.graph.inputs import graph_root, read_target, write_context
from gitops.cli.graph.query_form import open_records
from gitops.cli.shared import OK, UNWRITTEN, complain, shows_progress
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.graph.results import ExportResult, GraphOutcome, LoadRefusal, LoadResult, RowList
from gitops.repository.wiring.stores import open_embedder

_MIB = 2**20


def load(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph load GRAPH FILE`."""
    if bool(options.parquet) == (options.file is not None):
        fix = f"name the file: gitops graph load {options.graph} FILE; or standard input: gitops graph load {options.graph} -"
        raise UsageError(Code.USAGE_ERROR, "give either a file of records or --parquet TYPE=FILE", fix=fix)
    try:
        return _load_parquet(options) if options.parquet else _load_records(options)
    except graph.LoadError as error:
        return LoadRefusal(error.problems)
    except KeyboardInterrupt as interrupt:
        notes = (note.replace("GRAPH", options.graph) for note in getattr(interrupt, "__notes__", ()))
        complain(": ".join(["interrupted", *notes]))
        raise


def _load_records(options: argparse.Namespace) -> LoadResult:
    context = write_context(options)
    root = graph_root(options)
    with open_records(options.file) as records, _progress(options) as progress:
        mode, embedder = graph.LoadMode(options.mode), open_embedder(options.embeddings, os.environ)
        request = graph.LoadRequest(root, records, mode, options.branch, options.base, progress, embedder)
        return graph.load_records(request, context)


def _load_parquet(options: argparse.Namespace) -> LoadResult:
    root = graph_root(options)
    if options.embeddings:
        raise UsageError(Code.USAGE_ERROR, "--parquet takes vectors as they are: leave out --embeddings")
    files = []
    for text in options.parquet:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            fix = "write the type before the file, such as --parquet Person=people.parquet"
            raise UsageError(Code.USAGE_ERROR, f"--parquet {text[:80]!r}: use TYPE=FILE", fix=fix)
        files.append((name, Path(file)))
    context = write_context(options)
    if options.base is not None:
        graph.ensure_branch(root, options.branch, context, graph.ReadTarget(options.base))
    return graph.load_parquet(root, files, context, graph.LoadMode(options.mode), options.branch)


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Callable[[int, int], None] | None]:
    """A function that shows the number of records on the terminal; None if there is no terminal."""
    if not (sys.stderr.isatty() and shows_progress(options)):
        yield None
        return
    size = 0 if options.file == "-" else Path(options.file).stat().st_size

    def show_progress(records: int, read: int) -> None:
        share = f" ({min(100, 100 * read // size)} %)" if size else ""
        sys.stderr.write(f"\r{records:,} records, {read / _MIB:.1f} MiB{share}\x1b[K")
        sys.stderr.flush()

    try:
        yield show_progress
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def export(options: argparse.Namespace) -> GraphOutcome | int:
    """`gitops graph export GRAPH`: records on standard output, or in a file."""
    lines = graph.export_records(
        graph.open_snapshot(graph_root(options), read_target(options.branch, options.at)), options.type or None
    )
    if options.output is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        return OK
    count = 0
    with whole_file(Path(options.output)) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return ExportResult(count, options.output)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears when its content is complete. A pipe or a device is written to directly, and never replaced."""
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
            raise _unwritable(path, error) from error
        raise


def _unwritable(path: Path, error: OSError | ValueError) -> GitopsError:
    reason = error.strerror if isinstance(error, OSError) else "this is not a file name"
    return GitopsError(Code.USAGE_ERROR, f"cannot write {path}: {reason}", path=str(path), fix=UNWRITTEN)


def show(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph show GRAPH`: a description, or rows of one type."""
    root, version = graph_root(options), None
    if options.at is not None:
        version = graph.describe_version(root, read_target("main", options.at)).manifest.n
    if options.type is None:
        return graph.describe_graph(root, version)
    return RowList(graph.read_rows(root, options.type, options.limit, version))
