"""Pictures as SVG: a layered drawing of boxes and arrows, and a run as bars over time.

1. The same input gives the same bytes: all coordinates are whole numbers, and every choice has an order.
2. Boxes are in the layer after their last predecessor. Edges that close a cycle are drawn, but don't count for the layers.
   Four barycentre sweeps order the boxes of each layer (Sugiyama, Tagawa, Toda 1981).
3. Text is escaped, and attributes contain only numbers and fixed words. Colours come from the style sheet, by class.

A picture never says anything that the table next to it does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from gitops.cluster.changesets.runs import critical_path
from gitops.cluster.model.plan import RunNode, RunRecord
from gitops.core.dataclass import dataclass
from gitops.render.characters import visible
from gitops.render.environment import Markup
from gitops.render.words import count

MOST_BOXES = 200
"""Number of boxes from which a layer is drawn as one box with their number."""

_SWEEPS = 4
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 190, 26, 70, 12, 8
_LETTERS = 26
_LABELS, _CHART, _BAR = 90, 640, 18


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its id, the text in it, and a word for the style sheet."""

    id: str
    label: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and the layers that it shows, with the ids of their boxes in the order from top to bottom."""

    svg: Markup
    layers: tuple[tuple[str, ...], ...]


def draw_layers(
    boxes: Sequence[Box], edges: Iterable[tuple[str, str]], title: str, *, most: int = MOST_BOXES
) -> Drawing:
    """Draw boxes with unique ids in layers from left to right, and an arrow for each edge between two different boxes."""
    known = {box.id: box for box in boxes}
    links = sorted({(one, other) for one, other in edges if one != other and one in known and other in known})
    layers = _ordered(_layers(known, links), links)
    if len(known) > most:
        return Drawing(_draw_counts([len(layer) for layer in layers], title), layers)
    place: dict[str, tuple[int, int]] = {}
    highest = max(map(len, layers), default=0)
    for column, layer in enumerate(layers):
        above = (highest - len(layer)) * (_HEIGHT + _DOWN) // 2
        for row, name in enumerate(layer):
            place[name] = (
                _EDGE + column * (_WIDTH + _ACROSS),
                _EDGE + above + row * (_HEIGHT + _DOWN),
            )
    parts = [_arrow(place[before], place[after]) for before, after in links]
    parts += [_box(known[name], *place[name]) for layer in layers for name in layer]
    described = f"{count(len(known), 'box', 'boxes')} in {count(len(layers), 'layer')}, {count(len(links), 'arrow')}"
    return Drawing(_svg(parts, len(layers), highest, title, described), layers)


def _draw_counts(sizes: Sequence[int], title: str) -> Markup:
    """Draw a box per layer, with the number of its members."""
    boxes = [Box(str(number), count(size, "node"), "layer") for number, size in enumerate(sizes, 1)]
    place = [(_EDGE + column * (_WIDTH + _ACROSS), _EDGE) for column in range(len(boxes))]
    parts = [_arrow(before, after) for before, after in pairwise(place)]
    parts += [_box(box, *at) for box, at in zip(boxes, place, strict=True)]
    described = f"too large to draw: {count(len(sizes), 'layer')} with {count(sum(sizes), 'node')}"
    return _svg(parts, len(boxes), 1, title, described)


def _layers(names: Iterable[str], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the names by the length of the longest way to them, without links that close a cycle."""
    after: dict[str, list[str]] = {name: [] for name in sorted(names)}
    for one, other in links:
        after[one].append(other)
    # In a depth-first search, a link to a name that is still open closes a cycle.
    order, state, back = list[str](), dict[str, bool](), set[tuple[str, str]]()
    for root, first in after.items():
        if root in state:
            continue
        state[root] = True
        stack = [(root, iter(first))]
        while stack:
            name, targets = stack[-1]
            for target in targets:
                if state.get(target):
                    back.add((name, target))
                elif target not in state:
                    state[target] = True
                    stack.append((target, iter(after[target])))
                    break
            else:
                state[name] = False
                order.append(name)
                stack.pop()
    rank = dict.fromkeys(after, 0)
    for name in reversed(order):
        for target in after[name]:
            if (name, target) not in back:
                rank[target] = max(rank[target], rank[name] + 1)
    found: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for name in after:
        found[rank[name]].append(name)
    return found


