"""The languages, for one load: each text compiled once, each problem reported at its place.

The languages take long to import. A load that finds everything recorded or known to be sound does not import this module.
"""

from __future__ import annotations

from collections.abc import Iterable

from gitops.config.reader import SourceFile
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.language.schema import Schema, compile_schema
from gitops.language.text import LanguageError, Stage

__all__ = ["LanguageCompiler"]

_SCHEMA_CODES = {
    Stage.PARSE: Code.SCHEMA_PARSE_ERROR,
    Stage.CATALOG: Code.SCHEMA_CATALOG_ERROR,
    Stage.TYPE: Code.SCHEMA_CATALOG_ERROR,
}
_QUERY_CODES = {
    Stage.PARSE: Code.QUERY_PARSE_ERROR,
    Stage.CATALOG: Code.QUERY_TYPECHECK_ERROR,
    Stage.TYPE: Code.QUERY_TYPECHECK_ERROR,
}


class LanguageCompiler:
    """Compiles for one load; every problem goes to `found`."""

    def __init__(self, found: Diagnostics) -> None:
        """Nothing is compiled yet."""
        self._found = found
        self._schemas: dict[str, Schema | LanguageError] = {}
        self._queries: dict[str, tuple[Query, ...] | LanguageError] = {}
        self._parsed_before: set[str] = set()
        self._broken_schemas: set[str] = set()

    def schema(self, file: SourceFile, at: str) -> Schema | None:
        """The compiled schema, or None with its problems reported for the config path `at`."""
        result = self._schemas.get(file.digest)
        if result is None:
            try:
                result = compile_schema(file.data)
            except LanguageError as error:
                result = error
            self._schemas[file.digest] = result
        if isinstance(result, LanguageError):
            # For further graphs with the same schema, one problem is enough.
            again = file.digest in self._broken_schemas
            self._broken_schemas.add(file.digest)
            self._report(result, file, at, _SCHEMA_CODES, limit=1 if again else None)
            return None
        return result

    def queries(self, file: SourceFile) -> tuple[Query, ...] | LanguageError:
        """The queries that a file declares, in its order, or why it does not parse (not reported)."""
        result = self._queries.get(file.digest)
        if result is None:
            try:
                result = parse_queries(file.data)
            except LanguageError as error:
                result = error
            self._queries[file.digest] = result
        return result

    def check(self, query: Query, file: SourceFile, schema: Schema, at: str) -> CheckedQuery | None:
        """The checked query of a file, or None with its problems reported for the config path `at`."""
        try:
            return check_query(query, schema.catalog)
        except LanguageError as error:
            self.report_query(error, file, at)
            return None

    def are_sound(self, queries: Iterable[Query], schema: Schema) -> bool:
        """Whether queries check against a schema; reports nothing."""
        try:
            for query in queries:
                check_query(query, schema.catalog)
        except LanguageError:
            return False
        return True

    def report_query(self, error: LanguageError, file: SourceFile, at: str) -> None:
        """Report the problems of a query file."""
        self._report(error, file, at, _QUERY_CODES)

    def drop_trees(self) -> None:
        """Drop the parsed queries: they are the bulk of a load's memory, and graphs rarely share a file.

        A file that was needed again is kept, so that none is parsed more than twice.
        """
        for name in [name for name in self._queries if name not in self._parsed_before]:
            del self._queries[name]
            self._parsed_before.add(name)

    def _report(
        self, error: LanguageError, file: SourceFile, at: str, codes: dict[Stage, Code], limit: int | None = None
    ) -> None:
        for problem in error.problems[:limit]:
            entry = REGISTRY[codes[problem.stage]]
            place = file.at(problem.span)
            self._found.extend(
                [Diagnostic(entry.code, entry.severity, at, problem.rendered(), place, problem.fix or entry.fix)]
            )
