"""The files of one load: each read once, each text compiled once, each problem put at its place."""

from __future__ import annotations

from collections.abc import Collection

from gitops.config.limits import MAX_QUERIES, MAX_QUERY_BYTES
from gitops.config.source import SourceError, SourceTree, normalize
from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.language.query import Query, parse_queries
from gitops.language.schema import Schema, compile_schema
from gitops.language.suggest import did_you_mean
from gitops.language.text import LanguageError, SourceText, Span, Stage

__all__ = ["Reading", "SourceFile"]

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


# A suggestion compares with every known name, and a hostile folder may be wrong very often.
_MAX_HINTS = 100


class SourceFile:
    """One file: `path` is normalized, `digest` covers `data`, `broken` is the span of bytes that are not UTF-8."""

    __slots__ = ("broken", "data", "digest", "path", "text")

    def __init__(self, path: str, data: bytes) -> None:
        """Compute the digest."""
        self.path = path
        self.data = data
        self.digest = digest(data)
        self.text = SourceText(data)
        self.broken = _not_utf8(data)

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
        self._hints = _MAX_HINTS
        self._queries_left = MAX_QUERIES
        self._bytes_left = MAX_QUERY_BYTES
        self._parsed_before: set[str] = set()
        self._broken_schemas: set[str] = set()
        self.full = False

    @property
    def spent(self) -> tuple[int, int]:
        """The queries, and bytes of query files, that were admitted so far."""
        return MAX_QUERIES - self._queries_left, MAX_QUERY_BYTES - self._bytes_left

    def places(self) -> set[str]:
        """The normalized paths that were asked for so far."""
        return set(self._files)

    def hint(self, name: str, known: Collection[str]) -> str:
        """What to append to a message about an unknown name: the nearest known one, as long as there are not too many."""
        self._hints -= 1
        near = did_you_mean(name, known) if self._hints >= 0 else None
        return f"; {near}" if near else ""

    def admit(self, at: str, place: SourceRef, *, queries: int = 0, size: int = 0) -> bool:
        """Count queries and bytes of query files of one graph; False, once reported, when they are more than are allowed."""
        self._queries_left -= queries
        self._bytes_left -= size
        if not self.full and (self._queries_left < 0 or self._bytes_left < 0):
            self.full = True
            message = (
                f"all graphs together list more than {MAX_QUERIES} queries or {MAX_QUERY_BYTES} bytes of query files; "
                "the others are not read"
            )
            self.found.add(Code.SOURCE_TOO_LARGE, at, message, source=place)
        return not self.full

    def file(self, path: str, at: str, place: SourceRef, *, missing: Code) -> SourceFile | None:
        """The file at `path`, which must be UTF-8.

        Failing that, None, reported for the config path `at`: as `missing`, or with the code of a refusal of the tree.
        """
        found = self._file(path)
        if isinstance(found, SourceError):
            self.refused(found, at, place, otherwise=missing)
            return None
        if found.broken is not None:
            where = found.at(found.broken)
            self.found.add(missing, at, f"{found.path} is not UTF-8 at byte {found.broken.start}", source=where)
            return None
        return found

    def refused(self, error: SourceError, at: str, place: SourceRef, *, otherwise: Code) -> None:
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
            # The next graphs with the same schema say that it is broken, not everything that is wrong with it again.
            again = file.digest in self._broken_schemas
            self._broken_schemas.add(file.digest)
            self.language_problems(result, file, at, codes=_SCHEMA_CODES, limit=1 if again else None)
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
        """Forget the parsed queries: they are the bulk of a load's memory, and graphs rarely share a file.

        A file that was needed again is kept, so that none is parsed more than twice.
        """
        for name in [name for name in self._queries if name not in self._parsed_before]:
            del self._queries[name]
            self._parsed_before.add(name)

    def language_problems(
        self,
        error: LanguageError,
        file: SourceFile,
        at: str,
        *,
        codes: dict[Stage, Code] | None = None,
        limit: int | None = None,
    ) -> None:
        """Report what a compiler found, each at its place in `file`; of a query file unless `codes` says otherwise."""
        for problem in error.problems[:limit]:
            entry = REGISTRY[(codes or _QUERY_CODES)[problem.stage]]
            fix = problem.fix or entry.fix
            place = file.at(problem.span)
            self.found.extend([Diagnostic(entry.code, entry.severity, at, problem.rendered(), place, fix)])

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


def _not_utf8(data: bytes) -> Span | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Span(error.start, error.end)
    return None
