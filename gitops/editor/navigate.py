"""Definitions, references and renames: where a name is declared, where it occurs, and the edits that change it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.keys import CLUSTER_KEYS, GITOPS_KEYS
from gitops.cluster.config.named_clusters import CONFIG_FILE as GITOPS_FILE
from gitops.cluster.config.source import EntryKind, SourceError
from gitops.database.language.schema import TypeKind
from gitops.database.language.text import Span
from gitops.editor.project import QUERIES, SCHEMA, GraphUse, folder_of, graph_files, join_path
from gitops.editor.query import ANONYMOUS
from gitops.editor.symbols import FileSpan, Occurrence, Symbol, SymbolKind, is_local, occurrence_at
from gitops.editor.texts import EditorFile, TextCache
from gitops.editor.tokens import TextPiece

_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")
_MAX_NAME = 255
_MAX_FILES = 2_000
_KEYWORDS = frozenset({"true", "false", "asc", "desc", "as"})
_RESERVED = "__nanograph_now"
_START = Span(0, 0)
_NOT_RENAMED = (
    "only variables, parameters and aliases of a query can be renamed: the name of a type or property is data, which a "
    "migration renames (`@rename_from`), and callers use the name of a query"
)
_WITHOUT_REFERENCES = frozenset(
    {SymbolKind.KEYWORD, SymbolKind.FUNCTION, SymbolKind.ANNOTATION, SymbolKind.BASE_TYPE, SymbolKind.END}
)


class FileOccurrence(NamedTuple):
    """An occurrence in a file: its symbol, its span in the file, and the piece that it is in."""

    symbol: Symbol
    span: Span
    piece: TextPiece


def is_cluster_file(path: str) -> bool:
    """Whether this is a `cluster.yaml`."""
    return path.rpartition("/")[2] == CONFIG_FILE


def keys_of(path: str) -> Mapping[str, str] | None:
    """The documented keys of a file of settings: of a `cluster.yaml`, or of `gitops.yaml` at the top; None for other files."""
    if is_cluster_file(path):
        return CLUSTER_KEYS
    return GITOPS_KEYS if path == GITOPS_FILE else None


def find_occurrence(cache: TextCache, file: EditorFile, offset: int) -> FileOccurrence | None:
    """The occurrence over an offset of a schema or query file."""
    occurrences: tuple[Occurrence, ...] = ()
    piece = TextPiece(0, b"")
    if file.path.endswith(SCHEMA):
        pieces = reversed(cache.schema_view(file.data).pieces)
        piece, occurrences = next(((p, read.occurrences) for p, read in pieces if p.start <= offset), (piece, ()))
    elif file.path.endswith(QUERIES):
        piece = cache.piece_at(file.data, offset)
        occurrences = cache.query_view(piece.data, cache.schema_of(file)).occurrences
    found = occurrence_at(occurrences, offset - piece.start)
    return None if found is None else FileOccurrence(found.symbol, piece.in_file(found), piece)


def definitions(cache: TextCache, file: EditorFile, offset: int) -> tuple[FileSpan, ...]:
    """Where the name at an offset is declared: in this file, in the schema, or in a file that `cluster.yaml` names."""
    if keys_of(file.path) is not None:
        return tuple(_settings_definitions(cache, file, offset))
    found = find_occurrence(cache, file, offset)
    declared = None if found is None else declared_at(cache, file, found)
    return () if declared is None else (declared,)


def declared_at(cache: TextCache, file: EditorFile, found: FileOccurrence) -> FileSpan | None:
    """Where the symbol of an occurrence is declared; None for a word of the language and for an undeclared name."""
    symbol = found.symbol
    if is_local(symbol):
        if symbol.declared is None:
            return None
        start = found.piece.start + symbol.declared
        return FileSpan(file.path, Span(start, start + len(symbol.name)))
    if symbol.kind is SymbolKind.QUERY:
        return FileSpan(file.path, found.span)
    if file.schema is None:
        return None
    view = cache.view_of(file)
    if symbol.kind is SymbolKind.END:
        edge = view.declaration(TypeKind.EDGE, symbol.owner)
        if edge is None:
            return None
        symbol = Symbol(SymbolKind.NODE, edge.source if symbol.name in ("src", "from") else edge.target)
    span = view.span(symbol)
    return None if span is None else FileSpan(file.schema, span)


def references(cache: TextCache, file: EditorFile, offset: int) -> tuple[FileSpan, ...]:
    """Every occurrence of the name at an offset: in its query, or in all files of its graphs."""
    found = find_occurrence(cache, file, offset)
    if found is None or found.symbol.kind in _WITHOUT_REFERENCES:
        return ()
    if is_local(found.symbol):
        return tuple(FileSpan(file.path, span) for span in _spans_in_query(cache, file, found))
    spans = {FileSpan(file.path, found.span)}
    declared = declared_at(cache, file, found)
    if found.symbol.kind is not SymbolKind.QUERY and declared is not None:
        for use in file.uses:
            spans.update(_references_in_graph(cache, file, use, declared))
    return tuple(sorted(spans, key=lambda each: (each.path, each.span.start)))


def rename_problem(cache: TextCache, file: EditorFile, offset: int, name: str | None = None) -> str | None:
    """Why the name at an offset cannot be renamed (to `name`, if given); None if it can."""
    found = find_occurrence(cache, file, offset) if file.path.endswith(QUERIES) else None
    if found is None or not is_local(found.symbol) or found.symbol.declared is None or found.symbol.name == ANONYMOUS:
        return _NOT_RENAMED
    if name is None:
        return None
    sign = "$" if found.symbol.name.startswith("$") else ""
    bare = name.removeprefix(sign)
    if _NAME.fullmatch(bare) is None or bare in ("_", _RESERVED) or bare in _KEYWORDS or len(bare) > _MAX_NAME:
        return f"`{name[:40]}` is not a valid name: a name is a lower-case letter or `_`, then letters, digits and `_`"
    taken = {each.symbol.name for each in _query_occurrences(cache, file, found) if is_local(each.symbol)}
    if sign + bare != found.symbol.name and sign + bare in taken:
        return f"`{sign}{bare}` is already a name in this query"
    return None


def rename_edits(cache: TextCache, file: EditorFile, offset: int, name: str) -> tuple[tuple[Span, str], ...]:
    """The edits that rename the name at an offset; none if `rename_problem` has a reason."""
    found = find_occurrence(cache, file, offset)
    if found is None or rename_problem(cache, file, offset, name) is not None:
        return ()
    text = f"${name.removeprefix('$')}" if found.symbol.name.startswith("$") else name
    return tuple((span, text) for span in _spans_in_query(cache, file, found))


def _query_occurrences(cache: TextCache, file: EditorFile, found: FileOccurrence) -> tuple[Occurrence, ...]:
    return cache.query_view(found.piece.data, cache.schema_of(file)).occurrences


def _spans_in_query(cache: TextCache, file: EditorFile, found: FileOccurrence) -> Iterator[Span]:
    for each in _query_occurrences(cache, file, found):
        if each.symbol == found.symbol:
            yield found.piece.in_file(each)


def _references_in_graph(cache: TextCache, file: EditorFile, use: GraphUse, declared: FileSpan) -> Iterator[FileSpan]:
    """The occurrences in the files of a graph whose symbol is declared at one place."""
    schema = cache.file(file.tree, use.schema)
    if schema is None:
        return
    view = cache.schema_view(schema.data)
    declared_span = functools.cache(view.span)
    if declared.path == use.schema:
        for piece, content in view.pieces:
            for each in content.occurrences:
                if declared_span(each.symbol) == declared.span:
                    yield FileSpan(use.schema, piece.in_file(each))
    listed = dict.fromkeys(path for _, path in graph_files(file.tree, use))
    for path in list(listed)[:_MAX_FILES]:
        try:
            data = file.data if path == file.path else file.tree.read(path)
        except SourceError:
            continue
        for piece in cache.pieces(data):
            for each in cache.query_view(piece.data, schema.data).occurrences:
                if declared_span(each.symbol) == declared.span:
                    yield FileSpan(path, piece.in_file(each))


def _settings_definitions(cache: TextCache, file: EditorFile, offset: int) -> Iterator[FileSpan]:
    """Files, queries and graphs that a word of `cluster.yaml` or `gitops.yaml` names."""
    view = cache.cluster_view(file.data)
    found = view.at(offset)
    if found is None:
        return
    entry, value = found
    path = entry.path
    if path[:1] == ("policies",) and path[2:] == ("applies_to",) and value is not entry.key:
        graph = view.names("graphs").get(value.text.removeprefix("graph."))
        if graph is not None:
            yield FileSpan(file.path, graph.span)
    elif path[:1] == ("graphs",) and path[2:3] == ("queries",) and len(path) in (4, 5):
        for listed in view.values(*path[:4], "file"):
            named = _named_file(file, listed.text)
            if named is None:
                return
            pieces = cache.pieces(file.tree.read(named))
            declared = ((piece, cache.query_view(piece.data, None).name) for piece in pieces)
            spans = [piece.in_file(name) for piece, name in declared if name is not None and name.text == path[3]]
            yield FileSpan(named, spans[0] if spans else _START)
            if spans:
                return
    elif value is not entry.key:
        named = _named_file(file, f"{value.text}/{CONFIG_FILE}" if path == ("clusters", "path") else value.text)
        if named is not None:
            yield FileSpan(named, _START)


def _named_file(file: EditorFile, written: str) -> str | None:
    """The path of a file that `cluster.yaml` names, if it can be read."""
    try:
        path = join_path(folder_of(file.path), written)
        if file.tree.kind(path) is EntryKind.FILE:
            file.tree.read(path)
            return path
    except SourceError:
        pass
    return None
