"""Reads, compares and writes trees level by level, without an index or a work tree.

The comparison skips subtrees with equal ids, so one changed file among 100,000 takes as many reads as its path is deep,
while libgit2's own diff walks the complete tree. There is no recursion, so a hostile tree of any depth only takes time,
which is limited by the number of visited entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import field
from itertools import islice
from typing import Generic, TypeVar

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.objects import RawEntry, format_level, is_folder, parse_tree, raw_entry, tree_level
from gitops.git.port import EntryType, MergeResult

L = TypeVar("L", bound=Sized)
ReadObject = Callable[[str, str], bytes]
"""Returns the bytes of an object, given its id and expected kind (`tree`, `blob`, `commit`)."""

MAX_VISITED = 1_000_000
_MAX_PATH = 4096
_MAX_HELD = 20_000
_MAX_WRITE_DEPTH = 64
_MODE_FILE = 0o100644
_MODE_TREE = 0o040000


def split_path(path: str) -> tuple[str, ...] | None:
    """Split a relative path into its parts (none for `.`). Return None if it cannot be a path inside a tree."""
    if path == ".":
        return ()
    parts = tuple(path.split("/"))
    return None if any(part in ("", ".", "..") or "\0" in part for part in parts) else parts


class RecentTrees(Generic[L]):
    """Cache of recently read tree levels by id. An id always has the same content. For one thread."""

    def __init__(self, read: Callable[[str], L]) -> None:
        """`read` returns one level of a tree, given the tree's id."""
        self._read = read
        self._known: OrderedDict[str, L] = OrderedDict()
        self._held = 0

    def level(self, tree_id: str) -> L:
        """Return the level of a tree. Raises the same errors as `read`."""
        level = self._known.get(tree_id)
        if level is not None:
            self._known.move_to_end(tree_id)
            return level
        level = self._known[tree_id] = self._read(tree_id)
        self._held += len(level) + 1
        while self._held > _MAX_HELD and len(self._known) > 1:
            self._held -= len(self._known.popitem(last=False)[1]) + 1
        return level


class TreeLevels:
    """Finds tree entries by path and caches recently read levels. For one thread."""

    def __init__(self, read: ReadObject) -> None:
        """`read` returns the bytes of an object."""
        self._recent = RecentTrees(lambda tree_id: tree_level(tree_id, read(tree_id, "tree")))

    def find(self, tree_id: str, path: str) -> RawEntry | None:
        """Return the entry at `path`. None if it is missing, or something on the way is not a folder."""
        parts = split_path(path)
        if parts is None:
            return None
        try:
            names = [part.encode("utf-8", "surrogateescape") for part in parts]
        except UnicodeEncodeError:
            return None
        entry = RawEntry("", _MODE_TREE, tree_id)
        for name in names:
            found = self._recent.level(entry.id).get(name) if entry.type is EntryType.TREE else None
            if found is None:
                return None
            entry = raw_entry(name, *found)
        return entry


def changed_paths(read: ReadObject, old_tree: str | None, new_tree: str) -> Iterator[str]:
    """Yield the paths of differing entries, except folders, in no particular order. Links and submodules count as files.

    Raises GitopsError `source_too_large` if more than `MAX_VISITED` entries must be visited.
    """
    visited = 0
    pending: list[tuple[str, str | None, str | None]] = [("", old_tree, new_tree)]
    while pending:
        prefix, old, new = pending.pop()
        if old == new:
            continue
        before, after = _raw_level(read, old), _raw_level(read, new)
        visited += len(before) + len(after) + 1
        if visited > MAX_VISITED or len(prefix) > _MAX_PATH:
            raise GitopsError(Code.SOURCE_TOO_LARGE, "the difference of two trees is larger than any cluster")
        for raw in {name for name, _ in before.items() ^ after.items()}:
            one, other = (raw_entry(raw, *level[raw]) if raw in level else None for level in (before, after))
            # A mode can be written in two ways, with and without a leading zero.
            if one == other:
                continue
            name = raw.decode("utf-8", "surrogateescape")
            folders = _folder(one), _folder(other)
            if folders != (None, None):
                pending.append((f"{prefix}{name}/", *folders))
            if _is_leaf(one) or _is_leaf(other):
                yield prefix + name


def _raw_level(read: ReadObject, tree_id: str | None) -> Mapping[bytes, tuple[bytes, bytes]]:
    """Return one level of a tree as bytes, because few of its thousands of entries differ."""
    return {} if tree_id is None else tree_level(tree_id, read(tree_id, "tree"))


def _folder(entry: RawEntry | None) -> str | None:
    """Return the tree id of an entry, if it is a folder."""
    return entry.id if entry is not None and entry.type is EntryType.TREE else None


def _is_leaf(entry: RawEntry | None) -> bool:
    """Return True if there is an entry that is not a folder."""
    return entry is not None and entry.type is not EntryType.TREE


