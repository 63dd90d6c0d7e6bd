"""A target of strategies in memory, with the bad habits of a real one: its compute clusters, its tables, and what happens to it.

Habits: managed clusters refuse statements, some clusters permit one replica, a new replica has no hydration status at first and
hydrates after some ticks, an error of the catalog is an XX000, other programs leave several rows of a pair and rows without a
time, and any statement can fail before or after it was carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any, Protocol, TypeVar

from gitops.cluster.targets.port import AuditRow, StrategyRow
from gitops.cluster.targets.signals import SizeTable
from tests.support.strategies import NOW, SIZES

__all__ = ["Fault", "HeldCluster", "HeldReplica", "TargetWorld", "fresh_world", "furnish"]


class Furnished(Protocol):
    """A world that compute clusters are added to."""

    def add_cluster(self, name: str) -> str: ...
    def add_replica(self, cluster: str, name: str, size: str, *, hydrated: bool = False) -> None: ...


World = TypeVar("World", bound=Furnished)


class Fault(StrEnum):
    """What goes wrong at a statement. CANCELLED is a statement timeout."""

    CUT_BEFORE = "cut_before"
    CUT_AFTER = "cut_after"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class HeldReplica:
    """A replica in the target. `hydrated` is None where no status is reported, `online` where none was ever."""

    size: str
    ticks_left: int
    hydrated: bool | None = None
    online: bool | None = None
    crashes: dict[datetime, str] = field(default_factory=dict)


@dataclass(slots=True)
class HeldCluster:
    """A compute cluster in the target; `objects` is how many indexes and sources it has that hydrate."""

    cluster_id: str
    name: str
    managed: bool
    single: bool
    objects: int
    replicas: dict[str, HeldReplica] = field(default_factory=dict)
    statements: list[tuple[str, datetime, datetime | None]] = field(default_factory=list)


@dataclass(slots=True)
class TargetWorld:
    """A target. `statements` counts what it was asked; `faults` says what happens at which of them, counted from 1.

    `now` is the time that it gives to rows.
    """

    hydration_ticks: int = 2
    now: datetime = NOW
    sizes: SizeTable = SIZES
    locks: bool = True
    reachable: bool = True
    statements: int = 0
    log: list[str] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    denied: set[tuple[str, str]] = field(default_factory=set)
    held: dict[str, object] = field(default_factory=dict)
    clusters: dict[str, HeldCluster] = field(default_factory=dict)
    strategy_rows: list[StrategyRow] | None = None
    state_rows: list[tuple[str, int, Mapping[str, Any], datetime | None]] | None = None
    audit_rows: list[AuditRow] | None = None
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    def add_cluster(self, name: str, *, managed: bool = False, single: bool = False, objects: int = 1) -> str:
        """A compute cluster of a user; its id. `single`: it contains sources, and the target permits one replica of it."""
        made = HeldCluster(f"u{next(self._ids)}", name, managed, single, objects)
        self.clusters[name] = made
        return made.cluster_id

    def add_clusters(self, number: int) -> None:
        """Many compute clusters at once, each with a replica `main` that is hydrated."""
        for at in range(1, number + 1):
            self.add_cluster(f"c{at}")
            self.add_replica(f"c{at}", "main", "25cc", hydrated=True)

    def drop_cluster(self, name: str) -> None:
        """Drop it, with its replicas; the rows of the tables stay."""
        del self.clusters[name]

    def set_managed(self, name: str) -> None:
        """The target makes the replicas of a compute cluster by itself from now on."""
        self.clusters[name].managed = True

    def set_single(self, name: str) -> None:
        """A compute cluster contains sources from now on, and the target permits one replica of it."""
        self.clusters[name].single = True

    def forget_size(self, size: str) -> None:
        """The target offers a size no longer."""
        self.sizes = replace(self.sizes, credits={key: cost for key, cost in self.sizes.credits.items() if key != size})

    def add_replica(self, cluster: str, name: str, size: str, *, hydrated: bool = False) -> None:
        """A replica that is there, without a statement of ours."""
        self.clusters[cluster].replicas[name] = HeldReplica(size, self.hydration_ticks)
        if hydrated:
            self.hydrate(cluster, name)

    def replicas(self, cluster: str) -> dict[str, str]:
        """The sizes of the replicas by name."""
        return {name: each.size for name, each in self.clusters[cluster].replicas.items()}

    def hydrate(self, cluster: str, replica: str) -> None:
        """The replica has read what it needs, and is online."""
        each = self.clusters[cluster].replicas[replica]
        each.ticks_left, each.hydrated, each.online = 0, True, True

    def lose_status(self, cluster: str, replica: str) -> None:
        """The target reports no hydration of the replica until the next tick of the world."""
        self.clusters[cluster].replicas[replica].hydrated = None

    def set_online(self, cluster: str, replica: str, *, online: bool) -> None:
        """What the newest status of its processes says."""
        self.clusters[cluster].replicas[replica].online = online

    def crash(self, cluster: str, replica: str, reason: str, at: datetime, processes: int = 1) -> None:
        """Each process of the replica reports that it went offline, all at the same time; it has to hydrate again."""
        each = self.clusters[cluster].replicas[replica]
        each.crashes[at] = reason
        each.hydrated, each.online, each.ticks_left = False, False, self.hydration_ticks

    def activity(
        self, cluster: str, began: datetime, finished: datetime | None = None, application_name: str = "app"
    ) -> None:
        """A statement ran on the compute cluster, or still runs."""
        self.clusters[cluster].statements.append((application_name, began, finished))

    def tick(self) -> None:
        """Time passes: what was lost is reported again, and replicas come closer to being hydrated."""
        for each in (replica for cluster in self.clusters.values() for replica in cluster.replicas.values()):
            each.ticks_left = max(0, each.ticks_left - 1)
            each.hydrated, each.online = each.ticks_left == 0, True

    @property
    def settled(self) -> bool:
        """Return whether every replica is hydrated."""
        return all(replica.ticks_left == 0 for each in self.clusters.values() for replica in each.replicas.values())

    def fail_next(self, fault: Fault, *, after: int = 0) -> None:
        """Let the next statement fail, or the one `after` so many."""
        self.faults[self.statements + 1 + after] = fault

    def forget_faults(self) -> bool:
        """Let no statement fail; whether there was a fault that has not happened."""
        left = bool(self.faults)
        self.faults.clear()
        return left

    def hide(self, relation: str, column: str) -> None:
        """The target is of another version, in which a relation lacks a column."""
        self.missing.add(f"{relation}({column})")

    def deny(self, privilege: str, relation: str) -> None:
        """The role of the program loses a privilege."""
        self.denied.add((privilege, relation))

    def grant(self, privilege: str, relation: str) -> None:
        """The role of the program has a privilege again."""
        self.denied.discard((privilege, relation))

    def without_locks(self) -> None:
        """The target has no advisory locks."""
        self.locks = False

    def stop(self) -> None:
        """The server goes away, and with it every lock."""
        self.reachable = False
        self.held.clear()

    def start(self) -> None:
        """It comes back."""
        self.reachable = True

    def tables(self) -> set[str]:
        """Which of the three tables are there."""
        tables = {
            "strategies": self.strategy_rows,
            "strategy_state": self.state_rows,
            "strategy_actions": self.audit_rows,
        }
        return {f"mz_cluster_{name}" for name, rows in tables.items() if rows is not None}

    def insert_strategy(self, cluster_id: str, kind: str, config: Mapping[str, Any], at: datetime | None) -> None:
        """Another program writes a row."""
        self.strategy_rows = [*(self.strategy_rows or []), StrategyRow(cluster_id, kind, config, at)]

    def delete_strategies(self) -> None:
        """Another program deletes all rows."""
        self.strategy_rows = []

    def insert_state(self, cluster_id: str, version: int, payload: Mapping[str, Any], at: datetime | None) -> None:
        """Another program writes a row."""
        self.state_rows = [*(self.state_rows or []), (cluster_id, version, payload, at)]

    def insert_audit(self, row: AuditRow, at: datetime) -> None:
        """A row of an earlier tick, or of another program."""
        self.audit_rows = [*(self.audit_rows or []), replace(row, created_at=at)]


def fresh_world(**clusters: Mapping[str, str]) -> TargetWorld:
    """A world with these compute clusters, as `furnish` makes them."""
    return furnish(TargetWorld(), **clusters)


def furnish(world: World, **clusters: Mapping[str, str]) -> World:
    """Add compute clusters to a world; the sizes of their replicas by name, with a star behind that of a hydrated one."""
    for name, replicas in clusters.items():
        world.add_cluster(name)
        for replica, size in replicas.items():
            world.add_replica(name, replica, size.rstrip("*"), hydrated=size.endswith("*"))
    return world
