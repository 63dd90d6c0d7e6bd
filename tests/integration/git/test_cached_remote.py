"""A remote that is asked once: the same answers as the remote itself, as long as nothing was pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import ConflictError
from gitops.git.cached_remote import CachedRemote
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import SelfRemote
from tests.support.git_fixture import bare, commit, opened

MAIN = "refs/heads/main"


class Asked(SelfRemote):
    """Notes what it is asked."""

    def refs(self, prefix: str):
        self.__dict__.setdefault("log", []).append(prefix)
        return super().refs(prefix)


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


def test_a_branch_is_asked_for_once(far: Asked) -> None:
    remote = CachedRemote(far)
    before = remote.refs(MAIN)
    _move(far)
    assert remote.refs(MAIN) == before
    assert far.log == [MAIN]
    assert (remote.url, remote.fetch([MAIN])) == (far.url, None)


def test_what_was_asked_just_now_is_not_asked_again(far: Asked) -> None:
    found = {MAIN: far.refs(MAIN)[MAIN], "refs/heads/gitops/ledger/brain": "0" * 40}
    far.log.clear()
    remote = CachedRemote(far, found)
    assert remote.refs(MAIN) == {MAIN: found[MAIN]}
    assert far.log == []
    # The ledger is never taken from what is remembered.
    assert remote.refs("refs/heads/gitops/ledger/brain") == {}


@pytest.mark.parametrize("ref", ["refs/heads/gitops/ledger/brain", "refs/gitops/locks/brain", "refs/pull/7/head"])
def test_what_decides_is_asked_for_each_time(far: Asked, ref: str) -> None:
    remote = CachedRemote(far)
    assert remote.refs(ref) == {}
    assert remote.refs("refs/heads/gitops") == {}
    new = _move(far, ref)
    assert remote.refs(ref) == {ref: new}
    found = remote.refs("refs/heads/gitops")
    assert (ref in found) == ref.startswith("refs/heads/gitops/")


def test_a_push_forgets_whether_it_wins_or_loses(far: Asked) -> None:
    remote = CachedRemote(far)
    first = remote.refs(MAIN)[MAIN]
    second = _move(far)
    with pytest.raises(ConflictError):
        remote.push([RefUpdate(MAIN, first, second)])
    assert remote.refs(MAIN) == {MAIN: second}
    third = commit(opened(Path(far.url)), {"a": b"3"}, second, message="three\n")
    remote.push([RefUpdate(MAIN, second, third)])
    assert remote.refs(MAIN) == {MAIN: third}
