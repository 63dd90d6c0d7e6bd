"""`gitops graph changes`: follow a branch; `gitops graph blob`: cells of Blob properties."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gitops.cli.graph.data import whole_file
from gitops.cli.graph.inputs import graph_root, read_target
from gitops.cli.shared import OK
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.graph.results import BaselineResult, BlobFacts, GraphOutcome
from gitops.serving.answers import ProblemError
from gitops.serving.blobs import BlobPart, find_part


def poll(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph changes poll GRAPH`."""
    root = graph_root(options)
    if options.cursor is not None:
        position = graph.parse_position(options.cursor)
    else:
        position = graph.feed_position(root, options.branch, options.start)
    return graph.read_feed(root, position, tuple(options.type), graph.FeedLimits(changes=options.limit))


def baseline(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph changes baseline GRAPH --output FILE`."""
    snapshot = graph.open_snapshot(graph_root(options), graph.ReadTarget(options.branch))
    lines = graph.export_records(snapshot, options.type or None)
    count = 0
    with whole_file(Path(options.output)) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return BaselineResult(count, snapshot.manifest.txn_id, graph.position_of(snapshot).token, options.output)


def blob_get(options: argparse.Namespace) -> int:
    """`gitops graph blob get GRAPH TYPE ID PROPERTY`: bytes on standard output, or in a file."""
    part = _part(_cell(options), options.range)
    if options.output is None:
        for piece in part.pieces():
            sys.stdout.buffer.write(piece)
        return OK
    with whole_file(Path(options.output)) as file:
        for piece in part.pieces():
            file.write(piece)
    return OK


def blob_stat(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph blob stat GRAPH TYPE ID PROPERTY`."""
    cell = _cell(options)
    return BlobFacts(cell.size, cell.tag)


def _cell(options: argparse.Namespace) -> graph.BlobCell:
    snapshot = graph.open_snapshot(graph_root(options), read_target(options.branch, options.at))
    named = [key for key in (f"node:{options.type}", f"edge:{options.type}") if key in snapshot.manifest.tables]
    cell = graph.open_blob(snapshot, named[0] if named else f"node:{options.type}", options.id, options.property)
    if cell is None:
        detail = f"{options.type} {options.id[:80]!r} has no blob in {options.property[:80]!r}"
        fix = f"name a row that has one: gitops graph show {options.graph} --type {options.type}"
        raise GitopsError(Code.USAGE_ERROR, detail, path=options.type, fix=fix)
    return cell


def _part(cell: graph.BlobCell, text: str | None) -> BlobPart:
    try:
        part = find_part(cell, None if text is None else f"bytes={text}", None)
    except ProblemError as error:
        raise UsageError(Code.USAGE_ERROR, error.problem.message) from None
    if text is not None and part.whole:
        raise UsageError(Code.USAGE_ERROR, f"--range {text[:40]!r}: use FIRST-LAST, FIRST- or -LENGTH")
    return part
