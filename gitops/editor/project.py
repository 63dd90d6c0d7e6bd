"""Which graphs a file belongs to, by the nearest `cluster.yaml` above it that declares it.

Steps: 1 go up from the folder of the file to the top of the workspace; 2 the first `cluster.yaml` that declares the file says its
graphs, in order of their names; 3 if none does, a file of queries belongs to the only schema beside it, if there is just one.

A `cluster.yaml` that is right is read as the loader reads it. One that is half written is read by its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gitops.config.cluster_yaml import CONFIG_FILE, QueryRegistry, RawCluster
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
    """A declared graph: paths as written; of a source in map form also the name of its query."""

    name: str
    schema: str
    sources: tuple[tuple[str | None, str], ...]


class GraphUse(NamedTuple):
    """A graph that a file belongs to. `schema` is a path of the tree, `folder` that of the `cluster.yaml`, None without one."""

    graph: str
    schema: str
    folder: str | None
    sources: tuple[tuple[str | None, str], ...] = ()


class Subtree:
    """A folder of a tree as a tree. A path may lead out of the folder, and never out of the tree."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        """`folder` is a path of `tree`."""
        self._tree = tree
        self._folder = folder

    @property
    def root(self) -> str:
        """The folder."""
        return self._folder

    def read(self, path: str) -> bytes:
        """As the protocol says."""
        return self._tree.read(join_path(self._folder, path))

    def kind(self, path: str) -> EntryKind:
        """As the protocol says."""
        return self._tree.kind(join_path(self._folder, path))

    def names(self, path: str) -> tuple[str, ...]:
        """As the protocol says."""
        return self._tree.names(join_path(self._folder, path))


def join_path(folder: str, path: str) -> str:
    """A path as written in a folder, as a path of the tree. Raises SourceError for one that leads out of it."""
    return normalize(path if path.startswith("/") else f"{folder}/{path}", confined=True)


def folder_of(path: str) -> str:
    """The folder of a file; `.` for the top."""
    return path.rpartition("/")[0] or "."


def cluster_graphs(cluster: RawCluster | None, view: ClusterView) -> tuple[GraphSources, ...]:
    """The graphs that a `cluster.yaml` declares, in name order; by its lines if it is not right (`cluster` is None)."""
    return tuple(_exact(cluster) if cluster is not None else _by_lines(view))


def _exact(cluster: RawCluster) -> Iterator[GraphSources]:
    for graph in cluster.graphs:
        queries = graph.queries
        if isinstance(queries, QueryRegistry):
            sources = tuple((entry.name.value, entry.file.value) for entry in queries.entries)
            yield GraphSources(graph.id.value, graph.schema.value, sources)
        else:
            yield GraphSources(graph.id.value, graph.schema.value, tuple((None, item.value) for item in queries.items))


def _by_lines(view: ClusterView) -> Iterator[GraphSources]:
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
    """The graphs that `path` belongs to, in name order; empty if there is nothing that says so. Raises nothing."""
    folder = folder_of(path)
    while True:
        data = _read(tree, CONFIG_FILE if folder == "." else f"{folder}/{CONFIG_FILE}")
        if data is not None:
            found = tuple(_declaring(folder, path, graphs_of(data)))
            if found:
                return found
        if folder == ".":
            break
        folder = folder_of(folder)
    return tuple(_alone(tree, path))


def graph_files(tree: SourceTree, use: GraphUse) -> Iterator[tuple[str | None, str]]:
    """The query files of a graph, each with the name of its query in map form; what cannot be listed is left out."""
    for name, written in use.sources:
        path = _place(use.folder or ".", written)
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


def _declaring(folder: str, path: str, graphs: tuple[GraphSources, ...]) -> Iterator[GraphUse]:
    for graph in graphs:
        schema = _place(folder, graph.schema) if graph.schema else None
        if schema is None:
            continue
        places = {_place(folder, written) for _, written in graph.sources}
        if path == schema or path in places or (path.endswith(QUERIES) and folder_of(path) in places):
            yield GraphUse(graph.name, schema, folder, graph.sources)


def _alone(tree: SourceTree, path: str) -> Iterator[GraphUse]:
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


def _place(folder: str, written: str) -> str | None:
    try:
        return join_path(folder, written)
    except SourceError:
        return None


def _read(tree: SourceTree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except SourceError:
        return None
