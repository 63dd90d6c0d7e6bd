"""Lance datasets, one per type: their columns, and changes that become visible only through a manifest.

Rules of this module:

1. A writer starts from the version in the manifest. If the dataset is ahead of it, another writer has crashed or is
   racing. Its versions are undone by restoring the manifest's version.
2. Every change must produce exactly the next version. Lance rebases silently, so a different number means that another
   writer was faster, and the change is abandoned.
3. Lance does not sync anything to disk. Before any manifest refers to the changes, `finish` makes durable all files
   that this writer's versions need and the manifest's version does not. Files left by other writers are ignored.
4. Data files for new rows are written first and do not belong to a version yet. Then one commit adds them and marks the
   removed rows. If there are two commits, the manifest lists the second. A row that replaces another can keep its row
   id, so that cached values of unchanged columns stay valid. Outside this package, rows are identified only by the text
   in their column `id`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.database.graph.files import made_files, version_file
from gitops.database.graph.manifest import TableEntry, find_manifest, head_number
from gitops.database.graph.root import DatasetLocation, GraphFolder
from gitops.database.graph.statistics import (
    Columns,
    ColumnStatistics,
    RowGroup,
    RowGroups,
    count_nulls,
    doubtful_fragments,
    find_untrue,
    group_text,
    measure,
    read_group,
)
from gitops.database.language.schema import Catalog, EdgeType, NodeType, PropType, Scalar
from gitops.database.storage.bucket import AWAY, PERMIT

DRIVER_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
"""The exceptions that the driver raises."""

_REWRITES = ("BaseOperation", "Rewrite", "CreateIndex")
"""The driver's operation names for compaction steps (reserve fragments, then rewrite) and index changes."""

_TIDY_FRAGMENTS = 32
_TIDY_ROWS = (1024, 65_536)

_HINT = re.compile(rb'\{"version":([0-9]{1,18})\}')
# Number of versions to look for one by one after the hint.
_STEPS = 4

_WRITTEN = "_row_last_updated_at_version"

_STATUS = re.compile(r"status code: (\d{3})")
_DENIED, _NOT_FOUND = (401, 403), 404
_SOURCE = re.compile(r",? */[^ ]*\.rs:[0-9]+:[0-9]+")
_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
# Edge ids are mostly increasing ULIDs. This takes half the space and is as fast to read.
_COMPRESSED = {b"lance-encoding:compression": b"zstd"}
_ARROW: Mapping[Scalar, pa.DataType] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
}


def arrow_field(name: str, kind: PropType) -> pa.Field:
    """Return a property's Arrow field.

    Items of lists and vectors are physically nullable, regardless of the property.
    """
    if kind.scalar is Scalar.BLOB:
        return lance.blob_field(name, nullable=kind.nullable)
    vector = kind.scalar is Scalar.VECTOR
    base = pa.list_(pa.field("item", pa.float32()), kind.dimension) if vector else _ARROW[kind.scalar]
    if kind.is_list:
        base = pa.list_(pa.field("item", base))
    return pa.field(name, base, nullable=kind.nullable)


def arrow_schema(declared: NodeType | EdgeType) -> pa.Schema:
    """Return a table's columns: `id` (the unenforced key), `src` and `dst` for an edge, and the properties by name."""
    edge = isinstance(declared, EdgeType)
    about = _PRIMARY_KEY | _COMPRESSED if edge else _PRIMARY_KEY
    fields = [pa.field("id", pa.string(), nullable=False, metadata=about)]
    if edge:
        fields += [pa.field(end, pa.string(), nullable=False) for end in ("src", "dst")]
    return pa.schema(fields + [arrow_field(name, kind) for name, kind in declared.properties.items()])


