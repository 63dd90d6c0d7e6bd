"""Runs the query tests of a planned cluster, in the folder as it would be after the merge.

The rules come from `gitops.yaml` of the target branch. Test files come from the change request, and need no secret: they
are data, and the worker processes that run them see nothing of the bot. A plan with errors has nothing to test, and a
folder without tests is planned as if there were no tests at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gitops.bot.context import EventContext
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import normalize
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.render.characters import visible
from gitops.repository.kept_plans import PlanTestFailure, PlanTests
from gitops.review.tests.verdicts import MAX_FAILURES, QueryTestReport, QueryTestVerdict

if TYPE_CHECKING:
    from gitops.review.tests.select import QueryTestFolders
    from gitops.review.tests.verdicts import QueryTestResult

_MOST_CHARACTERS = 1_000


def folders_of_tests(context: EventContext, workspace: Workspace, root: Callable[[], str]) -> QueryTestFolders:
    """Return the folders with the test files of a planned cluster. `root` returns the merge's root tree."""
    from gitops.review.tests.select import QueryTestFolders

    paths = context.config.tests.paths
    if not paths:
        return QueryTestFolders(workspace.tree)
    whole = context.repository.open_tree(context.store, root(), ".")
    return QueryTestFolders(workspace.tree, whole, paths, normalize(workspace.config_dir, confined=False))


def run_plan_tests(
    context: EventContext, workspace: Workspace, outcome: PlanOutcome, root: Callable[[], str]
) -> QueryTestReport | None:
    """Return the report about a planned folder's tests, or None if there are none. `root` returns the merge's root tree."""
    rule, run = context.config.tests, context.bot.run_tests
    if run is None or not outcome.ok or outcome.plan is None:
        return None
    from gitops.review.tests.select import collect_tests, decide_other_cases

    folders = folders_of_tests(context, workspace, root)
    if next(iter(folders.files(Diagnostics())), None) is None:
        return None
    desired = load_desired(workspace.tree, workspace.vouched, applied=True).desired
    if desired is None:
        return None
    collected = collect_tests(folders, desired, ())
    tests, problems = collected.tests, Diagnostics(collected.problems)
    decided: list[QueryTestResult] = []
    if any(file.file.cases for file in collected.files):
        # Those in the folders of policies were decided with the plan.
        policies = load_desired(workspace.tree, workspace.vouched).judgement.policies
        decided = decide_other_cases(replace(collected, policies=policies))
    if not tests and not decided and not problems.has_errors:
        return None
    clock = context.repository.clock
    started = clock.monotonic()
    results = (*decided, *(run(tests, rule.jobs, rule.budget.total_seconds()) if tests else ()))
    severity = Severity.ERROR if rule.incomplete == "fail" else Severity.WARNING
    left = [each for each in results if each.verdict is QueryTestVerdict.NOT_RUN]
    if left:
        detail = f"{len(left)} of {len(results)} tests were not run: {left[0].message}"
        problems.add(Code.TESTS_INCOMPLETE, "tests.budget", detail, severity=severity)
    found = QueryTestReport(results, tuple(problems), int((clock.monotonic() - started) * 1000), incomplete=severity)
    if rule.required:
        return found
    # Nothing that the rules don't require is an error of the plan.
    softer = tuple(replace(each, severity=Severity.WARNING) for each in found.problems)
    return replace(found, problems=softer, required=False)


def concerns_tests(context: EventContext, target: str | None, head: str) -> bool:
    """Return whether a head changed a test folder since it left the branch whose head is `target`."""
    store, paths = context.store, context.config.tests.paths
    base = None if target is None or not paths else store.merge_base(target, head)
    if base is None:
        return False
    before, after = store.commit(base).tree, store.commit(head).tree
    return any(store.subtree(before, path) != store.subtree(after, path) for path in paths)


def plan_tests(report: QueryTestReport) -> PlanTests:
    """Return the test results for a stored plan, without times."""
    failed = [each for each in report.diagnostics() if each.severity is Severity.ERROR or not report.required]
    return PlanTests(
        **report.counts,
        failures=tuple(
            PlanTestFailure(
                each.code,
                "" if each.source is None else each.source.file,
                0 if each.source is None else each.source.line,
                visible(each.message)[:_MOST_CHARACTERS],
            )
            for each in failed[:MAX_FAILURES]
        ),
    )
