"""Who needs whom among declared resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitops.model.address import CLUSTER_SCOPE
from gitops.model.resource import Dependency

__all__ = ["dependencies"]


def dependencies(texts: Iterable[str], bindings: Mapping[str, Sequence[str]]) -> tuple[Dependency, ...]:
    """Each pair once, sorted: schema and query need their graph, a query its schema, a policy the graphs that it is bound to.

    `texts` are the addresses of all resources, `bindings` those of each policy that has any.
    """
    edges = []
    for text in texts:
        kind, _, rest = text.partition(".")
        if kind == "schema":
            edges.append(Dependency(text, f"graph.{rest}"))
        elif kind == "query":
            graph = rest.partition(".")[0]
            edges += (Dependency(text, f"graph.{graph}"), Dependency(text, f"schema.{graph}"))
        elif kind == "policy":
            edges += (Dependency(text, bound) for bound in bindings.get(text, ()) if bound != CLUSTER_SCOPE)
    return tuple(sorted(edges))
