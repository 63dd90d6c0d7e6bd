"""Worlds for replica strategies: clusters, signals and states in a short form, and random ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyRule, StrategyType, TargetSize
from gitops.cluster.targets.signals import (
    ComputeCluster,
    Crashes,
    PendingReplica,
    ReplicaSpec,
    Signals,
    SizeTable,
    StrategyState,
)
from gitops.compute.strategies.decision import ActionKind, ReplicaAction

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SIZES = SizeTable({"25cc": 0.25, "50cc": 0.5, "100cc": 1.0, "200cc": 2.0, "800cc": 8.0})

_RULES = {"target_size": TargetSize, "shrink_to_fit": ShrinkToFit, "burst": Burst, "idle_suspend": IdleSuspend}


def ago(seconds: float) -> datetime:
    """The time so many seconds before now."""
    return NOW - timedelta(seconds=seconds)


def cluster(replicas: Mapping[str, str]) -> ComputeCluster:
    """A cluster named `c` with replicas; a star behind a size is left out."""
    return ComputeCluster("u1", "c", {name: ReplicaSpec(size.rstrip("*")) for name, size in replicas.items()})


def signals(
    replicas: Mapping[str, str], *, activity: float | None = None, crashes: Mapping[str, Iterable[int]] | None = None
) -> Signals:
    """Replicas with a star behind their sizes are hydrated; the last activity was so many seconds ago."""
    return Signals(
        NOW,
        SIZES,
        last_activity=None if activity is None else ago(activity),
        hydrated=frozenset(name for name, size in replicas.items() if size.endswith("*")),
        crashes={name: Crashes(*counts) for name, counts in (crashes or {}).items()},
    )


def rules(declared: Mapping[str, Mapping[str, Any]]) -> list[StrategyRule]:
    """The rules of a compute cluster."""
    return [_RULES[name](**config) for name, config in declared.items()]


def state(kind: str, form: Mapping[str, Any]) -> StrategyState:
    """A state, an old one where nothing else is said; ages are in seconds."""
    pending = form.get("pending")
    return StrategyState(
        StrategyType(kind),
        "c",
        first_seen=ago(form.get("seen", 100_000)),
        last_decision=ago(form["decided"]) if "decided" in form else None,
        woken=ago(form["woken"]) if "woken" in form else None,
        pending=None if pending is None else PendingReplica(*pending, ago(50)),
        failed_sizes={size: ago(age) for size, age in form.get("failed", {}).items()},
    )


def lines(actions: Iterable[ReplicaAction]) -> list[str]:
    """Actions as the data files have them."""
    return [
        f"create {each.replica} {each.spec.size}" if each.kind is ActionKind.CREATE else f"drop {each.replica}"
        for each in actions
    ]
