"""Load records into a graph: all of them in one publish, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.faults import Faults, NoFaults
from gitops.engine.constraints import Incoming, check_incoming
from gitops.engine.manifest import Manifest, TableEntry
from gitops.engine.records import LoadError, Problems, Rows, read_records
from gitops.engine.roots import find_root
from gitops.engine.snapshot import Snapshot, open_snapshot
from gitops.engine.staged import StagedVersion
from gitops.engine.tables import TableWriter, arrow_table
from gitops.lang.schema import EdgeType

__all__ = ["LoadError", "LoadMode", "LoadRequest", "LoadResult", "Loader"]


class LoadMode(StrEnum):
    """What an id that exists means: replace the whole row, or refuse the load."""

    MERGE = "merge"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """`records` is strict NDJSON, read once; `actor` is named in the manifest."""

    uri: str
    records: BinaryIO
    mode: LoadMode = LoadMode.MERGE
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The version that has the rows, and the number of rows taken by table key (`node:T`, `edge:E`)."""

    manifest_version: int
    rows: Mapping[str, int]


class Loader:
    """Loads records; time and ids come from the arguments."""

    def __init__(self, clock: Clock, ids: IdSource, faults: Faults | None = None) -> None:
        """`ids` makes the ids of edges, of nodes without key, and of the transaction."""
        self._clock = clock
        self._ids = ids
        self._faults = faults or NoFaults()

    def load(self, request: LoadRequest) -> LoadResult:
        """Check every record, write the tables, publish once. A load of no record publishes nothing.

        Raises LoadError with all problems found; GitopsError `graph_missing`, `graph_unreadable`; ConflictError
        `graph_conflict` when another writer published first; RemoteError `storage_failed`.
        """
        with find_root(request.uri).lease():
            snapshot = open_snapshot(request.uri)
            problems = Problems()
            rows = read_records(request.records, snapshot.schema().catalog, self._ids, problems)
            if not rows:
                return LoadResult(snapshot.manifest.n, {})
            if request.mode is LoadMode.MERGE:
                for each in rows.values():
                    if isinstance(each.declared, EdgeType):
                        each.keep_last()
            check_incoming(Incoming(snapshot, rows, append=request.mode is LoadMode.APPEND), problems)
            tables = {key: _write(snapshot, key, rows[key], request.mode) for key in sorted(rows)}
            self._faults.reach("engine.load.staged")
            manifest = self._next(snapshot, tables, request.actor)
            version = StagedVersion(snapshot, manifest, self._faults).publish()
        return LoadResult(version, {key: len(rows[key].records) for key in sorted(rows)})

    def _next(self, snapshot: Snapshot, tables: Mapping[str, TableEntry], actor: str | None) -> Manifest:
        base = snapshot.manifest
        return Manifest(
            n=base.n + 1,
            txn_id=self._ids.ulid(),
            operation="load",
            actor=actor,
            ts=timestamp(self._clock.now()),
            schema_source=base.schema_source,
            schema_ir=base.schema_ir,
            tables={**base.tables, **tables},
            dropped=base.dropped,
        )


def _write(snapshot: Snapshot, key: str, rows: Rows, mode: LoadMode) -> TableEntry:
    """Stage the rows in one new version of their table."""
    writer = TableWriter(snapshot.folder, snapshot.manifest.tables[key])
    table = arrow_table(rows.declared, rows.columns)
    if mode is LoadMode.APPEND:
        writer.change(lambda dataset: dataset.insert(table))
    else:
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
