"""What a decision is made from: a compute cluster as it is, and what its target reports of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from gitops.core.dataclass import dataclass

__all__ = ["NO_CRASHES", "ComputeCluster", "Crashes", "ReplicaSpec", "Signals", "SizeTable"]


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What a replica is made of."""

    size: str


@dataclass(frozen=True, slots=True)
class ComputeCluster:
    """A compute cluster of a target, with its replicas by name.

    A `managed` one gets its replicas from the target itself, which refuses statements about them.
    """

    cluster_id: str
    name: str
    replicas: Mapping[str, ReplicaSpec]
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Crashes:
    """How often a replica went offline with a reason in the last hour, and how often of these it was out of memory."""

    total: int = 0
    out_of_memory: int = 0


NO_CRASHES = Crashes()


@dataclass(frozen=True)
class SizeTable:
    """The sizes of a target, smallest first, each with its credits per hour; None where the target does not list them."""

    credits: Mapping[str, float | None]

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        return {size: rank for rank, size in enumerate(self.credits)}

    def rank(self, size: str) -> tuple[int, str]:
        """The place of a size in the order of sizes. One that the target does not list is larger than all that it does."""
        return self._ranks.get(size, len(self._ranks)), size

    def lacks(self, sizes: Iterable[str]) -> tuple[str, ...]:
        """Those of `sizes` that the target does not list; none where it lists nothing."""
        return tuple(size for size in sizes if size not in self.credits) if self.credits else ()

    def up_to(self, largest: str) -> tuple[str, ...]:
        """The sizes of the target up to this one; none where it does not list it."""
        known = largest in self.credits
        return tuple(size for size in self.credits if self.rank(size) <= self.rank(largest)) if known else ()


@dataclass(frozen=True, slots=True)
class Signals:
    """What a target reported of a compute cluster at one time, `now`, aware and in UTC.

    `last_activity` is when the newest statement of others began or finished, None where none is known. `hydrated` has the names
    of replicas that can answer; whatever is missing there is not hydrated. `crashes` is by the name of the replica.
    """

    now: datetime
    sizes: SizeTable
    last_activity: datetime | None = None
    hydrated: frozenset[str] = frozenset()
    crashes: Mapping[str, Crashes] = field(default_factory=lambda: MappingProxyType({}))
