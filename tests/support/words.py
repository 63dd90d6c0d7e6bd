"""Words that the project does not write, and where they still are: `python -m tests.support.words` shortens the exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gitops.core.codes import table
from tests.support.code_texts import modules, texts_of
from tests.support.pages import ROOT

WORDS = ROOT / "tests/data/words.tsv"
EXCEPTIONS = ROOT / "tests/data/words_exceptions.tsv"
_CODE = (
    "gitops/**/*.py",
    "gitops/core/codes.txt",
    "templates/**/*",
    "scaffold/**/*",
    "hooks/**/*",
    ".github/actions/**/*",
)
_DOCS = ("*.md", "docs/**/*.md", "examples/**/*.md")
# The glossary lists the words that are not used.
_LEFT_OUT = {"docs/glossary.md"}
_EXCEPTIONS_HEAD = (
    "# Files with forbidden words, and how many. A number may only become smaller: python -m tests.support.words\n"
)


def forbidden() -> Iterator[tuple[re.Pattern[str], str, str]]:
    """The rows of the table: expression, where (code, docs, both, or texts of the program), and what to write instead."""
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            expression, where, instead = line.split("\t")
            flags = re.NOFLAG if expression.startswith("class") else re.IGNORECASE
            yield re.compile(expression, flags), where, instead


def exceptions() -> dict[str, int]:
    """Paths of files that are not clean yet, with the number of forbidden words in each."""
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return {path: int(count) for path, count in (line.split("\t") for line in lines if not line.startswith("#"))}


def hits() -> dict[str, list[str]]:
    """Every forbidden word by file: `line N: WORD, write INSTEAD`."""
    found: dict[str, list[str]] = {}
    words = list(forbidden())
    quick = {expression: _without_boundary(expression) for expression, _, _ in words}
    for where, path in _files():
        text = path.read_text(encoding="utf-8")
        folded = text.casefold()
        rows = [
            f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, write: {instead}"
            for expression, place, instead in words
            if place in (where, "both")
            and quick[expression].search(folded if expression.flags & re.IGNORECASE else text)
            for match in expression.finditer(text)
        ]
        if rows:
            found[path.relative_to(ROOT).as_posix()] = rows
    texts = [
        (name, line, "".join("{}" if part is None else part for part in parts))
        for name, tree in modules()
        for line, parts in texts_of(tree)
    ]
    texts += [("core/codes.txt", line, text) for line, text in enumerate(table().splitlines(), start=1)]
    for name, line, text in texts:
        for expression, _, instead in (row for row in words if row[1] == "texts"):
            if match := expression.search(text):
                found.setdefault(f"gitops/{name}", []).append(f"line {line}: {match[0]!r}, write: {instead}")
    return found


def _without_boundary(expression: re.Pattern[str]) -> re.Pattern[str]:
    """What matches wherever an expression does, found in a third of the time: it begins with a letter, of one case."""
    return re.compile(expression.pattern.removeprefix(r"\b"), expression.flags & ~re.IGNORECASE)


def _files() -> Iterator[tuple[str, Path]]:
    for where, patterns in (("code", _CODE), ("docs", _DOCS)):
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(ROOT)) not in _LEFT_OUT:
                    yield where, path


if __name__ == "__main__":
    rows = "".join(f"{path}\t{len(found)}\n" for path, found in sorted(hits().items()))
    EXCEPTIONS.write_text(_EXCEPTIONS_HEAD + rows, encoding="utf-8")
