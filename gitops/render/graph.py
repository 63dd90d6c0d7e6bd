"""An execution graph as terminal text, a Mermaid flowchart and JSON.

Names come from change requests and ledgers, so they may be hostile: the text form escapes every control character, and
the diagram escapes every character except letters, digits and a few harmless signs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gitops.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.plan.graph import BARRIER_KIND
from gitops.plan.layers import cycles, layers
from gitops.render.characters import visible

_UNSAFE = re.compile(r"[^A-Za-z0-9_ .:,-]")
_LABEL = 60


def to_json(graph: ExecutionGraph) -> dict[str, Any]:
    """Nodes in plan order with their locks, edges with reasons, and what follows from them: layers, cycles, counts.

    No payloads and no scheduler state: the same graph has the same bytes.
    """
    rounds, loops = layers(graph), cycles(graph)
    looped = {name: index for index, loop in enumerate(loops) for name in loop}
    edges = [{"from": e.before, "to": e.after, "reason": e.reason, "detail": e.detail} for e in graph.edges]
    return {
        "version": 1,
        "nodes": [
            {
                "id": node.id,
                "action": node.action.value,
                "kind": node.kind,
                "position": node.position,
                "group": node.group,
                "locks": [{"key": claim.key, "mode": claim.mode.value} for claim in node.locks],
            }
            for node in graph.nodes
        ],
        "edges": edges,
        "layers": [list(layer) for layer in rounds],
        "cycles": [list(loop) for loop in loops],
        "cycle_edges": [
            [edge for edge in edges if looped.get(edge["from"]) == index == looped.get(edge["to"])]
            for index in range(len(loops))
        ],
        "stats": {"nodes": len(graph.nodes), "edges": len(edges), "layers": len(rounds), "cycles": len(loops)},
    }


def to_text(graph: ExecutionGraph) -> str:
    """Header with counts, cycles if there are any, edges with reasons, and the layers with actions and locks."""
    rounds, loops = layers(graph), cycles(graph)
    sizes = f"{len(graph.nodes)} nodes, {len(graph.edges)} edges, {len(rounds)} layers, {len(loops)} cycles"
    lines = [f"Execution graph: {sizes}"]
    for loop in loops:
        inside = [edge for edge in graph.edges if edge.before in loop and edge.after in loop]
        lines += ["", "Cycle:", *_edge_lines(inside)]
    if graph.edges:
        lines += ["", "Edges:", *_edge_lines(graph.edges)]
    nodes = {node.id: node for node in graph.nodes}
    for number, layer in enumerate(rounds, start=1):
        members = sorted((nodes[name] for name in layer), key=lambda n: n.position)
        lines += ["", f"Layer {number}:", *(f"  {visible(_title(n))}{_locks(n.locks)}" for n in members)]
    return "\n".join(lines) + "\n"


def to_mermaid(graph: ExecutionGraph, *, most: int | None = None) -> str:
    """A flowchart (https://mermaid.js.org/syntax/flowchart.html), one arrow per pair of nodes with all its reasons.

    With `most`, only so many nodes in serial order, as many arrows again, and short labels: 150 nodes stay far within what
    viewers draw (500 edges and 50,000 characters unless configured).
    """
    nodes = graph.nodes if most is None else tuple(sorted(graph.nodes, key=lambda node: node.position))[:most]
    limit = None if most is None else _LABEL
    names = {node.id: f"n{index}" for index, node in enumerate(nodes)}
    lines = ["flowchart TD"]
    for node in nodes:
        opening, closing = ("{{", "}}") if node.kind == BARRIER_KIND else ("[", "]")
        lines.append(f'  {names[node.id]}{opening}"{_label(_title(node), limit)}"{closing}')
    if len(nodes) < len(graph.nodes):
        lines.append(f'  more(["and {len(graph.nodes) - len(nodes)} more"])')
    reasons: dict[tuple[str, str], list[str]] = {}
    for edge in graph.edges:
        if edge.before in names and edge.after in names:
            reasons.setdefault((names[edge.before], names[edge.after]), []).append(edge.reason)
    arrows = [
        f'  {before} -->|"{_label(", ".join(dict.fromkeys(found)), limit)}"| {after}'
        for (before, after), found in reasons.items()
    ]
    lines += arrows if most is None else arrows[: 2 * most]
    return "\n".join(lines) + "\n"


def _title(node: ExecNode) -> str:
    return f"barrier {node.id}" if node.kind == BARRIER_KIND else f"{node.action.value} {node.id}"


def _edge_lines(edges: Sequence[ExecEdge]) -> list[str]:
    return [visible(f"  {e.before} -> {e.after} [{e.reason}{f': {e.detail}' if e.detail else ''}]") for e in edges]


def _locks(claims: Sequence[LockClaim]) -> str:
    shown = (f"{c.key}{' (shared)' if c.mode is LockMode.SHARED else ''}" for c in claims)
    return visible(f"  [locks: {', '.join(shown)}]") if claims else ""


def _label(text: str, limit: int | None) -> str:
    """`text` with every other character as a Mermaid entity code; at most `limit` of its characters."""
    shown = text if limit is None or len(text) <= limit else f"{text[:limit]}..."
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", shown)
