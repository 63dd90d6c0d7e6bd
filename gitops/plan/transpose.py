"""The way back through an execution graph: all edges turned around, and nodes left out without losing the order across them.

What depends on a change is undone before it. Undoing work takes the graph in which it was done, transposed, and restricted to the
nodes that are undone: in a plan back, and in the compensation of a run that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import replace

from gitops.model.plan import ExecEdge, ExecutionGraph

__all__ = ["VIA_LEFT_OUT", "restrict", "transpose"]

VIA_LEFT_OUT = "via_left_out"
"""The reason of an edge that stands for a path through nodes that were left out; its detail is that path."""


def transpose(graph: ExecutionGraph) -> ExecutionGraph:
    """The same nodes with every edge turned around, in the reverse of their order; twice gives the graph itself."""
    places = [node.position for node in graph.nodes] or [0]
    ends = min(places) + max(places)
    nodes = (replace(node, position=ends - node.position) for node in graph.nodes)
    edges = (replace(edge, before=edge.after, after=edge.before) for edge in graph.edges)
    return ExecutionGraph(tuple(sorted(nodes, key=lambda node: node.position)), tuple(sorted(edges)))


def restrict(graph: ExecutionGraph, keep: Container[str]) -> ExecutionGraph:
    """The nodes to keep, with their edges; a path through others becomes one edge, so that their order holds across the gap.

    Each pair of nodes gets at most one such edge, for the shortest path; none where an edge of the graph joins them already.
    """
    edges = {edge for edge in graph.edges if edge.before in keep and edge.after in keep}
    joined = {(edge.before, edge.after) for edge in edges}
    after: dict[str, list[str]] = {}
    for edge in sorted(graph.edges):
        after.setdefault(edge.before, []).append(edge.after)
    for node in graph.nodes:
        if node.id not in keep:
            continue
        seen: set[str] = set()
        queue: deque[tuple[str, tuple[str, ...]]] = deque()
        queue.extend((name, (name,)) for name in after.get(node.id, ()) if name not in keep)
        while queue:
            name, path = queue.popleft()
            if name in seen:
                continue
            seen.add(name)
            for target in after.get(name, ()):
                if target not in keep:
                    queue.append((target, (*path, target)))
                elif (node.id, target) not in joined:
                    joined.add((node.id, target))
                    edges.add(ExecEdge(node.id, target, VIA_LEFT_OUT, " > ".join(path)))
    return ExecutionGraph(tuple(node for node in graph.nodes if node.id in keep), tuple(sorted(edges)))
