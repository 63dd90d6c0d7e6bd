"""The rows in which two versions of a table differ, found without reading what the versions share.

1. Fragments that both versions have with the same files and the same deletions hold the same rows, and are not read.
2. Of fragments that differ in their deletions alone, only the rows that one version has and the other has not are candidates.
3. Candidates are read once, paired by id, in id order, and compared column by column. Compaction moves rows and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.graph.manifest import TableEntry
from gitops.graph.root import GraphFolder
from gitops.graph.tables import key_columns, open_table, raw_columns
from gitops.language.schema import EdgeType, NodeType, Scalar

__all__ = ["Row", "RowDelta", "TableVersion", "row_deltas"]

Row = Mapping[str, Any]
RowIds = np.ndarray[Any, Any]
_CHUNK = 4096
_ROW_ID = "_rowid"
_AT = "at"
_IDS = pa.schema([("id", pa.string()), (_AT, pa.int64())])


@dataclass(frozen=True, slots=True)
class RowDelta:
    """One row that differs: its cells before and after, None where there is no such row."""

    id: str
    before: Row | None
    after: Row | None

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that differ, by name; empty when a row came or went."""
        if self.before is None or self.after is None:
            return ()
        names = sorted(self.before.keys() | self.after.keys())
        return tuple(name for name in names if not _equal_values(self.before.get(name), self.after.get(name)))


class TableVersion:
    """One of the two versions of a table; without an entry it is empty."""

    def __init__(self, folder: GraphFolder, entry: TableEntry | None, declared: NodeType | EdgeType | None) -> None:
        """Open the table. Raises as `open_table`."""
        self.entry = entry
        self._loaded: pa.Table | None = None
        self._dataset = None if entry is None or not entry.rows else open_table(folder, entry)
        kinds = {} if declared is None else declared.properties
        heads = ["id"] if declared is None else key_columns(declared)
        self.blobs = [name for name, kind in kinds.items() if kind.scalar is Scalar.BLOB]
        self._plain = [*heads, *(name for name in kinds if name not in self.blobs)]

    def fragments(self) -> dict[int, Any]:
        """The fragments by id."""
        if self._dataset is None:
            return {}
        return {fragment.fragment_id: fragment for fragment in self._dataset.get_fragments()}

    def addresses(self, fragment: Any) -> pa.Table:
        """Id of the driver and address of each row of a fragment."""
        return self._scan([], fragments=[fragment], with_row_id=True, with_row_address=True)

    def load(self, fragments: Sequence[Any], row_ids: RowIds) -> pa.Table:
        """Read all rows of these fragments, and the rows with these ids of the driver; gives their ids, in id order."""
        parts = []
        if fragments:
            parts.append(self._scan(self._plain, fragments=list(fragments), with_row_id=True))
        for start in range(0, len(row_ids), _CHUNK):
            listed = ",".join(map(str, row_ids[start : start + _CHUNK].tolist()))
            parts.append(self._scan(self._plain, filter=f"_rowid in ({listed})", with_row_id=True))
        if not parts:
            return _IDS.empty_table()
        self._loaded = pa.concat_tables(parts).combine_chunks()
        places = np.arange(self._loaded.num_rows, dtype=np.int64)
        return pa.table({"id": self._loaded.column("id"), _AT: places}, _IDS).sort_by("id")

    def plain(self, ids: pa.Table) -> pa.Table:
        """The columns of rows that were read, but for blobs, in the order given."""
        if not ids.num_rows or self._loaded is None:
            return pa.table({"id": pa.array([], pa.string()), _ROW_ID: pa.array([], pa.uint64())})
        return self._loaded.take(ids.column(_AT))

    def rows(self, plain: pa.Table) -> dict[str, dict[str, Any]]:
        """The cells of rows, by id, of which the plain columns are given."""
        if not plain.num_rows:
            return {}
        cells = raw_columns(plain)
        row_ids = cells.pop(_ROW_ID)
        for name in self.blobs:
            cells[name] = self._read_blobs(name, row_ids)
        rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
        return {row["id"]: row for row in rows}

    def _scan(self, columns: Sequence[str], **options: Any) -> pa.Table:
        dataset = self._require_dataset()
        try:
            return dataset.scanner(columns=list(columns), **options).to_table()
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            raise self._failed() from error

    def _read_blobs(self, name: str, row_ids: list[int]) -> list[bytes | None]:
        try:
            files = self._require_dataset().take_blobs(name, ids=row_ids)
            return [None if file is None else file.readall() for file in files]
        except (OSError, ValueError, RuntimeError) as error:
            raise self._failed() from error

    def _require_dataset(self) -> lance.LanceDataset:
        if self._dataset is None:
            raise GitopsError(Code.INTERNAL_ERROR, "this is a bug: an empty table is read")
        return self._dataset

    def _failed(self) -> RemoteError:
        return RemoteError(Code.STORAGE_FAILED, f"table {self.entry.path if self.entry else ''} is not readable")


