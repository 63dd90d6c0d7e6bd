"""The targets of strategies in the execution graph of an apply.

| node | what it waits for |
| --- | --- |
| look at a target, where strategies of it are created or updated | nothing |
| create or update of a strategy | the look at its target (`strategy_target`) |

A target is not a resource: what is declared of it is a part of the text of each of its strategies. So a look changes nothing, and
is staged in every run. The texts of strategies need no order among themselves: nothing reads them before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gitops.cluster.model.address import Address, Kind, of_kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.compute import read_strategy
from gitops.cluster.model.plan import TARGET, ExecEdge, ExecNode, ExecutionGraph, LockClaim
from gitops.cluster.model.resource import DesiredState

__all__ = ["strategy_targets", "with_targets"]


def strategy_targets(changes: Iterable[Change], desired: DesiredState) -> Mapping[Address, str]:
    """The name of the target of each strategy that is declared and changes."""
    names = of_kind((change.address for change in changes if change.after is not None), Kind.STRATEGY)
    return {name: read_strategy(name, desired.resources[name].content or b"").target.name for name in names}


def with_targets(graph: ExecutionGraph, targets: Mapping[Address, str]) -> ExecutionGraph:
    """The graph with a node for each target that strategies are written for, in front of the first of them.

    `targets` is as `strategy_targets` gives it.
    """
    written = [n for n in graph.nodes if n.kind == Kind.STRATEGY.value and n.action is not Action.DELETE]
    if not written:
        return graph
    names = sorted({targets[node.address] for node in written})
    looks = [ExecNode(f"{TARGET}.{name}", TARGET, Action.UPDATE, 0, (LockClaim(f"compute:{name}"),)) for name in names]
    first = min(node.position for node in written)
    ordered = sorted(graph.nodes, key=lambda node: node.position)
    placed = [*(n for n in ordered if n.position < first), *looks, *(n for n in ordered if n.position >= first)]
    edges = (
        ExecEdge(f"{TARGET}.{name}", node.id, "strategy_target", name)
        for node, name in ((node, targets[node.address]) for node in written)
    )
    nodes = tuple(replace(node, position=position) for position, node in enumerate(placed))
    return ExecutionGraph(nodes, tuple(sorted((*graph.edges, *edges))))
