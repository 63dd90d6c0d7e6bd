"""The commands of docs/report.md, run as the page has them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gitops.cli.main import main
from gitops.render.site.pages import IN_FEED, LIMIT, PER_PAGE
from tests.support.audited import Life
from tests.support.pages import read_page

PAGE = read_page("report.md")


def commands() -> list[list[str]]:
    """The words of each command in a shell block."""
    blocks = [each.content for each in MarkdownIt().parse(PAGE) if each.type == "fence" and each.info == "sh"]
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_commands_that_need_no_server_or_remote_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path)
    life.begin()
    monkeypatch.chdir(life.git.git_dir)
    run = [words for words in commands() if words[1] in ("report", "changeset")]
    assert [main(words[1:]) for words in run] == [0, 0]
    table = re.findall(r"^\| `([a-z./0-9_-]+)`", PAGE, re.MULTILINE)
    written = {str(each.relative_to("report")) for each in Path("report").rglob("*")}
    other = {"entries/e8.html", "requests/7.html", "graphs/knowledge.html"}
    assert set(table) - other <= written
    assert "graphs/notes.html" in written


def test_the_options_and_numbers_of_the_page_are_those_of_the_program() -> None:
    assert f"with {PER_PAGE} entries on each page" in PAGE
    assert f"newest {IN_FEED} entries" in PAGE
    assert f"at most {LIMIT // 1000} KB" in PAGE
