"""What `cluster.yaml` says as plain JSON values, as `config_form` makes it: its digest, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gitops.core.canonical import compact, digest
from gitops.model.address import CLUSTER_SCOPE, Address

if TYPE_CHECKING:
    from gitops.config.cluster_yaml import RawGraph

__all__ = ["bindings_of", "form_digest", "raw_graph"]

_GRAPH_PREFIX = "graph."


def form_digest(form: Mapping[str, Any], digests: Mapping[Address, str]) -> str:
    """As `config_digest`, of a configuration that is in its form already."""
    pairs = "".join([f"{address}\0{digests[address]}\0" for address in sorted(digests)])
    return digest(b"cluster-config\0" + compact(form) + b"\0" + pairs.encode())


def bindings_of(applies_to: Collection[str], graphs: Collection[str]) -> tuple[str, ...] | None:
    """The bindings of a policy as `resolve_bindings` makes them; None if it has something to say about them."""
    found = set()
    for text in applies_to:
        graph = text.removeprefix(_GRAPH_PREFIX)
        if text == CLUSTER_SCOPE:
            found.add(text)
        elif graph not in graphs or ("." in text and graph == text):
            return None
        else:
            found.add(f"{_GRAPH_PREFIX}{graph}")
    return tuple(sorted(found)) or None


def raw_graph(graph: str, form: Mapping[str, Any]) -> RawGraph:
    """The declaration of a graph without its places: to load what is known to be sound."""
    from gitops.config.cluster_yaml import QueryRegistry, QuerySources, RawGraph, RawQuery, Text

    def text(value: str) -> Text:
        return Text(value, 0, 0)

    queries = form["queries"]
    if isinstance(queries, dict):
        entries = (RawQuery(text(name), text(entry["file"])) for name, entry in queries.items())
        return RawGraph(text(graph), text(form["schema"]), QueryRegistry(tuple(entries)))
    items = [queries] if isinstance(queries, str) else queries
    sources = QuerySources(tuple(text(item) for item in items), single=isinstance(queries, str))
    return RawGraph(text(graph), text(form["schema"]), sources)
