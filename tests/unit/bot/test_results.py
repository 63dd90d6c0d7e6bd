"""What a run comes to, from what its parts came to."""

from __future__ import annotations

import pytest

from gitops.bot.results import Verdict, overall, problem_of, verdict_of
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError


def test_the_verdicts_are_the_exit_codes_of_the_manual() -> None:
    assert {v.name: int(v) for v in Verdict} == {"DONE": 0, "PROBLEMS": 1, "WAITS": 3, "LOST": 4}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ((), Verdict.DONE),
        ((Verdict.DONE, Verdict.WAITS), Verdict.WAITS),
        ((Verdict.WAITS, Verdict.LOST, Verdict.DONE), Verdict.LOST),
        ((Verdict.LOST, Verdict.PROBLEMS, Verdict.WAITS), Verdict.PROBLEMS),
    ],
)
def test_the_worst_part_counts(parts: tuple[Verdict, ...], whole: Verdict) -> None:
    assert overall(parts) is whole


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([], Verdict.DONE),
        (["state_cas_mismatch"], Verdict.LOST),
        (["git_ref_conflict", "request_head_moved"], Verdict.LOST),
        (["state_cas_mismatch", "request_conflict"], Verdict.PROBLEMS),
    ],
)
def test_only_lost_races_are_lost(codes: list[str], verdict: Verdict) -> None:
    found = Diagnostics()
    for code in codes:
        found.add(code, "", "x")
    found.add("approval_stale", "graph.a", "a warning weighs nothing", severity=Severity.WARNING)
    assert verdict_of(found) is verdict


def test_an_exception_is_one_problem() -> None:
    (problem,) = problem_of(GitopsError("request_conflict", "they conflict", path="brain"))
    assert (problem.code, problem.message, problem.path) == ("request_conflict", "they conflict", "brain")
