"""What `lint` found: the files that were looked at, and every problem with its lines and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops.core.diagnostics import Diagnostic
from gitops.language.lint import LintLevel, LintReport
from gitops.language.text import SourceText


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file: bytes `[start, end)`, and lines and columns from 1, counted in characters; the end is exclusive."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class LocatedProblem:
    """A problem in a file. `replacement` is what a program may put in the place of the region, where that is known.

    `schemas` are those that a query file was checked against when the problem was found; empty for a problem of a schema.
    """

    path: str
    level: LintLevel
    code: str
    message: str
    region: Region
    fix: str | None = None
    replacement: str | None = None
    query: str | None = None
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """One schema file, the graphs that have it, and how many errors it has."""

    path: str
    graphs: tuple[str, ...]
    errors: int


@dataclass(frozen=True, slots=True)
class QueryReport:
    """One query file against one schema, and the graphs that declare the two together."""

    schema: str
    path: str
    graphs: tuple[str, ...]
    report: LintReport


@dataclass(frozen=True, slots=True)
class UncheckedQueryFile:
    """A query file that parses and was not checked any further, since its schema is broken."""

    schema: str
    path: str


@dataclass(frozen=True, slots=True)
class LintOutcome:
    """What was looked at, in order of the paths, and every problem in order of its place.

    `sources` are the texts that problems are in. `diagnostics` say what could not be looked at.
    """

    schemas: tuple[SchemaReport, ...] = ()
    queries: tuple[QueryReport, ...] = ()
    passed: tuple[UncheckedQueryFile, ...] = ()
    problems: tuple[LocatedProblem, ...] = ()
    sources: Mapping[str, SourceText] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()

    def count(self, level: LintLevel) -> int:
        """How many problems and diagnostics there are of a level."""
        listed = sum(each.level is level for each in self.problems)
        return listed + sum(each.severity.value == level.value for each in self.diagnostics)

    def ok(self, *, strict: bool = False) -> bool:
        """Whether nothing is an error, and when `strict` no warning either."""
        return not self.count(LintLevel.ERROR) and not (strict and self.count(LintLevel.WARNING))
