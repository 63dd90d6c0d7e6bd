"""Load records into a graph: all of them in one publish, or none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, BinaryIO

from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.history.branches import ensure_branch
from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.results import LoadResult
from gitops.database.graph.root import tables_at_once
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.graph.staged import (
    DEFAULT_TERM,
    StagedVersion,
    WriteContext,
    hold_lease,
    retry_until_published,
    sleep_jittered,
)
from gitops.database.graph.tables import TableWriter, declared_type, raw_columns
from gitops.database.graph.write.committed import ADDRESS, MAX_PROBES, CommittedTable
from gitops.database.graph.write.intake import (
    PARTS,
    AddressSet,
    BitSet,
    LoadError,
    LoadIntake,
    RecordReader,
    Spill,
    TableIntake,
    group_key,
)
from gitops.database.graph.write.rules import cardinality_violation, hashable_cells, unique_violation
from gitops.database.language.schema import EdgeType
from gitops.database.storage.parallel import in_parallel

_ADDED_AGAIN = (
    'each load adds edges without an id again: give each edge an "id", or replace the whole table with --mode overwrite'
)

# The second pass of a load: what must hold of all records together, and of them with the graph (§5.3).
#
# In stages, each over all tables: ids and unique groups, ends of edges, numbers of edges. Incoming keys come from spills, part by
# part. The committed ones are looked up where the load is small; of a large load the column is read once, into a spill.

_SHOWN = 80
Columns = str | tuple[str, ...]


class LoadMode(StrEnum):
    """Handling of existing rows: replace a row with the same id, refuse it, or replace all rows of the table."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(slots=True)
class TableCheck:
    """Result of checking one table: committed rows that are replaced, and loaded rows that a later one replaces."""

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
        except LoadError as error:
            error.joint = True
            raise
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
                    text = f"key_conflict: {declared.name} {row_id[:_SHOWN]!r} already exists"
                    self.intake.problems.add(last[row_id][0], text, Code.KEY_CONFLICT, (key, row_id))

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
                        text = f"orphan edge {edge.name}: its {column} {end[:_SHOWN]!r} would be missing from {owner}"
                        self.intake.problems.add(0, text)

    def _check_cardinality(self, key: str, edge: EdgeType, table: TableIntake) -> None:
        """Check every source that gains or loses an edge, even if none is left.

        A replaced edge may have had a different source.
        """
        outcome, (low, high) = self._outcomes[key], edge.cardinality
        spill, present = table.ends["src"], self._edges_of_sources(key, table, outcome)
        for number in range(PARTS):
            counts, first = Counter[str](), dict[str, int]()
            committed = set[str]()
            for source, record, _ in spill.part(number):
                if record not in outcome.superseded:
                    first.setdefault(source, record)
                    counts[source] += 1
            for source, address, _ in present.part(number):
                if address in outcome.replaced:
                    first.setdefault(source, 0)
                else:
                    counts[source] += 1
                    committed.add(source)
            for source, record in first.items():
                count = counts[source]
                if count < low or (high is not None and count > high):
                    again = high is not None and count > high and source in committed
                    message = cardinality_violation(edge, source, count)
                    self.intake.problems.add(record, message, fix=_ADDED_AGAIN if again else None)

    def _edges_of_sources(self, key: str, table: TableIntake, outcome: TableCheck) -> Spill:
        """Return the committed edges of every source that a record names, or that a replaced edge began at."""
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
        """Return the committed rows, as key and address, that may have one of the wanted keys.

        None for an overwritten table.
        """
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
        """Return all committed rows by their keys, with their addresses; read once."""
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


__all__ = ["LoadError", "LoadMode", "LoadPublisher", "LoadRequest", "load_records"]

_PROGRESS_EVERY = 1000
_MANY = 10_000
_NOT_LOADED = "nothing was loaded"
_UNCERTAIN = "the load was being published; to see whether the graph has it: gitops graph log GRAPH"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """`records` is strict NDJSON, read once.

    With `base`, a missing `branch` is created from the newest version of `base` once the records are valid. `progress`
    is called periodically with the numbers of records and bytes read. `embedder` computes the vectors that records omit
    (`@embed`); without one they are missing.
    """

    uri: str
    records: BinaryIO
    mode: LoadMode = LoadMode.MERGE
    branch: str = MAIN
    base: str | None = None
    progress: Callable[[int, int], None] | None = None
    embedder: Embedder | None = None


def load_records(
    request: LoadRequest, context: WriteContext, pause: Callable[[int], None] = sleep_jittered
) -> LoadResult:
    """Check every record, write the tables and publish once. A load without records publishes nothing.

    The stream is read once, in bounded memory, while other writers continue; a load takes its turn only to publish. It
    is checked against versions that they published during the load, without reading the records again.

    The context generates the ids of edges, of nodes without key, and of the transaction; `pause` waits between
    attempts. Raises LoadError with the problems found; as `open_snapshot`; GitopsError `graph_conflict` if the schema
    changed while the records were read, or other writers published first 32 times; RemoteError `storage_failed`. A
    KeyboardInterrupt has a note on whether the rows may have been published.
    """
    publisher: LoadPublisher | None = None
    try:
        snapshot = _open_branch(request)
        with hold_lease(snapshot, context) as renew, LoadIntake(snapshot, request.embedder) as intake:
            publisher = LoadPublisher(context, request, snapshot, intake)
            return _load(publisher, request, context, renew, pause)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_UNCERTAIN if publisher is not None and publisher.publishing else _NOT_LOADED)
        raise


