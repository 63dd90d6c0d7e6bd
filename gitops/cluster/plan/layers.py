"""An execution graph's structure: neighbours, layers, cycles, transpose, subgraphs, and whether it can run.

Every collection is sorted, so the same graph always gives the same result. There is no recursion here, because a chain
can be as long as a plan.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TypeVar

from gitops.cluster.model.plan import ExecEdge, ExecutionGraph
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics

VIA_UNCHANGED = "via_unchanged"
"""The reason of an edge that stands for a path through resources without a node; its detail is that path."""

N = TypeVar("N", bound=str)

Neighbours = Mapping[str, tuple[str, ...]]
Links = tuple[Neighbours, Neighbours]


def neighbours(graph: ExecutionGraph) -> Links:
    """Return the sorted successors and predecessors of each node id. Several edges between two nodes count once.

    Edges to an unknown node are omitted; `validate` reports them.
    """
    known = {node.id for node in graph.nodes}
    after: dict[str, set[str]] = {name: set() for name in known}
    before: dict[str, set[str]] = {name: set() for name in known}
    for edge in graph.edges:
        if edge.before in known and edge.after in known:
            after[edge.before].add(edge.after)
            before[edge.after].add(edge.before)
    return _sorted(after), _sorted(before)


def layers(graph: ExecutionGraph) -> tuple[tuple[str, ...], ...]:
    """Return topological layers with sorted ids. Layer k can run when all earlier layers are done.

    Nodes on a cycle, and those after one, are in no layer.
    """
    after, before = neighbours(graph)
    open_edges = {name: len(sources) for name, sources in before.items()}
    found: list[tuple[str, ...]] = []
    layer = sorted(name for name, count in open_edges.items() if not count)
    while layer:
        found.append(tuple(layer))
        freed = []
        for name in layer:
            for target in after[name]:
                open_edges[target] -= 1
                if not open_edges[target]:
                    freed.append(target)
        layer = sorted(freed)
    return tuple(found)


def serial_order(graph: ExecutionGraph) -> tuple[str, ...]:
    """Return ids in the order in which one worker starts them if nothing fails: always the lowest free position.

    As in `layers`, nodes on or after a cycle are omitted.
    """
    after, before = neighbours(graph)
    open_edges = {name: len(sources) for name, sources in before.items()}
    position = {node.id: node.position for node in graph.nodes}
    ready = [(position[name], name) for name, count in open_edges.items() if not count]
    heapify(ready)
    order: list[str] = []
    while ready:
        order.append(heappop(ready)[1])
        for target in after[order[-1]]:
            open_edges[target] -= 1
            if not open_edges[target]:
                heappush(ready, (position[target], target))
    return tuple(order)


def order_test(graph: ExecutionGraph) -> Callable[[str, str], bool]:
    """Return a function that tests whether one of two ids waits for the other, even indirectly. Cycle nodes wait for nothing."""
    after, _ = neighbours(graph)
    index = {name: number for number, name in enumerate(after)}
    # The set of all nodes after each node, as bits of an integer, because thousands of sets are created and joined.
    behind = dict.fromkeys(after, 0)
    for name in reversed(serial_order(graph)):
        for target in after[name]:
            behind[name] |= behind[target] | 1 << index[target]
    return lambda one, other: bool(behind[one] >> index[other] & 1 or behind[other] >> index[one] & 1)


def cycles(graph: ExecutionGraph, links: Links | None = None) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected components of two or more nodes, and nodes with an edge to themselves, with sorted ids.

    Nodes that are merely downstream of a cycle are not listed. `links` are the `neighbours` of the graph, if already
    computed. Two passes of depth-first search (Kosaraju, Sharir 1981).
    """
    after, before = links or neighbours(graph)
    component: dict[str, list[str]] = {}
    for root in reversed(_finishing_order(after)):
        if root in component:
            continue
        members = component[root] = [root]
        pending = [root]
        while pending:
            for source in before[pending.pop()]:
                if source not in component:
                    component[source] = members
                    members.append(source)
                    pending.append(source)
    distinct = {id(members): members for members in component.values()}.values()
    looped = (m for m in distinct if len(m) > 1 or m[0] in after[m[0]])
    return tuple(sorted(tuple(sorted(members)) for members in looped))


