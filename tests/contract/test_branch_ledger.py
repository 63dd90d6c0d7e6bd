"""The ledger contract on a branch: the repository as its own remote, a path, and a server on loopback, with real keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from ledger_changesets import ChangesetContract, RetentionContract
from ledger_samples import (
    CONTENT,
    QUERY,
    MakeStore,
    approval,
    begun,
    code_of,
    entry,
    intent,
    lock,
    state,
    ulid,
    write,
)
from ledger_suite import (
    IntentContract,
    LedgerContract,
    LockContract,
)

from gitops.cluster.approvals.documents import read_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
from gitops.cluster.ledger.chain import read_verified_entry, trust_files
from gitops.cluster.ledger.documents import write_lock
from gitops.cluster.ledger.files import lock_held_message
from gitops.cluster.ledger.port import BlobCondition, LedgerView, LedgerWrite
from gitops.cluster.model.ledger import EntryKind, LockInfo
from gitops.core.canonical import digest
from gitops.core.errors import BugError, GitopsError
from gitops.git.cached_remote import CachedRemote
from gitops.git.port import ZERO, RefUpdate
from tests.support.branch_ledger import ALICE, CONFIG, LOCK, LOCK_BRANCH, REF, SEEN, Keys, World, make_keys
from tests.support.git_fixture import commit, hook, run
from tests.support.git_http import GitServer


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


class TestItsOwnRemote(LedgerContract, ChangesetContract, RetentionContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path, keys: Keys) -> MakeStore:
        return World(tmp_path, keys, None).ledger


class TestPath(LedgerContract):
    """Handles are in two clones in turn: some share one, some do not."""

    @pytest.fixture
    def make_store(self, tmp_path: Path, keys: Keys) -> MakeStore:
        world = World(tmp_path, keys, str(tmp_path / "far.git"))
        clones = cycle(["one.git", "two.git"])
        return lambda: world.ledger(next(clones))


class TestServer(LockContract, IntentContract):
    """Races and refusals come over the wire in other words than over a path."""

    @pytest.fixture
    def make_store(self, tmp_path: Path, keys: Keys) -> Iterator[MakeStore]:
        with GitServer(tmp_path) as server:
            world = World(tmp_path, keys, server.url("far.git"))
            clones = cycle(["one.git", "two.git"])
            yield lambda: world.ledger(next(clones))


@pytest.fixture(params=["self", "path"])
def world(request: pytest.FixtureRequest, tmp_path: Path, keys: Keys) -> World:
    return World(tmp_path, keys, None if request.param == "self" else str(tmp_path / "far.git"))


@pytest.fixture
def clones(tmp_path: Path, keys: Keys) -> World:
    """Two repositories that share a server at a path."""
    return World(tmp_path, keys, str(tmp_path / "far.git"))


# Reading


def test_a_fresh_handle_reads_without_a_view(world: World) -> None:
    begun(world.ledger(), intent(1))
    assert world.ledger("two.git").intents().intents == (intent(1),)
    store = world.ledger()
    store.put_blob(QUERY, CONTENT)
    store.commit(store.view(), write(state(2), consumed=[approval(1)]))
    assert world.ledger("two.git").blob(QUERY, digest(CONTENT)).content == CONTENT
    assert [a.approval_id for a in world.ledger("two.git").approvals().documents] == [ulid(1)]


def test_reading_an_empty_ledger_leaves_no_trace(world: World) -> None:
    store = world.ledger()
    assert store.intents().intents == ()
    assert store.approvals().evidence == ()
    assert store.blob(QUERY, digest(CONTENT)).condition is BlobCondition.MISSING
    assert store.view() == LedgerView()
    assert world.repository().refs("refs") == {}


def test_the_same_clone_reads_at_what_it_wrote(world: World) -> None:
    store = world.ledger()
    view = begun(store, intent(1))
    assert store.intents().intents == (intent(1),)
    assert view.head == store.view().head
    assert (store.snapshot_reads, store.state_path) == (True, "gitops/ledger/library:__cluster/state.json")


def test_a_state_that_was_written_is_not_read_again(world: World) -> None:
    store, written = world.ledger(), write(state(1))
    view = store.commit(store.view(), written)
    assert view.state is written.state
    assert view == world.ledger().view()


def test_approvals_that_wait_are_read_from_their_branches(clones: World) -> None:
    store = clones.ledger()
    view = store.commit(store.view(), write(state(1)))
    far = clones.ledger().view()
    assert far.head == view.head
    repository = clones.repository("two.git")
    clones.ledger("two.git").view()
    ref = f"refs/heads/gitops/approvals/library/{ulid(1)}"
    oid = commit(repository, {"x": b"no approval"}, view.head or "")
    clones.remote("two.git").push([RefUpdate(ref, ZERO, oid)])
    (evidence,) = clones.ledger().approvals().evidence
    assert (evidence.commit, evidence.ref, evidence.on_chain) == (oid, ref, True)
    assert evidence.problem
    assert clones.repository().refs("refs/heads/gitops/approvals") == {}


# Writing


def test_entries_count_up_and_link(world: World) -> None:
    store = world.ledger()
    view = store.commit(store.view(), write(state(1)))
    chain = [view.head]
    for revision in (2, 3):
        view = store.commit(view, write(state(revision)))
        chain.append(view.head)
    assert view.entry is not None
    assert view.entry.number == 3
    reader = world.repository()
    assert view.head is not None
    assert [c.id for c in reader.commits_between(None, view.head)] == chain[::-1]
    assert run("git", f"--git-dir={world.far}", "fsck", "--strict", "--no-dangling", home=world.home) == ""


def test_a_clock_that_is_behind_does_not_turn_the_chain_back(world: World) -> None:
    store = world.ledger()
    view = store.commit(store.view(), write(state(1)))
    late = replace(entry(EntryKind.APPLY, 2), at="2026-07-02T08:00:00Z")
    after = store.commit(view, LedgerWrite(state(2), late))
    assert view.entry is not None
    assert after.entry is not None
    assert after.entry.at == view.entry.at
    assert world.ledger("two.git").view() == after


@pytest.mark.parametrize("name", ["ada", "stranger"])
def test_an_entry_by_nobody_who_may_is_not_even_pushed(world: World, name: str) -> None:
    view = world.ledger().commit(LedgerView(), write(state(1)))
    wrong = world.ledger(key=getattr(world.keys, name))
    assert code_of(lambda: wrong.commit(wrong.view(), write(state(2)))) == "ledger_not_writable"
    assert code_of(lambda: wrong.begin(wrong.view(), [intent(1)], entry(EntryKind.INTENT, 1))) == (
        "recovery_sidecar_write_error"
    )
    assert world.ledger().view() == view


def test_a_refused_push_says_who_refused(clones: World) -> None:
    store = clones.ledger()
    hook(clones.far, "pre-receive", "echo ledger is frozen >&2; exit 1")
    with pytest.raises(Exception, match="ledger is frozen") as caught:
        store.commit(store.view(), write(state(1)))
    assert getattr(caught.value, "code", "") == "ledger_not_writable"
    assert not clones.ledger("two.git").view().found


def test_a_run_is_not_announced_to_a_remote_that_refuses_it(clones: World) -> None:
    """A rule of the remote, or a remote that is not there: told apart, and nothing has begun in either case."""
    store = clones.ledger()
    view = begun(store, intent(1))
    hook(clones.far, "pre-receive", "echo ledger is frozen >&2; exit 1")
    with pytest.raises(Exception, match="ledger is frozen") as caught:
        store.begin(view, [intent(2)], entry(EntryKind.INTENT, 2))
    assert getattr(caught.value, "code", "") == "ledger_not_writable"
    (clones.far / "hooks" / "pre-receive").unlink()
    away = clones.far.rename(clones.far.with_name("away"))
    assert code_of(lambda: store.begin(view, [intent(2)], entry(EntryKind.INTENT, 2))) == "recovery_sidecar_write_error"
    away.rename(clones.far)
    assert clones.ledger("two.git").view() == view


def test_what_was_staged_survives_a_lost_race(world: World) -> None:
    store, other = world.ledger(), world.ledger("two.git")
    base = store.commit(store.view(), write(state(1)))
    store.put_blob(QUERY, CONTENT)
    other.commit(other.view(), write(state(2)))
    assert code_of(lambda: store.commit(base, write(state(2)))) == "state_cas_mismatch"
    store.commit(store.view(), write(state(3)))
    assert world.ledger().blob(QUERY, digest(CONTENT)).content == CONTENT


def test_ids_that_are_no_file_names(world: World) -> None:
    store = world.ledger()
    view = begun(store, intent(1))
    for bad in ("", "../state", "a/b", "x" * 65, "a\n"):
        wrong = replace(intent(1), operation_id=bad)
        store.disarm(bad)
        assert code_of(lambda wrong=wrong: store.arm(wrong)) == "recovery_sidecar_write_error"
        assert code_of(lambda wrong=wrong: store.amend(wrong)) == "recovery_sidecar_write_error"
        assert code_of(lambda wrong=wrong: store.begin(view, [wrong], entry(EntryKind.INTENT, 1))) == (
            "recovery_sidecar_write_error"
        )
        used = [replace(approval(1), approval_id=bad)]
        assert code_of(lambda used=used: store.commit(view, write(state(2), consumed=used))) == "approval_write_error"
    store.retire(view, ["../state", ulid(7)], entry(EntryKind.APPLY, 1))
    assert world.ledger().view().state == state(1)
    assert world.ledger().intents().intents == (intent(1),)


def test_an_unannounced_operation_may_not_start(world: World) -> None:
    store = world.ledger()
    begun(store, intent(1))
    assert code_of(lambda: store.arm(intent(2))) == "recovery_sidecar_write_error"


def test_a_withdrawn_sidecar_leaves_with_the_next_entry(world: World) -> None:
    store = world.ledger()
    view = begun(store, intent(1), intent(2))
    store.disarm(ulid(1))
    store.disarm(ulid(9))
    store.commit(view, write(state(2)))
    assert world.ledger().intents().intents == (intent(2),)


def test_a_used_approval_says_what_the_state_says(world: World) -> None:
    store = world.ledger()
    recorded = {"consumed_at": "2026-07-02T09:30:00Z", "consumed_by_operation": ulid(5)}
    after = replace(state(1), approval_records={ulid(1): recorded})
    store.commit(store.view(), write(after, consumed=[approval(1), approval(2)]))
    documents = {a.approval_id: (a.consumed_at, a.consumed_by_operation) for a in store.approvals().documents}
    assert documents == {
        ulid(1): ("2026-07-02T09:30:00Z", ulid(5)),
        ulid(2): ("2026-07-02T10:00:00Z", None),
    }
    head = store.view().head or ""
    stored = world.repository().read(world.repository().commit(head).tree, layout.approval_key(ulid(1)))
    assert read_approval(stored or b"").consumed_by_operation == ulid(5)


def test_new_keys_replace_the_old_ones_as_a_whole(world: World) -> None:
    store = world.ledger()
    extra = {**world.trust, ".gitops/old": b"a file that was trusted once\n"}
    first = store.commit(store.view(), replace(write(state(1)), trust_files=extra))
    second = store.commit(first, replace(write(state(2)), trust_files=world.trust))
    reader = world.repository()
    assert first.trust == second.trust
    assert reader.read(reader.commit(second.head or "").tree, "trust/.gitops/old") is None
    assert read_verified_entry(reader, second.head or "").before == first.trust


def test_keys_may_move_from_a_file_into_a_folder_of_its_name(world: World) -> None:
    store = world.ledger()
    lines = world.trust[".gitops/allowed_signers"]
    view = LedgerView()
    for revision, path in enumerate(["keys", "keys/allowed", "keys"], start=1):
        config = CONFIG + f"  allowed_signers: {path}\n"
        view = store.commit(
            view, replace(write(state(revision)), trust_files={"gitops.yaml": config.encode(), path: lines})
        )
        assert trust_files(world.repository(), view.head or "").keys() == {"gitops.yaml", path}


def test_a_ledger_is_not_begun_without_keys(world: World) -> None:
    store = world.ledger()
    store.seed = {}
    assert code_of(lambda: store.commit(store.view(), write(state(1)))) == "ledger_not_writable"
    assert not world.ledger("two.git").view().found


def test_nothing_is_written_on_what_was_not_believed(world: World) -> None:
    store = world.ledger()
    unbelieved = LedgerView(found=True, head="1" * 40)
    with pytest.raises(BugError):
        store.begin(unbelieved, [intent(1)], entry(EntryKind.INTENT, 1))
    with pytest.raises(BugError):
        store.commit(LedgerView(), replace(write(state(1)), entry=None))


def test_a_server_that_is_gone_is_told_from_an_empty_one(clones: World) -> None:
    store = clones.ledger()
    clones.far.rename(clones.home / "away.git")
    assert code_of(store.view) == "git_remote_unavailable"
    assert store.intents().problem
    assert store.approvals().problem
    assert store.blob(QUERY, digest(CONTENT)).condition is BlobCondition.UNREADABLE
    assert code_of(lambda: store.put_blob(QUERY, CONTENT)) == "resource_payload_write_error"
    assert code_of(lambda: store.acquire(lock(1))) == "state_lock_error"
    assert code_of(lambda: store.break_lock(ulid(1))) == "state_lock_read_error"
    assert code_of(lambda: store.release(ulid(1))) == "state_unlock_error"


# The branch of a clone


def test_the_branch_of_a_clone_follows(clones: World) -> None:
    view = clones.ledger().commit(LedgerView(), write(state(1)))
    clones.ledger("two.git").view()
    assert clones.repository("two.git").refs("refs") == {REF: view.head, SEEN: view.head}
    after = clones.ledger().commit(view, write(state(2)))
    clones.ledger("two.git").view()
    assert clones.repository("two.git").refs("refs") == {REF: after.head, SEEN: after.head}


def test_a_list_that_is_older_than_the_newest_head_seen_here_is_no_rollback(clones: World) -> None:
    """A run keeps its list of refs; another process of the same clone may have accepted a newer head meanwhile."""
    view = clones.ledger().commit(LedgerView(), write(state(1)))
    remote = CachedRemote(clones.remote())
    place = BranchSettings("library", ALICE, None, LOCK, LOCK_BRANCH, relist=remote.forget)
    reader = BranchLedger(clones.repository(), remote, place, clones.clock)
    assert reader.view() == view
    after = clones.ledger().commit(view, write(state(2)))
    assert reader.view() == after


def test_a_branch_under_a_checkout_stays(clones: World, tmp_path: Path) -> None:
    view = clones.ledger().commit(LedgerView(), write(state(1)))
    clones.ledger("two.git").view()
    tree = str(tmp_path / "browse")
    run(
        "git",
        f"--git-dir={tmp_path / 'two.git'}",
        "worktree",
        "add",
        "-q",
        tree,
        "gitops/ledger/library",
        home=tmp_path,
    )
    reader = clones.ledger("two.git")
    assert reader.view() == view
    clones.ledger().commit(view, write(state(2)))
    (problem,) = reader.view().problems
    assert problem.code == "ledger_checked_out"
    assert tree in problem.message
    assert reader.view().state is None
    assert run("git", "status", "--porcelain", home=tmp_path, cwd=Path(tree)) == ""
    run("git", "switch", "-q", "--detach", home=tmp_path, cwd=Path(tree))
    assert reader.view().state == state(2)


# The lock


def test_a_host_that_refuses_custom_refs_gets_a_branch(clones: World) -> None:
    hook(clones.far, "update", 'case "$1" in refs/heads/*) exit 0;; esac; echo only branches >&2; exit 1')
    store = clones.ledger()
    store.acquire(lock(1))
    assert clones.remembered == [LOCK_BRANCH]
    assert store.lock_path == LOCK_BRANCH
    stranger = clones.ledger("two.git")
    assert stranger.observe_lock().info == lock(1)
    with pytest.raises(Exception, match=f"force-unlock {ulid(1)}") as caught:
        stranger.acquire(lock(2, "refresh"))
    assert getattr(caught.value, "code", "") == "state_lock_held"
    clones.ledger("two.git").break_lock(ulid(1))
    assert not store.observe_lock().held


@pytest.mark.parametrize("locks", [(LOCK, LOCK_BRANCH), (LOCK_BRANCH, LOCK)])
def test_there_is_one_holder_whatever_place_each_uses(clones: World, locks: tuple[str, str]) -> None:
    first, second = clones.ledger(locks=locks), clones.ledger("two.git", locks=locks[::-1])
    first.acquire(lock(1))
    assert code_of(lambda: second.acquire(lock(2))) == "state_lock_held"
    assert clones.remote().refs("refs/gitops/locks").keys() | clones.remote().refs("refs/heads").keys() == {locks[0]}
    assert second.observe_lock().info == lock(1)
    first.release(ulid(1))
    second.acquire(lock(2))


def test_a_lock_ref_of_something_else_is_held(world: World) -> None:
    store = world.ledger()
    repository = world.repository()
    oid = commit(repository, {"other.json": b"{}"})
    world.remote().push([RefUpdate(LOCK, ZERO, oid)])
    seen = world.ledger("two.git").observe_lock()
    assert (seen.held, seen.info, seen.problem) == (True, None, "invalid_state_lock")
    assert code_of(lambda: store.acquire(lock(1))) == "state_lock_held"
    assert code_of(lambda: store.break_lock(ulid(1))) == "invalid_state_lock"
    store.release(ulid(1))
    assert world.remote().refs(LOCK) == {LOCK: oid}


_GARBAGE: dict[str, bytes | None] = {
    "no document": None,
    "not JSON": b"\x00\xff",
    "another version": b'{"version":9,"lock_id":"x"}',
    "an id that is none": write_lock(LockInfo("--cluster x\n", "apply", "2026-07-02T09:00:00Z", 1)),
}


@pytest.mark.parametrize("place", [LOCK, LOCK_BRANCH])
@pytest.mark.parametrize("garbage", list(_GARBAGE))
def test_a_lock_that_anybody_pushed_is_broken_by_the_commit_that_the_message_shows(
    clones: World, place: str, garbage: str
) -> None:
    data = _GARBAGE[garbage]
    planted = commit(clones.repository("one.git"), {"README.md": b"x"} if data is None else {"lock.json": data})
    clones.remote("one.git").push([RefUpdate(place, ZERO, planted)])
    ledger = clones.ledger("two.git")
    with pytest.raises(GitopsError, match=f"gitops force-unlock {planted}") as caught:
        ledger.acquire(lock(1))
    assert caught.value.code == "state_lock_held"
    assert clones.remote().refs(place) == {place: planted}
    assert code_of(lambda: ledger.break_lock("0" * 40)) in (
        "invalid_state_lock",
        "state_lock_id_mismatch",
        "unsupported_state_lock_version",
    )
    ledger.break_lock(planted)
    ledger.acquire(lock(1))


def test_a_lock_ref_on_a_blob_is_broken_by_its_id(clones: World) -> None:
    """What is no commit at all, at a ref where git lets anything be."""
    store = clones.repository("one.git")
    run("git", f"--git-dir={store.git_dir}", "hash-object", "-w", "--stdin", home=clones.home, stdin=b"garbage")
    blob = run("git", f"--git-dir={store.git_dir}", "hash-object", "--stdin", home=clones.home, stdin=b"garbage")
    clones.remote("one.git").push([RefUpdate(LOCK, ZERO, blob)])
    ledger = clones.ledger("two.git")
    assert f"force-unlock {blob}" in lock_held_message(ledger.observe_lock())
    ledger.break_lock(blob)
    assert not ledger.observe_lock().held


def test_a_host_that_refuses_every_lock(clones: World) -> None:
    hook(clones.far, "pre-receive", "exit 1")
    assert code_of(lambda: clones.ledger().acquire(lock(1))) == "state_lock_error"
    assert not clones.ledger().observe_lock().held
