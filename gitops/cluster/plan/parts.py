"""A plan that cannot be all or nothing, cut into consecutive parts that can: one change that cannot be taken back in each.

A part is about one graph: its migration, and the texts of that graph. The last part has the last one, and everything else. No
edge of the execution graph leads from one part to an earlier one.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.model.address import Address
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.classes import pivots
from gitops.cluster.plan.layers import restricted


def graphs_of_parts(plan: Plan) -> tuple[str, ...]:
    """The ids of the graphs whose change cannot be taken back, in the order of the execution graph: one for each part."""
    found = (Address(name).graph for name in pivots(plan.graph))
    return tuple(dict.fromkeys(graph for graph in found if graph is not None))


def part_of(plan: Plan, graph: str) -> Plan:
    """The part of a plan that is about one graph."""
    changes = tuple(change for change in plan.changes if change.address.graph == graph)
    needs = tuple(need for need in plan.approvals_required if need.resource.graph == graph)
    kept = {str(change.address) for change in changes}
    return replace(plan, changes=changes, approvals_required=needs, graph=restricted(plan.graph, kept))
