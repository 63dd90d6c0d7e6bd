"""The list of slow tests names tests that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.support.pages import ROOT

_LINES = (ROOT / "tests/data/slow.txt").read_text(encoding="utf-8").splitlines()


@cache
def _texts(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]


def _names_a_test(pattern: str) -> bool:
    path, _, name = pattern.partition("::")
    if "*" in path or name.startswith("*"):
        return any(ROOT.glob(path.partition("*")[0]))
    function = re.match(r"[A-Za-z_:]*", name)
    assert function is not None
    group, _, test = function[0].rpartition("::")
    wanted = f"def {test}" if test else f"class {group}("
    # A contract suite beside the file holds the tests of its subclasses.
    return any(wanted in text for text in _texts((ROOT / path).parent))


def test_every_pattern_names_a_test() -> None:
    assert [line for line in _LINES if not line.startswith("#") and not _names_a_test(line)] == []
