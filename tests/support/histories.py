"""A graph with branches for tests: rows are put on and taken from any branch, and read back as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from gitops.core.canonical import canonical_digest
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import read_log
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext
from gitops.database.graph.tables import TableWriter, arrow_table, declared_type, open_table, raw_columns
from gitops.database.language.schema import NodeType, Scalar
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

__all__ = ["LATE", "SCHEMA", "History", "knows", "lives", "person", "read_rows", "town"]

LATE = datetime(2100, 1, 1, tzinfo=UTC)
SCHEMA = b"""node Person { name: String @key  age: I32? @range(age, 0..150)  mail: String? @unique }
node Town { name: String @key }
edge Lives: Person -> Town @card(0..1) { since: I32? }
edge Knows: Person -> Person
"""


class History:
    """One graph; time goes on by a second with every reading, and is later than anything the disk knows of, unless told."""

    def __init__(self, uri: str, schema: bytes = SCHEMA, start: int = 1, now: datetime = LATE) -> None:
        self.uri = uri
        self.clock = FixedClock(now, timedelta(seconds=1))
        self.ids = SequentialIds(start)
        if schema:
            LanceEngine(self.clock, self.ids).prepare_create(uri, schema, actor="ann").publish()

    def work(self, faults: Faults | None = None, message: str | None = None) -> WriteContext:
        return WriteContext(self.clock, self.ids, "ann", message, faults or NoFaults())

    def at(self, branch: str = "main", **which: Any) -> Snapshot:
        return open_snapshot(self.uri, ReadTarget(branch, **which))

    def put(
        self, branch: str, rows: Mapping[str, list[dict[str, Any]]], gone: Mapping[str, list[str]] | None = None
    ) -> int:
        """One version with these rows, by table key, in place of those with their ids, and without the ids that are gone."""
        return self.stage(branch, rows, gone).publish()

    def stage(
        self, branch: str, rows: Mapping[str, list[dict[str, Any]]], gone: Mapping[str, list[str]] | None = None
    ) -> StagedVersion:
        base, gone = self.at(branch), gone or {}
        keys = sorted(rows.keys() | gone.keys())
        return self._staged(base, {key: _write(base, key, rows.get(key, []), gone.get(key, [])) for key in keys})

    def put_table(self, branch: str, key: str, change: Callable[[Any], Any]) -> int:
        """One version in which one table is changed, whatever the schema says of the outcome."""
        base = self.at(branch)
        writer = TableWriter(base.folder, base.manifest.tables[key])
        writer.change(change)
        return self._staged(base, {key: writer.finish(recount=True)}).publish()

    def _staged(self, base: Snapshot, tables: Mapping[str, TableEntry]) -> StagedVersion:
        context = WriteContext(self.clock, self.ids, "ann")
        return StagedVersion(base, "load", context, tables={**base.manifest.tables, **tables})

    def people(self, branch: str, **ages: int | None) -> int:
        """Put people by name."""
        return self.put(branch, {"node:Person": [person(name, age) for name, age in ages.items()]})

    def ages(self, branch: str = "main", **which: Any) -> dict[str, int | None]:
        """The people of a version and their ages."""
        return {row["id"]: row["age"] for row in self.rows("node:Person", branch, **which)}

    def rows(self, key: str, branch: str = "main", **which: Any) -> list[dict[str, Any]]:
        """The rows of a table, by id."""
        return read_rows(self.at(branch, **which), key)

    def image(self, branch: str = "main", **which: Any) -> dict[str, list[dict[str, Any]]]:
        """Everything that a version holds."""
        snapshot = self.at(branch, **which)
        return {key: read_rows(snapshot, key) for key in sorted(snapshot.manifest.tables)}


def sealed(form: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with the checksum of what it says now."""
    said = {name: value for name, value in form.items() if name not in ("format", "checksum")}
    return {**form, "checksum": canonical_digest(said)}


def person(name: str, age: int | None = None, mail: str | None = None) -> dict[str, Any]:
    return {"id": name, "name": name, "age": age, "mail": mail}


def town(name: str) -> dict[str, Any]:
    return {"id": name, "name": name}


def lives(edge_id: str, src: str, dst: str, since: int | None = None) -> dict[str, Any]:
    return {"id": edge_id, "src": src, "dst": dst, "since": since}


def knows(edge_id: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": edge_id, "src": src, "dst": dst}


def read_rows(snapshot: Snapshot, key: str) -> list[dict[str, Any]]:
    """The rows of a table, by id; blobs as bytes."""
    table = open_table(snapshot.folder, snapshot.manifest.tables[key])
    kinds = declared_type(snapshot.schema().catalog, key).properties
    blobs = [name for name, kind in kinds.items() if kind.scalar is Scalar.BLOB]
    cells = raw_columns(table.to_table(columns=[name for name in table.schema.names if name not in blobs]))
    for name in blobs:
        files = table.take_blobs(name, indices=list(range(table.count_rows())))
        cells[name] = [None if file is None else file.readall() for file in files]
    rows = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    return sorted(rows, key=lambda row: row["id"])


def _write(base: Snapshot, key: str, rows: list[dict[str, Any]], gone: list[str]) -> TableEntry:
    kind, _, name = key.partition(":")
    catalog = base.schema().catalog
    declared = catalog.nodes[name] if kind == "node" else catalog.edges[name]
    writer = TableWriter(base.folder, base.manifest.tables[key])
    if gone:
        writer.change(lambda dataset: dataset.delete(pc.field("id").isin(gone)))
    if rows:
        heads = ["id"] if isinstance(declared, NodeType) else ["id", "src", "dst"]
        table = arrow_table(
            declared, {column: [row.get(column) for row in rows] for column in [*heads, *declared.properties]}
        )
        writer.change(
            lambda dataset: (
                dataset.merge_insert("id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .conflict_retries(0)
                .execute(table)
            )
        )
    return writer.finish(recount=True)


def version_numbers(uri: str, branch: str = "main") -> tuple[int, ...]:
    """The numbers of the versions of a branch that are kept, oldest first."""
    return tuple(commit.n for commit in reversed(read_log(uri, branch, 10_000)))
