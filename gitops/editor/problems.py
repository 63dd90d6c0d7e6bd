"""The problems of one file, with exact spans, the places that have to do with them, and the word that would put them right.

What is wrong is said by the compilers and the loader, under the codes of `gitops validate`; nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gitops.config.cluster_yaml import CONFIG_FILE
from gitops.config.load import load_desired
from gitops.core.codes import REGISTRY, Code, Severity
from gitops.editor.cluster import ClusterView, documentation_path, keys_below
from gitops.editor.documentation import CLUSTER_KEYS
from gitops.editor.navigate import FileOccurrence, declared_at, is_cluster_file
from gitops.editor.positions import Encoding, Lines
from gitops.editor.project import QUERIES, SCHEMA, Subtree, folder_of
from gitops.editor.symbols import FileSpan, Occurrence, Symbol, SymbolKind, occurrence_at
from gitops.editor.texts import EditorFile, TextCache
from gitops.editor.tokens import TextPiece
from gitops.language.schema import MAX_PROBLEMS, TypeKind
from gitops.language.suggest import Suggestion, did_you_mean
from gitops.language.text import LanguageError, LanguageProblem, Span, Stage

__all__ = ["EditorProblem", "RelatedSpan", "find_problems"]

_BETWEEN = re.compile(rb"[\s:=<>!]*(?:contains|starts_with)?\s*")
_QUOTES = (("", ""), ("$", ""), ('"', '"'))


class RelatedSpan(NamedTuple):
    """A place that a problem has to do with."""

    place: FileSpan
    message: str


class EditorProblem(NamedTuple):
    """One problem. `replacement` is the text for the span that would put it right, where one is known."""

    span: Span
    code: Code
    severity: Severity
    message: str
    replacement: str | None = None
    related: tuple[RelatedSpan, ...] = ()


def find_problems(texts: TextCache, file: EditorFile) -> tuple[EditorProblem, ...]:
    """What is wrong in a file, in source order, at most 100; raises nothing for any content."""
    found: Iterator[EditorProblem] = iter(())
    if file.path.endswith(SCHEMA):
        found = _schema(texts, file)
    elif file.path.endswith(QUERIES):
        found = _queries(texts, file)
    elif is_cluster_file(file.path):
        found = _cluster(texts, file)
    kept = {(each.span, each.code, each.message): each for each in found}
    return tuple(sorted(kept.values(), key=lambda each: (each.span.start, each.span.end, each.message))[:MAX_PROBLEMS])


class _Teller(NamedTuple):
    """What is needed to say a problem of one piece: the spans of the problem are those of the piece."""

    texts: TextCache
    file: EditorFile
    piece: TextPiece
    marks: tuple[Occurrence, ...] = ()

    def finding(self, code: Code, problem: LanguageProblem, graph: str = "") -> EditorProblem:
        """The problem at its place in the file; `graph` is named if there are several."""
        span = self.moved(problem.span)
        parts = [
            problem.rendered(),
            *([problem.fix] if problem.fix else []),
            *([f"in the graph {graph}"] if graph else []),
        ]
        written = self.file.data[span.start : span.end].decode("utf-8", "replace")
        return EditorProblem(
            span,
            code,
            REGISTRY[code].severity,
            "\n".join(parts),
            _replacement(written, problem.fix),
            tuple(self._related(problem.span)),
        )

    def moved(self, span: Span) -> Span:
        """The span in the whole file."""
        size = len(self.file.data)
        return Span(min(self.piece.start + span.start, size), min(self.piece.start + span.end, size))

    def _related(self, span: Span) -> Iterator[RelatedSpan]:
        """Where the name that a problem is about is declared, or the type that should have it."""
        mark = occurrence_at(self.marks, span.start) or self._written_to(span.start)
        if mark is None:
            return
        word = FileOccurrence(mark, self.piece.start)
        place = declared_at(self.texts, self.file, word)
        owner = mark.symbol.owner
        if place is None and mark.symbol.sort is SymbolKind.PROPERTY and owner:
            named = Symbol(SymbolKind.EDGE if mark.symbol.kind is TypeKind.EDGE else SymbolKind.NODE, owner)
            place = declared_at(
                self.texts, self.file, FileOccurrence(Occurrence(mark.start, mark.end, named), self.piece.start)
            )
            if place is not None:
                yield RelatedSpan(place, f"{owner} is declared here")
        elif place is not None and place != FileSpan(self.file.path, word.span):
            yield RelatedSpan(place, f"{mark.symbol.name} is declared here")

    def _written_to(self, offset: int) -> Occurrence | None:
        """The property that a value at an offset is written to or compared with."""
        before = [m for m in self.marks if m.end <= offset and m.symbol.sort is SymbolKind.PROPERTY]
        if before and _BETWEEN.fullmatch(self.piece.data[before[-1].end : offset]):
            return before[-1]
        return None


def _schema(texts: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    result = texts.compiled(file.data)
    if not isinstance(result, LanguageError):
        return
    pieces = texts.schema_view(file.data).pieces
    for problem in result.problems:
        code = Code.SCHEMA_PARSE_ERROR if problem.stage is Stage.PARSE else Code.SCHEMA_CATALOG_ERROR
        piece, held = next(((p, h) for p, h in reversed(pieces) if p.start <= problem.span.start), (None, None))
        if piece is None or held is None:
            yield _Teller(texts, file, TextPiece(0, file.data)).finding(code, problem)
            continue
        inner = Span(problem.span.start - piece.start, problem.span.end - piece.start)
        yield _Teller(texts, file, piece, held.marks).finding(code, problem._replace(span=inner))


def _queries(texts: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    # A file that is too large to be cut is one piece.
    pieces, schema = texts.pieces(file.data) or (TextPiece(0, file.data),), texts.schema_of(file)
    first: dict[str, Span] = {}
    for at, piece in enumerate(pieces):
        teller = _Teller(texts, file, piece, texts.query_view(piece.data, schema).marks)
        result = texts.parsed(piece.data)
        if isinstance(result, LanguageError):
            following = pieces[at + 1].data if at + 1 < len(pieces) else b""
            for problem in _parse_problems(texts, piece, result, following):
                yield teller.finding(Code.QUERY_PARSE_ERROR, problem)
            continue
        yield from _checks(teller)
        for query in result:
            span = teller.moved(query.name.span)
            before = first.setdefault(query.name.text, span)
            if before is not span:
                message = f"the query {query.name.text} is declared again; its first declaration counts"
                related = (RelatedSpan(FileSpan(file.path, before), "first declared here"),)
                yield EditorProblem(span, Code.DUPLICATE_QUERY_NAME, Severity.ERROR, message, None, related)


def _parse_problems(
    texts: TextCache, piece: TextPiece, error: LanguageError, following: bytes
) -> tuple[LanguageProblem, ...]:
    """The problems of a piece; what ends it too early is the next declaration, not the end of the file."""
    if error.problems[0].span.start >= len(piece.data) and following:
        again = texts.parsed(piece.data + following)
        if isinstance(again, LanguageError):
            return again.problems
    return error.problems


def _checks(teller: _Teller) -> Iterator[EditorProblem]:
    """What the checker says against each graph; a schema that does not compile is said once for each query."""
    texts, uses = teller.texts, teller.file.uses
    for use in uses:
        schema = texts.schema_of(teller.file, use)
        if schema is None:
            continue
        if isinstance(texts.compiled(schema), LanguageError):
            name = next((mark for mark in teller.marks if mark.symbol.sort is SymbolKind.QUERY), None)
            if name is not None:
                code = Code.QUERY_TYPECHECK_SKIPPED
                message = f"{name.symbol.name} was not checked: the schema of its graph does not compile"
                related = (RelatedSpan(FileSpan(use.schema, Span(0, 0)), "the schema"),)
                span = teller.moved(Span(name.start, name.end))
                yield EditorProblem(span, code, REGISTRY[code].severity, message, None, related)
            continue
        for problem in texts.checked(teller.piece.data, schema):
            yield teller.finding(Code.QUERY_TYPECHECK_ERROR, problem, use.graph if len(uses) > 1 else "")


def _cluster(texts: TextCache, file: EditorFile) -> Iterator[EditorProblem]:
    lines, view = Lines(file.data, Encoding.UTF32), texts.cluster_view(file.data)
    loaded = load_desired(Subtree(file.tree, folder_of(file.path))).diagnostics
    here = (each for each in loaded if each.source is not None and each.source.file == CONFIG_FILE)
    for found in islice(here, MAX_PROBLEMS):
        if found.source is None:
            continue
        start = lines.offset(max(found.source.line - 1, 0), max(found.source.column - 1, 0))
        at = view.at(start)
        end = lines.span(lines.line_of(start))[1]
        span = Span(start, max(start, len(file.data[:end].rstrip()))) if at is None else at[1].span
        fix = None if at is None else _nearest(view, at[0].path, at[1].text, is_key=at[1] is at[0].key)
        message = "\n".join([found.message, *([found.fix] if found.fix else [])])
        yield EditorProblem(span, found.code, found.severity, message, None if fix is None else fix.name)


def _nearest(view: ClusterView, path: tuple[str, ...], text: str, *, is_key: bool) -> Suggestion | None:
    """The known name that an unknown key or graph may have meant."""
    if is_key:
        known = keys_below(path[:-1])
        return (
            did_you_mean(text, known)
            if known and text not in known and documentation_path(path) not in CLUSTER_KEYS
            else None
        )
    if path[:1] == ("policies",) and path[2:] == ("applies_to",):
        graphs = view.names("graphs")
        return did_you_mean(text, graphs) if text not in graphs else None
    return None


def _replacement(written: str, fix: str | None) -> str | None:
    """The text that puts a span right, if the fix names a word and the span is just that word, quoted or not."""
    if isinstance(fix, Suggestion):
        for before, after in _QUOTES:
            if written == f"{before}{fix.wrong}{after}":
                return f"{before}{fix.name}{after}"
    return None
