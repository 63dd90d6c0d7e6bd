"""Law: to know an accepted folder changes how much of another one is looked at, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.folders import require_plain
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
        return require_plain(trees, tree, "cluster", known).tree
    except GitopsError as error:
        return f"{error.code}: {error.detail}"


@settings(max_examples=cases(300))
@given(old=_old, new=_any, merged=st.booleans(), gone=st.booleans())
def test_a_known_folder_changes_no_verdict(old: Folder, new: Folder, merged: bool, gone: bool) -> None:
    trees: Any = Trees()
    before = require_plain(trees, trees.add(old), "cluster")
    after = trees.add({**old, **new} if merged else new)
    if gone:
        # The commit that was applied is not in this clone.
        trees.known.pop(before.tree) if before.tree != after else None
    assert verdict(trees, after, before) == verdict(trees, after)
    assert verdict(trees, after, before._replace(folders=20_000)) == verdict(trees, after)


def test_only_what_differs_is_looked_at() -> None:
    trees: Any = Trees()
    old: Folder = {f"g{n}": {"queries": {"q.gq": n % 4}, "schema.pg": n} for n in range(50)}
    before = require_plain(trees, trees.add(old), "cluster")
    assert before.folders == 1 + 50 + 4
    trees.looked_at.clear()
    after = require_plain(trees, trees.add({**old, "g7": {"queries": {"q.gq": 9}, "schema.pg": 1}}), "cluster", before)
    # The folder, the graph and its queries, as they were and as they are.
    assert len(trees.looked_at) == 6
    assert after.folders == before.folders + 3
    trees.looked_at.clear()
    assert require_plain(trees, after.tree, "cluster", after) == after
    assert trees.looked_at == []
