"""Law: to know an accepted folder changes how much of another one is looked at, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.config.sound import ComparedFolder, FolderDifference, require_plain
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import EntryType, TreeEntry
from tests.support.effort import cases

LINK, SUBMODULE = "link", "submodule"
_names = st.sampled_from(["a", "b", "A", "c", "a:b", "ok.gq"])
_plain_names = st.sampled_from(["a", "b", "c", "d"])
Folder = dict[str, Any]


def _folders(names: st.SearchStrategy[str], leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Folder]:
    below = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
    return st.dictionaries(names, below, max_size=4)


_files = st.integers(0, 3)
_old = _folders(_plain_names, _files)
_any = _folders(_names, _files | st.sampled_from([LINK, SUBMODULE]))


class Trees:
    """A GitReader with trees alone; `looked_at` are those that were listed."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[TreeEntry, ...]] = {}
        self.looked_at: list[str] = []

    def add(self, folder: Folder) -> str:
        entries = []
        for name, value in folder.items():
            if isinstance(value, dict):
                entries.append(TreeEntry(name, EntryType.TREE, self.add(value)))
            elif isinstance(value, str):
                kind = EntryType.SYMLINK if value == LINK else EntryType.SUBMODULE
                entries.append(TreeEntry(name, kind, "0" * 40))
            else:
                entries.append(TreeEntry(name, EntryType.FILE, f"{value:040}"))
        found = tuple(entries)
        tree = hashlib.sha1(repr(found).encode()).hexdigest()  # noqa: S324 - an id, as git makes it
        self.known[tree] = found
        return tree

    def entries(self, tree: str) -> tuple[TreeEntry, ...]:
        self.looked_at.append(tree)
        if tree not in self.known:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"no tree {tree}")
        return self.known[tree]


def verdict(trees: Any, tree: str, known: Any = None) -> str:
    try:
        return require_plain(trees, tree, "cluster", known).plain.tree
    except GitopsError as error:
        return f"{error.code}: {error.detail}"


@settings(max_examples=cases(300))
@given(old=_old, new=_any, merged=st.booleans(), gone=st.booleans())
def test_a_known_folder_changes_no_verdict(old: Folder, new: Folder, merged: bool, gone: bool) -> None:
    trees: Any = Trees()
    before = require_plain(trees, trees.add(old), "cluster").plain
    after = trees.add({**old, **new} if merged else new)
    if gone:
        # The commit that was applied is not in this clone.
        trees.known.pop(before.tree) if before.tree != after else None
    assert verdict(trees, after, before) == verdict(trees, after)
    assert verdict(trees, after, before._replace(folders=20_000)) == verdict(trees, after)


def test_only_what_differs_is_looked_at() -> None:
    trees: Any = Trees()
    old: Folder = {f"g{n}": {"queries": {"q.gq": n % 4}, "schema.pg": n} for n in range(50)}
    before = require_plain(trees, trees.add(old), "cluster").plain
    assert before.folders == 1 + 50 + 4
    trees.looked_at.clear()
    changed: Folder = {**old, "g7": {"queries": {"q.gq": 9}, "schema.pg": 1}}
    after, found = require_plain(trees, trees.add(changed), "cluster", before)
    # The folder, the graph and its queries, as they were and as they are.
    assert len(trees.looked_at) == 6
    assert after.folders == before.folders + 3
    trees.looked_at.clear()
    assert found == FolderDifference(
        frozenset({"g7", "g7/queries", "g7/queries/q.gq", "g7/schema.pg"}),
        frozenset({"g7/queries/q.gq", "g7/schema.pg"}),
    )
    again = require_plain(trees, after.tree, "cluster", after)
    assert again == ComparedFolder(after, FolderDifference(frozenset(), frozenset()))
    assert trees.looked_at == []


def _at(folder: Folder, place: str) -> Any:
    found: Any = folder
    for name in () if place == "." else place.split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _places(folder: Folder) -> set[str]:
    below = {f"{name}/{place}" for name, value in folder.items() if isinstance(value, dict) for place in _places(value)}
    return {".", *folder, *(place.removesuffix("/.") for place in below)}


@settings(max_examples=cases(300))
@given(old=_old, new=_old, merged=st.booleans())
def test_each_place_that_differs_is_covered(old: Folder, new: Folder, merged: bool) -> None:
    trees: Any = Trees()
    new = {**old, **new} if merged else new
    before = require_plain(trees, trees.add(old), "cluster").plain
    found = require_plain(trees, trees.add(new), "cluster", before).difference
    assert found is not None
    for place in _places(old) | _places(new):
        assert found.covers(place) or _at(old, place) == _at(new, place)
    assert found.covers(".") == (trees.add(old) != trees.add(new))
