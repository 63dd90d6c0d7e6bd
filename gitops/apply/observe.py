"""Looking at live graphs."""

from __future__ import annotations

from gitops.apply.recovery_rules import GraphProbe
from gitops.cluster.workspace import Stores
from gitops.core.errors import GitopsError
from gitops.graph.observation import Existence


def probe_graph(stores: Stores, graph: str) -> tuple[GraphProbe, str | None]:
    """What is seen of a graph, and why it did not open if it did not."""
    uri = stores.graph_uri(graph)
    existence = stores.engine.exists(uri)
    if existence is not Existence.PRESENT:
        return GraphProbe(existence), None if existence is Existence.ABSENT else f"cannot tell whether {uri} exists"
    try:
        return GraphProbe(existence, stores.engine.read(uri)), None
    except GitopsError as error:
        return GraphProbe(existence), error.detail
