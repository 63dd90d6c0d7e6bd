"""A cache of everything that is read from texts, so that a keystroke costs little more than the piece that it changes.

Results are never out of date: the key of each is all the bytes that it depends on. Safe for several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.source import SourceError, SourceTree
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError, LanguageProblem
from gitops.editor.cluster import read_cluster_text
from gitops.editor.project import GraphUse, cluster_graphs, graph_uses
from gitops.editor.query import QueryView, read_query
from gitops.editor.schema import SchemaView, read_schema_piece
from gitops.editor.tokens import TextPiece, query_pieces, read_tokens

MAX_READ_BYTES = 512 * 1024
"""Largest file, in bytes, that is read word by word; a larger one has problems only."""

# Each keystroke makes a new schema and file; there are as many pieces as in all open files and their last edits.
_SCHEMAS, _PIECES, _FILES = 16, 2048, 32
_Read = TypeVar("_Read")


class EditorFile(NamedTuple):
    """A file of a tree with the graphs that it belongs to; names are looked up in the first of them."""

    tree: SourceTree
    path: str
    data: bytes
    uses: tuple[GraphUse, ...]

    @property
    def schema(self) -> str | None:
        """The path of the schema that its names are looked up in."""
        return self.uses[0].schema if self.uses else None


class TextCache:
    """The cache of one language server."""

    def __init__(self) -> None:
        """Start empty."""
        self._schema_piece = lru_cache(_PIECES)(read_schema_piece)
        self.schema_view = lru_cache(_SCHEMAS)(lambda data: SchemaView(_bounded(data), self._schema_piece))
        self.compiled = lru_cache(_SCHEMAS)(_or_error(compile_schema))
        self.pieces = lru_cache(_FILES)(lambda data: query_pieces(_bounded(data)))
        self.parsed = lru_cache(_PIECES)(_or_error(parse_queries))
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

    def view_of(self, file: EditorFile) -> SchemaView:
        """The declarations that the names of a file are looked up in; none if it has no schema."""
        return self.schema_view(self.schema_of(file) or b"")

    def piece_at(self, data: bytes, offset: int) -> TextPiece:
        """The piece of a query file that has an offset; where two meet, the second."""
        found = TextPiece(0, b"")
        for piece in self.pieces(data):
            if piece.start > offset:
                break
            found = piece
        return found

    def _query_view(self, piece: bytes, schema: bytes | None) -> QueryView:
        return read_query(read_tokens(_bounded(piece)), self.schema_view(schema or b""))

    def _checked(self, piece: bytes, schema: bytes) -> tuple[LanguageProblem, ...]:
        """The problems of a piece that parses, against a schema that compiles."""
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
    """The text, or nothing if it is too large to be read word by word."""
    return data if len(data) <= MAX_READ_BYTES else b""


def _or_error(read: Callable[[bytes], _Read]) -> Callable[[bytes], _Read | LanguageError]:
    """The reader, with the error as a result."""

    def read_text(data: bytes) -> _Read | LanguageError:
        try:
            return read(data)
        except LanguageError as error:
            return error

    return read_text
