"""Every failure of the graph database has its answer."""

from __future__ import annotations

import ast

import pytest

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.serving.answers import ANSWERS, ApiCode, problem_of
from tests.support.code_texts import modules

# The statuses of specifications; the codes of those without one are told apart by their additive members.
_STATUSES = {400, 404, 409, 412, 413, 500, 503}
# Raised for the command line alone, or where the program is not installed as a server needs it.
_ELSEWHERE = {"INTERNAL_ERROR", "SOURCE_UNREADABLE"}


def test_the_table_has_the_codes_that_graphs_and_their_storage_raise():
    raised = {
        node.attr
        for name, tree in modules()
        if name.startswith(("graph/", "storage/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code"
    }
    assert raised - {each.name for each in ANSWERS} <= _ELSEWHERE


def test_statuses_and_codes_are_those_of_the_envelope():
    assert {each.status for each in ANSWERS.values()} == _STATUSES
    without = [each for each in ANSWERS.values() if each.code is None]
    assert all(outcome.member for outcome in without)


@pytest.mark.parametrize(
    "code", [Code.STORAGE_FAILED, Code.GRAPH_UNREADABLE, Code.GRAPH_BRANCH_MISSING, Code.GRAPH_CONFLICT]
)
def test_places_of_files_are_not_shown(code):
    problem = problem_of(GitopsError(code, "/srv/data/graphs/towns.omni is damaged"))
    assert "/srv" not in str(problem.form)


def test_a_code_that_is_not_in_the_table_is_a_failure_of_the_server():
    problem = problem_of(GitopsError(Code.CLUSTER_EMPTY, "no graph"))
    assert (problem.status, problem.code) == (500, ApiCode.INTERNAL)


def test_a_service_that_does_not_answer_may_be_asked_again_and_one_that_refuses_may_not():
    away = problem_of(RemoteError(Code.STORAGE_FAILED, "s3://brain: no answer", retryable=True))
    assert (away.status, away.form["storage_failure"], "Retry-After" in away.headers) == (
        503,
        {"reason": "storage_failed"},
        True,
    )
    denied = problem_of(RemoteError(Code.STORAGE_FAILED, "s3://brain: access is denied", status=403))
    assert (denied.status, denied.code, dict(denied.headers)) == (500, ApiCode.INTERNAL, {})
