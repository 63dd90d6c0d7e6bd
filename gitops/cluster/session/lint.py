"""`lint`: finds problems in schemas and query files, and shows where each one is. Read-only.

Steps: 1 find the schemas, and the query files to check against each; 2 compile each schema once; 3 check each pair of a
schema and a query file once, even if several graphs use it; 4 add lines and columns to every problem. If a schema does
not compile, only the grammar of its query files is checked; those without a problem are listed as not checked.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from gitops.cluster.config.cluster_yaml import read_cluster
from gitops.cluster.config.declaration import CONFIG_FILE, DeclaredGraph, QueryRegistry, Text
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.source import PathKind, SourceError, SourceTree, normalize
from gitops.cluster.session.fmt import named_files
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.core.errors import UsageError
from gitops.database.language.lint import (
    LintLevel,
    LintProblem,
    LintReport,
    lint_grammar,
    lint_queries,
    schema_problems,
    schema_warnings,
)
from gitops.database.language.schema import Catalog, compile_schema
from gitops.database.language.suggest import Suggestion
from gitops.database.language.text import LanguageError, SourceText
from gitops.database.language.yaml import shown

_SCHEMA, _QUERIES = ".pg", ".gq"
_AGAINST = f"gitops lint --schema SCHEMA{_SCHEMA} FILE{_QUERIES}"


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file: the bytes `[start, end)`, with lines and columns counted from 1 in characters.

    The end is exclusive.
    """

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class LocatedProblem:
    """A problem in a file. `replacement` is the text with which a program can replace the region, if known.

    `schemas` are the schemas for which a query file has the problem, or empty for a problem in a schema itself.
    """

    path: str
    level: LintLevel
    code: str
    message: str
    region: Region
    fix: str | None = None
    replacement: str | None = None
    query: str | None = None
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """One schema file, the graphs that use it, and its number of errors."""

    path: str
    graphs: tuple[str, ...]
    errors: int


@dataclass(frozen=True, slots=True)
class QueryReport:
    """A query file with one schema, and the graphs that declare both."""

    schema: str
    path: str
    graphs: tuple[str, ...]
    report: LintReport


