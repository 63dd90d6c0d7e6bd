"""A ledger branch under attack: rewound, replaced, forged, read while it is written, with answers that get lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.documents import read_approval, statement_message
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
from gitops.cluster.ledger.chain import verify_chain
from gitops.cluster.ledger.heads import HeadPin
from gitops.cluster.ledger.port import BlobCondition, LedgerView
from gitops.cluster.model.address import query_address
from gitops.cluster.model.approval import ApprovalStatement
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState, LockInfo
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, GitRemote, NewCommit, RefUpdate
from tests.support.audited import Life, declared
from tests.support.branch_ledger import (
    CLUSTER,
    LOCK,
    LOCK_BRANCH,
    REF,
    SEEN,
    Keys,
    World,
    entry_at,
    forge,
    make_keys,
    trusting,
    under_trust,
    written,
)
from tests.support.git_fixture import ALICE, bare, branch, commit, opened, run
from tests.support.git_http import Drop, GitServer
from tests.support.signed import signer

QUERY = query_address("catalogue", "by_handle")
CONTENT = b"query by_handle() { match { $a: Author } return { $a } }\n"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=["self", "path"])
def world(request: pytest.FixtureRequest, tmp_path: Path, keys: Keys) -> World:
    return World(tmp_path, keys, None if request.param == "self" else str(tmp_path / "far.git"))


@pytest.fixture
def clones(tmp_path: Path, keys: Keys) -> World:
    return World(tmp_path, keys, str(tmp_path / "far.git"))


def ledger_of(world: World, entries: int) -> list[str]:
    """Commit ids of a ledger with so many entries, written and seen from clone one."""
    store, view, chain = world.ledger(), LedgerView(), []
    for revision in range(1, entries + 1):
        view = store.commit(view, written(revision))
        chain.append(view.head or "")
    assert world.ledger().view().problems == ()
    return chain


def set_head(world: World, commit_id: str | None) -> None:
    """What a writer with the right to force can do to the branch on the server."""
    target = ("-d", REF) if commit_id is None else (REF, commit_id)
    run("git", f"--git-dir={world.far}", "update-ref", *target, home=world.home)


def refused(ledger: BranchLedger) -> str:
    """Code of the one problem of the view; nothing may be read from or written to such a ledger."""
    view = ledger.view()
    assert (view.found, view.state, view.entry, view.trust) == (True, None, None, None)
    (problem,) = view.problems
    assert ledger.intents().problem
    assert ledger.approvals().problem
    assert ledger.blob(QUERY, digest(CONTENT)).condition is BlobCondition.UNREADABLE
    with pytest.raises(GitopsError):
        ledger.commit(view, written(1))
    return problem.code


# Rewound and replaced


def test_a_rewound_branch(world: World) -> None:
    one, two, three = ledger_of(world, 3)
    set_head(world, two)
    assert refused(world.ledger()) == "ledger_diverged"
    assert refused(world.ledger()) == "ledger_diverged"
    set_head(world, three)
    assert world.ledger().view().head == three
    assert world.repository().resolve(one) == one


def test_what_was_written_here_was_seen_here(world: World) -> None:
    store = world.ledger()
    one = store.commit(LedgerView(), written(1))
    store.commit(one, written(2))
    set_head(world, one.head)
    assert refused(world.ledger()) == "ledger_diverged"


def test_a_replaced_branch(world: World) -> None:
    one, _ = ledger_of(world, 2)
    far = opened(world.far)
    entry = replace(entry_at(far, one), actor="eve")
    other = forge(far, entry, under_trust(world.trust), world.keys.bot)
    set_head(world, other)
    assert refused(world.ledger()) == "ledger_diverged"


def test_a_branch_that_is_gone(world: World) -> None:
    (one,) = ledger_of(world, 1)
    set_head(world, None)
    assert refused(world.ledger()) == "ledger_diverged"
    with pytest.raises(GitopsError) as caught:
        world.ledger().put_blob(QUERY, CONTENT)
    assert caught.value.code == "resource_payload_write_error"
    set_head(world, one)
    assert world.ledger().view().problems == ()


def approval_on(world: World, entry: str, number: int = 1) -> str:
    """A branch on the server that names an entry: a statement about it, which ada signed."""
    far, approval_id = opened(world.far), f"01JZ00000000000000000000{number:02}"
    statement = ApprovalStatement(
        approval_id=approval_id,
        target=written(1).entry.target,
        cluster_tree="3" * 40,
        plan_digest="4" * 64,
        config_digest="1" * 64,
        change_digest="5" * 64,
        policy_digest="6" * 64,
        ledger_head=entry,
        expires_at="2026-07-09T08:00:00Z",
        nonce="01J00000000000000000000002",
    )
    message = statement_message(statement, "Delete it.", sign=signer(far, world.keys.ada))
    new = NewCommit(far.commit(entry).tree, (entry,), ALICE, message)
    ref = f"refs/heads/gitops/approvals/{CLUSTER}/{approval_id}"
    branch(far, ref, far.write_commit(new, signing_key=str(world.keys.ada)))
    return ref


def test_an_approval_tells_a_fresh_clone_of_a_rewound_branch(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    approval_on(clones, two)
    assert clones.ledger("two.git").view().head == two
    fresh = bare(clones.home / "three.git")
    for head in (one, None):
        set_head(clones, head)
        view = clones.ledger(fresh.name).view()
        assert [p.code for p in view.problems] == ["ledger_diverged"]
        assert "gitops/approvals/library/" in view.problems[0].message
        assert opened(fresh).refs(SEEN) == {}
    set_head(clones, two)
    assert clones.ledger(fresh.name).view().problems == ()


def test_an_approval_that_names_nothing_of_a_ledger_stops_nobody(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    far = opened(clones.far)
    unsigned = forge(far, replace(entry_at(far, two), number=3, previous=two), {}, None, two)
    stranger = forge(far, replace(entry_at(far, two), number=3, previous=two), {}, clones.keys.stranger, two)
    for number, named in enumerate((unsigned, stranger, commit(far, {"y": b"1"}))):
        approval_on(clones, named, number)
    assert clones.ledger("two.git").view().head == two
    assert clones.ledger("two.git").approvals().unreadable == ()
    assert one != two


def test_a_clone_that_is_up_to_date_is_told_by_the_listing_of_approvals(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    set_head(clones, one)
    clones.ledger("two.git").view()
    ref = approval_on(clones, two)
    (told,) = clones.ledger("two.git").approvals().unreadable
    assert (told.name, told.code) == (ref.rpartition("/")[2], "ledger_diverged")
    assert f"names entry {two[:12]}" in told.detail


def test_a_commit_that_anybody_pushed_on_top_of_an_entry_proves_nothing(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    set_head(clones, one)
    clones.ledger("two.git").view()
    far, ref = opened(clones.far), f"refs/heads/gitops/approvals/{CLUSTER}/01JZ0000000000000000000001"
    branch(far, ref, commit(far, {"x": b"1"}, two))
    assert [each.code for each in clones.ledger("two.git").approvals().unreadable] == ["ledger_foreign_document"]
    fresh = bare(clones.home / "three.git")
    assert clones.ledger(fresh.name).view().problems == ()


def test_an_approval_of_an_entry_that_just_came_is_no_alarm(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    set_head(clones, one)
    handle = clones.ledger("two.git")
    assert handle.view().head == one
    # Between two questions of one reader, somebody publishes an entry and somebody else approves on top of it.
    set_head(clones, two)
    approval_on(clones, two)
    listing = handle.approvals()
    assert (listing.unreadable, listing.evidence) == ((), ())
    assert "another writer changed the ledger" in (listing.problem or "")
    assert clones.ledger("two.git").view().head == two
    assert clones.ledger("two.git").approvals().unreadable == ()


def test_a_note_beside_the_refs_counts_like_the_ref(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    pin = HeadPin(clones.home / "two.git", CLUSTER)
    clones.ledger("two.git").view()
    assert pin.read() is None
    place = clones.ledger("two.git")._place
    kept = replace(place, read_note=pin.read, write_note=pin.write)
    store, remote = clones.repository("two.git"), clones.remote("two.git")
    assert BranchLedger(store, remote, kept, clones.clock).view().head == two
    assert pin.read() == two
    run("git", f"--git-dir={clones.home / 'two.git'}", "update-ref", "-d", SEEN, home=clones.home)
    run("git", f"--git-dir={clones.home / 'two.git'}", "update-ref", "-d", REF, home=clones.home)
    for head in (one, None):
        set_head(clones, head)
        problems = BranchLedger(store, remote, kept, clones.clock).view().problems
        assert [p.code for p in problems] == ["ledger_diverged"]
    assert pin.read() == two


def test_the_note_of_what_was_seen_outlives_the_branch_of_the_clone(clones: World) -> None:
    one, two = ledger_of(clones, 2)
    home = clones.home
    run("git", f"--git-dir={home / 'one.git'}", "update-ref", "-d", REF, home=home)
    set_head(clones, one)
    assert refused(clones.ledger()) == "ledger_diverged"
    assert clones.repository().refs("refs") == {SEEN: two}


def test_a_branch_of_the_clone_that_the_server_never_had(clones: World) -> None:
    (one,) = ledger_of(clones, 1)
    two = clones.repository("two.git")
    clones.ledger("two.git").view()
    mine = commit(two, {"mine": b"1"}, one)
    branch(two, REF, mine, one)
    assert refused(clones.ledger("two.git")) == "ledger_diverged"
    assert two.resolve(REF) == mine
    assert clones.ledger().view().problems == ()


def test_a_clone_that_has_only_a_branch_does_not_take_its_word(clones: World) -> None:
    (one,) = ledger_of(clones, 1)
    two = clones.repository("two.git")
    clones.remote("two.git").fetch([REF])
    unsigned = replace(entry_at(two, one), number=2, previous=one)
    forged = forge(two, unsigned, {}, None, one)
    branch(two, REF, forged)
    clones.remote("two.git").push([RefUpdate(REF, one, forged)])
    assert refused(clones.ledger("two.git")) == "ledger_signature_invalid"


@dataclass
class SlowAnswer:
    """A remote whose next answer, about refs or a push, is on its way while somebody works."""

    remote: GitRemote
    meanwhile: Callable[[], object]

    @property
    def url(self) -> str:
        return self.remote.url

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        answer = self.remote.refs(prefix, *more)
        self._work()
        return answer

    def fetch(self, refspecs: Sequence[str]) -> None:
        self.remote.fetch(refspecs)

    def push(self, updates: Sequence[RefUpdate]) -> None:
        self.remote.push(updates)
        self._work()

    def _work(self) -> None:
        work, self.meanwhile = self.meanwhile, lambda: None
        work()


def test_what_is_learned_during_a_push_goes_into_the_next_entry(world: World) -> None:
    def intent(version: int) -> Intent:
        return Intent(
            operation_id="operation-9",
            started_at="2026-07-02T09:00:00Z",
            actor=None,
            kind=IntentKind.SCHEMA_APPLY,
            graph_id="catalogue",
            graph_uri="/srv/graphs/catalogue.omni",
            observed_manifest_version=7,
            expected_manifest_version=version,
            desired_schema_digest="8" * 64,
            state_cas_base=None,
            approval_id=None,
        )

    slow = SlowAnswer(world.remote(), lambda: None)
    place = BranchSettings("library", ALICE, str(world.keys.bot), LOCK, LOCK_BRANCH)
    ledger = BranchLedger(world.repository(), slow, place, world.clock)
    view = ledger.commit(LedgerView(), replace(written(1), trust_files=world.trust))
    ledger.amend(intent(8))
    slow.meanwhile = lambda: ledger.amend(intent(9))
    view = ledger.commit(view, written(2))
    assert world.ledger("two.git").intents().intents == (intent(8),)
    view = ledger.commit(view, written(3))
    assert world.ledger("two.git").intents().intents == (intent(9),)
    ledger.amend(intent(10))
    view = ledger.commit(view, replace(written(4), retire=("operation-9",)))
    ledger.commit(view, written(5))
    assert world.ledger("two.git").intents().intents == ()


@pytest.mark.parametrize("clone", ["one.git", "two.git"])
def test_an_old_answer_is_no_rewind(world: World, clone: str) -> None:
    """Another process of the same clone may have noted a newer head by the time that our answer arrives."""
    _, two = ledger_of(world, 2)

    def meanwhile() -> None:
        other = world.ledger(clone)
        other.commit(other.view(), written(3))
        assert world.ledger(clone).view().problems == ()

    place = BranchSettings("library", ALICE, None, LOCK, LOCK_BRANCH)
    slow = SlowAnswer(world.remote(clone), meanwhile)
    ledger = BranchLedger(world.repository(clone), slow, place, world.clock)
    view = ledger.view()
    assert (view.head, view.problems) == (two, ())
    assert ledger.view().state == LedgerState(revision=3)
    assert world.repository(clone).resolve(SEEN) == ledger.view().head


# Forged


@pytest.mark.parametrize("who", ["nobody", "ada", "stranger"])
@pytest.mark.parametrize("clone", ["one.git", "two.git"])
def test_an_entry_that_no_ledger_key_signed(world: World, who: str, clone: str) -> None:
    """Clone two sees the ledger for the first time, so it has only the chain to go by."""
    (one,) = ledger_of(world, 1)
    far = opened(world.far)
    key = None if who == "nobody" else getattr(world.keys, who)
    takeover = under_trust(trusting(replace(world.keys, bot=world.keys.stranger)))
    second = forge(far, replace(entry_at(far, one), number=2, previous=one), takeover, key, one)
    set_head(world, second)
    assert refused(world.ledger(clone)) == "ledger_signature_invalid"
    third = forge(far, replace(entry_at(far, one), number=3, previous=second), {}, world.keys.stranger, second)
    set_head(world, third)
    assert refused(world.ledger(clone)) == "ledger_signature_invalid"
    set_head(world, one)
    assert world.ledger(clone).view().problems == ()


def test_a_tampered_entry(world: World) -> None:
    one, two = ledger_of(world, 2)
    far = opened(world.far)
    raw = run("git", f"--git-dir={world.far}", "cat-file", "commit", two, home=world.home) + "\n"
    tree = far.write_files(far.commit(two).tree, {layout.STATE: b'{"version": 1}'})
    git = ("git", f"--git-dir={world.far}", "hash-object", "-t", "commit", "-w", "--stdin")
    tampered = run(*git, home=world.home, stdin=raw.replace(far.commit(two).tree, tree).encode())
    assert tampered != two
    set_head(world, tampered)
    assert refused(world.ledger("two.git")) in ("ledger_signature_invalid", "ledger_diverged")
    set_head(world, one)
    assert refused(world.ledger()) == "ledger_diverged"


def test_a_tampered_blob_is_not_served(world: World) -> None:
    """Even under a good signature: what a blob is called must be what it is."""
    (one,) = ledger_of(world, 1)
    far = opened(world.far)
    path = layout.blob_key(QUERY, digest(CONTENT)) or ""
    entry = replace(entry_at(far, one), number=2, previous=one)
    set_head(world, forge(far, entry, {path: b"match { everything }"}, world.keys.bot, one))
    store = world.ledger()
    reading = store.blob(QUERY, digest(CONTENT))
    assert (reading.condition, reading.content) == (BlobCondition.MISMATCH, None)
    store.put_blob(QUERY, CONTENT)
    store.commit(store.view(), written(2))
    assert world.ledger("two.git").blob(QUERY, digest(CONTENT)).content == CONTENT


def test_the_ledger_of_another_cluster(world: World) -> None:
    store = world.ledger()
    store.commit(store.view(), written(1, cluster="archive"))
    assert refused(world.ledger("two.git")) == "ledger_entry_invalid"


def test_a_key_past_its_time_writes_no_more(world: World) -> None:
    world.trust = trusting(world.keys, bot_options='valid-before="20260702093000Z"')
    store = world.ledger()
    view = store.commit(store.view(), written(1))
    late = written(2)
    assert late.entry is not None
    with pytest.raises(GitopsError) as caught:
        store.commit(view, replace(late, entry=replace(late.entry, at="2026-07-02T09:30:00Z")))
    assert caught.value.code == "ledger_not_writable"
    assert world.ledger("two.git").view() == view


# Half an answer


@contextmanager
def served(tmp_path: Path, keys: Keys) -> Iterator[tuple[World, GitServer]]:
    with GitServer(tmp_path) as server:
        yield World(tmp_path, keys, server.url("far.git")), server


def dropping(times: int) -> Callable[[str, str], Drop | None]:
    """Lose the replies to the first pushes."""
    left = iter(range(times))

    def fault(method: str, path: str) -> Drop | None:
        pushed = method == "POST" and path.endswith("/git-receive-pack")
        return Drop.REPLY if pushed and next(left, None) is not None else None

    return fault


@pytest.mark.parametrize("times", [1, 9])
def test_a_lost_answer_does_not_lose_an_entry_or_a_lock(tmp_path: Path, keys: Keys, times: int) -> None:
    """Once: the client sends the push again, and finds the ref moved by its own first try."""
    with served(tmp_path, keys) as (world, server):
        store = world.ledger()
        server.fault = dropping(times)
        view = store.commit(store.view(), written(1))
        assert world.ledger("two.git").view() == view
        server.fault = dropping(times)
        store.acquire(LockInfo("lock-1", "apply", "2026-07-02T09:00:00Z", 1))
        seen = world.ledger("two.git").observe_lock().info
        assert seen is not None
        assert seen.lock_id == "lock-1"
        server.fault = dropping(times)
        store.break_lock("lock-1")
        assert not store.observe_lock().held


def test_a_lock_that_cannot_be_made_sure_of_is_given_back(tmp_path: Path, keys: Keys) -> None:
    """The push succeeds, then the look for a holder in the other place fails once."""
    with served(tmp_path, keys) as (world, server):
        store = world.ledger()
        failures = iter([503])

        def fault(method: str, path: str) -> int | None:
            looking = "git-upload-pack" in path and any("git-receive-pack" in line for line in server.log)
            return next(failures, None) if looking else None

        server.fault = fault
        with pytest.raises(GitopsError) as caught:
            store.acquire(LockInfo("lock-1", "apply", "2026-07-02T09:00:00Z", 1))
        assert caught.value.code == "state_lock_error"
        assert next(failures, None) is None
        assert world.remote("two.git").refs("refs") == {}


# Two at once


class Inside:
    """A file that only the holder of the lock may have: created exclusively, so that a second holder crashes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._path.open("x").close()

    def __exit__(self, *exc: object) -> None:
        self._path.unlink()


