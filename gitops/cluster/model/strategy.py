"""Replica strategies as they are declared: one rule for each strategy of a compute cluster, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

from gitops.core.dataclass import dataclass


class StrategyType(StrEnum):
    """The strategies, in the order in which they decide: a later one sees what the earlier ones want, and may override it."""

    TARGET_SIZE = "target_size"
    SHRINK_TO_FIT = "shrink_to_fit"
    BURST = "burst"
    IDLE_SUSPEND = "idle_suspend"

    @property
    def priority(self) -> int:
        """The place in that order, from 0."""
        return list(StrategyType).index(self)


@dataclass(frozen=True, slots=True)
class TargetSize:
    """The cluster shall have a replica of this size, and none of another size once that one is hydrated.

    `drop_first` is for a cluster that may have one replica only: the others are dropped before the new one is created, so that
    nothing serves until that is hydrated.
    """

    target_size: str
    replica_name: str | None = None
    cooldown_s: int = 0
    drop_first: bool = False


@dataclass(frozen=True, slots=True)
class ShrinkToFit:
    """Of all sizes up to a largest, the smallest that hydrates without crashing shall stay.

    The counts are of the last hour; a replica that reaches one of them is removed.
    """

    max_replica_size: str
    min_oom_count: int = 1
    min_crash_count: int = 1
    cooldown_s: int = 0


@dataclass(frozen=True, slots=True)
class Burst:
    """While no replica is hydrated, one more of this size shall help."""

    burst_replica_size: str
    cooldown_s: int = 0


@dataclass(frozen=True, slots=True)
class IdleSuspend:
    """A cluster without activity for so many seconds shall have no replicas."""

    idle_after_s: int
    cooldown_s: int = 0


StrategyRule: TypeAlias = TargetSize | ShrinkToFit | Burst | IdleSuspend


@dataclass(frozen=True, slots=True)
class Limits:
    """How many replicas a compute cluster may have at any time, and how many credits they may cost per hour."""

    max_replicas: int = 5
    max_credits_per_hour: float | None = None


_TYPES: dict[type, StrategyType] = {
    TargetSize: StrategyType.TARGET_SIZE,
    ShrinkToFit: StrategyType.SHRINK_TO_FIT,
    Burst: StrategyType.BURST,
    IdleSuspend: StrategyType.IDLE_SUSPEND,
}


def sizes_of(rules: Iterable[StrategyRule]) -> tuple[str, ...]:
    """The sizes that rules name, in their order, each once."""
    found: dict[str, None] = {}
    for rule in rules:
        match rule:
            case TargetSize(target_size=size) | ShrinkToFit(max_replica_size=size) | Burst(burst_replica_size=size):
                found[size] = None
    return tuple(found)


def type_of(rule: StrategyRule) -> StrategyType:
    """The strategy that a rule is for."""
    return _TYPES[type(rule)]
