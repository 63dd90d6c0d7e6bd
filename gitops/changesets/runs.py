"""From the events of a run to its record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gitops.model.run_event import RunEvent
from gitops.model.run_record import RunNode, RunRecord

_ENDS = frozenset(f"node_{how}" for how in ("finished", "failed", "cancelled", "indeterminate"))


def run_record(events: Iterable[RunEvent]) -> RunRecord:
    """The record of the run whose events these are, from the first on; nodes that have not ended yet are left out."""
    first, *rest = events
    ready: dict[str, int] = {}
    started: dict[str, tuple[int, int]] = {}
    waited: dict[str, tuple[str, ...]] = {}
    nodes = []
    for event in rest:
        if (name := event.node) is None:
            continue
        at = int((event.at - first.at).total_seconds() * 1000)
        if event.type == "node_ready":
            ready[name] = at
        elif event.type == "node_lock_wait":
            waited[name] = event.facts["holders"]
        elif event.type == "node_started":
            started[name] = at, event.facts["worker"]
        elif event.type in _ENDS or event.type == "node_skipped":
            outcome = event.facts["outcome"]
            began, worker = started.get(name, (None, None))
            nodes.append(RunNode(name, ready.get(name), began, at, worker, waited.get(name, ()), outcome))
    return RunRecord(first.facts["limit"], tuple(nodes))


def longest(record: RunRecord, most: int) -> RunRecord:
    """The record with its `most` nodes that took longest, in their order."""
    chosen = sorted(record.nodes, key=lambda node: (-node.duration, node.id))[:most]
    kept = {node.id for node in chosen}
    return replace(record, nodes=tuple(node for node in record.nodes if node.id in kept))
