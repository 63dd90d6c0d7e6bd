"""Verdicts of tests, and the report about a run: counts, coverage, and problems at the lines of expectations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef

MAX_FAILURES = 50
"""Largest number of failed tests that a plan stores and annotates."""


class QueryTestVerdict(StrEnum):
    """The verdict of one test. ERROR means that it could not be judged; NOT_RUN never counts as passed."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class QueryTestResult:
    """The result of one test or policy case.

    `id` contains the file, `resource` is the tested query or scope, and `at` the place of the expectation. For a verdict
    other than PASSED, `code` and `message` say why. `diff` has `missing`, `unexpected` and `changed` rows. `actual` is
    the whole result, if it was asked for.
    """

    id: str
    resource: str
    at: SourceRef
    verdict: QueryTestVerdict
    ms: int = 0
    code: Code | None = None
    message: str = ""
    fix: str | None = None
    diff: Mapping[str, Any] | None = None
    actual: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The id in its file."""
        return self.id.rpartition("::")[2]

    def problem(self) -> Diagnostic:
        """Return a verdict other than PASSED as a problem at its line."""
        code = self.code or Code.TEST_ERROR
        lines = [self.message, *difference_lines(self.diff)]
        text = f"{self.name}: {'; '.join(lines)}"
        fix = REGISTRY[code].fix if self.fix is None else self.fix
        return Diagnostic(code, Severity.ERROR, self.resource, text, self.at, fix or None)


@dataclass(frozen=True, slots=True)
class QueryTestCoverage:
    """Test coverage: queries with a test, and policy rules with a matching case. `untested` and `unmet` are the others."""

    queries: int
    untested: tuple[str, ...]
    rules: int
    unmet: tuple[str, ...]

    def percent(self) -> int:
        """Return the lower of both coverages in whole percent, or 100 if there is nothing to cover."""
        parts = ((self.queries, len(self.untested)), (self.rules, len(self.unmet)))
        return min((100 * (number - missing) // number for number, missing in parts if number), default=100)

    def to_json(self) -> dict[str, list[int]]:
        """Return covered and existing numbers."""
        queries, rules = self.queries - len(self.untested), self.rules - len(self.unmet)
        return {"queries": [queries, self.queries], "rules": [rules, self.rules]}


@dataclass(frozen=True, slots=True)
class QueryTestReport:
    """A test run. `problems` are about files and about the run itself.

    `incomplete` is the severity of tests that were not run. Without `required`, no failure is an error.
    """

    results: tuple[QueryTestResult, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    ms: int = 0
    coverage: QueryTestCoverage | None = None
    incomplete: Severity = Severity.ERROR
    required: bool = True

    @property
    def counts(self) -> dict[str, int]:
        """The number of tests by verdict."""
        found = Counter(each.verdict for each in self.results)
        return {verdict.value: found[verdict] for verdict in QueryTestVerdict}

    @property
    def judged(self) -> tuple[QueryTestResult, ...]:
        """The tests that failed or could not be judged."""
        unlucky = (QueryTestVerdict.FAILED, QueryTestVerdict.ERROR)
        return tuple(each for each in self.results if each.verdict in unlucky)

    @property
    def ok(self) -> bool:
        """Whether every test passed, and no file has an error."""
        return not (self.bad or any(each.severity is Severity.ERROR for each in self.problems))

    @property
    def bad(self) -> int:
        """The number of tests that did not pass. Tests that were not run count if that is an error."""
        fine = {QueryTestVerdict.PASSED} | (set() if self.incomplete is Severity.ERROR else {QueryTestVerdict.NOT_RUN})
        return sum(each.verdict not in fine for each in self.results)

    @property
    def blocks(self) -> bool:
        """Whether the plan must fail."""
        return self.required and not self.ok

    def diagnostics(self) -> Diagnostics:
        """Return all problems: of files and the run, then of each test that failed or could not be judged."""
        severity = Severity.ERROR if self.required else Severity.WARNING
        return Diagnostics([*self.problems, *(replace(each.problem(), severity=severity) for each in self.judged)])


def difference_lines(diff: Mapping[str, Any] | None) -> list[str]:
    """Return a difference as lines: `-` for a missing row, `+` for an unexpected one, `~` for a changed cell."""
    if diff is None:
        return []
    lines = [f"- {_row(row)}" for row in diff.get("missing", ())]
    lines += [f"+ {_row(row)}" for row in diff.get("unexpected", ())]
    for row in diff.get("changed", ()):
        lines += [
            f"~ {name}: {_cell(expected)} -> {_cell(actual)}" for name, (expected, actual) in row["cells"].items()
        ]
    return lines


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_cell(value)}" for name, value in row.items())


def _cell(value: Any) -> str:
    return (
        value if isinstance(value, str) and value and value.strip() == value else json.dumps(value, ensure_ascii=False)
    )


def summary(counts: Mapping[str, int]) -> str:
    """Return the counts in one line, such as `41 of 42 passed, 1 failed`, which doesn't depend on order or time."""
    total, passed = sum(counts.values()), counts.get("passed", 0)
    rest = [f"{counts[name]} {name.replace('_', ' ')}" for name in ("failed", "error", "not_run") if counts.get(name)]
    return ", ".join([f"{passed} of {total} passed", *rest])
