"""An execution graph for people: terminal text and a Mermaid flowchart.

Names come from change requests and ledgers, so they are hostile: the text form spells out whatever acts instead of being
seen, and the diagram knows no character but letters, digits and a few harmless signs as themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitops.model.execution import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.planning.graph import BARRIER_KIND
from gitops.planning.layers import cycles, layers
from gitops.render.characters import visible

_UNSAFE = re.compile(r"[^A-Za-z0-9_ .:,-]")


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


def to_mermaid(graph: ExecutionGraph) -> str:
    """A flowchart (https://mermaid.js.org/syntax/flowchart.html), one arrow per pair of nodes with all its reasons.

    What this does not do: keep within the limits of a viewer (500 edges and 50,000 characters unless configured).
    """
    names = {node.id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        opening, closing = ("{{", "}}") if node.kind == BARRIER_KIND else ("[", "]")
        lines.append(f'  {names[node.id]}{opening}"{_label(_title(node))}"{closing}')
    reasons: dict[tuple[str, str], list[str]] = {}
    for edge in graph.edges:
        if edge.before in names and edge.after in names:
            reasons.setdefault((names[edge.before], names[edge.after]), []).append(edge.reason)
    for (before, after), found in reasons.items():
        lines.append(f'  {before} -->|"{_label(", ".join(dict.fromkeys(found)))}"| {after}')
    return "\n".join(lines) + "\n"


def _title(node: ExecNode) -> str:
    return f"barrier {node.id}" if node.kind == BARRIER_KIND else f"{node.action.value} {node.id}"


def _edge_lines(edges: Sequence[ExecEdge]) -> list[str]:
    return [visible(f"  {e.before} -> {e.after} [{e.reason}{f': {e.detail}' if e.detail else ''}]") for e in edges]


def _locks(claims: Sequence[LockClaim]) -> str:
    shown = (f"{c.key}{' (shared)' if c.mode is LockMode.SHARED else ''}" for c in claims)
    return visible(f"  [locks: {', '.join(shown)}]") if claims else ""


def _label(text: str) -> str:
    """`text` with every other character as a Mermaid entity code."""
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", text)
