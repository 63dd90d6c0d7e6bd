"""Loads records into a graph, publishing either all of them at once or none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.checkpoints import Checkpoints, LoadSource
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.history.branches import ensure_branch
from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.results import CHECKING, PUBLISHING, READING, LoadResult, StepProgress, Watcher, unwatched
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
from gitops.database.graph.tables import TableWriter, declared_type
from gitops.database.graph.write.committed import ADDRESS, MAX_PROBES, CommittedTable
from gitops.database.graph.write.intake import (
    KEY_BYTES,
    LoadError,
    LoadIntake,
    RecordReader,
    TableIntake,
)
from gitops.database.graph.write.keys import (
    AddressSet,
    BitSet,
    KeyBatch,
    Keys,
    KeyTable,
    group_key,
    group_keys,
    joined,
    key_batch,
    parts_of,
)
from gitops.database.graph.write.rules import cardinality_violation, hashable_cells, unique_violation
from gitops.database.language.schema import EdgeType
from gitops.database.storage.parallel import in_parallel

_ADDED_AGAIN = (
    'each load adds edges without an id again: give each edge an "id", or replace the whole table with --mode overwrite'
)

# The second pass of a load checks the rules between records, and between records and the graph (§5.3).
#
# It runs in stages over all tables: ids and unique groups, edge ends, numbers of edges. Incoming keys are read part by part.
# A small load looks up committed keys; a large load reads the column once.

_SHOWN = 80
Columns = str | tuple[str, ...]


class LoadMode(StrEnum):
    """How existing rows are treated: replace rows with the same id, reject such records, or replace the whole table."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(slots=True)
class TableCheck:
    """The result of checking one table: committed rows to replace, and loaded rows that a later record replaces."""

    replaced: AddressSet = field(default_factory=AddressSet)
    superseded: BitSet = field(default_factory=BitSet)
    superseded_rows: BitSet = field(default_factory=BitSet)

    def lasting(self, keys: KeyBatch) -> KeyBatch:
        """Return the keys whose records are not replaced by a later record."""
        return keys.take(~self.superseded.holds(keys.records)) if self.superseded else keys


