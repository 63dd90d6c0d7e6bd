"""What stories happen on: a cluster with its ledger on disk, a target as its twin or on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.model.strategy import Limits
from tests.support.cluster import Cluster
from tests.support.target_world import TargetWorld, furnish
from tests.support.ticks import Ticks


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.fixture
def converged(cluster: Cluster) -> Cluster:
    """The same, applied."""
    cluster.converge()
    return cluster


@pytest.fixture(params=["twin", "server"])
def world(request: pytest.FixtureRequest) -> Any:
    """A target: its twin in memory, and PostgreSQL behind the proxy, with the real driver and its bytes between them."""
    return TargetWorld() if request.param == "twin" else request.getfixturevalue("stand_in")


@pytest.fixture
def make(tmp_path: Path, world: Any) -> Callable[..., Ticks]:
    """A bench with compute clusters on the target, and their strategies applied."""

    def ticks(declared: Mapping[str, Any], limits: Limits | None = None, /, **clusters: Mapping[str, str]) -> Ticks:
        made = Ticks(tmp_path, furnish(world, **clusters))
        made.apply_strategies(declared, limits=limits)
        return made

    return ticks
