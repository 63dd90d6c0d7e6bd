"""What is known about texts, remembered by their bytes, so that a keystroke costs the piece that it is in and little more.

Nothing here is ever out of date: a memory is asked by all the bytes that its answer depends on. Safe for several threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gitops.config.cluster_yaml import parse_cluster
from gitops.config.source import SourceError, SourceTree
from gitops.editor.cluster import read_cluster_text
from gitops.editor.project import GraphUse, cluster_graphs, graph_uses
from gitops.editor.query import QueryView, read_query
from gitops.editor.schema import SchemaView, read_schema_piece
from gitops.editor.tokens import TextPiece, query_pieces, read_tokens
from gitops.language.query import Query, check_query, parse_queries
from gitops.language.schema import Schema, compile_schema
from gitops.language.text import LanguageError, LanguageProblem

__all__ = ["MAX_READ_BYTES", "EditorFile", "TextCache"]

MAX_READ_BYTES = 512 * 1024
"""Largest file of which each word is known; of a larger one there are its problems only."""

# With every key a schema and a file are new; of pieces there are as many as in all open files, and those that were typed.
_SCHEMAS, _PIECES, _FILES = 16, 2048, 32


class EditorFile(NamedTuple):
    """A file in its tree: what it is about, and the graphs it belongs to, the first of which answers for all."""

    tree: SourceTree
    path: str
    data: bytes
    uses: tuple[GraphUse, ...]

    @property
    def schema(self) -> str | None:
        """The path of the schema that its names are looked up in."""
        return self.uses[0].schema if self.uses else None


class TextCache:
    """The memory of one editor service."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._schema_piece = lru_cache(_PIECES)(read_schema_piece)
        self.schema_view = lru_cache(_SCHEMAS)(lambda data: SchemaView(_bounded(data), self._schema_piece))
        self.compiled = lru_cache(_SCHEMAS)(_compiled)
        self.pieces = lru_cache(_FILES)(lambda data: query_pieces(_bounded(data)))
        self.parsed = lru_cache(_PIECES)(_parsed)
        self.query_view = lru_cache(_PIECES)(self._query_view)
        self.checked = lru_cache(_PIECES)(self._checked)
        self.cluster_view = lru_cache(_SCHEMAS)(lambda data: read_cluster_text(_bounded(data)))
        self._cluster = lru_cache(_SCHEMAS)(lambda data: parse_cluster(data)[0])
        self.graphs = lru_cache(_SCHEMAS)(lambda data: cluster_graphs(self._cluster(data), self.cluster_view(data)))

    def file(self, tree: SourceTree, path: str) -> EditorFile | None:
        """A file with its graphs; None if it cannot be read."""
        try:
            data = tree.read(path)
        except SourceError:
            return None
        return EditorFile(tree, path, data, graph_uses(tree, path, self.graphs))

    def schema_of(self, file: EditorFile, use: GraphUse | None = None) -> bytes | None:
        """The text of the schema that a file belongs to; None if there is none, or it cannot be read."""
        path = file.schema if use is None else use.schema
        if path is None:
            return None
        if path == file.path:
            return file.data
        try:
            return file.tree.read(path)
        except SourceError:
            return None

    def view_of(self, file: EditorFile) -> SchemaView | None:
        """The declarations that the names of a file are looked up in."""
        schema = self.schema_of(file)
        return None if schema is None else self.schema_view(schema)

    def piece_at(self, data: bytes, offset: int) -> TextPiece:
        """The piece of a query file in which an offset lies; of two that meet there, the second."""
        found = TextPiece(0, b"")
        for piece in self.pieces(data):
            if piece.start > offset:
                break
            found = piece
        return found

    def _query_view(self, piece: bytes, schema: bytes | None) -> QueryView:
        return read_query(read_tokens(_bounded(piece)), None if schema is None else self.schema_view(schema))

    def _checked(self, piece: bytes, schema: bytes) -> tuple[LanguageProblem, ...]:
        """What the checker finds in a piece that parses, against a schema that compiles."""
        queries, compiled = self.parsed(piece), self.compiled(schema)
        if isinstance(queries, LanguageError) or isinstance(compiled, LanguageError):
            return ()
        found: list[LanguageProblem] = []
        for query in queries:
            try:
                check_query(query, compiled.catalog)
            except LanguageError as error:
                found.extend(error.problems)
        return tuple(found)


def _bounded(data: bytes) -> bytes:
    """The text if it is not too large to be read word by word, else nothing."""
    return data if len(data) <= MAX_READ_BYTES else b""


def _compiled(data: bytes) -> Schema | LanguageError:
    try:
        return compile_schema(data)
    except LanguageError as error:
        return error


def _parsed(data: bytes) -> tuple[Query, ...] | LanguageError:
    try:
        return parse_queries(data)
    except LanguageError as error:
        return error
