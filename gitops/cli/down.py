"""`gitops down`: the reverse of a schema change, printed or written as schema text."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gitops.cli.output import FAILED, OK, USAGE, say, show_error, show_form
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.render.down import down_form, down_text

if TYPE_CHECKING:
    from gitops.cluster.down import DownOutcome

_STDOUT = "-"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def down(options: argparse.Namespace) -> int:
    """`gitops down`. Exit code 1 if the change, or a part of its reverse, is not supported; nothing is written then."""
    try:
        outcome = _outcome(options)
    except UsageError as error:
        show_error(error, as_json=options.json)
        return USAGE
    source = (
        None if options.write is None or not outcome.ok or outcome.migrations is None else outcome.migrations.source
    )
    if source is not None and options.write == _STDOUT:
        say(source.decode("utf-8"))
        return OK
    if source is not None:
        try:
            with os.fdopen(os.open(options.write, _NEW_FILE, 0o644), "wb") as made:
                made.write(source)
        except OSError as error:
            message = f"{options.write}: {error.strerror or error}"
            raise RemoteError(Code.STORAGE_FAILED, message, path=options.write) from error
    if options.json:
        show_form(down_form(outcome))
    else:
        say(down_text(outcome) + (f"  written to {options.write}\n" if source is not None else ""))
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
