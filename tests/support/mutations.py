"""Graphs to write to: made of a schema and records, changed by queries, and looked at as JSON values."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.read import export_records
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = FixedClock(NOW)


def no_pause(_failed: int) -> None:
    """Writers of tests do not wait."""


class WrittenGraph:
    """A graph at a root, with ids of its own, and a process that remembers where its rows are."""

    def __init__(self, uri: str | Path, start: int = 1) -> None:
        self.uri = str(uri)
        self.ids = SequentialIds(start)
        self.memory = WriterMemory()

    def create(self, schema: str | bytes) -> WrittenGraph:
        """Make it, empty."""
        source = schema.encode() if isinstance(schema, str) else schema
        LanceEngine(CLOCK, self.ids).prepare_create(self.uri, source, actor=None).publish()
        return self

    def load(self, records: Iterable[object], mode: LoadMode = LoadMode.MERGE, **more: Any) -> dict[str, int]:
        """Load records: objects, or lines as they are."""
        lines = [
            each if isinstance(each, bytes) else (each if isinstance(each, str) else json.dumps(each)).encode()
            for each in records
        ]
        request = LoadRequest(self.uri, io.BytesIO(b"\n".join(lines)), mode, **more)
        return dict(load_records(request, WriteContext(CLOCK, self.ids), pause=no_pause).rows)

    def query(self, statements: str, signature: str = "") -> CheckedQuery:
        """A checked mutation against the schema as it is."""
        catalog = open_snapshot(self.uri).schema().catalog
        return check_query(parse_queries(f"query q({signature}) {{ {statements} }}".encode())[0], catalog)

    def mutate(self, statements: str, params: object = None, signature: str = "", **options: Any) -> MutationResult:
        """Run a mutation."""
        chosen = MutationOptions(NOW, **options)
        mutator = Mutator(CLOCK, self.ids, pause=no_pause, memory=self.memory)
        return mutator.run(self.uri, self.query(statements, signature), params, chosen)

    @property
    def version(self) -> int:
        """The newest version of main."""
        return open_snapshot(self.uri).manifest.n

    def rows(self, type_name: str, branch: str = "main") -> list[dict[str, Any]]:
        """All rows of a type, by id, as JSON values."""
        lines = export_records(open_snapshot(self.uri, ReadTarget(branch)), [type_name])
        return [json.loads(line) for line in lines]

    def lines(self) -> list[str]:
        """The whole graph as records."""
        return list(export_records(open_snapshot(self.uri)))

    def shown(self, type_name: str) -> list[dict[str, Any]]:
        """All rows of a type with every property."""
        return read.read_rows(self.uri, type_name, 10_000)

    def counts(self) -> dict[str, int]:
        """The number of rows that the manifest names, by type."""
        tables = read.describe_graph(self.uri).tables
        return {key.partition(":")[2]: table["rows"] for key, table in tables.items()}
