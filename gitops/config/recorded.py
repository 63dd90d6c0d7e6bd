"""Which files and folders are what an index says: by their stamps where these can be trusted, else by reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from gitops.config.index import FileColumns, FolderColumns
from gitops.config.source import EntryKind, SourceError, SourceTree, StampedTree, normalize, query_files
from gitops.core.canonical import digest

__all__ = ["FileFacts", "Files", "Folders", "OnceTree", "SourceMovedError", "listing_digest", "parents"]


class SourceMovedError(Exception):
    """A file is not any more what it was when the load began: load again, without what is remembered."""


class FileFacts(NamedTuple):
    """A readable file: its normalized path, the digest of its content, its size in bytes."""

    place: str
    digest: str
    size: int


class OnceTree:
    """A tree of which each file is read once, whoever asks, so that it is counted once."""

    def __init__(self, tree: SourceTree) -> None:
        """Nothing is read yet."""
        self._tree = tree
        self._read: dict[str, bytes] = {}

    @property
    def root(self) -> str:
        """As the tree says."""
        return self._tree.root

    def read(self, path: str) -> bytes:
        """As the tree says, the first time."""
        if path not in self._read:
            self._read[path] = self._tree.read(path)
        return self._read[path]

    def kind(self, path: str) -> EntryKind:
        """As the tree says."""
        return self._tree.kind(path)

    def names(self, path: str) -> tuple[str, ...]:
        """As the tree says."""
        return self._tree.names(path)


class Files:
    """The files of an index, and others. `changed` are the positions of those that are not what they were."""

    def __init__(self, stamped: StampedTree, once: OnceTree, columns: FileColumns, gone: AbstractSet[str]) -> None:
        """Ask for all stamps, and read what these do not vouch for; nothing below a folder that is `gone` is vouched for."""
        self._once = once
        self._gone = gone
        self._columns = columns
        self._facts: dict[str, FileFacts | None] = {}
        self._recorded: dict[str, int] | None = None
        self.stale = 0
        self.changed: set[int] = set()
        for position in _differing(stamped.stamps(columns.places, EntryKind.FILE), columns.stamps):
            self.stale += 1
            found = self._reread(columns.places[position])
            if found is None or found.digest != columns.digests[position]:
                self.changed.add(position)

    def look(self, path: str) -> FileFacts | None:
        """The file at a path as written, read only if it is new or changed; None if it is no readable UTF-8 text."""
        try:
            place = normalize(path, confined=False)
        except SourceError:
            return None
        if place in self._facts:
            return self._facts[place]
        position = self._position(place)
        if position is None or (self._gone and not self._gone.isdisjoint(parents(place))):
            return self._reread(place)
        columns = self._columns
        return FileFacts(place, columns.digests[position], columns.sizes[position])

    def content(self, file: FileFacts) -> bytes | None:
        """The bytes of a file that was looked at; None if it is not any more what it was then."""
        try:
            data = self._once.read(file.place)
        except SourceError:
            return None
        return data if digest(data) == file.digest else None

    def reader(self, path: str, wanted: str) -> Callable[[], bytes]:
        """How to get the bytes at a path as written; that raises SourceMovedError if their digest is not the wanted one."""

        def read() -> bytes:
            try:
                data = self._once.read(normalize(path, confined=False))
            except SourceError:
                raise SourceMovedError from None
            if digest(data) != wanted:
                raise SourceMovedError
            return data

        return read

    def _position(self, place: str) -> int | None:
        """Where an unchanged file is in the columns."""
        if self._recorded is None:
            self._recorded = {each: position for position, each in enumerate(self._columns.places)}
        return self._recorded.get(place)

    def _reread(self, place: str) -> FileFacts | None:
        try:
            data = self._once.read(place)
            data.decode()
        except (SourceError, UnicodeDecodeError):
            self._facts[place] = None
            return None
        found = self._facts[place] = FileFacts(place, digest(data), len(data))
        return found


class Folders:
    """The folders of an index.

    `changed` are the positions of those with other query files, or that cannot be gone through now; `gone` are the latter.
    """

    def __init__(self, stamped: StampedTree, columns: FolderColumns) -> None:
        """Ask for all stamps, and list what these do not vouch for."""
        self.stale = 0
        self.changed: set[int] = set()
        self.gone: set[str] = set()
        for position in _differing(stamped.stamps(columns.places, EntryKind.DIR), columns.stamps):
            self.stale += 1
            place = columns.places[position]
            now = _listing(stamped, place, columns.listings[position])
            if now is None:
                self.gone.add(place)
            if now != columns.listings[position]:
                self.changed.add(position)


def listing_digest(names: Sequence[str]) -> str:
    """Digest of the query files among the names in a folder."""
    return digest("\0".join(query_files(names)).encode("utf-8", "surrogatepass"))


def parents(place: str) -> Iterator[str]:
    """The folders that a normalized path leads through, without the cluster folder itself and the root of the system."""
    above = place.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def _differing(now: Sequence[str | None], recorded: Sequence[str | None]) -> Iterator[int]:
    """Positions at which a stamp does not say that nothing changed."""
    if now != recorded or None in recorded:
        for position, (one, other) in enumerate(zip(now, recorded, strict=True)):
            if one is None or one != other:
                yield position


def _listing(tree: SourceTree, place: str, recorded: str) -> str | None:
    """The listing of a folder now, empty if it was only passed through; None if it is no folder, or is refused."""
    try:
        if recorded:
            return listing_digest(tree.names(place))
        return "" if tree.kind(place) is EntryKind.DIR else None
    except SourceError:
        return None
