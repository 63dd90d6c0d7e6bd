"""In-memory indexes for the tables that a process writes, so that rows are found without reading the tables.

Rules of this module:

1. An index only proposes places where a row may be. The caller reads each place and compares the row again. Without an
   index, it filters the table. So an index can be dropped at any time.
2. An index is for one column (by field id) and covers data files, whose rows never change. It contains every row of a
   covered file, including rows that some version has removed. A file has a unique name, and its number in the table is
   looked up in the version that is read. So one index serves all versions and branches of a table, as well as restored
   or copied tables.
3. A version is searched only after all of its files are covered. The writer covers its own files with the rows that it
   wrote; other files, such as those from a compaction or another process, are read once.
4. The third search in a column builds an index, because a process that changes only one row does not need one.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import lance
import numpy as np
import pyarrow as pa

from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.write.keys import hash_texts
from gitops.database.graph.write.queue import MutationQueue

_MAX_BYTES = 2**28
_ROW_BYTES = 16
_FRESH_BYTES = 160
_FEW_ROWS = 8192
_MAX_FRESH = 65_536
_MAX_FILES = 4096
_SEARCHES = 3

Files = Mapping[str, Any]
"""A version's fragments, by the name of their first file."""


class WriterMemory:
    """Thread-safe memory, with a size limit, for all tables that a process writes.

    The table that was written least recently is dropped first. `heads` caches the newest versions and schemas. If it
    holds a table for readers, it also gets newly written versions. The process's mutation queues are also here.
    """

    def __init__(self, heads: ReadCache | None = None, max_bytes: int = _MAX_BYTES) -> None:
        self.heads = ReadCache(max_bytes=2**20) if heads is None else heads
        self._max = max_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], TableMemory] = OrderedDict()
        self._queues: WeakValueDictionary[tuple[str, str], MutationQueue] = WeakValueDictionary()

    def queue(self, location: str, branch: str) -> MutationQueue:
        """Return a branch's mutation queue, which is dropped after its last use."""
        with self._lock:
            found = self._queues.get((location, branch))
            if found is None:
                found = self._queues[location, branch] = MutationQueue()
            return found

    def table(self, location: str, path: str) -> TableMemory:
        """Return the memory for a table in the graph at a location."""
        with self._lock:
            found = self._tables.get((location, path))
            if found is None:
                found = self._tables[location, path] = TableMemory(self._max)
            self._tables.move_to_end((location, path))
            total = sum(table.nbytes for table in self._tables.values())
            while total > self._max and len(self._tables) > 1:
                total -= self._tables.popitem(last=False)[1].nbytes
            return found


