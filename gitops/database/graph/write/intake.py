"""The first pass of a load: each record is checked by itself, its row goes to a data file, and its keys are noted.

Memory is bounded whatever the size of the stream: rows wait in small groups, groups wait as Arrow tables until they fill a data
file, and keys spill to disk. The data files belong to no version of their tables; a load that fails leaves them to `gc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Self

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata

from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.root import tables_at_once
from gitops.database.graph.search.embedding import Embedder
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import arrow_table, declared_type, open_table, stage_rows
from gitops.database.graph.values import compact_json
from gitops.database.graph.write.records import IncomingRow, RecordProblems
from gitops.database.graph.write.rules import embed_rows, find_mismatches, pattern_fault
from gitops.database.graph.write.spill import Spill
from gitops.database.language.schema import EdgeType, NodeType
from gitops.database.storage.parallel import in_parallel

__all__ = ["LoadIntake", "TableIntake", "group_key"]

GROUP_BYTES = 8 * 1024 * 1024
"""So many bytes of lines wait as Python rows, over all tables."""

KEYS = 1 << 17
"""So many keys wait in memory, over all tables."""

FILE_BYTES = 64 * 1024 * 1024
"""So many bytes wait as Arrow tables, over all tables."""


def group_key(cells: Sequence[Any]) -> str | None:
    """A text that is equal for equal groups; None for a group with a null, which clashes with none."""
    if None in cells:
        return None
    return compact_json([cell + 0.0 if isinstance(cell, float) else cell for cell in cells])


@dataclass(slots=True)
class TableIntake:
    """The rows of one table, and the keys that are checked together with others.

    `ids` has record and ordinal of each row whose id may clash; `ends` the ends of edges by column; `groups` the
    unique groups by their columns.
    """

    key: str
    declared: NodeType | EdgeType
    known: frozenset[str]
    rows: int = 0
    ids: Spill = field(default_factory=Spill)
    ends: dict[str, Spill] = field(default_factory=dict)
    groups: dict[tuple[str, ...], Spill] = field(default_factory=dict)
    pending: list[IncomingRow] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    staged: list[FragmentMetadata] = field(default_factory=list)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the Arrow tables that are in no file yet."""
        return sum(table.nbytes for table in self.tables)

    def spills(self) -> list[Spill]:
        """All of them."""
        return [self.ids, *self.ends.values(), *self.groups.values()]


class LoadIntake:
    """Takes rows in; a context manager that closes the spills."""

    def __init__(self, snapshot: Snapshot, embedder: Embedder | None) -> None:
        """Data files go to the tables of the snapshot, whose schema the rows must fit."""
        self.snapshot = snapshot
        self.catalog = snapshot.schema().catalog
        self.problems = RecordProblems()
        self._embedder = embedder
        self._opened: dict[str, tuple[TableEntry, lance.LanceDataset]] = {}
        self._pending_bytes = self._pending_keys = 0
        self.tables: dict[str, TableIntake] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for table in self.tables.values():
            for spill in table.spills():
                spill.close()

    @property
    def rows(self) -> int:
        """How many rows were taken, over all tables."""
        return sum(table.rows for table in self.tables.values())

    def add(self, incoming: IncomingRow) -> None:
        """Take one row. Raises LoadError, RemoteError `storage_failed`, and as the embedder."""
        table = self.tables.get(incoming.key) or self.open_table(incoming.key)
        row = incoming.row
        if not incoming.new:
            table.ids.add(row["id"], incoming.record, table.rows)
        for column, spill in table.ends.items():
            spill.add(row[column], incoming.record)
        for group, spill in table.groups.items():
            key = group_key([row[name] for name in group])
            if key is not None:
                spill.add(key, incoming.record)
        self._pending_keys += 1 + len(table.ends) + len(table.groups)
        if self._pending_keys >= KEYS:
            self._pending_keys = 0
            for each in self.tables.values():
                for spill in each.spills():
                    spill.flush()
        table.rows += 1
        table.pending.append(incoming)
        self._pending_bytes += incoming.bytes
        if self._pending_bytes >= GROUP_BYTES:
            self._convert_pending()

    def finish(self) -> None:
        """Write what waits. Raises as `add`."""
        self._convert_pending()
        in_parallel(self._stage, self.tables.values(), tables_at_once(self.snapshot.folder))

    def discard(self) -> None:
        """Remove the data files, which are not referred to; stops at the first failure."""
        for table in self.tables.values():
            path = self.snapshot.manifest.tables[table.key].path
            for file in (file for fragment in table.staged for file in fragment.files):
                try:
                    self.snapshot.store.delete(f"{path}/data/{file.path}")
                except RemoteError:
                    return

    def open_table(self, key: str) -> TableIntake:
        """Begin with a table."""
        declared = declared_type(self.catalog, key)
        known = self.snapshot.folder.begin(self.snapshot.manifest.tables[key].path)
        table = TableIntake(key, declared, known, groups={group: Spill() for group in declared.unique})
        if isinstance(declared, EdgeType):
            table.ends = {"src": Spill(), "dst": Spill()}
        self.tables[key] = table
        return table

    def opened(self, key: str, entry: TableEntry) -> lance.LanceDataset:
        """A table of the load at the entry's version, opened again only when the version has changed. Raises as `open_table`."""
        held = self._opened.get(key)
        if held is None or (held[0].path, held[0].version) != (entry.path, entry.version):
            held = self._opened[key] = entry, open_table(self.snapshot.folder, entry)
        return held[1]

    def _convert_pending(self) -> None:
        """Turn the waiting rows into Arrow tables, and the largest of these into data files while there are too many."""
        self._pending_bytes = 0
        for table in self.tables.values():
            pending, table.pending = table.pending, []
            if not pending or self.problems.total:
                continue
            declared, rows = table.declared, [each.row for each in pending]
            embed_rows(declared, rows, [each.given for each in pending], self._embedder)
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            for check in declared.checks if isinstance(declared, NodeType) else ():
                for at in find_mismatches(check, columns[check.property_name]):
                    self.problems.add(pending[at].record, pattern_fault(declared, check))
            if not self.problems.total:
                table.tables.append(arrow_table(declared, columns))
        while sum(table.waiting_bytes for table in self.tables.values()) >= FILE_BYTES:
            self._stage(max(self.tables.values(), key=lambda table: table.waiting_bytes))

    def _stage(self, table: TableIntake) -> None:
        tables, table.tables = table.tables, []
        if tables and not self.problems.total:
            entry = self.snapshot.manifest.tables[table.key]
            opened = self.opened(table.key, entry)
            table.staged += stage_rows(self.snapshot.folder, entry, pa.concat_tables(tables), opened)
