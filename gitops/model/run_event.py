"""What happens while an execution graph is carried out, for those who watch it: a terminal, a log, a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a run. `seq` counts from 1 without gaps; `at` is the time of the clock that was handed in.

    The `facts` of each type: `apply_started` nodes, changes (nodes without barriers), limit of workers, fail_fast. Of every
    `node_*` action, kind and position of the node. `node_ready` dependencies: what is before it, all of it done, sorted.
    `node_lock_wait`, once a node: a worker was free, but the node was passed over; locks, and the holders that hold them or wait
    for them before it. `node_started` worker (1 and up; 0 for a barrier, which needs none), locks, waited_ms since it was ready.
    `node_finished` worker, duration_ms. `node_failed`, also where the effect is unknown: the same, outcome, diagnostics.
    `node_skipped` reason, blocked_by: the failed node, None after a stop. `apply_finished` counts of every outcome, duration_ms;
    interrupted: whether an exception broke off the run.
    """

    seq: int
    at: datetime
    type: str
    node: str | None
    facts: Mapping[str, Any]


Observer = Callable[[RunEvent], None]
"""Gets the events of a run, one after another, in the thread that coordinates it. An exception that it raises ends the run."""
