"""The inspectable JSON form of an execution graph: no payloads, no scheduler state, the same bytes for the same graph."""

from __future__ import annotations

from typing import Any

from gitops.model.plan import ExecEdge, ExecNode, ExecutionGraph
from gitops.plan.layers import cycles, layers

VERSION = 1


def to_json(graph: ExecutionGraph) -> dict[str, Any]:
    """Nodes in plan order with their locks, edges with reasons, and what follows from them: layers, cycles, counts."""
    rounds, loops = layers(graph), cycles(graph)
    looped = {name: index for index, loop in enumerate(loops) for name in loop}
    return {
        "version": VERSION,
        "nodes": [_node_form(node) for node in graph.nodes],
        "edges": [_edge_form(edge) for edge in graph.edges],
        "layers": [list(layer) for layer in rounds],
        "cycles": [list(loop) for loop in loops],
        "cycle_edges": [
            [_edge_form(e) for e in graph.edges if looped.get(e.before) == index == looped.get(e.after)]
            for index in range(len(loops))
        ],
        "stats": {
            "nodes": len(graph.nodes),
            "edges": len(graph.edges),
            "layers": len(rounds),
            "cycles": len(loops),
        },
    }


def _node_form(node: ExecNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "action": node.action.value,
        "kind": node.kind,
        "position": node.position,
        "group": node.group,
        "locks": [{"key": claim.key, "mode": claim.mode.value} for claim in node.locks],
    }


def _edge_form(edge: ExecEdge) -> dict[str, Any]:
    return {"from": edge.before, "to": edge.after, "reason": edge.reason, "detail": edge.detail}
