"""The probe of the bot's refs: what a host takes, what it leaves behind (nothing), and what cannot be taken back."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.doctor.findings import DoctorFinding, Health
from gitops.doctor.trust import probe_locks
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.repository import GitRepository
from gitops.repository.wiring.system import RandomIds

HOOKS = {
    "takes everything": "",
    "takes branches alone": 'case "$1" in refs/heads/*) ;; *) echo "custom refs are not taken" >&2; exit 1 ;; esac',
    "takes nothing": 'echo "nothing is taken" >&2; exit 1',
    "deletes nothing": 'case "$3" in 000*) echo "nothing is deleted" >&2; exit 1 ;; esac',
}


@pytest.fixture
def host(tmp_path: Path) -> tuple[GitRepository, ProgramRemote]:
    """A clone without commits and the bare repository behind it."""
    for name in ("host", "clone"):
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / name)], check=True)
    clone = GitRepository(tmp_path / "clone")
    return clone, ProgramRemote(clone.git_dir, str(tmp_path / "host"))


def _probed(host: tuple[GitRepository, ProgramRemote], rule: str) -> dict[str, DoctorFinding]:
    clone, remote = host
    hook = Path(remote.url) / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{HOOKS[rule]}\n")
    hook.chmod(0o755)
    return {f.check: f for f in probe_locks(clone, remote, RandomIds(), Person("doctor", "d@x"))}


def test_custom_refs_are_found_and_nothing_is_left(host: tuple[GitRepository, ProgramRemote]) -> None:
    found = _probed(host, "takes everything")
    assert {f.health for f in found.values()} == {Health.GOOD}
    assert "accepts custom refs" in found["ledger.lock-refs"].detail
    assert host[1].refs("refs") == {}


def test_a_host_that_takes_branches_alone_is_found(host: tuple[GitRepository, ProgramRemote]) -> None:
    found = _probed(host, "takes branches alone")
    assert {f.health for f in found.values()} == {Health.GOOD}
    assert "locks are branches" in found["ledger.lock-refs"].detail
    assert host[1].refs("refs") == {}


def test_a_host_that_takes_nothing_is_an_error_with_its_words(host: tuple[GitRepository, ProgramRemote]) -> None:
    (finding,) = _probed(host, "takes nothing").values()
    assert finding.health is Health.ERROR
    assert "nothing is taken" in finding.detail
    assert host[1].refs("refs") == {}


def test_what_cannot_be_taken_back_is_named_with_the_command(host: tuple[GitRepository, ProgramRemote]) -> None:
    finding = _probed(host, "deletes nothing")["ledger.writable"]
    (left,) = host[1].refs("refs")
    assert finding.health is Health.ERROR
    assert left in finding.detail
    assert f"--delete {left}" in finding.fix


class Broken:
    """A remote whose pushes end in one way."""

    def __init__(self, problem: GitopsError) -> None:
        self.url = "nowhere"
        self._problem = problem

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        return {}

    def fetch(self, refspecs: Sequence[str]) -> None:
        raise self._problem

    def push(self, updates: Sequence[RefUpdate]) -> None:
        assert all(update.old == ZERO for update in updates)
        raise self._problem


@pytest.mark.parametrize(
    ("problem", "health"),
    [
        (RemoteError("git_remote_unavailable", "no route to host", retryable=True), Health.UNKNOWN),
        (RemoteError("git_remote_unavailable", "authentication failed"), Health.ERROR),
        (ConflictError("git_ref_conflict", "somebody else"), Health.ERROR),
        (GitopsError("push_refused", "no"), Health.ERROR),
    ],
)
def test_a_remote_that_does_not_answer_says_nothing_about_rights(
    host: tuple[GitRepository, ProgramRemote], problem: GitopsError, health: Health
) -> None:
    (finding,) = probe_locks(host[0], Broken(problem), RandomIds(), Person("doctor", "d@x"))
    assert (finding.check, finding.health) == ("ledger.writable", health)
    assert problem.detail in finding.detail
