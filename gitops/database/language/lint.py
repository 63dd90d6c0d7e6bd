"""Checks one query file against one schema. Reports problems, and properties that its updates never set.

If a file does not parse, there is a finding (Q000) for each query that does not parse. Otherwise each query has a
result. L201 applies to the whole file. Only errors fail a file: a failed result, or a finding that is an error. Every
error and warning is also a problem with a location: the text that breaks a rule, the query's name, or the first update
that could have set a property.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gitops.database.language.query import CheckedQuery, QueryEffect, check_query, parse_queries
from gitops.database.language.query import ast as tree
from gitops.database.language.query.typed import TypedRead, TypedUpdate
from gitops.database.language.text import LanguageError, LanguageProblem, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gitops.database.language.schema import Catalog, Schema


class LintLevel(StrEnum):
    """Severity of a finding, worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


UNPARSED, UNLABELLED, UNPARAMETERED, UNSET = "Q000", "Q001", "L101", "L201"


class LintProblem(NamedTuple):
    """One error or warning, with its location.

    `code` is a label in the rule registry, and `query` is the name of the surrounding query.
    """

    level: LintLevel
    code: str
    message: str
    span: Span
    fix: str | None = None
    query: str | None = None


class LintFinding(NamedTuple):
    """A problem with the file or with a property in the schema. `problem` is set if the file does not parse."""

    level: LintLevel
    code: str
    message: str
    span: Span
    type_name: str | None = None
    property_name: str | None = None
    query_names: tuple[str, ...] = ()
    problem: LanguageProblem | None = None

    def located(self) -> LintProblem:
        """Return the finding with its location."""
        if self.problem is not None:
            return LintProblem(self.level, self.code, self.problem.message, self.span, self.problem.fix)
        return LintProblem(self.level, self.code, self.message, self.span)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without fields that do not apply."""
        form = {"severity": self.level.value, "code": self.code, "message": self.message}
        form |= {} if self.type_name is None else {"type_name": self.type_name}
        form |= {} if self.property_name is None else {"property": self.property_name}
        return form | {"query_names": list(self.query_names)}


class QueryLintResult(NamedTuple):
    """The result for one query: `checked` or its `problem`. `span` is the location of its name."""

    name: str
    kind: QueryEffect
    warnings: tuple[str, ...]
    checked: CheckedQuery | None
    problem: LanguageProblem | None
    span: Span

    @property
    def error(self) -> str | None:
        """The rendered message for the rule that the query breaks."""
        return None if self.problem is None else self.problem.rendered()

    def located(self) -> Iterable[LintProblem]:
        """Yield the problem and the warnings with their locations."""
        for warning in self.warnings:
            yield LintProblem(LintLevel.WARNING, UNPARAMETERED, warning, self.span, query=self.name)
        if self.problem is not None:
            code, found = self.problem.rule or UNLABELLED, self.problem
            yield LintProblem(LintLevel.ERROR, code, found.message, found.span, found.fix, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: a correct query with its operation, a rejected query with its error."""
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
    """Results in file order, and findings by severity, type, property and message."""

    results: tuple[QueryLintResult, ...]
    findings: tuple[LintFinding, ...]

    @property
    def errors(self) -> int:
        """Failed results, and findings that are errors."""
        return sum(each.error is not None for each in self.results) + self._count(LintLevel.ERROR)

    @property
    def warnings(self) -> int:
        """Warnings from results, and findings that are warnings."""
        return sum(len(each.warnings) for each in self.results) + self._count(LintLevel.WARNING)

    @property
    def ok(self) -> bool:
        """Return whether there are no errors."""
        return self.errors == 0

    @property
    def problems(self) -> tuple[LintProblem, ...]:
        """Return all problems in the results and findings with their locations, in text order."""
        found = [problem for each in self.results for problem in each.located()]
        found += [each.located() for each in self.findings]
        return tuple(sorted(found, key=lambda each: (each.span.start, each.code, each.message)))

    def to_json(self, *, schema_source: dict[str, str], query_path: str) -> dict[str, Any]:
        """Return the JSON report; `schema_source` is `{"kind": "file", "path": ..}` or `{"kind": "graph", "uri": ..}`."""
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
    """Check the text of one query file. Never raises for any text."""
    try:
        queries = parse_queries(source)
    except LanguageError as error:
        return _unparsed(error)
    results = tuple([_check(query, catalog) for query in queries])
    return LintReport(results, tuple(_unset_properties(catalog, queries, results)))


def lint_grammar(source: bytes) -> LintReport | None:
    """Return the report on a query file that does not parse, for which no schema is needed.

    Returns None if the file parses.
    """
    try:
        parse_queries(source)
    except LanguageError as error:
        return _unparsed(error)
    return None


def schema_problems(error: LanguageError) -> tuple[LintProblem, ...]:
    """Return the schema compiler's problems as lint problems."""
    return tuple(LintProblem(LintLevel.ERROR, each.rule, each.message, each.span, each.fix) for each in error.problems)


def schema_warnings(schema: Schema) -> tuple[LintProblem, ...]:
    """Return the schema compiler's warnings as lint problems."""
    return tuple(
        LintProblem(LintLevel.WARNING, each.rule, each.message, each.span, each.fix) for each in schema.warnings
    )


def _unparsed(error: LanguageError) -> LintReport:
    findings = [
        LintFinding(LintLevel.ERROR, UNPARSED, each.rendered(), each.span, problem=each) for each in error.problems
    ]
    return LintReport((), tuple(findings))


def _check(query: tree.Query, catalog: Catalog) -> QueryLintResult:
    kind = QueryEffect.READ if isinstance(query.body, tree.Read) else QueryEffect.MUTATION
    bare = kind is QueryEffect.MUTATION and not query.params
    warnings = ("mutation declares no params: it does the same every time",) if bare else ()
    checked = problem = None
    try:
        checked = check_query(query, catalog)
    except LanguageError as error:
        problem = error.problems[0]
    return QueryLintResult(query.name.text, kind, warnings, checked, problem, query.name.span)


def _unset_properties(
    catalog: Catalog, queries: Sequence[tree.Query], results: Sequence[QueryLintResult]
) -> Iterable[LintFinding]:
    """Return L201 findings: nullable properties that no update sets, for types with updates."""
    spans: dict[str, Span] = {}
    named: defaultdict[str, set[str]] = defaultdict(set)
    assigned: defaultdict[str, set[str]] = defaultdict(set)
    for query, result in zip(queries, results, strict=True):
        if isinstance(query.body, tree.Read) or result.checked is None or isinstance(result.checked.body, TypedRead):
            continue
        for written, statement in zip(query.body, result.checked.body, strict=True):
            if isinstance(statement, TypedUpdate):
                spans.setdefault(statement.type_name, written.type_name.span)
                named[statement.type_name].add(result.name)
                assigned[statement.type_name].update(each.name for each in statement.assignments)
    for owner, span in sorted(spans.items()):
        node, queries_of = catalog.nodes[owner], tuple(sorted(named[owner]))
        # A key cannot be updated, and a vector can be computed from its source.
        expected = node.properties.keys() - {*(node.key or ()), *node.embeds, *assigned[owner]}
        for name in sorted(each for each in expected if node.properties[each].nullable):
            message = f"`{owner}.{name}` is nullable, but no update query sets it"
            yield LintFinding(LintLevel.WARNING, UNSET, message, span, owner, name, queries_of)
