"""The stories that a control plane is accepted by: each names what tells it, and what it names is there."""

from __future__ import annotations

import ast

import pytest

from tests.support.pages import ROOT

_STORIES = [
    line.split("\t") for line in (ROOT / "tests/data/acceptance.tsv").read_text(encoding="utf-8").splitlines() if line
]


def _names(path: str) -> set[str]:
    """Tests and suites that a file defines at its top."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_stories_are_numbered_without_a_gap():
    assert [int(number) for number, *_ in _STORIES] == list(range(1, 72))


@pytest.mark.parametrize(("number", "told_by"), [(number, told) for number, _, told in _STORIES])
def test_a_story_is_told(number, told_by):
    for teller in told_by.split():
        place, _, name = teller.partition("::")
        if place.startswith("data:"):
            assert (ROOT / "tests/data/broken" / place.removeprefix("data:")).is_dir(), teller
        else:
            assert name in _names(place), teller
