"""`cluster.yaml` for one load: parsed, or as an index records it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gitops.cluster.config.declaration import (
    DeclaredCluster,
    DeclaredGraph,
    DeclaredPolicy,
    Header,
    config_form,
    graph_from_form,
    policy_from_form,
    texts_of,
)
from gitops.cluster.config.index import Index
from gitops.cluster.config.source import SourceMovedError
from gitops.core.canonical import digest
from gitops.core.diagnostics import Diagnostics

if TYPE_CHECKING:
    from gitops.database.language.yaml import YamlNode


class Configuration:
    """`cluster.yaml`, parsed or as an index records it. `form` is as in `config_form`."""

    def __init__(
        self, data: bytes, form: Mapping[str, Any], header: Header | None, parsed: DeclaredCluster | None
    ) -> None:
        self._data = data
        self.digest, self.size = digest(data), len(data)
        self.form = form
        self.header = header
        self.is_recorded = parsed is None
        if parsed is not None:
            self.parsed = parsed

    @classmethod
    def parse(cls, data: bytes, found: Diagnostics) -> Configuration | None:
        """Steps 3 to 5; None if 3 or 4 failed. Problems go to `found`."""
        # Neither the parser nor the languages are imported by a load that does not need them.
        from gitops.cluster.config.cluster_yaml import header_of, parse_cluster

        cluster, problems = parse_cluster(data)
        found.extend(problems)
        return None if cluster is None else cls(data, config_form(cluster), header_of(cluster, found), cluster)

    @classmethod
    def recorded(cls, data: bytes, index: Index | None) -> Configuration | None:
        """The content as recorded, None if the index is about another file.

        Which ledger is read and locked must not depend on what a cache says of the file: a storage root must stand there
        literally, on one line.
        """
        if index is None or index.config != digest(data):
            return None
        if index.header[1] is not None:
            lines = [line.rstrip() for line in data.splitlines() if line.startswith(b"storage")]
            text = index.header[1].encode("utf-8", "surrogatepass")
            if lines not in ([b"storage: %b" % text], [b'storage: "%b"' % text], [b"storage: '%b'" % text]):
                return None
        return cls(data, index.form, Header(*index.header), None)

    @functools.cached_property
    def parsed(self) -> DeclaredCluster:
        """The document, with the places of all texts. Raises SourceMovedError if it is not what the index says."""
        from gitops.cluster.config.cluster_yaml import parse_cluster

        cluster, _ = parse_cluster(self._data)
        if cluster is None:
            raise SourceMovedError
        return cluster

    @functools.cached_property
    def _graphs(self) -> Mapping[str, DeclaredGraph]:
        return {graph.id.value: graph for graph in self.parsed.graphs}

    @functools.cached_property
    def _policies(self) -> Mapping[str, DeclaredPolicy]:
        return {policy.name.value: policy for policy in self.parsed.policies}

    @property
    def compute(self) -> YamlNode:
        """The section `compute` of the document. Raises SourceMovedError where there is none."""
        if self.parsed.compute is None:
            raise SourceMovedError
        return self.parsed.compute.section

    def graph(self, name: str) -> DeclaredGraph:
        """The declaration of a graph."""
        if not self.is_recorded:
            return self._graphs[name]
        return graph_from_form(name, self.form["graphs"][name], lambda: texts_of(self._graphs.get(name)))

    def policy(self, name: str) -> DeclaredPolicy:
        """The declaration of a policy."""
        if not self.is_recorded:
            return self._policies[name]
        return policy_from_form(name, self.form["policies"][name], lambda: texts_of(self._policies.get(name)))
