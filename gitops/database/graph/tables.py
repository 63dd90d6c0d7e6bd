"""One Lance dataset per type: its columns, and changes to it that become visible only through a manifest.

Rules of this module:

1. A writer starts from the version in the manifest. If the dataset is ahead of it, another writer crashed or is racing,
   and its versions are undone by restoring the manifest's version.
2. Every change must produce exactly the next version. Lance rebases silently, so a different number means that another
   writer was faster, and the change is abandoned.
3. Lance syncs nothing to disk. `finish` makes the changes durable before any manifest refers to them: the files that the
   versions of this writer need and the manifest's version does not. What others left in the folder is not looked at.
4. Data files for new rows are written first and belong to no version. One commit adds them and marks the removed rows,
   or two, of which the manifest lists the second. A row that replaces another may keep its row id, so that what a reader knows of
   the other columns stays true; ids in the sense of this package are texts in the column `id`, and only these identify a
   row from outside.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.database.graph.files import made_files
from gitops.database.graph.manifest import TableEntry, find_manifest, head_number
from gitops.database.graph.root import DatasetLocation, GraphFolder
from gitops.database.language.schema import Catalog, EdgeType, NodeType, PropType, Scalar
from gitops.database.storage.bucket import AWAY, PERMIT

DRIVER_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
"""What the driver raises."""

_REWRITES = ("BaseOperation", "Rewrite", "CreateIndex")
"""What the driver calls the steps of a compaction (it reserves fragments, then it rewrites) and the change of an index."""

_TIDY_FRAGMENTS = 32
_TIDY_ROWS = (1024, 65_536)

_WRITTEN = "_row_last_updated_at_version"

_STATUS = re.compile(r"status code: (\d{3})")
_DENIED, _NOT_FOUND = (401, 403), 404
_SOURCE = re.compile(r",? */[^ ]*\.rs:[0-9]+:[0-9]+")
_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
# Ids of edges are mostly ULIDs that count up: they take half the space, and are read as fast.
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
    """Return the column of a property.

    Items of lists and vectors are nullable physically, whatever the property says.
    """
    if kind.scalar is Scalar.BLOB:
        return lance.blob_field(name, nullable=kind.nullable)
    vector = kind.scalar is Scalar.VECTOR
    base = pa.list_(pa.field("item", pa.float32()), kind.dimension) if vector else _ARROW[kind.scalar]
    if kind.is_list:
        base = pa.list_(pa.field("item", base))
    return pa.field(name, base, nullable=kind.nullable)


def arrow_schema(declared: NodeType | EdgeType) -> pa.Schema:
    """The columns of a table: `id` (the unenforced key), for an edge `src` and `dst`, then the properties in name order."""
    edge = isinstance(declared, EdgeType)
    about = _PRIMARY_KEY | _COMPRESSED if edge else _PRIMARY_KEY
    fields = [pa.field("id", pa.string(), nullable=False, metadata=about)]
    if edge:
        fields += [pa.field(end, pa.string(), nullable=False) for end in ("src", "dst")]
    return pa.schema(fields + [arrow_field(name, kind) for name, kind in declared.properties.items()])


def create_table(folder: GraphFolder, path: str, schema: pa.Schema) -> TableEntry:
    """Make an empty table at a path that was never used. Raises RemoteError `storage_failed`."""
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
    return _entry(dataset, path, rows=0)


def open_table(folder: GraphFolder, entry: TableEntry) -> lance.LanceDataset:
    """Return the table at the version that the manifest names.

    Raises GitopsError `graph_version_gone` for a table whose older versions went with a hard drop; `graph_unreadable`;
    RemoteError `storage_failed` if the service of a bucket does not answer, or refuses.
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


def count_values(folder: GraphFolder, entry: TableEntry, column: str) -> int:
    """Count the rows with a value in a column, by reading that column.

    Raises RemoteError `storage_failed`; as `open_table`.
    """
    if not entry.rows:
        return 0
    # A filter as text: the driver accepts no other for a table with lists of times or of unsigned numbers.
    opened = open_table(folder, entry)
    with _driver(folder.dataset(entry.path)):
        return int(opened.scanner(columns=[], filter=f"`{column}` is not null", with_row_id=True).count_rows())