def create_table(folder: GraphFolder, path: str, schema: pa.Schema) -> TableEntry:
    """Create an empty table at an unused path. Raises RemoteError `storage_failed`."""
    place = folder.dataset(path)
    with _driver(place):
        dataset = lance.write_dataset(
            schema.empty_table(),
            place.uri,
            mode="create",
            storage_options=place.driver_options(),
            enable_stable_row_ids=True,
            data_storage_version="2.2",
        )
        folder.settle(path, made_files(folder.store, path, None, [dataset.version]), new=True)
    return _entry(dataset, path, rows=0, statistics=())


def open_table(folder: GraphFolder, entry: TableEntry) -> lance.LanceDataset:
    """Open a table at the version in its manifest entry.

    Raises GitopsError `graph_version_gone` if a hard drop removed the table's older versions; `graph_unreadable`;
    RemoteError `storage_failed` if a bucket's service does not respond or refuses access.
    """
    place = folder.dataset(entry.path)
    try:
        return lance.dataset(place.uri, version=entry.version, storage_options=place.driver_options())
    except (OSError, ValueError, RuntimeError) as error:
        if (refused := service_failure(place.uri, error)) is not None:
            raise refused from None
        if _purged(folder, entry.path):
            detail = f"table {entry.path} was dropped permanently, with all its versions"
            detail = f"{detail}; read a newer version of the graph"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=folder.store.location) from None
        detail = f"table {entry.path} does not open at version {entry.version}: {_reason(place, error)}"
        raise GitopsError(Code.GRAPH_UNREADABLE, detail, path=folder.store.location) from error


def count_values(folder: GraphFolder, entry: TableEntry, column: str, *, missing: str | None = None) -> int:
    """Count the rows that have a value in a column. With `missing`, these lack one in that column.

    A column is read only if the statistics do not tell. Raises RemoteError `storage_failed`; the errors of `open_table`.
    """
    if not entry.rows:
        return 0
    if missing is None:
        if (nulls := count_nulls(entry.statistics, entry.rows, entry.fields[column])) is not None:
            return entry.rows - nulls
        doubtful = doubtful_fragments(entry.statistics, entry.fields[column], lambda found: not found.nulls)
        return entry.rows - _count_rows(folder, entry, f"`{column}` is null", doubtful)
    return _count_rows(folder, entry, f"`{column}` is not null and `{missing}` is null")


def _count_rows(folder: GraphFolder, entry: TableEntry, wanted: str, fragments: tuple[int, ...] | None = None) -> int:
    # Use a text filter, because the driver accepts no other for tables with lists of times or unsigned numbers.
    if fragments == ():
        return 0
    opened = open_table(folder, entry)
    with _driver(folder.dataset(entry.path)):
        parts = fragments_of(opened, fragments)
        return int(opened.scanner(columns=[], filter=wanted, with_row_id=True, fragments=parts).count_rows())


def fragments_of(dataset: lance.LanceDataset, numbers: Collection[int] | None) -> list[Any] | None:
    """Return the fragments with these ids, or None, which stands for all of them."""
    if numbers is None:
        return None
    return [part for part in dataset.get_fragments() if part.fragment_id in numbers]


def count_differences(folder: GraphFolder, old: TableEntry, new: TableEntry) -> tuple[int, int]:
    """Count the rows that exist in only one of two table versions: (only in the first, only in the second).

    A rewritten row counts as a different row, because its row id or the version that wrote it differs. Fragments with
    the same files and deletions have the same rows; for others, only the ids are read. Raises RemoteError
    `storage_failed`; the errors of `open_table`.
    """
    opened = [open_table(folder, entry) for entry in (old, new)]
    with _driver(folder.dataset(old.path)):
        parts = [{(files_of(each), deletions_of(each)): each for each in at.get_fragments()} for at in opened]
        (ids, written), (other_ids, other_written) = (
            _row_ids(dataset, [each for rows, each in mine.items() if rows not in others])
            for dataset, mine, others in zip(opened, parts, reversed(parts), strict=True)
        )
    _, at, other_at = np.intersect1d(ids, other_ids, assume_unique=True, return_indices=True)
    shared = int(np.count_nonzero(written[at] == other_written[other_at]))
    return ids.size - shared, other_ids.size - shared


