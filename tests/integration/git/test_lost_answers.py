"""A push of which a server says "invalid old id sent", as JGit does for one that it has carried out before: the refs decide."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, RemoteError
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.repository import GitRepository
from tests.support.git_fixture import bare, commit, hook, opened, run

REF = "refs/x/ledger"
HOOK = """\
import subprocess, sys

def read():
    size = int(sys.stdin.buffer.read(4), 16)
    return sys.stdin.buffer.read(size - 4) if size else None

def write(*lines):
    for line in lines:
        sys.stdout.buffer.write(b"%04x" % (len(line) + 4) + line)
    sys.stdout.buffer.write(b"0000")
    sys.stdout.buffer.flush()

while read() is not None:
    pass
write(b"version=1\\0")
(old, new, ref), *_ = [line.split() for line in iter(read, None)]
moved = "{moved}"
if moved:
    subprocess.run(["git", "update-ref", ref, new if moved == "new" else moved], check=True)
write(b"ng " + ref + b" invalid old id sent")
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[GitRepository, Path]:
    """A repository, and an empty server whose pushes to `refs/x` are answered by its hook."""
    server = bare(tmp_path / "server.git")
    run("git", "config", "receive.procReceiveRefs", "refs/x", home=tmp_path, cwd=server)
    return opened(bare(tmp_path / "own.git")), server


def _answered(server: Path, moved: str) -> None:
    hook(server, "proc-receive", f"exec {sys.executable} -c '{HOOK.format(moved=moved)}'")


def test_a_push_that_was_carried_out_is_done(places: tuple[GitRepository, Path]) -> None:
    store, server = places
    _answered(server, "new")
    new = commit(store, {"entry": b""})
    ProgramRemote(store.git_dir, str(server)).push([RefUpdate(REF, ZERO, new)])
    assert opened(server).resolve(REF) == new


def test_another_writer_in_between_is_a_conflict(places: tuple[GitRepository, Path]) -> None:
    store, server = places
    other = opened(server)
    _answered(server, commit(other, {"another": b""}))
    with pytest.raises(ConflictError):
        ProgramRemote(store.git_dir, str(server)).push([RefUpdate(REF, ZERO, commit(store, {"entry": b""}))])


def test_a_push_of_which_nothing_came_may_be_sent_again(places: tuple[GitRepository, Path]) -> None:
    store, server = places
    _answered(server, "")
    with pytest.raises(RemoteError) as failed:
        ProgramRemote(store.git_dir, str(server)).push([RefUpdate(REF, ZERO, commit(store, {"entry": b""}))])
    assert failed.value.retryable
