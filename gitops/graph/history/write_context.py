"""What every write to a graph needs from outside: time, ids, the actor and a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from gitops.core.clock import Clock, IdSource
from gitops.core.faults import Faults, NoFaults

__all__ = ["WriteContext", "precise_timestamp"]


@dataclass(frozen=True, slots=True)
class WriteContext:
    """`actor` and `message` are named in the versions that are made."""

    clock: Clock
    ids: IdSource
    actor: str | None = None
    message: str | None = None
    faults: Faults = field(default_factory=NoFaults)

    def now(self) -> datetime:
        """One reading of the clock."""
        return self.clock.now()


def precise_timestamp(moment: datetime) -> str:
    """RFC 3339 UTC text with `Z`, in microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
