"""Input files of a load over an executor, on a disk that all workers can reach or in a bucket."""

from __future__ import annotations

import contextlib
import glob
import io
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from gitops.core.codes import Code
from gitops.core.errors import UsageError, system_reason
from gitops.database.graph.distributed.documents import Piece
from gitops.database.language.schema import Catalog

PIECE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a file that one task reads; a longer row group or line is read completely."""

_LEAST_BYTES = 1024 * 1024
_BLOCK = 1 << 20
_PATTERN = re.compile(r"[*?\[]")


def find_files(pattern: str) -> list[str]:
    """Return the files that match a path, an `s3://` address, or a pattern with `*`, `?` or `[...]`, in name order.

    Raises UsageError `usage_error` if there are none; RemoteError `storage_failed`.
    """
    if pattern.startswith("s3:"):
        found = list(_in_bucket(pattern))
    elif _PATTERN.search(pattern):
        found = [path for path in glob.glob(str(Path(pattern).absolute()), recursive=True) if Path(path).is_file()]  # noqa: PTH207 - an absolute pattern
    else:
        found = [str(Path(pattern).absolute())] if Path(pattern).is_file() else []
    if not found:
        raise UsageError(Code.USAGE_ERROR, f"no file matches {pattern[:200]}", path=pattern)
    return sorted(found)


def _in_bucket(pattern: str) -> Iterator[str]:
    from gitops.database.storage.s3 import S3Store

    parts = pattern.split("/")
    fixed = next((at for at, part in enumerate(parts) if _PATTERN.search(part)), len(parts) - 1)
    store = S3Store("/".join(parts[:fixed]))
    wanted = "/".join(parts[fixed:])
    for key, _, _ in store.details():
        # As on a disk, a star does not match a slash.
        if key.count("/") == wanted.count("/") and fnmatchcase(key, wanted):
            yield f"{store.location}/{key}"


def input_pieces(records: str | None, tables: Sequence[tuple[str, str]], catalog: Catalog, slots: int) -> list[Piece]:
    """Cut a load's input into pieces. `records` are JSON Lines files; `tables` are types with their Parquet files.

    Raises UsageError `usage_error` for an unknown type, a missing file, or one that cannot be read; RemoteError.
    """
    pieces = [] if records is None else cut_lines(find_files(records), slots)
    for name, pattern in tables:
        edge = catalog.edge(name)
        if name not in catalog.nodes and edge is None:
            raise UsageError(Code.USAGE_ERROR, f"the graph has no type {name[:80]!r}")
        key = f"node:{name}" if name in catalog.nodes or edge is None else f"edge:{edge.name}"
        for file in find_files(pattern):
            pieces += cut_groups(file, key, slots)
    return pieces


def cut_lines(files: Sequence[str], slots: int) -> list[Piece]:
    """Cut JSON Lines files into byte ranges, several per slot. No file is read."""
    sizes = [_size(file) for file in files]
    span = max(_LEAST_BYTES, min(PIECE_BYTES, sum(sizes) // max(1, 4 * slots)))
    return [
        Piece(file, None, start, min(start + span, size), size)
        for file, size in zip(files, sizes, strict=True)
        for start in range(0, size, span)
    ]


def cut_groups(file: str, table: str, slots: int) -> list[Piece]:
    """Cut a Parquet file into pieces of row groups. Raises UsageError `usage_error` for any other file."""
    with open_parquet(file) as opened:
        about, size = opened.metadata, _size(file)
        span = max(_LEAST_BYTES, min(PIECE_BYTES, size // max(1, 4 * slots)))
        pieces, start, held = [], 0, 0
        for at in range(about.num_row_groups):
            held += about.row_group(at).total_byte_size
            if held >= span or at == about.num_row_groups - 1:
                pieces.append(Piece(file, table, start, at + 1, size))
                start, held = at + 1, 0
        return pieces


@contextlib.contextmanager
def open_parquet(file: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file. Raises UsageError `usage_error` if it cannot be read, also inside the block."""
    with open_file(file) as raw:
        try:
            with pq.ParquetFile(pa.PythonFile(raw, "r")) as opened:
                yield opened
        except (OSError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0][:200]
            raise UsageError(Code.USAGE_ERROR, f"cannot read {file} as Parquet: {reason}", path=file) from error


@contextlib.contextmanager
def open_file(file: str) -> Iterator[BinaryIO]:
    """Open a file for reading at any position. Raises UsageError `usage_error` if it cannot be opened."""
    if file.startswith("s3:"):
        with io.BufferedReader(_ObjectFile(file), _BLOCK) as remote:
            yield cast("BinaryIO", remote)
        return
    try:
        local = open(file, "rb")  # noqa: PTH123, SIM115 - closed below
    except OSError as error:
        raise UsageError(Code.USAGE_ERROR, system_reason(error, file), path=file) from error
    with local:
        yield local


@contextlib.contextmanager
def open_lines(piece: Piece) -> Iterator[BinaryIO]:
    """Open the lines that start within a piece's byte range. Raises UsageError if the file's size has changed."""
    with open_file(piece.file) as file:
        require_size(piece, file)
        start, end = (_line_start(file, at) for at in (piece.start, piece.end))
        file.seek(start)
        yield cast("BinaryIO", io.BufferedReader(_NextBytes(file, end - start), _BLOCK))


def require_size(piece: Piece, file: BinaryIO) -> None:
    """Raise UsageError `usage_error` if a file's size has changed since the load was planned."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size != piece.size:
        detail = f"{piece.file} has {size} bytes, and had {piece.size} when the load began"
        raise UsageError(Code.USAGE_ERROR, detail, path=piece.file, fix="load the file as it is now in a new load")


def _line_start(file: BinaryIO, at: int) -> int:
    """Return the position of the first line that starts at this position or later."""
    if at == 0:
        return 0
    file.seek(at - 1)
    while data := file.read(_BLOCK):
        found = data.find(b"\n")
        if found >= 0:
            return file.tell() - len(data) + found + 1
    return file.tell()


def _size(file: str) -> int:
    with open_file(file) as opened:
        return opened.seek(0, io.SEEK_END)


class _NextBytes(io.RawIOBase):
    """The next bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _ObjectFile(io.RawIOBase):
    """An object of a bucket as a file."""

    def __init__(self, address: str) -> None:
        from gitops.database.storage.s3 import S3Store

        folder, _, self._key = address.rpartition("/")
        self._store, self._at = S3Store(folder), 0
        sizes = {key: size for key, size, _ in self._store.details() if key == self._key}
        if self._key not in sizes:
            raise UsageError(Code.USAGE_ERROR, f"there is no object {address}", path=address)
        self._size = sizes[self._key]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        data = self._store.read_range(self._key, self._at, end)
        buffer[: len(data)] = data
        self._at = end
        return len(data)
