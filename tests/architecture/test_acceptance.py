"""The stories that a control plane, its engine, its server and its strategies are accepted by: what tells each is there.

The last table has what the first release did wrong or lacked, as what the program does now.
"""

from __future__ import annotations

import ast
from functools import cache

from tests.support.pages import ROOT


def _stories(name: str) -> list[list[str]]:
    lines = (ROOT / "tests/data" / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line]


_STORIES = _stories("acceptance.tsv")
_OF_THE_ENGINE = _stories("engine_acceptance.tsv")
_OF_THE_SERVER = _stories("serving_acceptance.tsv")
_OF_STRATEGIES = _stories("strategies_acceptance.tsv")
_SINCE_THE_FIRST_RELEASE = _stories("first_release_acceptance.tsv")


@cache
def _names(path: str) -> set[str]:
    """Tests and suites that a file defines at its top."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_stories_are_numbered_without_a_gap():
    assert [int(number) for number, *_ in _STORIES] == list(range(1, 72))
    assert [int(number) for number, *_ in _OF_THE_ENGINE] == list(range(1, 13))
    assert [int(number) for number, *_ in _OF_THE_SERVER] == list(range(1, 51))
    assert [int(number) for number, *_ in _OF_STRATEGIES] == list(range(1, 41))
    assert [int(number) for number, *_ in _SINCE_THE_FIRST_RELEASE] == list(range(1, 163))


# Their tests run on the twin of a target and on PostgreSQL.
_OVER_POSTGRESQL = ("tests/scenario/test_ticks.py::", "tests/scenario/test_tick_commands.py::")


def test_the_first_thirty_stories_of_strategies_are_told_over_postgresql():
    told = {int(number): told_by.split() for number, _, told_by in _OF_STRATEGIES}
    assert [n for n in range(1, 31) if not any(teller.startswith(_OVER_POSTGRESQL) for teller in told[n])] == []


def _is_there(teller: str) -> bool:
    place, _, name = teller.partition("::")
    if place.startswith("data:"):
        return (ROOT / "tests/data/broken" / place.removeprefix("data:")).is_dir()
    return name in _names(place)


def test_every_story_is_told():
    stories = [*_STORIES, *_OF_THE_ENGINE, *_OF_THE_SERVER, *_OF_STRATEGIES, *_SINCE_THE_FIRST_RELEASE]
    told = [(meaning, told_by.split()) for _, meaning, told_by in stories]
    assert [meaning for meaning, tellers in told if not tellers] == []
    assert [teller for _, tellers in told for teller in tellers if not _is_there(teller)] == []
