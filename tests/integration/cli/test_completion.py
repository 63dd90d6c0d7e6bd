"""The completion scripts, run by the shells that they are for."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from gitops.cli.commands import COMMANDS
from gitops.cli.completion import bash_script, fish_script
from gitops.cli.main import main
from gitops.cli.parser import EVERYWHERE

EVERY = [name for each in EVERYWHERE for name in each.names]
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
        (("",), [*[command.name for command in COMMANDS], *EVERY, "--help", "--version"]),
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


def offered(line: str) -> dict[str, str]:
    """What fish offers at the end of a command line, with what it says about it."""
    if shutil.which("fish") is None:
        pytest.skip("needs the package fish")
    script = f"{fish_script()}\ncomplete -C {shlex.quote(line)}"
    run = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return dict(each.partition("\t")[::2] for each in run.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gitops pl", {"plan"}),
        ("gitops ", {command.name for command in COMMANDS}),
        ("gitops graph br", {"branch"}),
        ("gitops graph branch m", {"merge"}),
        ("gitops plan --show", {"--show-graph"}),
        ("gitops plan --config plan --graph-format m", {"mermaid"}),
        ("gitops request merge 7 --method s", {"squash"}),
        ("gitops completion z", {"zsh"}),
        ("gitops -v status --qui", {"--quiet"}),
    ],
)
def test_fish_completes(line, found):
    assert offered(line).keys() == found


def test_fish_says_what_things_mean():
    assert offered("gitops val") == {"validate": "check a cluster folder and report every problem"}


def test_fish_completes_files_where_nothing_else_fits(tmp_path, monkeypatch):
    (tmp_path / "data.ndjson").touch()
    monkeypatch.chdir(tmp_path)
    assert offered("gitops graph load brain da").keys() == {"data.ndjson"}


def test_the_script_for_fish_is_printed(capsys):
    assert main(["completion", "fish"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == fish_script().rstrip("\n")