def count_differences(folder: GraphFolder, old: TableEntry, new: TableEntry) -> tuple[int, int]:
    """Count the rows that only one of two versions of a table has: (first only, second only).

    A row that was written again is another row, by its row id or by the version that wrote it. Fragments that both have
    with the same files and deletions have the same rows; for others, only the ids are read. Raises RemoteError
    `storage_failed`; as `open_table`.
    """
    opened = [open_table(folder, entry) for entry in (old, new)]
    with _driver(folder.dataset(old.path)):
        parts = [{_rows_of(each): each for each in dataset.get_fragments()} for dataset in opened]
        (ids, written), (other_ids, other_written) = (
            _row_ids(dataset, [each for rows, each in mine.items() if rows not in others])
            for dataset, mine, others in zip(opened, parts, reversed(parts), strict=True)
        )
    _, at, other_at = np.intersect1d(ids, other_ids, assume_unique=True, return_indices=True)
    shared = int(np.count_nonzero(written[at] == other_written[other_at]))
    return ids.size - shared, other_ids.size - shared


def _rows_of(fragment: Any) -> tuple[object, ...]:
    """Return a key that fragments with the same rows share."""
    files = fragment.metadata.files
    return fragment.fragment_id, tuple(file.path for file in files), str(fragment.metadata.deletion_file)


