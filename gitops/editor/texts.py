"""Cache of everything computed from texts, so that a keystroke costs little more than the changed piece.

Results are never stale, because each cache key contains all the bytes that the result depends on. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeVar

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.declaration import CONFIG_FILE, DeclaredCluster, QueryRegistry
from gitops.cluster.config.source import PathKind, SourceError, SourceTree, normalize
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError, LanguageProblem
from gitops.editor.cluster import ClusterView, read_cluster_text
from gitops.editor.query import QueryView, read_query
from gitops.editor.schema import SchemaView, read_schema_piece
from gitops.editor.tokens import TextPiece, query_pieces, read_tokens

MAX_READ_BYTES = 512 * 1024
"""Size limit, in bytes, for reading a file in detail. For a larger file, only problems are reported."""

# Each keystroke creates a new schema and file. There are as many pieces as all open files and their last edits have.
_SCHEMAS, _PIECES, _FILES = 16, 2048, 32
_Read = TypeVar("_Read")


class EditorFile(NamedTuple):
    """A file of a tree, and the graphs that it belongs to. Its names are looked up in the first of them."""

    tree: SourceTree
    path: str
    data: bytes
    uses: tuple[GraphUse, ...]

    @property
    def schema(self) -> str | None:
        """The path of the schema that the file's names are looked up in."""
        return self.uses[0].schema if self.uses else None


class TextCache:
    """The cache of a language server."""

    def __init__(self) -> None:
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
        """Return a file with its graphs; None if it cannot be read."""
        try:
            data = tree.read(path)
        except SourceError:
            return None
        return EditorFile(tree, path, data, graph_uses(tree, path, self.graphs))

    def schema_of(self, file: EditorFile, use: GraphUse | None = None) -> bytes | None:
        """Return a file's schema text. None if it has no schema, or if the schema cannot be read."""
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
        """Return the declarations that a file's names are looked up in. Empty if it has no schema."""
        return self.schema_view(self.schema_of(file) or b"")

    def piece_at(self, data: bytes, offset: int) -> TextPiece:
        """Return the piece of a query file at an offset. Between two pieces, return the second one."""
        found = TextPiece(0, b"")
        for piece in self.pieces(data):
            if piece.start > offset:
                break
            found = piece
        return found

    def _query_view(self, piece: bytes, schema: bytes | None) -> QueryView:
        return read_query(read_tokens(_bounded(piece)), self.schema_view(schema or b""))

    def _checked(self, piece: bytes, schema: bytes) -> tuple[LanguageProblem, ...]:
        """Return the problems of a piece that parses, against a schema that compiles."""
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
    """Return the text, or an empty one if it is too large to be read in detail."""
    return data if len(data) <= MAX_READ_BYTES else b""


def _or_error(read: Callable[[bytes], _Read]) -> Callable[[bytes], _Read | LanguageError]:
    """Return a reader that returns a language error instead of raising it."""

    def read_text(data: bytes) -> _Read | LanguageError:
        try:
            return read(data)
        except LanguageError as error:
            return error

    return read_text


# Finds the graphs that a file belongs to, from the nearest `cluster.yaml` above it that declares the file.
#
# Steps: 1 search from the file's folder up to the top of the workspace; 2 take the graphs, in name order, from the
# first `cluster.yaml` that declares the file; 3 if there is none, a query file belongs to the schema in the same
# folder, if there is exactly one.
#
# The loader reads a valid `cluster.yaml`; an unfinished one is read line by line.


SCHEMA, QUERIES = ".pg", ".gq"


class GraphSources(NamedTuple):
    """A declared graph with its paths as written. A source in map form also has the query name."""

    name: str
    schema: str
    sources: tuple[tuple[str | None, str], ...]


class GraphUse(NamedTuple):
    """A graph that a file belongs to.

    `schema` and `folder` (of `cluster.yaml`, if there is one) are paths of the tree.
    """

    graph: str
    schema: str
    folder: str | None
    sources: tuple[tuple[str | None, str], ...] = ()


