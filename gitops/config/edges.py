"""Which declared resources need which others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitops.model.address import CLUSTER_SCOPE, Address, Kind
from gitops.model.resource import Dependency

__all__ = ["dependencies"]


def dependencies(addresses: Iterable[Address], bindings: Mapping[Address, Sequence[str]]) -> tuple[Dependency, ...]:
    """Each pair once, sorted: schema and query need their graph, a query its schema, a policy the graphs that it is bound to.

    `addresses` are those of all resources, `bindings` those of each policy that has any.
    """
    edges = []
    for address in addresses:
        graph, schema = address.graph_address, address.schema_address
        if graph is not None and address != graph:
            edges.append(Dependency(address, graph))
        if schema is not None and address.kind is Kind.QUERY:
            edges.append(Dependency(address, schema))
        if address.kind is Kind.POLICY:
            bound = bindings.get(address, ())
            edges += (Dependency(address, Address(scope)) for scope in bound if scope != CLUSTER_SCOPE)
    return tuple(sorted(edges))