def _row_ids(
    dataset: lance.LanceDataset, fragments: Sequence[Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the row ids in fragments, and the version of the table that wrote each of these rows."""
    if not fragments:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    found = dataset.scanner(columns=["_rowid", _WRITTEN], fragments=list(fragments)).to_table()
    return found.column("_rowid").to_numpy(), found.column(_WRITTEN).to_numpy()


def _purged(folder: GraphFolder, path: str) -> bool:
    """Return whether the newest version of `main`, the only branch that is migrated, records the table as purged."""
    try:
        head = head_number(folder.store)
        newest = None if head is None else find_manifest(folder.store, head)
    except GitopsError:
        return False
    return newest is not None and any(each.purged and each.path == path for each in newest.dropped)


def arrow_table(declared: NodeType | EdgeType, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Cells, column by column, as rows of the table of this type."""
    schema = arrow_schema(declared)
    blobs = {name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB}
    arrays = [
        lance.blob_array(columns[field.name]) if field.name in blobs else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def key_columns(declared: NodeType | EdgeType) -> list[str]:
    """Return the columns before the properties: `id`, and for an edge `src` and `dst`."""
    return ["id", "src", "dst"] if isinstance(declared, EdgeType) else ["id"]


def declared_type(catalog: Catalog, key: str) -> NodeType | EdgeType:
    """Return the type that a table key (`node:T`, `edge:E`) names."""
    kind, _, name = key.partition(":")
    return catalog.nodes[name] if kind == "node" else catalog.edges[name]


def stage_rows(
    folder: GraphFolder, entry: TableEntry, rows: pa.Table, opened: lance.LanceDataset | None = None
) -> list[FragmentMetadata]:
    """Write rows to data files of the table that belong to no version yet. Raises RemoteError; as `open_table`."""
    return _staged(folder.dataset(entry.path), open_table(folder, entry) if opened is None else opened, rows)


def driver_message(error: Exception) -> str:
    """Return the message of the driver in one line, without positions in its own source."""
    return _SOURCE.sub("", str(error).partition("\n")[0])


def service_failure(place: str, error: Exception) -> RemoteError | None:
    """Return the failure of the service of a bucket, behind an error of the driver.

    None for any other, such as a missing file.

    Nothing is quoted but the status: a service may echo the request, with its signature.
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
    """Return the cells of each column: dates as days and times as milliseconds, also inside lists."""
    return {name: rows.column(name).cast(_raw(rows.column(name).type)).to_pylist() for name in rows.schema.names}


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(_raw(kind.value_type)) if pa.types.is_list(kind) else kind


class TableWriter:
    """Changes one table, version by version, from the version that the manifest names."""

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
        self._place = folder.dataset(entry.path)
        self.dataset = open_table(folder, entry) if opened is None else opened
        with _driver(self._place):
            self._found = self._expected = self.dataset.latest_version
        if self._found != entry.version:
            self.change(lance.LanceDataset.restore)

    def change(self, action: Callable[[lance.LanceDataset], Any]) -> None:
        """Run one change, which must make one version. Raises ConflictError `graph_conflict`; RemoteError.

        The new version is the one that the action returns, or else the newest.
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

    def stage(self, rows: pa.Table) -> list[FragmentMetadata]:
        """Stage rows as `stage_rows` does, for this table."""
        return _staged(self._place, self.dataset, rows)

    def exchange(
        self, staged: Sequence[FragmentMetadata], gone: Iterable[int] | None, kept: Sequence[int] = ()
    ) -> None:
        """Create a version in which the staged rows replace those at the addresses `gone` (None: all rows).

        Addresses refer to the manifest's version. The first staged rows get the row ids `kept`, which removed rows had; that
        takes two versions, because in one the driver looks through all row ids. Raises as `change`.
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

    def rewrite(self, action: Callable[[lance.LanceDataset], Any]) -> bool:
        """Run a change that leaves every row unchanged and makes several versions or none; return whether it made any.

        No other writer's version may be among them. Raises as `change`.
        """
        before = self._expected
        try:
            call_driver(self._path, partial(action, self.dataset))
        except RemoteError as error:
            # The driver refuses to rebase its rewrite on the change of another writer: a conflict, not a failure of the storage.
            if self._latest().version == before:
                raise
            raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is changing {self._place.uri}") from error
        latest = self._latest()
        for version in range(before + 1, latest.version + 1):
            if _operation_of(latest, version) not in _REWRITES:
                raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is changing {self._place.uri}")
        self.dataset, self._expected = latest, latest.version
        return latest.version > before

    def tidy(self) -> None:
        """Join the smallest fragments if there are many, so that later changes take as long as earlier ones.

        A fragment is joined again only until it has as many rows as the step says. Raises as `change`.
        """
        sizes = [part.physical_rows for part in self.dataset.get_fragments()]
        for rows in _TIDY_ROWS:
            if sum(size < rows for size in sizes) > _TIDY_FRAGMENTS:
                self.rewrite(partial(_join, rows=rows))
                return

    def finish(self, *, recount: bool, changed: Collection[str] | None = None) -> TableEntry:
        """Make the changes durable and describe the table; rows are counted only if they changed.

        `changed` are the columns with other values if every row kept its row id and none came or went, otherwise None.
        """
        base = self._base
        with _driver(self._place):
            made = range(self._found + 1, self._expected + 1)
            self._folder.settle(self._path, made_files(self._folder.store, self._path, base.version, made))
            rows = self.dataset.count_rows() if recount else self._rows
        found = _entry(self.dataset, self._path, rows=rows)
        if changed is None:
            return found
        return replace(found, members=base.members, changed={**base.changed, **dict.fromkeys(changed, found.version)})

    def _latest(self) -> lance.LanceDataset:
        with _driver(self._place):
            return lance.dataset(self._place.uri, storage_options=self._place.driver_options())


def _join(dataset: lance.LanceDataset, rows: int) -> None:
    """Join fragments with fewer rows; a fragment is not rewritten only because of deleted rows."""
    dataset.optimize.compact_files(target_rows_per_fragment=rows, materialize_deletions=False)


def _operation_of(dataset: lance.LanceDataset, version: int) -> str | None:
    """Return the driver's name of the operation that made a version."""
    try:
        transaction = dataset.read_transaction(version)
    except TypeError:
        # pylance 14.0.2 cannot read the transaction of a compaction that rewrote indexes.
        return "Rewrite"
    return None if transaction is None else type(transaction.operation).__name__


def _staged(place: DatasetLocation, dataset: lance.LanceDataset, rows: pa.Table) -> list[FragmentMetadata]:
    with _driver(place):
        written: list[FragmentMetadata] = write_fragments(
            rows, dataset, mode="append", storage_options=place.driver_options(), data_storage_version="2.2"
        )
        return written


def _commit(
    dataset: lance.LanceDataset,
    staged: Sequence[FragmentMetadata],
    gone: Iterable[int] | None,
    options: dict[str, str] | None,
) -> lance.LanceDataset:
    """Make one strict commit. A fragment that loses its last row is removed as a whole.

    The driver does not know that rows were rewritten, because it would let the indexes of all columns cover the new rows.
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


def _entry(dataset: lance.LanceDataset, path: str, *, rows: int) -> TableEntry:
    fields = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    return TableEntry(path, dataset.version, rows, fields, members=dataset.version)


@contextlib.contextmanager
def _driver(place: DatasetLocation) -> Iterator[None]:
    """Turn a failure of the driver into RemoteError `storage_failed`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        if (refused := service_failure(place.uri, error)) is not None:
            raise refused from None
        raise RemoteError(Code.STORAGE_FAILED, f"{place.uri}: {_reason(place, error)}") from error


def _reason(place: DatasetLocation, error: Exception) -> str:
    """Return the message of the driver.

    A service may echo the request, with its signature: its documents are left out.
    """
    text = driver_message(error)
    return text if place.options is None else text.partition("<")[0][:300]


_NEVER = timedelta(days=36_500)
_T = TypeVar("_T")


def open_latest(folder: GraphFolder, path: str) -> lance.LanceDataset:
    """Return the dataset at its newest version, which readers must not use. Raises RemoteError `storage_failed`."""
    place = folder.dataset(path)
    return call_driver(path, lambda: lance.dataset(place.uri, storage_options=place.driver_options()))


def dataset_versions(folder: GraphFolder, path: str) -> tuple[tuple[int, datetime], ...]:
    """Number and time of each version that can be opened, oldest first. Raises RemoteError `storage_failed`."""
    listed: list[Any] = list(call_driver(path, open_latest(folder, path).versions))
    # The driver gives naive local times.
    return tuple(sorted((each["version"], each["timestamp"].astimezone(UTC)) for each in listed))


def drop_versions(folder: GraphFolder, path: str, numbers: Sequence[int]) -> int:
    """Remove these versions, and the files that no other version has; the newest version always stays. Returns the bytes freed.

    Files that belong to no version may belong to a writer, and stay for seven days. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    listed = sorted(set(numbers) - {dataset.version})
    if not listed:
        return 0
    stats = call_driver(path, lambda: dataset.cleanup_old_versions(versions=listed, error_if_tagged_old_versions=False))
    return int(stats.bytes_removed)


def drop_left_files(folder: GraphFolder, path: str) -> int:
    """Remove files that belong to no version and are older than seven days: the files of crashed writers.

    No version is removed. Returns the bytes freed. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    return int(call_driver(path, lambda: dataset.cleanup_old_versions(older_than=_NEVER)).bytes_removed)


def data_files(folder: GraphFolder, path: str) -> set[str]:
    """Return the names of the data files of all versions. Raises RemoteError `storage_failed`."""
    dataset = open_latest(folder, path)
    found: set[str] = set()
    for number, _ in dataset_versions(folder, path):
        at = call_driver(path, partial(dataset.checkout_version, number))
        found |= {file.path for part in at.get_fragments() for file in part.metadata.files}
    return found


def kept_bytes(folder: GraphFolder, path: str, gone: Sequence[int]) -> int:
    """Return the approximate bytes of the data files that only these versions use, which `drop_versions` would free."""
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
    """Call the driver. Raises RemoteError `storage_failed` for its failures; the detail quotes nothing of a request."""
    try:
        return call()
    except DRIVER_ERRORS as error:
        if (refused := service_failure(f"table {path}", error)) is not None:
            raise refused from None
        reason = driver_message(error).partition("<")[0][:200]
        raise RemoteError(Code.STORAGE_FAILED, f"table {path}: {reason}", path=path) from error
