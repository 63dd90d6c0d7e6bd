"""Adjacencies kept between processes, in a folder of the user that runs the query; never in the root of a graph.

Rules of this module:

1. A file is named by a digest of what it was built from (graph, tables, versions), so it is never stale.
2. The folder and every file must belong to this user and be writable by no other user; otherwise they count as absent.
3. A file is written beside its place and renamed, so a reader sees all of it or nothing.
4. A file that was changed (header, length, checksum, offsets) counts as absent: the adjacency is built again.
5. Keeping nothing is not an error. What was used longest ago goes first when the folder grows beyond its bound.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from gitops.database.graph.query.adjacency import ARRAYS, Adjacency

__all__ = ["AdjacencyFolder"]

_MAGIC = b"GITOPS-CSR-1\n"
_HEAD = len(_MAGIC) + 8
_MAX_HEADER = 65_536
_ALIGN = 64
_TYPES = ("int32", "int64")
_DEFAULT_BYTES = 4 * 2**30


class AdjacencyFolder:
    """The files of one folder, `adjacency` below the cache directory that is handed in."""

    def __init__(self, cache_dir: Path, max_bytes: int = _DEFAULT_BYTES) -> None:
        """Nothing is read or made yet."""
        self._folder = cache_dir / "adjacency"
        self._max = max_bytes

    def read(self, key: str) -> Adjacency | None:
        """The adjacency of this key, mapped into memory; None when there is none that can be trusted."""
        path = self._path(key)
        try:
            if not self._private():
                return None
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode) or not _own(about) or about.st_size < _HEAD:
                    return None
                data = mmap.mmap(handle, about.st_size, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)
            adjacency = _parse(data, key)
            os.utime(path)
        except (OSError, ValueError, RecursionError):
            return None
        return adjacency

    def write(self, key: str, adjacency: Adjacency) -> None:
        """Keep an adjacency, if possible."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._private() or adjacency.nbytes > self._max:
                return
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    _write(file, key, adjacency)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
            self._bound(key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.csr"

    def _private(self) -> bool:
        about = self._folder.lstat()
        return stat.S_ISDIR(about.st_mode) and _own(about)

    def _bound(self, newest: str) -> None:
        """Remove what was used longest ago until the rest fits."""
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                files.append((about.st_mtime_ns, about.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._max:
                break
            if path != str(self._path(newest)):
                Path(path).unlink()
                total -= size


def _own(about: os.stat_result) -> bool:
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


def _write(file: Any, key: str, adjacency: Adjacency) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in adjacency.arrays().items()}
    described = {
        name: {"type": array.dtype.name, "count": len(array), "crc": zlib.crc32(array.data)}
        for name, array in arrays.items()
    }
    header = json.dumps({"key": key, "arrays": described}, sort_keys=True).encode()
    file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
    for array in arrays.values():
        file.write(bytes(-file.tell() % _ALIGN))
        file.write(array.data)


def _parse(data: mmap.mmap, key: str) -> Adjacency:
    """Read the file back. Raises ValueError for the first thing that is not as `_write` writes it."""
    length = int.from_bytes(data[len(_MAGIC) : _HEAD], "little")
    if data[: len(_MAGIC)] != _MAGIC or length > min(_MAX_HEADER, len(data) - _HEAD):
        raise ValueError("magic")
    header = json.loads(data[_HEAD : _HEAD + length])
    if not isinstance(header, dict) or set(header) != {"key", "arrays"} or header["key"] != key:
        raise ValueError("header")
    described = header["arrays"]
    if not isinstance(described, dict) or set(described) != set(ARRAYS):
        raise ValueError("arrays")
    at = _HEAD + length
    arrays: dict[str, np.ndarray] = {}
    for name in ARRAYS:
        form = described[name]
        if not isinstance(form, dict) or set(form) != {"type", "count", "crc"}:
            raise ValueError("array")
        kind, count = form["type"], form["count"]
        if kind not in _TYPES or type(count) is not int or count < 0:
            raise ValueError("array")
        start = at + -at % _ALIGN
        at = start + count * np.dtype(kind).itemsize
        if at > len(data):
            raise ValueError("length")
        arrays[name] = np.frombuffer(data, kind, count, start)
        if zlib.crc32(arrays[name].data) != form["crc"]:
            raise ValueError("checksum")
    if at != len(data):
        raise ValueError("length")
    return Adjacency.from_arrays(arrays)