class Subtree:
    """A folder of a tree that looks like a tree itself. Paths can leave the folder, but not the tree."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        self._tree = tree
        self._folder = folder

    @property
    def root(self) -> str:
        """Root of the subtree."""
        return self._folder

    def read(self, path: str) -> bytes:
        """See SourceTree."""
        return self._tree.read(join_path(self._folder, path))

    def kind(self, path: str) -> PathKind:
        """See SourceTree."""
        return self._tree.kind(join_path(self._folder, path))

    def names(self, path: str) -> tuple[str, ...]:
        """See SourceTree."""
        return self._tree.names(join_path(self._folder, path))


def join_path(folder: str, path: str) -> str:
    """Resolve a path written in a folder to a path in the tree. Raises SourceError if it leaves the tree."""
    return normalize(path if path.startswith("/") else f"{folder}/{path}", confined=True)


def folder_of(path: str) -> str:
    """Return a file's folder; `.` for the top-level folder."""
    return path.rpartition("/")[0] or "."


def cluster_graphs(cluster: DeclaredCluster | None, view: ClusterView) -> tuple[GraphSources, ...]:
    """Return the graphs that a `cluster.yaml` declares, in name order.

    An invalid file (`cluster` is None) is read line by line.
    """
    found: list[GraphSources] = []
    sources: tuple[tuple[str | None, str], ...]
    for graph in () if cluster is None else cluster.graphs:
        queries = graph.queries
        if isinstance(queries, QueryRegistry):
            sources = tuple((entry.name.value, entry.file.value) for entry in queries.entries)
        else:
            sources = tuple((None, item.value) for item in queries.items)
        found.append(GraphSources(graph.id.value, graph.schema.value, sources))
    for name in sorted(view.names("graphs")) if cluster is None else ():
        at = ("graphs", name)
        schema = next((value.text for value in view.values(*at, "schema")), "")
        written: list[tuple[str | None, str]] = [(None, value.text) for value in view.values(*at, "queries")]
        for entry in view.below(*at, "queries"):
            if entry.key is not None:
                written += [(entry.key.text, value.text) for value in view.values(*entry.path, "file")]
        found.append(GraphSources(name, schema, tuple(written)))
    return tuple(found)


def graph_uses(
    tree: SourceTree, path: str, graphs_of: Callable[[bytes], tuple[GraphSources, ...]]
) -> tuple[GraphUse, ...]:
    """Return the graphs that `path` belongs to, in name order. Can be empty. Never raises."""
    above = home = folder_of(path)
    while True:
        try:
            data = tree.read(CONFIG_FILE if above == "." else f"{above}/{CONFIG_FILE}")
        except SourceError:
            data = None
        found = () if data is None else tuple(_uses_declared(above, path, graphs_of(data)))
        if found:
            return found
        if above == ".":
            break
        above = folder_of(above)
    schemas = [path] if path.endswith(SCHEMA) else []
    if path.endswith(QUERIES):
        try:
            schemas = [join_path(home, name) for name in tree.names(home) if name.endswith(SCHEMA)]
        except SourceError:
            return ()
    return (GraphUse("", schemas[0], None, ((None, home),)),) if len(schemas) == 1 else ()


def graph_files(tree: SourceTree, use: GraphUse) -> Iterator[tuple[str | None, str]]:
    """Yield a graph's query files, each with its query name in map form.

    Folders that cannot be listed are skipped.
    """
    for name, written in use.sources:
        path = _path_or_none(use.folder or ".", written)
        if path is None:
            continue
        try:
            if tree.kind(path) is not PathKind.DIR:
                yield name, path
                continue
            for inner in tree.names(path):
                if inner.endswith(QUERIES):
                    yield None, join_path(path, inner)
        except SourceError:
            continue


def _uses_declared(folder: str, path: str, graphs: tuple[GraphSources, ...]) -> Iterator[GraphUse]:
    for graph in graphs:
        schema = _path_or_none(folder, graph.schema) if graph.schema else None
        if schema is None:
            continue
        places = {_path_or_none(folder, written) for _, written in graph.sources}
        if path == schema or path in places or (path.endswith(QUERIES) and folder_of(path) in places):
            yield GraphUse(graph.name, schema, folder, graph.sources)


def _path_or_none(folder: str, written: str) -> str | None:
    try:
        return join_path(folder, written)
    except SourceError:
        return None
