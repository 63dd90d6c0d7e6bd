"""The files of one load: each read once, each text compiled once, each problem put at its place."""

from __future__ import annotations

from gitops.config.source import SourceError, SourceTree, normalize
from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.lang.query import parse_queries
from gitops.lang.query.ast import Query
from gitops.lang.schema import Schema, compile_schema
from gitops.lang.text import LanguageError, SourceText, Span, Stage

__all__ = ["Reading", "SourceFile"]

_SCHEMA_CODES = {
    Stage.PARSE: "schema_parse_error",
    Stage.CATALOG: "schema_catalog_error",
    Stage.TYPE: "schema_catalog_error",
}
_QUERY_CODES = {
    Stage.PARSE: "query_parse_error",
    Stage.CATALOG: "query_typecheck_error",
    Stage.TYPE: "query_typecheck_error",
}


class SourceFile:
    """One file: `path` is normalized, `digest` covers `data`."""

    __slots__ = ("data", "digest", "path", "text")

    def __init__(self, path: str, data: bytes) -> None:
        """Compute the digest."""
        self.path = path
        self.data = data
        self.digest = digest(data)
        self.text = SourceText(data)

    def at(self, span: Span) -> SourceRef:
        """The place of the start of a span."""
        line, column = self.text.position(span.start)
        return SourceRef(self.path, line, column)


class Reading:
    """Reads and compiles for one load; everything that is wrong goes to `found`."""

    def __init__(self, tree: SourceTree, found: Diagnostics) -> None:
        """Nothing is read yet."""
        self.tree = tree
        self.found = found
        self._files: dict[str, SourceFile | SourceError] = {}
        self._schemas: dict[str, Schema | LanguageError] = {}
        self._queries: dict[str, tuple[Query, ...] | LanguageError] = {}

    def file(self, path: str, at: str, place: SourceRef, *, missing: str) -> SourceFile | None:
        """The file at `path`, which must be UTF-8.

        Failing that, None, reported for the config path `at`: as `missing`, or with the code of a refusal of the tree.
        """
        found = self._file(path)
        if isinstance(found, SourceError):
            self.refused(found, at, place, otherwise=missing)
            return None
        try:
            found.data.decode()
        except UnicodeDecodeError as error:
            where = found.at(Span(error.start, error.end))
            self.found.add(missing, at, f"{found.path} is not UTF-8 at byte {error.start}", source=where)
            return None
        return found

    def refused(self, error: SourceError, at: str, place: SourceRef, *, otherwise: str) -> None:
        """Report an error of the tree: a refusal as such, what is absent or unreadable as `otherwise`."""
        self.found.add(error.code if error.is_refusal else otherwise, at, error.detail, source=place)

    def schema(self, file: SourceFile, at: str) -> Schema | None:
        """The compiled schema, or None with its problems reported."""
        result = self._schemas.get(file.digest)
        if result is None:
            try:
                result = compile_schema(file.data)
            except LanguageError as error:
                result = error
            self._schemas[file.digest] = result
        if isinstance(result, LanguageError):
            self.language_problems(result, file, at, codes=_SCHEMA_CODES)
            return None
        return result

    def queries(self, file: SourceFile) -> tuple[Query, ...] | LanguageError:
        """The queries that a file declares, in its order, or why it does not parse (not yet reported)."""
        result = self._queries.get(file.digest)
        if result is None:
            try:
                result = parse_queries(file.data)
            except LanguageError as error:
                result = error
            self._queries[file.digest] = result
        return result

    def drop_trees(self) -> None:
        """Forget the parsed queries: they are the bulk of a load's memory, and graphs rarely share a file."""
        self._queries.clear()

    def language_problems(
        self, error: LanguageError, file: SourceFile, at: str, *, codes: dict[Stage, str] | None = None
    ) -> None:
        """Report what a compiler found, each at its place in `file`; of a query file unless `codes` says otherwise."""
        for problem in error.problems:
            entry = REGISTRY[(codes or _QUERY_CODES)[problem.stage]]
            fix = problem.fix or entry.fix
            place = file.at(problem.span)
            self.found.extend([Diagnostic(entry.name, entry.severity, at, problem.rendered(), place, fix)])

    def _file(self, path: str) -> SourceFile | SourceError:
        try:
            # Whether a path may lead out is for the tree to say; here it only has to be one spelling.
            place = normalize(path, confined=False)
        except SourceError as error:
            return error
        found = self._files.get(place)
        if found is None:
            try:
                found = SourceFile(place, self.tree.read(place))
            except SourceError as error:
                found = error
            self._files[place] = found
        return found
