"""Problems from one compile run, collected in any order and reported in source order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gitops.database.language.schema.conversion import HINTS
from gitops.database.language.text import LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Collection

    from gitops.database.language.text import Span

MAX_PROBLEMS = 100
"""Maximum number of problems reported by one run."""

ANNOTATIONS = frozenset({"key", "unique", "index", "embed", "description", "instruction", *HINTS})
"""The known annotations."""

_MAX_KEPT = 10_000
_UNKNOWN_TYPES = frozenset({"S-03", "S-39"})

Fix: TypeAlias = "str | tuple[str, Collection[str]] | None"
"""A fix as text, or an unknown name with the known names, the nearest of which is suggested."""


class ProblemCollector:
    """Collects problems.

    A rule is reported only once at each place, although an interface is checked for each node that implements it.
    `incomplete` means that unparsed parts are missing from the tree, and `lacks_types` that these can include complete
    types.
    """

    def __init__(self) -> None:
        self.incomplete = self.lacks_types = False
        self._warned: dict[Span, LanguageProblem] = {}
        self._found: dict[tuple[str, int, int], tuple[str, Stage, str, Span, Fix]] = {}

    def add_unparsed(self, problem: LanguageProblem) -> None:
        """Add a grammar problem. It is always reported, because a part of the tree is missing.

        Unknown names are no longer reported, because that part may declare them.
        """
        self.incomplete = True
        self._keep(problem.rule, problem.message, problem.span, problem.fix, problem.stage)

    def add(self, rule: str, message: str, span: Span, fix: Fix = None, stage: Stage = Stage.PARSE) -> None:
        """Add a problem with one declaration or, in stage CATALOG, with the whole schema."""
        if len(self._found) < _MAX_KEPT:
            self._keep(rule, message, span, fix, stage)

    def _keep(self, rule: str, message: str, span: Span, fix: Fix, stage: Stage) -> None:
        self._found.setdefault((rule, span.start, span.end), (rule, stage, message, span, fix))

    def warn(self, rule: str, message: str, span: Span, annotation: str) -> None:
        """Add a warning about an unknown annotation, with the nearest known one as a suggestion."""
        if len(self._warned) < MAX_PROBLEMS and span not in self._warned:
            fix = nearest_annotation(annotation)
            self._warned[span] = LanguageProblem(Stage.CATALOG, rule, message, span, fix)

    def warnings(self) -> tuple[LanguageProblem, ...]:
        """Return the first `MAX_PROBLEMS` warnings, in source order."""
        return tuple(sorted(self._warned.values(), key=lambda each: each.span.start))

    def problems(self) -> tuple[LanguageProblem, ...]:
        """Return the first `MAX_PROBLEMS` problems in source order. Only these get a nearest-name suggestion."""
        reported: list[LanguageProblem] = []
        for rule, stage, message, span, fix in sorted(self._found.values(), key=lambda each: (each[3].start, each[0])):
            if isinstance(fix, tuple):
                if self.incomplete and (self.lacks_types or rule not in _UNKNOWN_TYPES):
                    continue
                from gitops.database.language.suggest import did_you_mean

                fix = did_you_mean(*fix)  # noqa: PLW2901 - the suggestion replaces the names
            reported.append(LanguageProblem(stage, rule, message, span, fix))
            if len(reported) == MAX_PROBLEMS:
                break
        return tuple(reported)


def nearest_annotation(name: str) -> str | None:
    """Return a fix that suggests the annotation or constraint whose name is nearest to a misspelled one."""
    from gitops.database.language.suggest import did_you_mean

    return did_you_mean(f"@{name}", [f"@{each}" for each in ANNOTATIONS | {"range", "check", "card"}])
