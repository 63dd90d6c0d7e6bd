"""What is open in the editor, and what lies beside it on the disk.

Rules:

1. The text of an open file is what the client says, whatever the disk holds.
2. From the disk only what lies in a folder of the workspace is read. No symbolic link is followed below such a folder.
3. A file that lies in no folder of the workspace, or is reached through a link, has its own text and nothing else.
4. A repository inside a folder of the workspace is a world of its own: nothing is looked up across its edge.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gitops.config.folder import FolderTree
from gitops.config.source import EntryKind, MemoryTree, SourceError, SourceTree, normalize

__all__ = ["FileLocation", "OpenFiles", "OpenText"]


class OpenText(NamedTuple):
    """An open file: the address that the client uses, its text in UTF-8, and the client's version of that text.

    `serial` is another one for each text that was put.
    """

    uri: str
    data: bytes
    version: int | None
    serial: int


class FileLocation(NamedTuple):
    """Where a file is: the folder that it is looked at from, and its path below that; `readable` if the disk may be read."""

    base: str
    path: str
    readable: bool


class OpenFiles:
    """Open texts by their paths, and the folders of the workspace."""

    def __init__(self) -> None:
        """Nothing is open, and no folder known."""
        self._folders: tuple[str, ...] = ()
        self._open: dict[str, OpenText] = {}
        self._serial = 0

    def set_folders(self, uris: tuple[str, ...]) -> None:
        """The folders of the workspace from now on; what is no local folder is left out."""
        self._folders = tuple(path for uri in uris if (path := local_path(uri)) is not None)

    def put(self, uri: str, text: str, version: int | None) -> None:
        """Keep a text as the last of all; a half of a surrogate pair, which UTF-8 cannot hold, becomes a question mark."""
        self.drop(uri)
        self._serial += 1
        path = local_path(uri)
        if path is not None:
            held = OpenText(uri, text.encode("utf-8", "replace"), version, self._serial)
            self._open = {**self._open, path: held}

    def drop(self, uri: str) -> None:
        """Forget a text."""
        path = local_path(uri)
        self._open = {key: held for key, held in self._open.items() if key != path}

    def open_texts(self) -> tuple[OpenText, ...]:
        """All open texts, the one that changed last at the end."""
        return tuple(self._open.values())

    def spot(self, uri: str) -> FileLocation | None:
        """Where a file is; None for one that is not local."""
        path = local_path(uri)
        if path is None:
            return None
        folder, name = os.path.split(path)
        around = [each for each in self._folders if path.startswith(each.rstrip("/") + "/")]
        if not around or not name:
            return FileLocation(folder, name, readable=False)
        base = _base(max(around, key=len), folder)
        if base is None:
            return FileLocation(folder, name, readable=False)
        return FileLocation(base, os.path.relpath(path, base), readable=True)

    def tree(self, spot: FileLocation) -> SourceTree:
        """The files around a spot, open texts first; read once each, so it is for one request or one round of checks."""
        prefix = spot.base.rstrip("/") + "/"
        texts = {key.removeprefix(prefix): held.data for key, held in self._open.items() if key.startswith(prefix)}
        if not spot.readable:
            texts = {path: data for path, data in texts.items() if path == spot.path}
        disk: SourceTree = FolderTree(spot.base, confined=True) if spot.readable else MemoryTree({})
        return _DeskTree(disk, texts)

    def uri(self, spot: FileLocation, path: str) -> str:
        """The address of a path of the tree around a spot: that of the client, if it has the file open."""
        place = os.path.normpath(f"{spot.base}/{path}")
        held = self._open.get(place)
        return f"file://{quote(place)}" if held is None else held.uri


def local_path(uri: str) -> str | None:
    """The absolute path of a `file:` address of this machine, without `.` and `..`."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        return None
    return "/" + os.path.normpath(path).lstrip("/")


def _base(workspace: str, folder: str) -> str | None:
    """The innermost repository around a folder, else the folder of the workspace; None if a link leads there."""
    base = place = workspace
    below = os.path.relpath(folder, workspace)
    for name in () if below == "." else below.split("/"):
        place = f"{place.rstrip('/')}/{name}"
        try:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                return None
        except FileNotFoundError:
            # A folder that is not written yet: below it there are open texts at most.
            break
        except OSError:
            return None
        if os.path.lexists(f"{place}/.git"):
            base = place
    return base


class _DeskTree:
    """A tree in which open texts come first; what was read from the disk is read once."""

    def __init__(self, disk: SourceTree, texts: Mapping[str, bytes]) -> None:
        self._disk = disk
        self._texts = texts
        self._read: dict[str, bytes | SourceError] = {}

    @property
    def root(self) -> str:
        return self._disk.root

    def read(self, path: str) -> bytes:
        place = normalize(path, confined=True)
        if place in self._texts:
            return self._texts[place]
        found = self._read.get(place)
        if found is None:
            try:
                found = self._disk.read(place)
            except SourceError as error:
                found = error
            self._read[place] = found
        if isinstance(found, SourceError):
            raise found
        return found

    def kind(self, path: str) -> EntryKind:
        place = normalize(path, confined=True)
        return EntryKind.FILE if place in self._texts else self._disk.kind(place)

    def names(self, path: str) -> tuple[str, ...]:
        place = normalize(path, confined=True)
        prefix = "" if place == "." else f"{place}/"
        inner = {key.removeprefix(prefix) for key in self._texts if key.startswith(prefix)}
        try:
            listed = self._disk.names(place)
        except SourceError:
            if not inner:
                raise
            listed = ()
        return tuple(sorted({*listed, *(name for name in inner if "/" not in name)}))
