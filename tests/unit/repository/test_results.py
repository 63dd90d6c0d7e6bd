"""What a run comes to, from what its parts came to."""

from __future__ import annotations

import pytest

from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.repository.results import RunResult, combined_result, diagnostics_of, result_of


def test_the_verdicts_are_the_exit_codes_of_the_manual() -> None:
    assert {v.name: int(v) for v in RunResult} == {"DONE": 0, "PROBLEMS": 1, "WAITS": 3, "LOST": 4}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ((), RunResult.DONE),
        ((RunResult.DONE, RunResult.WAITS), RunResult.WAITS),
        ((RunResult.WAITS, RunResult.LOST, RunResult.DONE), RunResult.LOST),
        ((RunResult.LOST, RunResult.PROBLEMS, RunResult.WAITS), RunResult.PROBLEMS),
    ],
)
def test_the_worst_part_counts(parts: tuple[RunResult, ...], whole: RunResult) -> None:
    assert combined_result(parts) is whole


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([], RunResult.DONE),
        (["state_cas_mismatch"], RunResult.LOST),
        (["git_ref_conflict", "request_head_moved"], RunResult.LOST),
        (["state_cas_mismatch", "request_conflict"], RunResult.PROBLEMS),
    ],
)
def test_only_lost_races_are_lost(codes: list[str], verdict: RunResult) -> None:
    found = Diagnostics()
    for code in codes:
        found.add(code, "", "x")
    found.add("approval_stale", "graph.a", "a warning weighs nothing", severity=Severity.WARNING)
    assert result_of(found) is verdict


def test_an_exception_is_one_problem() -> None:
    (problem,) = diagnostics_of(GitopsError("request_conflict", "they conflict", path="brain"))
    assert (problem.code, problem.message, problem.path) == ("request_conflict", "they conflict", "brain")
