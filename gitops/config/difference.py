"""What two states of a cluster folder declare differently, at the price of what differs.

Only graphs and policies are loaded that are declared otherwise, or of which a file is another one. All else has the same digests
in both, so that it need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gitops.config.cluster_yaml import QueryRegistry, RawCluster, RawGraph, parse_cluster
from gitops.config.load import Loader
from gitops.config.opening import read_config
from gitops.config.reader import Reading
from gitops.config.recorded import parents
from gitops.config.references import resolve_bindings
from gitops.config.source import SourceError, SourceTree, normalize
from gitops.core.diagnostics import Diagnostics

__all__ = ["Differences"]

_Said = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two folders: where its files are, and what its `cluster.yaml` says."""

    tree: SourceTree
    cluster: RawCluster


class Differences:
    """Compares folders two by two; a `cluster.yaml` that several of them have is parsed once."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._clusters: dict[bytes, RawCluster | None] = {}

    def addresses(self, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[str]:
        """Addresses that two folders declare differently, or only one of them does.

        `paths` are the normalized paths of all files that differ. A folder whose `cluster.yaml` cannot be read declares
        nothing that could be compared; other problems are for the plan of that folder to tell.
        """
        before, after = self._cluster(old), self._cluster(new)
        if before is None or after is None:
            return frozenset()
        touched = frozenset(paths) | {folder for path in paths for folder in parents(path)}
        told, tells = _told(before), _told(after)
        chosen = frozenset(key for key in told.keys() | tells.keys() if told.get(key) != tells.get(key))
        one = _loaded(_Side(old, before), chosen, touched)
        other = _loaded(_Side(new, after), chosen, touched)
        return frozenset(text for text in one.keys() | other.keys() if one.get(text) != other.get(text))

    def _cluster(self, tree: SourceTree) -> RawCluster | None:
        data, _ = read_config(tree)
        if data is None:
            return None
        if data not in self._clusters:
            self._clusters[data], _ = parse_cluster(data)
        return self._clusters[data]


def _told(cluster: RawCluster) -> Mapping[tuple[str, str], _Said]:
    """Every declaration by kind and name, without the places at which it is written."""
    declared = _graph_ids(cluster)
    graphs = {("graph", g.id.value): (g.schema.value, *_queries(g)) for g in cluster.graphs}
    # What a policy is bound to also depends on which graphs there are.
    policies = {
        ("policy", p.name.value): (p.file.value, *resolve_bindings(p, declared, Diagnostics(), hint=_no_hint))
        for p in cluster.policies
    }
    return {**graphs, **policies}


def _graph_ids(cluster: RawCluster) -> frozenset[str]:
    return frozenset(graph.id.value for graph in cluster.graphs)


def _no_hint(name: str, known: Collection[str]) -> str:  # noqa: ARG001 - nobody reads these messages
    return ""


def _queries(graph: RawGraph) -> _Said:
    if isinstance(graph.queries, QueryRegistry):
        return tuple((q.name.value, q.file.value) for q in graph.queries.entries)
    return tuple(text.value for text in graph.queries.items)


def _files(graph: RawGraph) -> Iterator[str]:
    """The files and folders that a graph names, as written."""
    yield graph.schema.value
    if isinstance(graph.queries, QueryRegistry):
        yield from (query.file.value for query in graph.queries.entries)
    else:
        yield from (text.value for text in graph.queries.items)


def _loaded(
    side: _Side, chosen: Collection[tuple[str, str]], touched: Collection[str]
) -> Mapping[str, tuple[str, Collection[str]]]:
    """Digest and bindings of what is chosen by name, or touched in its files, by address."""
    loader = Loader(Reading(side.tree, Diagnostics()))
    for graph in side.cluster.graphs:
        if ("graph", graph.id.value) in chosen or _meets(_files(graph), touched):
            loader.graph(graph)
    declared = _graph_ids(side.cluster)
    for policy in side.cluster.policies:
        if ("policy", policy.name.value) in chosen or _meets([policy.file.value], touched):
            loader.policy(policy, declared)
    return {text: (r.digest, r.applies_to or ()) for text, r in loader.resources.items()}


def _meets(written: Iterable[str], touched: Collection[str]) -> bool:
    """Whether any of these paths was touched; one that leads nowhere was not."""
    for path in written:
        try:
            place = normalize(path, confined=True)
        except SourceError:
            continue
        if place in touched or (place == "." and touched):
            return True
    return False
