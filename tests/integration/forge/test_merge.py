"""Merging a request three ways, and every way in which it must not happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.forge.merge import MergeMethod, merge_request
from gitops.forge.port import ChangeRequest, RequestState
from gitops.forge.refs.local import LocalForge
from gitops.git.port import ZERO, GitRemote, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from tests.support.clock import FixedClock
from tests.support.git_fixture import ALICE, bare, branch, commit, environment, hook, opened, run, ssh_key

MAIN = "refs/heads/main"
TOPIC = "refs/heads/topic"
BASE = {"a": b"1\n", "b/c": b"2\n", "top": b"old\n"}
NOW = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
MERGER = Person("Mira", "mira@example.org")
AUTHOR = Person("Ada", "ada@example.org", 1_700_000_500)
BOT = Person("gitops", "bot@example.org")
METHODS = list(MergeMethod)


def by_ada(repository: GitRepository, files: Mapping[str, bytes | None], *parents: str, message: str) -> str:
    tree = repository.write_files(repository.commit(parents[0]).tree, files)
    return repository.write_commit(NewCommit(tree, parents, AUTHOR, message), signing_key=None)


@dataclass
class World:
    """A forge where main went on while a topic branch got two commits."""

    far: GitRepository
    store: GitRepository
    remote: GitRemote
    forge: LocalForge
    base: str
    tip: str
    request: ChangeRequest

    def merge(self, method: MergeMethod, **more: str) -> str:
        clock = FixedClock(NOW)
        return merge_request(self.store, self.remote, self.request, method, clock, merger=MERGER, **more)

    def fails(self, method: MergeMethod, **more: str) -> GitopsError:
        before = self.far.refs("refs/heads")
        with pytest.raises(GitopsError) as caught:
            self.merge(method, **more)
        assert self.far.refs("refs/heads") == before
        return caught.value

    def push(self, head: str) -> None:
        """A push to the topic branch, of which the forge hears."""
        branch(self.far, TOPIC, head, self.request.head)
        self.request, _ = self.forge.open_or_update(TOPIC, MAIN, head, "Add authors", "ada")

    def files(self, commit_id: str) -> dict[str, bytes | None]:
        tree = self.store.commit(commit_id).tree
        return {path: self.store.read(tree, path) for path in self.store.changed_paths(None, tree)}


@pytest.fixture(params=["self", "path"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    far = opened(bare(tmp_path / "far.git"))
    base = commit(far, BASE, message="base\n")
    tip = commit(far, {"top": b"main\n"}, base, message="main\n")
    one = by_ada(far, {"a": b"one\n"}, base, message="one\n\nbody of one\n")
    two = by_ada(far, {"b/c": b"two\n", "new": b"new\n"}, one, message="two\n")
    branch(far, MAIN, tip)
    branch(far, TOPIC, two)
    forge = LocalForge(far, SelfRemote(far), BOT, FixedClock(NOW))
    opened_request, _ = forge.open_or_update(TOPIC, MAIN, two, "Add authors", "ada")
    if request.param == "self":
        return World(far, far, SelfRemote(far), forge, base, tip, opened_request)
    store = opened(bare(tmp_path / "local.git"))
    remote = ProgramRemote(store.git_dir, far.git_dir, environ=environment(tmp_path))
    return World(far, store, remote, forge, base, tip, opened_request)


MERGED = {"a": b"one\n", "b/c": b"two\n", "new": b"new\n", "top": b"main\n"}


@pytest.mark.parametrize("method", METHODS)
def test_the_target_gets_both_sides(world: World, method: MergeMethod) -> None:
    new = world.merge(method)
    assert world.far.refs("refs/heads") == {MAIN: new, TOPIC: world.request.head}
    assert world.files(new) == MERGED
    run("git", f"--git-dir={world.far.git_dir}", "fsck", "--strict", "--no-dangling", home=Path(world.far.git_dir))


def test_a_merge_commit(world: World) -> None:
    made = world.store.commit(world.merge(MergeMethod.MERGE))
    assert made.parents == (world.tip, world.request.head)
    assert made.message == "Merge request #1 from topic\n"
    assert made.author == made.committer == replace(MERGER, time=SECONDS)


def test_a_squashed_commit(world: World) -> None:
    made = world.store.commit(world.merge(MergeMethod.SQUASH))
    assert made.parents == (world.tip,)
    assert made.message == "Add authors (#1)\n"
    assert made.author == replace(AUTHOR, time=SECONDS)


def test_rebased_commits(world: World) -> None:
    made = world.store.commits_between(world.tip, world.merge(MergeMethod.REBASE))
    assert [(c.message, c.author) for c in made] == [("two\n", AUTHOR), ("one\n\nbody of one\n", AUTHOR)]
    assert made[0].parents == (made[1].id,)
    assert made[1].parents == (world.tip,)
    assert world.files(made[1].id) == {**BASE, "a": b"one\n", "top": b"main\n"}


def test_a_rebase_leaves_out_merges_and_what_is_there_already(world: World) -> None:
    picked = commit(world.far, {"a": b"one\n"}, world.tip, message="picked\n")
    branch(world.far, MAIN, picked, world.tip)
    tree = world.far.merge(world.request.head, world.tip).tree
    assert tree is not None
    merge = NewCommit(tree, (world.request.head, world.tip), AUTHOR, "merge main\n")
    world.push(world.far.write_commit(merge, signing_key=None))
    made = world.store.commits_between(picked, world.merge(MergeMethod.REBASE))
    assert [c.message for c in made] == ["two\n"]
    assert world.files(made[0].id) == MERGED


def test_a_rebase_of_nothing_new(world: World) -> None:
    main = commit(world.far, {"a": b"one\n", "b/c": b"two\n", "new": b"new\n"}, world.tip, message="all of it\n")
    branch(world.far, MAIN, main, world.tip)
    assert world.fails(MergeMethod.REBASE).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_conflict_names_its_paths(world: World, method: MergeMethod) -> None:
    main = commit(world.far, {"b/c": b"main\n", "new": b"other\n"}, world.tip)
    branch(world.far, MAIN, main, world.tip)
    error = world.fails(method)
    assert error.code == "request_conflict"
    assert "b/c, new" in error.detail


@pytest.mark.parametrize("state", [RequestState.MERGED, RequestState.CLOSED])
@pytest.mark.parametrize("method", METHODS)
def test_only_an_open_request(world: World, method: MergeMethod, state: RequestState) -> None:
    world.request = replace(world.request, state=state)
    assert world.fails(method).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_head_that_is_in_the_target(world: World, method: MergeMethod) -> None:
    world.merge(MergeMethod.MERGE)
    assert world.fails(method).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_head_other_than_the_expected(world: World, method: MergeMethod) -> None:
    assert world.fails(method, expected_head=world.base).code == "request_head_moved"
    assert world.merge(method, expected_head=world.request.head)


@pytest.mark.parametrize("method", METHODS)
def test_a_push_that_the_request_has_not_seen(world: World, method: MergeMethod) -> None:
    newer = by_ada(world.far, {"a": b"evil\n"}, world.request.head, message="newer\n")
    branch(world.far, TOPIC, newer, world.request.head)
    assert world.fails(method, expected_head=world.request.head).code == "request_head_moved"


def test_a_deleted_branch_is_merged_from_the_request(world: World) -> None:
    world.far.update_refs([RefUpdate(TOPIC, world.request.head, ZERO)])
    assert world.files(world.merge(MergeMethod.SQUASH)) == MERGED


def test_a_target_that_does_not_exist(world: World) -> None:
    world.request = replace(world.request, target="refs/heads/none")
    assert world.fails(MergeMethod.MERGE).code == "git_object_missing"


@pytest.mark.parametrize("method", METHODS)
def test_histories_without_a_common_commit(world: World, method: MergeMethod) -> None:
    world.push(commit(world.far, {"z": b"z\n"}, message="elsewhere\n"))
    assert world.fails(method).code == "request_conflict"


@dataclass
class Late:
    """A remote whose target moves as soon as it has been read."""

    remote: GitRemote
    far: GitRepository
    moves: list[RefUpdate]

    @property
    def url(self) -> str:
        return self.remote.url

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        found = self.remote.refs(prefix, *more)
        if MAIN in (prefix, *more) and self.moves:
            self.far.update_refs(self.moves)
            self.moves = []
        return found

    def fetch(self, refspecs: list[str]) -> None:
        self.remote.fetch(refspecs)

    def push(self, updates: list[RefUpdate]) -> None:
        self.remote.push(updates)


@pytest.mark.parametrize("method", METHODS)
def test_a_target_that_moves_meanwhile_is_not_overwritten(world: World, method: MergeMethod) -> None:
    other = commit(world.far, {"q": b"q\n"}, world.tip)
    world.remote = Late(world.remote, world.far, [RefUpdate(MAIN, world.tip, other)])  # type: ignore[assignment]
    with pytest.raises(ConflictError) as caught:
        world.merge(method)
    assert caught.value.code == "git_ref_conflict"
    assert world.far.refs(MAIN) == {MAIN: other}


def test_a_rule_of_the_target_is_told(world: World) -> None:
    if isinstance(world.remote, SelfRemote):
        pytest.skip("its own hooks do not run for the program that a hook starts")
    hook(Path(world.far.git_dir), "pre-receive", "echo no approval >&2; exit 1")
    error = world.fails(MergeMethod.MERGE)
    assert (error.code, error.detail) == ("push_refused", "no approval")


@pytest.mark.parametrize("method", METHODS)
def test_new_commits_are_signed_on_demand(world: World, tmp_path: Path, method: MergeMethod) -> None:
    made = world.merge(method, signing_key=str(ssh_key(tmp_path, "mira")))
    new = world.store.commits_between(world.request.head, made)
    ours = [c.id for c in new if c.id != world.tip]
    assert len(ours) == (2 if method is MergeMethod.REBASE else 1)
    assert all(world.store.signature(commit_id).good for commit_id in ours)


def test_commits_are_not_signed_by_themselves(world: World) -> None:
    assert not world.store.signature(world.merge(MergeMethod.MERGE)).signed


def test_no_branch_of_the_clone_moves(world: World) -> None:
    if world.store is world.far:
        pytest.skip("the forge's own repository has no second set of branches")
    world.merge(MergeMethod.MERGE)
    assert world.store.refs("refs") == {}
    assert ALICE.name == world.store.commit(world.tip).author.name
