"""The completion scripts, run by the shells that they are for."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from gitops.cli.commands import COMMANDS
from gitops.cli.completion import bash_script, fish_script, zsh_script
from gitops.cli.main import EVERYWHERE, main

# Only ever reached by a test that fails.
PATIENCE = 30
EVERY = [name for each in EVERYWHERE for name in each.names]
ASK = """
COMP_WORDS=(gitops "$@") COMP_CWORD=$#
_gitops
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    """What bash completes where the last of the words is not finished."""
    # The scripts are longer than an argument of a program may be.
    run = subprocess.run(
        ["bash", "--norc", "-s", "--", *words], input=bash_script() + ASK, capture_output=True, text=True, check=True
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
        (("plan", "--config", ""), []),
        (("--as", ""), []),
        (("status", "--as", ""), []),
        (("help", "gra"), ["graph"]),
        (("help", "graph", "br"), ["branch"]),
    ],
)
def test_bash_completes(words, found):
    assert completed(*words) == found


@pytest.fixture(scope="module")
def zsh(tmp_path_factory) -> Iterator[Callable[[str, str], bool]]:
    """A zsh on a terminal that has the script: says whether a line, with the key of completion, becomes another."""
    if shutil.which("zsh") is None:
        pytest.skip("needs the package zsh")
    folder = tmp_path_factory.mktemp("zsh")
    (folder / "data.ndjson").touch()
    (folder / "script").write_text(zsh_script())
    master, slave = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}
    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    shell = subprocess.Popen(["zsh", "-f", "-i"], cwd=folder, env=environ, start_new_session=True, **ends)
    os.close(slave)

    def until(expected: str) -> bool:
        shown = ""
        while expected not in shown and select.select([master], [], [], PATIENCE)[0]:
            shown += os.read(master, 4096).decode()
            if "\x07" in shown:  # the bell: nothing fits
                break
        return expected in shown

    def completes(line: str, whole: str) -> bool:
        os.write(master, f"\x15{line}\t".encode())
        return until(whole)

    os.write(master, b"source ./script; print rea''dy\n")
    assert until("ready")
    yield completes
    shell.kill()
    shell.wait()
    os.close(master)


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("gitops pl", "gitops plan "),
        ("gitops graph br", "gitops graph branch "),
        ("gitops plan --show", "gitops plan --show-graph "),
        ("gitops plan --config plan --graph-format m", "--graph-format mermaid "),
        ("gitops completion z", "gitops completion zsh "),
        ("gitops graph load brain da", "gitops graph load brain data.ndjson "),
        ("gitops help graph br", "gitops help graph branch "),
    ],
)
def test_zsh_completes(zsh, line, whole):
    assert zsh(line, whole)


def offered(line: str) -> dict[str, str]:
    """What fish offers at the end of a command line, with what it says about it."""
    if shutil.which("fish") is None:
        pytest.skip("needs the package fish")
    script = f"{fish_script()}\ncomplete -C {shlex.quote(line)}"
    run = subprocess.run(["fish", "--no-config"], input=script, capture_output=True, text=True, check=True)
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
        ("gitops help graph br", {"branch"}),
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


@pytest.mark.parametrize(("shell", "script"), [("bash", bash_script), ("zsh", zsh_script), ("fish", fish_script)])
def test_the_script_of_a_shell_is_printed(capsys, shell, script):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out.rstrip("\n") == script().rstrip("\n")
