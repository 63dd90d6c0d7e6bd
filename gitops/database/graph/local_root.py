"""A graph root in a local folder.

A new graph is built in a hidden folder next to its root and renamed to the root in one step, so a root is absent or
complete, never partial.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError, system_reason
from gitops.core.faults import Faults
from gitops.database.graph import layout
from gitops.database.graph.manifest import GraphIdentity, read_identity
from gitops.database.graph.port import Existence
from gitops.database.graph.presence import locate, path_existence
from gitops.database.graph.root import DatasetLocation, FileMark, StoredFile, root_taken
from gitops.database.storage.local import LocalStore, lock_folder, remove_set_aside, set_aside, sync_folder
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import TEMP_PREFIX

_SYNCS_AT_ONCE = 8
_CHUNK = 1 << 20
_MOST_DIGITS = 20
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


def _is_folder(path: Path) -> bool:
    """Return whether a path is a real folder, not a link. Raises OSError."""
    return stat.S_ISDIR(path.lstat().st_mode)


class LocalFolder:
    """A GraphFolder on the local disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = str(path)
        self.store = LocalStore(path)

    def dataset(self, path: str) -> DatasetLocation:
        """Return the dataset's folder, which needs no driver options."""
        return DatasetLocation(str(self._path / path))

    def place(self, path: str) -> Path:
        """Return the location of a file below the folder."""
        return self._path / path

    def settle(self, path: str, names: Iterable[str], *, new: bool = False) -> None:
        """Sync files, then their folders up to the dataset's folder and, for a new dataset, the folder above it."""
        dataset = str(self._path / path)
        files, folders = [], {dataset}
        for name in names:
            stem, suffix = os.path.splitext(f"{dataset}/{name}")  # noqa: PTH122
            files += [f"{at}/{file}" for at, _, below in os.walk(stem) for file in below]
            files += [stem + suffix] if suffix else []
        for folder in map(os.path.dirname, files):
            while folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)  # noqa: PTH120, PLW2901 - the folder above
        if new:
            folders |= {os.path.dirname(dataset), str(self._path)}  # noqa: PTH120
        # Syncing several files concurrently takes about as long as syncing one.
        in_parallel(_sync, files, _SYNCS_AT_ONCE)
        in_parallel(_sync, sorted(folders), _SYNCS_AT_ONCE)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Yield the files and empty folders below the path. Files that vanish during the walk are skipped."""
        for place, folders, names in os.walk(self._real(prefix)):
            for name in names if names or folders else [""]:
                file = Path(place, name)
                with contextlib.suppress(FileNotFoundError):
                    status = file.lstat()
                    written = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield StoredFile(file.relative_to(self._path).as_posix(), status.st_size, written)

    def marks(self, keys: Sequence[str]) -> tuple[FileMark | None, ...] | None:
        """Check files in this order, without following links. Return None if the disk fails."""
        found: list[FileMark | None] = []
        for key in keys:
            try:
                seen = os.lstat(f"{self._text}/{key}")
            except FileNotFoundError:
                found.append(None)
            except OSError:
                return None
            else:
                found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
        return tuple(found)

    def note_newest(self, line: str, n: int) -> None:
        """Write the number to a file, by renaming a temporary file."""
        place = f"{self._text}/{layout.newest_key(line)}"
        temporary = f"{os.path.dirname(place)}/{TEMP_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"  # noqa: PTH120
        with contextlib.suppress(OSError):
            try:
                descriptor = os.open(
                    temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
                )
                with os.fdopen(descriptor, "wb") as file:
                    file.write(b"%d" % n)
                os.rename(temporary, place)  # noqa: PTH104
            except OSError:
                os.unlink(temporary)  # noqa: PTH108

    def noted_newest(self, line: str) -> int | None:
        """Read the number from the file."""
        place = f"{self._text}/{layout.newest_key(line)}"
        with contextlib.suppress(OSError):
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                text = file.read(_MOST_DIGITS)
            return int(text) if text.isdigit() and len(text) < _MOST_DIGITS else None
        return None

    def download(self, path: str, size: int, target: BinaryIO) -> bool:
        """Append a file's bytes to a local file. Return False if it does not exist."""
        above, _, name = path.rpartition("/")
        try:
            descriptor = os.open(self._real(above) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as source:
                while size > 0 and (part := source.read(min(size, _CHUNK))):
                    target.write(part)
                    size -= len(part)
        except FileNotFoundError:
            return False
        return True

    def children(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the folders directly below a path, leaving out links."""
        try:
            with os.scandir(self._real(prefix)) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def remove(self, path: str) -> None:
        """Remove a file or folder. A link is removed, not followed."""
        above, _, name = path.rpartition("/")
        place = self._real(above) / name
        try:
            if _is_folder(place):
                shutil.rmtree(place)
            else:
                place.unlink()
        except FileNotFoundError:
            return
        sync_folder(place.parent)

    def _real(self, path: str) -> Path:
        """Return the absolute path for a path relative to the folder.

        Raises OSError if a part of the path is a link, so that only files of the graph can be removed.
        """
        place = self._path
        for part in filter(None, path.split("/")):
            place /= part
            if place.is_symlink():
                raise OSError(errno.ELOOP, "a link in a graph is not followed", str(place))
        return place


class LocalRoot:
    """A GraphRoot on the local disk."""

    def __init__(self, uri: str) -> None:
        """Parse the address without reading files. Raises GitopsError `graph_unreadable` if it is not a local path."""
        self._path = locate(uri)

    @property
    def location(self) -> str:
        """The absolute path of the root."""
        return str(self._path)

    def existence(self) -> Existence:
        """Return whether anything exists at the path, including a dangling link."""
        return path_existence(self._path)

    def open(self) -> tuple[GraphIdentity, LocalFolder]:
        """Check that the folder contains a graph and return it."""
        seen = self.existence()
        if seen is Existence.ABSENT:
            raise GitopsError(Code.GRAPH_MISSING, f"{self._path} contains no graph", path=self.location)
        if seen is Existence.UNKNOWN or not _is_folder(self._path):
            raise IntegrityError(
                Code.GRAPH_UNREADABLE,
                f"{self._path} is not a folder that can be opened",
                path=self.location,
                fix="pass the folder of a graph, or make it readable",
            )
        folder = LocalFolder(self._path)
        return read_identity(folder.store), folder

    def holds(self, identity: GraphIdentity) -> bool:
        """Return whether the folder contains the graph with this identity."""
        return LocalStore(self._path).read(layout.IDENTITY) == identity.to_bytes()

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Lock the folder against other writers on this host."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock_folder(self._path))
            except FileNotFoundError as error:
                raise GitopsError(Code.GRAPH_MISSING, f"{self._path} contains no graph", path=self.location) from error
            except TimeoutError as error:
                detail = f"another writer is changing {self._path}"
                raise ConflictError(Code.GRAPH_CONFLICT, detail, path=self.location) from error
            except OSError as error:
                detail = f"{self._path} does not open: {error}"
                raise GitopsError(Code.GRAPH_UNREADABLE, detail, path=self.location) from error
            yield

    def stage(self, identity: GraphIdentity) -> StagingFolder:  # noqa: ARG002 - the folder's own name is unique here
        """Create a staging folder for a new graph next to the root."""
        return StagingFolder(self._path)

    def beside(self) -> LocalStore:
        """Return the file store of the parent folder."""
        return LocalStore(self._path.parent)

    def remove_incarnation(self, graph_id: str, faults: Faults) -> None:
        """If the folder has this graph, rename it away and remove its files. The lease prevents a swap meanwhile."""
        if self.existence() is not Existence.ABSENT:
            if read_identity(LocalStore(self._path)).graph_id != graph_id:
                return
            set_aside(self._path)
            faults.reach("engine.delete.before_files")
        self.reclaim()

    def reclaim(self) -> None:
        """Remove folders that removals have renamed, and staging folders whose owners have crashed.

        A running process's staging folder is kept.
        """
        remove_set_aside(self._path)
        _remove_abandoned(self._path)

    def tidy(self) -> None:
        """Remove staging folders next to the root whose owners have crashed."""
        _remove_abandoned(self._path)

    def remove(self) -> None:
        """Rename the folder away, then remove its files and the leftovers of crashed writers next to it."""
        set_aside(self._path)
        self.reclaim()


class StagingFolder:
    """A hidden folder next to a graph root, owned by this process while the graph is staged.

    The owner holds an advisory lock on the outer folder, which the kernel frees if the process dies. So a folder
    without a held lock is abandoned, and the next staging for the same root removes it.
    """

    def __init__(self, root: Path) -> None:
        """Remove abandoned folders and create a new one. Raises GitopsError `graph_exists` if the root is in use; OSError."""
        # Only an absent root or an empty folder can become a graph.
        try:
            names = {entry.name for entry in root.iterdir()} if _is_folder(root) else {root.name}
        except FileNotFoundError:
            names = set()
        if names:
            raise root_taken(str(root), names)
        root.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(root)
        self._root = root
        self._outer = root.parent / f".{root.name}.{secrets.token_hex(8)}.staging"
        self._outer.mkdir()
        self._descriptor: int | None = os.open(self._outer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._path = self._outer / "graph"
        self._path.mkdir()

    @property
    def folder(self) -> LocalFolder:
        """The graph folder inside the hidden folder."""
        return LocalFolder(self._path)

    def take_root(self) -> None:
        """Rename the folder to the root.

        Raises ConflictError `graph_conflict` if another graph now exists there.
        """
        try:
            self._path.rename(self._root)
            sync_folder(self._root.parent)
        except OSError as error:
            if error.errno in _TAKEN:
                raise ConflictError(
                    Code.GRAPH_CONFLICT, f"another writer made {self._root}", path=str(self._root)
                ) from error
            raise RemoteError(Code.STORAGE_FAILED, system_reason(error, self._root)) from error
        self.discard()

    def discard(self) -> None:
        """Remove the hidden folder and its remaining content."""
        shutil.rmtree(self._outer, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _remove_abandoned(root: Path) -> None:
    """Remove this root's abandoned staging folders, which are those that this process can lock.

    Raises OSError.
    """
    # All graphs of the cluster are in this folder and every create lists it, so names are filtered first.
    start, pattern = f".{root.name}.", re.compile(rf"\.{re.escape(root.name)}\.[0-9a-f]{{16}}\.staging")
    try:
        names = [name for name in os.listdir(root.parent) if name.startswith(start)]  # noqa: PTH208 - names alone are cheap
    except (FileNotFoundError, NotADirectoryError):
        return
    for left in (root.parent / name for name in sorted(names) if pattern.fullmatch(name)):
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(left)
        finally:
            os.close(descriptor)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
