"""Which files and folders are as an index records them: by their stamps where these can be trusted, else by reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.config.index import GraphRecord, Index
from gitops.config.reader import SourceFile, SourceReader
from gitops.config.source import EntryKind, SourceError, SourceTree, StampedTree, listing_digest, parents

__all__ = ["RecordedTree"]


class RecordedTree:
    """An index, compared with the folder as it is now. `stale` counts the files and folders that had to be looked at."""

    def __init__(self, tree: StampedTree, index: Index) -> None:
        """Compare all stamps, and list the folders that these do not vouch for. No file is read."""
        files, folders = index.files, index.folders
        self._index = index
        self._stale_files = set(_differing(tree.stamps(files.places, EntryKind.FILE), files.stamps))
        self._changed_files = self._stale_files
        self._changed_folders: set[int] = set()
        self._gone: set[str] = set()
        self._positions: dict[str, int] | None = None
        self.stale = len(self._stale_files)
        for position in _differing(tree.stamps(folders.places, EntryKind.DIR), folders.stamps):
            self.stale += 1
            recorded = folders.listings[position]
            now = _listing(tree, folders.places[position], recorded)
            if now is None:
                self._gone.add(folders.places[position])
            if now != recorded:
                self._changed_folders.add(position)

    def compare_files(self, reader: SourceReader) -> None:
        """Read the files that their stamps do not vouch for: those with the recorded content count as unchanged."""
        files = self._index.files
        self._changed_files = {
            position
            for position in self._stale_files
            if not isinstance(found := reader.read(files.places[position]), SourceFile)
            or found.broken is not None
            or found.digest != files.digests[position]
        }

    def facts(self, place: str) -> tuple[str, int] | None:
        """Digest and size of the file at a normalized path, if its stamp and the folders above it are as recorded."""
        files = self._index.files
        if self._positions is None:
            self._positions = {each: position for position, each in enumerate(files.places)}
        position = self._positions.get(place)
        if position is None or position in self._stale_files:
            return None
        if self._gone and not self._gone.isdisjoint(parents(place)):
            return None
        return files.digests[position], files.sizes[position]

    def is_unchanged(self, record: GraphRecord) -> bool:
        """Whether all files and folders of a graph are as recorded."""
        return self._changed_files.isdisjoint(record.files) and self._changed_folders.isdisjoint(record.folders)


def _differing(now: Sequence[str | None], recorded: Sequence[str | None]) -> Iterator[int]:
    """Positions at which a stamp does not prove that nothing changed."""
    if now != recorded or None in recorded:
        for position, (one, other) in enumerate(zip(now, recorded, strict=True)):
            if one is None or one != other:
                yield position


def _listing(tree: SourceTree, place: str, recorded: str) -> str | None:
    """The listing of a folder now, empty if it was only passed through; None if it is not a folder, or is refused."""
    try:
        if recorded:
            return listing_digest(tree.names(place))
        return "" if tree.kind(place) is EntryKind.DIR else None
    except SourceError:
        return None
