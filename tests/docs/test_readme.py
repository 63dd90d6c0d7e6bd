"""The commands of the README on a folder, run as they are written."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from gitops.cli.main import main
from tests.support.pages import ROOT


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_the_commands_on_a_folder_run_as_they_are_written(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__cluster"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("CI", raising=False)
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use it on a folder\n")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        program, *words = shlex.split(line)
        if program == "cp":
            shutil.copytree(words[1], words[2])
        else:
            assert (program, main(words)) == ("gitops", 0), f"{line}\n{capsys.readouterr().out}"
    assert "can be served" in capsys.readouterr().out
