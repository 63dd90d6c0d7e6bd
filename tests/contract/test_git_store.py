"""GitReader and GitStore, and their trees, against what the git program says about the same repository: on every engine."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, UsageError
from gitops.git.command import Quarantine
from gitops.git.port import ZERO, EntryType, NewCommit, Person, RefUpdate
from gitops.git.repository import GitRepository
from tests.support.git_fixture import (
    ALICE,
    bare,
    branch,
    commit,
    environment,
    git_version,
    hook,
    opened,
    public_key,
    run,
    ssh_key,
)

MAIN = "refs/heads/main"


KINDS = {
    "libgit2": {},
    "git": {},
    "git, SHA-256": {"GIT_DEFAULT_HASH": "sha256"},
    "git, reftable": {"GIT_DEFAULT_REF_FORMAT": "reftable"},
}
_REFTABLE = (2, 45)


@pytest.fixture(params=KINDS, autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every repository of a test is of one kind, and is opened by the engine in its name."""
    name: str = request.param
    if "reftable" in name and git_version() < _REFTABLE:
        pytest.skip("reftables need git 2.45 or later")
    for key, value in KINDS[name].items():
        monkeypatch.setenv(key, value)
    if name == "git":
        monkeypatch.setattr("gitops.git.repository.Libgit2Engine", _no_engine)
    return name


def _no_engine(*_: object) -> NoReturn:
    raise UsageError(Code.NOT_A_REPOSITORY, "libgit2 is not used here")


