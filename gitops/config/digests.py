"""The configuration digest: one value for everything that a cluster folder says.

Formatting, comments and key order of `cluster.yaml` do not enter it; the spelling of paths and every byte of every
referenced file does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.config.cluster_yaml import QueryRegistry, QuerySources, RawCluster, RawGraph, Text
from gitops.config.declaration import form_digest
from gitops.model.address import Address

__all__ = ["config_digest", "config_form"]


def config_form(cluster: RawCluster) -> dict[str, Any]:
    """The configuration as JSON values, keys in declaration order, every key present, absent values null or `{}`."""
    return {
        "version": cluster.version,
        "metadata": {"name": _value(cluster.name)},
        "storage": _value(cluster.storage),
        "state": {"backend": _value(cluster.backend), "lock": cluster.lock},
        "graphs": {g.id.value: {"schema": g.schema.value, "queries": _queries(g)} for g in cluster.graphs},
        "policies": {
            p.name.value: {"file": p.file.value, "applies_to": [t.value for t in p.applies_to]}
            for p in cluster.policies
        },
    }


def config_digest(cluster: RawCluster, digests: Mapping[Address, str]) -> str:
    """Digest of the configuration and of `digests`, address text to digest, of all desired resources.

    The input is `cluster-config NUL <compact JSON of config_form> NUL`, then `<address> NUL <digest> NUL` by address.
    """
    return form_digest(config_form(cluster), digests)


def _value(text: Text | None) -> str | None:
    return None if text is None else text.value


def _queries(graph: RawGraph) -> Any:
    """As written: a mapping, a text or a list."""
    queries = graph.queries
    if isinstance(queries, QueryRegistry):
        return {q.name.value: {"file": q.file.value} for q in queries.entries}
    return _sources(queries)


def _sources(sources: QuerySources) -> str | list[str]:
    return sources.items[0].value if sources.single else [item.value for item in sources.items]
