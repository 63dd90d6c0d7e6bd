"""Stores files below a local folder.

Rules of this module:

1. New content is written to a hidden temporary file and synced before it gets its name. Then the folder is synced.
2. `create` sets the name with a hard link, which fails if the name exists, so exactly one of several racing callers
   wins.
3. `replace`, `write` and `delete` hold an advisory lock on the folder, so compare-and-rename is one atomic step for
   other processes.
4. Every path is resolved with folder descriptors that refuse symbolic links, so no key leaves the root.
5. If a process crashes, it leaves at most a temporary file, which is never listed and never read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import RemoteError, system_reason
from gitops.database.storage.port import TEMP_PREFIX, split_key, split_prefix

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_OBJECT_BYTES = 1 << 28
_LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.001


class LocalStore:
    """An ObjectStore below `root`, which need not exist before the first write. Safe for threads and processes."""

    parallel = 1
    """Local disks are fast enough without concurrency."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - must not resolve the operator's symbolic links

    @property
    def location(self) -> str:
        """The absolute path of the root."""
        return str(self._root)

    def display(self, key: str) -> str:
        """Return the absolute path of the object."""
        return str(self._root.joinpath(*split_key(key)))

    def read(self, key: str) -> bytes | None:
        """Read a file. Returns None only if the file or a folder above it does not exist."""
        *folders, name = split_key(key)
        with self._guard(key), self._folder(folders) as folder:
            return None if folder is None else _read(folder, name)

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Read some bytes of a file."""
        *folders, name = split_key(key)
        with self._guard(key), self._folder(folders) as folder:
            if folder is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                file.seek(start)
                found = file.read(end - start)
            if len(found) != end - start:
                raise OSError(errno.EINVAL, f"shorter than {end} bytes")
            return found

    def create(self, key: str, data: bytes) -> bool:
        """Write a file only if it is absent. Exactly one of several racing callers gets True."""
        *folders, name = split_key(key)
        with self._guard(key), self._made_folder(folders) as folder, _temporary(folder, data) as temp:
            try:
                os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
            os.fsync(folder)
            return True

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        """Write a file only if its current content equals `expected`."""
        *folders, name = split_key(key)
        with self._guard(key), self._folder(folders) as folder:
            if folder is None:
                return False
            with _locked(folder):
                if _read(folder, name) != expected:
                    return False
                _rename_in(folder, name, data)
            return True

    def write(self, key: str, data: bytes) -> None:
        """Write a file unconditionally."""
        *folders, name = split_key(key)
        with self._guard(key), self._made_folder(folders) as folder, _locked(folder):
            _rename_in(folder, name, data)

    def delete(self, key: str) -> None:
        """Remove a file. Ignores an absent file."""
        *folders, name = split_key(key)
        with self._guard(key), self._folder(folders) as folder:
            if folder is None:
                return
            with _locked(folder):
                try:
                    os.unlink(name, dir_fd=folder)
                except FileNotFoundError:
                    return
                os.fsync(folder)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of files directly inside `prefix`, in code point order and without temporary files."""
        with self._guard(prefix), self._folder(split_prefix(prefix)) as folder:
            if folder is None:
                return ()
            with os.scandir(folder) as entries:
                found = [
                    e.name for e in entries if not e.name.startswith(TEMP_PREFIX) and e.is_file(follow_symlinks=False)
                ]
            return tuple(sorted(found))

    @contextlib.contextmanager
    def _guard(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = self._root.joinpath(key)
            raise RemoteError(Code.STORAGE_FAILED, system_reason(error, place), path=key) from error

    @contextlib.contextmanager
    def _folder(self, parts: list[str] | tuple[str, ...]) -> Iterator[int | None]:
        """Open a descriptor of the folder; None if it does not exist."""
        try:
            descriptor = os.open(self._root, _FOLDER)
        except FileNotFoundError:
            yield None
            return
        try:
            for part in parts:
                descriptor = _step(descriptor, part)
        except FileNotFoundError:
            os.close(descriptor)
            yield None
            return
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _made_folder(self, parts: list[str]) -> Iterator[int]:
        """Open a descriptor of the folder, which is created if needed."""
        _make_root(self._root)
        descriptor = os.open(self._root, _FOLDER)
        try:
            for part in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                    os.fsync(descriptor)
                descriptor = _step(descriptor, part)
            yield descriptor
        finally:
            os.close(descriptor)


def delete_tree(root: Path) -> None:
    """Remove everything at `root`. Succeeds if it is absent, and never follows symbolic links.

    The root disappears in one rename, so a reader sees either the complete tree or nothing. If a crash interrupts the
    deletion, the next call finishes it. Raises RemoteError `storage_failed`.
    """
    set_aside(root)
    remove_set_aside(root)


def set_aside(root: Path) -> None:
    """Rename `root` to a hidden name in the same folder, which `remove_set_aside` recognises.

    Raises the same errors as `delete_tree`.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            root.rename(root.parent / f".{root.name}.{os.urandom(8).hex()}.deleted")
            sync_folder(root.parent)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, root)) from error


def remove_set_aside(root: Path) -> None:
    """Remove content that this process or a crashed one has set aside at `root`. Raises the errors of `delete_tree`."""
    import shutil

    try:
        for left in _renamed_away(root):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, onerror=_unless_gone)
            else:
                left.unlink(missing_ok=True)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, root)) from error


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """During the block, lock an existing folder against other holders on this host.

    Processes that do not take the lock are not blocked.

    Raises OSError, with ETIMEDOUT if another process holds the lock for too long.
    """
    descriptor = os.open(path, _FOLDER | os.O_NOFOLLOW)
    try:
        with _locked(descriptor):
            yield
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names inside a folder durable."""
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renamed_away(root: Path) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(root.name)}\.[0-9a-f]{{16}}\.deleted")
    try:
        return sorted(entry for entry in root.parent.iterdir() if pattern.fullmatch(entry.name))
    except FileNotFoundError:
        return []


def _unless_gone(_function: object, _path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    """Ignore an error because a concurrent deletion already removed the file; raise all other errors."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def _make_root(root: Path) -> None:
    if root.is_dir():
        return
    _make_root(root.parent)
    with contextlib.suppress(FileExistsError):
        root.mkdir()
        sync_folder(root.parent)


def _step(folder: int, part: str) -> int:
    """Open a subfolder, never through a symbolic link; the given descriptor is closed on success."""
    below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    os.close(folder)
    return below


def _read(folder: int, name: str) -> bytes | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size > _MAX_OBJECT_BYTES:
            raise OSError(errno.EFBIG, f"larger than {_MAX_OBJECT_BYTES} bytes")
        return file.read()


@contextlib.contextmanager
def _temporary(folder: int, data: bytes) -> Iterator[str]:
    """Yield the name of a temporary, synced file with this content, which is removed at the end unless renamed."""
    name = f"{TEMP_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _rename_in(folder: int, name: str, data: bytes) -> None:
    with _temporary(folder, data) as temp:
        os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


@contextlib.contextmanager
def _locked(folder: int) -> Iterator[None]:
    """Hold an exclusive lock on a folder, which the kernel frees if the process dies."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"another process holds the folder for {_LOCK_WAIT_S} s") from None
            time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
