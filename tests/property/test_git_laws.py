"""Laws of the git driver: history against plain reachability, trees against plain dictionaries, merges as by libgit2."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gitops.git import trees as git_trees
from gitops.git.objects import format_commit, is_ref, parse_commit, read_commit, with_signature
from gitops.git.port import NewCommit, Person
from gitops.git.repository import GitRepository
from tests.support.effort import cases
from tests.support.git_fixture import ALICE, bare, commit, opened, run

NAMES = st.sampled_from(["a", "b", "a.b", "a0", "ü", "z"])
FILES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=3), max_size=6)


@pytest.fixture(scope="module")
def store() -> Iterator[GitRepository]:
    with tempfile.TemporaryDirectory() as folder:
        yield opened(bare(Path(folder) / "laws.git"))


def consistent(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the files below another file."""
    return {p: c for p, c in files.items() if not any(p.startswith(f"{q}/") for q in files)}


@given(FILES.map(consistent), FILES.map(consistent))
@settings(max_examples=cases(60))
def test_a_difference_is_exactly_what_differs(
    store: GitRepository, old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    trees = store.write_files(None, old), store.write_files(None, new)
    differing = sorted(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))
    assert list(store.changed_paths(*trees)) == differing
    assert all(store.read(trees[1], path) == new.get(path) for path in old.keys() | new.keys())


