"""From a word to where it is declared, to every word that means the same, and to another name for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gitops.config.cluster_yaml import CONFIG_FILE
from gitops.config.source import EntryKind, SourceError
from gitops.editor.project import QUERIES, SCHEMA, GraphUse, folder_of, graph_files, join_path
from gitops.editor.query import ANONYMOUS
from gitops.editor.symbols import FileSpan, Occurrence, Symbol, SymbolKind, is_local, occurrence_at
from gitops.editor.texts import EditorFile, TextCache
from gitops.language.schema import TypeKind
from gitops.language.text import Span

__all__ = [
    "FileOccurrence",
    "declared_at",
    "definitions",
    "find_occurrence",
    "is_cluster_file",
    "references",
    "rename_edits",
    "rename_problem",
]

_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")
_MAX_NAME = 255
_MAX_FILES = 2_000
_WORDS = frozenset({"true", "false", "asc", "desc", "as"})
_RESERVED = "__nanograph_now"
_START = Span(0, 0)


class FileOccurrence(NamedTuple):
    """A mark of a file; the spans are those of the whole file, `start` is where its piece begins."""

    mark: Occurrence
    start: int

    @property
    def span(self) -> Span:
        """Where it stands."""
        return Span(self.start + self.mark.start, self.start + self.mark.end)

    @property
    def symbol(self) -> Symbol:
        """What it stands for."""
        return self.mark.symbol


def is_cluster_file(path: str) -> bool:
    """Whether this is a `cluster.yaml`."""
    return path.rpartition("/")[2] == CONFIG_FILE


def find_occurrence(texts: TextCache, file: EditorFile, offset: int) -> FileOccurrence | None:
    """The word over an offset of a schema or query file."""
    if file.path.endswith(SCHEMA):
        for piece, held in reversed(texts.schema_view(file.data).pieces):
            if piece.start <= offset:
                mark = occurrence_at(held.marks, offset - piece.start)
                return None if mark is None else FileOccurrence(mark, piece.start)
        return None
    if not file.path.endswith(QUERIES):
        return None
    piece = texts.piece_at(file.data, offset)
    mark = occurrence_at(texts.query_view(piece.data, texts.schema_of(file)).marks, offset - piece.start)
    return None if mark is None else FileOccurrence(mark, piece.start)


def definitions(texts: TextCache, file: EditorFile, offset: int) -> tuple[FileSpan, ...]:
    """Where the word at an offset is declared: in this file, in the schema, or in a file that `cluster.yaml` names."""
    if is_cluster_file(file.path):
        return tuple(_in_cluster(texts, file, offset))
    word = find_occurrence(texts, file, offset)
    place = None if word is None else declared_at(texts, file, word)
    return () if place is None else (place,)


def declared_at(texts: TextCache, file: EditorFile, word: FileOccurrence) -> FileSpan | None:
    """Where a symbol is declared; None for a word of the language, and for a name that nothing declares."""
    symbol = word.symbol
    if is_local(symbol):
        if symbol.declared is None:
            return None
        start = word.start + symbol.declared
        return FileSpan(file.path, Span(start, start + len(symbol.name)))
    if symbol.sort is SymbolKind.QUERY:
        return FileSpan(file.path, word.span)
    view, path = texts.view_of(file), file.schema
    if view is None or path is None:
        return None
    if symbol.sort is SymbolKind.END:
        edge = view.get(TypeKind.EDGE, symbol.owner)
        if edge is None:
            return None
        symbol = Symbol(SymbolKind.NODE, edge.source if symbol.name in ("src", "from") else edge.target)
    span = view.span(symbol)
    return None if span is None else FileSpan(path, span)


def references(texts: TextCache, file: EditorFile, offset: int) -> tuple[FileSpan, ...]:
    """Every word that means the same as the one at an offset: in its query, or in all files of its graph."""
    word = find_occurrence(texts, file, offset)
    if word is None or word.symbol.sort in (
        SymbolKind.KEYWORD,
        SymbolKind.FUNCTION,
        SymbolKind.ANNOTATION,
        SymbolKind.BASE_TYPE,
        SymbolKind.END,
    ):
        return ()
    if is_local(word.symbol):
        return tuple(FileSpan(file.path, span) for span in _same(texts, file, word))
    if word.symbol.sort is SymbolKind.QUERY:
        return (FileSpan(file.path, word.span),)
    meant = declared_at(texts, file, word)
    found = {FileSpan(file.path, word.span)}
    for use in file.uses:
        found.update(_of_graph(texts, file, use, meant) if meant is not None else ())
    return tuple(sorted(found, key=lambda place: (place.path, place.span.start)))


def rename_problem(texts: TextCache, file: EditorFile, offset: int, name: str | None = None) -> str | None:
    """Why the word at an offset cannot be renamed (to `name`, if one is given); None if it can."""
    word = find_occurrence(texts, file, offset) if file.path.endswith(QUERIES) else None
    if word is None or not is_local(word.symbol) or word.symbol.declared is None or word.symbol.name == ANONYMOUS:
        return (
            "only variables, parameters and aliases of a query can be renamed: the name of a type or property is data, which a "
            "migration renames (`@rename_from`), and that of a query is what callers know"
        )
    if name is None:
        return None
    bare = name.removeprefix("$") if word.symbol.name.startswith("$") else name
    if _NAME.fullmatch(bare) is None or bare in ("_", _RESERVED) or bare in _WORDS or len(bare) > _MAX_NAME:
        return f"`{name[:40]}` is no name here: a lower-case letter or `_`, then letters, digits and `_`"
    taken = f"${bare}" if word.symbol.name.startswith("$") else bare
    names = {mark.symbol.name for mark in _marks(texts, file, word) if is_local(mark.symbol)}
    if taken != word.symbol.name and taken in names:
        return f"`{taken}` is a name of this query already"
    return None


def rename_edits(texts: TextCache, file: EditorFile, offset: int, name: str) -> tuple[tuple[Span, str], ...]:
    """The edits that give the word at an offset another name; none if `rename_problem` has a reason."""
    word = find_occurrence(texts, file, offset)
    if word is None or rename_problem(texts, file, offset, name) is not None:
        return ()
    text = f"${name.removeprefix('$')}" if word.symbol.name.startswith("$") else name
    return tuple((span, text) for span in _same(texts, file, word))


def _marks(texts: TextCache, file: EditorFile, word: FileOccurrence) -> tuple[Occurrence, ...]:
    return texts.query_view(texts.piece_at(file.data, word.start).data, texts.schema_of(file)).marks


def _same(texts: TextCache, file: EditorFile, word: FileOccurrence) -> Iterator[Span]:
    for mark in _marks(texts, file, word):
        if mark.symbol == word.symbol:
            yield Span(word.start + mark.start, word.start + mark.end)


def _of_graph(texts: TextCache, file: EditorFile, use: GraphUse, meant: FileSpan) -> Iterator[FileSpan]:
    """The words of a graph that are declared at one place."""
    schema = texts.file(file.tree, use.schema)
    if schema is None:
        return
    view = texts.schema_view(schema.data)
    span = cache(view.span)
    for piece, held in view.pieces:
        for mark in held.marks:
            if span(mark.symbol) == meant.span and meant.path == use.schema:
                yield FileSpan(use.schema, Span(piece.start + mark.start, piece.start + mark.end))
    listed = dict.fromkeys(path for _, path in graph_files(file.tree, use))
    for path in list(listed)[:_MAX_FILES]:
        try:
            data = file.data if path == file.path else file.tree.read(path)
        except SourceError:
            continue
        for piece in texts.pieces(data):
            for mark in texts.query_view(piece.data, schema.data).marks:
                if span(mark.symbol) == meant.span:
                    yield FileSpan(path, Span(piece.start + mark.start, piece.start + mark.end))


def _in_cluster(texts: TextCache, file: EditorFile, offset: int) -> Iterator[FileSpan]:
    view = texts.cluster_view(file.data)
    found = view.at(offset)
    if found is None:
        return
    entry, value = found
    path = entry.path
    if path[:1] == ("policies",) and path[2:] == ("applies_to",) and value is not entry.key:
        target = view.names("graphs").get(value.text.removeprefix("graph."))
        if target is not None:
            yield FileSpan(file.path, target.span)
    elif path[:1] == ("graphs",) and path[2:3] == ("queries",) and len(path) in (4, 5):
        yield from _registered(texts, file, path[:4])
    elif value is not entry.key and path[:1] in (("graphs",), ("policies",)):
        written = _file(file, value.text)
        if written is not None:
            yield FileSpan(written, _START)


def _registered(texts: TextCache, file: EditorFile, path: tuple[str, ...]) -> Iterator[FileSpan]:
    """The declaration of a query that is listed with its file; the file if it does not declare it."""
    for value in texts.cluster_view(file.data).values(*path, "file"):
        written = _file(file, value.text)
        if written is None:
            return
        data = file.tree.read(written)
        for piece in texts.pieces(data):
            name = texts.query_view(piece.data, None).name
            if name is not None and name.text == path[3]:
                yield FileSpan(written, Span(piece.start + name.start, piece.start + name.end))
                return
        yield FileSpan(written, _START)


def _file(file: EditorFile, written: str) -> str | None:
    """The path of a file that `cluster.yaml` names, if it is one that can be read."""
    try:
        path = join_path(folder_of(file.path), written)
        if file.tree.kind(path) is EntryKind.FILE:
            file.tree.read(path)
            return path
    except SourceError:
        pass
    return None
