"""`gitops graph load`, `export` and `show`: data in, data out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gitops.cli.graph.inputs import embedder_of, records_of, root_of, target_of
from gitops.cli.options import actor_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.graph.engine import driver
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines
from gitops.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.graph.load import LoadMode, LoadResult

_MIB = 2**20


@driver()
def load(options: argparse.Namespace) -> int:
    """`gitops graph load GRAPH FILE`."""
    from gitops.graph.load import LoadError, LoadMode

    if bool(options.parquet) == (options.file is not None):
        raise UsageError(Code.USAGE_ERROR, "give either a file of records or --parquet TYPE=FILE")
    uri, mode = root_of(options), LoadMode(options.mode)
    try:
        result = (_from_parquet if options.parquet else _from_records)(uri, mode, options)
    except LoadError as error:
        if options.json:
            show_form({"ok": False, "diagnostics": error.problems.to_json()})
        else:
            say("\n".join(["graph load failed", *map(visible, diagnostic_lines(error.problems))]))
        return FAILED
    if options.json:
        show_form(
            {"ok": True, "manifest_version": result.manifest_version, "rows": dict(result.rows), "diagnostics": []}
        )
        return OK
    total = sum(result.rows.values())
    say(f"graph load: {total} record(s) into {options.graph}, manifest version {result.manifest_version}")
    for table in sorted(result.rows):
        say(f"  {table}: {result.rows[table]}")
    return OK


def _from_records(uri: str, mode: LoadMode, options: argparse.Namespace) -> LoadResult:
    from gitops.graph.load import Loader, LoadRequest

    with records_of(options.file) as records, _progress(options.file) as progress:
        request = LoadRequest(
            uri, records, mode, actor_of(options), options.branch, options.base, progress, embedder_of(options)
        )
        return Loader(SystemClock(), RandomIds()).load(request)


def _from_parquet(uri: str, mode: LoadMode, options: argparse.Namespace) -> LoadResult:
    from gitops.graph.bulk.parquet import load_parquet
    from gitops.graph.history.work import Work

    if options.embeddings:
        raise UsageError(Code.USAGE_ERROR, "--parquet takes vectors as they are: leave out --embeddings")
    files = []
    for text in options.parquet:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise UsageError(Code.USAGE_ERROR, f"--parquet {text[:80]!r}: use TYPE=FILE")
        files.append((name, Path(file)))
    _make_branch(uri, options)
    return load_parquet(uri, files, Work(SystemClock(), RandomIds(), actor_of(options)), mode, options.branch)


def _make_branch(uri: str, options: argparse.Namespace) -> None:
    """Make the branch of the load, if it is to be made and is not there."""
    if options.base is None:
        return
    from gitops.graph.history.branches import create_branch
    from gitops.graph.history.work import Work
    from gitops.graph.versions import ReadTarget

    work = Work(SystemClock(), RandomIds(), actor_of(options))
    try:
        create_branch(uri, options.branch, work, ReadTarget(options.base))
    except GitopsError as error:
        if error.code != Code.GRAPH_BRANCH_EXISTS:
            raise


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """One line on the terminal that counts records; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    size = 0 if name == "-" else Path(name).stat().st_size

    def show_progress(records: int, read: int) -> None:
        share = f" ({min(100, 100 * read // size)} %)" if size else ""
        sys.stderr.write(f"\r{records:,} records, {read / _MIB:.1f} MiB{share}\x1b[K")
        sys.stderr.flush()

    try:
        yield show_progress
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@driver()
def export(options: argparse.Namespace) -> int:
    """`gitops graph export GRAPH`."""
    from gitops.graph.export import export as records
    from gitops.graph.snapshot import open_at

    lines = records(open_at(root_of(options), target_of(options)), options.type or None)
    if options.output is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        return OK
    with _whole_file(Path(options.output)) as file:
        count = 0
        for line in lines:
            file.write(line + "\n")
            count += 1
    if options.json:
        show_form({"ok": True, "records": count, "diagnostics": []})
    else:
        say(f"graph export: {count} record(s) of {options.graph} to {visible(options.output)}")
    return OK


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[IO[str]]:
    """A file that appears when everything is in it. A pipe or a device is written to as it is, and never replaced."""
    try:
        if path.exists() and not path.is_file():
            target, scratch, descriptor = path, None, os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        else:
            target = path.resolve()
            descriptor, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
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
    reason = error.strerror if isinstance(error, OSError) else "that is no name of a file"
    return GitopsError(Code.USAGE_ERROR, f"cannot write {path}: {reason}", path=str(path))


@driver()
def show(options: argparse.Namespace) -> int:
    """`gitops graph show GRAPH`."""
    from gitops.graph.show import describe, rows

    uri = root_of(options)
    if options.type is not None:
        found = rows(uri, options.type, options.limit, options.at)
        if options.json:
            show_form(found)
        else:
            say("\n".join(visible(_row(r)) for r in found) or "no rows")
        return OK
    form = describe(uri, options.at)
    if options.json:
        show_form(form)
        return OK
    say(f"graph {options.graph}: manifest version {form['manifest_version']}")
    for key, table in form["tables"].items():
        say(visible(f"  {key}: {table['rows']} row(s): {', '.join(table['columns'])}"))
    return OK


def _row(row: dict[str, Any]) -> str:
    from gitops.render.json import to_line

    return to_line(row)
