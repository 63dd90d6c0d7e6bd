"""A cluster folder at a commit as a SourceTree, read from git objects without a checkout."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

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
from gitops.git.port import EntryType, GitReader, TreeEntry

_REFUSED = {EntryType.SYMLINK: Code.SOURCE_SYMLINK, EntryType.SUBMODULE: Code.SOURCE_SUBMODULE}


class CommitTree:
    """The files in a git tree. It is always confined, because a change request chooses the paths."""

    def __init__(
        self, reader: GitReader, tree_id: str, *, root: str | None = None, limits: SourceLimits | None = None
    ) -> None:
        """`tree_id` is the tree of the cluster folder. `root` is its name in messages (default: the tree id)."""
        self._reader = reader
        self._tree = tree_id
        self._root = root or tree_id
        self._meter = Meter(limits)
        self._levels: dict[str, dict[str, TreeEntry]] = {}

    @property
    def root(self) -> str:
        """The display name, or the tree id if it has none."""
        return self._root

    @property
    def identity(self) -> str:
        """The same identity for all commits, because stamps are content ids."""
        return f"commits {self._root}"

    @property
    def limits(self) -> SourceLimits:
        """The given limits."""
        return self._meter.limits

    def stamps(self, places: Iterable[str], kind: PathKind) -> list[str | None]:
        """Return the ids of blobs and trees. If a tree's id is the same, everything below it is unchanged."""
        found: list[str | None] = []
        for place in places:
            entry = None
            with contextlib.suppress(SourceError):
                entry = self._find(place) if self.kind(place) is kind else None
            found.append(None if entry is None else entry.id)
        return found

    def object_id(self, place: str) -> str | None:
        """Return kind and id of the blob or tree at a normalized path."""
        try:
            entry = self._find(place)
        except SourceError:
            return None
        return None if entry is None else f"{entry.type} {entry.id}"

    def reopened(self) -> CommitTree:
        """Return the same tree."""
        return CommitTree(self._reader, self._tree, root=self._root, limits=self._meter.limits)

    def kind(self, path: str) -> PathKind:
        """Return the kind of the object at `path`."""
        entry = self._find(normalize(path, confined=True))
        if entry is None:
            return PathKind.ABSENT
        return PathKind.DIR if entry.type is EntryType.TREE else PathKind.FILE

    def read(self, path: str) -> bytes:
        """Return the content of the regular file at `path`."""
        place = normalize(path, confined=True)
        entry = self._find(place)
        if entry is None:
            raise SourceError(Code.SOURCE_MISSING, f"{place} does not exist", path=place)
        if entry.type is EntryType.TREE:
            raise folder_for_file(place)
        # The size is known before the content is loaded.
        self._meter.admit(place, self._reader.size(entry.id))
        data = self._reader.read(self._tree, place)
        if data is None:
            raise SourceError(Code.SOURCE_UNREADABLE, f"{place} cannot be read as a file", path=place)
        return data

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in the folder at `path`."""
        place = normalize(path, confined=True)
        entry = self._find(place)
        if entry is None:
            raise SourceError(Code.SOURCE_MISSING, f"{place} does not exist", path=place)
        if entry.type is not EntryType.TREE:
            raise SourceError(Code.SOURCE_UNREADABLE, f"{place} is not a folder", path=place)
        return checked_listing(place, self._level(entry.id), self._meter.limits)

    def _find(self, place: str) -> TreeEntry | None:
        """Return the entry at a normalized path. Refuses links and submodules anywhere in the path."""
        entry = TreeEntry(".", EntryType.TREE, self._tree)
        if place == ".":
            return entry
        for name in place.split("/"):
            if entry.type is not EntryType.TREE:
                return None
            found = self._level(entry.id).get(name)
            if found is None:
                return None
            if found.type in _REFUSED:
                what = "symbolic link" if found.type is EntryType.SYMLINK else "submodule"
                raise SourceError(_REFUSED[found.type], f"{shown_part(name, place)} is a {what}", path=place)
            entry = found
        return entry

    def _level(self, tree_id: str) -> dict[str, TreeEntry]:
        level = self._levels.get(tree_id)
        if level is None:
            entries = self._reader.entries(tree_id)
            level = self._levels[tree_id] = {e.name: e for e in entries}
            if len(level) != len(entries):
                raise SourceError(Code.SOURCE_NAME_UNSAFE, f"tree {tree_id} has a name twice", path=".")
        return level
