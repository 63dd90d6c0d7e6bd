"""The short form of a run: when each node began and ended, and what it waited for. It says why a run took as long as it did."""

from __future__ import annotations

from gitops.cluster.model.plan import NodeOutcome
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RunNode:
    """One node of a run; times are milliseconds since its first event.

    What never started has neither `started` nor a worker; a barrier has worker 0. `after` is the node whose end made it ready, or
    the one that kept it from starting. `waited_for` are the nodes that held a lock which it needed when it was ready, or that
    were first in line for one.
    """

    id: str
    ready: int | None
    started: int | None
    finished: int
    worker: int | None
    after: str | None
    waited_for: tuple[str, ...]
    outcome: NodeOutcome

    @property
    def duration(self) -> int:
        """How long it was at work."""
        return 0 if self.started is None else self.finished - self.started


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run: how many workers it had, and its nodes in the order of their ends. It explains, and decides nothing."""

    workers: int
    nodes: tuple[RunNode, ...]
