"""Tests of queries run on the real engine in real workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.core.canonical import digest
from gitops.database.language.yaml import parse_yaml, to_plain
from gitops.review.tests import run, worker
from gitops.review.tests.bind import BoundTest
from gitops.review.tests.run import run_tests
from gitops.review.tests.verdicts import QueryTestResult, QueryTestVerdict, difference_lines
from tests.support.pages import ROOT
from tests.support.review_files import collected

TABLE = to_plain(parse_yaml((ROOT / "tests/data/review/verdicts.yaml").read_bytes()))
MORE = b'{"type": "Item", "data": {"name": "from a file", "size": 1}}\n'


def file_of(fixtures: str, tests: list[str]) -> str:
    """A test file with these fixtures and tests."""
    indented = "".join(f"  {line}\n" for line in fixtures.splitlines())
    listed = "".join(f"  - {{id: t{at}, {test[1:]}\n" for at, test in enumerate(tests))
    return f"version: 1\nnow: 2026-01-31T12:00:00Z\nfixtures:\n{indented}tests:\n{listed}"


def bound(fixtures: str, tests: list[str]) -> tuple[BoundTest, ...]:
    found = collected(file_of(fixtures, tests), **{"queries/more.jsonl": MORE})
    assert list(found.problems) == []
    return found.tests


@pytest.fixture(scope="module")
def tests() -> tuple[BoundTest, ...]:
    return bound(TABLE["fixtures"], [case["test"] for case in TABLE["tests"]])


@pytest.fixture(scope="module")
def results(tests: tuple[BoundTest, ...]) -> list[QueryTestResult]:
    return run_tests(tests, workers=1)


@pytest.mark.parametrize("at", range(len(TABLE["tests"])), ids=[case["name"] for case in TABLE["tests"]])
def test_a_verdict_and_its_least_difference(at: int, results: list[QueryTestResult]) -> None:
    case, result = TABLE["tests"][at], results[at]
    assert result.verdict == case["verdict"], result
    assert case.get("says", "") in result.message
    if "diff" in case or case["verdict"] != "failed":
        assert difference_lines(result.diff) == case.get("diff", [])


def test_a_broken_fixture_is_reported_at_its_record(tests, results) -> None:
    broken = next(each for each in results if each.code == "test_fixture_invalid")
    lines = enumerate(file_of(TABLE["fixtures"], []).splitlines(), 1)
    number, text = next((number, text) for number, text in lines if "broken:" in text)
    assert (broken.at.line, broken.at.column) == (number, text.index("{name: b") + 1)


def test_verdicts_do_not_depend_on_order_or_workers(tests, results) -> None:
    shuffled = sorted(tests, key=lambda each: digest(each.id.encode()))
    again = {each.id: replace(each, ms=0) for each in run_tests(shuffled, workers=2)}
    assert [again[each.id] for each in tests] == [replace(each, ms=0) for each in results]
    few = run_tests(tests[2:9:3], workers=2)
    assert [each.verdict for each in few] == [results[at].verdict for at in (2, 5, 8)]


def test_only_the_test_of_a_worker_that_dies_is_not_judged(monkeypatch) -> None:
    monkeypatch.setattr(run, "_PROGRAM", "tests.support.review_probe:open_worker")
    fixtures = "one: {fill: required, rows: {Item: [{name: a}]}}"
    named = "{query: named, fixture: one, params: {name: %s}, expect: {count: %d}}"
    given = [named % ("a", 1), named % ("die", 0), named % ("lie", 0), named % ("b", 0)]
    found = run_tests(bound(fixtures, given), workers=1)
    assert [each.verdict for each in found] == ["passed", "error", "error", "passed"]
    assert {each.code for each in found[1:3]} == {"test_error"}
    assert found[1].message == "it was not judged: its worker ended with signal SIGKILL"
    assert found[2].message == "the worker returned an unexpected answer"


def test_a_query_without_an_end_is_not_judged(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(worker, "QUERY_S", 0.0)
    (test,) = bound(
        "one: {fill: required, rows: {Item: [{name: a}]}}", ["{query: all, fixture: one, expect: {count: 1}}"]
    )
    answer = worker.open_worker(tmp_path)
    answer({"setup": test.fixture.setup(), "digest": test.fixture.digest})
    found = answer(dict(test.job))
    assert (found["verdict"], found["code"]) == ("error", "query_timeout")


def test_what_the_budget_leaves_out_is_not_run(tests) -> None:
    found = run_tests(tests[:3], workers=1, budget_s=0)
    assert [(each.verdict, each.code) for each in found] == [(QueryTestVerdict.NOT_RUN, "tests_incomplete")] * 3
