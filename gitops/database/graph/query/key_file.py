"""Key files: a node type's rows by key, in a cache file that is read without Arrow, numpy or Lance.

A file is trusted by the rules of `cached_files`. Its header identifies the table version from which it was made by the
digest of that version's file, so it is never stale. After a change, it counts as absent. There is at most one file per
table and branch, and writing it removes the previous version's values.

    magic, length and checksum of the header
    header: JSON
    checksums: one per page
    pages: all key hashes in ascending order, then each column's cells in the same order

Only pages that a lookup touches are read, and each is checked. Hashes only narrow a search: the caller compares the key.

A column has the parts `valid` (a byte per cell) and, by its type: fixed-width numbers; strings as offsets and bytes;
lists as offsets and their items' parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass
from gitops.database.graph.query.cached_files import CachedFiles
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.values import key_text
from gitops.database.language.schema import PropType, Scalar

MAX_BYTES = 64 * 2**20
FORMATS: Mapping[Scalar, str] = {
    Scalar.BOOL: "?",
    Scalar.I32: "i",
    Scalar.I64: "q",
    Scalar.U32: "I",
    Scalar.U64: "Q",
    Scalar.F32: "f",
    Scalar.F64: "d",
    Scalar.DATE: "i",
    Scalar.DATETIME: "q",
}
"""How a cell of a fixed width is stored, as in `struct`, in little-endian order. Blobs and vectors are not stored."""

UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
)
"""What reading a file raises that differs from what was written."""

_FOLDER_BYTES = 2**30
_MAGIC = b"GITOPS-KEYS-1\n"
_HEAD = struct.Struct("<II")
_PAGE = 16_384
_OFFSET, _HASH, _CHECK = "I", "Q", 4
_MAX_HEADER = 2**20


class DamagedError(ValueError):
    """A file that differs from the written content."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column's type, and each of its parts' position and length in the pages."""

    scalar: Scalar
    is_list: bool
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KeyFileHeader:
    """A file's description: graph version `n`, the table version from which it was made, the key, rows and columns.

    `table` is the digest of the table version's file. A file without columns only notes that a row was read by its key;
    `too_large` means that the rows do not fit in a file.
    """

    name: str
    n: int
    table: str
    key: str
    rows: int = 0
    columns: Mapping[str, StoredColumn] | None = None
    too_large: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        columns = None
        if self.columns is not None:
            columns = {name: [each.scalar.value, each.is_list, each.parts] for name, each in self.columns.items()}
        about = {"name": self.name, "n": self.n, "table": self.table, "key": self.key, "rows": self.rows}
        return {**about, "columns": columns, "too_large": self.too_large}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> KeyFileHeader:
        """Parse the stored form. Raises one of `UNREADABLE` for anything else."""
        columns = form["columns"] and {
            name: StoredColumn(Scalar(scalar), is_list, tuple((at, size) for at, size in parts))
            for name, (scalar, is_list, parts) in form["columns"].items()
        }
        return cls(form["name"], form["n"], form["table"], form["key"], form["rows"], columns, form["too_large"])


