"""Trees of a GitReader and GitStore against what the git program says about the same repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import EntryType
from gitops.git.repository import GitRepository
from tests.support.git_fixture import bare, opened, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return bare(tmp_path / "store.git")


@pytest.fixture
def store(path: Path) -> GitRepository:
    return opened(path)


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    return run("git", f"--git-dir={path}", *arguments, home=path.parent, stdin=stdin)


def raw_tree(path: Path, *rows: tuple[str, str, str]) -> str:
    """A tree object of any content: mode, name and id per row."""
    data = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(object_id) for mode, name, object_id in rows)
    return git(path, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=data)


def test_trees_are_those_of_git(path: Path, store: GitRepository) -> None:
    files = {"b.txt": b"1", "a/x": b"2", "a/y/z": b"3", "a.b": b"4", "a0": b"5", "ü": b""}
    tree = store.write_files(None, files)
    listed = git(path, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", tree).splitlines()
    assert sorted(listed) == sorted(files)
    assert git(path, "fsck", "--strict", "--no-dangling") == ""
    assert [(e.name, e.type) for e in store.entries(tree)] == [
        ("a.b", EntryType.FILE),
        ("a", EntryType.TREE),
        ("a0", EntryType.FILE),
        ("b.txt", EntryType.FILE),
        ("ü", EntryType.FILE),
    ]
    assert [store.size(e.id) for e in store.entries(tree) if e.type is EntryType.FILE] == [1, 1, 1, 0]
    assert {name: store.read(tree, name) for name in files} == files


def test_a_folder_is_listed_without_a_look_at_its_files(path: Path, store: GitRepository) -> None:
    tree = raw_tree(path, ("100644", "gone", "1" * 40))
    (entry,) = store.entries(tree)
    assert (entry.name, entry.id) == ("gone", "1" * 40)
    with pytest.raises(GitopsError, match="1111"):
        store.size(entry.id)


def test_edits_keep_the_rest_and_drop_empty_folders(store: GitRepository) -> None:
    tree = store.write_files(None, {"a/b/c": b"1", "d": b"2", "e/f": b"3"})
    assert store.write_files(tree, {"a/b/c": None, "e/f": b"4"}) == store.write_files(None, {"d": b"2", "e/f": b"4"})
    assert store.write_files(tree, {"a": None, "nothing/here": None}) == tree
    assert store.write_files(tree, {"d/g": b"5", "a/b": b"6"}) == store.write_files(
        None, {"a/b": b"6", "d/g": b"5", "e/f": b"3"}
    )
    assert store.write_files(tree, {"a/b/c": None, "d": None, "e/f": None}) == store.write_files(None, {})


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/a", "a/", "a//b", "a/../b", ".git/x", "a/.GIT", "a\0b", "x/" * 64 + "x"]
)
def test_unsafe_paths_are_not_written(store: GitRepository, name: str) -> None:
    with pytest.raises(GitopsError) as caught:
        store.write_files(None, {name: b""})
    assert caught.value.code == "source_name_unsafe"


def test_a_path_is_not_both_file_and_folder(store: GitRepository) -> None:
    for files in ({"a": b"", "a/b": b""}, {"a/b": b"", "a": b""}):
        with pytest.raises(GitopsError):
            store.write_files(None, files)


def test_links_and_submodules_are_never_followed(path: Path, store: GitRepository) -> None:
    inner = store.write_files(None, {"f": b"secret"})
    blob = store.entries(inner)[0].id
    link = git(path, "hash-object", "-w", "--stdin", stdin=b"real")
    tree = raw_tree(
        path, ("120000", "link", link), ("40000", "real", inner), ("160000", "sub", "1" * 40), ("100755", "x", blob)
    )
    kinds = [EntryType.SYMLINK, EntryType.TREE, EntryType.SUBMODULE, EntryType.FILE]
    assert [e.type for e in store.entries(tree)] == kinds
    assert store.read(tree, "real/f") == store.read(tree, "x") == b"secret"
    for name in ("link", "link/f", "sub", "sub/f", "real", ".", "real/../x", "none", "x/f", ""):
        assert store.read(tree, name) is None
    assert store.subtree(tree, "real") == inner
    assert store.subtree(tree, ".") == tree
    assert [store.subtree(tree, name) for name in ("link", "sub", "x", "none", "../x")] == [None] * 5
    assert store.changed_paths(None, tree) == ("link", "real/f", "sub", "x")


def test_malformed_trees_are_refused(path: Path, store: GitRepository) -> None:
    blob = store.entries(store.write_files(None, {"f": b""}))[0].id
    for rows in (
        [("100644", "a", blob), ("100644", "a", blob)],
        [("100644", "a/b", blob)],
        [("100644", "", blob)],
        [("9", "a", blob)],
    ):
        with pytest.raises(IntegrityError):
            store.entries(raw_tree(path, *rows))


def test_a_deep_tree_exhausts_nothing(path: Path, store: GitRepository) -> None:
    tree = store.write_files(None, {"f": b""})
    for _ in range(2100):
        tree = store._write("tree", b"40000 d\0" + bytes.fromhex(tree))
    with pytest.raises(GitopsError) as caught:
        store.changed_paths(None, tree)
    assert caught.value.code == "source_too_large"
    assert store.read(tree, "d/" * 2100 + "f") == b""


def test_a_tree_bomb_is_bounded(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.git.trees.MAX_VISITED", 5000)
    tree = store.write_files(None, {str(n): b"" for n in range(10)})
    for _ in range(10):
        tree = store._write("tree", b"".join(b"40000 %d\0" % n + bytes.fromhex(tree) for n in range(10)))
    with pytest.raises(GitopsError) as caught:
        store.changed_paths(None, tree)
    assert caught.value.code == "source_too_large"


def test_changed_paths_are_those_of_git(path: Path, store: GitRepository) -> None:
    old = store.write_files(None, {"same/a": b"1", "mod": b"1", "gone/x/y": b"1", "swap": b"1", "turn/a": b"1"})
    new = store.write_files(None, {"same/a": b"1", "mod": b"2", "swap/in": b"1", "turn": b"2", "new": b"3"})
    listed = git(path, "diff-tree", "-r", "--no-renames", "--name-only", old, new).splitlines()
    assert list(store.changed_paths(old, new)) == sorted(listed)
    assert store.changed_paths(old, old) == ()
    assert store.changed_paths(new, old) == store.changed_paths(old, new)
