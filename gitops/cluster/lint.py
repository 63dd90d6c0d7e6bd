"""`lint`: what is wrong with schemas and query files, each at its place; reads, and writes nothing.

Steps: 1 which schemas, and which query files against which of them; 2 each schema is compiled once; 3 each pair of a schema
and a query file is checked once, however many graphs have it; 4 every problem gets its lines and columns. A query file whose
schema is broken is checked for its grammar alone, and is listed as passed over when that is sound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gitops.cluster.files import named_files
from gitops.cluster.lint_report import (
    LintOutcome,
    LocatedProblem,
    QueryReport,
    Region,
    SchemaReport,
    UncheckedQueryFile,
)
from gitops.config.cluster_yaml import CONFIG_FILE, QueryRegistry, RawGraph, Text
from gitops.config.header import read_cluster
from gitops.config.reader import Reading
from gitops.config.source import EntryKind, SourceError, SourceTree, normalize
from gitops.config.yaml import shown
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import UsageError
from gitops.language.lint import LintProblem, LintReport, lint_grammar, lint_queries, schema_problems
from gitops.language.schema import Catalog, compile_schema
from gitops.language.suggest import Suggestion
from gitops.language.text import LanguageError, SourceText, Span

__all__ = ["lint_cluster"]

_SCHEMA, _QUERIES = ".pg", ".gq"
_QUOTES = (("", ""), ("$", ""), ('"', '"'))


def lint_cluster(tree: SourceTree, paths: Sequence[str] = (), schema: str | None = None) -> LintOutcome:
    """Look at what `cluster.yaml` declares, or at `paths`: schemas, query files, and folders with all such below them.

    Paths are relative to the cluster folder. A query file is checked against the schema of each graph that declares it, or
    against `schema` alone if that is given; then `cluster.yaml` is not read. Raises UsageError for a path of a file of
    another sort, and for a schema without query files.
    """
    run = _LintRun(tree)
    if schema is not None:
        run.against(normalize(schema, confined=False), paths)
    elif paths:
        run.named(paths)
    else:
        run.declared()
    return run.outcome()


class _Declared(NamedTuple):
    """A graph, and the entry of it that names a file."""

    graph: RawGraph
    written: Text


class _LintRun:
    """Steps 1 to 3 as they go on."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._found = Diagnostics()
        self._reading = Reading(tree, self._found)
        self._texts: dict[str, SourceText | None] = {}
        self._catalogs: dict[str, Catalog | None] = {}
        self._graphs: defaultdict[str, set[str]] = defaultdict(set)
        self._pairs: dict[tuple[str, str], LintReport | None] = {}
        self._pair_graphs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._problems = _Problems()

    def declared(self) -> None:
        """Everything that the graphs of `cluster.yaml` declare."""
        cluster, problems = read_cluster(self._tree)
        self._found.extend(problems)
        for graph in () if cluster is None else cluster.graphs:
            path = self._place(graph.schema, graph, Code.SCHEMA_FILE_MISSING)
            if path is None:
                continue
            self._schema(path, _Declared(graph, graph.schema))
            for query, written in self._query_files(graph):
                self._pair(path, query, _Declared(graph, written))

    def named(self, paths: Sequence[str]) -> None:
        """Schemas for themselves, query files with the graphs that declare them."""
        files = sorted(set(named_files(self._tree, paths, self._found, is_known=_is_known)))
        users = self._users() if any(path.endswith(_QUERIES) for path in files) else {}
        for path in files:
            if path.endswith(_SCHEMA):
                self._schema(path)
            elif not path.endswith(_QUERIES):
                raise UsageError(Code.USAGE_ERROR, f"{path} is no schema (.pg) and no queries (.gq)")
            elif path not in users:
                message = "no graph of cluster.yaml declares it, so there is no schema to check it against"
                self._found.add(Code.LINT_SCHEMA_UNKNOWN, path, message, source=SourceRef(path))
            for schema, declared in users.get(path, ()):
                self._pair(schema, path, declared)

    def against(self, schema: str, paths: Sequence[str]) -> None:
        """Query files against one schema, without a cluster."""
        if not schema.endswith(_SCHEMA):
            raise UsageError(Code.USAGE_ERROR, f"{schema} is no schema (.pg)")
        files = sorted(set(named_files(self._tree, paths, self._found, is_known=lambda n: n.endswith(_QUERIES))))
        if not files and not self._found.has_errors:
            raise UsageError(Code.USAGE_ERROR, "--schema needs the query files to check against it")
        self._schema(schema)
        for path in files:
            if not path.endswith(_QUERIES):
                raise UsageError(Code.USAGE_ERROR, f"{path} is no query file (.gq)")
            self._pair(schema, path)

    def outcome(self) -> LintOutcome:
        """Step 4, and all of it together."""
        texts = {path: text for path, text in self._texts.items() if text is not None and path in self._problems}
        problems = self._problems.located(texts)
        errors = Counter(each.path for each in problems)
        pairs = sorted(self._pairs.items(), key=lambda each: (each[0][1], each[0][0]))
        return LintOutcome(
            schemas=tuple(
                SchemaReport(path, tuple(sorted(self._graphs[path])), errors[path]) for path in sorted(self._catalogs)
            ),
            queries=tuple(
                QueryReport(*pair, tuple(sorted(self._pair_graphs[pair])), report)
                for pair, report in pairs
                if report is not None
            ),
            passed=tuple(UncheckedQueryFile(*pair) for pair, report in pairs if report is None),
            problems=problems,
            sources=texts,
            diagnostics=tuple(self._found),
        )

    def _users(self) -> dict[str, list[tuple[str, _Declared]]]:
        """The graphs that declare each query file, with their schemas; none where there is no `cluster.yaml`."""
        users: dict[str, list[tuple[str, _Declared]]] = {}
        try:
            if self._tree.kind(CONFIG_FILE) is EntryKind.ABSENT:
                return users
        except SourceError as error:
            self._found.add_error(error)
            return users
        cluster, problems = read_cluster(self._tree)
        self._found.extend(problems)
        for graph in () if cluster is None else cluster.graphs:
            schema = self._place(graph.schema, graph, Code.SCHEMA_FILE_MISSING)
            if schema is not None:
                for query, written in self._query_files(graph):
                    users.setdefault(query, []).append((schema, _Declared(graph, written)))
        return users

    def _query_files(self, graph: RawGraph) -> Iterator[tuple[str, Text]]:
        """The query files of a graph, each once, with what lists them."""
        queries, by_name = graph.queries, isinstance(graph.queries, QueryRegistry)
        listed = [each.file for each in queries.entries] if isinstance(queries, QueryRegistry) else list(queries.items)
        seen: set[str] = set()
        for item in listed:
            path = self._place(item, graph, Code.QUERY_FILE_MISSING)
            if path is None or path in seen:
                continue
            seen.add(path)
            try:
                # What is listed by name is a file; only the other forms may mean a folder.
                if by_name or self._tree.kind(path) is not EntryKind.DIR:
                    yield path, item
                    continue
                names = [name for name in self._tree.names(path) if name.endswith(_QUERIES) and name != _QUERIES]
            except SourceError as error:
                self._reading.refused(error, _at(graph), item.source, otherwise=Code.QUERY_DIR_UNREADABLE)
                continue
            inner = names if path == "." else [f"{path}/{name}" for name in names]
            yield from ((each, item) for each in inner if each not in seen)
            seen.update(inner)

    def _place(self, written: Text, graph: RawGraph, otherwise: Code) -> str | None:
        try:
            return normalize(written.value, confined=False)
        except SourceError as error:
            self._reading.refused(error, _at(graph), written.source, otherwise=otherwise)
            return None

    def _schema(self, path: str, declared: _Declared | None = None) -> Catalog | None:
        """Step 2."""
        if declared is not None:
            self._graphs[path].add(declared.graph.id.value)
        if path in self._catalogs:
            return self._catalogs[path]
        text = self._read(path, Code.SCHEMA_FILE_MISSING, declared)
        if text is None:
            return None
        try:
            catalog: Catalog | None = compile_schema(text.data).catalog
        except LanguageError as error:
            catalog = None
            self._problems.add(path, schema_problems(error))
        self._catalogs[path] = catalog
        return catalog

    def _pair(self, schema: str, path: str, declared: _Declared | None = None) -> None:
        """Step 3."""
        pair = (schema, path)
        if declared is not None:
            self._pair_graphs[pair].add(declared.graph.id.value)
        if pair in self._pairs or self._reading.full:
            return
        of_graph = None if declared is None else _Declared(declared.graph, declared.graph.schema)
        catalog, text = self._schema(schema, of_graph), self._read(path, Code.QUERY_FILE_MISSING, declared)
        if text is None or not self._reading.admit(path, SourceRef(path), size=len(text.data)):
            return
        report = lint_grammar(text.data) if catalog is None else lint_queries(catalog, text.data)
        self._pairs[pair] = report
        if report is not None:
            self._problems.add(path, report.problems, schema)

    def _read(self, path: str, missing: Code, declared: _Declared | None) -> SourceText | None:
        """The text of a file; what cannot be read is said once."""
        if path not in self._texts:
            try:
                self._texts[path] = SourceText(self._tree.read(path))
            except SourceError as error:
                self._texts[path] = None
                place = SourceRef(path) if declared is None else declared.written.source
                at = path if declared is None else _at(declared.graph)
                self._found.add(error.code if error.is_refusal else missing, at, error.detail, source=place)
        return self._texts[path]


