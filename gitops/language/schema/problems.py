"""The problems of one compile run, collected in any order and reported in source order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.record import Record
from gitops.language.text import LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Collection

    from gitops.language.text import Span

MAX_PROBLEMS = 100
"""Most problems that one run reports."""

_MAX_KEPT = 10_000


class UnknownName(Record):
    """An unknown name with the known names: the fix of its problem suggests the nearest one."""

    name: str
    known: Collection[str]


class ProblemCollector:
    """Collects problems; one rule at one place is kept once, although an interface is checked for each node that has it."""

    def __init__(self) -> None:
        """Start without problems."""
        self._found: dict[tuple[str, int, int], tuple[LanguageProblem, UnknownName | None]] = {}

    def add_parse(self, rule: str, message: str, span: Span, fix: str | UnknownName | None = None) -> None:
        """Add a problem of one declaration."""
        self._add(Stage.PARSE, rule, message, span, fix)

    def add_catalog(self, rule: str, message: str, span: Span, fix: str | UnknownName | None = None) -> None:
        """Add a problem of the schema as a whole."""
        self._add(Stage.CATALOG, rule, message, span, fix)

    def problems(self) -> tuple[LanguageProblem, ...]:
        """The first `MAX_PROBLEMS` in source order; nearest names are looked up only for these."""
        ordered = sorted(self._found.values(), key=lambda each: (each[0].span.start, each[0].rule))
        return tuple([_with_fix(problem, unknown) for problem, unknown in ordered[:MAX_PROBLEMS]])

    def _add(self, stage: Stage, rule: str, message: str, span: Span, fix: str | UnknownName | None) -> None:
        if len(self._found) < _MAX_KEPT:
            unknown = fix if isinstance(fix, UnknownName) else None
            text = fix if isinstance(fix, str) else None
            problem = LanguageProblem(stage, rule, message, span, text)
            self._found.setdefault((rule, span.start, span.end), (problem, unknown))


def _with_fix(problem: LanguageProblem, unknown: UnknownName | None) -> LanguageProblem:
    if unknown is None:
        return problem
    from gitops.language.suggest import did_you_mean

    return problem._replace(fix=did_you_mean(unknown.name, unknown.known))