def _load(
    publisher: LoadPublisher,
    request: LoadRequest,
    context: WriteContext,
    renew: Callable[[], None],
    pause: Callable[[int], None],
) -> LoadResult:
    intake = publisher.intake
    try:
        _read(request, context, intake, renew)
        if not intake.tables:
            return LoadResult(publisher.read_at.manifest.n, {})
        if request.base is not None or intake.rows > _MANY:
            # A long check does not block other writers, and a branch is created only for valid records.
            publisher.check(_open_branch(request))
        if request.base is not None:
            ensure_branch(request.uri, request.branch, context, ReadTarget(branch=request.base))
        return retry_until_published(publisher.attempt, pause)
    except BaseException:
        if not publisher.begun:
            intake.discard()
        raise


def _read(request: LoadRequest, context: WriteContext, intake: LoadIntake, renew: Callable[[], None]) -> None:
    reader = RecordReader(intake.catalog, context.ids, intake.problems, embeds=request.embedder is not None)
    renewed = context.now()
    for incoming in reader.rows(request.records):
        intake.add(incoming)
        if incoming.record % _PROGRESS_EVERY == 0:
            if context.now() - renewed > DEFAULT_TERM / 3:
                renewed = context.now()
                renew()
            if request.progress is not None:
                request.progress(reader.records, reader.bytes)
    intake.finish()
    if request.progress is not None:
        request.progress(reader.records, reader.bytes)
    intake.problems.settle()


def _open_branch(request: LoadRequest) -> Snapshot:
    """Return the branch, or its base if it does not exist yet."""
    try:
        return open_snapshot(request.uri, ReadTarget(branch=request.branch))
    except GitopsError as error:
        if error.code != Code.GRAPH_BRANCH_MISSING or request.base is None:
            raise
        return open_snapshot(request.uri, ReadTarget(branch=request.base))


class LoadPublisher:
    """Last step of a load: publishes rows of `intake`, which are in data files already, for the version `read_at`.

    `begun` means that tables may have versions with the rows, `publishing` that a graph version may have them.
    """

    def __init__(self, context: WriteContext, request: LoadRequest, read_at: Snapshot, intake: LoadIntake) -> None:
        self._context = context
        self._request = request
        self.read_at = read_at
        self.intake = intake
        self._checked: tuple[Mapping[str, TableEntry], dict[str, TableCheck]] | None = None
        self.begun = self.publishing = False

    def check(self, snapshot: Snapshot) -> dict[str, TableCheck]:
        """Check the load against a version, unless that was done."""
        tables = snapshot.manifest.tables
        if self._checked is None or self._checked[0] != tables:
            # The data files were written for the tables and the schema that were there when reading began.
            then = self.read_at.manifest
            moved = any(
                key not in tables
                or (tables[key].path, tables[key].fields) != (then.tables[key].path, then.tables[key].fields)
                for key in self.intake.tables
            )
            if moved or snapshot.manifest.schema_ir != then.schema_ir or snapshot.identity != self.read_at.identity:
                detail = f"the schema of {snapshot.root.location} changed while the records were read"
                raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self._request.uri)
            self._checked = tables, JointChecks(snapshot, self.intake, self._request.mode).run()
        return self._checked[1]

    def attempt(self) -> LoadResult:
        """Take the turn, check against the newest version, and publish."""
        with find_root(self._request.uri).lease():
            # Another attempt follows only one that published nothing.
            self.publishing = False
            snapshot = open_snapshot(self._request.uri, ReadTarget(branch=self._request.branch))
            outcomes = self.check(snapshot)
            tables = self.intake.tables
            self.begun = True
            self._context.faults.reach("engine.load.before_tables")
            keys = sorted(tables)
            written = in_parallel(
                lambda key: self._write(snapshot, key, outcomes[key]), keys, tables_at_once(snapshot.folder)
            )
            changed = {**snapshot.manifest.tables, **dict(zip(keys, written, strict=True))}
            self._context.faults.reach("engine.load.staged")
            staged = StagedVersion(snapshot, "load", self._context, stamp=timestamp, tables=changed)
            self.publishing = True
            staged.publish()
        rows = {key: tables[key].rows - len(outcomes[key].superseded_rows) for key in sorted(tables)}
        return LoadResult(staged.manifest.n, rows, staged.manifest)

    def _write(self, snapshot: Snapshot, key: str, outcome: TableCheck) -> TableEntry:
        """Make the version of one table that has the rows of the load."""
        table, entry = self.intake.tables[key], snapshot.manifest.tables[key]
        writer = TableWriter(snapshot.folder, entry, table.known, self.intake.opened(key, entry))
        before = {fragment.fragment_id for fragment in writer.dataset.get_fragments()}
        replaced = None if self._request.mode is LoadMode.OVERWRITE else outcome.replaced
        writer.exchange(table.staged, replaced)
        if outcome.superseded_rows:
            writer.exchange([], _superseded_addresses(writer, before, outcome))
        return writer.finish(recount=True)


def _superseded_addresses(writer: TableWriter, before: set[int], outcome: TableCheck) -> list[int]:
    """Return the addresses of the superseded rows, because the new fragments contain the loaded rows in their order."""
    found: list[int] = []
    wanted = iter(outcome.superseded_rows)
    ordinal = next(wanted, None)
    start = 0
    fragments = sorted(writer.dataset.get_fragments(), key=lambda fragment: fragment.fragment_id)
    for fragment in (each for each in fragments if each.fragment_id not in before):
        end = start + fragment.physical_rows
        while ordinal is not None and ordinal < end:
            found.append(fragment.fragment_id << 32 | ordinal - start)
            ordinal = next(wanted, None)
        start = end
    return found
