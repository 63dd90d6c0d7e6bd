"""Who needs what changes, and what it needs: the part of a large relation that a plan looks at."""

from __future__ import annotations

from collections.abc import Sequence

from gitops.model.address import Kind
from gitops.model.change import Change
from gitops.model.plan import Impact
from gitops.model.resource import Dependency
from gitops.model.state import State


def impact(changes: Sequence[Change], dependencies: Sequence[Dependency]) -> tuple[Impact, ...]:
    """Per change, in order, the resources with a desired edge to it; changes that nothing needs are left out."""
    needed_by: dict[str, list[str]] = {change.address.text: [] for change in changes}
    for source, target in dependencies if changes else ():
        if target in needed_by:
            needed_by[target].append(source)
    return tuple(
        Impact(change.address.text, tuple(needed_by[change.address.text]))
        for change in changes
        if needed_by[change.address.text]
    )


def reached(changes: Sequence[Change], dependencies: Sequence[Dependency]) -> tuple[Dependency, ...]:
    """The edges that can be gone from any of the changes on, in their order."""
    sources: set[str] = set()
    pending = {change.address.text for change in changes}
    while pending:
        sources |= pending
        # Cluster, graph, schema: no way is longer than a few steps, so that to go through all of them again is cheap.
        pending = {target for source, target in dependencies if source in pending} - sources
    return tuple(edge for edge in dependencies if edge.source in sources) if sources else ()


def recorded_dependencies(changes: Sequence[Change], state: State) -> tuple[Dependency, ...]:
    """The edges that can be gone from the changes on among the ledger's own resources: order for tearing down."""
    edges: set[Dependency] = set()
    seen: set[str] = set()
    pending = [change.address.text for change in changes]
    while pending:
        text = pending.pop()
        if text in seen or text not in state.resources:
            continue
        seen.add(text)
        targets = _recorded_targets(text, state)
        edges.update(Dependency(text, target) for target in targets)
        pending += targets
    return tuple(sorted(edges))


def _recorded_targets(text: str, state: State) -> list[str]:
    """What a recorded resource needs, as far as the ledger says."""
    kind, _, rest = text.partition(".")
    if kind == Kind.SCHEMA:
        return [f"graph.{rest}"]
    if kind == Kind.QUERY:
        graph = rest.partition(".")[0]
        return [f"graph.{graph}", f"schema.{graph}"]
    if kind == Kind.POLICY:
        return [bound for bound in state.resources[text].applies_to or () if bound.startswith(f"{Kind.GRAPH}.")]
    return []