def _ordered(layers: list[list[str]], links: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Order each layer by the mean position of the neighbours in the layer swept before, forwards and backwards in turn."""
    near: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for layer in layers for name in layer}
    for before, after in links:
        near[after][0].append(before)
        near[before][1].append(after)
    for sweep in range(_SWEEPS):
        side, step = sweep % 2, -1 if sweep % 2 else 1
        at = {name: row for layer in layers for row, name in enumerate(layer)}
        for index in range(len(layers))[::step]:
            keys: dict[str, tuple[float, int]] = {}
            for row, name in enumerate(layers[index]):
                rows = [at[other] for other in near[name][side]]
                # Rounding keeps the order independent of how a machine adds floating-point numbers.
                keys[name] = (round(sum(rows) / len(rows), 6) if rows else row, row)
            layers[index].sort(key=keys.__getitem__)
            at |= {name: row for row, name in enumerate(layers[index])}
    return tuple(map(tuple, layers))


def _svg(parts: Iterable[Markup], columns: int, rows: int, title: str, described: str) -> Markup:
    width = 2 * _EDGE + max(1, columns) * (_WIDTH + _ACROSS) - _ACROSS
    height = 2 * _EDGE + max(1, rows) * (_HEIGHT + _DOWN) - _DOWN
    return _framed(parts, width, height, title, described)


def _framed(parts: Iterable[Markup], width: int, height: int, title: str, described: str) -> Markup:
    inside = Markup("").join(parts)
    head = Markup('<svg class="picture" role="img" width="{0}" height="{1}" viewBox="0 0 {0} {1}">').format(
        width, height
    )
    named = Markup("<title>{}</title><desc>{}</desc>").format(visible(title), visible(described))
    return head + named + inside + Markup("</svg>")


def _box(box: Box, x: int, y: int) -> Markup:
    text = visible(box.label)
    shown = text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
    return Markup(
        '<g class="box {}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="3"/>'
        '<text x="{}" y="{}">{}</text></g>'
    ).format(box.style, text, x, y, _WIDTH, _HEIGHT, x + _EDGE, y + _HEIGHT - _EDGE, shown)


def _arrow(before: tuple[int, int], after: tuple[int, int]) -> Markup:
    """Return a curve from the right side of one box to the left side of another, with a tip."""
    x, y = before[0] + _WIDTH, before[1] + _HEIGHT // 2
    to_x, to_y = after[0] - 1, after[1] + _HEIGHT // 2
    bend = _ACROSS // 2
    path = f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}M{to_x - 6} {to_y - 4}L{to_x} {to_y}L{to_x - 6} {to_y + 4}"
    return Markup('<path class="arrow" d="{}"/>').format(path)


# -- a run -------------------------------------------------------------------------------------------------------------


def draw_run(run: RunRecord, title: str) -> Markup:
    """Draw a row of bars per worker; the waits for locks are hatched, and the nodes of the critical path have a border."""
    span = max((node.finished for node in run.nodes), default=0)
    critical = frozenset(critical_path(run))
    by_worker: dict[int, list[RunNode]] = {}
    for node in run.nodes:
        if node.worker and node.started is not None:
            by_worker.setdefault(node.worker, []).append(node)
    parts = [
        Markup(
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
            '<path class="hatch" d="M0 6L6 0"/></pattern></defs>'
        )
    ]
    for row, worker in enumerate(sorted(by_worker)):
        y = _EDGE + row * (_BAR + _DOWN)
        parts.append(Markup('<text x="0" y="{}">worker {}</text>').format(y + _BAR - 4, worker))
        for node in sorted(by_worker[worker], key=lambda node: (node.started or 0, node.id)):
            parts += _bars(node, y, span, critical=node.id in critical)
    height = 2 * _EDGE + max(1, len(by_worker)) * (_BAR + _DOWN)
    described = f"{count(len(run.nodes), 'node')} on {count(run.workers, 'worker')} in {span} ms"
    return _framed(parts, _LABELS + _CHART + _EDGE, height, title, described)


def _bars(node: RunNode, y: int, span: int, *, critical: bool) -> Iterable[Markup]:
    def at(moment: int) -> int:
        return _LABELS + moment * _CHART // max(span, 1)

    started = node.started or 0
    if node.waited_for and node.ready is not None and node.ready < started:
        yield Markup('<rect class="wait" x="{}" y="{}" width="{}" height="{}" fill="url(#hatch)"/>').format(
            at(node.ready), y, max(1, at(started) - at(node.ready)), _BAR
        )
    style = "critical " if critical else ""
    style += "failed" if node.outcome.failed else "done"
    yield Markup('<g class="bar {}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}"/></g>').format(
        style,
        visible(f"{node.id}: {node.outcome}, {node.duration} ms"),
        at(started),
        y,
        max(2, at(node.finished) - at(started)),
        _BAR,
    )
