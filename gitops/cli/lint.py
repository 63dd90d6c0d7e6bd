"""`gitops lint`: the problems of schemas and queries, as text, JSON or SARIF."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from gitops.cli.output import FAILED, OK, USAGE, complain, say, show_error, show_form
from gitops.cluster.lint import lint_cluster
from gitops.config.folder import FolderTree
from gitops.core.errors import UsageError
from gitops.render.lint import lint_form, lint_text


def lint(options: argparse.Namespace) -> int:
    """`gitops lint`. Exit code 1 for an error, with `--strict` for a warning too; 2 if the paths are not valid."""
    form = options.format or ("json" if options.json else "text")
    if options.json and form != "json":
        complain("--json and --format name two formats; leave one out")
        return USAGE
    options.json = form == "json"  # an error about a path has the same format
    folder = options.config or "."
    here = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    paths = [os.path.relpath(path, here) for path in options.paths]
    schema = None if options.schema is None else os.path.relpath(options.schema, here)
    try:
        outcome = lint_cluster(FolderTree(folder, confined=False), paths, schema)
    except UsageError as error:
        show_error(error, as_json=options.json)
        return USAGE
    if options.json:
        show_form(lint_form(outcome, config_dir=folder, strict=options.strict))
    elif form == "sarif":
        from gitops.render.sarif import sarif_log

        show_form(sarif_log(outcome, _relative_to(here, _repository_root(here))))
    else:
        say(lint_text(outcome, _relative_to(here, os.getcwd())))  # noqa: PTH109 - as the shell shows it
    return OK if outcome.ok(strict=options.strict) else FAILED


def _relative_to(folder: str, base: str) -> Callable[[str], str]:
    """A function from paths of a folder to paths relative to `base`; a path far away from both stays absolute."""

    def relative(path: str) -> str:
        place = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - links stay as they are
        near = os.path.relpath(place, base)
        return place if near.startswith("../") and path.startswith("/") else near

    return relative


def _repository_root(folder: str) -> str:
    """The root of the repository around a folder, else the current folder."""
    place = folder
    while not os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
        parent = os.path.dirname(place)  # noqa: PTH120
        if parent == place:
            return os.getcwd()  # noqa: PTH109
        place = parent
    return place
