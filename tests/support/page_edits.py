"""Pages that change the source: their blocks are applied to a copy of the package.

A fence whose info is `diff <path>` has hunks separated by `@@` lines; a line begins with a space, `+` or `-`. The lines that are
not added must occur in the file exactly once. A fence whose info is `python <path>` is the content of a new file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.pages import ROOT


def copy_package(target: Path) -> Path:
    """A copy of the package below `target`, which is returned; its bytecode goes along, and holds for files of the same time."""
    shutil.copytree(ROOT / "gitops", target / "gitops")
    return target


def copy_tree(target: Path) -> Path:
    """A copy of all that the checks of the project read."""
    copy_package(target)
    for name in ("docs", "examples", "hooks", "scaffold", "templates", "tests"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (each for each in ROOT.iterdir() if each.is_file()):
        shutil.copy2(file, target / file.name)
    return target


def edits(page: str, heading: str) -> Iterator[tuple[str, str, str]]:
    """Of the section under a second-level heading: language, path and content of each block that has a path."""
    section = ""
    tokens = MarkdownIt().parse(page)
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            section = tokens[at + 1].content
        language, _, path = token.info.partition(" ")
        if section == heading and token.type == "fence" and path:
            yield language, path, token.content


def apply_edit(root: Path, language: str, path: str, content: str) -> None:
    """Change or create one file below `root`. Raises AssertionError where a hunk does not fit."""
    file = root / path
    if language != "diff":
        assert not file.exists(), f"{path} exists"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        return
    text = file.read_text(encoding="utf-8")
    for hunk in content.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        assert all(line[0] in " +-\n" for line in lines), f"{path}: a line of a hunk begins with a space, + or -"
        before = "".join(line[1:] or line for line in lines if not line.startswith("+"))
        after = "".join(line[1:] or line for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, f"{path} has {text.count(before)} of the places:\n{before}"
        text = text.replace(before, after)
    file.write_text(text, encoding="utf-8")
