"""Events of a run. No command shows them yet; tests prove the order of a run by them.

Per node: ready, maybe lock wait, started, then exactly one of finished, failed and skipped; a skipped node may have been
ready but never started. Nothing follows `apply_finished`. `seq` counts from 1 without gaps and is given by the one thread
that coordinates; `at` is the time of the clock that was handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from gitops.core.diagnostics import Diagnostic
from gitops.model.plan import LockClaim, NodeOutcome
from gitops.plan.schedule import SkipReason


@dataclass(frozen=True, slots=True)
class Event:
    """Number in the run, and time, both from the coordinator."""

    type: ClassVar[str] = ""
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True)
class ApplyStarted(Event):
    """The run begins."""

    type: ClassVar[str] = "apply_started"
    nodes: int
    workers: int
    fail_fast: bool


@dataclass(frozen=True, slots=True)
class NodeReady(Event):
    """Everything before the node is done; `dependencies` names that, sorted."""

    type: ClassVar[str] = "node_ready"
    node: str
    dependencies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeLockWait(Event):
    """A worker was free, but the node was passed over: keys, and who holds them or waits for them before it. Once a node."""

    type: ClassVar[str] = "node_lock_wait"
    node: str
    keys: tuple[str, ...]
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """The node runs on a worker (1 and up; 0 for a barrier, which needs none) and holds its locks."""

    type: ClassVar[str] = "node_started"
    node: str
    worker: int
    locks: tuple[LockClaim, ...]


@dataclass(frozen=True, slots=True)
class NodeFinished(Event):
    """The node is done."""

    type: ClassVar[str] = "node_finished"
    node: str
    worker: int


@dataclass(frozen=True, slots=True)
class NodeFailed(Event):
    """The node failed, or its effect is unknown."""

    type: ClassVar[str] = "node_failed"
    node: str
    worker: int
    outcome: NodeOutcome
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class NodeSkipped(Event):
    """The node will never start; `blocked_by` names the failed node, None after a stop."""

    type: ClassVar[str] = "node_skipped"
    node: str
    reason: SkipReason
    blocked_by: str | None


@dataclass(frozen=True, slots=True)
class ApplyFinished(Event):
    """The last event. `counts` has every outcome; `interrupted` says that the run was broken off by an exception."""

    type: ClassVar[str] = "apply_finished"
    counts: Mapping[NodeOutcome, int]
    interrupted: bool
