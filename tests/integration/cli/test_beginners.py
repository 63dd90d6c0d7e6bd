"""What a beginner does wrong: the whole text that they read, which says what is wrong, where, and what to do now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.beginners import cases, said

_CASES = cases()


@pytest.mark.parametrize("name", _CASES)
def test_a_mistake_is_answered_as_its_file_shows(name: str, tmp_path: Path) -> None:
    case = _CASES[name]
    assert said(case, tmp_path) == case["says"], "python -m tests.support.beginners"


def test_the_cases_are_many_and_each_shows_a_remedy() -> None:
    assert len(_CASES) >= 190
    remedy = re.compile(r"fix: |WARN|did you mean|are required|: use |: gitops |; gitops ")
    assert [name for name, case in _CASES.items() if not remedy.search(case["says"])] == []
