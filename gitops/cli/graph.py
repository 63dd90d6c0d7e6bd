"""`gitops graph load` and `gitops graph show`: data in, data out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, BinaryIO

from gitops.cli.identity import actor_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.cli.system import RandomIds, SystemClock
from gitops.cli.wiring import graph_uri, storage_root
from gitops.config.header import load_header
from gitops.core.errors import GitopsError
from gitops.engine.engine import driver
from gitops.model.address import is_name
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines
from gitops.storage.folder import FolderTree


@driver()
def load(options: argparse.Namespace) -> int:
    """`gitops graph load GRAPH FILE`."""
    from gitops.engine.load import Loader, LoadError, LoadMode, LoadRequest

    uri = _root(options)
    with _records(options.file) as records:
        request = LoadRequest(uri, records, LoadMode(options.mode), actor_of(options))
        try:
            result = Loader(SystemClock(), RandomIds()).load(request)
        except LoadError as error:
            if options.json:
                show_form({"ok": False, "diagnostics": error.problems.to_json()})
            else:
                say("\n".join(["graph load failed", *diagnostic_lines(error.problems)]))
            return FAILED
    if options.json:
        show_form(
            {"ok": True, "manifest_version": result.manifest_version, "rows": dict(result.rows), "diagnostics": []}
        )
    else:
        total = sum(result.rows.values())
        say(f"graph load: {total} record(s) into {options.graph}, manifest version {result.manifest_version}")
        for table in sorted(result.rows):
            say(f"  {table}: {result.rows[table]}")
    return OK


@driver()
def show(options: argparse.Namespace) -> int:
    """`gitops graph show GRAPH`."""
    from gitops.engine.show import describe, rows

    uri = _root(options)
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


def _root(options: argparse.Namespace) -> str:
    """The root of the graph that the options mean."""
    if options.root is not None:
        return str(options.root)
    if not is_name(options.graph):
        raise GitopsError("invalid_resource_id", f"{options.graph!r} is not a graph id", path="graph")
    header, problems = load_header(FolderTree(options.config, confined=False))
    if header is None:
        first = next(iter(problems))
        raise GitopsError(first.code, first.message, path=first.path)
    return graph_uri(storage_root(header.storage, options.config), options.graph)


def _records(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise GitopsError("usage_error", f"cannot read {name}: {error.strerror}", path=name) from error
