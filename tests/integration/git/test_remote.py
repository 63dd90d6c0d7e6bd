"""A remote: what is kept of it, how to log in, what a push reports, and answers that get lost."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, RemoteError
from gitops.git.cached_remote import CachedRemote
from gitops.git.command import Output
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote, _push_result, _PushResult
from gitops.git.repository import GitRepository
from gitops.repository.kept_plans import plan_ref
from tests.support.git_fixture import bare, commit, hook, opened, run
from tests.support.git_http import GitServer
from tests.support.http_service import HttpService, Reply

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


ONE, TWO = "1" * 40, "2" * 40
CREATE = RefUpdate("refs/x/lock", ZERO, ONE)
MOVE = RefUpdate("refs/heads/main", ONE, TWO)

SINGLE = [
    (0, "*", "[new reference]", "", "MOVED"),
    (0, " ", "1111111..2222222", "", "MOVED"),
    (0, "+", "1111111...2222222 (forced update)", "", "MOVED"),
    (0, "-", "[deleted]", "", "MOVED"),
    (0, "=", "[up to date]", "", "LOST"),
    (1, "!", "[rejected] (stale info)", "", "LOST"),
    (1, "!", "[rejected] (fetch first)", "", "LOST"),
    (1, "!", "[rejected] (non-fast-forward)", "", "LOST"),
    (1, "!", "[rejected] (already exists)", "", "LOST"),
    (1, "!", "[remote rejected] (failed to update ref)", "", "LOST"),
    (1, "!", "[remote rejected] (cannot lock ref 'refs/x/lock': reference already exists)", "", "LOST"),
    (1, "!", "[remote rejected] (incorrect old value provided)", "", "LOST"),
    (
        1,
        "!",
        "[remote rejected] (atomic transaction failed)",
        "remote: error: cannot lock ref 'refs/x/lock': is at",
        "LOST",
    ),
    (1, "!", "[remote rejected] (atomic transaction failed)", "", "UNKNOWN"),
    # JGit, for a push that it did before, or for another one: the refs are read back.
    (1, "!", "[remote rejected] (invalid old id sent)", "", "UNKNOWN"),
    (1, "!", "[remote rejected] (pre-receive hook declined)", "remote: cannot lock ref", "REFUSED"),
    (1, "!", "[remote rejected] (hook declined)", "", "REFUSED"),
    (1, "!", "[remote rejected] (protected branch hook declined)", "", "REFUSED"),
    (1, "!", "[remote rejected] (non-fast-forward)", "", "REFUSED"),
    (1, "!", "[remote rejected] (deny updating a hidden ref)", "", "REFUSED"),
    (1, "!", "[remote rejected] (branch is currently checked out)", "", "REFUSED"),
    (1, "!", "[remote rejected] (unpacker error)", "", "UNKNOWN"),
    (1, "!", "[remote rejected] (missing necessary objects)", "", "UNKNOWN"),
    (1, "!", "[remote failure] (remote failed to report status)", "", "UNKNOWN"),
    # The flag alone is not enough when git says that it failed, and the status alone is not enough without the flag.
    (1, "*", "[new reference]", "", "UNKNOWN"),
]


def report(update: RefUpdate, flag: str, summary: str) -> str:
    return f"{flag}\t{update.new}:{update.ref}\t{summary}\n"


@pytest.mark.parametrize(("status", "flag", "summary", "stderr", "verdict"), SINGLE)
def test_one_ref(status: int, flag: str, summary: str, stderr: str, verdict: str) -> None:
    stdout = f"To https://example.org/x.git\n{report(CREATE, flag, summary)}Done\n".encode()
    assert _push_result([CREATE], Output(status, stdout, stderr)) is _PushResult[verdict]


def test_silence_is_no_success() -> None:
    assert _push_result([CREATE], Output(0, b"Everything up-to-date\n", "")) is _PushResult.UNKNOWN
    assert (
        _push_result([CREATE, MOVE], Output(0, report(CREATE, "*", "[new reference]").encode(), ""))
        is _PushResult.UNKNOWN
    )


def test_a_line_about_another_ref_counts_for_nothing() -> None:
    other = RefUpdate("refs/x/other", ZERO, ONE)
    assert _push_result([CREATE], Output(0, report(other, "*", "[new reference]").encode(), "")) is _PushResult.UNKNOWN


def test_a_refusal_outweighs_a_lost_race_and_a_lost_race_what_goes_along() -> None:
    refused = report(CREATE, "!", "[remote rejected] (hook declined)")
    lost = report(MOVE, "!", "[rejected] (stale info)")
    along = report(CREATE, "!", "[rejected] (atomic push failed)")
    assert _push_result([CREATE, MOVE], Output(1, (refused + lost).encode(), "")) is _PushResult.REFUSED
    assert _push_result([CREATE, MOVE], Output(1, (along + lost).encode(), "")) is _PushResult.LOST


def test_a_guarding_ref_may_be_up_to_date() -> None:
    guard = RefUpdate("refs/heads/main", ONE, ONE)
    lines = report(guard, "=", "[up to date]") + report(CREATE, "*", "[new reference]")
    assert _push_result([guard, CREATE], Output(0, lines.encode(), "")) is _PushResult.MOVED


def test_a_ref_that_is_gone_was_deleted_by_somebody_else() -> None:
    gone = Output(1, b"", "error: unable to delete 'refs/x/lock': remote ref does not exist\n")
    assert _push_result([RefUpdate("refs/x/lock", ONE, ZERO)], gone) is _PushResult.LOST


TRUNK = "refs/heads/trunk"


@pytest.fixture
def served(tmp_path: Path) -> tuple[GitServer, str]:
    """A server that knows one user, and a commit that is at its branch."""
    repository = opened(bare(tmp_path / "far.git"))
    first = commit(repository, {"a": b"1"}, message="one\n")
    repository.update_refs([RefUpdate(TRUNK, ZERO, first)])
    (tmp_path / "far.git" / "HEAD").write_text(f"ref: {TRUNK}\n")
    return GitServer(tmp_path, users={"x-access-token": "good"}), first


def test_only_one_login_is_sent(tmp_path: Path, served: tuple[GitServer, str]) -> None:
    server, first = served
    near = bare(tmp_path / "near.git")
    with server:
        base = server.url("far.git")
        stale = base64.b64encode(b"x-access-token:stale").decode()
        key = f"http.{base.removesuffix('far.git')}.extraheader"
        subprocess.run(["git", "-C", str(near), "config", key, f"AUTHORIZATION: basic {stale}"], check=True)
        assert ProgramRemote(str(near), server.url("far.git", "x-access-token")).refs("refs/heads") == {TRUNK: first}
        with pytest.raises(RemoteError):
            ProgramRemote(str(near), base).refs("refs/heads")


def test_a_login_does_not_go_where_a_redirect_leads(tmp_path: Path) -> None:
    near = bare(tmp_path / "near.git")
    with HttpService(lambda _: Reply(404)) as elsewhere:
        away = elsewhere.base.replace("127.0.0.1", "localhost")
        with HttpService(lambda request: Reply(302, headers=(("Location", away + request.path),))) as forge:
            url = forge.base.replace("//", "//x-access-token:good@") + "/far.git"
            with pytest.raises(RemoteError) as caught:
                ProgramRemote(str(near), url).refs("refs/heads")
    assert elsewhere.requests == []
    assert not caught.value.retryable
    assert "Authorization" in forge.requests[0].headers


def test_head_names_a_branch_or_nothing(tmp_path: Path, served: tuple[GitServer, str]) -> None:
    _, first = served
    near = bare(tmp_path / "near.git")
    far = ProgramRemote(str(near), str(tmp_path / "far.git"))
    assert far.head() == {TRUNK: first}
    (tmp_path / "far.git" / "HEAD").write_text("ref: refs/heads/nowhere\n")
    assert far.head() == {}
    assert ProgramRemote(str(near), str(tmp_path / "none.git")).head() == {}
