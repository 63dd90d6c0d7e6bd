"""Problems of one file with exact spans, the related declarations, and known replacements.

The compilers and the loader find the problems, with the codes of `gitops validate`. This module only adds their
positions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from gitops.cluster.config.checkout import check_rules
from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.gitops_yaml import GITOPS_KEYS
from gitops.cluster.config.keys import CLUSTER_KEYS, documentation_path, keys_below
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.named_clusters import CONFIG_FILE as GITOPS_FILE
from gitops.core.codes import REGISTRY, Code, Severity
from gitops.database.language.query.codes import QUERY_CODES
from gitops.database.language.schema import MAX_PROBLEMS, TypeKind
from gitops.database.language.suggest import Suggestion, did_you_mean
from gitops.database.language.text import LanguageError, LanguageProblem, Span, Stage
from gitops.editor.completion import nearest_value
from gitops.editor.navigate import FileOccurrence, declared_at, is_cluster_file
from gitops.editor.symbols import Encoding, Lines, Occurrence, PathSpan, Symbol, SymbolKind, occurrence_at
from gitops.editor.texts import QUERIES, SCHEMA, EditorFile, Subtree, TextCache, folder_of
from gitops.editor.tokens import TextPiece

_NOWHERE = Span(0, 0)
_BETWEEN = re.compile(rb"[\s:=<>!]*(?:contains|starts_with)?\s*")


class RelatedSpan(NamedTuple):
    """A related place, with a message."""

    location: PathSpan
    message: str


class EditorProblem(NamedTuple):
    """A problem. `replacement` is the text that fixes it if put in place of the span, if known."""

    span: Span
    code: Code
    severity: Severity
    message: str
    replacement: str | None = None
    related: tuple[RelatedSpan, ...] = ()


def find_problems(cache: TextCache, file: EditorFile) -> tuple[EditorProblem, ...]:
    """Return the problems of a file in source order, at most 100. Never raises, whatever the content."""
    found: Iterator[EditorProblem] = iter(())
    if file.path.endswith(SCHEMA):
        found = _schema_problems(cache, file)
    elif file.path.endswith(QUERIES):
        found = _query_problems(cache, file)
    elif is_cluster_file(file.path):
        found = _cluster_problems(cache, file)
    elif file.path == GITOPS_FILE:
        found = _rules_problems(cache, file)
    unique = {(each.span, each.code, each.message): each for each in found}
    return tuple(
        sorted(unique.values(), key=lambda each: (each.span.start, each.span.end, each.message))[:MAX_PROBLEMS]
    )


class _ParsedPiece(NamedTuple):
    """A piece of a file with its occurrences. Spans of its problems are relative to the piece."""

    cache: TextCache
    file: EditorFile
    piece: TextPiece
    occurrences: tuple[Occurrence, ...] = ()

    def problem(self, code: Code, problem: LanguageProblem, graph: str = "") -> EditorProblem:
        """Return the problem with its position in the file, and with the graph's name if one is given."""
        size = len(self.file.data)
        start, end = self.piece.in_file(problem.span)
        span = Span(min(start, size), min(end, size))
        lines = [problem.rendered()]
        lines += [problem.fix] if problem.fix else []
        lines += [f"in the graph {graph}"] if graph else []
        replacement = None
        if isinstance(problem.fix, Suggestion):
            replacement = problem.fix.replacement(self.file.data[span.start : span.end].decode("utf-8", "replace"))
        severity, related = REGISTRY[code].severity, tuple(self._related(problem.span))
        return EditorProblem(span, code, severity, "\n".join(lines), replacement, related)

    def _related(self, span: Span) -> Iterator[RelatedSpan]:
        """Yield the declaration of the name that a problem is about, or of the type that lacks this name."""
        occurrence = occurrence_at(self.occurrences, span.start)
        if occurrence is None:
            # the property that this value is written to or compared with
            before = [o for o in self.occurrences if o.end <= span.start and o.symbol.kind is SymbolKind.PROPERTY]
            if not before or not _BETWEEN.fullmatch(self.piece.data[before[-1].end : span.start]):
                return
            occurrence = before[-1]
        symbol, span = occurrence.symbol, self.piece.in_file(occurrence)
        declared = declared_at(self.cache, self.file, FileOccurrence(symbol, span, self.piece))
        if declared is None and symbol.kind is SymbolKind.PROPERTY and symbol.owner:
            symbol = Symbol(SymbolKind.EDGE if symbol.type_kind is TypeKind.EDGE else SymbolKind.NODE, symbol.owner)
            declared = declared_at(self.cache, self.file, FileOccurrence(symbol, span, self.piece))
        if declared is not None and declared != PathSpan(self.file.path, span):
            yield RelatedSpan(declared, f"{symbol.name} is declared here")


