"""Laws of merging: level by level as by libgit2's merge of all files, whatever the sides and the history are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gitops.git import trees as git_trees
from gitops.git.port import NewCommit
from gitops.git.repository import GitRepository
from tests.support.effort import cases
from tests.support.git_fixture import ALICE, bare, commit, opened

NAMES = st.sampled_from(["a", "b", "a.b", "a0", "z"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
# Long enough to be found again under another name, also after an edit.
TEXTS = st.builds(
    lambda word, n: b"".join(b"%b %d\n" % (word, line) for line in range(20 + n)),
    st.sampled_from([b"x", b"y"]),
    st.integers(0, 2),
)
FILES = st.dictionaries(PATHS, TEXTS, max_size=6)
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def store() -> Iterator[GitRepository]:
    with tempfile.TemporaryDirectory() as folder:
        yield opened(bare(Path(folder) / "laws.git"))


def consistent(files: Files) -> Files:
    """Without the files below another file."""
    return {p: c for p, c in files.items() if not any(p.startswith(f"{q}/") for q in files)}


@st.composite
def edited(draw: st.DrawFn, files: Files) -> Files:
    """Files after some were removed, renamed, changed or added."""
    found = dict(files)
    for _ in range(draw(st.integers(0, 3))):
        old = draw(st.sampled_from(sorted(found))) if found else None
        kind = draw(st.sampled_from(["add", "remove", "rename", "change"]))
        content = found.pop(old) if old is not None and kind in ("remove", "rename") else draw(TEXTS)
        if kind in ("add", "rename"):
            found[draw(PATHS)] = content
        elif kind == "change" and old is not None:
            found[old] = content
    return consistent(found)


@given(data=st.data(), files=FILES.map(consistent))
@settings(max_examples=cases(600))
def test_sides_that_differ_elsewhere_are_merged_as_by_libgit2(
    store: GitRepository, data: st.DataObject, files: Files
) -> None:
    ours, theirs = data.draw(edited(files)), data.draw(edited(files))
    base, one, other = (store.write_files(None, each) for each in (files, ours, theirs))
    apart = git_trees.merge_apart(store._read, store._write, base, one, other)
    event(f"apart: {apart is not None}")
    trees = (store._repo[tree] for tree in (base, one, other))
    whole = git_trees.merged_index(store._repo, store._repo.merge_trees(*trees))
    assert apart in (None, whole)
    if not {p for p in files.keys() | ours.keys() if files.get(p) != ours.get(p)}:
        assert apart is not None


@given(data=st.data())
@settings(max_examples=cases(600))
def test_a_merge_of_any_history_is_that_of_libgit2(store: GitRepository, data: st.DataObject) -> None:
    """Also of a history in which two commits have several best common ancestors."""
    heads = [commit(store, data.draw(FILES.map(consistent)))]
    for _ in range(data.draw(st.integers(1, 6))):
        parents = data.draw(st.lists(st.sampled_from(heads), min_size=1, max_size=2, unique=True))
        before = store.commit(parents[0]).tree
        files = {path: store.read(before, path) or b"" for path in store.changed_paths(None, before)}
        tree = store.write_files(None, data.draw(edited(files)))
        new = NewCommit(tree, tuple(parents), ALICE, f"commit {len(heads)}\n")
        heads.append(store.write_commit(new, signing_key=None))
    ours, theirs = data.draw(st.sampled_from(heads)), data.draw(st.sampled_from(heads))
    repo = store._repo
    base = store.merge_base(ours, theirs)
    if base in (ours, theirs):
        return
    assert base is not None
    event(f"parted once: {git_trees.is_parted_once(repo, base, ours, theirs)}")
    assert store.merge(ours, theirs) == git_trees.merged_index(repo, repo.merge_commits(ours, theirs))


def test_two_best_common_ancestors_are_left_to_libgit2(store: GitRepository) -> None:
    start = commit(store, {"f": b"old\n", "g": b"1\n"})
    changed, other = commit(store, {"f": b"new\n"}, start), commit(store, {"g": b"2\n"}, start)
    kept = commit(store, {"f": b"old\n", "g": b"2\n"}, changed, other)
    taken = commit(store, {"f": b"new\n"}, other, changed)
    repo = store._repo
    assert not any(git_trees.is_parted_once(repo, base, kept, taken) for base in (changed, other))
    assert git_trees.is_parted_once(repo, start, changed, other)
    merged = store.merge(kept, taken)
    assert merged == git_trees.merged_index(repo, repo.merge_commits(kept, taken))
    # With either of the two as its base, one of the two ways would bring the new text back.
    assert merged.tree == store.commit(kept).tree
