"""The graphs that a file belongs to, from the nearest `cluster.yaml` above it that declares the file.

Steps: 1 search from the folder of the file up to the top of the workspace; 2 the first `cluster.yaml` that declares the file
gives its graphs, in name order; 3 without one, a query file belongs to the schema beside it, if there is exactly one.

A correct `cluster.yaml` is read by the loader, a half-written one by its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gitops.cluster.config.declaration import CONFIG_FILE, DeclaredCluster, QueryRegistry
from gitops.cluster.config.source import EntryKind, SourceError, SourceTree, normalize
from gitops.editor.cluster import ClusterView

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
    """The graphs that `path` belongs to, in name order; may be empty. Raises nothing."""
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


def _path_or_none(folder: str, written: str) -> str | None:
    try:
        return join_path(folder, written)
    except SourceError:
        return None
