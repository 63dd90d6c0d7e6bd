"""What no other bot passes, and what signatures must not be taken for: each names the tests that show it, and they are there."""

from __future__ import annotations

import ast
from functools import cache

from tests.support.pages import ROOT

_LINES = (ROOT / "tests/data/forge_acceptance.tsv").read_text(encoding="utf-8").splitlines()
_CLAIMS = [line.split("\t") for line in _LINES if line]
_HARD_CASES, _PITFALLS, _TREES, _STORIES = 20, 14, 8, 15


@cache
def _tests(path: str) -> set[str]:
    """Tests that a file defines, and suites with their own."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_claims_are_numbered_without_a_gap():
    expected = [
        f"{part}{number}"
        for part, count in (("case ", _HARD_CASES), ("pitfall ", _PITFALLS), ("tree ", _TREES), ("story ", _STORIES))
        for number in range(1, count + 1)
    ]
    assert [number for number, *_ in _CLAIMS] == expected


def test_every_claim_is_shown():
    assert [number for number, _, shown_by in _CLAIMS if not shown_by] == []
    shown = [test.partition("::") for _, _, shown_by in _CLAIMS for test in shown_by.split()]
    assert [f"{path}::{name}" for path, _, name in shown if name not in _tests(path)] == []
