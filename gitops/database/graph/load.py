"""Load records into a graph: all of them in one publish, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

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
from gitops.database.graph.tables import TableWriter
from gitops.database.graph.write.intake import LoadError, LoadIntake, RecordReader
from gitops.database.graph.write.joint import JointChecks, LoadMode, TableCheck
from gitops.database.storage.parallel import in_parallel

__all__ = ["LoadError", "LoadMode", "LoadPublisher", "LoadRequest", "load_records"]

_PROGRESS_EVERY = 1000
_MANY = 10_000
_NOT_LOADED = "nothing was loaded"
_UNCERTAIN = "the load was being published; to see whether the graph has it: gitops graph log GRAPH"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """`records` is strict NDJSON, read once.

    With `base`, a `branch` that is missing is made from the newest version of the branch `base`, once the records are found
    to be valid. `progress` is called from time to time with the numbers of records and bytes read. `embedder` makes the
    vectors that records leave out (`@embed`); without one they are missing.
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
    """Check every record, write the tables, publish once. A load of no record publishes nothing.

    The stream is read once, in bounded memory, while other writers go on; a load takes its turn only to publish. It is
    checked against what they published during the load, and the records are not read again.

    The context makes the ids of edges, of nodes without key, and of the transaction; `pause` waits between attempts.
    Raises LoadError with the problems found; as `open_snapshot`; GitopsError `graph_conflict` when the schema changed while
    the records were read, or other writers published first 32 times; RemoteError `storage_failed`. A KeyboardInterrupt has a
    note that says whether the rows may be there.
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
    """The branch, or its base if it does not exist yet."""
    try:
        return open_snapshot(request.uri, ReadTarget(branch=request.branch))
    except GitopsError as error:
        if error.code != Code.GRAPH_BRANCH_MISSING or request.base is None:
            raise
        return open_snapshot(request.uri, ReadTarget(branch=request.base))


class LoadPublisher:
    """The end of a load: publishes rows of `intake` that are in data files already, for the version `read_at`.

    `begun` says that tables may have versions with the rows, `publishing` that a version of the graph may have them.
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
        """Take the turn, check against what is the newest version by now, and publish."""
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
    """The addresses of the superseded rows: the new fragments hold the rows of the load in their order."""
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
