"""The second pass of a load: what must hold of all records together, and of them with the graph (§5.3).

In stages, each over all tables: ids and unique groups, ends of edges, numbers of edges. Incoming keys come from spills, part by
part. The committed ones are looked up where the load is small; of a large load the column is read once, into a spill.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import declared_type, raw_columns
from gitops.database.graph.write.committed import ADDRESS, MAX_PROBES, CommittedTable
from gitops.database.graph.write.intake import PARTS, AddressSet, BitSet, LoadIntake, Spill, TableIntake, group_key
from gitops.database.graph.write.rules import cardinality_violation, hashable_cells, unique_violation
from gitops.database.language.schema import EdgeType

_SHOWN = 80
Columns = str | tuple[str, ...]


class LoadMode(StrEnum):
    """What happens to existing rows: a row of the same id is replaced, or refused, or all rows of the table are replaced."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(slots=True)
class TableCheck:
    """What the checks of one table found: committed rows that are replaced, and rows of the load that a later one replaces."""

    replaced: AddressSet = field(default_factory=AddressSet)
    superseded: BitSet = field(default_factory=BitSet)
    superseded_rows: BitSet = field(default_factory=BitSet)


@dataclass(slots=True)
class JointChecks:
    """The checks of one load against one snapshot."""

    snapshot: Snapshot
    intake: LoadIntake
    mode: LoadMode
    _committed: dict[str, CommittedTable] = field(default_factory=dict)
    _read: dict[tuple[str, Columns], Spill] = field(default_factory=dict)
    _made: list[Spill] = field(default_factory=list)
    _outcomes: dict[str, TableCheck] = field(default_factory=dict)

    def run(self) -> dict[str, TableCheck]:
        """Check everything. Raises LoadError at the end of the first stage that found a problem; RemoteError."""
        self._outcomes = {key: TableCheck() for key in self.intake.tables}
        try:
            for key, table in self.intake.tables.items():
                self._check_ids(key, table)
                for group, spill in table.groups.items():
                    self._check_unique(key, table, group, spill)
            self.intake.problems.settle()
            for key, table in self.intake.tables.items():
                for column, spill in table.ends.items():
                    self._check_ends(key, table, column, spill)
            if self.mode is LoadMode.OVERWRITE:
                for edge in self.intake.catalog.edges.values():
                    self._check_orphans(edge)
            self.intake.problems.settle()
            for key, table in self.intake.tables.items():
                if isinstance(table.declared, EdgeType) and table.declared.cardinality != (0, None):
                    self._check_cardinality(key, table.declared, table)
            self.intake.problems.settle()
        finally:
            for spill in self._made:
                spill.close()
        return self._outcomes

    def _check_ids(self, key: str, table: TableIntake) -> None:
        declared, outcome = table.declared, self._outcomes[key]
        last_wins = isinstance(declared, EdgeType) and self.mode is LoadMode.MERGE
        group = getattr(declared, "key", None) or ("id",)
        present = self._committed_keys(key, "id", table.ids)
        for number, rows in _parts(table.ids):
            last: dict[str, tuple[int, int]] = {}
            for row_id, record, ordinal in rows:
                if row_id in last and last_wins:
                    outcome.superseded.add(last[row_id][0])
                    outcome.superseded_rows.add(last[row_id][1])
                elif row_id in last:
                    self.intake.problems.add(record, unique_violation(declared, group, (row_id,)))
                last[row_id] = record, ordinal
            for row_id, address, _ in present.part(number):
                if row_id not in last:
                    continue
                outcome.replaced.add(address)
                if self.mode is LoadMode.APPEND:
                    text = f"key_conflict: {declared.name} {row_id[:_SHOWN]!r} exists already"
                    self.intake.problems.add(last[row_id][0], text, Code.KEY_CONFLICT)

    def _check_unique(self, key: str, table: TableIntake, group: tuple[str, ...], spill: Spill) -> None:
        outcome, present = self._outcomes[key], self._committed_keys(key, group, spill)
        for number, rows in _parts(spill):
            owners: dict[str, int] = {}
            for value, record, _ in rows:
                if record not in outcome.superseded and owners.setdefault(value, record) != record:
                    self.intake.problems.add(record, _unique_clash(table, group, value))
            for value, address, _ in present.part(number):
                if value in owners and address not in outcome.replaced:
                    self.intake.problems.add(owners[value], _unique_clash(table, group, value))

    def _check_ends(self, key: str, table: TableIntake, column: str, spill: Spill) -> None:
        edge, outcome = self.intake.catalog.edges[table.declared.name], self._outcomes[key]
        owner = edge.source if column == "src" else edge.target
        arriving = self.intake.tables.get(f"node:{owner}")
        present = self._committed_keys(f"node:{owner}", "id", spill)
        for number, rows in _parts(spill):
            wanted: dict[str, int] = {}
            for end, record, _ in rows:
                if record not in outcome.superseded:
                    wanted.setdefault(end, record)
            for end, _, _ in arriving.ids.part(number) if arriving is not None else ():
                wanted.pop(end, None)
            for end, _, _ in present.part(number):
                wanted.pop(end, None)
            for end, record in wanted.items():
                self.intake.problems.add(record, f"edge {edge.name}: {column} {end[:_SHOWN]!r} not found in {owner}")

    def _check_orphans(self, edge: EdgeType) -> None:
        """Edges that stay must still have their ends when a node table gets new rows."""
        key = f"edge:{edge.name}"
        if key in self.intake.tables or not self._table(key).entry.rows:
            return
        for column, owner in (("src", edge.source), ("dst", edge.target)):
            arriving = self.intake.tables.get(f"node:{owner}")
            if arriving is None:
                continue
            ends = self._read_all(key, column)
            for number in range(PARTS):
                present = {row_id for row_id, _, _ in arriving.ids.part(number)}
                for end, _, _ in ends.part(number):
                    if end not in present:
                        text = f"orphan edge {edge.name}: its {column} {end[:_SHOWN]!r} would be gone from {owner}"
                        self.intake.problems.add(0, text)

    def _check_cardinality(self, key: str, edge: EdgeType, table: TableIntake) -> None:
        """Every source that gets an edge or loses one, also if none is left: a replaced edge may have begun elsewhere."""
        outcome, (low, high) = self._outcomes[key], edge.cardinality
        spill, present = table.ends["src"], self._edges_of_sources(key, table, outcome)
        for number in range(PARTS):
            counts, first = Counter[str](), dict[str, int]()
            for source, record, _ in spill.part(number):
                if record not in outcome.superseded:
                    first.setdefault(source, record)
                    counts[source] += 1
            for source, address, _ in present.part(number):
                if address in outcome.replaced:
                    first.setdefault(source, 0)
                else:
                    counts[source] += 1
            for source, record in first.items():
                count = counts[source]
                if count < low or (high is not None and count > high):
                    self.intake.problems.add(record, cardinality_violation(edge, source, count))

    def _edges_of_sources(self, key: str, table: TableIntake, outcome: TableCheck) -> Spill:
        """The committed edges of every source that a record names, or that a replaced edge began at."""
        spill = table.ends["src"]
        if not outcome.replaced:
            return self._committed_keys(key, "src", spill)
        if spill.rows > MAX_PROBES:
            return self._read_all(key, "src")
        sources = set(spill.keys())
        for found in self._table(key).find("id", set(table.ids.keys()), ("id", "src")):
            sources.update(found["src"])
        return self._look_up(key, "src", sources)

    def _committed_keys(self, key: str, columns: Columns, wanted: Spill) -> Spill:
        """The committed rows, as key and address, that may have one of the wanted keys; none of a table that is overwritten."""
        overwritten = self.mode is LoadMode.OVERWRITE and key in self.intake.tables
        if overwritten or not self._table(key).entry.rows or not wanted.rows:
            return self._spill()
        if wanted.rows > MAX_PROBES:
            return self._read_all(key, columns)
        return self._look_up(key, columns, set(wanted.keys()))

    def _look_up(self, key: str, columns: Columns, keys: set[str]) -> Spill:
        """Find rows by the column itself; of a group, by the first member that the driver can look up."""
        table, found = self._table(key), self._spill()
        if isinstance(columns, str):
            name, cells = columns, keys
        else:
            groups = [json.loads(each) for each in keys]
            at = table.first_findable(columns, groups[0])
            name, cells = columns[at], set(hashable_cells(group[at] for group in groups))
        for batch in table.find(name, cells, (columns,) if isinstance(columns, str) else columns):
            for value, address in _keys_and_addresses(batch, columns):
                if value in keys:
                    found.add(value, address)
        return found

    def _read_all(self, key: str, columns: Columns) -> Spill:
        """All committed rows by their keys, with their addresses; read once."""
        found = self._read.get((key, columns))
        if found is None:
            found = self._read[key, columns] = self._spill()
            for batch in self._table(key).scan((columns,) if isinstance(columns, str) else columns):
                for value, address in _keys_and_addresses(raw_columns(batch), columns):
                    found.add(value, address)
        return found

    def _spill(self) -> Spill:
        self._made.append(Spill())
        return self._made[-1]

    def _table(self, key: str) -> CommittedTable:
        if key not in self._committed:
            entry = self.snapshot.manifest.tables[key]
            opened = self.intake.opened(key, entry) if key in self.intake.tables else None
            declared = declared_type(self.intake.catalog, key)
            self._committed[key] = CommittedTable(self.snapshot.folder, entry, declared, opened)
        return self._committed[key]


def _keys_and_addresses(found: Mapping[str, Sequence[Any]], columns: Columns) -> Iterator[tuple[str, int]]:
    if isinstance(columns, str):
        yield from zip(found[columns], found[ADDRESS], strict=True)
        return
    for *cells, address in zip(*(found[name] for name in columns), found[ADDRESS], strict=True):
        key = group_key(cells)
        if key is not None:
            yield key, address


def _parts(spill: Spill) -> Iterator[tuple[int, Iterator[tuple[str, int, int]]]]:
    for number in range(PARTS) if spill.rows else ():
        yield number, spill.part(number)


def _unique_clash(table: TableIntake, group: tuple[str, ...], value: str) -> str:
    return unique_violation(table.declared, group, json.loads(value))
