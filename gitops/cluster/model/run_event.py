"""What happens while an execution graph is carried out, for those who watch it: a terminal, a log, a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a run. `seq` counts from 1 without gaps; `at` is the time of the clock that was handed in.

    The `facts` of each type: `apply_started` nodes, changes (nodes without barriers), limit of workers, fail_fast, and what the
    caller adds. Of every `node_*` action, kind, class, layer and position of the node. `node_ready` dependencies: what is
    before it, all of it done, sorted. `node_lock_wait`, once a node: a worker was free, but the node was passed over; locks,
    and the holders that hold them or wait for them before it. `node_started` worker (1 and up; 0 for a barrier, which needs
    none), locks, waited_ms since it was ready. `node_finished` worker, outcome, duration_ms, outputs: the numbers that its work
    reports. `node_failed`, `node_cancelled`, and `node_indeterminate` where the effect is not known: worker, outcome,
    duration_ms, code and message of the first of its diagnostics; the last one also recovery, the operation that will be
    settled. `node_skipped` outcome, reason, its cause (a dependency, a barrier, or the failed node), and blocked_by: the failed
    node; both None after a stop. `barrier_reached` has only what every event of a node has. `apply_stopping`, once, when the
    run was asked to stop: running, grace_ms.
    `apply_finished` status (done, dry_run, failed, cancelled, interrupted), first_failure in order of time, counts of every
    outcome, duration_ms; interrupted: whether an exception broke off the run.
    """

    seq: int
    at: datetime
    type: str
    node: str | None
    facts: Mapping[str, Any]


Observer = Callable[[RunEvent], None]
"""Gets the events of a run, one after another, in the thread that coordinates it. An exception that it raises ends the run."""


def to_all(*observers: Observer | None) -> Observer:
    """An observer that hands each event to all of these, in their order."""
    present = [observer for observer in observers if observer is not None]

    def hear(event: RunEvent) -> None:
        for observer in present:
            observer(event)

    return hear
