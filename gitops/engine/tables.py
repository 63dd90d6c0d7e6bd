"""One Lance dataset per type: its columns, and changes to it that become visible only through a manifest.

Rules of this module:

1. A writer starts from the version that the manifest names. If the dataset is ahead of it, a writer died or is racing:
   its versions are undone by restoring the named one.
2. Every change must give exactly the next version. Lance rebases silently; another number means that another writer came
   in between, and the change is abandoned.
3. Lance syncs nothing to disk. `finish` syncs what the changes wrote, before any manifest may name it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.engine.manifest import TableEntry
from gitops.lang.schema import EdgeType, NodeType, PropType, Scalar

__all__ = ["TableWriter", "arrow_field", "arrow_schema", "arrow_table", "create_table", "open_table", "raw_columns"]

_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
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
    """The column of a property. Items of lists and vectors are nullable physically, whatever the property says."""
    if kind.scalar is Scalar.BLOB:
        return lance.blob_field(name, nullable=kind.nullable)
    vector = kind.scalar is Scalar.VECTOR
    base = pa.list_(pa.field("item", pa.float32()), kind.dimension) if vector else _ARROW[kind.scalar]
    if kind.is_list:
        base = pa.list_(pa.field("item", base))
    return pa.field(name, base, nullable=kind.nullable)


def arrow_schema(declared: NodeType | EdgeType) -> pa.Schema:
    """The columns of a table: `id` (the unenforced key), for an edge `src` and `dst`, then the properties in name order."""
    fields = [pa.field("id", pa.string(), nullable=False, metadata=_PRIMARY_KEY)]
    if isinstance(declared, EdgeType):
        fields += [pa.field(end, pa.string(), nullable=False) for end in ("src", "dst")]
    return pa.schema(fields + [arrow_field(name, kind) for name, kind in declared.properties.items()])


def create_table(root: Path, path: str, schema: pa.Schema) -> TableEntry:
    """Make an empty table at a path that was never used. Raises RemoteError `storage_failed`."""
    folder = root / path
    try:
        folder.parent.mkdir(exist_ok=True)
        dataset = lance.write_dataset(
            schema.empty_table(),
            str(folder),
            mode="create",
            enable_stable_row_ids=True,
            data_storage_version="2.2",
        )
        _sync_new(folder, frozenset())
        _sync(folder.parent)
        _sync(root)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        raise RemoteError("storage_failed", f"{folder}: {error}") from error
    return _entry(dataset, path, rows=0)


def open_table(root: Path, entry: TableEntry) -> lance.LanceDataset:
    """The table at the version that the manifest names. Raises GitopsError `graph_unreadable`."""
    try:
        return lance.dataset(str(root / entry.path), version=entry.version)
    except (OSError, ValueError, RuntimeError) as error:
        detail = f"table {entry.path} does not open at version {entry.version}: {error}"
        raise GitopsError("graph_unreadable", detail, path=str(root)) from error


def arrow_table(declared: NodeType | EdgeType, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Cells, column by column, as rows of the table of this type."""
    schema = arrow_schema(declared)
    blobs = {name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB}
    arrays = [
        lance.blob_array(columns[field.name]) if field.name in blobs else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def raw_columns(rows: pa.Table | pa.RecordBatch) -> dict[str, list[Any]]:
    """The cells of each column: dates as days and times as milliseconds, also inside lists."""
    return {name: rows.column(name).cast(_raw(rows.column(name).type)).to_pylist() for name in rows.schema.names}


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(_raw(kind.value_type)) if pa.types.is_list(kind) else kind


class TableWriter:
    """Changes one table, version by version, from the one that the manifest names."""

    def __init__(self, root: Path, entry: TableEntry) -> None:
        """Open the table and undo what lies beyond the entry's version.

        Raises ConflictError `graph_conflict` when another writer is at work, GitopsError `graph_unreadable` when the
        named version is gone.
        """
        self._root = root
        self._path = entry.path
        self._rows = entry.rows
        self._folder = root / entry.path
        self._before = _files(self._folder)
        self._dataset = open_table(root, entry)
        if self._dataset.latest_version != entry.version:
            self._expected = self._dataset.latest_version
            self.change(lance.LanceDataset.restore)
        self._expected = self._dataset.version

    @property
    def dataset(self) -> lance.LanceDataset:
        """The table as changed so far."""
        return self._dataset

    def change(self, action: Callable[[lance.LanceDataset], Any]) -> None:
        """Run one change, which must make one version. Raises ConflictError `graph_conflict`; RemoteError."""
        failure: Exception | None = None
        try:
            action(self._dataset)
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            failure = error
        latest = self._latest()
        if failure is not None and latest.version == self._expected:
            raise RemoteError("storage_failed", f"{self._folder}: {failure}") from failure
        if failure is not None or latest.version != self._expected + 1:
            raise ConflictError("graph_conflict", f"another writer changes {self._folder}") from failure
        self._dataset, self._expected = latest, latest.version

    def finish(self, *, recount: bool) -> TableEntry:
        """Make the changes durable and describe the table; rows are counted only if they changed."""
        try:
            _sync_new(self._folder, self._before)
            rows = self._dataset.count_rows() if recount else self._rows
        except (OSError, ValueError, RuntimeError) as error:
            raise RemoteError("storage_failed", f"{self._folder}: {error}") from error
        return _entry(self._dataset, self._path, rows=rows)

    def _latest(self) -> lance.LanceDataset:
        try:
            return lance.dataset(str(self._folder))
        except (OSError, ValueError, RuntimeError) as error:
            raise RemoteError("storage_failed", f"{self._folder}: {error}") from error


def _entry(dataset: lance.LanceDataset, path: str, *, rows: int) -> TableEntry:
    fields = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    return TableEntry(path, dataset.version, rows, fields)


def _files(folder: Path) -> frozenset[str]:
    return frozenset(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)  # noqa: PTH118


def _sync_new(folder: Path, before: frozenset[str]) -> None:
    """Sync the files that are not in `before`, and every folder. What vanishes meanwhile is another writer's scratch file."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(place, name)  # noqa: PTH118
            if file not in before:
                with contextlib.suppress(FileNotFoundError):
                    _sync(file)
        _sync(place)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
