"""The queries of one graph: three ways to list them, one way to check them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gitops.config.cluster_yaml import QueryRegistry, QuerySources, RawGraph, Text
from gitops.config.reader import Reading, SourceFile
from gitops.config.source import QUERY_EXTENSION, EntryKind, SourceError, normalize, query_files
from gitops.config.yaml import shown
from gitops.core.codes import Code
from gitops.core.diagnostics import SourceRef
from gitops.language.query import CheckedQuery, Query, check_query
from gitops.language.schema import Schema
from gitops.language.text import LanguageError
from gitops.model.address import is_name

__all__ = ["LoadedQuery", "load_queries"]

# The first time registers what a file declares and the second reports it as declared again; more would repeat that.
_MAX_LISTED = 2


@dataclass(frozen=True, slots=True)
class LoadedQuery:
    """A query of the graph. `path` is as written; `checked` is None when a problem was reported."""

    name: str
    path: str
    file: SourceFile
    checked: CheckedQuery | None = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A listed name with its file; `query` is None when the file does not declare it."""

    name: str
    path: str
    file: SourceFile
    query: Query | None
    source: SourceRef


def load_queries(reading: Reading, graph: RawGraph, schema: Schema | None) -> tuple[LoadedQuery, ...]:
    """All queries of `graph` in name order, each checked against `schema`.

    Without a schema each is warned about as `query_typecheck_skipped`. Queries whose file cannot be read or whose name is
    against the rule are reported and left out; the rest of their checks is still done.
    """
    if reading.full:
        return ()
    loader = _GraphQueries(reading, f"graphs.{shown(graph.id.value)}.queries")
    queries = graph.queries
    candidates = loader.registered(queries) if isinstance(queries, QueryRegistry) else loader.discovered(queries)
    loaded = []
    for candidate in candidates:
        if not reading.admit(loader.at, candidate.source, queries=1):
            break
        checked = loader.check(candidate, schema)
        if is_name(candidate.name):
            loaded.append(LoadedQuery(candidate.name, candidate.path, candidate.file, checked))
    return tuple(loaded)


class _GraphQueries:
    def __init__(self, reading: Reading, at: str) -> None:
        self._reading = reading
        self._found = reading.found
        self.at = at
        self._reported: set[str] = set()
        self._counted: set[str] = set()
        self._declared: dict[str, Mapping[str, Sequence[Query]]] = {}
        self._listed: Counter[str] = Counter()

    def registered(self, registry: QueryRegistry) -> Iterator[_Candidate]:
        """The map form, one by one, so that all findings of a query come together."""
        for entry in registry.entries:
            name, at = entry.name.value, f"{self.at}.{shown(entry.name.value)}"
            self._require_name(name, entry.name.source)
            file = self._reading.file(
                entry.file.value, f"{at}.file", entry.file.source, missing=Code.QUERY_FILE_MISSING
            )
            if file is None:
                continue
            declared = self._parse(file, at)
            if declared is None:
                yield _Candidate(name, entry.file.value, file, None, entry.name.source)
                continue
            known = self._by_name(file, declared)
            same = known.get(name, ())
            if not same:
                message = f"{file.path} declares no query '{shown(name)}'{self._reading.hint(name, known)}"
                self._found.add(Code.QUERY_KEY_MISMATCH, at, message, source=entry.name.source)
            for again in same[1:]:
                self._report_duplicate(again, file, file)
            yield _Candidate(name, entry.file.value, file, same[0] if same else None, entry.name.source)

    def discovered(self, sources: QuerySources) -> Iterator[_Candidate]:
        """The other forms: every declaration of every file, the first of each name, in name order."""
        first: dict[str, _Candidate] = {}
        for item in sources.items:
            for path in self._expand(item):
                if self._too_often(path):
                    continue
                file = self._reading.file(path, self.at, item.source, missing=Code.QUERY_FILE_MISSING)
                declared = None if file is None else self._parse(file, self.at)
                if file is None or declared is None:
                    continue
                for query in declared:
                    name, place = query.name.text, file.at(query.name.span)
                    if name in first:
                        self._report_duplicate(query, file, first[name].file)
                        continue
                    self._require_name(name, place)
                    first[name] = _Candidate(name, path, file, query, place)
        yield from (first[name] for name in sorted(first))

    def check(self, candidate: _Candidate, schema: Schema | None) -> CheckedQuery | None:
        """The checked query, or None with the reason reported."""
        if candidate.query is None:
            return None
        at = f"{self.at}.{shown(candidate.name)}"
        if schema is None:
            message = f"{shown(candidate.name)} was not checked: the schema of its graph does not compile"
            self._found.add(Code.QUERY_TYPECHECK_SKIPPED, at, message, source=candidate.source)
            return None
        try:
            return check_query(candidate.query, schema.catalog)
        except LanguageError as error:
            self._reading.language_problems(error, candidate.file, at)
            return None

    def _by_name(self, file: SourceFile, declared: Sequence[Query]) -> Mapping[str, Sequence[Query]]:
        """The declarations of a file by name; many names may be listed with one large file."""
        found = self._declared.get(file.path)
        if found is None:
            groups: defaultdict[str, list[Query]] = defaultdict(list)
            for query in declared:
                groups[query.name.text].append(query)
            found = self._declared[file.path] = dict(groups)
        return found

    def _too_often(self, path: str) -> bool:
        """Whether a file or folder is listed so often in this graph that there is nothing more to say about it."""
        try:
            place = normalize(path, confined=False)
        except SourceError:
            return False
        self._listed[place] += 1
        return self._listed[place] > _MAX_LISTED

    def _expand(self, item: Text) -> Iterator[str]:
        """The files that one entry stands for, spelled from the entry as written."""
        tree = self._reading.tree
        try:
            if tree.kind(item.value) is not EntryKind.DIR:
                yield item.value
                return
            if self._too_often(f"{item.value}/"):
                return
            names = query_files(tree.names(item.value))
        except SourceError as error:
            self._reading.refused(error, self.at, item.source, otherwise=Code.QUERY_DIR_UNREADABLE)
            return
        if not names:
            message = f"there is no {QUERY_EXTENSION} file in '{shown(item.value)}'"
            self._found.add(Code.QUERY_DIR_EMPTY, self.at, message, source=item.source)
        folder = item.value if not item.value or item.value.endswith("/") else f"{item.value}/"
        yield from (folder + name for name in names)

    def _parse(self, file: SourceFile, at: str) -> tuple[Query, ...] | None:
        """The declarations of a file; what is wrong with a file is said once in each graph."""
        if file.path not in self._counted:
            self._counted.add(file.path)
            self._reading.admit(self.at, SourceRef(file.path), size=len(file.data))
        if self._reading.full:
            return None
        result = self._reading.queries(file)
        if not isinstance(result, LanguageError):
            return result
        if file.path not in self._reported:
            self._reported.add(file.path)
            self._reading.language_problems(result, file, at)
        return None

    def _require_name(self, name: str, source: SourceRef) -> None:
        if not is_name(name):
            message = f"'{shown(name)}' is no name: letters, digits, _ and -, starting with a letter or _"
            self._found.add(Code.INVALID_RESOURCE_ID, f"{self.at}.{shown(name)}", message, source=source)

    def _report_duplicate(self, query: Query, file: SourceFile, first: SourceFile) -> None:
        name = shown(query.name.text)
        message = f"the query {name} is declared again; its declaration in {first.path} counts"
        self._found.add(Code.DUPLICATE_QUERY_NAME, f"{self.at}.{name}", message, source=file.at(query.name.span))
