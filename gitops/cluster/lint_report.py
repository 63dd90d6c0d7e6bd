"""The outcome of `lint`: the files that were checked, and every problem with its lines and columns."""

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
    """A problem in a file. `replacement` is the text for the region that a program may apply, where one is known.

    `schemas` are the schemas with which a query file has the problem; empty for a problem of a schema.
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
    """A query file that parses but was not checked further, because its schema does not compile."""

    schema: str
    path: str


@dataclass(frozen=True, slots=True)
class LintOutcome:
    """The checked files in order of their paths, and every problem in order of its place.

    `sources` are the texts of files with problems. `diagnostics` are the files that could not be read.
    """

    schemas: tuple[SchemaReport, ...] = ()
    queries: tuple[QueryReport, ...] = ()
    unchecked: tuple[UncheckedQueryFile, ...] = ()
    problems: tuple[LocatedProblem, ...] = ()
    sources: Mapping[str, SourceText] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()

    def count(self, level: LintLevel) -> int:
        """The number of problems and diagnostics of a level."""
        listed = sum(each.level is level for each in self.problems)
        return listed + sum(each.severity.value == level.value for each in self.diagnostics)

    def ok(self, *, strict: bool = False) -> bool:
        """Whether there are no errors; with `strict`, no warnings either."""
        return not self.count(LintLevel.ERROR) and not (strict and self.count(LintLevel.WARNING))