@dataclass(frozen=True, slots=True)
class LintOutcome:
    """The checked files sorted by path, and all problems sorted by place.

    `unchecked` are pairs of a schema that does not compile and a query file that was only parsed. `sources` are the
    texts of files with problems. `diagnostics` are about files that could not be read.
    """

    schemas: tuple[SchemaReport, ...] = ()
    queries: tuple[QueryReport, ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()
    problems: tuple[LocatedProblem, ...] = ()
    sources: Mapping[str, SourceText] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()

    def count(self, level: LintLevel) -> int:
        """Return the number of problems and diagnostics at this level."""
        listed = sum(each.level is level for each in self.problems)
        return listed + sum(each.severity.value == level.value for each in self.diagnostics)

    def ok(self, *, strict: bool = False) -> bool:
        """Return True if there are no errors, and with `strict` no warnings either."""
        return not self.count(LintLevel.ERROR) and not (strict and self.count(LintLevel.WARNING))


def lint_cluster(
    tree: SourceTree, paths: Sequence[str] = (), schema: str | None = None, folder: str = ""
) -> LintOutcome:
    """Check schemas and query files: those that `cluster.yaml` declares, or `paths` (files, or folders with all their files).

    Paths are relative to the cluster folder. A query file is checked against the schema of each graph that declares it, or
    only against `schema` if that is given; then `cluster.yaml` is not read. Remedies name files as a reader does who sees the
    cluster folder as `folder`. Raises UsageError for a file of another type,
    and for `schema` without query files.
    """
    run = _LintRun(tree, folder)
    if schema is not None:
        run.check_against(normalize(schema, confined=False), paths)
    elif paths:
        run.check_named(paths)
    else:
        run.check_declared()
    return run.outcome()


class _Declared(NamedTuple):
    """A graph, and the value in `cluster.yaml` that refers to one of its files."""

    graph: DeclaredGraph
    written: Text


class _LintRun:
    """The results of steps 1 to 3 so far."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self._diagnostics = Diagnostics()
        self._reader = SourceReader(tree, self._diagnostics)
        self._texts: dict[str, SourceText | None] = {}
        self._catalogs: dict[str, Catalog | None] = {}
        self._graphs: defaultdict[str, set[str]] = defaultdict(set)
        self._pairs: dict[tuple[str, str], LintReport | None] = {}
        self._pair_graphs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._problems: defaultdict[str, dict[LintProblem, list[str]]] = defaultdict(dict)
        """Problems of each file, by path. Each problem has the schemas for which a query file has it."""

    def check_declared(self) -> None:
        """Check all files that the graphs in `cluster.yaml` declare."""
        for graph, schema in self._declared_graphs():
            self._compile(schema, _Declared(graph, graph.schema))
            for query, written in self._query_files(graph):
                self._check_pair(schema, query, _Declared(graph, written))

    def check_named(self, paths: Sequence[str]) -> None:
        """Check schemas on their own, and query files with the graphs that declare them."""
        files = self._named_files(paths, _SCHEMA, _QUERIES)
        users: dict[str, list[tuple[str, _Declared]]] = {}
        reads_cluster = False
        if any(path.endswith(_QUERIES) for path in files):
            try:
                reads_cluster = self._tree.kind(CONFIG_FILE) is not PathKind.ABSENT
            except SourceError as error:
                self._diagnostics.add_error(error)
        schemas = set[str]()
        for graph, schema in self._declared_graphs() if reads_cluster else ():
            schemas.add(schema)
            for query, written in self._query_files(graph):
                users.setdefault(query, []).append((schema, _Declared(graph, written)))
        for path in files:
            if path.endswith(_SCHEMA):
                self._compile(path)
            elif not path.endswith(_QUERIES):
                raise UsageError(
                    Code.USAGE_ERROR,
                    f"{path} is not a schema (.pg) or a query file (.gq)",
                    fix="pass files that end in .pg or .gq, or omit them: gitops lint",
                )
            elif path not in users:
                message = "no graph of cluster.yaml declares it, so there is no schema to check it against"
                fix = remedy(Code.LINT_SCHEMA_UNKNOWN, "") or ""
                words = [SourceRef(each).shown(self._folder) for each in (*schemas, path)]
                fix = fix.replace(
                    "SCHEMA.pg FILE.gq", shlex.join(words if len(schemas) == 1 else ("SCHEMA.pg", words[-1]))
                )
                self._diagnostics.add(Code.LINT_SCHEMA_UNKNOWN, path, message, source=SourceRef(path), fix=fix)
            for schema, declared in users.get(path, ()):
                self._check_pair(schema, path, declared)

    def check_against(self, schema: str, paths: Sequence[str]) -> None:
        """Check query files against one schema, without a cluster."""
        if not schema.endswith(_SCHEMA):
            raise UsageError(Code.USAGE_ERROR, f"{schema} is not a schema (.pg)", fix=_AGAINST)
        files = self._named_files(paths, _QUERIES)
        if not files and not self._diagnostics.has_errors:
            raise UsageError(Code.USAGE_ERROR, "--schema needs query files to check against it", fix=_AGAINST)
        self._compile(schema)
        for path in files:
            if not path.endswith(_QUERIES):
                raise UsageError(Code.USAGE_ERROR, f"{path} is not a query file (.gq)", fix=_AGAINST)
            self._check_pair(schema, path)

    def outcome(self) -> LintOutcome:
        """Perform step 4 and return the complete outcome."""
        texts = {path: text for path, text in self._texts.items() if text is not None and path in self._problems}
        problems = tuple(each for path in sorted(texts) for each in _locate(path, texts[path], self._problems[path]))
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
            unchecked=tuple(pair for pair, report in pairs if report is None),
            problems=problems,
            sources=texts,
            diagnostics=tuple(self._diagnostics),
        )

    def _named_files(self, paths: Sequence[str], *endings: str) -> list[str]:
        found = named_files(self._tree, paths, self._diagnostics, is_known=lambda name: name.endswith(endings))
        return sorted(set(found))

    def _declared_graphs(self) -> Iterator[tuple[DeclaredGraph, str]]:
        """Yield the graphs of `cluster.yaml` with the paths of their schemas."""
        cluster, problems = read_cluster(self._tree)
        self._diagnostics.extend(problems)
        for graph in () if cluster is None else cluster.graphs:
            schema = self._path(graph.schema, graph, Code.SCHEMA_FILE_MISSING)
            if schema is not None:
                yield graph, schema

    def _query_files(self, graph: DeclaredGraph) -> Iterator[tuple[str, Text]]:
        """Yield the query files of a graph, each once, with the value that lists it."""
        queries, by_name = graph.queries, isinstance(graph.queries, QueryRegistry)
        listed = [each.file for each in queries.entries] if isinstance(queries, QueryRegistry) else list(queries.items)
        seen: set[str] = set()
        for item in listed:
            path = self._path(item, graph, Code.QUERY_FILE_MISSING)
            if path is None or path in seen:
                continue
            seen.add(path)
            try:
                # A query listed by name has a file; only the other forms can refer to a folder.
                if by_name or self._tree.kind(path) is not PathKind.DIR:
                    yield path, item
                    continue
                names = [name for name in self._tree.names(path) if name.endswith(_QUERIES) and name != _QUERIES]
            except SourceError as error:
                self._reader.report(error, _at(graph), item.source, otherwise=Code.QUERY_DIR_UNREADABLE)
                continue
            inner = names if path == "." else [f"{path}/{name}" for name in names]
            yield from ((each, item) for each in inner if each not in seen)
            seen.update(inner)

    def _path(self, written: Text, graph: DeclaredGraph, otherwise: Code) -> str | None:
        try:
            return normalize(written.value, confined=True)
        except SourceError as error:
            self._reader.report(error, _at(graph), written.source, otherwise=otherwise)
            return None

    def _compile(self, path: str, declared: _Declared | None = None) -> Catalog | None:
        """Perform step 2."""
        if declared is not None:
            self._graphs[path].add(declared.graph.id.value)
        if path in self._catalogs:
            return self._catalogs[path]
        text = self._read(path, Code.SCHEMA_FILE_MISSING, declared)
        if text is None:
            return None
        try:
            schema = compile_schema(text.data)
            catalog: Catalog | None = schema.catalog
            for each in schema_warnings(schema):
                self._problems[path][each] = []
        except LanguageError as error:
            catalog = None
            for each in schema_problems(error):
                self._problems[path][each] = []
        self._catalogs[path] = catalog
        return catalog

    def _check_pair(self, schema: str, path: str, declared: _Declared | None = None) -> None:
        """Perform step 3."""
        pair = (schema, path)
        if declared is not None:
            self._pair_graphs[pair].add(declared.graph.id.value)
        if pair in self._pairs or self._reader.full:
            return
        of_graph = None if declared is None else _Declared(declared.graph, declared.graph.schema)
        catalog, text = self._compile(schema, of_graph), self._read(path, Code.QUERY_FILE_MISSING, declared)
        if text is None or not self._reader.admit(path, SourceRef(path), size=len(text.data)):
            return
        report = lint_grammar(text.data) if catalog is None else lint_queries(catalog, text.data)
        self._pairs[pair] = report
        for each in () if report is None else report.problems:
            self._problems[path].setdefault(each, []).append(schema)

    def _read(self, path: str, missing: Code, declared: _Declared | None) -> SourceText | None:
        """Return the text of a file. An unreadable file is reported once."""
        if path not in self._texts:
            try:
                self._texts[path] = SourceText(self._tree.read(path))
            except SourceError as error:
                self._texts[path] = None
                source = SourceRef(path) if declared is None else declared.written.source
                at = path if declared is None else _at(declared.graph)
                fix = error.fix
                if declared is None and not error.is_refusal:
                    fix = fix or "correct the path on the command line, or create the file"
                code = error.code if error.is_refusal else missing
                self._diagnostics.add(code, at, error.detail, source=source, fix=fix)
        return self._texts[path]


def _locate(path: str, text: SourceText, found: Mapping[LintProblem, Sequence[str]]) -> Iterator[LocatedProblem]:
    """Yield a file's problems in the order of their places."""
    size = len(text.data)
    for each in sorted(found, key=lambda each: (each.span.start, each.span.end, each.code, each.message)):
        start, end = min(each.span.start, size), min(each.span.end, size)
        replacement = None
        if isinstance(each.fix, Suggestion):
            replacement = each.fix.replacement(text.data[start:end].decode("utf-8", "replace"))
        yield LocatedProblem(
            path,
            each.level,
            each.code,
            each.message,
            Region(start, end, *text.position(start), *text.position(end)),
            each.fix,
            replacement,
            each.query,
            tuple(sorted(found[each])),
        )


def _at(graph: DeclaredGraph) -> str:
    return f"graphs.{shown(graph.id.value)}"
