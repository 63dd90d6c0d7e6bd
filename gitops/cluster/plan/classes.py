"""Execution graph of an atomic run. A change's class comes from the rules of its kind.

An atomic run passes four barriers: everything staged is done before `prepared`, the pivot before `committed`, and the remaining
steps come after `drained`, when nothing reads the resources that were removed from the applied state:

    stage > prepared > pivot > committed > drained > finish > finalized

If a change came before something that it needs, a barrier would close a cycle. So a change that needs one of a later
class also moves after that barrier: staged changes are then `lifted` after `prepared`. A text does not move, because
publishing it needs only the ledger, and a failure to publish should be known before any change that cannot be rolled
back.

A migration that adds and drops is two nodes: the first one is staged and leads to a schema with both the additions and
the data to drop, the second one finishes. Rows that are restored at the same time need the final types, so such a migration
is a pivot; so is one without an intermediate schema.

Two changes that cannot be rolled back cannot be applied atomically together, so an atomic run has at most one pivot;
`pivots` returns all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change, Disposition, Effect
from gitops.cluster.model.kinds import KINDS, Classified, rules_of
from gitops.cluster.model.plan import BARRIER_KIND, HOST_STEPS, ExecEdge, ExecNode, ExecutionGraph, Plan
from gitops.cluster.plan.graph import LEDGER, approvals_of
from gitops.cluster.plan.layers import neighbours, restricted, serial_order

PREPARED, COMMITTED, DRAINED, FINALIZED = (
    Address(f"barrier.{name}") for name in ("prepared", "committed", "drained", "finalized")
)
BARRIERS = (PREPARED, COMMITTED, DRAINED, FINALIZED)
"""The boundaries of an atomic run, in order."""

# Where each class runs: after the first barrier and before the second. A commit is itself a barrier.
_BETWEEN: Mapping[Effect, tuple[Address | None, Address]] = {
    Effect.STAGE: (None, PREPARED),
    Effect.PIVOT: (PREPARED, COMMITTED),
    Effect.FINISH: (DRAINED, FINALIZED),
}
_REASONS = {
    PREPARED: "stage_barrier",
    COMMITTED: "pivot_barrier",
    DRAINED: "drain_barrier",
    FINALIZED: "finish_barrier",
}


def effects_of(changes: Iterable[Change]) -> Mapping[Address, Classified]:
    """Return each change's class, from the rules of its kind."""
    known = tuple(changes)
    restored = {c.address.graph for c in known if c.address.kind is Kind.RESTORE and c.action is not Action.DELETE}
    return {c.address: rules_of(c.address).effect(c, restored=c.address.graph in restored) for c in known}


def classes_of(changes: Iterable[Change]) -> Mapping[Address, Classified]:
    """Return the class of each change that is applied now, and of each waiting change as if everything were applied.

    Derived changes have no class, and neither do changes that cannot be applied, such as an unsupported migration.
    """
    able = [c for c in changes if c.migration is None or c.migration.supported]
    now = [c for c in able if c.disposition is Disposition.APPLIED]
    waiting = [c for c in able if c.disposition is Disposition.BLOCKED]
    return {**effects_of((*now, *waiting)), **effects_of(now)}


def with_effects(graph: ExecutionGraph, effects: Mapping[Address, Classified]) -> ExecutionGraph:
    """Return the same graph, with each node's change class set. Barriers do not change."""
    changes = (node for node in graph.nodes if node.changes)
    found = {node.id: (node, effects[node.address]) for node in changes}
    classed = {name: replace(node, effect=one.effect, expanded=one.expanded) for name, (node, one) in found.items()}
    return replace(graph, nodes=tuple(classed.get(node.id, node) for node in graph.nodes))


def pivots(graph: ExecutionGraph) -> tuple[str, ...]:
    """Return the ids of the nodes that cannot be rolled back, in graph order."""
    return tuple(n.id for n in sorted(graph.nodes, key=lambda n: n.position) if n.effect is Effect.PIVOT)


def atomic_graph(graph: ExecutionGraph) -> ExecutionGraph:
    """Return the graph of an atomic run: four barriers, and nodes whose classes never decrease along an edge.

    Changes that affect only the ledger have no node, because the commit makes them. `graph` comes from `build_graph`, its
    nodes with their effects.
    """
    changes = {node.id: node for node in graph.nodes if node.kind != BARRIER_KIND}
    kept = {name: node for name, node in changes.items() if node.effect is not Effect.COMMIT}
    part = restricted(ExecutionGraph(tuple(changes.values()), graph.edges), kept)
    ordered = tuple(e for e in part.edges if not _only_binds(kept[e.before], kept[e.after]))
    lifted = _lift(ExecutionGraph(tuple(kept.values()), ordered))
    nodes = [*lifted, *(_rest(node) for node in lifted if node.expanded is not None)]
    gates = _gate_edges(nodes, approvals_of(graph.nodes))
    return ExecutionGraph(_placed(nodes), tuple(sorted((*ordered, *_barrier_edges(nodes), *gates))))


