"""Runs bound tests in isolated workers and parses their untrusted answers strictly.

Tests with one fixture go to one worker, or to a few if there are many of them, because a worker makes a fixture's graph
once. A test's verdict depends on its job alone: not on the order, the number of workers or other tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import SourceRef
from gitops.review.tests.bind import BoundTest, grouped
from gitops.review.tests.select import MAX_RUN
from gitops.review.tests.verdicts import QueryTestResult, QueryTestVerdict
from gitops.review.trial import TrialAnswer, TrialBatch, TrialFailure, TrialLimits, TrialPool

_PROGRAM = "gitops.review.tests.worker:open_worker"
# The engine stops a query after 5 s. The worker is killed only if it does not.
_LIMITS = TrialLimits(deadline_s=15, cpu_s=60, memory_mib=512, file_mib=64, answer_mib=16)
_FEW = 20
_CODES = {code.value: code for code in REGISTRY}
_MESSAGE = 2_000
_MEMBERS = {"missing", "unexpected", "changed"}


def run_tests(
    tests: Sequence[BoundTest],
    *,
    workers: int,
    budget_s: float | None = None,
    actual: bool = False,
    on_result: Callable[[QueryTestResult], object] = lambda _: None,
) -> list[QueryTestResult]:
    """Judge tests and return their results, in the order of the tests.

    Tests that have not started after `budget_s` seconds, and those beyond the largest number of a run, are not run. With
    `actual`, the result of a failed test is kept. `on_result` gets each result when it arrives.
    """
    found: dict[str, QueryTestResult] = {}
    for each in tests[MAX_RUN:]:
        found[each.id] = _not_run(each, f"a run takes at most {MAX_RUN} tests")
    for each, answer in _answers(tests[:MAX_RUN], workers, budget_s, actual=actual):
        found[each.id] = result = _result(each, answer)
        on_result(result)
    return [found[each.id] for each in tests]


def _answers(
    tests: Sequence[BoundTest], workers: int, budget_s: float | None, *, actual: bool
) -> Iterator[tuple[BoundTest, TrialAnswer]]:
    chunks = []
    for group in grouped(tests).values():
        size = ceil(len(group) / min(workers, ceil(len(group) / _FEW)))
        chunks += [group[start : start + size] for start in range(0, len(group), size)]
    # The longest first, so that no worker ends long after the others.
    chunks.sort(key=len, reverse=True)
    batches = [
        TrialBatch(
            [{**test.job, "actual": actual} for test in chunk],
            {"setup": chunk[0].fixture.setup(), "digest": chunk[0].fixture.digest},
        )
        for chunk in chunks
    ]
    if not batches:
        return
    with TrialPool(_PROGRAM, workers=workers, limits=_LIMITS) as pool:
        for place, answer in pool.run(batches, budget_s=budget_s):
            yield chunks[place.batch][place.job], answer


def _result(test: BoundTest, answer: TrialAnswer) -> QueryTestResult:
    """Return the result in a worker's answer, which may have any form."""
    if answer.failure is TrialFailure.NOT_RUN:
        return _not_run(test, answer.detail)
    if answer.failure is not None or answer.value is None:
        reason = f"it was not judged: {answer.detail}"
        code = Code.QUERY_TIMEOUT if answer.failure is TrialFailure.DEADLINE else Code.TEST_ERROR
        return _made(test, QueryTestVerdict.ERROR, answer.ms, code, reason)
    form = answer.value
    try:
        verdict = QueryTestVerdict(str(form.get("verdict")))
    except ValueError:
        verdict = QueryTestVerdict.NOT_RUN
    if verdict is QueryTestVerdict.NOT_RUN:
        return _made(
            test, QueryTestVerdict.ERROR, answer.ms, Code.TEST_ERROR, "the worker returned an unexpected answer"
        )
    if verdict is QueryTestVerdict.PASSED:
        return _made(test, verdict, answer.ms)
    code = _CODES.get(str(form.get("code")), Code.TEST_ERROR)
    message, record = str(form.get("message", ""))[:_MESSAGE], form.get("record")
    if code is Code.TEST_FIXTURE_INVALID:
        place = test.fixture.places[record - 1] if isinstance(record, int) and _is_record(test, record) else None
        return _made(test, verdict, answer.ms, code, message, at=place)
    return _made(test, verdict, answer.ms, code, message, diff=_difference(form.get("diff")), actual=form.get("actual"))


def _is_record(test: BoundTest, number: int) -> bool:
    return 0 < number <= len(test.fixture.places)


def _difference(form: Any) -> Mapping[str, Any] | None:
    """Return a difference if it has the form of `compare`."""
    if not isinstance(form, dict) or set(form) != _MEMBERS or not all(isinstance(form[key], list) for key in _MEMBERS):
        return None
    rows = [*form["missing"], *form["unexpected"]]
    changed = [each.get("cells") if isinstance(each, dict) else None for each in form["changed"]]
    pairs = [pair for cells in changed if isinstance(cells, dict) for pair in cells.values() if isinstance(pair, list)]
    sound = all(isinstance(each, dict) for each in (*rows, *changed)) and all(len(pair) == 2 for pair in pairs)  # noqa: PLR2004
    whole = sum(len(cells) for cells in changed if isinstance(cells, dict)) == len(pairs)
    return form if sound and whole else None


def _not_run(test: BoundTest, reason: str) -> QueryTestResult:
    return _made(test, QueryTestVerdict.NOT_RUN, 0, Code.TESTS_INCOMPLETE, reason)


def _made(
    test: BoundTest,
    verdict: QueryTestVerdict,
    ms: int,
    code: Code | None = None,
    message: str = "",
    *,
    at: SourceRef | None = None,
    diff: Mapping[str, Any] | None = None,
    actual: Any = None,
) -> QueryTestResult:
    return QueryTestResult(
        test.id, test.resource, at or test.expect_at, verdict, ms, code, message, diff=diff, actual=actual
    )