_PROGRAM = """
import random, sys, time
from dataclasses import replace
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
import test_branch_ledger as here
from gitops.core.errors import ConflictError
from tests.support.branch_ledger import Keys, World, written

home, url, name, rounds = Path(sys.argv[3]), sys.argv[4] or None, sys.argv[5], int(sys.argv[6])
keys = Keys(*(Path(path) for path in sys.argv[7:10]))
done = 0
print("ready", flush=True)
sys.stdin.readline()
while done < rounds:
    ledger = World(home, keys, url).ledger(name + ".git")
    lock_id = f"{name}-{done}"
    try:
        ledger.acquire(here.LockInfo(lock_id, "apply", "2026-07-02T09:00:00Z", 1))
    except ConflictError:
        time.sleep(random.uniform(0, 0.05))
        continue
    with here.Inside(home / "inside"):
        view = ledger.view()
        revision = 1 if view.state is None else view.state.revision + 1
        write = written(revision)
        ledger.commit(view, replace(write, entry=replace(write.entry, operation=lock_id)))
    ledger.release(lock_id)
    done += 1
print("done", flush=True)
"""


def race(world: World, rounds: int) -> None:
    """Two processes take turns under the lock; every round of both must be in the ledger, one after the other."""
    here = Path(__file__).parent
    keys = (world.keys.bot, world.keys.ada, world.keys.stranger)
    common = [sys.executable, "-c", _PROGRAM, str(here), str(here.parents[1]), str(world.home), world.url or ""]
    processes = [
        subprocess.Popen(
            [*common, name, str(rounds), *map(str, keys)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=120)[0] for process in processes] == ["done\n"] * 2
    finally:
        for process in processes:
            process.kill()
            process.wait()
    far = opened(world.far)
    head = far.resolve(REF) or ""
    newest = verify_chain(far, head, None)
    assert newest.entry.number == 2 * rounds
    chain = far.commits_between(None, head)
    assert all(len(c.parents) <= 1 for c in chain)
    operations = [entry_at(far, c.id).operation for c in chain]
    assert sorted(operations) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(rounds))
    assert not world.ledger().observe_lock().held


