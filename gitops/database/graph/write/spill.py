"""Keys of more rows than memory holds: kept apart by key, so that what may clash is looked at together, part by part.

This is the partitioning half of a grace hash join: two spills that are filled with the same keys have them in the same parts.
Up to 65,536 rows stay in memory; more are written to an unnamed file, so nothing is left behind if the process is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

__all__ = ["PARTS", "AddressSet", "BitSet", "Spill"]

PARTS = 64
CHUNK = 1 << 16
"""So many rows of a spill wait in memory."""

_SCHEMA = pa.schema([("key", pa.large_string()), ("record", pa.int64()), ("other", pa.int64())])
Rows = list[tuple[str, int, int]]


class Spill:
    """Rows of a key and two numbers, whose meaning the caller defines."""

    def __init__(self) -> None:
        """Empty."""
        self._pending: Rows = []
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._parts: list[Rows] | None = None
        self.rows = 0

    def add(self, key: str, record: int, other: int = 0) -> None:
        """Put one row. Not after the first call of `part`."""
        self._pending.append((key, record, other))
        self.rows += 1
        if len(self._pending) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Put what waits in memory into the file."""
        if not self._pending:
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self._writer = pa.ipc.new_file(self._file, _SCHEMA)
        for rows in _apart(self._pending):
            columns = zip(*rows, strict=True) if rows else ((), (), ())
            arrays = [pa.array(column, each.type) for column, each in zip(columns, _SCHEMA, strict=True)]
            self._writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
        self._pending = []

    def part(self, number: int) -> Iterator[tuple[str, int, int]]:
        """The rows of a part, from 0 to 63, in the order of their coming.

        They are read batch by batch: all edges of one node have one key, and so are in one part, however many there are.
        """
        if self._parts is None:
            self._parts = _apart(self._pending)
            self._pending = []
            if self._writer is not None and self._file is not None:
                self._writer.close()
                self._file.seek(0)
                self._reader = pa.ipc.open_file(self._file)
        if self._reader is not None:
            for at in range(number, self._reader.num_record_batches, PARTS):
                batch = self._reader.get_batch(at)
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield from self._parts[number]

    def keys(self) -> Iterator[str]:
        """The keys of all rows, part by part."""
        for number in range(PARTS):
            for key, _, _ in self.part(number):
                yield key

    def close(self) -> None:
        """Close the file, which removes it."""
        self._reader = self._writer = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _apart(rows: Rows) -> list[Rows]:
    parts: list[Rows] = [[] for _ in range(PARTS)]
    for row in rows:
        parts[hash(row[0]) % PARTS].append(row)
    return parts


class BitSet:
    """A set of small numbers, one bit each."""

    def __init__(self) -> None:
        """Empty."""
        self._bits = bytearray()
        self._count = 0

    def add(self, number: int) -> None:
        """Put a number."""
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._bits):
            self._bits.extend(bytes(max(at + 1 - len(self._bits), len(self._bits))))
        if not self._bits[at] & bit:
            self._bits[at] |= bit
            self._count += 1

    def __contains__(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] & 1 << (number & 7))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for at, byte in enumerate(self._bits):
            if byte:
                yield from (at << 3 | bit for bit in range(8) if byte & 1 << bit)


class AddressSet:
    """A set of row addresses: a fragment in the upper 32 bits, a place in it in the lower ones."""

    def __init__(self) -> None:
        """Empty."""
        self._fragments: dict[int, BitSet] = {}

    def add(self, address: int) -> None:
        """Put an address."""
        self._fragments.setdefault(address >> 32, BitSet()).add(address & 0xFFFFFFFF)

    def __contains__(self, address: int) -> bool:
        found = self._fragments.get(address >> 32)
        return found is not None and (address & 0xFFFFFFFF) in found

    def __len__(self) -> int:
        return sum(map(len, self._fragments.values()))

    def __iter__(self) -> Iterator[int]:
        for fragment, offsets in self._fragments.items():
            yield from (fragment << 32 | offset for offset in offsets)