@dataclass(slots=True)
class _Edit:
    """Edits in one folder: new file contents (None removes), and edits in subfolders."""

    files: dict[str, bytes | None] = field(default_factory=dict)
    folders: dict[str, _Edit] = field(default_factory=dict)


class TreeWriter:
    """Writes trees that differ from a base tree in only a few files."""

    def __init__(self, read: ReadObject, write: Callable[[str, bytes], str]) -> None:
        """`write` stores an object of the given kind and returns its id."""
        self._read = read
        self._write = write

    def write(self, base_tree: str | None, files: Mapping[str, bytes | None]) -> str:
        """Write `base_tree` with `files` added or removed, without empty folders. Return the tree id.

        An entry in the way of a new folder or file is replaced. Raises GitopsError `source_name_unsafe` for a path that git
        would not check out, that is deeper than 64 folders, or that is both a file and a folder.
        """
        root = _Edit()
        for path, content in files.items():
            _add_edit(root, path, content)
        return self._apply(base_tree, root) or self._write("tree", b"")

    def _apply(self, base: str | None, edit: _Edit) -> str | None:
        """Return the id of one edited folder, or None if it is empty. Recurses as deep as the requested paths."""
        entries = {} if base is None else {e.name: e for e in parse_tree(base, self._read(base, "tree"))}
        for name, content in edit.files.items():
            if content is not None:
                entries[name] = RawEntry(name, _MODE_FILE, self._write("blob", content))
            elif _is_leaf(entries.get(name)):
                del entries[name]
        for name, inner in edit.folders.items():
            old = entries.get(name)
            tree = self._apply(_folder(old), inner)
            if tree is not None:
                entries[name] = RawEntry(name, _MODE_TREE, tree)
            elif _folder(old) is not None:
                del entries[name]
        level = {
            e.name.encode("utf-8", "surrogateescape"): (b"%o" % e.mode, bytes.fromhex(e.id)) for e in entries.values()
        }
        return self._write("tree", format_level(level)) if level else None


def _add_edit(root: _Edit, path: str, content: bytes | None) -> None:
    """Put one path into the edits."""
    parts = split_path(path)
    if not parts or len(parts) > _MAX_WRITE_DEPTH or any(part.lower() == ".git" for part in parts):
        raise GitopsError(Code.SOURCE_NAME_UNSAFE, f"{path!r} cannot be written into a tree")
    edit = root
    for part in parts[:-1]:
        if part in edit.files:
            raise GitopsError(Code.SOURCE_NAME_UNSAFE, f"{path!r} is below a file that is written too")
        edit = edit.folders.setdefault(part, _Edit())
    if parts[-1] in edit.folders:
        raise GitopsError(Code.SOURCE_NAME_UNSAFE, f"{path!r} is written as a file and as a folder")
    edit.files[parts[-1]] = content


# Merging in memory, without ever running merge drivers or filters.
#
# If the two sides changed different entries, their trees are merged level by level, which reads only the differences,
# while libgit2 creates an index of all files and writes the trees of all folders. If both changed the same entry, or if
# there is more than one best common ancestor, the engine merges: it merges texts by lines, and detects renamed files.

_MAX_MERGED = 100_000
_MAX_DEPTH = 64


def check_size(read: ReadObject, one: str, other: str) -> None:
    """Refuse a merge that would never finish. Anyone can push ten small trees that contain ten billion files."""
    if next(islice(changed_paths(read, one, other), _MAX_MERGED, None), None) is not None:
        raise GitopsError(Code.SOURCE_TOO_LARGE, f"more than {_MAX_MERGED} files differ, which is too many to merge")


def merge_apart(
    read: ReadObject, write: Callable[[str, bytes], str], base: str, ours: str, theirs: str
) -> MergeResult | None:
    """Merge what both sides changed since the tree `base`. Return None if both changed the same entry.

    This includes the case that both sides made the same change, because a file that both renamed is a conflict.
    """

    def merged(trees: tuple[str, str, str], depth: int) -> bytes | None:
        """Return one level of the result; empty if nothing is left."""
        before, mine, other = (tree_level(tree, read(tree, "tree")) for tree in trees)
        level = dict(mine)
        for name in {name for name, _ in before.items() ^ other.items()}:
            found = before.get(name), mine.get(name), other.get(name)
            if found[0] == found[1]:
                inner = found[2]
            else:
                folders = [entry[1].hex() for entry in found if entry is not None and is_folder(entry[0])]
                # `check_size` skips changes that both sides made in the same way, so don't look inside them.
                if found[1] == found[2] or len(folders) < len(found) or depth == _MAX_DEPTH:
                    return None
                content = merged((folders[0], folders[1], folders[2]), depth + 1)
                if content is None:
                    return None
                inner = (b"40000", bytes.fromhex(write("tree", content))) if content else None
            if inner is None:
                level.pop(name, None)
            else:
                level[name] = inner
        return format_level(level)

    content = merged((base, ours, theirs), 0)
    return None if content is None else MergeResult(write("tree", content))