@dataclass(slots=True)
class JointChecks:
    """Checks one load against one snapshot."""

    snapshot: Snapshot
    intake: LoadIntake
    mode: LoadMode
    _committed: dict[str, CommittedTable] = field(default_factory=dict)
    _read: dict[tuple[str, Columns], Keys] = field(default_factory=dict)
    _made: list[Keys] = field(default_factory=list)
    _outcomes: dict[str, TableCheck] = field(default_factory=dict)

    def run(self) -> dict[str, TableCheck]:
        """Run all stages. Raises LoadError after the first stage that finds a problem, and RemoteError."""
        self._outcomes = {key: TableCheck() for key in self.intake.tables}
        try:
            for key, table in self.intake.tables.items():
                self._check_ids(key, table)
                for group, keys in table.groups.items():
                    self._check_unique(key, table, group, keys)
            self.intake.problems.settle()
            for key, table in self.intake.tables.items():
                for column, keys in table.ends.items():
                    self._check_ends(key, table, column, keys)
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
            for keys in self._made:
                keys.close()
        return self._outcomes

    def _check_ids(self, key: str, table: TableIntake) -> None:
        declared, outcome = table.declared, self._outcomes[key]
        last_wins = isinstance(declared, EdgeType) and self.mode is LoadMode.MERGE
        group = getattr(declared, "key", None) or ("id",)
        for arriving, present in parts_of(table.ids, self._committed_keys(key, "id", table.ids)):
            rows = joined(arriving)
            order, first = rows.grouped()
            last = np.append(first[1:], np.ones(min(1, first.size), np.bool_))
            if last_wins:
                outcome.superseded.add(rows.records[order[~last]])
                outcome.superseded_rows.add(rows.others[order[~last]])
            else:
                again = rows.take(np.sort(order[~first]))
                for row_id, record in zip(again.texts.to_pylist(), again.records.tolist(), strict=True):
                    self.intake.problems.add(record, unique_violation(declared, group, (row_id,)))
            owners: KeyTable | None = None
            for committed in present:
                owners = owners or KeyTable(rows.take(order[last]))
                at = owners.find(committed)
                met = at >= 0
                outcome.replaced.add(committed.records[met])
                clashes = owners.keys.take(np.sort(at[met])) if self.mode is LoadMode.APPEND else None
                for row_id, record in _pairs(clashes):
                    text = f"key_conflict: {declared.name} {row_id[:_SHOWN]!r} already exists"
                    self.intake.problems.add(record, text, Code.KEY_CONFLICT, (key, row_id))

    def _check_unique(self, key: str, table: TableIntake, group: tuple[str, ...], keys: Keys) -> None:
        outcome = self._outcomes[key]
        for arriving, present in parts_of(keys, self._committed_keys(key, group, keys)):
            rows = outcome.lasting(joined(arriving))
            order, first = rows.grouped()
            for value, record in _pairs(rows.take(np.sort(order[~first]))):
                self.intake.problems.add(record, _unique_clash(table, group, value))
            owners: KeyTable | None = None
            for committed in present:
                owners = owners or KeyTable(rows.take(order[first]))
                at = owners.find(committed)
                clashes = at[(at >= 0) & ~outcome.replaced.holds(committed.records)]
                for value, record in _pairs(owners.keys.take(np.sort(clashes))):
                    self.intake.problems.add(record, _unique_clash(table, group, value))

    def _check_ends(self, key: str, table: TableIntake, column: str, keys: Keys) -> None:
        edge, outcome = self.intake.catalog.edges[table.declared.name], self._outcomes[key]
        owner = edge.source if column == "src" else edge.target
        node = self.intake.tables.get(f"node:{owner}")
        present = self._committed_keys(f"node:{owner}", "id", keys)
        for ends, arriving, committed in parts_of(keys, self._keys() if node is None else node.ids, present):
            nodes = KeyTable(joined([*arriving, *committed]))
            wanted: dict[str, int] = {}
            for batch in ends:
                lacking = outcome.lasting(batch.take(nodes.find(batch) < 0))
                for end, record in _pairs(lacking):
                    wanted.setdefault(end, record)
            for end, record in wanted.items():
                self.intake.problems.add(record, f"edge {edge.name}: {column} {end[:_SHOWN]!r} not found in {owner}")

    def _check_orphans(self, edge: EdgeType) -> None:
        """Check that remaining edges still have both ends after node tables get new rows."""
        key = f"edge:{edge.name}"
        if key in self.intake.tables or not self._table(key).entry.rows:
            return
        for column, owner in (("src", edge.source), ("dst", edge.target)):
            node = self.intake.tables.get(f"node:{owner}")
            if node is None:
                continue
            for arriving, committed in parts_of(node.ids, self._read_all(key, column)):
                nodes = KeyTable(joined(arriving))
                for batch in committed:
                    for end, _ in _pairs(batch.take(nodes.find(batch) < 0)):
                        text = f"orphan edge {edge.name}: its {column} {end[:_SHOWN]!r} would be missing from {owner}"
                        self.intake.problems.add(0, text)

    def _check_cardinality(self, key: str, edge: EdgeType, table: TableIntake) -> None:
        """Check every source that gains or loses an edge, even if it has no edges left.

        A replaced edge can have had a different source.
        """
        outcome, (low, high) = self._outcomes[key], edge.cardinality
        mine = table.ends["src"]
        present = self._edges_of_sources(key, table, outcome)
        # The committed edges are read twice: for the sources of replaced edges, and to count edges per source.
        for arriving, before, committed in parts_of(mine, present, present):
            loaded = [_counted(outcome.lasting(batch)) for batch in arriving]
            lost = [batch.take(outcome.replaced.holds(batch.records)) for batch in before if outcome.replaced]
            unnamed = [_counted(batch._replace(records=np.zeros_like(batch.records))) for batch in lost]
            sources = KeyTable(_counted(joined([*loaded, *unnamed])))
            kept = np.zeros_like(sources.keys.others)
            for batch in committed:
                at = sources.find(batch)
                at = at[(at >= 0) & ~outcome.replaced.holds(batch.records)]
                kept += np.bincount(at, minlength=kept.size)
            counts = sources.keys.others + kept
            odd = (counts < low) | ((counts > high) if high is not None else False)
            for row in np.flatnonzero(odd).tolist():
                count, record = int(counts[row]), int(sources.keys.records[row])
                again = high is not None and count > high and kept[row]
                message = cardinality_violation(edge, sources.keys.texts[row].as_py(), count)
                self.intake.problems.add(record, message, fix=_ADDED_AGAIN if again else None)

    def _edges_of_sources(self, key: str, table: TableIntake, outcome: TableCheck) -> Keys:
        """Return the committed edges of every source of a loaded edge or a replaced edge."""
        keys = table.ends["src"]
        if not outcome.replaced:
            return self._committed_keys(key, "src", keys)
        if keys.rows > MAX_PROBES:
            return self._read_all(key, "src")
        sources = keys.texts()
        for found in self._table(key).find("id", table.ids.texts(), ("id", "src")):
            sources.update(found["src"])
        return self._look_up(key, "src", sources)

    def _committed_keys(self, key: str, columns: Columns, wanted: Keys) -> Keys:
        """Return the keys and addresses of committed rows that may have one of the wanted keys.

        There are none for a table that is overwritten.
        """
        overwritten = self.mode is LoadMode.OVERWRITE and key in self.intake.tables
        if overwritten or not self._table(key).entry.rows or not wanted.rows:
            return self._keys()
        if wanted.rows > MAX_PROBES:
            return self._read_all(key, columns)
        return self._look_up(key, columns, wanted.texts())

    def _look_up(self, key: str, columns: Columns, keys: set[str]) -> Keys:
        """Find rows through the driver's filter on the column, or on a group's first column that the driver can look up."""
        table, found = self._table(key), self._keys()
        if isinstance(columns, str):
            name, cells = columns, keys
        else:
            groups = [json.loads(each) for each in keys]
            at = table.first_findable(columns, groups[0])
            name, cells = columns[at], set(hashable_cells(group[at] for group in groups))
        for batch in table.find(name, cells, (columns,) if isinstance(columns, str) else columns):
            texts = batch[columns] if isinstance(columns, str) else _groups(batch, columns)
            met = [(text, address) for text, address in zip(texts, batch[ADDRESS], strict=True) if text in keys]
            if met:
                values, addresses = zip(*met, strict=True)
                found.add(key_batch(pa.array(values), np.array(addresses)))
        return found

    def _read_all(self, key: str, columns: Columns) -> Keys:
        """Return the keys and addresses of all committed rows; the column is read only once."""
        found = self._read.get((key, columns))
        if found is None:
            found = self._read[key, columns] = self._keys()
            for batch in self._table(key).scan((columns,) if isinstance(columns, str) else columns):
                single = isinstance(columns, str)
                texts = batch.column(columns) if single else group_keys([batch.column(name) for name in columns])
                found.add(key_batch(texts, batch.column(ADDRESS).to_numpy()))
                if sum(each.nbytes for each in self._made) >= KEY_BYTES:
                    for each in self._made:
                        each.spill()
        return found

    def _keys(self) -> Keys:
        self._made.append(Keys())
        return self._made[-1]

    def _table(self, key: str) -> CommittedTable:
        if key not in self._committed:
            entry = self.snapshot.manifest.tables[key]
            opened = self.intake.opened(key, entry) if key in self.intake.tables else None
            declared = declared_type(self.intake.catalog, key)
            self._committed[key] = CommittedTable(self.snapshot.folder, entry, declared, opened)
        return self._committed[key]


