"""`gitops down`: the way back from a schema change, shown or written as schema text."""

from __future__ import annotations

import argparse
import os

from gitops.cli.output import FAILED, OK, USAGE, say, show_error, show_form
from gitops.cluster.way_back import DownOutcome, WayBack
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.render.way_back import down_form, down_text

_STDOUT = "-"
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def down(options: argparse.Namespace) -> int:
    """`gitops down`. Exit code 1 if the change, or all of the way back, is not supported; nothing is written then."""
    try:
        outcome = _outcome(options)
    except UsageError as error:
        show_error(error, as_json=options.json)
        return USAGE
    writes = options.write is not None and outcome.way is not None and outcome.ok
    if writes and options.write == _STDOUT and outcome.way is not None:
        say(outcome.way.source.decode("utf-8"))
        return OK
    if writes and outcome.way is not None:
        _write(options.write, outcome.way)
    if options.json:
        show_form(down_form(outcome))
    else:
        say(down_text(outcome) + (f"  written to {options.write}\n" if writes else ""))
    return OK if outcome.ok else FAILED


def _outcome(options: argparse.Namespace) -> DownOutcome:
    named = (options.old is not None, options.new is not None)
    if options.json and options.write == _STDOUT:
        raise UsageError(Code.USAGE_ERROR, "--json and --write - both print; leave one out")
    if all(named) and options.graph is None:
        from gitops.cluster.down import down_between
        from gitops.config.folder import FolderTree

        return down_between(FolderTree(".", confined=False), options.old, options.new)
    if any(named) or options.graph is None:
        raise UsageError(Code.USAGE_ERROR, "name a graph, or two files with --from and --to")
    from gitops.cli.cluster import planning_workspace
    from gitops.cluster.down import down_of_graph

    return down_of_graph(planning_workspace(options), options.graph)


def _write(path: str, way: WayBack) -> None:
    """Make a new file. Raises RemoteError `storage_failed`, also for one that exists."""
    try:
        with os.fdopen(os.open(path, _MAKE, 0o644), "wb") as made:
            made.write(way.source)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, f"{path}: {error.strerror or error}", path=path) from error
