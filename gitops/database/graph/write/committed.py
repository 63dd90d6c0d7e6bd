"""The rows of one table at the version of a snapshot, found by what is touched."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.tables import DRIVER_ERRORS, arrow_field, open_table, raw_columns, service_failure
from gitops.database.graph.write.filters import MAX_PROBES, membership_filter
from gitops.database.language.schema import EdgeType, NodeType, PropType, Scalar

__all__ = ["ADDRESS", "CommittedTable"]

ADDRESS = "_rowaddr"
"""The column with the address of a row in this version, which `TableWriter.exchange` takes."""

_TEXT = PropType(Scalar.STRING)
_PROBES_AT_ONCE = 1024
Columns = dict[str, list[Any]]


@dataclass(slots=True)
class CommittedTable:
    """Reads one table at the entry's version, at which it may be `opened` already; else that waits for the first row."""

    folder: GraphFolder
    entry: TableEntry
    declared: NodeType | EdgeType
    opened: lance.LanceDataset | None = None

    def kind(self, column: str) -> PropType:
        """The type of a column, `id`, `src` and `dst` included."""
        return self.declared.properties.get(column, _TEXT)

    def open(self) -> None:
        """Open the table, if it has rows. Raises as `open_table`."""
        if self.opened is None and self.entry.rows:
            self.opened = open_table(self.folder, self.entry)

    def scan(self, columns: Sequence[str], where: Any = None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the driver's filter lets through, with their addresses, or so many of them.

        Raises RemoteError; as `open_table`.
        """
        if not self.entry.rows:
            return
        with self._reading() as dataset:
            yield from dataset.scanner(
                columns=list(columns), filter=where, with_row_address=True, limit=limit
            ).to_batches()

    def find(self, column: str, cells: Collection[Any], columns: Sequence[str]) -> Iterator[Columns]:
        """The rows whose column holds one of the cells, batch by batch as cells of columns, with their addresses."""
        if not cells or not self.entry.rows:
            return
        kind = self.kind(column)
        if len(cells) <= MAX_PROBES and membership_filter(column, kind, list(cells)[:1]) is not None:
            wanted = list(cells)
            for start in range(0, len(wanted), _PROBES_AT_ONCE):
                part = wanted[start : start + _PROBES_AT_ONCE]
                for batch in self.scan(columns, membership_filter(column, kind, part)):
                    yield raw_columns(batch)
            return
        for batch in self.scan(list(dict.fromkeys((*columns, column)))):
            found = _within(batch, column, kind, cells)
            if found.num_rows:
                yield raw_columns(found)

    def first_findable(self, group: Sequence[str], sample: Sequence[Any]) -> int:
        """The place of the first column of a group that the driver can look up, 0 if there is none; `sample` are its cells."""
        names = enumerate(zip(group, sample, strict=True))
        return next(
            (at for at, (name, cell) in names if membership_filter(name, self.kind(name), [cell]) is not None), 0
        )

    def addresses(self, ids: Collection[str]) -> dict[str, int]:
        """The addresses of the rows with these ids; absent ids are left out."""
        found: dict[str, int] = {}
        for columns in self.find("id", ids, ["id"]):
            found.update(zip(columns["id"], columns[ADDRESS], strict=True))
        return found

    def blobs(self, names: Sequence[str], addresses: Sequence[int]) -> Mapping[str, list[bytes | None]]:
        """The blobs of the rows at these addresses, in their order; a scan gives only their addresses."""
        if not addresses:
            return {name: [] for name in names}
        with self._reading() as dataset:
            return {
                name: [
                    None if file is None else file.readall()
                    for file in dataset.take_blobs(name, addresses=list(addresses))
                ]
                for name in names
            }

    @contextlib.contextmanager
    def _reading(self) -> Iterator[lance.LanceDataset]:
        if self.opened is None:
            self.opened = open_table(self.folder, self.entry)
        try:
            yield self.opened
        except DRIVER_ERRORS as error:
            place = self.folder.dataset(self.entry.path)
            if (refused := service_failure(place.uri, error)) is not None:
                raise refused from None
            raise RemoteError(Code.STORAGE_FAILED, f"{place.uri} is not readable") from error


def _within(batch: pa.RecordBatch, column: str, kind: PropType, cells: Collection[Any]) -> pa.RecordBatch:
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        wanted = {tuple(cell) for cell in cells}
        rows = raw_columns(batch.select([column]))[column]
        return batch.filter(pa.array([cell is not None and tuple(cell) in wanted for cell in rows], pa.bool_()))
    values = pa.array(list(cells), arrow_field(column, PropType(kind.scalar)).type)
    return batch.filter(pc.is_in(batch.column(column), values))