def _groups(found: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> Iterator[str | None]:
    return map(group_key, zip(*(found[name] for name in columns), strict=True))


def _pairs(keys: KeyBatch | None) -> Iterator[tuple[str, int]]:
    """Yield each key with its record."""
    if keys is not None:
        yield from zip(keys.texts.to_pylist(), keys.records.tolist(), strict=True)


def _counted(keys: KeyBatch) -> KeyBatch:
    """Merge equal keys: each key once, with its first record and, as second number, the sum of the second numbers."""
    order, first = keys.grouped()
    sums = np.add.reduceat(keys.others[order], np.flatnonzero(first)) if order.size else keys.others
    return keys.take(order[first])._replace(others=sums)


def _unique_clash(table: TableIntake, group: tuple[str, ...], value: str) -> str:
    return unique_violation(table.declared, group, json.loads(value))


__all__ = ["LoadError", "LoadMode", "LoadPublisher", "LoadRequest", "load_records"]

_PROGRESS_EVERY = 1000
_MANY = 10_000
_NOT_LOADED = "nothing was loaded"
_STAGED = "records are staged; to continue: gitops graph load GRAPH FILE --resume"
_UNCERTAIN = "the load was being published; to see whether the graph has it: gitops graph log GRAPH"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A load: its records (strict NDJSON, read only once), its mode and its branch.

    With `base`, a missing `branch` is created from the newest version of `base` once the records are valid. `progress`
    is called periodically while records are read, and before each further step. `embedder` computes vectors that
    records omit (`@embed`). Without it, they are missing.

    With `source`, `records` is a seekable file, and the load writes checkpoints (see `checkpoints`). With `resume`, the
    interrupted load of this source is continued.
    """

    uri: str
    records: BinaryIO
    mode: LoadMode = LoadMode.MERGE
    branch: str = MAIN
    base: str | None = None
    progress: Watcher = unwatched
    embedder: Embedder | None = None
    source: LoadSource | None = None
    resume: bool = False


def load_records(
    request: LoadRequest, context: WriteContext, pause: Callable[[int], None] = sleep_jittered
) -> LoadResult:
    """Check all records, write the tables and publish one version. A load without records publishes nothing.

    The stream is read only once, in bounded memory, while other writers continue. A load waits for its turn only to
    publish. If others have published during the load, it is checked against the new version without rereading the
    records.

    The context generates ids for edges, for nodes without a key, and for the transaction; `pause` waits between
    attempts. Raises LoadError with the problems found; the errors of `open_snapshot`; GitopsError `graph_conflict` if
    the schema changed while the records were read, or other writers published first 32 times; RemoteError
    `storage_failed`. A note on a KeyboardInterrupt says whether the rows may have been published.
    """
    publisher: LoadPublisher | None = None
    checkpoints: Checkpoints | None = None
    try:
        snapshot = _open_branch(request)
        with hold_lease(snapshot, context) as renew, LoadIntake(snapshot, request.embedder) as intake:
            if request.source is not None:
                checkpoints = Checkpoints(request.branch, request.mode.value, request.source, intake, context)
                if request.resume and (published := checkpoints.take_over()) is not None:
                    checkpoints.end()
                    return published
            publisher = LoadPublisher(context, request, snapshot, intake, checkpoints)
            return _load(publisher, request, context, renew, pause)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            error.add_note(_UNCERTAIN if publisher is not None and publisher.publishing else _NOT_LOADED)
        if checkpoints is not None and checkpoints.staged:
            error.add_note(f"{checkpoints.staged:,} {_STAGED}")
        raise


def _load(
    publisher: LoadPublisher,
    request: LoadRequest,
    context: WriteContext,
    renew: Callable[[], None],
    pause: Callable[[int], None],
) -> LoadResult:
    intake, checkpoints = publisher.intake, publisher.checkpoints
    try:
        _read(request, context, intake, renew, checkpoints)
        if not intake.tables:
            return LoadResult(publisher.read_at.manifest.n, {})
        if request.base is not None or intake.rows > _MANY or checkpoints is not None:
            # Check before taking the turn: a long check blocks no writers, and a branch is created only for valid records.
            publisher.check(_open_branch(request))
        if request.base is not None:
            ensure_branch(request.uri, request.branch, context, ReadTarget(branch=request.base))
        if checkpoints is not None:
            checkpoints.publishing(publisher.rows())
        result = retry_until_published(publisher.attempt, pause)
    except BaseException:
        if not publisher.begun:
            intake.discard()
        raise
    if checkpoints is not None:
        checkpoints.end()
    return result


def _read(
    request: LoadRequest,
    context: WriteContext,
    intake: LoadIntake,
    renew: Callable[[], None],
    checkpoints: Checkpoints | None,
) -> None:
    reader = RecordReader(intake.catalog, context.ids, intake.problems, embeds=request.embedder is not None)
    renewed, reported = context.now(), 0

    def report() -> None:
        size = None if request.source is None else request.source.size
        request.progress(StepProgress(READING, reader.records, reader.bytes_read, size, "bytes"))

    def restored(progress: StepProgress) -> None:
        renew()
        request.progress(progress)

    if checkpoints is not None and request.source is not None and checkpoints.load.reads:
        checkpoints.require_same(request.source, request.records)
        checkpoints.restore(reader, restored)
        report()
    before = (lambda _: None) if checkpoints is None else checkpoints.before(reader)
    for incoming in reader.read(request.records, before):
        intake.add(incoming)
        if reader.records // _PROGRESS_EVERY > reported:
            reported = reader.records // _PROGRESS_EVERY
            if context.now() - renewed > DEFAULT_TERM / 3:
                renewed = context.now()
                renew()
            report()
    intake.finish()
    report()
    intake.problems.settle()


def _open_branch(request: LoadRequest) -> Snapshot:
    """Open the branch, or its base if the branch does not exist yet."""
    try:
        return open_snapshot(request.uri, ReadTarget(branch=request.branch))
    except GitopsError as error:
        if error.code != Code.GRAPH_BRANCH_MISSING or request.base is None:
            raise
        return open_snapshot(request.uri, ReadTarget(branch=request.base))


@dataclass(frozen=True, slots=True)
class CommitId:
    """An IdSource that returns one fixed id."""

    id: str

    def ulid(self) -> str:
        return self.id

    def ulids(self, count: int) -> list[str]:
        return [self.id] * count


class LoadPublisher:
    """The last step of a load. Publishes the rows of `intake`, whose data files were written for version `read_at`.

    If `begun` is true, tables may already have versions with the rows. If `publishing` is true, a graph version may
    have them.
    """

    def __init__(
        self,
        context: WriteContext,
        request: LoadRequest,
        read_at: Snapshot,
        intake: LoadIntake,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._context = context if checkpoints is None else replace(context, ids=CommitId(checkpoints.load.id))
        self.checkpoints = checkpoints
        self._request = request
        self.read_at = read_at
        self.intake = intake
        self._checked: tuple[Mapping[str, TableEntry], dict[str, TableCheck]] | None = None
        self.begun = self.publishing = False

    def check(self, snapshot: Snapshot) -> dict[str, TableCheck]:
        """Check the load against a version, unless this was already done."""
        tables = snapshot.manifest.tables
        if self._checked is None or self._checked[0] != tables:
            self._request.progress(StepProgress(CHECKING, self.intake.rows))
            # The data files were written for the tables and schema of the version at which reading began.
            then = self.read_at.manifest
            moved = any(
                key not in tables
                or (tables[key].path, tables[key].fields) != (then.tables[key].path, then.tables[key].fields)
                for key in self.intake.tables
            )
            if moved or snapshot.manifest.schema_ir != then.schema_ir or snapshot.identity != self.read_at.identity:
                detail = f"the schema of {snapshot.root.location} changed while the records were read"
                raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self._request.uri)
            self._checked = tables, self.joint_checks(snapshot)
        return self._checked[1]

    def joint_checks(self, snapshot: Snapshot) -> dict[str, TableCheck]:
        """Check the load against a version. Raises the same errors as `JointChecks.run`."""
        return JointChecks(snapshot, self.intake, self._request.mode).run()

    def attempt(self) -> LoadResult:
        """Wait for a turn, check the load against the newest version, and publish."""
        with find_root(self._request.uri).lease():
            # Attempts are repeated only if nothing was published.
            self.publishing = False
            snapshot = open_snapshot(self._request.uri, ReadTarget(branch=self._request.branch))
            if self.checkpoints is not None and (published := self.checkpoints.published(snapshot)) is not None:
                return published
            outcomes = self.check(snapshot)
            tables = self.intake.tables
            self.begun = True
            self._request.progress(StepProgress(PUBLISHING, self.intake.rows))
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
        return LoadResult(staged.manifest.n, self.rows(), staged.manifest)

    def rows(self) -> dict[str, int]:
        """Return the number of rows that the load publishes in each table, according to the last check."""
        outcomes = {} if self._checked is None else self._checked[1]
        return {key: self.intake.tables[key].rows - len(each.superseded_rows) for key, each in sorted(outcomes.items())}

    def _write(self, snapshot: Snapshot, key: str, outcome: TableCheck) -> TableEntry:
        """Create a table version that contains the loaded rows."""
        table, entry = self.intake.tables[key], snapshot.manifest.tables[key]
        writer = TableWriter(snapshot.folder, entry, self.intake.opened(key, entry))
        before = {fragment.fragment_id for fragment in writer.dataset.get_fragments()}
        replaced = None if self._request.mode is LoadMode.OVERWRITE else outcome.replaced.sorted()
        writer.exchange(table.staged, replaced)
        if outcome.superseded_rows:
            writer.exchange([], _superseded_addresses(writer, before, outcome))
        return writer.finish(recount=True)


def _superseded_addresses(writer: TableWriter, before: set[int], outcome: TableCheck) -> Iterator[int]:
    """Yield the addresses of superseded loaded rows. The new fragments contain the rows in load order."""
    ordinals, start = outcome.superseded_rows.sorted(), 0
    fragments = sorted(writer.dataset.get_fragments(), key=lambda fragment: fragment.fragment_id)
    for fragment in (each for each in fragments if each.fragment_id not in before):
        end = start + fragment.physical_rows
        low, high = np.searchsorted(ordinals, [start, end])
        yield from (fragment.fragment_id << 32 | ordinals[low:high] - start).tolist()
        start = end