def transposed(graph: ExecutionGraph) -> ExecutionGraph:
    """Reverse all edges and positions, keeping actions, reasons and locks. Applying it twice gives the same graph."""
    ends = [node.position for node in graph.nodes]
    mirror = min(ends, default=0) + max(ends, default=0)
    nodes = (replace(node, position=mirror - node.position) for node in reversed(graph.nodes))
    edges = (replace(edge, before=edge.after, after=edge.before) for edge in graph.edges)
    return ExecutionGraph(tuple(nodes), tuple(sorted(edges)))


def restricted(graph: ExecutionGraph, kept: Collection[str]) -> ExecutionGraph:
    """Return the graph with only the `kept` nodes in the same order. Preserves direct and indirect dependencies between them.

    If there are only other nodes between two nodes, their edge is `via_unchanged` with the shortest path through them
    as its detail.
    """
    after, _ = neighbours(graph)
    edges = {edge for edge in graph.edges if edge.before in kept and edge.after in kept}
    for start in (name for name in after if name in kept):
        found = reached(start, after, kept)
        for target in (name for name in found if name in kept and found[name] != start):
            edges.add(ExecEdge(start, target, VIA_UNCHANGED, " > ".join(between(found, start, target))))
    return ExecutionGraph(tuple(node for node in graph.nodes if node.id in kept), tuple(sorted(edges)))


def reached(start: N, links: Mapping[N, tuple[N, ...]], ends: Container[N]) -> dict[N, N]:
    """Map everything reachable from `start`, nearest first, to its predecessor. Paths stop at `ends`."""
    found: dict[N, N] = {}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for target in links.get(name, ()):
            if target not in found:
                found[target] = name
                if target not in ends:
                    queue.append(target)
    return found


def between(found: Mapping[N, N], start: N, target: N) -> tuple[N, ...]:
    """Return the path between `start` and `target`, excluding both, from the result of `reached`."""
    way: list[N] = []
    name = found[target]
    while name != start:
        way.append(name)
        name = found[name]
    return tuple(reversed(way))


def validate(graph: ExecutionGraph, links: Links | None = None) -> tuple[Diagnostic, ...]:
    """Return the reasons why the graph cannot run: `duplicate_resource_id`, `missing_dependency`, `dependency_cycle`.

    The result is empty if it can run.

    `links` are as in `cycles`.
    """
    problems = Diagnostics()
    counts = Counter(node.id for node in graph.nodes)
    for name, count in sorted(counts.items()):
        if count > 1:
            problems.add(Code.DUPLICATE_RESOURCE_ID, name, f"{name} is named by {count} changes")
    for edge in sorted(graph.edges):
        missing = [name for name in sorted({edge.before, edge.after}) if name not in counts]
        if missing:
            problems.add(
                Code.MISSING_DEPENDENCY,
                edge.after,
                f"{edge.after} waits for {edge.before} [{edge.reason}]; missing: {', '.join(missing)}",
            )
    for cycle in cycles(graph, links):
        problems.add(Code.DEPENDENCY_CYCLE, cycle[0], f"each of these waits for the others: {', '.join(cycle)}")
    return tuple(problems)


def _sorted(links: Mapping[str, set[str]]) -> Neighbours:
    return {name: tuple(sorted(links[name])) for name in sorted(links)}


def _finishing_order(after: Neighbours) -> list[str]:
    """Return node ids in the order in which a depth-first search leaves them."""
    order: list[str] = []
    seen: set[str] = set()
    for root in after:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(after[root]))]
        while stack:
            name, targets = stack[-1]
            target = next((t for t in targets if t not in seen), None)
            if target is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(after[target])))
    return order
