"""From the files of a cluster folder to its desired state, with every problem found in one run.

Steps, in this order; each of 1 to 4 ends the load when it fails, 5 to 7 report everything they find:

1. the folder exists                              `config_dir_not_found`
2. `cluster.yaml` can be read                     `cluster_config_read_error`
3. no key is repeated and none is reserved        `duplicate_yaml_key`, `future_phase_field`
4. the document has its shape                     `invalid_cluster_yaml`
5. header: version, name, backend, storage
6. graphs by id: id, schema file, schema, queries by name
7. policies by name: name, file, bindings
"""

from __future__ import annotations

from types import MappingProxyType

from gitops.config.cluster_yaml import RawGraph, RawPolicy, Text
from gitops.config.digests import config_digest
from gitops.config.edges import dependencies
from gitops.config.header import header_of, read_cluster
from gitops.config.loader import LoadedQuery, load_queries
from gitops.config.reader import Reading
from gitops.config.references import resolve_bindings
from gitops.config.result import LoadResult
from gitops.config.source import SourceError, SourceTree
from gitops.config.yaml import shown
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.language.schema import Schema
from gitops.model.address import Address, graph_address, is_name, policy_address, query_address, schema_address
from gitops.model.digests import graph_composite
from gitops.model.resource import DesiredState, GraphDeclaration, Resource

__all__ = ["LoadResult", "Loader", "declared_schema", "load_desired"]


def load_desired(tree: SourceTree) -> LoadResult:
    """All steps. Reads each file once and writes nothing; raises nothing for any content of the tree."""
    cluster, found = read_cluster(tree)
    if cluster is None:
        return LoadResult(None, None, MappingProxyType({}), (), found)
    header = header_of(cluster, found)
    loader = Loader(Reading(tree, found))
    for graph in cluster.graphs:
        loader.graph(graph)
    declared = frozenset(graph.id.value for graph in cluster.graphs)
    for policy in cluster.policies:
        loader.policy(policy, declared)
    resources = MappingProxyType(dict(sorted(loader.resources.items())))
    edges = dependencies(resources, {text: r.applies_to or () for text, r in resources.items() if r.applies_to})
    if header is None or found.has_errors:
        return LoadResult(None, header, resources, edges, found)
    desired = DesiredState(
        config_digest=config_digest(cluster, {text: r.digest for text, r in resources.items()}),
        resources=resources,
        dependencies=edges,
        graphs=MappingProxyType(loader.graphs),
        name=header.name,
        storage=header.storage,
        lock=header.lock,
    )
    return LoadResult(desired, header, resources, edges, found)


def declared_schema(tree: SourceTree, graph: str, wanted: str) -> bytes | None:
    """The schema text that the folder declares for a graph, if its digest is `wanted`; reads two files."""
    cluster, _ = read_cluster(tree)
    declared = None if cluster is None else next((g for g in cluster.graphs if g.id.value == graph), None)
    if declared is None:
        return None
    try:
        content = tree.read(declared.schema.value)
    except SourceError:
        return None
    return content if digest(content) == wanted else None


class Loader:
    """Steps 6 and 7. Collects resources by address text; a thing whose name breaks the rule gets no address."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._found = reading.found
        self.resources: dict[Address, Resource] = {}
        self.graphs: dict[str, GraphDeclaration] = {}

    def graph(self, graph: RawGraph) -> None:
        """One graph with its schema and queries."""
        graph_id, at = graph.id.value, f"graphs.{shown(graph.id.value)}"
        named = self._has_name(graph.id, at)
        schema: Schema | None = None
        path = graph.schema.value
        file = self.reading.file(path, f"{at}.schema", graph.schema.source, missing=Code.SCHEMA_FILE_MISSING)
        if file is not None:
            schema = self.reading.schema(file, f"{at}.schema")
        queries = load_queries(self.reading, graph, schema)
        if not named:
            return
        if file is not None:
            self._add(Resource(schema_address(graph_id), file.digest, path, file.data))
        for query in queries:
            self._add(Resource(query_address(graph_id, query.name), query.file.digest, query.path, query.file.data))
        composite = graph_composite(graph_id, "" if file is None else file.digest, _digests(queries))
        self._add(Resource(graph_address(graph_id), composite))
        checked = {q.name: q.checked for q in queries if q.checked is not None}
        self.graphs[graph_id] = GraphDeclaration(schema, MappingProxyType(checked))
        self.reading.drop_trees()

    def policy(self, policy: RawPolicy, graphs: frozenset[str]) -> None:
        """One policy with its bindings."""
        name, at = policy.name.value, f"policies.{shown(policy.name.value)}"
        named = self._has_name(policy.name, at)
        path = policy.file.value
        file = self.reading.file(path, f"{at}.file", policy.file.source, missing=Code.POLICY_FILE_MISSING)
        bindings = resolve_bindings(policy, graphs, self._found, hint=self.reading.hint)
        if named and file is not None:
            self._add(Resource(policy_address(name), file.digest, path, file.data, bindings))

    def _add(self, resource: Resource) -> None:
        self.resources[resource.address] = resource

    def _has_name(self, name: Text, at: str) -> bool:
        if is_name(name.value):
            return True
        message = f"'{shown(name.value)}' is no name: letters, digits, _ and -, starting with a letter or _"
        self._found.add(Code.INVALID_RESOURCE_ID, at, message, source=name.source)
        return False


def _digests(queries: tuple[LoadedQuery, ...]) -> dict[str, str]:
    return {query.name: query.file.digest for query in queries}
