"""Declared replica strategies: one rule per strategy of a compute cluster, and the order in which they decide."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

from gitops.core.dataclass import dataclass


class StrategyType(StrEnum):
    """Strategies in the order in which they decide.

    Later ones see the results of earlier ones and can override them.
    """

    TARGET_SIZE = "target_size"
    SHRINK_TO_FIT = "shrink_to_fit"
    BURST = "burst"
    IDLE_SUSPEND = "idle_suspend"

    @property
    def priority(self) -> int:
        """Position in that order, from 0."""
        return list(StrategyType).index(self)


@dataclass(frozen=True, slots=True)
class TargetSize:
    """Keep a replica of this size, and drop replicas of other sizes once it is hydrated.

    `drop_first` is for a cluster that can have only one replica. The others are dropped before the new one is created,
    so no replica serves until it is hydrated.
    """

    target_size: str
    replica_name: str | None = None
    cooldown_s: int = 0
    drop_first: bool = False


@dataclass(frozen=True, slots=True)
class ShrinkToFit:
    """Keep the smallest size that hydrates without crashing, up to a largest one.

    The counts are for the last hour; a replica that reaches one of them is removed.
    """

    max_replica_size: str
    min_oom_count: int = 1
    min_crash_count: int = 1
    cooldown_s: int = 0


@dataclass(frozen=True, slots=True)
class Burst:
    """Add one replica of this size while no replica is hydrated."""

    burst_replica_size: str
    cooldown_s: int = 0


@dataclass(frozen=True, slots=True)
class IdleSuspend:
    """Drop all replicas of a cluster that has been inactive for this number of seconds."""

    idle_after_s: int
    cooldown_s: int = 0


StrategyRule: TypeAlias = TargetSize | ShrinkToFit | Burst | IdleSuspend


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum number of replicas of a compute cluster at any time, and their maximum cost in credits per hour."""

    max_replicas: int = 5
    max_credits_per_hour: float | None = None


_TYPES: dict[type, StrategyType] = {
    TargetSize: StrategyType.TARGET_SIZE,
    ShrinkToFit: StrategyType.SHRINK_TO_FIT,
    Burst: StrategyType.BURST,
    IdleSuspend: StrategyType.IDLE_SUSPEND,
}


def sizes_of(rules: Iterable[StrategyRule]) -> tuple[str, ...]:
    """Return the sizes that rules use, in order and without duplicates."""
    found: dict[str, None] = {}
    for rule in rules:
        match rule:
            case TargetSize(target_size=size) | ShrinkToFit(max_replica_size=size) | Burst(burst_replica_size=size):
                found[size] = None
    return tuple(found)


def type_of(rule: StrategyRule) -> StrategyType:
    """Return a rule's strategy type."""
    return _TYPES[type(rule)]
