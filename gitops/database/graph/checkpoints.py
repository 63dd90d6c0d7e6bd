"""Checkpoints of a load: an interrupted load of a file continues without rereading the records already staged.

1. A load's data files do not belong to a version until it is published. At a checkpoint, all rows so far are in durable
   data files. The checkpoint lists the files and the record number of each row.
2. The load's document is written after its checkpoints and is replaced only if it has not changed. So if two processes
   continue the same load, the later one takes it over.
3. A continued load reads the staged rows' keys from the data files, and reads the input file from the checkpoint on.
4. The load's id becomes the commit id of its version, so a load is published only once.
5. A document expires three days after the last checkpoint. Then the load cannot be continued or published, and gc
   removes its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import DIGEST, OBJECT, TEXT, ULID, list_of, map_of, nullable, record
from gitops.core.errors import GitopsError, IntegrityError, RemoteError, system_reason
from gitops.core.faults import around
from gitops.database.graph import layout
from gitops.database.graph.lines import read_floor
from gitops.database.graph.manifest import (
    NAME,
    TIME,
    find_manifest,
    graph_document,
    number,
    read_document,
)
from gitops.database.graph.results import RESTORING, LoadResult, StepProgress
from gitops.database.graph.snapshot import Snapshot, kept_versions
from gitops.database.graph.staged import WriteContext, precise_timestamp
from gitops.database.graph.tables import StagedFragment, arrow_schema, table_form
from gitops.database.graph.write.intake import LoadIntake, RecordReader, key_columns_of
from gitops.database.language.schema import Scalar

if TYPE_CHECKING:
    from gitops.database.storage.port import ObjectStore

CHECKPOINT_BYTES = 256 * 1024 * 1024
"""Bytes of records between checkpoints. A smaller load has no checkpoint, and is started again after an interrupt."""

KEPT = timedelta(days=3)
_COMPARED_BYTES = 4 * 1024 * 1024
_AGAIN = "load the file from the start: gitops graph load GRAPH FILE"
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("fragments", pa.list_(pa.string())),
        ("records", pa.large_list(pa.int64())),
        ("given", pa.large_list(pa.bool_())),
    ]
)


@dataclass(frozen=True, slots=True)
class LoadSource:
    """The input file of a load, and everything else that must be the same when the load continues.

    `name` identifies the file, `changed_ns` is its last modification time, and `embeddings` is the model that computes
    vectors.
    """

    name: str
    size: int
    changed_ns: int
    embeddings: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """The part of the file between two checkpoints: its end in bytes, and the digest of its bytes."""

    end: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """A load that can be continued.

    `records` is the number of records before the last checkpoint, `tables` has the `table_form` of each table, and
    `version` is the version from which the load began. `rows` is not None once the load is being published. `taken`
    counts the processes that have continued it.
    """

    id: str
    graph_id: str
    branch: str
    mode: str
    source: LoadSource
    version: int
    schema_ir: str
    tables: Mapping[str, Mapping[str, object]]
    reads: tuple[CheckedPart, ...]
    records: int
    rows: Mapping[str, int] | None
    taken: int
    expires_at: str

    def expired(self, now: datetime) -> bool:
        """Return whether the load can no longer be continued."""
        until = parse_timestamp(self.expires_at)
        return until is None or until <= now


class Checkpoint(NamedTuple):
    """Rows that a checkpoint added to one table: their data files, record numbers, and a mask of ids that can clash."""

    key: str
    fragments: list[StagedFragment]
    records: np.ndarray[tuple[int], np.dtype[np.int64]]
    given: np.ndarray[tuple[int], np.dtype[np.bool_]]


def read_loads(store: ObjectStore) -> Iterator[tuple[StagedLoad, bytes]]:
    """Yield all loads that can be continued or have expired, with their documents.

    Raises IntegrityError `graph_unreadable`.
    """
    for name in store.names(layout.LOADS):
        load_id, dot, suffix = name.partition(".")
        if not is_ulid(load_id) or dot + suffix != ".json":
            continue
        key = layout.load_key(load_id)
        data = store.read(key)
        if data is not None:
            yield read_document(STAGED_LOAD, data, store.display(key)), data


def read_checkpoint(store: ObjectStore, load_id: str, part: int) -> Iterator[Checkpoint]:
    """Yield a checkpoint's tables. The first item has no key, and contains the records before blank lines.

    Raises IntegrityError `graph_unreadable`; RemoteError.
    """
    key = layout.checkpoint_key(load_id, part)
    try:
        rows = pa.ipc.open_file(store.read(key) or b"").read_all()
        for table, fragments, records, given in zip(*(rows.column(name) for name in _SCHEMA.names), strict=True):
            found = [StagedFragment.from_json(text) for text in fragments.as_py()]
            numbers = np.cumsum(records.values.to_numpy())
            yield Checkpoint(table.as_py(), found, numbers, given.values.to_numpy(zero_copy_only=False))
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        place = store.display(key)
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: {error}", path=place, fix=_AGAIN) from error


def _checkpoint_bytes(parts: list[Checkpoint]) -> bytes:
    """Return the stored form. Record numbers are stored as differences, because these compress well."""
    rows = [
        (
            part.key,
            [json.dumps(each.to_json()) for each in part.fragments],
            np.diff(part.records, prepend=0),
            part.given,
        )
        for part in parts
    ]
    columns = [pa.array(cells, kind.type) for cells, kind in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.table(columns, schema=_SCHEMA))
    return bytes(sink.getvalue())


class Checkpoints:
    """Writes the checkpoints of one load."""

    def __init__(self, branch: str, mode: str, source: LoadSource, intake: LoadIntake, context: WriteContext) -> None:
        """Begin a load. Nothing is written before the first checkpoint."""
        snapshot = intake.snapshot
        self._intake, self._context, self._store = intake, context, snapshot.store
        self._stored: bytes | None = None
        self.staged = 0
        """Number of staged records with which an interrupted load can be continued."""
        self.load = StagedLoad(
            id=context.ids.ulid(),
            graph_id=snapshot.identity.graph_id,
            branch=branch,
            mode=mode,
            source=source,
            version=snapshot.manifest.n,
            schema_ir=snapshot.manifest.schema_ir,
            tables={key: table_form(entry) for key, entry in snapshot.manifest.tables.items()},
            reads=(),
            records=0,
            rows=None,
            taken=0,
            expires_at=precise_timestamp(context.now() + KEPT),
        )
        self._begin_part()

    def take_over(self) -> LoadResult | None:
        """Continue the interrupted load of the same file, or return its result if it was already published.

        Raises GitopsError `load_not_staged` if there is none, `graph_conflict` if the schema has changed since, and
        `graph_version_gone` if it is unknown whether the load was published.
        """
        snapshot, new = self._intake.snapshot, self.load
        loads = [each for each in read_loads(self._store) if not each[0].expired(self._context.now())]
        mine = [each for each in loads if _purpose(each[0]) == _purpose(new)]
        if not mine:
            others = "".join(f"; there is one {_purpose_text(load)}" for load, _ in loads[:1])
            detail = f"no interrupted load {_purpose_text(new)} can be continued{others}"
            raise GitopsError(Code.LOAD_NOT_STAGED, detail, path=new.source.name)
        self.load, self._stored = max(mine, key=lambda each: each[0].id)
        if (published := self.published(snapshot)) is not None:
            return published
        if self.load.rows is not None and read_floor(self._store, snapshot.line.id) > self.load.version:
            detail = "it is unknown whether the load was published: versions since it began are no longer kept"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=self._store.location)
        if (self.load.graph_id, self.load.schema_ir, self.load.tables) != (new.graph_id, new.schema_ir, new.tables):
            detail = f"the schema of {self._store.location} changed since the load was interrupted"
            raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self._store.location, fix=_AGAIN)
        self._save(replace(self.load, taken=self.load.taken + 1))
        return None

    def require_same(self, source: LoadSource, records: BinaryIO) -> None:
        """Move the file to the last checkpoint. The file is compared only if its size or modification time differs.

        Raises GitopsError `load_file_changed` if it differs before the last checkpoint.
        """
        end = self.load.reads[-1].end
        if (source.size, source.changed_ns) != (self.load.source.size, self.load.source.changed_ns):
            at = 0
            for part in self.load.reads:
                digest = hashlib.sha256()
                while at < part.end and (data := records.read(min(_COMPARED_BYTES, part.end - at))):
                    digest.update(data)
                    at += len(data)
                if digest.hexdigest() != part.sha256:
                    detail = (
                        f"{source.name} has changed in the first {end:,} bytes, which the interrupted load has read"
                    )
                    raise GitopsError(Code.LOAD_FILE_CHANGED, detail, path=source.name)
        records.seek(end)

    def restore(self, reader: RecordReader, report: Callable[[StepProgress], None]) -> None:
        """Accept the staged rows. Raises RemoteError and IntegrityError `graph_unreadable`."""
        parts = len(self.load.reads)
        for at in range(parts):
            report(StepProgress(RESTORING, self._intake.rows, at, parts, "checkpoints"))
            for part in read_checkpoint(self._store, self.load.id, at):
                if part.key:
                    self._take(part)
                else:
                    reader.problems.blanks.extend(part.records.tolist())
        reader.records, reader.bytes_read = self.load.records, self.load.reads[-1].end
        self.staged = self.load.records
        self._begin_part()

    def _take(self, part: Checkpoint) -> None:
        try:
            self._intake.take_staged(part.key, part.fragments, part.records, part.given)
        except RemoteError as error:
            error.fix = error.fix or _AGAIN
            raise

    def before(self, reader: RecordReader) -> Callable[[bytes], None]:
        """Return a function to call before each block of the file. It writes a checkpoint when one is due."""

        def process(block: bytes) -> None:
            if self._bytes >= CHECKPOINT_BYTES and not reader.problems.total and self._restorable():
                self._write(reader)
            self._digest.update(block)
            self._bytes += len(block)

        return process

    def publishing(self, rows: Mapping[str, int]) -> None:
        """Record that the load is about to be published. Raises the same errors as a checkpoint."""
        if self._stored is not None:
            self._save(replace(self.load, rows=rows))

    def published(self, snapshot: Snapshot) -> LoadResult | None:
        """Return the load's result, if a version contains its rows."""
        if self._stored is None or self.load.rows is None:
            return None
        for holder, n in kept_versions(self._store, snapshot.line):
            if n <= self.load.version:
                break
            manifest = find_manifest(self._store, n, holder)
            if manifest is not None and manifest.txn_id == self.load.id:
                return LoadResult(n, self.load.rows, manifest)
        return None

    def end(self) -> None:
        """Remove the load's document and checkpoints after it was published. Anything left behind expires."""
        if self._stored is None:
            return
        with contextlib.suppress(RemoteError), around(self._context.faults, "engine.load", "end"):
            for part in range(len(self.load.reads)):
                self._store.delete(layout.checkpoint_key(self.load.id, part))
            self._store.delete(layout.load_key(self.load.id))

    def _begin_part(self) -> None:
        self._digest, self._bytes, self._intake.recorded = hashlib.sha256(), 0, []
        self._blanks = len(self._intake.problems.blanks)

    def _restorable(self) -> bool:
        """Return whether the keys of all tables can be read from data files without a version."""
        for table in self._intake.tables.values():
            names = arrow_schema(table.declared).names
            blobs = (each for each, kind in table.declared.properties.items() if kind.scalar is Scalar.BLOB)
            first = min(map(names.index, blobs), default=len(names))
            if any(names.index(name) > first for name in key_columns_of(table.declared)):
                return False
        return True

    def _write(self, reader: RecordReader) -> None:
        """Write a checkpoint. Raises GitopsError `graph_conflict` if another process has continued the load."""
        intake, load = self._intake, self.load
        intake.finish()
        if reader.problems.total:
            return
        blanks = np.array(reader.problems.blanks[self._blanks :], np.int64)
        parts = [Checkpoint("", [], blanks, np.zeros(0, np.bool_))]
        for key, table in intake.tables.items():
            mine = [each for each in intake.recorded or () if each[0] == key]
            if mine:
                records = np.concatenate([each for _, each, _ in mine])
                given = [np.zeros(each.size, np.bool_) if known is None else known for _, each, known in mine]
                parts.append(Checkpoint(key, table.staged[table.kept :], records, np.concatenate(given)))
        try:
            for part in parts[1:]:
                files = [f"data/{file.path}" for fragment in part.fragments for file in fragment.files]
                intake.snapshot.folder.settle(intake.snapshot.manifest.tables[part.key].path, files)
        except OSError as error:
            raise RemoteError(Code.STORAGE_FAILED, system_reason(error, self._store.location)) from error
        for table in intake.tables.values():
            # From now on these files are kept, even if it is unknown whether the document was written.
            table.kept = len(table.staged)
        with around(self._context.faults, "engine.load", "checkpoint"):
            self._store.write(layout.checkpoint_key(load.id, len(load.reads)), _checkpoint_bytes(parts))
            read = CheckedPart(reader.bytes_read, self._digest.hexdigest())
            self._save(replace(load, reads=(*load.reads, read), records=reader.records))
            self.staged = reader.records
        self._begin_part()

    def _save(self, new: StagedLoad) -> None:
        now, key = self._context.now(), layout.load_key(new.id)
        if self._stored is not None and self.load.expired(now):
            detail = f"the load expired at {self.load.expires_at}"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=self._store.location, fix=_AGAIN)
        new = replace(new, expires_at=precise_timestamp(now + KEPT))
        data = STAGED_LOAD.write(new)
        before, store = self._stored, self._store
        if not (store.create(key, data) if before is None else store.replace(key, data, expected=before)):
            self.staged = 0
            detail = f"another process has continued the load {new.id}"
            raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self._store.location)
        self.load, self._stored = new, data


def _purpose(load: StagedLoad) -> tuple[object, ...]:
    """Return what must be equal for a load to be the same."""
    return load.source.name, load.source.embeddings, load.branch, load.mode


def _purpose_text(load: StagedLoad) -> str:
    model = f", --embeddings {load.source.embeddings}" if load.source.embeddings else ""
    return f"of {load.source.name} with --branch {load.branch}, --mode {load.mode}{model}"


STAGED_LOAD = graph_document(
    {
        1: record(
            StagedLoad,
            {
                "id": ULID,
                "graph_id": ULID,
                "branch": NAME,
                "mode": NAME,
                "source": record(
                    LoadSource,
                    {"name": NAME, "size": number(0), "changed_ns": number(0), "embeddings": nullable(TEXT)},
                ),
                "version": number(1),
                "schema_ir": DIGEST,
                "tables": OBJECT,
                "reads": list_of(record(CheckedPart, {"end": number(0), "sha256": DIGEST})),
                "records": number(0),
                "rows": nullable(map_of(number(0), key=str)),
                "taken": number(0),
                "expires_at": TIME,
            },
        )
    }
)
