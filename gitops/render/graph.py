"""Shows an execution graph as terminal text, as a Mermaid flowchart and as JSON.

Names come from change requests and ledgers, so they can be hostile. The text escapes every control character, and the
diagram escapes everything except letters, digits and a few harmless signs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from gitops.cluster.model.address import Kind
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import (
    BARRIER_KIND,
    CHECK,
    DECISION,
    READINESS,
    REPLICA,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    LockMode,
)
from gitops.cluster.plan.layers import cycles, layers, neighbours, order_test, restricted
from gitops.core.dataclass import dataclass
from gitops.render.characters import visible
from gitops.render.words import count

_UNSAFE = re.compile(r"[^A-Za-z0-9_ .:,-]")
_LABEL = 60
_BOXES = 20
_ALIKE = 4
"""How many nodes of the same graph, kind and action a picture in a comment shows one by one."""

ARROW = " --> "
"""The arrow between two consecutive boxes in a picture without reasons."""


def to_json(graph: ExecutionGraph, plan_digest: str | None = None, *, direction: str = "up") -> dict[str, Any]:
    """Return nodes in plan order with classes and locks, edges with reasons, and the derived layers, cycles and counts.

    `plan_digest` is the digest of the graph's plan, if any. `direction` is `down` for the graph of a revert. Payloads
    and scheduler state are not included, so equal graphs give equal bytes.
    """
    rounds, loops = layers(graph), cycles(graph)
    looped = {name: index for index, loop in enumerate(loops) for name in loop}
    edges = [{"from": e.before, "to": e.after, "reason": e.reason, "detail": e.detail} for e in graph.edges]
    return {
        "version": 1,
        "plan_digest": plan_digest,
        "direction": direction,
        "nodes": [
            {
                "id": node.id,
                "change": node.address if node.changes else None,
                "action": node.action.value,
                "kind": node.kind,
                "class": node.effect.value,
                "lifted": node.lifted,
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


def to_text(graph: ExecutionGraph, *, quiet: Collection[str] = ()) -> str:
    """Return a header with counts, then any cycles, edges with reasons, layers with actions, and contended locks.

    A class is shown unless it is `stage`, and a lock only if it separates nodes. The `quiet` nodes, which are only
    republished queries, share one line per graph and layer, and count as one node in edges.
    """
    rounds, loops = layers(graph), cycles(graph)
    sizes = {"node": len(graph.nodes), "edge": len(graph.edges), "layer": len(rounds), "cycle": len(loops)}
    lines = [f"Execution graph: {', '.join(count(number, noun) for noun, number in sizes.items())}"]
    for loop in loops:
        inside = [edge for edge in graph.edges if edge.before in loop and edge.after in loop]
        lines += ["", "Cycle:", *_edge_lines(inside, {})]
    nodes = {node.id: node for node in graph.nodes}
    halved = {node.of for node in graph.nodes}
    folded: dict[str, str] = {}
    layer_lines: list[str] = []
    for number, layer in enumerate(rounds, start=1):
        members = sorted((nodes[name] for name in layer), key=lambda n: n.position)
        again = Counter(_owner(node) for node in members if node.id in quiet)
        titles = []
        for node in members:
            title = node.title
            if node.id in quiet:
                queries = count(again[owner := _owner(node)], "query", "queries")
                title, folded[node.id] = f"re-publish {queries} of {owner}", f"{queries} of {owner}"
            if node.changes and (node.effect is not Effect.STAGE or node.lifted or node.id in halved):
                # Barriers have no meaningful class, and most nodes are staged.
                where = ", behind the pivot" if node.lifted else ""
                title += f" [{node.effect}{where}{', drops after the commit' if node.id in halved else ''}]"
            titles.append(visible(f"  {title}"))
        layer_lines += ["", f"Layer {number}:", *dict.fromkeys(titles)]
    if graph.edges:
        lines += ["", "Edges:", *_edge_lines(graph.edges, folded)]
    lines += layer_lines
    if locks := _lock_lines(graph, folded):
        lines += ["", "Locks:", *locks]
    return "\n".join(lines) + "\n"


def to_mermaid(graph: ExecutionGraph, *, most: int = _BOXES, reasons: bool = True, quiet: Collection[str] = ()) -> str:
    """Return a left-to-right flowchart (https://mermaid.js.org/syntax/flowchart.html) with a frame for each graph.

    Each compute cluster also has a frame. There are at most `most` boxes. If there are more nodes, nodes of the same
    frame, kind and action share a box that shows their number, or all nodes of a frame do. The `quiet` nodes of a graph
    always share a box. Two boxes are connected by at most one arrow, with all its reasons. Without `reasons`, the picture
    fits into a comment: arrows have no text, there are at most twice as many arrows as boxes, barriers that don't separate
    changes are omitted, and more than four nodes of the same frame, kind and action always share a box.
    """
    graph = graph if reasons else _without_idle_barriers(graph)
    boxes = _boxes(graph, most, quiet, most if reasons else _ALIKE)
    names = {node.id: f"n{index}" for index, box in enumerate(boxes) for node in box.nodes}
    frames: dict[str | None, list[str]] = {}
    for index, box in enumerate(boxes):
        opening, closing = ("{{", "}}") if box.nodes[0].kind == BARRIER_KIND else ("[", "]")
        line = f'n{index}{opening}"{_label(box.label)}"{closing}'
        frames.setdefault(box.graph, []).append(line)
    lines = ["flowchart LR"]
    for index, (name, found) in enumerate(frames.items()):
        if name is None:
            lines += [f"  {line}" for line in found]
        else:
            # A frame without arrows to other boxes would otherwise be drawn from top to bottom, as wide as all its boxes.
            inside = (f"    {line}" for line in ("direction LR", *found))
            lines += [f'  subgraph g{index}["{_label(name)}"]', *inside, "  end"]
    arrows: dict[tuple[str, str], dict[str, None]] = {}
    for edge in graph.edges:
        if edge.before in names and edge.after in names and names[edge.before] != names[edge.after]:
            arrows.setdefault((names[edge.before], names[edge.after]), {})[edge.reason] = None
    if reasons:
        lines += [f'  {before} -->|"{_label(", ".join(known))}"| {after}' for (before, after), known in arrows.items()]
    else:
        lines += [f"  {before}{ARROW}{after}" for before, after in arrows][: 2 * most]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Box:
    """Nodes that share a box, inside a graph's frame if they all belong to that graph."""

    nodes: tuple[ExecNode, ...]
    label: str
    graph: str | None


def _without_idle_barriers(graph: ExecutionGraph) -> ExecutionGraph:
    """Return the graph with only those barriers that wait for a change and that a change waits for.

    The order does not change.
    """
    barriers = {node.id for node in graph.nodes if node.kind == BARRIER_KIND}
    kept = {node.id for node in graph.nodes} - barriers
    after, _ = neighbours(graph)
    near = restricted(graph, kept | {name for name in barriers if not barriers.issuperset(after[name])})
    after, before = neighbours(near)
    near = restricted(near, kept | {name for name in barriers.intersection(after) if before[name]})
    ordered = {(one, other) for one in after for between in set(after[one]) - barriers for other in after[between]}
    edges = (e for e in near.edges if not (barriers.issuperset((e.before, e.after)) and (e.before, e.after) in ordered))
    return ExecutionGraph(near.nodes, tuple(edges))


def _boxes(graph: ExecutionGraph, most: int, quiet: Collection[str], most_alike: int) -> list[_Box]:
    """Group nodes into boxes: one per node, or per graph, kind and action, or per graph, whichever fits first.

    More than `most_alike` nodes of the same graph, kind and action are never shown one by one. A barrier has its own box,
    and nodes before it never share a box with nodes after it. If each graph is one box, there are no barriers.
    """
    nodes = tuple(sorted(graph.nodes, key=lambda node: node.position))
    again: dict[str | None, list[ExecNode]] = {}
    for node in nodes:
        if node.id in quiet:
            again.setdefault(_owner(node), []).append(node)
    alike: dict[tuple[str | None, str, Action, Effect], list[ExecNode]] = {}
    by_graph: dict[str | None, list[ExecNode]] = {}
    for node in nodes:
        if node.kind != BARRIER_KIND:
            by_graph.setdefault(_owner(node), []).append(node)
            if node.id not in quiet:
                alike.setdefault((_owner(node), node.kind, node.action, node.phase), []).append(node)
    barriers = [_Box((node,), _in_frame(node), None) for node in nodes if node.kind == BARRIER_KIND]
    folded = [
        _Box(tuple(found), f"re-publish {len(found)} {'query' if len(found) == 1 else 'queries'}", owner)
        for owner, found in again.items()
    ]
    for least in (most_alike, 1):
        boxes = [box for found in alike.values() for box in _boxes_of(found, one_by_one=len(found) <= least)]
        boxes = sorted((*boxes, *barriers), key=lambda box: box.nodes[0].position)
        if len(boxes) + len(folded) <= most:
            return [*boxes, *folded]
    whole = [
        _Box(tuple(found), f"{len(found)} change{'s' if len(found) > 1 else ''} of {owner or 'the cluster'}", None)
        for owner, found in by_graph.items()
    ]
    if len(whole) <= most:
        return whole
    kept, left = whole[: max(most, 1) - 1], whole[max(most, 1) - 1 :]
    rest = tuple(node for box in left for node in box.nodes)
    return [*kept, _Box(rest, f"{len(rest)} changes of {len(left)} more graphs", None)]


def _boxes_of(alike: Sequence[ExecNode], *, one_by_one: bool) -> Iterator[_Box]:
    """Yield the boxes of nodes of the same graph, kind and action."""
    first = alike[0]
    if one_by_one or len(alike) == 1:
        yield from (_Box((node,), _in_frame(node), _owner(node)) for node in alike)
    elif first.changes:
        kinds = f"{first.kind[:-1]}ies" if first.kind.endswith("y") else f"{first.kind}s"
        yield _Box(tuple(alike), f"{first.action.value} {len(alike)} {kinds}", _owner(first))
    else:
        yield _Box(tuple(alike), f"{CHECK} {len(alike)} {first.kind} nodes", _owner(first))


def _owner(node: ExecNode) -> str | None:
    """Return the name of a node's frame. For a node of a tick, this is its failure group."""
    address = node.address
    if node.kind in (DECISION, REPLICA, READINESS):
        return f"compute cluster {node.group}"
    return address.graph if address.compute is None else f"compute cluster {address.compute}"


def _in_frame(node: ExecNode) -> str:
    """Return a node's title without the name of its graph or compute cluster, which the frame already shows."""
    address = node.address
    if node.kind == BARRIER_KIND:
        return node.id.removeprefix(f"{BARRIER_KIND}.")
    if _owner(node) is None or address.kind is Kind.UNKNOWN or not node.changes:
        return node.title
    name = "" if address.kind in (Kind.GRAPH, Kind.SCHEMA) else f" {address.name}"
    return f"{node.action.value} {node.kind}{name}{', drops' if node.of else ''}"


def _edge_lines(edges: Sequence[ExecEdge], folded: Mapping[str, str]) -> list[str]:
    """Return a line per edge. Equal edges of nodes that are `folded` under one name share a line."""
    ends = ((folded.get(e.before, e.before), folded.get(e.after, e.after), e) for e in edges)
    lines = (f"  {one} -> {other} [{e.reason}{f': {e.detail}' if e.detail else ''}]" for one, other, e in ends)
    return list(map(visible, dict.fromkeys(lines)))


def _lock_lines(graph: ExecutionGraph, folded: Mapping[str, str]) -> list[str]:
    """Return each lock that separates nodes without an edge between them, with all nodes that claim it, in plan order."""
    holders: dict[str, list[tuple[ExecNode, LockClaim]]] = {}
    for node in graph.nodes:
        for claim in node.locks:
            holders.setdefault(claim.key, []).append((node, claim))
    ordered = order_test(graph)
    lines = []
    for key, found in sorted(holders.items()):
        pairs = (pair for pair in combinations(found, 2) if LockMode.EXCLUSIVE in (claim.mode for _, claim in pair))
        if any(not ordered(one.id, other.id) for (one, _), (other, _) in pairs):
            shared = ((node.id, " (shared)" if claim.mode is LockMode.SHARED else "") for node, claim in found)
            names = dict.fromkeys(f"{folded.get(name, name)}{mode}" for name, mode in shared)
            lines.append(visible(f"  {key}: {', '.join(names)}"))
    return lines


def _label(text: str) -> str:
    """Return the first characters of `text`, with everything except harmless ones as Mermaid entity codes."""
    shown = text if len(text) <= _LABEL else f"{text[:_LABEL]}..."
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", shown)
