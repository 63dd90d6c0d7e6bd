"""Ticks on a bench: applied strategies in a ledger, a target that is the twin or PostgreSQL, and the verbs on both.

`Ticks(folder, world)` has one target, `prod`. `apply_strategies` records strategies as an apply would; a tick is a new run, as of
another process: only the ledger and the world survive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from gitops.cluster.ledger.port import LedgerStore
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Changeset, ChangesetKind
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, strategy_resources
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.plan import NodeResult
from gitops.cluster.model.resource import Resource
from gitops.cluster.model.strategy import Limits, type_of
from gitops.cluster.targets.port import AuditRow, StrategyTarget
from gitops.compute.materialize.target import MaterializeTarget
from gitops.compute.ticks.targets import Selection
from gitops.compute.ticks.tick import Ticking, TickOutcome, preview, tick
from gitops.core.faults import Faults
from tests.support.cluster import Cluster, codes
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.memory_target import MemoryTarget
from tests.support.strategies import rules
from tests.support.target_world import TargetWorld

__all__ = ["Ticks", "codes", "sql", "statements"]

Declared = Mapping[str, Mapping[str, Any]]


class Ticks:
    """See the module."""

    def __init__(self, folder: Path, world: TargetWorld | ServerWorld, *, memory: bool = True) -> None:
        """`memory` keeps the ledger in memory, else it is in the folder."""
        self.cluster = Cluster(folder, memory=memory)
        self.urls: list[tuple[str, str]] = []
        self.worlds: dict[str, Any] = {"prod": world}
        self.declared: Mapping[str, Declared] = {}
        self.applied: Mapping[Address, Resource] = {}
        self.connecting: dict[str, Any] = {}

    @property
    def world(self) -> Any:
        """The target `prod`."""
        return self.worlds["prod"]

    def apply_strategies(
        self, declared: Mapping[str, Declared], *, limits: Limits | None = None, on: Mapping[str, str] | None = None
    ) -> None:
        """Record these strategies by compute cluster; `on` names the target of those that are not on `prod`."""
        places = on or {}
        made = [
            ComputeRules(
                key,
                ComputeTarget(place := places.get(key, "prod"), f"{place.upper()}_URL"),
                key,
                tuple(sorted(rules(each), key=lambda rule: type_of(rule).priority)),
                limits or Limits(),
            )
            for key, each in declared.items()
        ]
        self.declared, self.applied = declared, strategy_resources(made)
        found = self.applied
        for name, resource in found.items():
            assert resource.content is not None
            self.ledger.put_blob(name, resource.content)
        applied = {name: AppliedResource(each.digest) for name, each in found.items()}
        self.cluster.put_state(LedgerState(revision=1, resources=applied))

    @property
    def ledger(self) -> LedgerStore:
        """The ledger, as another program opens it."""
        return self.cluster.ledger()

    def open(self, target: ComputeTarget) -> StrategyTarget:
        """A new connection to a target; `connecting` has settings of one to the stand-in."""
        world = self.worlds[target.name]
        if isinstance(world, TargetWorld):
            return MemoryTarget(world)
        return MaterializeTarget(address(world, **self.connecting))

    def connect(self) -> StrategyTarget:
        """A new connection to the target `prod`, as another program opens it."""
        return self.open(ComputeTarget("prod", "PROD_URL"))

    def how(self, *, clusters: str | None = None, target: str | None = None, scheduled: bool = False) -> Ticking:
        """How a tick is run."""
        pattern = None if clusters is None else re.compile(clusters)
        return Ticking(self.open, Selection(pattern, target), scheduled=scheduled)

    def tick(self, faults: Faults | None = None, **how: Any) -> TickOutcome:
        """A tick."""
        return tick(self.cluster.workspace("ada", faults), self.how(**how))

    def preview(self, **how: Any) -> TickOutcome:
        """What a tick would do."""
        return preview(self.cluster.workspace("ada"), self.how(**how))

    def pass_time(self, **span: float) -> None:
        """Let time pass, on the clock and in every world."""
        self.cluster.clock.advance(timedelta(**span))
        for world in self.worlds.values():
            world.tick()

    def until_quiet(self, most: int = 12) -> list[str]:
        """Tick every five minutes until a tick does nothing; the statements that were carried out."""
        done: list[str] = []
        for _ in range(most):
            outcome = self.tick()
            done += sql(outcome)
            assert outcome.ok, codes(outcome)
            if not outcome.actions and all(world.settled for world in self.worlds.values()):
                return done
            self.pass_time(minutes=5)
        raise AssertionError("the ticks do not come to rest")

    def changesets(self) -> list[Changeset]:
        """The changesets of ticks, the newest first."""
        found = (self.ledger.changeset(key) for key in self.ledger.changeset_keys())
        return [each for each in found if each is not None and each.kind is ChangesetKind.TICK]

    @property
    def audited(self) -> list[AuditRow]:
        """The audit rows of the target `prod`."""
        return list(self.world.audit_rows or ())

    def executed(self) -> list[str]:
        """The statements that the audit rows say were executed."""
        return [row.action_sql for row in self.audited if row.executed]

    @property
    def sent(self) -> list[str]:
        """The statements about replicas that the target `prod` got, in order."""
        return [line for line in self.world.log if line.startswith(("CREATE CLUSTER", "DROP CLUSTER"))]


def sql(outcome: TickOutcome) -> list[str]:
    """The statements of a tick in order."""
    return [action.sql for action in outcome.actions]


def statements(outcome: TickOutcome) -> list[NodeResult]:
    """How the statements of a tick ended."""
    found = {action.address for action in outcome.actions}
    return [each for each in outcome.results if each.node_id in found]