def untrue_statistics(folder: GraphFolder, entry: TableEntry) -> Iterator[str]:
    """Yield what is not true about the statistics of a table. Raises RemoteError `storage_failed`; the errors of `open_table`."""
    if entry.statistics is None:
        return
    opened, names = open_table(folder, entry), {number: name for name, number in entry.fields.items()}
    groups = [read_group(text) for text in entry.statistics]
    stated = sorted(each for group in groups for each in group.fragments)
    with _driver(folder.dataset(entry.path)):
        if stated != sorted(part.fragment_id for part in opened.get_fragments()):
            yield "the fragments are not those of the table"
            return
        exact = sum(group.rows for group in groups) == entry.rows
        for group in groups:
            columns = [names[number] for number in group.columns if number in names] or ["id"]
            parts = fragments_of(opened, group.fragments)
            batches = opened.scanner(columns=columns, fragments=parts).to_batches()
            if (found := find_untrue(group, names, batches, exact=exact)) is not None:
                shown = group.fragments[0] if len(group.fragments) == 1 else f"{group.fragments[0]} and others"
                yield f"fragment {shown}: {found}"


def files_of(fragment: Any) -> tuple[object, ...]:
    """Return a key for a fragment's files. Fragments with equal keys have the same rows, except for deletions."""
    return fragment.fragment_id, *((file.path, tuple(file.fields)) for file in fragment.metadata.files)


def deletions_of(fragment: Any) -> str | None:
    """Return the path of a fragment's immutable deletion file. Equal paths mean the same deletions."""
    file = fragment.metadata.deletion_file
    return None if file is None else str(file.path(fragment.fragment_id))


