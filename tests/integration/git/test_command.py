"""The runner: bounded, shell-free, and deaf to inherited git variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.git import command
from gitops.git.command import GitProgram, run_program
from gitops.wiring.project import LocalProject
from tests.support.git_fixture import bare, environment


def python(script: str, tmp_path: Path, *, stdin: bytes = b"", timeout_s: float = 20.0) -> command.Output:
    return run_program((sys.executable, "-c", script), env=environment(tmp_path), stdin=stdin, timeout_s=timeout_s)


def test_input_output_and_status(tmp_path: Path) -> None:
    script = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stderr.write('e'); sys.exit(3)"
    output = python(script, tmp_path, stdin=b"abc" * 100_000)
    assert (output.status, output.stdout, output.stderr, output.ok) == (3, b"cba" * 100_000, "e", False)


def test_too_much_output_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT", 1000)
    with pytest.raises(GitopsError) as caught:
        python("while True: print('x' * 10000)", tmp_path)
    assert caught.value.code == "git_failed"


def test_messages_are_cut(tmp_path: Path) -> None:
    output = python("import sys; sys.stderr.write('x' * 1_000_000)", tmp_path)
    assert (output.ok, len(output.stderr)) == (True, 64 << 10)


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    output = python("import sys, threading; print('x', flush=True); threading.Event().wait()", tmp_path, timeout_s=1.0)
    assert (output.timed_out, output.ok) == (True, False)
    assert output.status < 0
    assert output.stdout in (b"x\n", b"")


def test_a_program_that_closes_its_pipes_and_stays_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_GRACE_S", 0.2)
    script = "import os, signal, threading; signal.signal(15, signal.SIG_IGN); os.close(1); os.close(2); threading.Event().wait()"
    output = python(script, tmp_path)
    assert (output.timed_out, output.status) == (True, -9)


@pytest.mark.parametrize("argv", [("no-such-program-here",), ("git", "a\0b")])
def test_what_cannot_start_is_said(tmp_path: Path, argv: tuple[str, ...]) -> None:
    with pytest.raises(GitopsError) as caught:
        run_program(argv, env=environment(tmp_path))
    assert caught.value.code == "git_failed"


def test_only_the_user_runs_read_the_users_configuration(tmp_path: Path) -> None:
    repository = bare(tmp_path / "r.git")
    (tmp_path / "other").write_text("[user]\n\tname = Other\n\tsigningKey = ~/key.pub\n")
    inherited = environment(
        tmp_path, GIT_CONFIG_GLOBAL=str(tmp_path / "other"), GIT_CONFIG_PARAMETERS="'user.name=Evil'"
    )
    plain, user = (
        GitProgram(str(repository), environ=inherited),
        GitProgram(str(repository), environ=inherited, as_user=True),
    )
    assert (plain.config("user.name"), user.config("user.name")) == (None, "Other")
    assert user.config("user.signingKey", path=True) == f"{tmp_path}/key.pub"
    assert user.config("user.signingKey") == "~/key.pub"
    assert user.config("no.such") is None


def test_arguments_are_never_a_shell(tmp_path: Path) -> None:
    git = GitProgram(str(bare(tmp_path / "r.git")), environ=environment(tmp_path))
    assert not git.run("rev-parse", "--verify", "--end-of-options", f"$(touch {tmp_path}/ran); touch {tmp_path}/ran").ok
    assert not (tmp_path / "ran").exists()


def test_the_whole_configuration_is_what_single_questions_answer(tmp_path: Path) -> None:
    """In one run of git: case, subsections, values of many lines, several values, none, and other files that are included."""
    repository = bare(tmp_path / "r.git")
    (tmp_path / "more").write_text("[gitops]\n\troot = ~/graphs\n")
    (repository / "config").write_text(
        "[Gitops]\n\tTargetBranch = main\n\tempty\n\tnothing =\n"
        '[gitops "Brain.2"]\n\tStorage = "a=b # c"\n'
        "[user]\n\tname = Mira\n\tname = Ada\n\tnote = one\\ntwo\n"
        f"[include]\n\tpath = {tmp_path / 'more'}\n"
    )
    git = GitProgram(str(repository), environ=environment(tmp_path), as_user=True)
    known = git.settings()
    keys = ("gitops.targetbranch", "GITOPS.TARGETBRANCH", "gitops.empty", "gitops.nothing", "gitops.Brain.2.storage")
    for key in (*keys, "gitops.brain.2.storage", "user.name", "user.note", "gitops.root", "gitops.absent"):
        assert known.get(command.config_key(key)) == git.config(key)
    assert (known["user.name"], known["user.note"]) == ("Ada", "one\ntwo")


@pytest.mark.parametrize(
    "value", ["~/key", "/keys/a b", "key::ssh-ed25519 AAAA", "", "k%y", "%(prefix)/key", "rel/~key"]
)
def test_a_path_in_the_configuration_is_what_git_makes_of_it(tmp_path: Path, value: str) -> None:
    repository = bare(tmp_path / "r.git")
    inherited = environment(tmp_path)
    git = GitProgram(str(repository), environ=inherited, as_user=True)
    assert git.run("config", "user.signingKey", value).ok
    project = LocalProject(str(repository), environ=inherited)
    assert project.setting("user.signingKey", path=True) == git.config("user.signingKey", path=True)


def test_a_configuration_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    repository = bare(tmp_path / "r.git")
    (repository / "config").write_text("[user\n")
    git = GitProgram(str(repository), environ=environment(tmp_path), as_user=True)
    assert (git.settings(), git.config("user.name")) == ({}, None)
