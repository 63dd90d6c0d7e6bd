"""Shows a run of tests as text, as one JSON document, as JUnit XML, and in the comment of a plan.

JUnit: a suite is a file and a case is a test, as CI programs read them. Source of the format:
https://github.com/testmoapp/junitxml
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity, SourceRef
from gitops.render.characters import visible
from gitops.render.commands import completed
from gitops.render.json import Form, present
from gitops.render.text import diagnostic_lines
from gitops.render.words import count
from gitops.review.tests.verdicts import QueryTestReport, QueryTestResult, QueryTestVerdict, difference_lines, summary

SHOWN = 200
"""Largest number of tests that the text describes; further ones are only counted."""


def verdicts_text(report: QueryTestReport, *, folder: str = "", verbose: bool = False) -> str:
    """Return the report for people: each test that did not pass with its least difference, then the counts.

    `folder` is the cluster folder as the reader reaches it. With `verbose`, passed tests are listed as well.
    """
    lines = diagnostic_lines(report.problems, folder=folder, verbose=verbose)
    others = [each for each in report.results if each.verdict is not QueryTestVerdict.PASSED]
    if verbose:
        passed = (each for each in report.results if each.verdict is QueryTestVerdict.PASSED)
        lines += [f"passed {each.id} ({each.ms} ms)" for each in passed]
    for at, each in enumerate(others[:SHOWN]):
        # Like the remedies of other problems: once, below the last test that has it.
        again = at + 1 < len(others[:SHOWN]) and _fix(others[at + 1]) == _fix(each)
        lines += _described(each, folder, fix="" if again else _fix(each))
    if len(others) > SHOWN:
        lines.append(f"and {len(others) - SHOWN} more; --format json has them all")
    if report.coverage is not None:
        tested, rules = report.coverage.to_json().values()
        lines.append(
            f"coverage: {tested[0]} of {count(tested[1], 'query', 'queries')}, {rules[0]} of {count(rules[1], 'rule')}"
        )
        lines += [f"  without a test: {name}" for name in report.coverage.untested]
        lines += [f"  no case meets: {name}" for name in report.coverage.unmet]
    lines.append(f"tests: {summary(report.counts)}" + (f" in {report.ms / 1000:.1f} s" if report.ms else ""))
    return "".join(visible(line) + "\n" for line in lines)


def _fix(result: QueryTestResult) -> str:
    return result.problem().fix or ""


def _described(result: QueryTestResult, folder: str, *, fix: str) -> list[str]:
    code = result.problem().code
    head = f"ERROR {code} {result.resource}: {result.name}: {result.message} ({result.at.shown(folder)})"
    lines = [head, *(f"    {line}" for line in difference_lines(result.diff))]
    return [*lines, f"      fix: {completed(fix)}"] if fix else lines


def verdicts_form(report: QueryTestReport) -> Form:
    """Return the document of a run."""
    return present(
        ok=report.ok,
        version=1,
        counts=report.counts,
        ms=report.ms,
        tests=[_test(each) for each in report.results],
        coverage=None if report.coverage is None else report.coverage.to_json(),
        problems=[each.to_json() for each in report.problems],
    )


def _test(result: QueryTestResult) -> Form:
    return present(
        id=result.id,
        resource=result.resource,
        line=result.at.line,
        verdict=result.verdict.value,
        ms=result.ms,
        code=result.code,
        message=result.message or None,
        diff=result.diff,
    )


def verdicts_junit(report: QueryTestReport, *, folder: str = "") -> str:
    """Return the report as JUnit XML."""
    suites: dict[str, list[QueryTestResult]] = {}
    for each in report.results:
        suites.setdefault(each.id.rpartition("::")[0], []).append(each)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {_totals(report.results)}>"]
    errors = [each for each in report.problems if each.severity is Severity.ERROR]
    for path, results in suites.items():
        lines.append(f"  <testsuite name={_attribute(SourceRef(path).shown(folder))} {_totals(results)}>")
        for each in results:
            lines += _case(each, path, folder)
        lines.append("  </testsuite>")
    if errors:
        lines.append(
            f'  <testsuite name="gitops test" tests="{len(errors)}" failures="0" errors="{len(errors)}" skipped="0">'
        )
        for problem in errors:
            place = problem.path if problem.source is None else problem.source.shown(folder)
            lines.append(f"    <testcase name={_attribute(place)}>")
            lines.append(f"      <error type={_attribute(problem.code)} message={_attribute(problem.message)}/>")
            lines.append("    </testcase>")
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _case(result: QueryTestResult, path: str, folder: str) -> list[str]:
    head = f"    <testcase name={_attribute(result.name)} classname={_attribute(result.resource)}"
    head += f' file={_attribute(SourceRef(path).shown(folder))} line="{result.at.line}" time="{result.ms / 1000:.3f}"'
    if result.verdict is QueryTestVerdict.PASSED:
        return [f"{head}/>"]
    tag = {QueryTestVerdict.FAILED: "failure", QueryTestVerdict.ERROR: "error"}.get(result.verdict, "skipped")
    kind = "" if tag == "skipped" or result.code is None else f" type={_attribute(result.code)}"
    text = _text("\n".join(difference_lines(result.diff)))
    return [f"{head}>", f"      <{tag}{kind} message={_attribute(result.message)}>{text}</{tag}>", "    </testcase>"]


def _totals(results: Iterable[QueryTestResult]) -> str:
    given = list(results)
    named = {
        "failures": QueryTestVerdict.FAILED,
        "errors": QueryTestVerdict.ERROR,
        "skipped": QueryTestVerdict.NOT_RUN,
    }
    parts = [f'{name}="{sum(each.verdict is verdict for each in given)}"' for name, verdict in named.items()]
    return " ".join([f'tests="{len(given)}"', *parts, f'time="{sum(each.ms for each in given) / 1000:.3f}"'])


def _attribute(text: str) -> str:
    return quoteattr(visible(text))


def _text(text: str) -> str:
    return escape("\n".join(map(visible, text.split("\n"))))


# -- comments ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailedTestView:
    """A test that did not pass: its code and place, the tested query, and the difference in `lines`."""

    code: Code
    source: SourceRef | None
    resource: str
    message: str
    lines: tuple[str, ...] = ()


def passed_tests(report: QueryTestReport) -> str:
    """Return how many tests passed, such as `42 of 42`."""
    return f"{report.counts['passed']} of {len(report.results)}"


def failed_tests(report: QueryTestReport) -> str:
    """Return how many tests did not pass, such as `1 of 42 tests does not pass`."""
    if not report.bad:
        return "the tests are invalid"
    return f"{report.bad} of {count(len(report.results), 'test')} {'does' if report.bad == 1 else 'do'} not pass"


def failed_views(report: QueryTestReport) -> tuple[FailedTestView, ...]:
    """Return invalid files, then tests that did not pass, each with its difference."""
    problems = [FailedTestView(each.code, each.source, each.path, each.message) for each in report.problems]
    failed = [
        FailedTestView(
            each.code or Code.TEST_ERROR,
            each.at,
            each.resource,
            f"{each.name}: {each.message}",
            tuple(difference_lines(each.diff)),
        )
        for each in report.judged
    ]
    return (*problems, *failed)
