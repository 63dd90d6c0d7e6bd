"""The graphs that a file belongs to, from the nearest `cluster.yaml` above it that declares the file.

Steps: 1 search from the folder of the file up to the top of the workspace; 2 the first `cluster.yaml` that declares the file
gives its graphs, in name order; 3 without one, a query file belongs to the schema beside it, if there is exactly one.

A correct `cluster.yaml` is read by the loader, a half-written one by its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gitops.config.declaration import CONFIG_FILE, DeclaredCluster, QueryRegistry
from gitops.config.source import EntryKind, SourceError, SourceTree, normalize
from gitops.editor.cluster import ClusterView

__all__ = [
    "GraphSources",
    "GraphUse",
    "Subtree",
    "cluster_graphs",
    "folder_of",
    "graph_files",
    "graph_uses",
    "join_path",
]

SCHEMA, QUERIES = ".pg", ".gq"


class GraphSources(NamedTuple):
    """A declared graph with its paths as written; a source in map form also has the name of its query."""

    name: str
    schema: str
    sources: tuple[tuple[str | None, str], ...]


class GraphUse(NamedTuple):
    """A graph that a file belongs to. `schema` and `folder`, that of `cluster.yaml` if there is one, are paths of the tree."""

    graph: str
    schema: str
    folder: str | None
    sources: tuple[tuple[str | None, str], ...] = ()


class Subtree:
    """A folder of a tree as a tree. A path may lead out of the folder, but not out of the tree."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        """`folder` is a path of `tree`."""
        self._tree = tree
        self._folder = folder

    @property
    def root(self) -> str:
        """The folder."""
        return self._folder

    def read(self, path: str) -> bytes:
        """See SourceTree."""
        return self._tree.read(join_path(self._folder, path))

    def kind(self, path: str) -> EntryKind:
        """See SourceTree."""
        return self._tree.kind(join_path(self._folder, path))

    def names(self, path: str) -> tuple[str, ...]:
        """See SourceTree."""
        return self._tree.names(join_path(self._folder, path))


def join_path(folder: str, path: str) -> str:
    """The path in the tree of a path written in a folder. Raises SourceError if it leads out of the tree."""
    return normalize(path if path.startswith("/") else f"{folder}/{path}", confined=True)


def folder_of(path: str) -> str:
    """The folder of a file; `.` for the top."""
    return path.rpartition("/")[0] or "."


def cluster_graphs(cluster: DeclaredCluster | None, view: ClusterView) -> tuple[GraphSources, ...]:
    """The graphs that a `cluster.yaml` declares, in name order; read by its lines if it is not valid (`cluster` is None)."""
    return tuple(_graphs_of_cluster(cluster) if cluster is not None else _graphs_of_lines(view))


def _graphs_of_cluster(cluster: DeclaredCluster) -> Iterator[GraphSources]:
    for graph in cluster.graphs:
        queries = graph.queries
        if isinstance(queries, QueryRegistry):
            sources = tuple((entry.name.value, entry.file.value) for entry in queries.entries)
            yield GraphSources(graph.id.value, graph.schema.value, sources)
        else:
            yield GraphSources(graph.id.value, graph.schema.value, tuple((None, item.value) for item in queries.items))


def _graphs_of_lines(view: ClusterView) -> Iterator[GraphSources]:
    for name in sorted(view.names("graphs")):
        at = ("graphs", name)
        schema = next((value.text for value in view.values(*at, "schema")), "")
        sources: list[tuple[str | None, str]] = [(None, value.text) for value in view.values(*at, "queries")]
        for entry in view.below(*at, "queries"):
            if entry.key is not None:
                sources += [(entry.key.text, value.text) for value in view.values(*entry.path, "file")]
        yield GraphSources(name, schema, tuple(sources))


def graph_uses(
    tree: SourceTree, path: str, graphs_of: Callable[[bytes], tuple[GraphSources, ...]]
) -> tuple[GraphUse, ...]:
    """The graphs that `path` belongs to, in name order; may be empty. Raises nothing."""
    folder = folder_of(path)
    while True:
        data = _read(tree, CONFIG_FILE if folder == "." else f"{folder}/{CONFIG_FILE}")
        if data is not None:
            found = tuple(_uses_declared(folder, path, graphs_of(data)))
            if found:
                return found
        if folder == ".":
            break
        folder = folder_of(folder)
    return tuple(_uses_without_cluster(tree, path))


def graph_files(tree: SourceTree, use: GraphUse) -> Iterator[tuple[str | None, str]]:
    """The query files of a graph, each with the name of its query in map form; folders that cannot be listed are left out."""
    for name, written in use.sources:
        path = _path_or_none(use.folder or ".", written)
        if path is None:
            continue
        try:
            if tree.kind(path) is not EntryKind.DIR:
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


def _uses_without_cluster(tree: SourceTree, path: str) -> Iterator[GraphUse]:
    folder = folder_of(path)
    if not path.endswith((SCHEMA, QUERIES)):
        return
    if path.endswith(SCHEMA):
        yield GraphUse("", path, None, ((None, folder),))
        return
    try:
        schemas = [name for name in tree.names(folder) if name.endswith(SCHEMA)]
    except SourceError:
        return
    if len(schemas) == 1:
        yield GraphUse("", join_path(folder, schemas[0]), None, ((None, folder),))


def _path_or_none(folder: str, written: str) -> str | None:
    try:
        return join_path(folder, written)
    except SourceError:
        return None


def _read(tree: SourceTree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except SourceError:
        return None
