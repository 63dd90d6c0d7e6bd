"""A checkout whose files have the names of our modules and of Python's: nothing of it is executed by hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.git.hooks import install_hooks
from gitops.repository.wiring.system import own_command
from tests.support.git_fixture import bare, environment, run
from tests.support.hostile import lay_hostile

pytestmark = pytest.mark.e2e


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose branch consists of hostile files; they are staged."""
    server, clone = bare(tmp_path / "server.git"), tmp_path / "clone"
    run("git", "clone", "-q", str(server), str(clone), home=tmp_path)
    lay_hostile(clone, tmp_path / "canary")
    run("git", "add", "--all", home=tmp_path, cwd=clone)
    return clone


def _git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("git", *arguments),
        cwd=clone,
        env=environment(clone.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("arguments", [("commit", "-m", "Trust me"), ("push", "origin", "HEAD:refs/heads/main")])
def test_hooks_of_a_clone_execute_nothing_of_it(clone: Path, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "push":
        _git(clone, "commit", "-q", "-m", "Before the hooks")
    install_hooks(str(clone / ".git"), "client", own_command())
    _git(clone, *arguments)
    canary = clone.parent / "canary"
    assert not canary.exists(), canary.read_text()


def test_these_files_would_be_executed_without_isolation(clone: Path) -> None:
    """So that the test above proves something."""
    install_hooks(str(clone / ".git"), "client", (sys.executable, "-m", "gitops"))
    _git(clone, "commit", "-m", "Trust me")
    assert "was executed" in (clone.parent / "canary").read_text()


def test_the_program_is_started_isolated_and_sees_itself() -> None:
    """The command of hooks, in a folder of hostile names, with the variables that a user may have."""
    done = subprocess.run(
        (*own_command(), "--version"),
        env={**os.environ, "PYTHONPATH": "/nowhere", "PYTHONSTARTUP": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("gitops ")
