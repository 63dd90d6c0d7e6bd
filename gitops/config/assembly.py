"""From graphs that were kept, built or loaded to one result, and to the index for the next load.

Nothing is made before it is asked for: a plan of a large cluster looks at few of its resources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gitops.config.declaration import form_digest, raw_graph
from gitops.config.edges import dependencies
from gitops.config.index import FileColumns, FolderColumns, GraphRecord, Index
from gitops.config.opening import Header
from gitops.config.rebuild import Rebuilt
from gitops.config.recorded import FileFacts, Files, OnceTree, SourceMovedError, parents
from gitops.config.result import LoadResult
from gitops.config.source import EntryKind, StampedTree
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address, Kind, graph_address, query_address, schema_address
from gitops.model.digests import graph_composite
from gitops.model.resource import (
    Dependencies,
    Dependency,
    DesiredState,
    GraphDeclaration,
    Resource,
    Resources,
    digests_of,
)

__all__ = ["Assembly", "SourceMovedError"]


@dataclass(frozen=True)
class Assembly:
    """All parts of a load.

    `kept`, `built` and the others are disjoint. `recorded` is the index that `kept` refers to. `loaded` and `compiled` are what
    the loader made, by address and by graph; `policies` come with their files.
    """

    tree: StampedTree
    form: Mapping[str, Any]
    header: Header
    found: Diagnostics
    files: Files
    recorded: Index | None
    kept: Mapping[str, GraphRecord]
    built: Mapping[str, Rebuilt]
    policies: Mapping[Address, tuple[Resource, FileFacts]]
    loaded: Mapping[Address, Resource]
    compiled: Mapping[str, GraphDeclaration]

    def result(self) -> LoadResult:
        """What the load found."""
        resources = Resources(self._digests, self._resource)
        bindings = {text: resource.applies_to or () for text, (resource, _) in self.policies.items()}
        bindings |= {text: resource.applies_to for text, resource in self.loaded.items() if resource.applies_to}

        def near(graphs: Collection[str]) -> tuple[Dependency, ...]:
            texts = [address for address in self._digests if address.kind is Kind.POLICY]
            return dependencies([*texts, *(text for graph in graphs for text in self._addresses(graph))], bindings)

        edges = Dependencies(lambda: dependencies(self._digests, bindings), near)
        if self.found.has_errors:
            return LoadResult(None, self.header, resources, edges, self.found)
        desired = DesiredState(
            config_digest=form_digest(self.form, self._digests),
            resources=resources,
            dependencies=edges,
            graphs=_Graphs(self.form["graphs"], self._declaration),
            name=self.header.name,
            storage=self.header.storage,
            lock=self.header.lock,
        )
        return LoadResult(desired, self.header, resources, edges, self.found)

    def index(self, config: str, recorded: Index | None) -> Index:
        """What the next load may start from; `config` is the digest of `cluster.yaml`."""
        columns = _Columns(recorded)
        graphs = {name: columns.kept(record) for name, record in self.kept.items()}
        graphs |= {name: columns.built(built) for name, built in self.built.items()}
        for _, file in self.policies.values():
            columns.file(file)
            columns.add_folders(dict.fromkeys(parents(file.place), ""))
        beside = {*self.policies, *self.loaded}
        return Index(
            config,
            self.form,
            (self.header.name, self.header.storage, self.header.lock),
            graphs,
            {text: value for text, value in self._digests.items() if text not in beside},
            columns.stamped_files(self.tree),
            columns.stamped_folders(self.tree),
        )

    @cached_property
    def _digests(self) -> dict[Address, str]:
        """Address to digest of all resources, in order."""
        found = {} if self.recorded is None else dict(self.recorded.digests)
        recorded = {} if self.recorded is None else self.recorded.graphs
        for graph in recorded.keys() - self.kept.keys():
            del found[graph_address(graph)], found[schema_address(graph)]
            for name in recorded[graph].queries:
                del found[query_address(graph, name)]
        for graph, built in self.built.items():
            queries = {name: value for name, (_, value) in built.queries.items()}
            found[graph_address(graph)] = graph_composite(graph, built.schema.digest, queries)
            found[schema_address(graph)] = built.schema.digest
            found.update({query_address(graph, name): value for name, value in queries.items()})
        found.update((text, resource.digest) for text, (resource, _) in self.policies.items())
        found.update(digests_of(self.loaded))
        return dict(sorted(found.items()))

    def _addresses(self, graph: str) -> Iterator[Address]:
        """The addresses that belong to a graph."""
        if graph in self.kept or graph in self.built:
            queries = self.kept[graph].queries if graph in self.kept else self.built[graph].queries
            yield from (graph_address(graph), schema_address(graph), *(query_address(graph, name) for name in queries))
        else:
            yield from (text for text, resource in self.loaded.items() if resource.address.graph == graph)

    def _resource(self, address: Address) -> Resource:
        if address in self.policies:
            return self.policies[address][0]
        if address in self.loaded:
            return self.loaded[address]
        value = self._digests[address]
        graph = address.graph or ""
        if address.kind is Kind.GRAPH:
            return Resource(address, value)
        if address.kind is Kind.SCHEMA:
            path = self.form["graphs"][graph]["schema"]
        else:
            path = (
                self.kept[graph].queries[address.name]
                if graph in self.kept
                else self.built[graph].queries[address.name][0]
            )
        return Resource(address, value, path, self.files.reader(path, value))

    def _declaration(self, graph: str) -> GraphDeclaration:
        """The compiled graph. Raises SourceMovedError if its files are not what the load saw."""
        if graph in self.compiled:
            return self.compiled[graph]
        # The languages are large to import, and most plans look at no compiled graph.
        from gitops.config.load import Loader
        from gitops.config.reader import Reading

        found = Diagnostics()
        loader = Loader(Reading(OnceTree(self.tree.reopened()), found))
        loader.graph(raw_graph(graph, self.form["graphs"][graph]))
        if len(found) or any(self._digests.get(text) != r.digest for text, r in loader.resources.items()):
            raise SourceMovedError
        return loader.graphs[graph]


class _Graphs(Mapping[str, GraphDeclaration]):
    """Compiled graphs by id, each compiled once, when it is asked for."""

    def __init__(self, names: Mapping[str, Any], compile_graph: Callable[[str], GraphDeclaration]) -> None:
        self._names = names
        self._compile = compile_graph
        self._made: dict[str, GraphDeclaration] = {}

    def __getitem__(self, graph: str) -> GraphDeclaration:
        if graph not in self._names:
            raise KeyError(graph)
        if graph not in self._made:
            self._made[graph] = self._compile(graph)
        return self._made[graph]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Columns:
    """The columns of an index under construction: each file and folder once."""

    def __init__(self, recorded: Index | None) -> None:
        self._recorded = recorded
        self._files: dict[str, tuple[int, FileFacts]] = {}
        self._folders: dict[str, tuple[int, str]] = {}

    def kept(self, record: GraphRecord) -> GraphRecord:
        """A record of the old index, with positions in the new one."""
        if self._recorded is None:
            raise AssertionError("nothing is kept without an index")
        places, digests, sizes, _ = self._recorded.files
        folders, _, listings = self._recorded.folders
        files = [self.file(FileFacts(places[at], digests[at], sizes[at])) for at in record.files]
        return record._replace(
            files=files, folders=self.add_folders({folders[at]: listings[at] for at in record.folders})
        )

    def built(self, built: Rebuilt) -> GraphRecord:
        """The record of a graph that was put together."""
        files = [self.file(file) for file in built.files.values()]
        paths = {name: path for name, (path, _) in built.queries.items()}
        return GraphRecord(built.schema.digest, files, self.add_folders(built.folders), paths)

    def file(self, file: FileFacts) -> int:
        """The position of a file."""
        return self._files.setdefault(file.place, (len(self._files), file))[0]

    def add_folders(self, listings: Mapping[str, str]) -> list[int]:
        """The positions of folders; one that any graph lists is a listed one."""
        positions = []
        for place, listing in listings.items():
            position, known = self._folders.setdefault(place, (len(self._folders), listing))
            if listing and not known:
                self._folders[place] = position, listing
            positions.append(position)
        return positions

    def stamped_files(self, tree: StampedTree) -> FileColumns:
        """The files as they are stamped now: what changed since the load began has no stamp."""
        facts = [file for _, file in self._files.values()]
        places = [file.place for file in facts]
        stamps = tree.stamps(places, EntryKind.FILE)
        return FileColumns(places, [file.digest for file in facts], [file.size for file in facts], stamps)

    def stamped_folders(self, tree: StampedTree) -> FolderColumns:
        """The folders, likewise."""
        places = list(self._folders)
        return FolderColumns(
            places, tree.stamps(places, EntryKind.DIR), [listing for _, listing in self._folders.values()]
        )
