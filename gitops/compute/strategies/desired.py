"""The replicas that a compute cluster shall have, and why. Each strategy makes a new one from that of the strategy before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec
from gitops.core.dataclass import dataclass

__all__ = ["DesiredState", "Reason"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a replica is wanted, or is not: the strategy or guard that says so, and a sentence."""

    by: str
    replica: str
    text: str

    def __str__(self) -> str:
        return f"{self.by}: {self.text}"


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The replicas by name, the priority of the strategy that had the last word, and every reason so far."""

    cluster_id: str
    target_replicas: Mapping[str, ReplicaSpec]
    priority: int = 0
    reasons: tuple[Reason, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, cluster: ComputeCluster) -> DesiredState:
        """The cluster as it is."""
        return cls(cluster.cluster_id, MappingProxyType(dict(cluster.replicas)))

    @property
    def reason(self) -> str:
        """All reasons as one text."""
        return "; ".join(map(str, self.reasons))

    def names(self, *, size: str | None = None) -> list[str]:
        """The names of the replicas in order, or of those that have a size."""
        return sorted(name for name, spec in self.target_replicas.items() if size is None or spec.size == size)

    def because(self, replica: str) -> tuple[Reason, ...]:
        """The reasons that are about one replica."""
        return tuple(reason for reason in self.reasons if reason.replica == replica)

    def with_replica(self, name: str, spec: ReplicaSpec, by: str, text: str) -> DesiredState:
        """The same with a replica more."""
        replicas = MappingProxyType({**self.target_replicas, name: spec})
        return replace(self, target_replicas=replicas, reasons=(*self.reasons, Reason(by, name, text)))

    def without(self, names: Iterable[str], by: str, text: str) -> DesiredState:
        """The same without some replicas, all for one reason."""
        gone = sorted(set(names) & self.target_replicas.keys())
        kept = MappingProxyType({name: spec for name, spec in self.target_replicas.items() if name not in gone})
        return replace(self, target_replicas=kept, reasons=(*self.reasons, *(Reason(by, name, text) for name in gone)))
