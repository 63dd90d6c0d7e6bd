"""What the engine of the git program does that libgit2 cannot do wrong: programs that go on, and end."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git import command, plumbing
from gitops.git.command import Conversation
from gitops.git.repository import GitRepository
from tests.support.git_fixture import bare, commit, environment, opened

# Answers with its own number, or with as many bytes as it is asked for; ends at `end`.
_PROGRAM = """
import os, sys, threading
for line in sys.stdin:
    if line == "end\\n": break
    if line == "wait\\n": threading.Event().wait()
    print(os.getpid() if line == "who\\n" else "x" * int(line), flush=True)
"""


def conversation(tmp_path: Path, timeout_s: float = 60.0) -> Conversation:
    return Conversation((sys.executable, "-c", _PROGRAM), environment(tmp_path), timeout_s=timeout_s)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    return opened(bare(tmp_path / "r.git"))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_answers_until_nobody_asks_any_more(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    pids = {int(talk.ask("who")) for _ in range(3)}
    assert talk.ask("500000") == b"x" * 500_000
    (pid,) = pids
    assert is_running(pid)
    del talk
    gc.collect()
    assert not is_running(pid)


def test_a_program_that_ended_or_does_not_answer_is_an_error(tmp_path: Path) -> None:
    for question, reason in (("end", "has ended"), ("wait", "did not answer in time")):
        talk = conversation(tmp_path, 0.5 if question == "wait" else 60.0)
        for _ in range(2):
            with pytest.raises(GitopsError, match=reason):
                talk.ask(question)
        talk.close()


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Conversation(("no-such-program-here",), environment(tmp_path))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # libraries of other tests dislike forks
def test_a_child_of_this_process_has_a_program_of_its_own(store: GitRepository) -> None:
    one = commit(store, {"a": b"1"})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(store.commit(one).parents != ())
            del store
            gc.collect()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.commit(one).parents == ()


def test_after_an_error_another_program_is_started(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = store.write_files(None, {"large": b"x" * 5_000, "small": b"x"})
    monkeypatch.setattr(command, "MAX_OUTPUT", 1_000)
    with pytest.raises(IntegrityError, match="more than 1000 bytes"):
        store.read(tree, "large")
    assert store.read(tree, "small") == b"x"


def test_a_file_with_the_content_of_another_object_is_refused(tmp_path: Path, store: GitRepository) -> None:
    one, other = (entry.id for entry in store.entries(store.write_files(None, {"a": b"1", "b": b"2"})))
    objects = tmp_path / "r.git" / "objects"
    (objects / one[:2] / one[2:]).chmod(0o644)
    (objects / one[:2] / one[2:]).write_bytes((objects / other[:2] / other[2:]).read_bytes())
    tree = store.write_files(None, {"a": b"1"})
    with pytest.raises(IntegrityError, match="a different id"):
        opened(tmp_path / "r.git").read(tree, "a")


def test_a_git_that_is_too_old_is_named(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = store.write_files(None, {"a": b"1" * 500})
    monkeypatch.setattr(plumbing, "_OLDEST", (99, 0))
    monkeypatch.setattr(command, "MAX_OUTPUT", 100)
    with pytest.raises(UsageError, match="not git version") as caught:
        store.read(tree, "a")
    assert caught.value.code == "repository_unsupported"
