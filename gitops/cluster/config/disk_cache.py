"""A compile cache in a private folder that belongs to the user.

Rules of this module:

1. The folder belongs to the user and no other user can write to it. A link, a foreign owner or a wider mode disables the cache.
2. An entry is one file, named by a digest of the program's edition and the entry's name. It begins with that
   digest and the digest of its content, so an entry that is truncated, mixed up or of another edition counts as missing.
3. A file is written atomically. It is not synced; if a crash loses it, its content is compiled again.
4. The total size is limited; the oldest files are removed first.
5. Problems with the cache are never reported or raised: the run is only slower, with the same result.

The digests detect accidents, not forgery, because anyone who can write to the folder can write any entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat

_FORMAT = b"cluster-gitops cache 1\n"
# It is followed by two digests, one per line.
_HEAD_BYTES = len(_FORMAT) + 2 * 65
_MAX_ENTRY_BYTES = 32 * 1024 * 1024
_MAX_FILE_BYTES = _MAX_ENTRY_BYTES + 4096
_MAX_BYTES = 256 * 1024 * 1024
_TEMPORARY = ".new-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A cache that cannot be used counts as empty.
_TROUBLE = (OSError, ValueError)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class DiskCache:
    """A CompileCache in `folder`, which the first write creates. `edition` identifies the program that wrote the entries."""

    def __init__(self, folder: str | os.PathLike[str], edition: str, *, max_bytes: int = _MAX_BYTES) -> None:
        self._folder = os.fspath(folder)
        self._edition = edition
        self._max_bytes = max_bytes
        self._written: int | None = None

    def load(self, name: str) -> bytes | None:
        """Return the entry if it is complete and the folder belongs to the user."""
        key = self._key(name)
        with contextlib.suppress(*_TROUBLE):
            folder = self._open()
            try:
                descriptor = os.open(key, _READ, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                        return None
                    if status.st_size > _MAX_FILE_BYTES:
                        return None
                    data = file.read(_MAX_FILE_BYTES)
            finally:
                os.close(folder)
            head = _head(key, data[_HEAD_BYTES:])
            return data[_HEAD_BYTES:] if data.startswith(head) else None
        return None

    def save(self, name: str, data: bytes) -> None:
        """Write the entry to a temporary file and move it into place."""
        if len(data) > min(_MAX_ENTRY_BYTES, self._max_bytes // 8):
            return
        key = self._key(name)
        with contextlib.suppress(*_TROUBLE):
            folder = self._open(make=True)
            try:
                _write(folder, key, _head(key, data) + data)
                self._sweep(folder, len(data))
            finally:
                os.close(folder)

    def _key(self, name: str) -> str:
        return hashlib.sha256(f"{self._edition}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()

    def _open(self, *, make: bool = False) -> int:
        """Return a descriptor of the folder.

        Raises OSError if the folder is missing, or if other users have access to it.
        """
        if make and not os.path.lexists(self._folder):
            os.makedirs(os.path.dirname(os.path.abspath(self._folder)), mode=0o700, exist_ok=True)  # noqa: PTH100, PTH103, PTH120
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)  # noqa: PTH102
        folder = os.open(self._folder, _FOLDER)
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            os.close(folder)
            raise PermissionError(self._folder)
        return folder

    def _sweep(self, folder: int, size: int) -> None:
        """Remove the oldest files if the total size is too large.

        Checked at the first write of a process, then occasionally.
        """
        self._written = None if self._written is None else self._written + size
        if self._written is not None and self._written < self._max_bytes // 8:
            return
        self._written = 0
        with os.scandir(folder) as entries:
            files = [(entry.stat(follow_symlinks=False), entry.name) for entry in entries]
        total = sum(status.st_size for status, _ in files)
        for status, name in sorted(files, key=lambda file: (file[0].st_mtime_ns, file[1])):
            if total <= self._max_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
                total -= status.st_size


def _head(key: str, data: bytes) -> bytes:
    return _FORMAT + f"{key}\n{hashlib.sha256(data).hexdigest()}\n".encode()


def _write(folder: int, name: str, data: bytes) -> None:
    """Write a file atomically. A crash leaves a file with a temporary name, which is removed like the others."""
    temporary = f"{_TEMPORARY}{os.urandom(8).hex()}"
    descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
