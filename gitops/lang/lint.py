"""The report on one query file against one schema: what is wrong with it, and what its updates never set.

A file that does not parse is one finding (Q000). Otherwise each query has a result; L201 looks at the file as a whole. Only
errors fail a file: a failed result, or a finding that is an error.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gitops.lang.query import CheckedQuery, QueryKind, check_query, parse_queries
from gitops.lang.query import ast as tree
from gitops.lang.query.typed import TypedRead, TypedUpdate
from gitops.lang.text import LanguageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gitops.lang.schema import Catalog, NodeType


class LintLevel(StrEnum):
    """How bad a finding is, worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(NamedTuple):
    """Something about the file as a whole, or about a property of the schema."""

    level: LintLevel
    code: str
    message: str
    type_name: str | None = None
    property_name: str | None = None
    query_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON form; what does not apply is left out."""
        form: dict[str, Any] = {"severity": self.level.value, "code": self.code, "message": self.message}
        if self.type_name is not None:
            form["type_name"] = self.type_name
        if self.property_name is not None:
            form["property"] = self.property_name
        return form | {"query_names": list(self.query_names)}


class QueryResult(NamedTuple):
    """What became of one query: `checked` if it is sound, else `error`, the rendered message of the rule it breaks."""

    name: str
    kind: QueryKind
    warnings: tuple[str, ...]
    checked: CheckedQuery | None
    error: str | None

    def to_json(self) -> dict[str, Any]:
        """The JSON form: a sound query with its operation, a refused one with its error."""
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

    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]

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
        """Whether nothing is an error."""
        return self.errors == 0

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
        return LintReport((), (Finding(LintLevel.ERROR, "Q000", error.problems[0].rendered()),))
    results = tuple([_result(query, catalog) for query in queries])
    return LintReport(results, tuple(_unset(catalog, [each.checked for each in results if each.checked is not None])))


def _result(query: tree.Query, catalog: Catalog) -> QueryResult:
    kind = QueryKind.READ if isinstance(query.body, tree.Read) else QueryKind.MUTATION
    bare = kind is QueryKind.MUTATION and not query.params
    warnings = ("mutation declares no params: it does the same every time",) if bare else ()
    try:
        return QueryResult(query.name.text, kind, warnings, check_query(query, catalog), None)
    except LanguageError as error:
        return QueryResult(query.name.text, kind, warnings, None, error.problems[0].rendered())


def _unset(catalog: Catalog, sound: Iterable[CheckedQuery]) -> list[Finding]:
    """L201: nullable properties of types that have updates, which none of these sets."""
    names: dict[str, set[str]] = {}
    assigned: dict[str, set[str]] = {}
    for query in sound:
        for statement in () if isinstance(query.body, TypedRead) else query.body:
            if isinstance(statement, TypedUpdate):
                names.setdefault(statement.type_name, set()).add(query.name)
                assigned.setdefault(statement.type_name, set()).update(each.name for each in statement.assignments)
    return [
        Finding(
            LintLevel.WARNING,
            "L201",
            f"`{owner}.{name}` is nullable, but no update query sets it",
            owner,
            name,
            tuple(sorted(names[owner])),
        )
        for owner in sorted(names)
        for name in _settable(catalog.nodes[owner])
        if name not in assigned[owner]
    ]


def _settable(node: NodeType) -> list[str]:
    """The nullable properties that an update may be expected to set; the key cannot be, a vector may be made."""
    fixed = {*(node.key or ()), *node.embeds}
    return sorted(name for name, kind in node.properties.items() if kind.nullable and name not in fixed)
