"""Merging in memory. No merge driver and no filter is ever run.

Where the two sides changed different entries, their trees are merged level by level: that reads what differs, where libgit2
makes an index of all files and writes the trees of all folders. Where both changed the same entry, or have more than one best
common ancestor, libgit2 decides: it merges texts by lines, and finds files that were renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pygit2
from pygit2.enums import SortMode

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.objects import format_level, is_folder, tree_level
from gitops.git.port import MergeResult
from gitops.git.trees import ReadObject, changed_paths

__all__ = ["check_size", "is_parted_once", "merge_apart", "merged_index"]

_MAX_MERGED = 100_000
_MAX_DEPTH = 64
_MAX_WALKED = 10_000


def check_size(read: ReadObject, one: str, other: str) -> None:
    """Refuse a merge that would never end: ten small trees, which any person can push, can hold ten billion files."""
    if next(islice(changed_paths(read, one, other), _MAX_MERGED, None), None) is not None:
        raise GitopsError(Code.SOURCE_TOO_LARGE, f"more than {_MAX_MERGED} files differ, which is too much to merge")


def is_parted_once(repo: pygit2.Repository, base: str, one: str, other: str) -> bool:
    """Whether `base`, a best common ancestor of two commits, is the only one; False if that would take long to find out."""
    sides = []
    for head in (one, other):
        walker = repo.walk(head, SortMode.NONE)
        walker.hide(base)
        sides.append({commit.id for commit in islice(walker, _MAX_WALKED)})
    # A second one is reachable from both, and not from the first.
    return all(len(side) < _MAX_WALKED for side in sides) and sides[0].isdisjoint(sides[1])


def merge_apart(
    read: ReadObject, write: Callable[[str, bytes], str], base: str, ours: str, theirs: str
) -> MergeResult | None:
    """The tree with the changes of both sides since the tree `base`; None where both changed the same entry.

    Two sides that made the same change count as that, too: one file that both renamed is a conflict.
    """

    def merged(trees: tuple[str, str, str], depth: int) -> bytes | None:
        """One level of the result; empty where nothing is left."""
        before, mine, other = (tree_level(tree, read(tree, "tree")) for tree in trees)
        level = dict(mine)
        for name in {name for name, _ in before.items() ^ other.items()}:
            found = before.get(name), mine.get(name), other.get(name)
            if found[0] == found[1]:
                inner = found[2]
            else:
                folders = [entry[1].hex() for entry in found if entry is not None and is_folder(entry[0])]
                # What both sides changed alike was not looked at by `check_size`, so it is not entered.
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


def merged_index(repo: pygit2.Repository, index: pygit2.Index) -> MergeResult:
    """The tree of a merge by libgit2, or its conflicts."""
    if index.conflicts is not None:
        sides = (side for conflict in index.conflicts for side in conflict)
        return MergeResult(None, tuple(sorted({side.path for side in sides if side is not None})))
    return MergeResult(str(index.write_tree(repo)))
