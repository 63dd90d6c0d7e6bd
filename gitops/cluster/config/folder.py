"""A cluster folder on disk as a SourceTree.

No symbolic link is ever followed below the folder that the operator specified.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EACCES, EPERM
from itertools import islice

from gitops.cluster.config.source import (
    Meter,
    PathKind,
    SourceError,
    SourceLimits,
    checked_listing,
    folder_for_file,
    normalize,
    shown_part,
)
from gitops.core.codes import Code

_OPEN_START = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_DIR = _OPEN_START | os.O_NOFOLLOW
# O_NONBLOCK, so that opening a named pipe does not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_REPOSITORY = ".git"
_TYPE = 0o170000  # the part of a file mode that contains the file type
# Two changes within one tick of a coarse clock can leave a file's times the same, so a file this young has no stamp.
_SETTLED_NS = 2_000_000_000


class FolderTree:
    """A folder's files. Paths are opened one name at a time by directory descriptor, so that no race can insert a link.

    A confined tree reads only inside the folder; an unconfined one also reads absolute paths and `..`, which the operator
    may pass to a command. The declarations in the folder's files never lead out of it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, confined: bool, limits: SourceLimits | None = None) -> None:
        """Create the tree without opening anything.

        Links in the path of `folder` are followed, because the operator chose it.
        """
        self._folder = os.fspath(folder)
        self._confined = confined
        self._now_ns: int | None = None
        self._meter = Meter(limits)

    @property
    def root(self) -> str:
        """The folder as given."""
        return self._folder

    @property
    def identity(self) -> str:
        """The folder's absolute path."""
        return f"folder{' confined' * self._confined} {os.path.abspath(self._folder)}"  # noqa: PTH100 - links stay

    @property
    def limits(self) -> SourceLimits:
        """The given limits."""
        return self._meter.limits

    def stamps(self, places: Iterable[str], kind: PathKind) -> list[str | None]:
        """Return each file's or folder's size, both times and inode number, like git's index.

        The stamp is None if the file changed just now, or if there is no time to compare with.
        """
        if self._now_ns is None:
            return [None for _ in places]
        try:
            start = os.open(self._folder, _OPEN_START)
        except OSError:
            return [None for _ in places]
        expected = stat.S_IFREG if kind is PathKind.FILE else stat.S_IFDIR
        settled = self._now_ns - _SETTLED_NS
        try:
            return [_stamp(start, place, expected, settled) for place in places]
        finally:
            os.close(start)

    def reopened(self) -> FolderTree:
        """Return the same folder, with the same start time."""
        return self.at(self._now_ns)

    def at(self, now_ns: int | None) -> FolderTree:
        """Return the same folder with stamps. `now_ns` is the time before the first read, in nanoseconds since 1970."""
        tree = FolderTree(self._folder, confined=self._confined, limits=self._meter.limits)
        tree._now_ns = now_ns
        return tree

    def kind(self, path: str) -> PathKind:
        """Return the kind of the file at `path`."""
        place = normalize(path, confined=self._confined)
        try:
            with self._parent(place) as (parent, name):
                if name is None:
                    return PathKind.DIR
                mode = _mode(parent, name, place)
                if stat.S_ISDIR(mode):
                    _refuse_submodule(parent, f"{name}/{_REPOSITORY}", place)
                    return PathKind.DIR
                return PathKind.FILE
        except SourceError as error:
            if error.code == Code.SOURCE_MISSING:
                return PathKind.ABSENT
            raise

    def read(self, path: str) -> bytes:
        """Return the complete content of the regular file at `path`. Raises an error if it cannot be read completely."""
        place = normalize(path, confined=self._confined)
        with self._parent(place) as (parent, name):
            if name is None:
                raise folder_for_file(place)
            descriptor = _open(name, _OPEN_FILE, parent, place)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISDIR(status.st_mode):
                    _refuse_submodule(descriptor, _REPOSITORY, place)
                    raise folder_for_file(place)
                if not stat.S_ISREG(status.st_mode):
                    raise SourceError(Code.SOURCE_UNREADABLE, f"{place} is not a regular file", path=place)
                # Check the size first, and cut off a file that grows while it is read, so that memory is bounded.
                self._meter.check(place, status.st_size)
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    data = file.read(self._meter.limits.file_bytes + 1)
            except OSError as error:
                raise _unreadable(place, error) from None
            finally:
                os.close(descriptor)
        self._meter.admit(place, len(data))
        return data

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in the folder at `path`, without the `.git` of a work tree."""
        place = normalize(path, confined=self._confined)
        with self._parent(place) as (parent, name):
            if name is not None and not stat.S_ISDIR(_mode(parent, name, place)):
                raise SourceError(Code.SOURCE_UNREADABLE, f"{place} is not a folder", path=place)
            descriptor = os.dup(parent) if name is None else self._open_folder(parent, name, place)
            try:
                with os.scandir(descriptor) as entries:
                    # Reading one entry more than allowed is enough to refuse an endless folder.
                    found = [entry.name for entry in islice(entries, self._meter.limits.files + 2)]
            except OSError as error:
                raise _unreadable(place, error) from None
            finally:
                os.close(descriptor)
        return checked_listing(place, (n for n in found if n != _REPOSITORY), self._meter.limits)

    @contextmanager
    def _parent(self, place: str) -> Iterator[tuple[int, str | None]]:
        """Yield a descriptor of the folder with the last component of `place`, and that component.

        The component is None for the root itself.
        """
        parts = [p for p in place.split("/") if p not in ("", ".")]
        start = "/" if place.startswith("/") else self._folder
        try:
            current = os.open(start, _OPEN_START)
        except (FileNotFoundError, NotADirectoryError):
            raise SourceError(Code.SOURCE_MISSING, f"{start} is not a folder", path=place) from None
        except OSError as error:
            raise _unreadable(start, error) from None
        try:
            while parts and (len(parts) > 1 or parts[0] == ".."):
                below = self._open_folder(current, parts.pop(0), place)
                os.close(current)
                current = below
            yield current, parts[0] if parts else None
        finally:
            os.close(current)

    def _open_folder(self, parent: int, name: str, place: str) -> int:
        descriptor = _open(name, _OPEN_DIR, parent, place)
        try:
            _refuse_submodule(descriptor, _REPOSITORY, place)
        except SourceError:
            os.close(descriptor)
            raise
        return descriptor


def _stamp(start: int, place: str, expected: int, settled_ns: int) -> str | None:
    try:
        found = os.stat(place, dir_fd=start, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    changed, touched = found.st_ctime_ns, found.st_mtime_ns
    # A time in the future is not reliable either.
    if found.st_mode & _TYPE != expected or changed > settled_ns or touched > settled_ns:
        return None
    return f"{found.st_size} {touched} {changed} {found.st_ino}"


def _refuse_submodule(folder: int, marker: str, place: str) -> None:
    """Refuse a folder that is a separate repository, because a commit of this one contains only a reference to it.

    Other repositories outside of the cluster folder are allowed.
    """
    if place.startswith(("/", "../")):
        return
    try:
        os.stat(marker, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    raise SourceError(Code.SOURCE_SUBMODULE, f"{place} is a submodule", path=place)


def _mode(parent: int, name: str, place: str) -> int:
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        raise SourceError(Code.SOURCE_MISSING, f"{place} does not exist", path=place) from None
    except OSError as error:
        raise _unreadable(place, error) from None
    if stat.S_ISLNK(mode):
        raise SourceError(Code.SOURCE_SYMLINK, f"{shown_part(name, place)} is a symbolic link", path=place)
    return mode


def _open(name: str, flags: int, parent: int, place: str) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        # The error for a link differs between systems and flags, so the entry itself is checked.
        mode = _mode(parent, name, place)
        if flags & os.O_DIRECTORY and not stat.S_ISDIR(mode):
            raise SourceError(Code.SOURCE_MISSING, f"a parent folder of {place} is a file", path=place) from None
        raise _unreadable(place, error) from None


def _unreadable(place: str, error: OSError) -> SourceError:
    may = f"in the cluster folder, let the user that runs gitops read it: chmod u+r {shlex.quote(place)}"
    fix = may if error.errno in (EACCES, EPERM) else None
    return SourceError(Code.SOURCE_UNREADABLE, f"{place} cannot be read: {error.strerror}", path=place, fix=fix)
