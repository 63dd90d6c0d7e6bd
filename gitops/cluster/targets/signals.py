"""The inputs of a strategy's decision: a compute cluster, its target's signals, and the stored strategy states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.strategy import StrategyType
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """A replica's properties."""

    size: str


@dataclass(frozen=True, slots=True)
class ComputeCluster:
    """A target's compute cluster, with its replicas by name.

    For a `managed` cluster, the target itself creates the replicas and refuses statements about them.
    """

    cluster_id: str
    name: str
    replicas: Mapping[str, ReplicaSpec]
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Crashes:
    """How often a replica went offline for a known reason in the last hour: in total, and because of memory."""

    total: int = 0
    out_of_memory: int = 0


NO_CRASHES = Crashes()


@dataclass(frozen=True)
class SizeTable:
    """A target's sizes, smallest first, with their credits per hour (None if the target does not list them)."""

    credits: Mapping[str, float | None]

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        return {size: rank for rank, size in enumerate(self.credits)}

    def rank(self, size: str) -> tuple[int, str]:
        """Return a size's rank. A size that the target does not list ranks above all listed ones."""
        return self._ranks.get(size, len(self._ranks)), size

    def lacks(self, sizes: Iterable[str]) -> tuple[str, ...]:
        """Return the `sizes` that the target does not list, or none if it lists no sizes at all."""
        return tuple(size for size in sizes if size not in self.credits) if self.credits else ()

    def up_to(self, largest: str) -> tuple[str, ...]:
        """Return the target's sizes up to this one, or none if the target does not list it."""
        known = largest in self.credits
        return tuple(size for size in self.credits if self.rank(size) <= self.rank(largest)) if known else ()


@dataclass(frozen=True, slots=True)
class Signals:
    """A target's signals for a compute cluster at the time `now`, which is timezone-aware and in UTC.

    `last_activity` is when the newest statement of other users began or finished; None if none is known. `hydrated`
    contains the names of replicas that can answer; all others are not hydrated. `crashes` is keyed by replica name.
    """

    now: datetime
    sizes: SizeTable
    last_activity: datetime | None = None
    hydrated: frozenset[str] = frozenset()
    crashes: Mapping[str, Crashes] = field(default_factory=lambda: MappingProxyType({}))


# A strategy's state for one compute cluster between two ticks, and its form in the target's state table.
#
# A row with a different version, or an unreadable one, counts as missing. The strategy then starts again and, because a
# new state counts as activity, nothing is dropped.


STATE_VERSION = 2


@dataclass(frozen=True, slots=True)
class PendingReplica:
    """A replica that was requested but not observed yet."""

    name: str
    size: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StrategyState:
    """One strategy's stored state. All times are timezone-aware.

    `first_seen` is when the strategy first saw the cluster, `woken` when a person last woke it; both count as activity.
    `last_decision` is when it last changed the cluster. `failed_sizes` contains the time at which a replica of a size
    was abandoned.
    """

    strategy: StrategyType
    cluster_name: str
    first_seen: datetime
    last_decision: datetime | None = None
    last_outcome: str | None = None
    woken: datetime | None = None
    pending: PendingReplica | None = None
    failed_sizes: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))

    def cooling(self, now: datetime, cooldown_s: int) -> bool:
        """Return True if the last decision is more recent than the cooldown."""
        return self.last_decision is not None and (now - self.last_decision).total_seconds() < cooldown_s

    @property
    def payload(self) -> Mapping[str, Any]:
        """Return the state as JSON, omitting unset values."""
        pending = self.pending
        form = {
            "strategy_type": self.strategy.value,
            "cluster_name": self.cluster_name,
            "first_seen_ts": _text(self.first_seen),
            "last_decision_ts": _text(self.last_decision),
            "last_outcome": self.last_outcome,
            "woken_ts": _text(self.woken),
            "pending_target_replica": None
            if pending is None
            else {"name": pending.name, "size": pending.size, "created_at": _text(pending.created_at)},
            "failed_sizes": {size: _text(at) for size, at in sorted(self.failed_sizes.items())} or None,
        }
        return {key: value for key, value in form.items() if value is not None}


def read_payload(version: object, payload: object) -> StrategyState | None:
    """Read a state from its row. Returns None for a row of another version or a payload that `payload` could not have written.

    A time that cannot be parsed, or that has no zone, counts as missing; without `first_seen_ts`, there is no state.
    """
    if version != STATE_VERSION or not isinstance(payload, Mapping):
        return None
    first_seen, name = _time(payload.get("first_seen_ts")), payload.get("cluster_name")
    strategy = payload.get("strategy_type")
    if first_seen is None or not isinstance(name, str) or strategy not in set(StrategyType):
        return None
    outcome, failed = payload.get("last_outcome"), payload.get("failed_sizes")
    times = {size: _time(at) for size, at in failed.items()} if isinstance(failed, Mapping) else {}
    return StrategyState(
        StrategyType(strategy),
        name,
        first_seen,
        last_decision=_time(payload.get("last_decision_ts")),
        last_outcome=outcome if isinstance(outcome, str) else None,
        woken=_time(payload.get("woken_ts")),
        pending=_pending(payload.get("pending_target_replica")),
        failed_sizes=MappingProxyType({size: at for size, at in times.items() if at is not None}),
    )


def _pending(form: object) -> PendingReplica | None:
    if not isinstance(form, Mapping):
        return None
    name, size, created = form.get("name"), form.get("size"), _time(form.get("created_at"))
    if not isinstance(name, str) or not isinstance(size, str) or created is None:
        return None
    return PendingReplica(name, size, created)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _time(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found
