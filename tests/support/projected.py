"""A cluster whose strategies are applied to a target in memory, rows of the target included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gitops.cluster.model.compute import ComputeTarget
from gitops.cluster.targets.port import newest_strategies
from gitops.cluster.targets.projection import DECLARED_BY
from tests.support.cluster import Cluster
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import TargetWorld, fresh_world

__all__ = ["Projected"]


class Projected(Cluster):
    """A cluster with a target `prod`, and strategies of its compute cluster `serving`."""

    def __init__(self, folder: Path, *, name: str = "library", world: TargetWorld | None = None) -> None:
        """`world` is the target, if it is shared with another cluster."""
        super().__init__(folder, memory=True)
        self.options["metadata"] = {"name": name}
        self.worlds = {"MZ_URL": world or fresh_world(serving={}), "OTHER_URL": fresh_world(serving={})}
        self.variables = set(self.worlds)
        self.section: dict[str, Any] = {
            "targets": {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}}},
            "strategies": {
                "serving": {
                    "target": "prod",
                    "target_size": {"target_size": "50cc"},
                    "burst": {"burst_replica_size": "800cc", "cooldown_s": 60},
                }
            },
        }
        self.save()

    def save(self) -> None:
        if hasattr(self, "section"):
            self.options["compute"] = self.section
        super().save()

    @property
    def world(self) -> TargetWorld:
        """The target `prod`."""
        return self.worlds["MZ_URL"]

    @property
    def serving(self) -> dict[str, Any]:
        """What is declared of `serving`, to be changed."""
        return self.section["strategies"]["serving"]

    def workspace(self, *given: Any, **named: Any) -> Any:
        made = super().workspace(*given, **named)
        return replace(made, open_target=self.open) if self.variables else made

    def open(self, target: ComputeTarget) -> MemoryTarget:
        """A new connection to a target."""
        return MemoryTarget(self.worlds[target.url_env], application_name=target.application_name)

    def rows(self, variable: str = "MZ_URL") -> dict[tuple[str, str], Any]:
        """The rows of a target, without what they say of the cluster folder that they are of."""
        found = newest_strategies(self.worlds[variable].strategy_rows or ())
        return {
            pair: {key: value for key, value in row.config.items() if key != DECLARED_BY} for pair, row in found.items()
        }

    def owners(self) -> set[str]:
        """The cluster folders that the rows of the target name."""
        return {row.config[DECLARED_BY].split(" (")[0] for row in self.world.strategy_rows or ()}
