"""Who needs what changes, and what it needs: the part of a large relation that a plan looks at."""

from __future__ import annotations

from collections.abc import Sequence

from gitops.model.address import Address, Kind
from gitops.model.change import Change
from gitops.model.plan import Impact
from gitops.model.resource import Dependency
from gitops.model.state import State


def impact(changes: Sequence[Change], dependencies: Sequence[Dependency]) -> tuple[Impact, ...]:
    """Per change, in order, the resources with a desired edge to it; changes that nothing needs are left out."""
    needed_by: dict[Address, list[Address]] = {change.address: [] for change in changes}
    for source, target in dependencies if changes else ():
        if target in needed_by:
            needed_by[target].append(source)
    return tuple(
        Impact(change.address, tuple(needed_by[change.address])) for change in changes if needed_by[change.address]
    )


def reached(changes: Sequence[Change], dependencies: Sequence[Dependency]) -> tuple[Dependency, ...]:
    """The edges that can be gone from any of the changes on, in their order."""
    sources: set[Address] = set()
    pending = {change.address for change in changes}
    while pending:
        sources |= pending
        # Cluster, graph, schema: no way is longer than a few steps, so that to go through all of them again is cheap.
        pending = {target for source, target in dependencies if source in pending} - sources
    return tuple(edge for edge in dependencies if edge.source in sources) if sources else ()


def recorded_dependencies(changes: Sequence[Change], state: State) -> tuple[Dependency, ...]:
    """The edges that can be gone from the changes on among the ledger's own resources: order for tearing down."""
    edges: set[Dependency] = set()
    seen: set[Address] = set()
    pending = [change.address for change in changes]
    while pending:
        address = pending.pop()
        if address in seen or address not in state.resources:
            continue
        seen.add(address)
        targets = _recorded_targets(address, state)
        edges.update(Dependency(address, target) for target in targets)
        pending += targets
    return tuple(sorted(edges))


def _recorded_targets(address: Address, state: State) -> list[Address]:
    """What a recorded resource needs, as far as the ledger says."""
    if address.kind is Kind.POLICY:
        bound = (Address(scope) for scope in state.resources[address].applies_to or ())
        return [scope for scope in bound if scope.kind is Kind.GRAPH]
    needed = {Kind.SCHEMA: (address.graph_address,), Kind.QUERY: (address.graph_address, address.schema_address)}
    return [target for target in needed.get(address.kind, ()) if target is not None]
