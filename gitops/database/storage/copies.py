"""Copies of immutable files on the local disk, whose content is verified.

    files/<sha256>   the content, named by its digest
    <place>          a hard link to it, where a reader looks for the file

Rules of this module:

1. A copy gets its names only when it is complete, with the expected size. A crash leaves a temporary file, which the
   next holder of the lock removes.
2. The content's name shows which bytes were received, so a check finds any later damage to a file with that name,
   whether it is longer, shorter, or has different bytes. A place that is not such a link counts as damaged.
3. Content without a place is removed by `reclaim`. One process holds the lock and changes files, while others only
   read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.database.storage.local import sync_folder
from gitops.database.storage.port import TEMP_PREFIX

_LOCK = "lock"


class FileCopies:
    """The copies below a folder, which is created if needed. The lock holder's threads can add files concurrently."""

    def __init__(self, root: Path) -> None:
        """Create the folder. Raises OSError."""
        self._root = root
        self._files = root / "files"
        self._files.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = None

    def hold(self) -> bool:
        """Take the lock if no other process has it. The kernel frees it when this process ends. Raises OSError."""
        if self._lock is not None:
            return True
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        for left in self._files.glob(f"{TEMP_PREFIX}*"):
            left.unlink()
        return True

    def release(self) -> None:
        """Release the lock, if this process has it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add(self, place: Path, size: int, fill: Callable[[BinaryIO], None]) -> None:
        """Put a file at a place. `fill` writes its content, which must have `size` bytes.

        Raises RemoteError `storage_failed` for any other size, the errors of `fill`, and OSError.
        """
        part = self._files / f"{TEMP_PREFIX}{os.urandom(12).hex()}"
        try:
            with part.open("x+b") as file:
                fill(file)
                file.flush()
                received = file.tell()
                if received != size:
                    detail = f"{place.name}: {received} of {size} bytes were received"
                    raise RemoteError(Code.STORAGE_FAILED, detail, path=str(place), retryable=True)
                os.fsync(file.fileno())
                content = self._files / _digest(file)
            # Equal content is shared, unless the older copy is damaged.
            if not content.exists() or self.damaged([content]):
                part.replace(content)
            place.parent.mkdir(parents=True, exist_ok=True)
            link = place.with_name(f"{TEMP_PREFIX}{part.name.removeprefix(TEMP_PREFIX)}")
            link.hardlink_to(content)
            link.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def damaged(self, places: Iterable[Path]) -> list[Path]:
        """Read files and return those whose content is not as received. Their content is no longer shared."""
        names = {entry.inode(): entry.name for entry in os.scandir(self._files)}
        found = []
        for place in places:
            with contextlib.suppress(FileNotFoundError), place.open("rb") as file:
                name = names.get(os.fstat(file.fileno()).st_ino)
                if _digest(file) != name:
                    found.append(place)
                    if name is not None:
                        (self._files / name).unlink(missing_ok=True)
        return found

    def reclaim(self) -> int:
        """Remove content without a place. Return the number of bytes of the remaining content."""
        kept = 0
        for entry in os.scandir(self._files):
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink == 1:
                Path(entry.path).unlink(missing_ok=True)
            else:
                kept += status.st_size
        sync_folder(self._files)
        return kept


def _digest(file: BufferedIOBase) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
