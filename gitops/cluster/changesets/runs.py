"""Builds run records from events, and checks that a run record fits its changeset."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.model.changeset import Changeset, RemovalState, RuntimeState
from gitops.cluster.model.plan import BARRIER_KIND, LOOKS, NodeOutcome, RunEvent, RunNode, RunRecord

_ENDS = frozenset(f"node_{how}" for how in ("finished", "failed", "cancelled", "indeterminate"))
_NO_CHANGES = tuple(f"{kind}." for kind in (BARRIER_KIND, *LOOKS))


class RunLog:
    """Observer that keeps a run's record. If it sees several runs, it keeps the newest."""

    def __init__(self) -> None:
        """Start without a run."""
        self._workers = 1
        self._nodes: list[RunNode] = []

    def __call__(self, event: RunEvent) -> None:
        """Record the next event."""
        if event.type == "apply_started":
            self._began, self._workers, self._nodes = event.at, event.facts["limit"], []
            self._ready: dict[str, tuple[int, str | None]] = {}
            self._started: dict[str, tuple[int, int]] = {}
            self._waited: dict[str, tuple[str, ...]] = {}
        if (name := event.node) is None:
            return
        at = int((event.at - self._began).total_seconds() * 1000)
        if event.type == "node_ready":
            # A node becomes ready when the last of its dependencies ends, and that event is the previous one.
            self._ready[name] = at, self._nodes[-1].id if event.facts["dependencies"] else None
        elif event.type == "node_lock_wait":
            self._waited[name] = event.facts["holders"]
        elif event.type == "node_started":
            self._started[name] = at, event.facts["worker"]
        elif event.type in _ENDS or event.type == "node_skipped":
            ready, after = self._ready.get(name, (None, None))
            began, worker = self._started.get(name, (None, None))
            after = event.facts["cause"] if event.type == "node_skipped" else after
            waited = self._waited.get(name, ())
            self._nodes.append(RunNode(name, ready, began, at, worker, after, waited, event.facts["outcome"]))

    def record(self) -> RunRecord:
        """Return the run's record so far, without nodes that have not ended."""
        return RunRecord(self._workers, tuple(self._nodes))


def longest(record: RunRecord, most: int) -> RunRecord:
    """Return the record with only its `most` slowest nodes, in their original order."""
    chosen = sorted(record.nodes, key=lambda node: (-node.duration, node.id))[:most]
    kept = {node.id for node in chosen}
    return replace(record, nodes=tuple(node for node in record.nodes if node.id in kept))


def critical_path(run: RunRecord) -> tuple[str, ...]:
    """Return the nodes that determined how long a run took, from the first to the one that ended last.

    Each of them made the next one wait: it held the lock that the next one needed until then, or its end made the next
    one ready.
    """
    nodes = {node.id: node for node in run.nodes if node.started is not None}
    at = max(nodes.values(), key=lambda node: (node.finished, node.id), default=None)
    way: list[str] = []
    while at is not None and at.id not in way:
        way.append(at.id)
        began = at.started or 0
        held = [nodes[name] for name in at.waited_for if name in nodes and nodes[name].finished <= began]
        last = max(held, key=lambda node: (node.finished, node.id), default=None)
        after = None if at.after is None else nodes.get(at.after)
        if last is not None and (after is None or last.finished >= after.finished):
            after = last
        at = after
    return tuple(reversed(way))


def contradiction(run: RunRecord, record: Changeset) -> str | None:
    """Explain how this run record contradicts the changeset's record after the run, or None if it does not."""
    if not (record.ended or record.needs_attention):
        return f"the changeset is {record.state}, so its run is not over"
    states: dict[str, RuntimeState] = {member.address: member.runtime.state for member in record.members}
    removals: dict[str, RemovalState] = {removal.address: removal.state for removal in record.removals}
    seen: set[str] = set()
    for node in run.nodes:
        name, failed = node.id, node.outcome.failed
        if name in seen:
            return f"{name} ended twice"
        seen.add(name)
        if node.outcome is NodeOutcome.DRY_RUN:
            return f"{name} was not carried out: this was a dry run"
        if not name.startswith(_NO_CHANGES) and name not in states and name not in removals:
            return f"{name} is not a change of the changeset"
        if not _in_order(node) or (node.worker or 0) > run.workers:
            return f"{name} cannot have run at these times on worker {node.worker}"
        done = states.get(name) is RuntimeState.CANONICAL or removals.get(name) is RemovalState.DELETED
        if (failed and done) or (node.outcome.succeeded and states.get(name) is RuntimeState.FAILED):
            return f"{name} is {node.outcome} in the run, and {states.get(name) or removals[name]} in the record"
    return None


def _in_order(node: RunNode) -> bool:
    times = [at for at in (node.ready, node.started, node.finished) if at is not None]
    return times == sorted(times) and (node.started is None) is (node.worker is None)