@given(FILES.map(consistent), FILES.map(consistent))
@settings(max_examples=cases(60))
def test_edits_lead_to_the_tree_of_their_result(
    store: GitRepository, old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    edits = {path: None for path in old if path not in new} | new
    edited = store.write_files(store.write_files(None, old), consistent_edits(edits))
    assert edited == store.write_files(None, new)


def consistent_edits(edits: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Writing replaces what is in the way, so a removal above or below a written path is not needed."""
    written = [path for path, content in edits.items() if content is not None]
    clash = {p for p, c in edits.items() if c is None and any(overlap(p, q) for q in written)}
    return {path: content for path, content in edits.items() if path not in clash}


def overlap(one: str, other: str) -> bool:
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


GRAPHS = st.lists(st.tuples(st.lists(st.integers(0, 11), max_size=3), st.integers(0, 9)), min_size=2, max_size=12)


@given(GRAPHS)
@settings(max_examples=cases(40))
def test_ancestry_is_reachability_whatever_the_dates(store: GitRepository, graph: list[tuple[list[int], int]]) -> None:
    tree = store.write_files(None, {})
    ids: list[str] = []
    above: list[set[str]] = []
    for number, (parents, time) in enumerate(graph):
        chosen = tuple(dict.fromkeys(ids[p] for p in parents if p < number))
        new = NewCommit(tree, chosen, Person("p", "p@x", time), f"{number} {graph}")
        ids.append(store.write_commit(new, signing_key=None))
        above.append({ids[number]}.union(*(above[ids.index(p)] for p in chosen)))
    for one, reached in zip(ids, above, strict=True):
        assert {other for other in ids if store.is_ancestor(other, one)} == reached
    between = {c.id for c in store.commits_between(ids[0], ids[-1])}
    assert between == above[-1] - above[0]
    base = store.merge_base(ids[0], ids[-1])
    common = above[-1] & above[0]
    assert (base is None) is (not common)
    assert base is None or base in common


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NAME = (
    st.text(st.characters(codec="utf-8", exclude_characters="<>\n\0"), min_size=1, max_size=9)
    .map(str.strip)
    .filter(bool)
)


@given(NAME, TEXT, st.integers(0, 2**40), st.integers(0, 3))
def test_commits_there_and_back(name: str, message: str, time: int, parents: int) -> None:
    new = NewCommit("a" * 40, tuple(str(n) * 40 for n in range(parents)), Person(name, "x@y", time), message)
    raw = format_commit(new)
    read = parse_commit("b" * 40, raw)
    assert (read.tree, read.parents, read.author, read.message) == (new.tree, new.parents, new.author, message)
    signed = read_commit(with_signature(raw, "-----BEGIN\nx\n\n-----END\n"))
    assert signed.payload() == raw
    assert signed.first(b"gpgsig") == b"-----BEGIN\nx\n\n-----END"
    assert signed.defect() == ""


@given(st.text(alphabet="ab/.@{}~^:?*[\\ -ü", max_size=8))
@settings(max_examples=cases(150))
def test_refs_are_those_of_git(store: GitRepository, rest: str) -> None:
    name = f"refs/{rest}"
    assert is_ref(name) is (
        run("git", "check-ref-format", "--normalize", name, home=Path(store.git_dir), check=False) == name
    )


MERGE_LAWS_NAMES = st.sampled_from(["a", "b", "a.b", "a0", "z"])
PATHS = st.lists(MERGE_LAWS_NAMES, min_size=1, max_size=3).map("/".join)
# Long enough to be found again under another name, also after an edit.
TEXTS = st.builds(
    lambda word, n: b"".join(b"%b %d\n" % (word, line) for line in range(20 + n)),
    st.sampled_from([b"x", b"y"]),
    st.integers(0, 2),
)
MERGE_LAWS_FILES = st.dictionaries(PATHS, TEXTS, max_size=6)
Files = dict[str, bytes]


def consistent_of_merge_laws(files: Files) -> Files:
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
    return consistent_of_merge_laws(found)


@given(data=st.data(), files=MERGE_LAWS_FILES.map(consistent_of_merge_laws))
@settings(max_examples=cases(600))
def test_sides_that_differ_elsewhere_are_merged_as_by_libgit2(
    store: GitRepository, data: st.DataObject, files: Files
) -> None:
    ours, theirs = data.draw(edited(files)), data.draw(edited(files))
    base, one, other = (store.write_files(None, each) for each in (files, ours, theirs))
    apart = git_trees.merge_apart(store._read, store._write, base, one, other)
    event(f"apart: {apart is not None}")
    whole = store._engine.merge_trees(base, one, other, favor_theirs=False)
    assert apart in (None, whole)
    if not {p for p in files.keys() | ours.keys() if files.get(p) != ours.get(p)}:
        assert apart is not None


@given(data=st.data())
@settings(max_examples=cases(600))
def test_a_merge_of_any_history_is_that_of_libgit2(store: GitRepository, data: st.DataObject) -> None:
    """Also of a history in which two commits have several best common ancestors."""
    heads = [commit(store, data.draw(MERGE_LAWS_FILES.map(consistent_of_merge_laws)))]
    for _ in range(data.draw(st.integers(1, 6))):
        parents = data.draw(st.lists(st.sampled_from(heads), min_size=1, max_size=2, unique=True))
        before = store.commit(parents[0]).tree
        files = {path: store.read(before, path) or b"" for path in store.changed_paths(None, before)}
        tree = store.write_files(None, data.draw(edited(files)))
        new = NewCommit(tree, tuple(parents), ALICE, f"commit {len(heads)}\n")
        heads.append(store.write_commit(new, signing_key=None))
    ours, theirs = data.draw(st.sampled_from(heads)), data.draw(st.sampled_from(heads))
    engine = store._engine
    base = store.merge_base(ours, theirs)
    if base in (ours, theirs):
        return
    assert base is not None
    event(f"parted once: {engine.is_only_base(base, ours, theirs)}")
    assert store.merge(ours, theirs) == engine.merge_commits(ours, theirs)


def test_two_best_common_ancestors_are_left_to_libgit2(store: GitRepository) -> None:
    start = commit(store, {"f": b"old\n", "g": b"1\n"})
    changed, other = commit(store, {"f": b"new\n"}, start), commit(store, {"g": b"2\n"}, start)
    kept = commit(store, {"f": b"old\n", "g": b"2\n"}, changed, other)
    taken = commit(store, {"f": b"new\n"}, other, changed)
    engine = store._engine
    assert not any(engine.is_only_base(base, kept, taken) for base in (changed, other))
    assert engine.is_only_base(start, changed, other)
    merged = store.merge(kept, taken)
    assert merged == engine.merge_commits(kept, taken)
    # With either of the two as its base, one of the two ways would bring the new text back.
    assert merged.tree == store.commit(kept).tree
