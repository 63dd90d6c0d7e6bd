"""The run of an execution graph as bars along the time: lines of text, or a Mermaid Gantt chart.

Source: https://mermaid.js.org/syntax/gantt.html
"""

from __future__ import annotations

import re

from gitops.cluster.changesets.runs import longest
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.model.run_record import RunNode, RunRecord
from gitops.render.characters import visible

MOST_BARS = 60
_COLUMNS = 40
# In milliseconds: what would be printed as 0.00 s says nothing, however short the run is.
_SHORTEST_WAIT = 5

# A colon ends a name, a comma a field, and a semicolon or a number sign begin what Mermaid reads.
_UNSAFE = re.compile(r"[^A-Za-z0-9_ .-]")
_TAGS = {NodeOutcome.DONE: "done, ", NodeOutcome.UNCHANGED: "done, "}


def to_gantt(run: RunRecord) -> str:
    """A section for each worker, with a bar for each node; what ended badly is `crit`, a barrier a milestone.

    Where a node waited for a lock, a bar before it shows that, with who held the lock. Of a large run the longest 60 are shown,
    and a line says so.
    """
    shown = longest(run, MOST_BARS)
    lines = ["gantt", "  dateFormat x", "  axisFormat %M:%S"]
    if len(shown.nodes) < len(run.nodes):
        lines.append(f"  title the {MOST_BARS} longest of {len(run.nodes)} nodes")
    for worker in sorted({node.worker for node in shown.nodes if node.worker is not None}):
        lines.append(f"  section {'barriers' if worker == 0 else f'worker {worker}'}")
        at_work = (node for node in shown.nodes if node.worker == worker)
        for node in sorted(at_work, key=lambda node: (node.started or 0, node.id)):
            lines += _bars(node)
    return "\n".join(lines) + "\n"


def run_lines(run: RunRecord, nodes: int) -> list[str]:
    """A line for each node in the order of their starts, with a bar: dots while it waits, then a number sign while it is at work.

    Behind the bar is how it ended, what it came after, and what it waited for. `nodes` is how many nodes the execution graph had:
    of a large run the longest 60 are shown, and the barriers that the last write passes are in no record.
    """
    shown = longest(run, MOST_BARS).nodes
    span = max((node.finished for node in run.nodes), default=0)
    lines = [f"  run: {len(shown)} of {nodes} node(s), {run.workers} worker(s), {_seconds(span)}"]
    width = max((len(visible(node.id)) for node in shown), default=0)
    # What never started comes last.
    ordered = sorted(shown, key=lambda node: (node.started is None, node.started or node.finished, node.id))
    return lines + [f"    {visible(node.id):{width}} |{_bar(node, span)}| {_story(node, span)}" for node in ordered]


def _bar(node: RunNode, span: int) -> str:
    """From the start of the run to its end; a node that was at work has one column at least."""
    if node.started is None:
        return " " * _COLUMNS
    ready, began, end = ((at or 0) * _COLUMNS // max(span, 1) for at in (node.ready, node.started, node.finished))
    began = min(began, _COLUMNS - 1)
    work = max(end - began, 1)
    return f"{'.' * (began - min(ready, began)):>{began}}{'#' * work:{_COLUMNS - began}}"


def _story(node: RunNode, span: int) -> str:
    after = [] if node.after is None else [f"after {node.after}"]
    if node.started is None:
        return visible(", ".join([node.outcome.value, *after]))
    said = [f"{_seconds(node.duration)} {node.outcome}", *after]
    waited = node.started - (node.started if node.ready is None else node.ready)
    if node.waited_for:
        said.append(f"waited {_seconds(waited)} for {', '.join(node.waited_for)}")
    elif waited >= _SHORTEST_WAIT and waited * _COLUMNS > span:
        said.append(f"waited {_seconds(waited)} for a worker")
    return visible(", ".join(said))


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"


def _bars(node: RunNode) -> list[str]:
    name, started = _UNSAFE.sub(" ", node.id), node.started or 0
    if node.worker == 0:
        return [f"  {name} : milestone, {started}, {node.finished}"]
    bars = []
    if node.waited_for and node.ready is not None and node.ready < started:
        holders = _UNSAFE.sub(" ", " ".join(node.waited_for))
        bars.append(f"  {name} waits for {holders} : active, {node.ready}, {started}")
    # A bar without a length is not drawn.
    end = max(node.finished, started + 1)
    return [*bars, f"  {name} : {_TAGS.get(node.outcome, 'crit, ')}{started}, {end}"]
