"""The completion scripts, run by the shells that they are for."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gitops.cli.commands import COMMANDS
from gitops.cli.completion import bash_script
from gitops.cli.main import main

ASK = """
COMP_WORDS=(gitops "$@") COMP_CWORD=$#
_gitops
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    """What bash completes where the last of the words is not finished."""
    run = subprocess.run(
        ["bash", "--norc", "-c", bash_script() + ASK, "bash", *words], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return run.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("pl",), ["plan"]),
        (("",), [*[command.name for command in COMMANDS], "--as", "--no-color", "--help", "--version"]),
        (("graph", "br"), ["branch"]),
        (("graph", "branch", "m"), ["merge"]),
        (("plan", "--show"), ["--show-graph"]),
        (("plan", "--config", "plan", "--graph-format", "m"), ["mermaid"]),
        (("request", "merge", "7", "--method", "s"), ["squash"]),
        (("completion", "z"), ["zsh"]),
        (("graph", "load", "brain", "data.nd"), []),
    ],
)
def test_bash_completes(words, found):
    assert completed(*words) == found


def test_zsh_takes_the_script(capsys):
    assert main(["completion", "zsh"]) == 0
    if shutil.which("zsh") is None:
        pytest.skip("needs the package zsh")
    script = capsys.readouterr().out
    run = subprocess.run(
        ["zsh", "-f", "-c", f"{script}\nprint $_comps[gitops]"], capture_output=True, text=True, check=True
    )
    assert "_gitops" in run.stdout
