"""What to do about a command line that cannot be used: a command or an option, where one of these is the answer."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from gitops.cli.main import main

_ROWS = (Path(__file__).parents[2] / "data" / "remedies.tsv").read_text("utf-8").splitlines()
CASES = [tuple(row.split("\t")) for row in _ROWS if not row.startswith("#")]
FILES = {
    "cluster/cluster.yaml": "version: 1\ngraphs: {}\n",
    "a.pg": "node A {\n    name: String @key\n}\n",
    "a.gq": "",
    "a.txt": "",
    "list.json": "[]",
    "text.json": "name=value",
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with some files, as the current folder."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The code and the remedy of the error that a command ends with."""
    assert main(words) != 0
    printed = capsys.readouterr()
    error, *rest = (printed.out + printed.err).splitlines()
    return [error.split()[1].rstrip(":"), *(line.strip().removeprefix("fix: ") for line in rest)]


@pytest.mark.parametrize(("line", "fix"), CASES)
def test_an_unusable_command_line_gets_the_command_or_option_that_is_meant(
    clone: Path, line: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(shlex.split(line), capsys) == ["usage_error", fix]
