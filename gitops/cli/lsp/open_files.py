"""The files that are open in the editor, and the files around them on the disk.

Rules:

1. The text of an open file is that of the client; the file on the disk does not count.
2. Only files in a folder of the workspace are read from the disk. No symbolic link is followed below such a folder.
3. A file outside of the workspace, or reached through a link, is seen alone.
4. A repository inside a folder of the workspace is separate: no file is looked up across its border.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.source import EntryKind, MemoryTree, SourceError, SourceTree, normalize
from gitops.editor import Encoding, replace_range

__all__ = ["FileLocation", "OpenFiles", "OpenText", "TextChange"]


class OpenText(NamedTuple):
    """An open file: the address that the client uses, its text in UTF-8, and the client's version of that text.

    `serial` is a new number for each text that is put.
    """

    uri: str
    data: bytes
    version: int | None
    serial: int


class TextChange(NamedTuple):
    """The text that replaces the range between two positions (line and character), or the whole text."""

    span: tuple[tuple[int, int], tuple[int, int]] | None
    text: str


class FileLocation(NamedTuple):
    """The folder that a file is read from, and its path below that; `readable` if the disk may be read."""

    base: str
    path: str
    readable: bool


class OpenFiles:
    """Open texts by their paths, and the folders of the workspace."""

    def __init__(self) -> None:
        """Start without open files and folders."""
        self._folders: tuple[str, ...] = ()
        self._open: dict[str, OpenText] = {}
        self._serial = 0

    def set_folders(self, uris: tuple[str, ...]) -> None:
        """Replace the folders of the workspace; folders that are not local are left out."""
        self._folders = tuple(path for uri in uris if (path := local_path(uri)) is not None)

    def put(self, uri: str, text: str, version: int | None) -> None:
        """Keep a text as the newest one; half of a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
        self._put(uri, text.encode("utf-8", "replace"), version)

    def edit(self, uri: str, changes: Iterable[TextChange], version: int | None, encoding: Encoding) -> None:
        """Change a text, one change after the other; ranges in a file that is not open have no meaning, and are left out."""
        held = self._open.get(local_path(uri) or "")
        data = None if held is None else held.data
        for span, text in changes:
            if span is None:
                data = text.encode("utf-8", "replace")
            elif data is not None:
                data = replace_range(data, *span, text, encoding)
        if data is not None:
            self._put(uri, data, version)

    def drop(self, uri: str) -> None:
        """Forget a text."""
        path = local_path(uri)
        self._open = {key: held for key, held in self._open.items() if key != path}

    def _put(self, uri: str, data: bytes, version: int | None) -> None:
        path = local_path(uri)
        if path is not None:
            self._serial += 1
            others = {key: held for key, held in self._open.items() if key != path}
            # One assignment, since a round of checks reads it from its own thread.
            self._open = {**others, path: OpenText(uri, data, version, self._serial)}

    def open_texts(self) -> tuple[OpenText, ...]:
        """All open texts, the newest at the end."""
        return tuple(self._open.values())

    def locate(self, uri: str) -> FileLocation | None:
        """The location of a file; None for a file that is not local."""
        path = local_path(uri)
        if path is None:
            return None
        folder, name = os.path.split(path)
        around = [each for each in self._folders if path.startswith(each.rstrip("/") + "/")]
        if not around or not name:
            return FileLocation(folder, name, readable=False)
        base = _base_folder(max(around, key=len), folder)
        if base is None:
            return FileLocation(folder, name, readable=False)
        return FileLocation(base, os.path.relpath(path, base), readable=True)

    def tree(self, location: FileLocation) -> SourceTree:
        """The files around a location, open texts first; each is read once, so use it for one request or one round of checks."""
        prefix = location.base.rstrip("/") + "/"
        texts = {key.removeprefix(prefix): held.data for key, held in self._open.items() if key.startswith(prefix)}
        if not location.readable:
            texts = {path: data for path, data in texts.items() if path == location.path}
        disk: SourceTree = FolderTree(location.base, confined=True) if location.readable else MemoryTree({})
        return _OpenFilesTree(disk, texts)

    def uri(self, location: FileLocation, path: str) -> str:
        """The address of a path of the tree around a location; that of the client if the file is open."""
        place = os.path.normpath(f"{location.base}/{path}")
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


def _base_folder(workspace: str, folder: str) -> str | None:
    """The innermost repository around a folder, else the folder of the workspace; None if the path has a link."""
    base = place = workspace
    below = os.path.relpath(folder, workspace)
    for name in () if below == "." else below.split("/"):
        place = f"{place.rstrip('/')}/{name}"
        try:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                return None
        except FileNotFoundError:
            # A folder that does not exist yet: there can be open texts below it, but no files.
            break
        except OSError:
            return None
        if os.path.lexists(f"{place}/.git"):
            base = place
    return base


class _OpenFilesTree:
    """A tree with open texts over the files of the disk; each file is read once."""

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