def row_deltas(before: TableVersion, after: TableVersion) -> Iterator[RowDelta]:
    """The rows that differ, in the order of their ids. Raises as `open_table`; RemoteError `storage_failed`."""
    if before.entry == after.entry:
        return
    left, right = _candidates(before, after)
    for old, new in _cut_together(left, right):
        yield from _compare(before, after, old, new)


def _candidates(before: TableVersion, after: TableVersion) -> tuple[pa.Table, pa.Table]:
    """The ids of the rows on each side that the other side may not have like that."""
    old, new = before.fragments(), after.fragments()
    one, other = before.entry, after.entry
    alike = one is not None and other is not None and (one.path, one.fields) == (other.path, other.fields)
    shared = {at for at in old.keys() & new.keys() if alike and _files(old[at]) == _files(new[at])}
    only_old: list[RowIds] = []
    only_new: list[RowIds] = []
    for at in sorted(shared):
        if old[at].metadata.deletion_file != new[at].metadata.deletion_file:
            gone, come = _unshared_rows(before.addresses(old[at]), after.addresses(new[at]))
            only_old.append(gone)
            only_new.append(come)
    left = before.load([old[at] for at in sorted(old.keys() - shared)], _concatenate(only_old))
    right = after.load([new[at] for at in sorted(new.keys() - shared)], _concatenate(only_new))
    return left, right


def _unshared_rows(old: pa.Table, new: pa.Table) -> tuple[RowIds, RowIds]:
    """The driver's ids of the rows at addresses that the other table has not."""
    at_old, at_new = old.column("_rowaddr").to_numpy(), new.column("_rowaddr").to_numpy()
    ids_old, ids_new = old.column(_ROW_ID).to_numpy(), new.column(_ROW_ID).to_numpy()
    return ids_old[~np.isin(at_old, at_new)], ids_new[~np.isin(at_new, at_old)]


def _cut_together(left: pa.Table, right: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Both sides cut at the same ids, so that rows of one id come together."""
    at_left = at_right = 0
    while at_left < left.num_rows or at_right < right.num_rows:
        part, other = left.slice(at_left, _CHUNK), right.slice(at_right, _CHUNK)
        last = [table.column("id")[-1].as_py().encode() for table in (part, other) if table.num_rows == _CHUNK]
        if last:
            cut = pa.scalar(min(last).decode())
            part, other = (table.filter(pc.less_equal(table.column("id"), cut)) for table in (part, other))
        at_left, at_right = at_left + part.num_rows, at_right + other.num_rows
        yield part, other


def _compare(before: TableVersion, after: TableVersion, old: pa.Table, new: pa.Table) -> Iterator[RowDelta]:
    """The rows of one cut that differ. What the columns show to be alike is not looked at cell by cell."""
    plain_old, plain_new = before.plain(old), after.plain(new)
    if not before.blobs and not after.blobs and plain_old.schema.names == plain_new.schema.names:
        alike = _equal_rows(plain_old, plain_new)
        plain_old, plain_new = (
            table.filter(pc.invert(pc.is_in(table.column("id"), alike))) for table in (plain_old, plain_new)
        )
    rows_old, rows_new = before.rows(plain_old), after.rows(plain_new)
    for row_id in sorted(rows_old.keys() | rows_new.keys()):
        delta = RowDelta(row_id, rows_old.get(row_id), rows_new.get(row_id))
        if delta.before is None or delta.after is None or delta.fields:
            yield delta


def _equal_rows(old: pa.Table, new: pa.Table) -> pa.Array:
    """The ids of rows on both sides of which every column is surely the same."""
    common_old = old.filter(pc.is_in(old.column("id"), new.column("id").combine_chunks()))
    at = pc.index_in(common_old.column("id"), new.column("id").combine_chunks())
    common_new = new.take(at)
    alike = pa.array(np.ones(common_old.num_rows, bool))
    for name in common_old.schema.names:
        if name == _ROW_ID:
            continue
        alike = pc.and_(alike, _equal_cells(common_old.column(name), common_new.column(name)))
    return common_old.column("id").combine_chunks().filter(alike)


def _equal_cells(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.Array:
    if one.equals(other):
        return pa.array(np.ones(len(one), bool))
    if pa.types.is_nested(one.type) or pa.types.is_floating(one.type) or one.type != other.type:
        return pa.array(np.zeros(len(one), bool))
    equal = pc.fill_null(pc.equal(one, other), fill_value=False)
    return pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other))).combine_chunks()


def _equal_values(one: Any, other: Any) -> bool:
    """Equal, where NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal_values, one, other))
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - only NaN differs from itself


def _files(fragment: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(file.path, tuple(file.fields)) for file in fragment.metadata.files]


def _concatenate(parts: list[RowIds]) -> RowIds:
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
