"""The run of an execution graph as bars along the time: a Mermaid Gantt chart (https://mermaid.js.org/syntax/gantt.html)."""

from __future__ import annotations

import re

from gitops.changesets.runs import longest
from gitops.model.plan import NodeOutcome
from gitops.model.run_record import RunNode, RunRecord

MOST_BARS = 60

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
