"""A load of a file with many checkpoints, for tests that interrupt and continue it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

from gitops.core.clock import Clock
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph import checkpoints
from gitops.database.graph.checkpoints import LoadSource
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.results import LoadResult
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import open_table
from gitops.database.graph.write import intake
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, WrittenGraph

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I32? }
node Note { text: String }
edge Knows: Person -> Person @card(0..40) { since: I32? }
edge About: Note -> Person
"""


def people(count: int = 240) -> list[str]:
    """Records of all types in turn, with edges that have ids and edges that don't, blank lines, and ids that come twice."""
    lines = []
    for n in range(count):
        mail = {"mail": f"p{n}@example.org"} if n % 3 else {}
        lines.append(json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n, **mail}}))
        lines.append(json.dumps({"type": "Note", "data": {"text": f"note {n}", **({"id": f"n{n}"} if n % 2 else {})}}))
        lines.append(json.dumps({"edge": "Knows", "from": f"p{n}", "to": f"p{count - 1 - n}", "data": {"since": n}}))
        if n % 2:
            lines.append(
                json.dumps({"edge": "About", "from": f"n{n}", "to": f"p{n // 2}", "data": {"id": f"a{n % 100}"}})
            )
        lines += [""] if n % 50 == 0 else []
    return lines


def begin(uri: str | Path) -> WrittenGraph:
    """A graph that has some of these rows already, with other values."""
    graph = WrittenGraph(uri, 900_000).create(SCHEMA)
    graph.load(
        [
            {"type": "Person", "data": {"name": "old", "mail": "old@example.org"}},
            {"type": "Note", "data": {"id": "kept", "text": "kept"}},
            {"edge": "Knows", "from": "old", "to": "old"},
        ]
    )
    return graph


def source_of(file: Path) -> LoadSource:
    """What the command line says of a file."""
    return LoadSource(str(file), file.stat().st_size, file.stat().st_mtime_ns)


@contextlib.contextmanager
def many_checkpoints() -> Iterator[None]:
    """Read small pieces, with a checkpoint after some of them."""
    with (
        patch.object(intake, "_PIECE_BYTES", 2_000),
        patch.object(intake, "_LEAST_BYTES", 64),
        patch.object(intake, "FILE_BYTES", 20_000),
        patch.object(checkpoints, "CHECKPOINT_BYTES", 8_000),
    ):
        yield


def load_file(
    uri: str,
    file: Path,
    mode: LoadMode,
    *,
    resume: bool = False,
    faults: Faults | None = None,
    start: int = 1_000,
    clock: Clock = CLOCK,
    records: BinaryIO | None = None,
) -> LoadResult:
    """Load a file with many checkpoints."""
    with many_checkpoints(), file.open("rb") as opened:
        request = LoadRequest(uri, records or opened, mode, source=source_of(file), resume=resume)
        return load_records(request, WriteContext(clock, SequentialIds(start), faults=faults or NoFaults()))


def physical(uri: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables in the order in which they are stored, without ids that were made."""
    snapshot = open_snapshot(uri)
    found = {}
    for key, entry in snapshot.manifest.tables.items():
        rows = open_table(snapshot.folder, entry).to_table().to_pylist()
        found[key] = [{**row, "id": row["id"] if len(row["id"]) < 26 else ""} for row in rows]
    return found
