"""Query tests in plans of requests: what the status, the comment, the lines and the stored plan say about them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.bot.context import Bot
from gitops.bot.dispatch import handle_event
from gitops.core.codes import Code
from gitops.forge.events import RequestAction, RequestEvent
from gitops.git.port import RefUpdate
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import RunResult
from gitops.review.tests.bind import BoundTest
from gitops.review.tests.verdicts import QueryTestResult, QueryTestVerdict
from tests.e2e.test_bot_plans import Job
from tests.support.bot_stage import Stage, verdict
from tests.support.loop import CLUSTER, Loop

pytestmark = pytest.mark.e2e

TESTS = b"""version: 1
graph: notes
fixtures:
  two: {rows: {Note: [{title: a}, {title: b}]}}
tests:
  - {id: one, query: titles, fixture: two, expect: {bag: [{n.title: a}, {n.title: b}]}}
  - {id: two, query: titles, fixture: two, expect: {count: 2}}
  - id: three
    query: titles
    fixture: two
    expect: {contains: [{n.title: c}]}
"""
FILE = "cluster/notes.test.yaml"
COMMENT = {"cluster/README.md": b"What we know, again.\n"}


def judged(*verdicts: QueryTestVerdict) -> Callable[[Sequence[BoundTest], int, float], Sequence[QueryTestResult]]:
    """A runner that gives these verdicts, and failures with a difference."""

    def run(tests: Sequence[BoundTest], _workers: int, _budget: float) -> Sequence[QueryTestResult]:
        given = dict(zip((each.id for each in tests), verdicts, strict=True))
        return [_result(each, given[each.id]) for each in tests]

    return run


def _result(test: BoundTest, given: QueryTestVerdict) -> QueryTestResult:
    diff = {"missing": [{"n.title": "c"}], "unexpected": [], "changed": []}
    if given is QueryTestVerdict.FAILED:
        return QueryTestResult(
            test.id, test.resource, test.expect_at, given, 3, Code.TEST_FAILED, "1 row missing", diff=diff
        )
    left = (Code.TESTS_INCOMPLETE, "the time for the whole run was over")
    return QueryTestResult(
        test.id, test.resource, test.expect_at, given, 5, *(left if given is QueryTestVerdict.NOT_RUN else ())
    )


PASSED, FAILED, NOT_RUN = QueryTestVerdict.PASSED, QueryTestVerdict.FAILED, QueryTestVerdict.NOT_RUN


def plan(stage: Stage, *verdicts: QueryTestVerdict, number: int = 1) -> RunResult:
    bot: Bot = replace(stage.bot(), run_tests=judged(*verdicts))
    event = RequestEvent(number, RequestAction.OPENED, stage.loop.request(number).head)
    return verdict(list(handle_event(bot, event)))


def test_passed_tests_are_counted_in_the_comment(stage: Stage) -> None:
    head = stage.propose("alice", "tests", {FILE: TESTS, **_NEW_QUERY})
    assert plan(stage, PASSED, PASSED, PASSED) is RunResult.DONE
    assert stage.loop.status(head, "plan").startswith("success: ")
    assert "Tests: 3 of 3 passed." in stage.loop.comment(1)
    record = kept_plan(stage.local, CLUSTER, 1)
    assert record is not None
    assert record.tests is not None
    assert (record.tests.passed, record.tests.failures) == (3, ())


_NEW_QUERY = {
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n    limit 9\n}\n"
}


def test_failed_tests_fail_the_plan_with_notes_on_their_lines_and_one_section(stage: Stage) -> None:
    head = stage.propose("alice", "tests", {FILE: TESTS, **_NEW_QUERY})
    assert plan(stage, FAILED, FAILED, FAILED) is RunResult.PROBLEMS
    assert re.fullmatch(r"failure: \d changes?; 3 of 3 tests do not pass", stage.loop.status(head, "plan"))
    comment = stage.loop.comment(1)
    assert re.search(r"^\*\*Plan for .*: .*3 of 3 tests do not pass\*\*$", comment, re.MULTILINE)
    assert comment.count("### Tests: 0 of 3 passed") == 1
    assert "- `- n.title: c`" in comment
    (check,) = stage.loop.book.checks(head)
    assert {(note.path, note.line) for note in check.annotations} == {(FILE, 6), (FILE, 7), (FILE, 11)}
    record = kept_plan(stage.local, CLUSTER, 1)
    assert [(each.file, each.line) for each in record.tests.failures] == [("notes.test.yaml", n) for n in (6, 7, 11)]
    assert stage.loop.request(1).labels == ("gitops/failed",)


def test_only_times_differ_no_call_and_a_new_verdict_is_told(stage: Stage) -> None:
    stage.propose("alice", "tests", {FILE: TESTS, **_NEW_QUERY})
    plan(stage, PASSED, PASSED, PASSED)
    first = kept_plan(stage.local, CLUSTER, 1).report_digest
    body = stage.loop.comment(1)
    plan(stage, PASSED, PASSED, PASSED)
    assert (kept_plan(stage.local, CLUSTER, 1).report_digest, stage.loop.comment(1)) == (first, body)
    plan(stage, PASSED, PASSED, FAILED)
    assert kept_plan(stage.local, CLUSTER, 1).report_digest != first


def test_the_rules_of_the_target_branch_decide(stage: Stage) -> None:
    stage.configure("tests: {required: false, paths: [checks]}\nreport: {url: https://pages.example/brain}\n")
    head = stage.propose("alice", "outside", {"checks/notes.test.yaml": TESTS})
    assert plan(stage, PASSED, PASSED, FAILED) is RunResult.DONE
    assert stage.loop.status(head, "plan") == "success: 0 changes; 1 of 3 tests does not pass"
    assert "`../checks/notes.test.yaml` line 11" in stage.loop.comment(1)
    assert "See [the report](https://pages.example/brain/requests/1.html#tests)." in stage.loop.comment(1)
    (check,) = stage.loop.book.checks(head)
    assert [(note.path, note.severity) for note in check.annotations] == [("checks/notes.test.yaml", "warning")]


@pytest.mark.parametrize(("expected", "result"), [("allow", RunResult.PROBLEMS), ("deny", RunResult.DONE)])
def test_policy_cases_in_test_folders_fail_the_plan_without_a_worker(
    stage: Stage, expected: str, result: RunResult
) -> None:
    """They are decided on the policies of the request. Those next to a policy are errors of the plan itself."""
    stage.configure("tests: {paths: [checks]}\n")
    cases = f"version: 1\ncases: [{{id: eve, actor: eve, action: change, graph: notes, expect: {expected}}}]\n"
    head = stage.propose("alice", "cases", {"checks/access.test.yaml": cases.encode()})
    bot: Bot = replace(stage.bot(), run_tests=judged())
    event = RequestEvent(1, RequestAction.OPENED, head)
    assert verdict(list(handle_event(bot, event))) is result
    record = kept_plan(stage.local, CLUSTER, 1)
    passed = 1 if result is RunResult.DONE else 0
    assert (record.tests.passed, record.tests.failed) == (passed, 1 - passed)
    if not passed:
        assert "1 of 1 test does not pass" in stage.loop.comment(1)
        assert "`policy_test_failed` at `../checks/access.test.yaml` line 2" in stage.loop.comment(1)
    # A plan of the request on a machine decides the same.
    done = stage.loop.gitops(
        "bot", "plan", "--repo", str(stage.loop.server), "--request", "1", at=stage.loop.folder, check=False
    )
    assert (done.code, "policy_test_failed" in done.text) == (1 - passed, not passed)


@pytest.mark.parametrize(("incomplete", "result"), [("fail", RunResult.PROBLEMS), ("warn", RunResult.DONE)])
def test_what_the_budget_leaves_out_is_never_passed(stage: Stage, incomplete: str, result: RunResult) -> None:
    stage.configure(f"tests: {{incomplete: {incomplete}}}\n")
    stage.propose("alice", "tests", {FILE: TESTS, **_NEW_QUERY})
    assert plan(stage, PASSED, NOT_RUN, NOT_RUN) is result
    comment = stage.loop.comment(1)
    assert "1 of 3 passed" in comment
    assert "2 of 3 tests were not run" in comment


def test_an_invalid_test_file_fails_the_plan_at_its_line(stage: Stage) -> None:
    head = stage.propose("alice", "tests", {FILE: TESTS.replace(b"count: 2", b"count: two")})
    assert plan(stage) is RunResult.PROBLEMS
    assert stage.loop.status(head, "plan").endswith("the tests are invalid")
    assert "`test_file_invalid` at `notes.test.yaml` line 7" in stage.loop.comment(1)


def test_a_folder_without_tests_is_planned_as_before(stage: Stage) -> None:
    stage.propose("alice", "text", dict(_NEW_QUERY))
    plan(stage)
    record = kept_plan(stage.local, CLUSTER, 1)
    assert record.tests is None
    assert "ests" not in stage.loop.comment(1)


@pytest.fixture
def job(loop: Loop, tmp_path: Path) -> Job:
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(loop, folder)


def test_a_job_of_a_fork_runs_the_tests_without_a_token(job: Job) -> None:
    head = job.loop.commit("mallory", {FILE: TESTS, **_NEW_QUERY}, message="Change\n")
    ref = "refs/pull/7/head"
    job.loop.store.update_refs([RefUpdate(ref, "0" * 40, head)])
    ran = job.run("plan", "--json", at=job.clone(), environ=job.fork(head))
    assert ran.code == 1
    (problem,) = (each for each in json.loads(ran.out)["problems"] if each["code"] == "test_failed")
    assert problem["source"] == {"file": "notes.test.yaml", "line": 11, "column": 14}
    assert "Tests: 2 of 3 passed" in ran.summary