def _schema_problems(cache: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    result = cache.compiled(file.data)
    refused = isinstance(result, LanguageError)
    pieces = cache.schema_view(file.data).pieces
    for problem in result.problems if isinstance(result, LanguageError) else result.warnings:
        code = Code.SCHEMA_PARSE_ERROR if problem.stage is Stage.PARSE else Code.SCHEMA_CATALOG_ERROR
        code = code if refused else Code.SCHEMA_ANNOTATION_UNKNOWN
        start, end = problem.span
        # A file that is too large to be read in detail has no pieces.
        parsed = _ParsedPiece(cache, file, TextPiece(0, file.data))
        for piece, content in reversed(pieces):
            if piece.start <= start:
                parsed = _ParsedPiece(cache, file, piece, content.occurrences)
                break
        inner = Span(start - parsed.piece.start, end - parsed.piece.start)
        yield parsed.problem(code, problem._replace(span=inner))


def _query_problems(cache: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    # A file that is too large to be read in detail is one piece.
    pieces, schema = cache.pieces(file.data) or (TextPiece(0, file.data),), cache.schema_of(file)
    first: dict[str, Span] = {}
    for at, piece in enumerate(pieces):
        parsed = _ParsedPiece(cache, file, piece, cache.query_view(piece.data, schema).occurrences)
        result = cache.parsed(piece.data)
        if isinstance(result, LanguageError):
            problems = result.problems
            if problems[0].span.start >= len(piece.data) and at + 1 < len(pieces):
                # The query ends too early: the problem is at the next declaration, not at the end of the file.
                again = cache.parsed(piece.data + pieces[at + 1].data)
                problems = again.problems if isinstance(again, LanguageError) else problems
            for problem in problems:
                yield parsed.problem(Code.QUERY_PARSE_ERROR, problem)
            continue
        yield from _checker_problems(parsed)
        for query in result:
            span = piece.in_file(query.name.span)
            before = first.setdefault(query.name.text, span)
            if before is not span:
                message = f"the query {query.name.text} is declared again; its first declaration is used"
                related = (RelatedSpan(PathSpan(file.path, before), "first declared here"),)
                yield EditorProblem(span, Code.DUPLICATE_QUERY_NAME, Severity.ERROR, message, None, related)


def _checker_problems(parsed: _ParsedPiece) -> Iterator[EditorProblem]:
    """Yield a query's problems for each graph. A schema that does not compile is reported once per query."""
    cache, uses = parsed.cache, parsed.file.uses
    for use in uses:
        schema = cache.schema_of(parsed.file, use)
        if schema is None:
            continue
        if isinstance(cache.compiled(schema), LanguageError):
            name = next((each for each in parsed.occurrences if each.symbol.kind is SymbolKind.QUERY), None)
            if name is not None:
                code = Code.QUERY_TYPECHECK_SKIPPED
                message = "this query was not checked: the schema of its graph does not compile"
                related = (RelatedSpan(PathSpan(use.schema, Span(0, 0)), "the schema"),)
                span, severity = parsed.piece.in_file(name), REGISTRY[code].severity
                yield EditorProblem(span, code, severity, message, None, related)
            continue
        for problem in cache.checked(parsed.piece.data, schema):
            yield parsed.problem(QUERY_CODES[problem.stage], problem, use.graph if len(uses) > 1 else "")


def _cluster_problems(cache: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    loaded = load_desired(Subtree(file.tree, folder_of(file.path))).diagnostics
    here = (each for each in loaded if each.source is not None and each.source.file == CONFIG_FILE)
    for found in islice(here, MAX_PROBLEMS):
        if found.source is not None:
            message = f"{found.message}\n{found.fix}" if found.fix else found.message
            at = (found.source.line, found.source.column)
            yield _setting_problem(
                cache, file, CLUSTER_KEYS, at, EditorProblem(_NOWHERE, found.code, found.severity, message)
            )


def _rules_problems(cache: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    """Yield the problems of `gitops.yaml` and of the files that it refers to."""
    for each in check_rules(file.tree, file.data):
        if each.source is not None:
            message = f"{each.message}\n{each.fix}" if each.fix else each.message
            problem = EditorProblem(_NOWHERE, each.code, each.severity, message)
            yield _setting_problem(cache, file, GITOPS_KEYS, (each.source.line, each.source.column), problem)


def _setting_problem(
    cache: TextCache, file: EditorFile, keys: Mapping[str, str], place: tuple[int, int], problem: EditorProblem
) -> EditorProblem:
    """Return the problem at the key or value at a line and column (counted from 1).

    `replacement` is the most similar allowed value, if any.
    """
    lines, view = Lines(file.data, Encoding.UTF32), cache.cluster_view(file.data)
    start = lines.offset(max(place[0] - 1, 0), max(place[1] - 1, 0))
    at = view.at(start)
    if at is None:
        end = lines.span(lines.line_of(start))[1]
        return problem._replace(span=Span(start, max(start, len(file.data[:end].rstrip()))))
    entry, value = at
    path, replacement = documentation_path(entry.path, keys), None
    if value is not entry.key:
        replacement = nearest_value(file, view, path, value.text)
    elif path not in keys and (near := did_you_mean(value.text, keys_below(entry.path[:-1], keys))) is not None:
        replacement = near.name
    return problem._replace(span=value.span, replacement=replacement)
