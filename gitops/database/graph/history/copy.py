"""Copies a graph's newest versions from its storage into a separate folder and verifies the copy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from gitops.core.dataclass import dataclass
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.mirror import GraphMirror, MirrorLimits
from gitops.database.graph.snapshot import held_rows, open_snapshot
from gitops.database.storage.copies import FileCopies


@dataclass(frozen=True, slots=True)
class GraphCopy:
    """A copy of a graph: its incarnation, and the version, schema text and rows of `main`.

    `written_at` is the RFC 3339 time when that version was written. `problems` are the findings of a deep verification.
    """

    incarnation: str
    version: int
    schema_source: bytes
    rows: int
    written_at: str
    problems: tuple[str, ...]


def copy_graph(uri: str, place: str, now: Callable[[], datetime]) -> GraphCopy:
    """Copy the newest version of each branch into the absent folder `place`, and verify the copy deeply.

    Nothing at `uri` is changed. Raises the errors of `open_snapshot`; RemoteError, OSError.
    """
    copies = FileCopies(Path(f"{place}.files"))
    copies.hold()
    try:
        GraphMirror(uri, Path(place), copies, MirrorLimits(sys.maxsize, now)).follow()
        findings = verify_graph(place, deep=True).findings
    finally:
        copies.release()
    snapshot = open_snapshot(place)
    return GraphCopy(
        snapshot.identity.graph_id,
        snapshot.manifest.n,
        snapshot.schema_source(),
        held_rows(snapshot),
        snapshot.manifest.ts,
        tuple(f"{each.path}: {each.detail}" for each in findings if each.is_problem),
    )
