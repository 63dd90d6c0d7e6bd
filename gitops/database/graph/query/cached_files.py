"""Files that one user's processes share in a folder owned by that user, never in a graph's root.

1. The folder and every file must belong to this user and be writable by no other user; otherwise they count as absent.
2. A file is written under a temporary name and renamed, so a reader sees a complete file or none.
3. A failed write is not an error. The least recently used files are removed when the folder exceeds its limit.

This module imports only what a short command needs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


class CachedFiles:
    """Files of one kind. `max_bytes` limits their total size."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max = max_bytes

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[int, int] | None]:
        """Yield a file's descriptor and size, and mark it as used, or yield None if no trustworthy file exists.

        Raises OSError.
        """
        if not self._is_private():
            yield None
            return
        handle = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            about = os.fstat(handle)
            yield (handle, about.st_size) if stat.S_ISREG(about.st_mode) and _is_own(about) else None
        finally:
            os.close(handle)

    def mark_used(self, name: str) -> None:
        """Move a file to the end of the removal order. Raises OSError."""
        os.utime(self._folder / name)

    def remove(self, name: str) -> None:
        """Remove a file. Raises OSError."""
        (self._folder / name).unlink()

    def write(self, name: str, size: int, write: Callable[[BinaryIO], None]) -> None:
        """Replace a file with the roughly `size` bytes that `write` produces, unless this exceeds the limit.

        Failures are ignored.
        """
        import tempfile

        with contextlib.suppress(OSError):
            # The compile cache in the folder above is used only if other users have no access to it.
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private() or size > self._max:
                return
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self._folder / name)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
            self._remove_oldest(self._folder / name)

    def _is_private(self) -> bool:
        about = self._folder.lstat()
        return stat.S_ISDIR(about.st_mode) and _is_own(about)

    def _remove_oldest(self, newest: Path) -> None:
        """Remove the least recently used files until the rest fit."""
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                files.append((about.st_mtime_ns, about.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._max:
                break
            if path != str(newest):
                Path(path).unlink()
                total -= size


def _is_own(about: os.stat_result) -> bool:
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022
