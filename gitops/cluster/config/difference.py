"""Compares the declarations of two states of a cluster folder. The cost depends only on the differences.

Only graphs and texts whose declaration or files differ are loaded. All others have the same digests in both, so they do not
have to be read. Strategies have no files: if the section differs, all of them are compared. Hosts are compared if any file
differs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.declaration import (
    DeclaredCluster,
    DeclaredGraph,
    QueryRegistry,
    Text,
    config_form,
    read_config,
)
from gitops.cluster.config.loader import ResourceLoader
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.source import SourceError, SourceTree, normalize, parents
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.kinds import SECTIONS
from gitops.cluster.model.resource import Resource, restore_resources
from gitops.core.diagnostics import Diagnostics
from gitops.database.language.query import query_texts

_PAGE = 4096


class Differences:
    """Compares pairs of folders. If several folders have the same `cluster.yaml`, it is parsed once.

    `effort` grows with the amount of work: 4 KiB of `cluster.yaml`, or one resource, count as one.
    """

    def __init__(self) -> None:
        self._clusters: dict[bytes, DeclaredCluster | None] = {}
        self.effort = 0

    def addresses(self, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address]:
        """Return the addresses that two folders declare differently. In a query file, only changed queries count.

        `paths` are the normalized paths of all files that differ. A folder whose `cluster.yaml` cannot be read declares
        nothing to compare; the plan of that folder reports its other problems.
        """
        found, before, after = self._compare(old, new, paths, Diagnostics())
        texts: dict[bytes, Mapping[str, bytes]] = {}

        def text(resources: Mapping[Address, Resource], address: Address) -> bytes | None:
            resource = resources.get(address)
            content = None if resource is None or address.kind is not Kind.QUERY else resource.content
            if content is None:
                return None
            if content not in texts:
                texts[content] = query_texts(content)
            return texts[content].get(address.name)

        same = {each for each in found if (own := text(before, each)) is not None and own == text(after, each)}
        return frozenset(found - same)

    def certain(self, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address] | None:
        """Return the same addresses, but count every query in a changed file.

        Returns None if a problem in either folder hides its declarations.
        """
        problems = Diagnostics()
        found, _, _ = self._compare(old, new, paths, problems)
        readable = self._cluster(old) is not None and self._cluster(new) is not None
        return found if readable and not problems.has_errors else None

    def users(self, tree: SourceTree, paths: Collection[str]) -> frozenset[str] | None:
        """Return the names of the graphs, policies and other texts that use any of these files.

        Returns None if `cluster.yaml` cannot be read.
        """
        cluster = self._cluster(tree)
        if cluster is None:
            return None
        touched = frozenset(paths) | {folder for path in paths for folder in parents(path)}
        graphs = {graph.id.value for graph in cluster.graphs if _are_touched(_files(graph), touched)}
        texts = (text for section in cluster.texts.values() for text in section)
        return frozenset(graphs | {text.name.value for text in texts if _are_touched([text.file], touched)})

    def _compare(
        self, old: SourceTree, new: SourceTree, paths: Collection[str], problems: Diagnostics
    ) -> tuple[frozenset[Address], Mapping[Address, Resource], Mapping[Address, Resource]]:
        """Return the differences, and the resources that were loaded from both folders."""
        before, after = self._cluster(old), self._cluster(new)
        if before is None or after is None:
            return frozenset(), {}, {}
        touched = frozenset(paths) | {folder for path in paths for folder in parents(path)}
        differing: set[tuple[str, str]] = set()
        # The same text gives the same declaration, and most commits don't change it.
        if before is not after:
            old_forms, new_forms = _forms(before), _forms(after)
            differing = {key for key in old_forms.keys() | new_forms.keys() if old_forms.get(key) != new_forms.get(key)}
        old_contents = _contents(old, before, differing, touched, problems)
        new_contents = _contents(new, after, differing, touched, problems)
        declared = old_contents.keys() | new_contents.keys()
        self.effort += len(old_contents) + len(new_contents)
        found = frozenset(each for each in declared if _form(old_contents, each) != _form(new_contents, each))
        return found, old_contents, new_contents

    def _cluster(self, tree: SourceTree) -> DeclaredCluster | None:
        data, _ = read_config(tree)
        if data is None:
            return None
        if data not in self._clusters:
            self._clusters[data], _ = parse_cluster(data)
            self.effort += 1 + len(data) // _PAGE
        return self._clusters[data]


def _forms(cluster: DeclaredCluster) -> Mapping[tuple[str, str], object]:
    """Return all declarations by kind or section and name, without places."""
    form = config_form(cluster)
    forms: dict[tuple[str, str], object] = {("graph", name): graph for name, graph in form["graphs"].items()}
    for section in SECTIONS:
        for name, text in form.get(section, {}).items():
            # A policy's bindings also depend on the existing graphs.
            bound: set[Any] = form["graphs"].keys() & {
                each.removeprefix("graph.") for each in text.get("applies_to", ())
            }
            forms[section, name] = text, bound
    for name, restore in form.get("restores", {}).items():
        forms["restore", name] = restore
    if "compute" in form:
        forms["compute", ""] = form["compute"]
    if "hosts" in form:
        forms["hosts", ""] = form["hosts"]
    return forms


def _contents(
    tree: SourceTree,
    cluster: DeclaredCluster,
    differing: Collection[tuple[str, str]],
    touched: Collection[str],
    problems: Diagnostics,
) -> Mapping[Address, Resource]:
    """Return the resources with a different declaration or a touched file, by address."""
    loader = ResourceLoader(SourceReader(tree, problems))
    for graph in cluster.graphs:
        if ("graph", graph.id.value) in differing or _are_touched(_files(graph), touched):
            loader.graph(graph)
    declared = {graph.id.value for graph in cluster.graphs}
    for section, texts in cluster.texts.items():
        for text in texts:
            if (section, text.name.value) in differing or _are_touched([text.file], touched):
                loader.text(section, text, declared)
    strategies = {}
    if cluster.compute is not None and ("compute", "") in differing:
        from gitops.cluster.config.compute import compute_resources, read_compute

        strategies = compute_resources(read_compute(cluster.compute.form))
    hosts: Mapping[Address, Resource] = {}
    # Any file of the folder can be the content of an item, so the items are read if any file differs.
    if cluster.hosts is not None and (("hosts", "") in differing or touched):
        from gitops.cluster.config.host_items import load_hosts
        from gitops.cluster.config.hosts import read_hosts

        node = cluster.hosts.section
        hosts = load_hosts(read_hosts(cluster.hosts.form), lambda: node, loader.reader).resources
    restores = config_form(cluster).get("restores", {})
    changed = {graph: form for graph, form in restores.items() if ("restore", graph) in differing}
    return {**loader.resources, **restore_resources(changed), **strategies, **hosts}


def _files(graph: DeclaredGraph) -> Sequence[Text]:
    """Return the paths that a graph refers to."""
    queries = graph.queries
    files = [query.file for query in queries.entries] if isinstance(queries, QueryRegistry) else queries.items
    return [graph.schema, *files]


def _form(resources: Mapping[Address, Resource], address: Address) -> tuple[str, Collection[str]] | None:
    """Return the digest and bindings of a resource, or None if it does not exist."""
    resource = resources.get(address)
    return None if resource is None else (resource.digest, resource.applies_to or ())


def _are_touched(written: Iterable[Text], touched: Collection[str]) -> bool:
    """Return True if any of these files or folders was touched. Invalid paths don't count."""
    for text in written:
        try:
            place = normalize(text.value, confined=True)
        except SourceError:
            continue
        if place in touched or (place == "." and touched):
            return True
    return False
