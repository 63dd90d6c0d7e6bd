"""A remote that is asked once: the same answers as the remote itself, as long as nothing was pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, RemoteError
from gitops.git.cached_remote import CachedRemote
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.repository.kept_plans import plan_ref
from tests.support.git_fixture import bare, commit, opened

MAIN = "refs/heads/main"
OWN = "refs/heads/gitops"
LEDGER = "refs/heads/gitops/ledger/brain"
APPROVAL = "refs/heads/gitops/approvals/brain/01JZ0000000000000000000001"
PLAN = plan_ref("brain", 1)


class Asked(SelfRemote):
    """Notes what it is asked."""

    def refs(self, prefix: str, *more: str):
        self.__dict__.setdefault("log", []).append((prefix, *more))
        return super().refs(prefix, *more)

    def fetch(self, refspecs):
        self.__dict__.setdefault("fetched", []).append(tuple(refspecs))
        if "refs/heads/gitops/ledger/gone" in refspecs:
            raise RemoteError("git_remote_unavailable", "couldn't find remote ref")


@pytest.fixture
def far(tmp_path: Path) -> Asked:
    repository = opened(bare(tmp_path / "far.git"))
    first = commit(repository, {"a": b"1"}, message="one\n")
    repository.update_refs([RefUpdate(MAIN, ZERO, first)])
    return Asked(repository)


def _move(far: Asked, ref: str = MAIN) -> str:
    repository = opened(Path(far.url))
    old = repository.resolve(ref)
    new = commit(repository, {"a": b"2"}, *([] if old is None else [old]), message="two\n")
    repository.update_refs([RefUpdate(ref, old or ZERO, new)])
    return new


def _cached(far: Asked, **named) -> CachedRemote:
    return CachedRemote(far, **named)


def test_a_branch_is_asked_for_once(far: Asked) -> None:
    remote = _cached(far)
    before = remote.refs(MAIN)
    _move(far)
    assert remote.refs(MAIN) == before
    assert remote.refs(LEDGER) == {}
    assert far.log == [(OWN, MAIN)]
    assert (remote.url, remote.fetch([MAIN])) == (far.url, None)


def test_what_was_asked_just_now_is_not_asked_again(far: Asked) -> None:
    found = far.refs(MAIN)
    far.log.clear()
    remote = _cached(far, known=found, own={LEDGER: found[MAIN], APPROVAL: found[MAIN]})
    assert remote.refs(MAIN) == found
    assert remote.refs(LEDGER) == {LEDGER: found[MAIN]}
    assert remote.refs(OWN) == {LEDGER: found[MAIN], APPROVAL: found[MAIN]}
    assert far.log == []


def test_a_lock_is_looked_for_each_time_and_fills_an_empty_list(far: Asked) -> None:
    remote = _cached(far)
    lock = f"{OWN}/locks/brain"
    assert remote.refs(lock) == {}
    taken = _move(far, lock)
    assert (remote.refs(LEDGER), remote.refs(lock)) == ({}, {lock: taken})
    assert far.log == [(OWN, lock), (lock,)]


def test_ledgers_and_approvals_are_of_one_moment(far: Asked) -> None:
    remote = _cached(far)
    assert remote.refs(LEDGER) == {}
    _move(far, LEDGER)
    _move(far, APPROVAL)
    assert (remote.refs(APPROVAL), remote.refs(OWN)) == ({}, {})
    assert far.log == [(OWN,)]


@pytest.mark.parametrize(
    "ref", ["refs/gitops/locks/brain", "refs/heads/gitops/locks/brain", "refs/pull/7/head", "refs/gitops/pushes/log"]
)
def test_what_decides_is_asked_for_each_time(far: Asked, ref: str) -> None:
    remote = _cached(far)
    assert remote.refs(ref) == {}
    new = _move(far, ref)
    assert remote.refs(ref) == {ref: new}
    assert remote.refs(ref, PLAN) == {ref: new}
    newer = _move(far, ref)
    assert remote.refs(ref) == remote.refs(ref, PLAN) == {ref: newer}


def test_what_decides_nothing_is_kept_and_its_push_forgets_nothing_else(far: Asked) -> None:
    remote = _cached(far)
    before = remote.refs(MAIN)
    assert remote.refs("refs/pull/7/head", PLAN) == {}
    far.log.clear()
    assert remote.refs(PLAN) == {}
    remote.push([RefUpdate(PLAN, ZERO, before[MAIN])])
    _move(far)
    assert (remote.refs(MAIN), remote.refs(LEDGER)) == (before, {})
    assert far.log == []
    assert remote.refs(PLAN) == {PLAN: before[MAIN]}


def test_a_push_forgets_whether_it_wins_or_loses(far: Asked) -> None:
    remote = _cached(far)
    first = remote.refs(MAIN)[MAIN]
    second = _move(far)
    entry = _move(far, LEDGER)
    with pytest.raises(ConflictError):
        remote.push([RefUpdate(MAIN, first, second)])
    far.log.clear()
    assert remote.refs(LEDGER) == {LEDGER: entry}
    assert remote.refs(MAIN) == {MAIN: second}
    # What was asked for before is listed with it.
    assert far.log == [(OWN, MAIN)]
    third = commit(opened(Path(far.url)), {"a": b"3"}, second, message="three\n")
    remote.push([RefUpdate(MAIN, second, third)])
    assert remote.refs(MAIN) == {MAIN: third}


def test_a_lock_is_taken_by_a_push_so_what_is_read_under_it_is_newer(far: Asked) -> None:
    remote = _cached(far)
    assert remote.refs(LEDGER) == {}
    entry = _move(far, LEDGER)
    remote.push([RefUpdate("refs/gitops/locks/brain", ZERO, entry)])
    assert remote.refs(LEDGER) == {LEDGER: entry}


def test_who_needs_the_present_asks_for_it(far: Asked) -> None:
    remote = _cached(far)
    assert remote.forget() is False
    remote.refs(LEDGER)
    entry = _move(far, LEDGER)
    assert remote.forget() is True
    assert remote.refs(LEDGER) == {LEDGER: entry}


def test_the_first_fetch_brings_what_else_is_missing(far: Asked) -> None:
    own = {LEDGER: "1" * 40, APPROVAL: "2" * 40}
    remote = _cached(far, own=own, resolve=lambda head: head if head == own[APPROVAL] else None)
    remote.fetch([])
    remote.fetch(["refs/pull/7/head"])
    remote.fetch([LEDGER])
    assert far.fetched == [(), ("refs/pull/7/head", LEDGER), (LEDGER,)]


def test_a_branch_that_is_gone_spoils_no_fetch(far: Asked) -> None:
    remote = _cached(far, own={"refs/heads/gitops/ledger/gone": "1" * 40}, resolve=lambda _: None)
    remote.fetch(["refs/pull/7/head"])
    assert far.fetched == [("refs/pull/7/head", "refs/heads/gitops/ledger/gone"), ("refs/pull/7/head",)]