class _Problems:
    """The problems of all files. One that a query file has under several schemas is kept once, with all of them."""

    def __init__(self) -> None:
        self._found: dict[str, dict[LintProblem, list[str]]] = {}

    def add(self, path: str, problems: Sequence[LintProblem], schema: str | None = None) -> None:
        """Add those of a file."""
        of_file = self._found.setdefault(path, {}) if problems else {}
        for each in problems:
            schemas = of_file.setdefault(each, [])
            if schema is not None:
                schemas.append(schema)

    def __contains__(self, path: str) -> bool:
        return path in self._found

    def located(self, texts: Mapping[str, SourceText]) -> tuple[LocatedProblem, ...]:
        """All of them in order of path and place."""
        return tuple(each for path in sorted(self._found) for each in _located(path, texts[path], self._found[path]))


def _located(path: str, text: SourceText, found: Mapping[LintProblem, Sequence[str]]) -> Iterator[LocatedProblem]:
    size = len(text.data)
    spans = {each: Span(min(each.span.start, size), min(each.span.end, size)) for each in found}
    for each in sorted(found, key=lambda each: (each.span.start, each.span.end, each.code, each.message)):
        span = spans[each]
        yield LocatedProblem(
            path,
            each.level,
            each.code,
            each.message,
            Region(span.start, span.end, *text.position(span.start), *text.position(span.end)),
            each.fix,
            _replacement(each.fix, text.data[span.start : span.end]),
            each.query,
            tuple(sorted(found[each])),
        )


def _replacement(fix: str | None, written: bytes) -> str | None:
    """What stands for `written` once the suggested name is in place, if the suggestion is about exactly that name."""
    if not isinstance(fix, Suggestion):
        return None
    text = written.decode("utf-8", "replace")
    for before, after in _QUOTES:
        if text == f"{before}{fix.wrong}{after}":
            return f"{before}{fix.name}{after}"
    return None


def _at(graph: RawGraph) -> str:
    return f"graphs.{shown(graph.id.value)}"


def _is_known(name: str) -> bool:
    return name.endswith((_SCHEMA, _QUERIES))