@pytest.fixture
def absent(kind: str) -> str:
    """The id of an object that is nowhere."""
    return "1" * (64 if "SHA-256" in kind else 40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return bare(tmp_path / "store.git")


def test_the_repository_chooses_its_engine(kind: str, path: Path, store: GitRepository) -> None:
    assert store.engine_name == kind.partition(",")[0]
    assert len(tree_of(store, {})) == len(git(path, "mktree", "--missing"))


@pytest.fixture
def store(path: Path) -> GitRepository:
    return opened(path)


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    return run("git", f"--git-dir={path}", *arguments, home=path.parent, stdin=stdin)


def tree_of(store: GitRepository, files: dict[str, bytes]) -> str:
    return store.write_files(None, files)


def test_commits_are_those_of_git(path: Path, store: GitRepository) -> None:
    tree = tree_of(store, {"a": b"1"})
    first = store.write_commit(NewCommit(tree, (), ALICE, "first\n\nbody\n"), signing_key=None)
    person = ("-c", f"user.name={ALICE.name}")
    assert git(path, *person, "commit-tree", tree, stdin=b"first\n\nbody\n") == first
    second = store.write_commit(NewCommit(tree, (first,), Person("Ü", "u@x", 5), "second"), signing_key=None)
    read = store.commit(second)
    assert (read.tree, read.parents, read.message) == (tree, (first,), "second")
    assert read.author == read.committer == Person("Ü", "u@x", 5)
    assert git(path, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize(
    ("author", "message"),
    [
        (Person("A\ntree x", "a@x"), "m"),
        (Person("A", "a@x> 1 +0000\nparent x"), "m"),
        (Person("", "a@x"), "m"),
        (Person("A", "a@x", -1), "m"),
        (ALICE, "m\0hidden"),
    ],
)
def test_people_cannot_write_headers(store: GitRepository, author: Person, message: str) -> None:
    with pytest.raises(GitopsError) as caught:
        store.write_commit(NewCommit(tree_of(store, {}), (), author, message), signing_key=None)
    assert caught.value.code == "git_failed"


def test_a_commit_needs_its_tree_and_parents(store: GitRepository, absent: str) -> None:
    tree = tree_of(store, {})
    for new in (
        NewCommit(absent, (), ALICE, "m"),
        NewCommit(tree, (absent,), ALICE, "m"),
        NewCommit(tree, (tree,), ALICE, "m"),
    ):
        with pytest.raises(GitopsError) as caught:
            store.write_commit(new, signing_key=None)
        assert caught.value.code == "git_object_missing"


def test_a_signed_commit_is_good_to_us_and_to_git(path: Path, store: GitRepository, tmp_path: Path) -> None:
    key = ssh_key(tmp_path, "alice")
    signed = commit(store, {"a": b"1"}, signing_key=str(key))
    assert signed == commit(store, {"a": b"1"}, signing_key=str(key))
    verdict = store.signature(signed)
    assert (verdict.good, f"{verdict.key_type} {verdict.key}", verdict.namespace) == (True, public_key(key), "git")
    allowed = tmp_path / "allowed"
    allowed.write_text(f"alice {public_key(key)}\n")
    git(path, "-c", f"gpg.ssh.allowedSignersFile={allowed}", "verify-commit", signed)
    assert store.commit(signed).message == "change\n"


def test_signing_without_a_key_fails(store: GitRepository, tmp_path: Path) -> None:
    with pytest.raises(GitopsError) as caught:
        commit(store, {}, signing_key=str(tmp_path / "none"))
    assert caught.value.code == "signing_failed"


def test_revisions(path: Path, store: GitRepository, absent: str) -> None:
    one = commit(store, {"a": b"1"})
    branch(store, MAIN, one)
    git(path, "tag", "-m", "t", "v1", one)
    git(path, "tag", "-m", "t", "v2", "v1")
    git(path, "tag", "blob", store.entries(store.commit(one).tree)[0].id)
    for revision in (one, MAIN, "HEAD", "refs/tags/v1", "refs/tags/v2", store.refs("refs/tags/v2")["refs/tags/v2"]):
        assert store.resolve(revision) == one
    for revision in (
        "main",
        one[:10],
        "HEAD~0",
        f"{MAIN}^{{}}",
        "refs/tags/blob",
        "refs/none",
        absent,
        "",
        "--all",
        "refs/../HEAD",
    ):
        assert store.resolve(revision) is None


def test_an_id_of_another_format_is_a_missing_object(store: GitRepository, kind: str) -> None:
    one = commit(store, {"a": b"1"})
    other = one[:40] if "SHA-256" in kind else one + "0" * 24
    assert store.resolve(other) is None
    with pytest.raises(GitopsError) as caught:
        store.commit(other)
    assert caught.value.code == "git_object_missing"


def test_no_other_ref_is_found_in_place_of_a_missing_one(store: GitRepository) -> None:
    """Git looks in several folders for a short name, and takes the end of `x-g0123` for an id."""
    one = commit(store, {"a": b"1"})
    for name in ("refs/heads/HEAD", "refs/heads/refs/gitops/lock", "refs/tags/refs/gitops/lock"):
        branch(store, name, one)
    for name in ("HEAD", "refs/gitops/lock", f"refs/heads/x-g{one[:12]}"):
        assert store.resolve(name) is None


def test_a_merge_runs_no_driver_and_no_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither attributes of the commits, nor of a work tree that a person has checked out and is in."""
    (tmp_path / "home").mkdir()
    work = tmp_path / "work"
    run("git", "init", "-q", "-b", "main", str(work), home=tmp_path / "home")
    for name in ("merge.evil.driver", "filter.evil.clean", "filter.evil.smudge"):
        run("git", "config", name, f"touch {tmp_path}/ran", home=tmp_path / "home", cwd=work)
    attributes = b"* merge=evil filter=evil\n"
    (work / ".gitattributes").write_bytes(attributes)
    monkeypatch.chdir(work)
    store = GitRepository(work, environ=environment(tmp_path / "home"))
    text = b"".join(b"%d\n" % n for n in range(20))
    base = commit(store, {"f": text, ".gitattributes": attributes})
    ours = commit(store, {"f": text.replace(b"2\n", b"two\n", 1)}, base)
    theirs = commit(store, {"f": text.replace(b"18\n", b"eighteen\n")}, base)
    merged = store.merge(ours, theirs).tree
    assert merged is not None
    assert store.read(merged, "f") == text.replace(b"2\n", b"two\n", 1).replace(b"18\n", b"eighteen\n")
    assert not (tmp_path / "ran").exists()


def test_history(store: GitRepository) -> None:
    root = commit(store, {"r": b""})
    left = commit(store, {"l": b""}, root)
    right = commit(store, {"x": b""}, root)
    merge = commit(store, {"m": b""}, left, right)
    assert store.is_ancestor(root, merge)
    assert store.is_ancestor(merge, merge)
    assert not store.is_ancestor(merge, root)
    assert not store.is_ancestor(left, right)
    assert store.merge_base(left, right) == root
    assert store.merge_base(left, commit(store, {"other": b""})) is None
    assert store.only_merge_base(left, right) == root
    assert store.only_merge_base(left, commit(store, {"other": b"2"})) is None
    crossed = commit(store, {"m": b""}, left, right), commit(store, {"m": b""}, right, left)
    assert store.only_merge_base(*crossed) is None
    between = [c.id for c in store.commits_between(root, merge)]
    assert (between[0], set(between)) == (merge, {merge, left, right})
    assert [c.id for c in store.commits_between(root, merge, first_parent=True)] == [merge, left]
    assert [c.id for c in store.commits_between(None, left)] == [left, root]
    assert [c.id for c in store.commits_between(right, merge, first_parent=True)] == [merge, left]
    assert store.commits_between(merge, root) == ()


def test_merge_and_replay_are_those_of_git(path: Path, store: GitRepository) -> None:
    text = b"".join(b"%d\n" % n for n in range(20))
    base = commit(store, {"f": text, "keep": b"1"})
    ours = commit(store, {"f": text.replace(b"2\n", b"two\n", 1)}, base)
    theirs = commit(store, {"f": text.replace(b"18\n", b"eighteen\n"), "new": b"2"}, base)
    clash = commit(store, {"f": text.replace(b"2\n", b"zwei\n", 1), "new": b"3"}, theirs)
    assert store.merge(ours, theirs).tree == git(path, "merge-tree", "--write-tree", ours, theirs)
    assert store.replay(theirs, ours).tree == store.merge(ours, theirs).tree
    conflict = store.merge(ours, clash)
    assert (conflict.tree, conflict.conflicts) == (None, ("f",))
    assert store.replay(clash, ours).conflicts == ("f", "new")
    trees = [store.commit(each).tree for each in (base, ours, clash)]
    favored = store.merge_trees(*trees, favor_theirs=True).tree
    assert favored is not None
    assert (store.read(favored, "f") or b"").splitlines()[2] == b"zwei"
    assert store.replay(base, commit(store, {"z": b"1"})).tree == tree_of(store, {"f": text, "keep": b"1", "z": b"1"})


@contextmanager
def another_user() -> Iterator[None]:
    """Whoever runs the tests as root has the rights of a user without any."""
    if root := os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_who_may_only_read_a_repository_merges_in_it() -> None:
    """An auditor has no right to write where the ledger is."""
    with tempfile.TemporaryDirectory() as folder:
        path = bare(Path(folder) / "far.git")
        store = opened(path)
        base = commit(store, {"f": b"1\n", "g": b"1\n"})
        ours, theirs = commit(store, {"f": b"2\n", "g": b"1\n"}, base), commit(store, {"f": b"1\n", "g": b"2\n"}, base)
        for each in (path.parent, *path.rglob("*")):
            each.chmod(0o555 if each.is_dir() else 0o444)
        with another_user():
            reader = opened(path)
            merged = reader.merge(ours, theirs).tree
            assert merged is not None
            assert [reader.read(merged, name) for name in ("f", "g")] == [b"2\n", b"2\n"]
            reader.reopen()
        for each in (path.parent, *path.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)
        assert opened(path).resolve(merged) is None


def test_refs_move_by_compare_and_swap(store: GitRepository) -> None:
    one, two = commit(store, {"a": b"1"}), commit(store, {"a": b"2"})
    store.update_refs([RefUpdate(MAIN, ZERO, one), RefUpdate("refs/x/y", ZERO, two)])
    for stale in (
        RefUpdate(MAIN, ZERO, two),
        RefUpdate(MAIN, two, one),
        RefUpdate(MAIN, two, ZERO),
        RefUpdate("refs/n", one, one),
    ):
        with pytest.raises(ConflictError):
            store.update_refs([RefUpdate("refs/x/y", two, one), stale])
        assert store.refs("refs") == {MAIN: one, "refs/x/y": two}
    store.update_refs([RefUpdate(MAIN, one, two), RefUpdate("refs/x/y", two, ZERO)])
    assert store.refs("refs/") == {MAIN: two}
    with pytest.raises(GitopsError) as caught:
        store.update_refs([RefUpdate("refs/heads/t", ZERO, store.commit(one).tree)])
    assert caught.value.code == "git_failed"


def test_a_ref_that_is_locked_is_a_conflict(kind: str, path: Path, store: GitRepository) -> None:
    one = commit(store, {})
    (path / ("reftable/tables.list.lock" if "reftable" in kind else "refs/heads/main.lock")).touch()
    with pytest.raises(ConflictError):
        store.update_refs([RefUpdate(MAIN, ZERO, one)])


def test_a_symbolic_ref_does_not_redirect_a_write(path: Path, store: GitRepository) -> None:
    one, two = commit(store, {"a": b"1"}), commit(store, {"a": b"2"})
    branch(store, MAIN, one)
    git(path, "symbolic-ref", "refs/gitops/ledger", MAIN)
    store.update_refs([RefUpdate("refs/gitops/ledger", one, two)])
    assert store.refs("refs") == {"refs/gitops/ledger": two, MAIN: one}


def test_a_symbolic_ref_names_another_that_need_not_exist(path: Path, store: GitRepository) -> None:
    git(path, "symbolic-ref", "HEAD", "refs/heads/unborn")
    branch(store, MAIN, commit(store, {}))
    assert store.symbolic_target("HEAD") == "refs/heads/unborn"
    assert store.symbolic_target(MAIN) is None
    assert store.symbolic_target("refs/heads/absent") is None


def test_refs_are_those_of_git_wherever_they_are_stored(
    kind: str, path: Path, store: GitRepository, tmp_path: Path
) -> None:
    one, two, three = (commit(store, {"a": text}) for text in (b"1", b"2", b"3"))
    for name in ("main", "packed", "topic/a", "topic/b", "topics", "deleted", "replaced/below"):
        branch(store, f"refs/heads/{name}", one)
    git(path, "tag", "-a", "-m", "annotated", "v1", one)
    git(path, "symbolic-ref", "refs/remotes/origin/HEAD", MAIN)
    git(path, "symbolic-ref", "refs/heads/dangling", "refs/heads/absent")
    # Characters that end lines of a text may be in names: they hide no other ref.
    for odd in ("refs/heads/main\u2028x", "refs/heads/topic/a\x85"):
        git(path, "update-ref", odd, three)
    git(path, "pack-refs", "--all")
    branch(store, MAIN, two, old=one)
    branch(store, "refs/heads/topic/c", three)
    git(path, "update-ref", "-d", "refs/heads/deleted")
    git(path, "update-ref", "-d", "refs/heads/replaced/below")
    branch(store, "refs/heads/replaced", three)
    git(path, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), two)
    git(path / "worktrees/tree", "update-ref", "refs/bisect/bad", three)
    if kind.startswith("git") and "reftable" not in kind:
        texts = {"main.lock": f"{three}\n", "empty": "", "short": f"{three[:-1]}\n", "odd name": f"{one}\n"}
        for odd, text in texts.items():
            (path / "refs/heads" / odd).write_text(text)
    for place, opens in ((path, path), (path / "worktrees/tree", tmp_path / "tree")):
        repository, found = opened(opens), {}
        for line in git(place, "for-each-ref", "--format=%(objectname) %(refname)").rstrip("\n").split("\n"):
            at, _, name = line.partition(" ")
            found[name] = at
        folders = (
            "refs",
            "refs/heads",
            "refs/heads/",
            "refs/heads/topic",
            "refs/heads/top",
            "refs/tags",
            "refs/bisect",
        )
        missing = ("dangling", "deleted", "replaced/below", "short")
        printable = [ref for ref in found if ref.isprintable()]
        for name in (*printable, *folders, *(f"refs/heads/{each}" for each in missing)):
            below = {ref: found[ref] for ref in printable if f"{ref}/".startswith(f"{name.rstrip('/')}/")}
            seen = {ref: at for ref, at in repository.refs(name).items() if ref.isprintable()}
            assert seen == below, name
            assert repository.resolve(name) == (one if name == "refs/tags/v1" else found.get(name)), name
        assert repository.symbolic_target("refs/remotes/origin/HEAD") == MAIN
        assert repository.resolve("HEAD") == git(place, "rev-parse", "HEAD").strip()


def test_replacement_refs_change_nothing(path: Path, store: GitRepository) -> None:
    one, other = commit(store, {"a": b"1"}), commit(store, {"a": b"2"})
    git(path, "replace", one, other)
    assert store.read(store.commit(one).tree, "a") == b"1"
    assert store.changed_paths(store.commit(other).tree, store.commit(one).tree) == ("a",)


def test_grafts_are_refused(path: Path, store: GitRepository) -> None:
    one = commit(store, {"a": b"1"})
    (path / "info").mkdir(exist_ok=True)
    (path / "info/grafts").write_text(f"{one}\n")
    with pytest.raises(GitopsError) as caught:
        opened(path)
    assert caught.value.code == "git_failed"


def test_a_shallow_repository_does_not_guess(path: Path, store: GitRepository, tmp_path: Path) -> None:
    one = commit(store, {"a": b"1"})
    two = commit(store, {"a": b"2"}, one)
    branch(store, MAIN, two)
    run("git", "clone", "-q", "--bare", "--depth=1", f"file://{path}", str(tmp_path / "shallow.git"), home=tmp_path)
    shallow = opened(tmp_path / "shallow.git")
    assert shallow.is_shallow
    assert shallow.commit(two).parents == (one,)
    for question in (
        lambda: shallow.is_ancestor(one, two),
        lambda: shallow.merge_base(two, two),
        lambda: shallow.commits_between(None, two),
        lambda: shallow.merge(two, two),
    ):
        with pytest.raises(GitopsError) as caught:
            question()
        assert caught.value.code == "shallow_repository"


def test_a_history_that_was_fetched_meanwhile_is_seen_after_opening_anew(tmp_path: Path, store: GitRepository) -> None:
    first = commit(store, {"a": b"1"}, message="first\n")
    tip = commit(store, {"a": b"2"}, first, message="tip\n")
    store.update_refs([RefUpdate(MAIN, ZERO, tip)])
    run("git", "clone", "-q", "--depth=1", f"file://{store.git_dir}", str(tmp_path / "late"), home=tmp_path)
    late = opened(tmp_path / "late" / ".git")
    assert late.is_shallow
    run("git", f"--git-dir={late.git_dir}", "fetch", "-q", "--unshallow", home=tmp_path)
    late.reopen()
    assert late.is_ancestor(first, tip)
    assert [c.id for c in late.commits_between(None, tip)] == [tip, first]


def test_what_is_missing_is_said(store: GitRepository, absent: str) -> None:
    tree = tree_of(store, {})
    for call in (
        lambda: store.commit(absent),
        lambda: store.commit(tree),
        lambda: store.commit("main"),
        lambda: store.entries(absent),
        lambda: store.is_ancestor(absent, absent),
        lambda: store.merge_base(absent, absent),
        lambda: store.commits_between(None, absent),
        lambda: store.merge(absent, absent),
        lambda: store.changed_paths(None, absent),
        lambda: store.signature(absent),
        lambda: store.update_refs([RefUpdate(MAIN, ZERO, absent)]),
    ):
        with pytest.raises(GitopsError) as caught:
            call()
        assert caught.value.code == "git_object_missing"


def test_tags_of_tags_end(store: GitRepository) -> None:
    target = commit(store, {})
    for number in range(9):
        kind = b"tag" if number else b"commit"
        target = store._write("tag", b"object %s\ntype %s\ntag t\n\n" % (target.encode(), kind))
    assert store.resolve(target) is None


def test_a_damaged_object_is_an_integrity_error(path: Path, store: GitRepository) -> None:
    one = commit(store, {"a": b"1"})
    loose = path / "objects" / one[:2] / one[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"garbage")
    with pytest.raises(IntegrityError) as caught:
        opened(path).commit(one)
    assert caught.value.code == "git_failed"


@pytest.mark.parametrize("raw", [b"no end", b"tree x\n\nm", b"bad-header\n\nm"])
def test_a_malformed_commit_is_an_integrity_error(store: GitRepository, raw: bytes) -> None:
    with pytest.raises(IntegrityError):
        store.commit(store._write("commit", raw))


def test_an_odd_person_line_of_old_histories_is_read(store: GitRepository) -> None:
    tree = tree_of(store, {}).encode()
    read = store.commit(store._write("commit", b"tree %s\nauthor nobody\ncommitter \xff <x@y> 1 +0100\n\n\xff" % tree))
    assert read.author == Person("nobody", "")
    assert (read.committer, read.message) == (Person("\ufffd", "x@y", 1), "\ufffd")


def test_only_a_repository_opens(tmp_path: Path, path: Path) -> None:
    for opening in (GitRepository, GitRepository.discover):
        with pytest.raises(UsageError) as caught:
            opening(tmp_path / "none")
        assert caught.value.code == "not_a_repository"
    (path / "sub").mkdir()
    with pytest.raises(UsageError):
        GitRepository(path / "sub")


def test_work_trees_and_linked_work_trees(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    run("git", "init", "-q", "-b", "main", str(tmp_path / "work"), home=home)
    work = GitRepository(tmp_path / "work", environ=environment(home))
    one = commit(work, {"a": b"1"})
    branch(work, MAIN, one)
    run(
        "git", "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"), "main", home=home, cwd=tmp_path / "work"
    )
    linked = GitRepository.discover(tmp_path / "linked", environ=environment(home))
    assert linked.work_tree == f"{tmp_path}/linked/"
    assert linked.resolve("HEAD") == linked.resolve("refs/heads/side") == one
    branch(linked, "refs/gitops/x", one)
    assert work.refs("refs/gitops") == {"refs/gitops/x": one}
    (tmp_path / "work/.git/info").mkdir(exist_ok=True)
    (tmp_path / "work/.git/info/grafts").write_text(f"{one}\n")
    with pytest.raises(GitopsError):
        GitRepository(tmp_path / "linked", environ=environment(home))


def test_inherited_git_variables_do_not_redirect(
    tmp_path: Path, store: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bare(tmp_path / "other.git")
    for name, value in (("GIT_DIR", str(other)), ("GIT_OBJECT_DIRECTORY", f"{other}/objects")):
        monkeypatch.setenv(name, value)
    misled = {"GIT_DIR": str(other), "GIT_INDEX_FILE": "/x", "GIT_CONFIG_COUNT": "1", "GIT_NAMESPACE": "n"}
    store = GitRepository(
        store.git_dir, environ=environment(tmp_path, **misled, GIT_OBJECT_DIRECTORY=f"{other}/objects")
    )
    one = commit(store, {"a": b"1"})
    branch(store, MAIN, one)
    assert (store.refs("refs"), opened(other).refs("refs")) == ({MAIN: one}, {})
    assert opened(other).resolve(one) is None


def test_a_hook_reads_a_push_that_is_not_accepted_yet(tmp_path: Path, path: Path, store: GitRepository) -> None:
    client = opened(bare(tmp_path / "client.git"))
    one = commit(client, {"a": b"1"})
    branch(client, MAIN, one)
    hook(path, "pre-receive", f"env >{tmp_path}/env; cp -r $GIT_QUARANTINE_PATH {tmp_path}/kept; exit 1")
    run("git", f"--git-dir={client.git_dir}", "push", "-q", str(path), MAIN, home=tmp_path, check=False)
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if line.startswith("GIT_"))
    seen |= dict.fromkeys(("GIT_QUARANTINE_PATH", "GIT_OBJECT_DIRECTORY"), f"{tmp_path}/kept")
    quarantine = Quarantine.from_environment(seen)
    assert quarantine is not None
    inside = GitRepository(path, environ=environment(tmp_path), quarantine=quarantine)
    assert inside.read(inside.commit(one).tree, "a") == b"1"
    with pytest.raises(GitopsError) as caught:
        inside.update_refs([RefUpdate(MAIN, ZERO, one)])
    assert "quarantine" in caught.value.detail
    assert store.refs("refs") == {}
    assert Quarantine.from_environment({"GIT_OBJECT_DIRECTORY": "x"}) is None


def test_threads_may_share_a_store(store: GitRepository) -> None:
    parent = commit(store, {"a": b"0"})
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(20):
                one = commit(store, {f"{number}": b"%d" % step}, parent)
                branch(store, f"refs/x/{number}/{step}", one)
                assert store.is_ancestor(parent, one)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.refs("refs/x")) == 80


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


def test_a_folder_is_listed_without_a_look_at_its_files(path: Path, store: GitRepository, absent: str) -> None:
    tree = raw_tree(path, ("100644", "gone", absent))
    (entry,) = store.entries(tree)
    assert (entry.name, entry.id) == ("gone", absent)
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


def test_links_and_submodules_are_never_followed(path: Path, store: GitRepository, absent: str) -> None:
    inner = store.write_files(None, {"f": b"secret"})
    blob = store.entries(inner)[0].id
    link = git(path, "hash-object", "-w", "--stdin", stdin=b"real")
    tree = raw_tree(
        path, ("120000", "link", link), ("40000", "real", inner), ("160000", "sub", absent), ("100755", "x", blob)
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