def test_two_processes_over_a_path(clones: World) -> None:
    race(clones, 10)


def test_two_processes_in_one_repository(tmp_path: Path, keys: Keys) -> None:
    race(World(tmp_path, keys, None), 10)


@pytest.mark.slow
def test_two_processes_over_a_path_for_long(clones: World) -> None:
    race(clones, 50)


@pytest.mark.slow
def test_two_processes_over_a_server_for_long(tmp_path: Path, keys: Keys) -> None:
    with served(tmp_path, keys) as (world, _):
        race(world, 50)


_AFTER_THE_DEED = "cluster_apply.after_graph_delete"
_COMPLETIONS: dict[str, Callable[[Life], object]] = {
    "apply": Life.apply,
    "refresh": lambda life: refresh(life.workspace()),
}


@pytest.fixture
def life(tmp_path) -> Life:
    """Graph `legacy` was deleted with ada's approval by a run that died before it could say so."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.apply(dying_at=_AFTER_THE_DEED)
    return life


def approvals(life: Life, number: int) -> dict[str, str | None]:
    """Id to the operation that used it, for every approval document of an entry."""
    folder = "__cluster/approvals"
    tree = life.git.commit(life.chain()[number - 1]).tree
    names = [e.name for e in life.git.entries(life.git.subtree(tree, folder) or "")]
    found = [read_approval(life.file(number, f"{folder}/{name}")) for name in names]
    return {a.approval_id: a.consumed_by_operation for a in found}


@pytest.mark.parametrize("verb", _COMPLETIONS)
def test_the_document_is_marked_with_the_entry_that_completes_the_delete(life, verb):
    announced = len(life.chain())
    ((approval_id, unused),) = approvals(life, announced).items()
    assert unused is None
    _COMPLETIONS[verb](life)
    record = life.state(announced + 1).approval_records[approval_id]
    assert approvals(life, announced + 1) == {approval_id: record["consumed_by_operation"]}
    assert life.audit(life.chain()[-1]).ok


def test_the_document_of_an_announced_approval_permits_nothing(tmp_path):
    """What counts are the approval commits: without the branch of this one, the unspent document is but paper."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    commit = life.approve("ada", "graph.legacy")
    life.apply(dying_at="cluster_apply.before_graph_delete")
    assert set(approvals(life, len(life.chain())).values()) == {None}
    (ref,) = [ref for ref, at in life.git.refs("refs/heads/").items() if at == commit]
    life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    outcome = life.apply()
    assert [c.reason for c in outcome.changes if c.address == "graph.legacy"] == ["approval_required"]