class KeyFile:
    """An opened key file. Every method raises one of the `UNREADABLE` errors if the data that it reads is damaged."""

    def __init__(self, handle: int, size: int) -> None:
        """Read the header of an opened file of `size` bytes."""
        self._handle = handle
        length, check = _HEAD.unpack(self._bytes(len(_MAGIC), _HEAD.size))
        if self._bytes(0, len(_MAGIC)) != _MAGIC or length > _MAX_HEADER:
            raise DamagedError("magic")
        start = len(_MAGIC) + _HEAD.size
        text = self._bytes(start, length)
        if zlib.crc32(text) != check:
            raise DamagedError("header")
        form = json.loads(text)
        self.header = KeyFileHeader.from_json(form["about"])
        self._size: int = form["bytes"]
        pages = -(-self._size // _PAGE)
        self._checks = self._bytes(start + length, pages * _CHECK)
        self._start = start + length + len(self._checks)
        if zlib.crc32(self._checks) != form["checks"] or size != self._start + self._size:
            raise DamagedError("length")
        self._pages: dict[int, bytes] = {}

    def find(self, key: str, kind: PropType, cell: Any) -> int | None:
        """Return the position of the row with this cell in column `key`, of type `kind`, or None if there is none."""
        wanted, low, high = key_hash(cell, kind), 0, self.header.rows
        while low < high:
            middle = (low + high) // 2
            if self._number(_HASH, 0, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        while low < self.header.rows and self._number(_HASH, 0, low) == wanted:
            if self.cell(key, low) == cell:
                return low
            low += 1
        return None

    def cell(self, name: str, row: int) -> Any:
        """Return a column's cell in a row, in the form of `gitops.database.graph.values`."""
        column = (self.header.columns or {})[name]
        starts = iter([start for start, _ in column.parts])
        valid = next(starts)
        if not self._part(valid + row, 1)[0]:
            return None
        if not column.is_list:
            return self._cells(column.scalar, starts, row, row + 1)[0]
        first, last = self._range(next(starts), row)
        present = self._part(next(starts) + first, last - first)
        cells = self._cells(column.scalar, starts, first, last)
        return [cell if there else None for cell, there in zip(cells, present, strict=True)]

    def _cells(self, scalar: Scalar, starts: Iterator[int], first: int, last: int) -> list[Any]:
        """Return the cells from `first` to before `last`, of parts that begin at `starts`."""
        start = next(starts)
        if scalar is not Scalar.STRING:
            form = f"<{last - first}{FORMATS[scalar]}"
            width = struct.calcsize(f"<{FORMATS[scalar]}")
            return list(struct.unpack(form, self._part(start + first * width, (last - first) * width)))
        texts = next(starts)
        bounds = (self._range(start, at) for at in range(first, last))
        return [self._part(texts + begin, end - begin).decode() for begin, end in bounds]

    def _range(self, start: int, at: int) -> tuple[int, int]:
        first, last = self._number(_OFFSET, start, at), self._number(_OFFSET, start, at + 1)
        if first > last:
            raise DamagedError("offsets")
        return first, last

    def _number(self, form: str, start: int, at: int) -> int:
        width = struct.calcsize(f"<{form}")
        found: int = struct.unpack(f"<{form}", self._part(start + at * width, width))[0]
        return found

    def _part(self, start: int, size: int) -> bytes:
        """Return bytes of the pages, after checking the pages that they are in."""
        first, last = start // _PAGE, (start + size - 1) // _PAGE
        if start < 0 or start + size > self._size:
            raise DamagedError("range")
        if first == last:
            within = start - first * _PAGE
            return self._page(first)[within : within + size]
        found = b"".join(self._page(number) for number in range(first, last + 1))
        return found[start - first * _PAGE :][:size]

    @property
    def bytes_read(self) -> int:
        """Total size of the pages that were read."""
        return sum(map(len, self._pages.values()))

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            start = number * _PAGE
            page = self._bytes(self._start + start, min(_PAGE, self._size - start))
            if zlib.crc32(page) != int.from_bytes(self._checks[number * _CHECK :][:_CHECK], "little"):
                raise DamagedError("page")
            self._pages[number] = page
        return self._pages[number]

    def _bytes(self, start: int, size: int) -> bytes:
        found = os.pread(self._handle, size, start)
        if len(found) != size:
            raise DamagedError("cut short")
        return found


class KeyFolder:
    """Key files in the `keys` folder below a cache directory."""

    def __init__(self, cache_dir: Path) -> None:
        self._files = CachedFiles(cache_dir / "keys", _FOLDER_BYTES)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[KeyFile | None]:
        """Yield the file with this name, or None if no trustworthy one exists."""
        with contextlib.ExitStack() as stack:
            found = None
            with contextlib.suppress(*UNREADABLE):
                opened = stack.enter_context(self._files.open(name))
                found = None if opened is None else KeyFile(*opened)
            yield found if found is not None and found.header.name == name else None

    def header(self, name: str) -> KeyFileHeader | None:
        """Return the header of the file with this name, or None if no trustworthy file exists."""
        with self.open(name) as found:
            return None if found is None else found.header

    def mark_used(self, name: str) -> None:
        """Move a file to the end of the removal order."""
        with contextlib.suppress(OSError):
            self._files.mark_used(name)

    def remove(self, name: str) -> None:
        """Remove a damaged file."""
        with contextlib.suppress(OSError):
            self._files.remove(name)

    def write(self, header: KeyFileHeader, body: bytes = b"") -> None:
        """Replace a file. Failures are ignored."""
        pages = [body[start : start + _PAGE] for start in range(0, len(body), _PAGE)]
        checks = b"".join(zlib.crc32(page).to_bytes(_CHECK, "little") for page in pages)
        form = {"about": header.to_json(), "bytes": len(body), "checks": zlib.crc32(checks)}
        text = json.dumps(form, sort_keys=True).encode()

        def write(file: BinaryIO) -> None:
            file.write(_MAGIC + _HEAD.pack(len(text), zlib.crc32(text)) + text + checks)
            file.write(body)

        self._files.write(header.name, len(text) + len(checks) + len(body), write)


def key_file_name(snapshot: Snapshot, key: str) -> str:
    """Return the name of the key file for a table, such as `node:Person`, on the snapshot's branch."""
    entry = snapshot.manifest.tables[key]
    graph_id, endpoint, uri, path = snapshot.table_place(entry)
    return f"{canonical_digest([graph_id, endpoint, uri.removesuffix(path), snapshot.line.id, key])}.keys"


def key_hash(cell: Any, kind: PropType) -> int:
    """Return the hash used to look up a key. Equal cells have equal hashes."""
    return int.from_bytes(blake2b(key_text(cell, kind).encode(), digest_size=8).digest(), "little")
