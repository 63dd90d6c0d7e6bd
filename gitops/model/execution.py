"""The execution graph: plain, inspectable data in a plan. It holds no scheduler state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gitops.core.diagnostics import Diagnostic
from gitops.model.change import Action


class LockMode(StrEnum):
    """Exclusive: one holder. Shared: many, but no exclusive one."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, order=True)
class LockClaim:
    """A lock that a node holds while it runs."""

    key: str
    mode: LockMode = LockMode.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class ExecNode:
    """One active change as a unit of work.

    `id` is the address (or `barrier.<name>`), `kind` the resource kind (or `barrier`). `position` is unique and is the
    tie-break of the serial order. `locks` is sorted. `group` names a failure group: after one of its nodes failed, no further
    node of the group starts (graph-moving work stops at its first failure); empty means none.
    """

    id: str
    kind: str
    action: Action
    position: int
    locks: tuple[LockClaim, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True, order=True)
class ExecEdge:
    """`before` must have finished successfully when `after` starts; `reason` is a stable label."""

    before: str
    after: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """Nodes in plan order and edges sorted; acyclic by construction of `build_graph`."""

    nodes: tuple[ExecNode, ...] = ()
    edges: tuple[ExecEdge, ...] = ()


class Outcome(StrEnum):
    """How a node ended. UNKNOWN: its effect could not be determined, so it is never retried blindly."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The one outcome of a node.

    `blocked_by` names the node whose failure kept this one from starting. `facts` is plain JSON that the provider
    reports (such as the manifest version after a migration).
    """

    node_id: str
    outcome: Outcome
    diagnostics: tuple[Diagnostic, ...] = ()
    blocked_by: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None
