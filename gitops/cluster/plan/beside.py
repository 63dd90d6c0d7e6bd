"""Decides whether two merges can be prepared at the same time.

A merge is prepared ahead of its turn: its staged changes are made while earlier merges are still being applied. It is
planned against the state after all of them, so nothing that they do may concern it. Two merges are disjoint unless

1. they change the same resource, or resources of the same graph;
2. a change of one needs a resource that the other changes, directly or through unchanged resources;
3. changes of both claim the same lock, for example for a scope that a policy gives to another one, or for equal content.

Some merges are never prepared ahead, because the result of an earlier one could decide about them, or they decide
about later ones: those with a gate, with a change that waits or is not supported, with keys and rules, the cluster's
location, strategies or restores, and those that are applied in parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import BARRIER_KIND, Plan
from gitops.cluster.model.resource import Dependency, DesiredState
from gitops.cluster.plan.classes import graphs_of_parts
from gitops.cluster.plan.planner import recorded_dependencies
from gitops.core.dataclass import dataclass

_ALONE = frozenset({Kind.TRUST, Kind.CLUSTER, Kind.STRATEGY, Kind.RESTORE, Kind.HOST, Kind.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a merge uses: the resources that it changes, the keys of its locks, and the resources that its changes need."""

    changes: frozenset[Address] = frozenset()
    locks: frozenset[str] = frozenset()
    needs: frozenset[Address] = frozenset()

    def shared(self, other: Footprint) -> str | None:
        """Return something that keeps two merges from being prepared at the same time, or None if they are disjoint."""
        common = self.changes & other.changes or self.changes & other.needs or self.needs & other.changes
        return min((*common, *(self.locks & other.locks)), default=None)


def footprint_of(plan: Plan, desired: DesiredState, state: LedgerState) -> Footprint:
    """Return the footprint of a plan for `desired`, made from `state`."""
    changed = frozenset(change.address for change in plan.changes)
    nodes = (node for node in plan.graph.nodes if node.kind != BARRIER_KIND)
    locks = {claim.key for node in nodes for claim in node.locks}
    locks |= {f"graph:{address.graph}" for address in changed if address.graph is not None}
    needs = _needs(changed, (*desired.dependencies, *recorded_dependencies(plan.changes, state)))
    return Footprint(changed, frozenset(locks), needs)


def _needs(changed: frozenset[Address], dependencies: Iterable[Dependency]) -> frozenset[Address]:
    targets: dict[Address, list[Address]] = {}
    for dependency in dependencies:
        targets.setdefault(dependency.source, []).append(dependency.target)
    found: set[Address] = set()
    pending = sorted(changed)
    while pending:
        further = [target for target in targets.get(pending.pop(), ()) if target not in found]
        found.update(further)
        pending += further
    return frozenset(found) - changed


def stands_alone(plan: Plan) -> bool:
    """Return True if a plan must not be prepared ahead, whatever the other merges do. Derived changes don't matter."""
    if plan.approvals_required or len(graphs_of_parts(plan)) > 1:
        return True
    return any(
        change.address.kind in _ALONE or change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED)
        for change in plan.changes
    )
