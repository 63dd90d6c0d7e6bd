"""The inspectable JSON form of an execution graph: no payloads, no scheduler state, the same bytes for the same graph."""

from __future__ import annotations

from typing import Any

from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.model.change import Action
from gitops.model.execution import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.plan.layers import cycles, layers

VERSION = 1
CODE = Code.GRAPH_DOCUMENT_INVALID


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


def from_json(form: Any) -> ExecutionGraph:
    """Read what `to_json` wrote.

    The form must be exactly the one that its own nodes and edges have: no member more or less, and layers, cycles and
    counts that agree with them. Raises IntegrityError with `graph_document_invalid` otherwise, also for a newer version.
    """
    if isinstance(form, dict) and type(form.get("version")) is int and form["version"] > VERSION:
        raise IntegrityError(
            CODE, f"version {form['version']} is newer than {VERSION}, which is what this release reads"
        )
    try:
        graph = ExecutionGraph(
            tuple(_read_node(item) for item in form["nodes"]), tuple(_read_edge(item) for item in form["edges"])
        )
        # Compared as bytes, because in Python true equals 1 and 1.0 equals 1.
        same = canonical(to_json(graph)) == canonical(form)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as problem:
        raise IntegrityError(CODE, "the execution graph does not have the expected form") from problem
    if not same:
        raise IntegrityError(CODE, "the execution graph contradicts itself, or has members that are not known")
    return graph


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


def _read_node(item: Any) -> ExecNode:
    locks = tuple(LockClaim(_text(lock["key"]), LockMode(lock["mode"])) for lock in item["locks"])
    position = item["position"]
    if type(position) is not int:
        raise TypeError("a position is a whole number")
    return ExecNode(
        _text(item["id"]), _text(item["kind"]), Action(item["action"]), position, locks, _text(item["group"])
    )


def _read_edge(item: Any) -> ExecEdge:
    return ExecEdge(_text(item["from"]), _text(item["to"]), _text(item["reason"]), _text(item["detail"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text is needed")
    return value