class TableMemory:
    """One table's indexes, by field id."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._lock = threading.Lock()
        self._indexes: dict[int, _ColumnIndex] = {}
        self._searches = Counter[int]()

    @property
    def nbytes(self) -> int:
        """The approximate memory usage of the indexes, in bytes."""
        return sum(index.nbytes for index in list(self._indexes.values()))

    def places(
        self, dataset: lance.LanceDataset, files: Files, field: int, column: str, cells: Collection[Any]
    ) -> list[int] | None:
        """Return the addresses where a version's column may have one of the cells, or None without an index.

        `files` are the version's files. Raises the driver's errors.
        """
        with self._lock:
            self._searches[field] += 1
            index = self._indexes.get(field)
            if index is None:
                rows = sum(each.physical_rows for each in files.values())
                if self._searches[field] < _SEARCHES or rows * _ROW_BYTES > self._max:
                    return None
                index = _ColumnIndex()
            index.cover(dataset, column, files)
            self._indexes[field] = index
            if index.nbytes > self._max:
                del self._indexes[field]
            return index.find(cells, files)

    def wrote(self, file: str, fields: Mapping[str, int], rows: Sequence[Mapping[str, Any]]) -> None:
        """Cover a new data file with its rows, even if the file will not belong to a version."""
        names = {number: name for name, number in fields.items()}
        with self._lock:
            for field, index in self._indexes.items():
                if field in names:
                    index.add(file, [row[names[field]] for row in rows])


class _ColumnIndex:
    """Places of cells by hash: sorted arrays for most rows, and a dictionary for recent rows.

    A place is a covered file's number and a row number in that file.
    """

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._next = 0
        self._hashes = np.empty(0, np.int64)
        self._places = np.empty(0, np.uint64)
        self._fresh: defaultdict[int, list[int]] = defaultdict(list)
        self._fresh_rows = 0

    @property
    def nbytes(self) -> int:
        return int(self._hashes.nbytes + self._places.nbytes) + _FRESH_BYTES * self._fresh_rows

    def cover(self, dataset: lance.LanceDataset, column: str, files: Files) -> None:
        """Read the column of the files of a version that are not covered."""
        hashes, places, large = [self._hashes], [self._places], dict[str, int]()
        for name in files.keys() - self._files.keys():
            # Include removed rows, so that row numbers match the file.
            scanner = dataset.scanner(
                columns=[column], fragments=[files[name]], with_row_id=True, include_deleted_rows=True
            )
            if files[name].physical_rows <= _FEW_ROWS:
                self.add(name, [cell for each in scanner.to_batches() for cell in raw_columns(each)[column]])
                continue
            at = self._next << 32
            for batch in scanner.to_batches():
                cells = batch.column(column)
                valid = cells.drop_null()
                hashes.append(
                    _hashes(valid if pa.types.is_string(valid.type) else raw_columns(pa.table({column: valid}))[column])
                )
                places.append(np.flatnonzero(cells.is_valid()).astype(np.uint64) + np.uint64(at))
                at += batch.num_rows
            large[name] = self._next
            self._next += 1
        # Only now: if reading failed, their rows would be missing.
        self._files.update(large)
        many = len(self._files) > _MAX_FILES + 2 * len(files)
        if len(hashes) > 1 or self._fresh_rows > _MAX_FRESH or many:
            # Other versions and branches have other files, so these stay unless there are too many.
            self._fold(hashes, places, files if many else self._files)

    def add(self, file: str, cells: Sequence[Any]) -> None:
        """Cover a file with its cells."""
        at = self._next << 32
        rows = [row for row, cell in enumerate(cells) if cell is not None]
        for row, found in zip(rows, _hashes([cells[row] for row in rows]).tolist(), strict=True):
            self._fresh[found].append(at + row)
        self._fresh_rows += len(cells)
        self._files[file] = self._next
        self._next += 1

    def find(self, cells: Collection[Any], files: Files) -> list[int]:
        """Return the addresses of a version's rows that may have one of the cells; the version's files must be covered."""
        wanted = _hashes(cells)
        starts, ends = (np.searchsorted(self._hashes, wanted, side) for side in ("left", "right"))
        found = [place for each in set(wanted.tolist()) for place in self._fresh.get(each, ())]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            found += self._places[start:end].tolist()
        numbers = {self._files[name]: each.fragment_id for name, each in files.items()}
        return sorted({numbers[at >> 32] << 32 | at & 0xFFFFFFFF for at in found if at >> 32 in numbers})

    def _fold(self, hashes: list[Any], places: list[Any], names: Collection[str]) -> None:
        """Sort all rows of the files with these names into the arrays, and forget the others."""
        files = {name: slot for name, slot in self._files.items() if name in names}
        fresh = [(each, place) for each, found in self._fresh.items() for place in found]
        hashes.append(np.array([each for each, _ in fresh], np.int64))
        places.append(np.array([place for _, place in fresh], np.uint64))
        every_hash, every_place = np.concatenate(hashes), np.concatenate(places)
        kept = np.isin(every_place >> np.uint64(32), list(files.values()))
        every_hash, every_place = every_hash[kept], every_place[kept]
        order = np.argsort(every_hash, kind="stable")
        self._files, self._hashes, self._places = files, every_hash[order], every_place[order]
        self._fresh, self._fresh_rows = defaultdict(list), 0


def _hash(cell: Any) -> int:
    """Hash a cell; equal cells have equal hashes, even numbers of different types."""
    return hash(tuple(cell) if isinstance(cell, list) else cell)


def _hashes(cells: Collection[Any] | pa.Array) -> np.ndarray[Any, Any]:
    """Hash cells, or a column of texts without nulls. Texts are hashed together, other cells one by one."""
    if isinstance(cells, pa.Array):
        return hash_texts(cells.cast(pa.large_binary())).view(np.int64)
    texts = [cell.encode("utf-8", "surrogatepass") for cell in cells if isinstance(cell, str)]
    if not texts:
        return np.fromiter(map(_hash, cells), np.int64)
    hashed = hash_texts(pa.array(texts, pa.large_binary())).view(np.int64)
    if len(texts) == len(cells):
        return hashed
    of_texts = iter(hashed.tolist())
    return np.fromiter((next(of_texts) if isinstance(cell, str) else _hash(cell) for cell in cells), np.int64)
