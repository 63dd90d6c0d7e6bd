"""A branch ledger when answers get lost, and when two processes write at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops.cluster.ledger.chain import verify_chain
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import GitopsError
from tests.support.branch_ledger import REF, Keys, World, entry_at, make_keys, written
from tests.support.git_fixture import opened
from tests.support.git_http import Drop, GitServer


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def clones(tmp_path: Path, keys: Keys) -> World:
    return World(tmp_path, keys, str(tmp_path / "far.git"))


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
import test_branch_ledger_remote as here
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
