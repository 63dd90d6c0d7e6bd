"""Schemas and stored queries as a server uses them: each text is compiled once in a process, and each problem is placed in it."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef
from gitops.language.query import Query, check_query, parse_queries
from gitops.language.schema import Schema, compile_schema
from gitops.language.text import LanguageError, SourceText
from gitops.serving.generation import StoredQuery
from gitops.serving.revision import AppliedText

__all__ = ["Compiled"]


class Compiled:
    """What was compiled so far; generations that have a text in common share it."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._parsed: dict[str, Mapping[str, Query] | LanguageError] = {}
        self._queries: dict[tuple[str, str, str], StoredQuery] = {}

    def schema(self, source: bytes, path: str, found: Diagnostics) -> Schema | None:
        """The compiled schema of a live graph; None where it does not compile, which is reported."""
        name = digest(source)
        if name not in self._schemas:
            try:
                self._schemas[name] = compile_schema(source)
            except LanguageError as error:
                found.add(Code.GRAPH_UNREADABLE, path, f"the live schema does not compile: {error}")
                return None
        return self._schemas[name]

    def query(self, text: AppliedText, schema: Schema, live: str, found: Diagnostics) -> StoredQuery | None:
        """The stored query of a text, checked against the schema with digest `live`; what is wrong with it is reported."""
        name = text.address.name
        key = (live, text.digest, name)
        if (known := self._queries.get(key)) is not None:
            return known
        parsed = self._parse(text)
        if isinstance(parsed, LanguageError):
            _report(Code.STORED_QUERY_INVALID, parsed, text, found)
            return None
        if name not in parsed:
            found.add(Code.STORED_QUERY_INVALID, text.address, "the blob does not declare a query of this name")
            return None
        try:
            checked = check_query(parsed[name], schema.catalog)
        except LanguageError as error:
            _report(Code.STORED_QUERY_CHECK_FAILED, error, text, found)
            return None
        self._queries[key] = StoredQuery(name, text.digest, text.content, checked)
        return self._queries[key]

    def _parse(self, text: AppliedText) -> Mapping[str, Query] | LanguageError:
        """The queries of a text by name, the first of each, or why it does not parse."""
        if text.digest not in self._parsed:
            try:
                queries = parse_queries(text.content)
                self._parsed[text.digest] = {each.name.text: each for each in reversed(queries)}
            except LanguageError as error:
                self._parsed[text.digest] = error
        return self._parsed[text.digest]


def _report(code: Code, error: LanguageError, text: AppliedText, found: Diagnostics) -> None:
    lines = SourceText(text.content)
    for problem in error.problems:
        place = SourceRef(text.address, *lines.position(problem.span.start))
        fix = problem.fix or REGISTRY[code].fix
        found.extend([Diagnostic(code, Severity.ERROR, text.address, problem.rendered(), place, fix)])