def _only_binds(before: ExecNode, after: ExecNode) -> bool:
    """Return True if the commit alone satisfies an edge, because a text never waits for a later class."""
    return bool(KINDS[Kind(after.kind)].catalog_suffix) and before.effect is not Effect.STAGE


def _lift(graph: ExecutionGraph) -> list[ExecNode]:
    """Return the nodes in graph order, moving each one to the phase of its latest dependency or later."""
    before = neighbours(graph)[1]
    found = {node.id: node for node in graph.nodes}
    for name in serial_order(graph):
        node = found[name]
        latest = max((found[each].phase for each in before[name]), key=lambda phase: phase.rank, default=node.effect)
        if latest.rank <= node.effect.rank:
            continue
        # After the commit, nothing is rolled back.
        lifted = latest is Effect.PIVOT
        found[name] = replace(node, lifted=True) if lifted else replace(node, effect=latest, expanded=None)
    return sorted(found.values(), key=lambda node: node.position)


def _rest(node: ExecNode) -> ExecNode:
    """Return the node that drops, after the commit, the remaining parts of a staged migration."""
    name = Address(f"drops.{node.address.name}")
    return replace(node, id=name, effect=Effect.FINISH, lifted=False, expanded=None, of=node.id)


def _placed(nodes: Sequence[ExecNode]) -> tuple[ExecNode, ...]:
    """Return the nodes and barriers at positions that don't contradict any edge."""
    ordered: list[ExecNode] = []
    for barrier in BARRIERS:
        ordered += [node for node in nodes if _BETWEEN[node.phase][1] == barrier]
        ordered.append(ExecNode(barrier, BARRIER_KIND, Action.UPDATE, 0, (LEDGER,), effect=Effect.COMMIT))
    return tuple(replace(node, position=position) for position, node in enumerate(ordered))


def _barrier_edges(nodes: Iterable[ExecNode]) -> list[ExecEdge]:
    found = [ExecEdge(a, b, _REASONS[b]) for a, b in pairwise(BARRIERS)]
    for node in nodes:
        behind, before = _BETWEEN[node.phase]
        found.append(ExecEdge(node.id, before, _REASONS[before]))
        if behind is not None:
            found.append(ExecEdge(behind, node.id, _REASONS[behind]))
    return found


def _gate_edges(nodes: Iterable[ExecNode], approvals: Iterable[str]) -> list[ExecEdge]:
    """Return edges to nodes that wait until the approvals are verified again, which is part of the barrier `prepared`."""
    gated = [COMMITTED, *(node.id for node in nodes if node.effect is Effect.PIVOT)]
    return [ExecEdge(PREPARED, name, "approval_gate", approval) for approval in approvals for name in gated]


# Splits a plan that cannot be atomic into consecutive parts that can. Each contains at most one change that cannot be
# rolled back.
#
# A part is about one graph: its migration and its texts. The last of them contains the last graph and everything else. No
# edge in the execution graph leads from a part to an earlier one. Hosts are a separate part, after or before these.


def split_hosts(plan: Plan) -> tuple[Plan, Plan]:
    """Return the part of a plan without hosts, and the part with them.

    Hosts are never applied atomically, because machines have no transactions. The items of a host stop at its first failure,
    and nothing else is rolled back because of it.
    """
    parts = []
    for of_hosts in (False, True):
        chosen = tuple(change for change in plan.changes if (change.address.kind is Kind.HOST) is of_hosts)
        needs = tuple(n for n in plan.approvals_required if (n.resource.kind is Kind.HOST) is of_hosts)
        kept = [n.id for n in plan.graph.nodes if (n.kind in (Kind.HOST, *HOST_STEPS)) is of_hosts]
        parts.append(replace(plan, changes=chosen, approvals_required=needs, graph=restricted(plan.graph, kept)))
    return parts[0], parts[1]


def has_work(plan: Plan) -> bool:
    """Return True if a plan applies something."""
    return any(change.disposition is Disposition.APPLIED for change in plan.changes)


def graphs_of_parts(plan: Plan) -> tuple[str, ...]:
    """Return the ids of the graphs whose change cannot be rolled back, in graph order. Each of them becomes a separate part."""
    found = (Address(name).graph for name in pivots(plan.graph))
    return tuple(dict.fromkeys(graph for graph in found if graph is not None))


def part_of(plan: Plan, graph: str) -> Plan:
    """Return the part of a plan that concerns one graph."""
    changes = tuple(change for change in plan.changes if change.address.graph == graph)
    needs = tuple(need for need in plan.approvals_required if need.resource.graph == graph)
    kept = {str(change.address) for change in changes}
    return replace(plan, changes=changes, approvals_required=needs, graph=restricted(plan.graph, kept))
