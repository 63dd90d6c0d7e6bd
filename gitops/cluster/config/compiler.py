"""Compiles each text of one load once, and reports each problem at its place.

The language modules are slow to import. A load in which everything is recorded or known to be valid does not import
this module, and one without queries does not import the query language.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from gitops.cluster.config.declaration import DeclaredGraph, QueryRegistry
from gitops.cluster.config.reader import SourceFile, SourceReader
from gitops.cluster.config.source import PathKind, SourceError, SourceTree, normalize, query_files
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.text import LanguageError, Stage

if TYPE_CHECKING:
    from gitops.database.language.query import CheckedQuery, Query

T = TypeVar("T")

_SCHEMA_CODES = {Stage.PARSE: Code.SCHEMA_PARSE_ERROR, Stage.CATALOG: Code.SCHEMA_CATALOG_ERROR}


class LanguageCompiler:
    """A compiler for one load. It adds every problem to `found`."""

    def __init__(self, found: Diagnostics) -> None:
        self._found = found
        self._schemas: dict[str, Schema | LanguageError] = {}
        self._queries: dict[str, tuple[Query, ...] | LanguageError] = {}
        self._parsed_before: set[str] = set()
        self._reported_schemas: set[str] = set()

    def schema(self, file: SourceFile, at: str) -> Schema | None:
        """Return the compiled schema. Reports its problems for the config path `at` and then returns None."""
        result = _once(self._schemas, file, compile_schema)
        # If several graphs have the same schema, report a problem only for the first.
        limit = 1 if file.digest in self._reported_schemas else None
        self._reported_schemas.add(file.digest)
        if not isinstance(result, LanguageError):
            unknown = REGISTRY[Code.SCHEMA_ANNOTATION_UNKNOWN]
            for each in result.warnings[:limit]:
                place, fix = file.at(each.span), each.fix or unknown.fix
                self._found.extend([Diagnostic(unknown.code, unknown.severity, at, each.message, place, fix)])
            return result
        self._report(result, file, at, _SCHEMA_CODES, limit)
        return None

    def queries(self, file: SourceFile) -> tuple[Query, ...] | LanguageError:
        """Return a file's queries in order, or its parse error, which is not reported."""
        from gitops.database.language.query import parse_queries

        return _once(self._queries, file, parse_queries)

    def check(self, query: Query, file: SourceFile, schema: Schema, at: str) -> CheckedQuery | None:
        """Return a file's checked query, or None after reporting its problems for the config path `at`."""
        from gitops.database.language.query import check_query

        try:
            return check_query(query, schema.catalog)
        except LanguageError as error:
            self.report_query(error, file, at)
            return None

    def are_sound(self, queries: Iterable[Query], schema: Schema) -> bool:
        """Return True if queries are valid against a schema, without reporting anything."""
        from gitops.database.language.query import check_query

        try:
            for query in queries:
                check_query(query, schema.catalog)
        except LanguageError:
            return False
        return True

    def report_query(self, error: LanguageError, file: SourceFile, at: str) -> None:
        """Report a query file's problems."""
        from gitops.database.language.query.codes import QUERY_CODES

        self._report(error, file, at, QUERY_CODES)

    def drop_trees(self) -> None:
        """Drop the parsed queries. They use most of a load's memory, and graphs rarely share them.

        A file that was needed twice is kept, so no file is parsed more than twice.
        """
        for name in self._queries.keys() - self._parsed_before:
            del self._queries[name]
            self._parsed_before.add(name)

    def _report(
        self, error: LanguageError, file: SourceFile, at: str, codes: Mapping[Stage, Code], limit: int | None = None
    ) -> None:
        """Report problems with the code of their stage, the first `limit` of them."""
        for problem in error.problems[:limit]:
            entry = REGISTRY[codes[problem.stage]]
            place, fix = file.at(problem.span), problem.fix or entry.fix or None
            self._found.extend([Diagnostic(entry.code, entry.severity, at, problem.rendered(), place, fix)])


def _once(
    results: dict[str, T | LanguageError], file: SourceFile, compile_text: Callable[[bytes], T]
) -> T | LanguageError:
    """Compile a text once for all files with the same content and return the result or the error."""
    if file.digest not in results:
        try:
            results[file.digest] = compile_text(file.data)
        except LanguageError as error:
            results[file.digest] = error
    return results[file.digest]


# -- one query ---------------------------------------------------------------------------------------------------------
# Finds the file of one stored query without loading its graph.


def find_query_file(reader: SourceReader, declared: DeclaredGraph, name: str) -> tuple[str, SourceFile] | None:
    """Return the file that a query would be loaded from and its declared path, or None.

    Nothing is reported or checked. A file is parsed only if the name is in its text.
    """
    from gitops.database.language.query import parse_queries

    for path in _paths(reader.tree, declared, name):
        file = reader.read(path)
        if not isinstance(file, SourceFile) or file.broken is not None:
            continue
        if isinstance(declared.queries, QueryRegistry):
            # The file that was found may turn out not to contain the query.
            return path, file
        with contextlib.suppress(LanguageError):
            if name.encode() in file.data and any(query.name.text == name for query in parse_queries(file.data)):
                return path, file
    return None


def _paths(tree: SourceTree, declared: DeclaredGraph, name: str) -> Iterator[str]:
    """Yield the files that might contain the query, in the order of a load."""
    if isinstance(declared.queries, QueryRegistry):
        yield from (each.file.value for each in declared.queries.entries if each.name.value == name)
        return
    for item in declared.queries.items:
        try:
            place = normalize(item.value, confined=True)
            names = query_files(tree.names(place)) if tree.kind(place) is PathKind.DIR else None
        except SourceError:
            continue
        folder = item.value if item.value.endswith("/") else f"{item.value}/"
        yield from [item.value] if names is None else (folder + each for each in names)
