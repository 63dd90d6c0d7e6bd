"""What two states of a cluster folder declare differently, at the cost of what differs.

Only graphs and policies are loaded that are declared differently, or of which a file differs. All others have the same digests in
both, so they need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gitops.config.cluster_yaml import parse_cluster
from gitops.config.declaration import DeclaredCluster, QueryRegistry, Text, config_form, read_config
from gitops.config.loader import ResourceLoader
from gitops.config.reader import SourceReader
from gitops.config.source import SourceError, SourceTree, normalize, parents
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address

_PAGE = 4096


class Differences:
    """Compares folders two by two; a `cluster.yaml` that several of them have is parsed once.

    `effort` grows with the work that was done: some 4 KiB of `cluster.yaml`, or one resource, count one.
    """

    def __init__(self) -> None:
        self._clusters: dict[bytes, DeclaredCluster | None] = {}
        self.effort = 0

    def addresses(self, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address]:
        """Addresses that two folders declare differently, or only one of them does.

        `paths` are the normalized paths of all files that differ. A folder whose `cluster.yaml` cannot be read declares
        nothing that could be compared; other problems are reported by the plan of that folder.
        """
        return self._compare(old, new, paths, Diagnostics())

    def certain(self, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address] | None:
        """The same, or None where a problem of either folder hides what it declares."""
        problems = Diagnostics()
        found = self._compare(old, new, paths, problems)
        readable = self._cluster(old) is not None and self._cluster(new) is not None
        return found if readable and not problems.has_errors else None

    def _compare(
        self, old: SourceTree, new: SourceTree, paths: Collection[str], problems: Diagnostics
    ) -> frozenset[Address]:
        before, after = self._cluster(old), self._cluster(new)
        if before is None or after is None:
            return frozenset()
        touched = frozenset(paths) | {folder for path in paths for folder in parents(path)}
        old_forms, new_forms = _forms(before), _forms(after)
        differing = {key for key in old_forms.keys() | new_forms.keys() if old_forms.get(key) != new_forms.get(key)}
        old_contents = _contents(old, before, differing, touched, problems)
        new_contents = _contents(new, after, differing, touched, problems)
        declared = old_contents.keys() | new_contents.keys()
        self.effort += len(old_contents) + len(new_contents)
        return frozenset(each for each in declared if old_contents.get(each) != new_contents.get(each))

    def _cluster(self, tree: SourceTree) -> DeclaredCluster | None:
        data, _ = read_config(tree)
        if data is None:
            return None
        if data not in self._clusters:
            self._clusters[data], _ = parse_cluster(data)
            self.effort += 1 + len(data) // _PAGE
        return self._clusters[data]


def _forms(cluster: DeclaredCluster) -> Mapping[tuple[str, str], object]:
    """Every declaration by kind and name, without places."""
    form = config_form(cluster)
    forms: dict[tuple[str, str], object] = {("graph", name): graph for name, graph in form["graphs"].items()}
    for name, policy in form["policies"].items():
        # What a policy is bound to also depends on which graphs there are.
        bound: set[Any] = form["graphs"].keys() & {text.removeprefix("graph.") for text in policy["applies_to"]}
        forms["policy", name] = policy, bound
    return forms


def _contents(
    tree: SourceTree,
    cluster: DeclaredCluster,
    differing: Collection[tuple[str, str]],
    touched: Collection[str],
    problems: Diagnostics,
) -> Mapping[Address, tuple[str, Collection[str]]]:
    """Digest and bindings, by address, of what is declared differently or of which a file is touched."""
    loader = ResourceLoader(SourceReader(tree, problems))
    for graph in cluster.graphs:
        queries = graph.queries
        files = [query.file for query in queries.entries] if isinstance(queries, QueryRegistry) else queries.items
        if ("graph", graph.id.value) in differing or _are_touched([graph.schema, *files], touched):
            loader.graph(graph)
    declared = {graph.id.value for graph in cluster.graphs}
    for policy in cluster.policies:
        if ("policy", policy.name.value) in differing or _are_touched([policy.file], touched):
            loader.policy(policy, declared)
    return {address: (resource.digest, resource.applies_to or ()) for address, resource in loader.resources.items()}


def _are_touched(written: Iterable[Text], touched: Collection[str]) -> bool:
    """Whether any of these files or folders was touched; an invalid path was not."""
    for text in written:
        try:
            place = normalize(text.value, confined=True)
        except SourceError:
            continue
        if place in touched or (place == "." and touched):
            return True
    return False
