"""The report on one query file against one schema: its problems, and the properties that its updates never set.

A file that does not parse has one finding (Q000). Otherwise each query has a result; L201 is about the file as a whole. Only
errors fail a file: a failed result, or a finding that is an error. Every error and warning is also a problem with a place:
the text that breaks a rule, the name of the query, or the first update that could have set a property.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gitops.language.query import CheckedQuery, QueryEffect, check_query, parse_queries
from gitops.language.query import ast as tree
from gitops.language.query.typed import TypedRead, TypedUpdate
from gitops.language.text import LanguageError, LanguageProblem, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gitops.language.schema import Catalog, NodeType


class LintLevel(StrEnum):
    """How bad a finding is, worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


UNPARSED, UNLABELLED, UNPARAMETERED, UNSET = "Q000", "Q001", "L101", "L201"


class LintProblem(NamedTuple):
    """One error or warning with its place. `code` is a label of the registry of rules, `query` the name of the query it is in."""

    level: LintLevel
    code: str
    message: str
    span: Span
    fix: str | None = None
    query: str | None = None


class LintFinding(NamedTuple):
    """A problem of the file as a whole, or of a property of the schema. `problem` is why a file does not parse."""

    level: LintLevel
    code: str
    message: str
    span: Span
    type_name: str | None = None
    property_name: str | None = None
    query_names: tuple[str, ...] = ()
    problem: LanguageProblem | None = None

    def located(self) -> LintProblem:
        """The finding with its place."""
        if self.problem is not None:
            return LintProblem(self.level, self.code, self.problem.message, self.span, self.problem.fix)
        return LintProblem(self.level, self.code, self.message, self.span)

    def to_json(self) -> dict[str, Any]:
        """The JSON form; fields that do not apply are left out."""
        form: dict[str, Any] = {"severity": self.level.value, "code": self.code, "message": self.message}
        if self.type_name is not None:
            form["type_name"] = self.type_name
        if self.property_name is not None:
            form["property"] = self.property_name
        return form | {"query_names": list(self.query_names)}


class QueryLintResult(NamedTuple):
    """The result of one query: `checked`, or the `problem` that it has. `span` is its name."""

    name: str
    kind: QueryEffect
    warnings: tuple[str, ...]
    checked: CheckedQuery | None
    problem: LanguageProblem | None
    span: Span

    @property
    def error(self) -> str | None:
        """The rendered message of the rule that the query breaks."""
        return None if self.problem is None else self.problem.rendered()

    def located(self) -> Iterable[LintProblem]:
        """The problem and the warnings with their places."""
        for warning in self.warnings:
            yield LintProblem(LintLevel.WARNING, UNPARAMETERED, warning, self.span, query=self.name)
        if self.problem is not None:
            code, found = self.problem.rule or UNLABELLED, self.problem
            yield LintProblem(LintLevel.ERROR, code, found.message, found.span, found.fix, self.name)

    def to_json(self) -> dict[str, Any]:
        """The JSON form: a correct query with its operation, a refused one with its error."""
        form: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind.value,
            "status": "ok" if self.error is None else "error",
        }
        if self.warnings:
            form["warnings"] = list(self.warnings)
        if self.error is not None:
            form["error"] = self.error
        if self.checked is not None:
            form["operation"] = self.checked.operation()
        return form


class LintReport(NamedTuple):
    """Results in file order; findings by severity, type, property and message."""

    results: tuple[QueryLintResult, ...]
    findings: tuple[LintFinding, ...]

    @property
    def errors(self) -> int:
        """Failed results and findings that are errors."""
        return sum(each.error is not None for each in self.results) + self._count(LintLevel.ERROR)

    @property
    def warnings(self) -> int:
        """Warnings of results and findings that are warnings."""
        return sum(len(each.warnings) for each in self.results) + self._count(LintLevel.WARNING)

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return self.errors == 0

    @property
    def problems(self) -> tuple[LintProblem, ...]:
        """Every problem of the results and findings with its place, in the order of the text."""
        found = [problem for each in self.results for problem in each.located()]
        found += [each.located() for each in self.findings]
        return tuple(sorted(found, key=lambda each: (each.span.start, each.code, each.message)))

    def to_json(self, *, schema_source: dict[str, str], query_path: str) -> dict[str, Any]:
        """The report of a file; `schema_source` is `{"kind": "file", "path": ..}` or `{"kind": "graph", "uri": ..}`."""
        return {
            "status": "ok" if self.ok else "error",
            "schema_source": schema_source,
            "query_path": query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self._count(LintLevel.INFO),
            "results": [each.to_json() for each in self.results],
            "findings": [each.to_json() for each in self.findings],
        }

    def _count(self, level: LintLevel) -> int:
        return sum(each.level is level for each in self.findings)