def _row_ids(
    dataset: lance.LanceDataset, fragments: Sequence[Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the row ids in fragments, and the table version that wrote each row."""
    if not fragments:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    found = dataset.scanner(columns=["_rowid", _WRITTEN], fragments=list(fragments)).to_table()
    return found.column("_rowid").to_numpy(), found.column(_WRITTEN).to_numpy()


def _purged(folder: GraphFolder, path: str) -> bool:
    """Return whether the newest version of `main` records the table as purged. Only `main` is migrated."""
    try:
        head = head_number(folder.store)
        newest = None if head is None else find_manifest(folder.store, head)
    except GitopsError:
        return False
    return newest is not None and any(each.purged and each.path == path for each in newest.dropped)


def arrow_table(declared: NodeType | EdgeType, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Create an Arrow table for this type from columns of cells."""
    schema = arrow_schema(declared)
    blobs = {name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB}
    arrays = [
        lance.blob_array(columns[field.name]) if field.name in blobs else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def key_columns(declared: NodeType | EdgeType) -> list[str]:
    """Return the columns that precede the properties: `id` and, for an edge, `src` and `dst`."""
    return ["id", "src", "dst"] if isinstance(declared, EdgeType) else ["id"]


def declared_type(catalog: Catalog, key: str) -> NodeType | EdgeType:
    """Return the type for a table key (`node:T`, `edge:E`)."""
    kind, _, name = key.partition(":")
    return catalog.nodes[name] if kind == "node" else catalog.edges[name]


class StagedFragment(FragmentMetadata):
    """Rows in data files that do not belong to a table version yet, with their statistics."""

    statistics: Columns

    @classmethod
    def of(cls, fragment: FragmentMetadata, statistics: Columns) -> StagedFragment:
        """Return a fragment of the driver with statistics."""
        staged = cls(**vars(fragment))
        staged.statistics = statistics
        return staged

    def to_json(self) -> dict[str, Any]:
        """Return the driver's JSON form with one more member."""
        return {**super().to_json(), "statistics": group_text(RowGroup((0,), self.physical_rows, self.statistics))}

    @staticmethod
    def from_json(json_data: str) -> StagedFragment:
        """Read the form, also without statistics. Raises KeyError, TypeError, ValueError or AttributeError for any other."""
        found, text = FragmentMetadata.from_json(json_data), json.loads(json_data).get("statistics")
        group = None if text is None else read_group(text)
        known = group is not None and group.rows == found.physical_rows
        return StagedFragment.of(found, group.columns if group is not None and known else {})


def stage_rows(
    folder: GraphFolder, entry: TableEntry, rows: pa.Table, opened: lance.LanceDataset | None = None
) -> list[StagedFragment]:
    """Write rows to data files that do not belong to a table version yet.

    Raises RemoteError, and the errors of `open_table`.
    """
    dataset = open_table(folder, entry) if opened is None else opened
    return _staged(folder.dataset(entry.path), dataset, rows, entry.fields)


def table_form(entry: TableEntry) -> dict[str, Any]:
    """Return those of a table's attributes that must not change between staging and publishing rows.

    These are the table's folder and column ids.
    """
    return {"path": entry.path, "fields": dict(entry.fields)}


_STAGED_ROWS = 1 << 16


def read_staged(folder: GraphFolder, path: str, fragment: FragmentMetadata, columns: Sequence[str]) -> pa.Table:
    """Read columns from the data file of a fragment without a version. `stage_rows` writes one file for each fragment.

    The driver can read only the columns before the first Blob column. Raises RemoteError `storage_failed`.
    """
    place = folder.dataset(f"{path}/data/{fragment.files[0].path}")
    try:
        reader = LanceFileReader(place.uri, storage_options=place.driver_options(), columns=list(columns))
        return reader.read_all(batch_size=_STAGED_ROWS).to_table()
    except DRIVER_ERRORS as error:
        reason = str(error).partition("<")[0].partition("\n")[0][:200]
        raise RemoteError(Code.STORAGE_FAILED, f"{place.uri}: {reason}") from error


def remove_files(folder: GraphFolder, path: str, staged: Iterable[FragmentMetadata]) -> None:
    """Remove data files that no version uses. Stops at the first failure. Gc removes the remaining files."""
    for file in (file for fragment in staged for file in fragment.files):
        try:
            folder.remove(f"{path}/data/{file.path}")
            folder.remove(f"{path}/data/{file.path.removesuffix('.lance')}")
        except (OSError, RemoteError):
            return


def driver_message(error: Exception) -> str:
    """Return the driver's message as one line, without positions in the driver's source code."""
    return _SOURCE.sub("", str(error).partition("\n")[0])


def service_failure(place: str, error: Exception) -> RemoteError | None:
    """Return the bucket service's failure that caused a driver error, or None for other errors.

    Only the status is quoted, because a service can echo the request with its signature.
    """
    text = str(error)
    found = _STATUS.search(text)
    status = None if found is None else int(found[1])
    if "Error performing " not in text or status == _NOT_FOUND:
        return None
    denied = status in _DENIED
    answer = "the service does not respond" if status is None else f"the service answers {status}"
    detail = f"{place}: {'access is denied: ' if denied else ''}{answer}"
    return RemoteError(
        Code.STORAGE_FAILED, detail, path=place, retryable=not denied, status=status, fix=PERMIT if denied else AWAY
    )


def raw_columns(rows: pa.Table | pa.RecordBatch) -> dict[str, list[Any]]:
    """Convert each column to cells: dates as days and times as milliseconds, including inside lists."""
    return {name: rows.column(name).cast(raw_type(rows.column(name).type)).to_pylist() for name in rows.schema.names}


def raw_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's cells, with 32-bit days for dates and 64-bit milliseconds for times."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(raw_type(kind.value_type)) if pa.types.is_list(kind) else kind


class TableWriter:
    """Changes one table version by version, starting from the manifest's version."""

    def __init__(
        self,
        folder: GraphFolder,
        entry: TableEntry,
        opened: lance.LanceDataset | None = None,
    ) -> None:
        """Open the table, unless it is `opened` at the entry's version, and undo later versions.

        Raises ConflictError `graph_conflict` if another writer is active, GitopsError `graph_unreadable` if the
        manifest's version is gone.
        """
        self._folder = folder
        self._base = entry
        self._path = entry.path
        self._rows = entry.rows
        self._groups = RowGroups(entry.statistics)
        self._place = folder.dataset(entry.path)
        self.dataset = open_table(folder, entry) if opened is None else opened
        with _driver(self._place):
            self._found = self._expected = _latest_version(folder, entry, self.dataset)
        if self._found != entry.version:
            self.change(lance.LanceDataset.restore)

    def change(self, action: Callable[[lance.LanceDataset], Any]) -> None:
        """Run one change, which must create exactly one version. Raises ConflictError `graph_conflict`, RemoteError.

        The new version is the one that the action returns, or the newest one if it returns none.
        """
        failure: Exception | None = None
        made: Any = None
        try:
            made = action(self.dataset)
        except DRIVER_ERRORS as error:
            failure = error
        latest = made if isinstance(made, lance.LanceDataset) else self._latest()
        if failure is not None and latest.version == self._expected:
            if (refused := service_failure(self._place.uri, failure)) is not None:
                raise refused from None
            raise RemoteError(Code.STORAGE_FAILED, f"{self._place.uri}: {_reason(self._place, failure)}") from failure
        if failure is not None or latest.version != self._expected + 1:
            raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is changing {self._place.uri}") from failure
        self.dataset, self._expected = latest, latest.version

    def add_columns(
        self, schema: pa.Schema, make: Callable[[pa.RecordBatch], pa.RecordBatch], read: list[str], rows: int
    ) -> None:
        """Add the columns of `schema`, which `make` returns for batches of at most `rows` rows of the columns `read`.

        An error of `make` is raised, and leaves no files. Raises the same errors as `change`.
        """
        raised: list[Exception] = []
        numbers = {field.name: at for at, field in enumerate(schema)}
        measured: dict[int, ColumnStatistics] = {}

        def guarded(batch: pa.RecordBatch) -> pa.RecordBatch:
            try:
                new = make(batch)
            except Exception as error:
                raised.append(error)
                raise
            for at, found in measure(new, numbers).items():
                measured[at] = measured[at].joined(found) if at in measured else found
            return new

        convert: Any = lance.batch_udf(output_schema=schema)(guarded)
        parts, options = self.dataset.get_fragments(), self._place.driver_options()
        if not parts:
            self.change(lambda dataset: dataset.add_columns(convert, read_columns=read, batch_size=rows))
            return
        made: list[FragmentMetadata] = []
        columns: dict[int, Columns] = {}
        try:
            with _driver(self._place):
                for part in parts:
                    done, after = part.merge_columns(convert, columns=read, batch_size=rows)
                    made.append(done)
                    columns[part.fragment_id] = dict(measured)
                    measured.clear()
        except RemoteError:
            known = {file.path for part in parts for file in part.metadata.files}
            for done in made:
                done.files = [file for file in done.files if file.path not in known]
            remove_files(self._folder, self._path, made)
            if raised:
                raise raised[0] from None
            raise
        self.change(lambda dataset: _publish(dataset, lance.LanceOperation.Merge(made, after), options))
        fields = _field_ids(self.dataset)
        ids = [fields[name] for name in schema.names]
        self._groups.widen({number: {ids[at]: each for at, each in found.items()} for number, found in columns.items()})

    def add_empty_columns(self, fields: list[pa.Field]) -> None:
        """Add columns without values. Raises the same errors as `change`."""
        self.change(lambda dataset: dataset.add_columns(fields))
        known = _field_ids(self.dataset)
        self._groups.widen_empty([known[field.name] for field in fields])

    def stage(self, rows: pa.Table) -> list[StagedFragment]:
        """Write rows to data files for this table, as `stage_rows` does."""
        return _staged(self._place, self.dataset, rows, self._base.fields)

    def exchange(self, staged: Sequence[StagedFragment], gone: Iterable[int] | None, kept: Sequence[int] = ()) -> None:
        """Create a version in which staged rows replace the rows at the addresses `gone` (None means all rows).

        Addresses refer to the manifest's version. The first staged rows get the row ids in `kept`, which come from
        removed rows. This takes two versions, because within one version the driver would search all row ids. Raises
        the same errors as `change`.
        """
        start = 0
        for part in staged:
            if own := kept[start : start + part.physical_rows]:
                part.row_id_meta = RowIdSequence(list(own)).to_inline_metadata()
            start += part.physical_rows
        options = self._place.driver_options()
        self.change(lambda dataset: _commit(dataset, [] if kept else staged, gone, options))
        if kept:
            self.change(lambda dataset: _publish(dataset, lance.LanceOperation.Append(list(staged)), options))
        made = {part.files[0].path: part for part in staged}
        for fragment in self.dataset.get_fragments() if made else ():
            if (mine := made.get(fragment.metadata.files[0].path)) is not None:
                self._groups.add(fragment.fragment_id, mine.physical_rows, mine.statistics)

    def rewrite(self, action: Callable[[lance.LanceDataset], Any]) -> bool:
        """Run a change that creates any number of versions but changes no rows. Return whether it created any.

        None of them can be another writer's version. Raises the same errors as `change`.
        """
        before, fragments = self._expected, self._fragment_ids()
        try:
            call_driver(self._path, partial(action, self.dataset))
        except RemoteError as error:
            # The driver refuses to rebase its rewrite on another writer's change. This is a conflict, not a storage failure.
            if self._latest().version == before:
                raise
            raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is changing {self._place.uri}") from error
        latest = self._latest()
        for version in range(before + 1, latest.version + 1):
            if _operation_of(latest, version) not in _REWRITES:
                raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is changing {self._place.uri}")
        self.dataset, self._expected = latest, latest.version
        self._groups.rewrite(fragments, self._fragment_ids())
        return latest.version > before

    def _fragment_ids(self) -> list[int]:
        return [part.fragment_id for part in self.dataset.get_fragments()]

    def tidy(self) -> None:
        """Join the smallest fragments if there are many, so that changes do not slow down over time.

        A fragment is no longer joined once it has reached the number of rows for its step. Raises the same errors as
        `change`.
        """
        sizes = [part.physical_rows for part in self.dataset.get_fragments()]
        for rows in _TIDY_ROWS:
            if sum(size < rows for size in sizes) > _TIDY_FRAGMENTS:
                self.rewrite(partial(_join, rows=rows))
                return

    def finish(self, *, recount: bool, changed: Collection[str] | None = None) -> TableEntry:
        """Make the changes durable and describe the table. Rows are counted only if they changed.

        `changed` lists the columns with new values if every row kept its row id and no row was added or removed.
        Otherwise it is None.
        """
        base = self._base
        with _driver(self._place):
            made = range(self._found + 1, self._expected + 1)
            self._folder.settle(self._path, made_files(self._folder.store, self._path, base.version, made))
            rows = self.dataset.count_rows() if recount else self._rows
            sizes = {part.fragment_id: part.physical_rows for part in self.dataset.get_fragments()}
        fields = _field_ids(self.dataset)
        found = _entry(self.dataset, self._path, rows=rows, statistics=self._groups.finish(sizes, fields.values()))
        if changed is None:
            return found
        columns = {**base.changed, **dict.fromkeys(changed, found.version)}
        return replace(found, members=base.members, changed=columns, commits=base.commits)

    def _latest(self) -> lance.LanceDataset:
        with _driver(self._place):
            return lance.dataset(self._place.uri, storage_options=self._place.driver_options())


def _latest_version(folder: GraphFolder, entry: TableEntry, dataset: lance.LanceDataset) -> int:
    """Return the number of a table's newest version. On a disk, it is searched from the driver's hint on.

    The number is too low if the hint is outdated and a version after it was removed. The driver begins a commit at the
    same hint. So either it agrees, or a commit of it has renewed the hint and the next attempt finds that version.
    """
    if folder.marks(()) is None:
        return int(dataset.latest_version)
    hint = _HINT.fullmatch(folder.store.read(f"{entry.path}/_versions/latest_version_hint.json") or b"")
    start = entry.version if hint is None else max(entry.version, int(hint[1]))
    found = folder.marks([f"{entry.path}/{version_file(start + step)}" for step in range(_STEPS)])
    if hint is None or found is None or found[0] is None or None not in found:
        return int(dataset.latest_version)
    return start + found.index(None) - 1


def _join(dataset: lance.LanceDataset, rows: int) -> None:
    """Join fragments with fewer rows; a fragment is not rewritten only because of deleted rows."""
    dataset.optimize.compact_files(target_rows_per_fragment=rows, materialize_deletions=False)


def _operation_of(dataset: lance.LanceDataset, version: int) -> str | None:
    """Return the driver's name for the operation that created a version."""
    try:
        transaction = dataset.read_transaction(version)
    except TypeError:
        # pylance 14.0.2 cannot read the transaction of a compaction that rewrote indexes.
        return "Rewrite"
    return None if transaction is None else type(transaction.operation).__name__


def _staged(
    place: DatasetLocation, dataset: lance.LanceDataset, rows: pa.Table, fields: Mapping[str, int]
) -> list[StagedFragment]:
    with _driver(place):
        written: list[FragmentMetadata] = write_fragments(
            rows, dataset, mode="append", storage_options=place.driver_options(), data_storage_version="2.2"
        )
    staged, start = [], 0
    for part in written:
        staged.append(StagedFragment.of(part, measure(rows.slice(start, part.physical_rows), fields)))
        start += part.physical_rows
    return staged


def _commit(
    dataset: lance.LanceDataset,
    staged: Sequence[FragmentMetadata],
    gone: Iterable[int] | None,
    options: dict[str, str] | None,
) -> lance.LanceDataset:
    """Make one strict commit. A fragment without remaining rows is removed.

    The commit does not tell the driver that rows were rewritten, because then it would treat the new rows as covered by
    the indexes of all columns.
    """
    changed: list[FragmentMetadata] = []
    if gone is None:
        emptied = [fragment.fragment_id for fragment in dataset.get_fragments()]
    else:
        emptied, addresses = [], np.sort(np.fromiter(gone, np.int64) if not isinstance(gone, np.ndarray) else gone)
        for fragment_id in np.unique(addresses >> 32).tolist():
            offsets = (addresses[addresses >> 32 == fragment_id] & 0xFFFFFFFF).tolist()
            fragment = dataset.get_fragment(fragment_id)
            if fragment is None:
                raise ValueError(f"fragment {fragment_id} does not exist")
            left = fragment.delete_rows(offsets)
            if left is None:
                emptied.append(fragment_id)
            else:
                changed.append(left)
    change = lance.LanceOperation.Update(
        removed_fragment_ids=emptied, updated_fragments=changed, new_fragments=list(staged)
    )
    return _publish(dataset, change, options)


def _publish(dataset: lance.LanceDataset, change: Any, options: dict[str, str] | None) -> lance.LanceDataset:
    return lance.LanceDataset.commit(
        dataset, change, read_version=dataset.version, storage_options=options, max_retries=0
    )


def _field_ids(dataset: lance.LanceDataset) -> dict[str, int]:
    return {field.name(): field.id() for field in dataset.lance_schema.fields()}


def _entry(dataset: lance.LanceDataset, path: str, *, rows: int, statistics: tuple[str, ...]) -> TableEntry:
    fields = _field_ids(dataset)
    return TableEntry(path, dataset.version, rows, fields, members=dataset.version, statistics=statistics)


@contextlib.contextmanager
def _driver(place: DatasetLocation) -> Iterator[None]:
    """Convert driver failures to RemoteError `storage_failed`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        if (refused := service_failure(place.uri, error)) is not None:
            raise refused from None
        raise RemoteError(Code.STORAGE_FAILED, f"{place.uri}: {_reason(place, error)}") from error


def _reason(place: DatasetLocation, error: Exception) -> str:
    """Return the driver's message without service responses, which can contain the request's signature."""
    text = driver_message(error)
    return text if place.options is None else text.partition("<")[0][:300]


_NEVER = timedelta(days=36_500)
_T = TypeVar("_T")


def open_latest(folder: GraphFolder, path: str) -> lance.LanceDataset:
    """Open a dataset at its newest version, which readers must not use. Raises RemoteError `storage_failed`."""
    place = folder.dataset(path)
    return call_driver(path, lambda: lance.dataset(place.uri, storage_options=place.driver_options()))


def dataset_versions(folder: GraphFolder, path: str) -> tuple[tuple[int, datetime], ...]:
    """Return the number and time of each version that can be opened, oldest first.

    Raises RemoteError `storage_failed`.
    """
    listed: list[Any] = list(call_driver(path, open_latest(folder, path).versions))
    # The driver returns naive local times.
    return tuple(sorted((each["version"], each["timestamp"].astimezone(UTC)) for each in listed))


def drop_versions(folder: GraphFolder, path: str, numbers: Sequence[int]) -> int:
    """Remove these versions, except the newest, and the files that only they use. Return the number of bytes freed.

    Files without a version may belong to a writer and are kept for seven days. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    listed = sorted(set(numbers) - {dataset.version})
    if not listed:
        return 0
    stats = call_driver(path, lambda: dataset.cleanup_old_versions(versions=listed, error_if_tagged_old_versions=False))
    return int(stats.bytes_removed)


def drop_left_files(folder: GraphFolder, path: str) -> int:
    """Remove files left by crashed writers: files without a version that are older than seven days.

    Versions are not removed. Returns the bytes freed. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    return int(call_driver(path, lambda: dataset.cleanup_old_versions(older_than=_NEVER)).bytes_removed)


def data_files(folder: GraphFolder, path: str) -> set[str]:
    """Return the data file names of all versions. Raises RemoteError `storage_failed`."""
    dataset = open_latest(folder, path)
    found: set[str] = set()
    for number, _ in dataset_versions(folder, path):
        at = call_driver(path, partial(dataset.checkout_version, number))
        found |= {file.path for part in at.get_fragments() for file in part.metadata.files}
    return found


def kept_bytes(folder: GraphFolder, path: str, gone: Sequence[int]) -> int:
    """Return the approximate size of the data files that only these versions use, which `drop_versions` would free."""
    dataset = open_latest(folder, path)
    sizes: dict[str, int] = {}
    kept: set[str] = set()
    for number, _ in dataset_versions(folder, path):
        version = call_driver(path, partial(dataset.checkout_version, number))
        files = {f.path: f.file_size_bytes or 0 for part in version.get_fragments() for f in part.metadata.files}
        sizes |= files
        if number not in gone or number == dataset.version:
            kept |= files.keys()
    return sum(size for file, size in sizes.items() if file not in kept)


def call_driver(path: str, call: Callable[[], _T]) -> _T:
    """Call the driver. Raises RemoteError `storage_failed` on failure. The detail never quotes a request."""
    try:
        return call()
    except DRIVER_ERRORS as error:
        if (refused := service_failure(f"table {path}", error)) is not None:
            raise refused from None
        reason = driver_message(error).partition("<")[0][:200]
        raise RemoteError(Code.STORAGE_FAILED, f"table {path}: {reason}", path=path) from error
