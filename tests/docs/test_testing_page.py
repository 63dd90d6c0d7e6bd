"""The page about tests: its first file is run in the folder that `gitops init` writes, and its texts are what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.init.files import fill
from tests.support.pages import ROOT, read_page

PAGE = read_page("testing.md")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VALUES = {"GRAPH": "notes", "CLUSTER_VALUE": "brain", "PATH": ".", "UP": "", "SCHEMAS": "", "STORAGE": ""}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, template in (
        ("cluster.yaml", "cluster.yaml"),
        ("notes/schema.pg", "schema.pg"),
        ("notes/queries/notes.gq", "notes.gq"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "scaffold/cluster" / template).read_text("utf-8")
        (tmp_path / name).write_bytes(fill(text, VALUES, {"storage": False}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def _of(language: str) -> Iterator[str]:
    return (text for name, text in FENCES if name == language)


def _plain(text: str) -> str:
    return re.sub(r" in [0-9.]+ s$", "", text, flags=re.MULTILINE).strip()


def test_the_first_file_of_the_page_does_what_the_page_says(folder, capsys):
    files, texts = _of("yaml"), _of("text")
    (folder / "notes/queries/notes.test.yaml").write_text(next(files))
    assert main(["test"]) == 1
    assert _plain(capsys.readouterr().out) == _plain(next(texts))
    assert main(["test", "--update"]) == 0
    assert _plain(capsys.readouterr().out) == _plain(next(texts))
    # What init writes is the same file, corrected, below its comments.
    template = (ROOT / "scaffold/cluster/notes.test.yaml").read_text("utf-8")
    written = fill(template, VALUES, {"storage": False}).decode()
    rest = dropwhile(lambda line: line.startswith("#"), written.splitlines(keepends=True))
    assert (folder / "notes/queries/notes.test.yaml").read_text() == "".join(rest)


def test_the_page_has_every_code_and_rule_of_tests():
    from gitops.cluster.config.gitops_yaml import GITOPS_KEYS
    from gitops.core.codes import Code

    codes = {code.value for code in Code if code.value.startswith(("test_", "tests_"))}
    assert codes <= set(re.findall(r"`([a-z_]+)`", PAGE))
    assert {key for key in GITOPS_KEYS if key.startswith("tests.")} == set(
        re.findall(r"^\| `(tests\.\w+)`", PAGE, re.MULTILINE)
    )
