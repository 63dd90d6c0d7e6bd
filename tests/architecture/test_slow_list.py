"""The list of slow tests names tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT

_LINES = (ROOT / "tests/data/slow.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("pattern", [line for line in _LINES if not line.startswith("#")])
def test_a_pattern_names_a_test(pattern: str) -> None:
    path, _, name = pattern.partition("::")
    if "*" in path or name.startswith("*"):
        assert any(ROOT.glob(path.partition("*")[0]))
        return
    function = re.match(r"[A-Za-z_:]*", name)
    assert function is not None
    # A contract suite beside the file holds the tests of its subclasses.
    texts = [p.read_text(encoding="utf-8") for p in (ROOT / path).parent.glob("*.py")]
    group, _, test = function[0].rpartition("::")
    assert any((f"def {test}" if test else f"class {group}(") in text for text in texts)
