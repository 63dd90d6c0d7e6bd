"""Whoever put there what lands is among the authors of the change, over histories of every shape that git allows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml

from tests.support.author_faults import FAULTS
from tests.support.author_law import judge
from tests.support.effort import FULL
from tests.support.pages import ROOT
from tests.support.random_histories import SEEN, SHAPES, Desk

HISTORIES = 2000 if FULL else 200
FOUND = (59468, 63572, 74728, 110665, 211667)
"""Histories in which a night's run found that whoever wrote or merged lines in an unused file could approve their landing."""
PLANTED = yaml.safe_load((ROOT / "tests/data/attacks/author_faults.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.mark.law
def test_nobody_approves_what_they_put_there_in_any_history(desk: Desk) -> None:
    opened, refused = Counter[str](), Counter[str]()
    for seed in (*range(HISTORIES), *FOUND):
        verdict = judge(desk, seed)
        assert verdict.problems == [], f"python -m tests.fuzz.histories --seed {seed} --count 1"
        opened[verdict.shape] += verdict.opened
        refused[verdict.shape] += verdict.refused
    # The law says something about every shape: gates open there, or the clone is refused.
    assert {shape for shape in SHAPES if opened[shape]} == set(SHAPES) - {"shallow clone", "grafts"}
    assert {shape for shape in SEEN if refused[shape]} == {"shallow clone", "partial clone", "grafts"}


@pytest.mark.parametrize("fault", PLANTED, ids=[fault["fault"] for fault in PLANTED])
def test_a_rule_that_is_missing_is_found(desk: Desk, fault: dict[str, Any]) -> None:
    """A history breaks the law without the rule, and holds without those that `beside` names alone: they would hide it."""
    beside = fault.get("beside", [])
    # Where histories or rules have changed, another one may show it.
    for seed in (fault["seed"], *range(2000)):
        wanted = fault["shape"] in (tuple(SHAPES)[seed % len(SHAPES)], "any")
        if wanted and _breaks(desk, seed, [fault["fault"], *beside]) and not _breaks(desk, seed, beside):
            return
    pytest.fail("no history of this shape shows it")


def _breaks(desk: Desk, seed: int, faults: list[str]) -> bool:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for each in faults:
            FAULTS[each](monkeypatch)
        return bool(judge(desk, seed).problems)


def test_every_fault_is_planted() -> None:
    assert sorted(each["fault"] for each in PLANTED) == sorted(FAULTS)
