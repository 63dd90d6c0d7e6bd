"""Read replicas: how old their answers can be, what they refuse, and the thread that keeps their copy up to date.

1. A copy's age is counted from the last time when the bucket had nothing newer. It grows while the bucket does not
   respond, and while a newer version cannot be copied.
2. Every response states the maximum age of its data when the request arrived. A copy that is older than it should be is
   marked as stale, and one that is older than the permitted outage is not served.
3. A replica refuses every change, but only after its policies have permitted it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from gitops.cluster.model.replica import CopiedGraph, ReplicaStatus
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError

VERSION, AS_OF, LAG, STALE = (f"omnigraph-replica-{each}" for each in ("version", "as-of", "lag", "stale"))
"""The headers of a replica's answers."""

_RETRY_AFTER_S = "5"
_LOOKS_IN_TIME = 2
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True)
class ReplicaRules:
    """The intended maximum age of a copy in seconds, its maximum age during an outage, and the writer's address."""

    max_staleness_s: float
    max_outage_s: float
    writer: str | None = None


class ReadReplica:
    """Tracks the age of this server's copy. Thread-safe."""

    def __init__(self, status: Callable[[], ReplicaStatus], rules: ReplicaRules, now: Callable[[], datetime]) -> None:
        """`status` returns the newest status of the copy, and is called for every request."""
        self._status, self._rules, self._now = status, rules, now

    def admit(self, graph: str | None) -> Mapping[str, str]:
        """Return the headers for a response from a graph, or for one about the server.

        Raises ProblemError 503 if the graph's copy is too old.
        """
        status = self._status()
        found = None if graph is None else status.graphs.get(graph, CopiedGraph())
        as_of = _oldest(status) if found is None else found.as_of
        age, most = self._age(as_of), self._rules.max_outage_s
        if found is not None and age > most:
            message = f"this replica's copy of graph '{graph}' is {age:.0f} s old; at most {most:.0f} s are allowed"
            more = {"replica_stale": {"reason": Code.REPLICA_TOO_STALE.value, "lag_s": round(age, 1)}}
            raise ProblemError(ApiProblem(503, None, message, more, {"Retry-After": _RETRY_AFTER_S}))
        version = {} if found is None else {VERSION: str(found.version)}
        stale = {STALE: "true"} if age > self._rules.max_staleness_s else {}
        return {**version, AS_OF: timestamp(datetime.fromtimestamp(as_of, UTC)), LAG: f"{age:.1f}", **stale}

    def refuse_change(self) -> ProblemError:
        """Return the problem for a change."""
        writer = self._rules.writer
        where = "a server that is not a replica" if writer is None else writer
        message = f"this server is a read replica, and answers reads only: send changes to {where}"
        more = {"read_replica": {"reason": Code.REPLICA_READ_ONLY.value, "writer": writer}}
        return ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message, more))

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the copy's state as JSON, for probes and metrics."""
        status = self._status()
        graphs = {
            name: {"version": each.version, "lag_s": round(self._age(each.as_of), 1), "code": each.code}
            for name, each in sorted(status.graphs.items())
        }
        lag = self._age(_oldest(status))
        return {
            "lag_s": round(lag, 1),
            "stale": lag > self._rules.max_staleness_s,
            "too_stale": lag > self._rules.max_outage_s,
            "code": status.code,
            "writer": self._rules.writer,
            "graphs": graphs,
            "held_bytes": status.held_bytes,
            "most_bytes": status.most_bytes,
            "copied_files": status.copied_files,
            "copied_bytes": status.copied_bytes,
            "damaged_files": status.damaged_files,
        }

    def _age(self, as_of: float) -> float:
        return max(0.0, self._now().timestamp() - as_of)


def _oldest(status: ReplicaStatus) -> float:
    return min([status.ledger_as_of, *(each.as_of for each in status.graphs.values())])


class Copying(Protocol):
    """A cluster's copy, with the interface of `ReplicaCopy`."""

    def hold(self) -> bool:
        """Acquire the right to copy, if no other process has it."""
        ...

    def round(self) -> None:
        """Copy everything that is new."""
        ...


@contextmanager
def following(
    copy: Copying, rules: ReplicaRules, now: Callable[[], float], failed: Callable[[str], None]
) -> Iterator[None]:
    """During the block, copy everything new, often enough that the copy is never older than it should be.

    If another process is copying, take over when it ends. `now` returns seconds. `failed` is called with an unexpected
    error's message.
    """
    stopped, every_s, due = threading.Event(), rules.max_staleness_s / _LOOKS_IN_TIME, now()

    def run() -> None:
        nonlocal due
        while not stopped.wait(max(_SHORTEST_S, due + every_s - now())):
            due = now()
            try:
                if copy.hold():
                    copy.round()
            except Exception as error:  # noqa: BLE001 - the copy gets older, which readers see, until a later round succeeds
                failed(f"{type(error).__name__}: {error}")

    threading.Thread(target=run, name="replica", daemon=True).start()
    try:
        yield
    finally:
        stopped.set()