def lint_queries(catalog: Catalog, source: bytes) -> LintReport:
    """Report on the text of one query file; raises nothing for any text."""
    try:
        queries = parse_queries(source)
    except LanguageError as error:
        return LintReport((), (_parse_finding(error),))
    results = tuple([_check(query, catalog) for query in queries])
    correct = [(query, each.checked) for query, each in zip(queries, results, strict=True) if each.checked is not None]
    return LintReport(results, tuple(_unset_properties(catalog, correct)))


def lint_grammar(source: bytes) -> LintReport | None:
    """The report on a query file that does not parse, for which no schema is needed; None for a file that parses."""
    try:
        parse_queries(source)
    except LanguageError as error:
        return LintReport((), (_parse_finding(error),))
    return None


def schema_problems(error: LanguageError) -> tuple[LintProblem, ...]:
    """The problems of the schema compiler, in the form of this report."""
    return tuple(LintProblem(LintLevel.ERROR, each.rule, each.message, each.span, each.fix) for each in error.problems)


def _parse_finding(error: LanguageError) -> LintFinding:
    problem = error.problems[0]
    return LintFinding(LintLevel.ERROR, UNPARSED, problem.rendered(), problem.span, problem=problem)


def _check(query: tree.Query, catalog: Catalog) -> QueryLintResult:
    kind = QueryEffect.READ if isinstance(query.body, tree.Read) else QueryEffect.MUTATION
    bare = kind is QueryEffect.MUTATION and not query.params
    warnings = ("mutation declares no params: it does the same every time",) if bare else ()
    name = query.name
    try:
        return QueryLintResult(name.text, kind, warnings, check_query(query, catalog), None, name.span)
    except LanguageError as error:
        return QueryLintResult(name.text, kind, warnings, None, error.problems[0], name.span)


class _Updates(NamedTuple):
    """The updates of one type: where the first one names it, the queries they are in, and what they set."""

    span: Span
    queries: set[str]
    assigned: set[str]


def _unset_properties(catalog: Catalog, correct: Sequence[tuple[tree.Query, CheckedQuery]]) -> list[LintFinding]:
    """L201: nullable properties of types that have updates, which none of these sets."""
    updates: dict[str, _Updates] = {}
    for query, checked in correct:
        if isinstance(query.body, tree.Read) or isinstance(checked.body, TypedRead):
            continue
        for written, statement in zip(query.body, checked.body, strict=True):
            if isinstance(statement, TypedUpdate):
                of_type = updates.setdefault(statement.type_name, _Updates(written.type_name.span, set(), set()))
                of_type.queries.add(checked.name)
                of_type.assigned.update(each.name for each in statement.assignments)
    return [
        LintFinding(
            LintLevel.WARNING,
            UNSET,
            f"`{owner}.{name}` is nullable, but no update query sets it",
            of_type.span,
            owner,
            name,
            tuple(sorted(of_type.queries)),
        )
        for owner, of_type in sorted(updates.items())
        for name, kind in sorted(catalog.nodes[owner].properties.items())
        if kind.nullable and name not in of_type.assigned and name not in _fixed(catalog.nodes[owner])
    ]


def _fixed(node: NodeType) -> set[str]:
    """The properties that no update is expected to set: a key cannot be updated, and a vector may be made from its source."""
    return {*(node.key or ()), *node.embeds}
