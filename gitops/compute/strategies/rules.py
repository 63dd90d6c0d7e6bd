"""What each strategy wants, given what the strategies before it want.

Every strategy is a pure function: (desired state, state, rule, signals, cluster) -> (desired state, state). In its cooldown a
strategy leaves what is its own as it is: the replicas of the cluster, its burst replica, the suspension.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count
from types import MappingProxyType
from typing import Any, TypeAlias

from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyType, TargetSize
from gitops.cluster.targets.signals import NO_CRASHES, ComputeCluster, ReplicaSpec, Signals
from gitops.cluster.targets.state import PendingReplica, StrategyState
from gitops.compute.strategies.desired import DesiredState

__all__ = ["GAP", "STRATEGIES", "SUSPENDED", "Strategy", "burst_name"]

Strategy: TypeAlias = Callable[
    [DesiredState, StrategyState, Any, Signals, ComputeCluster], tuple[DesiredState, StrategyState]
]

SUSPENDED = "suspended"
"""The key of the metadata of a desired state that is empty because the cluster is idle."""
GAP = "gap"
"""The key of the metadata of a desired state whose replica is created after the others are dropped, as it was declared."""

_FAILURES_COUNT_FOR = timedelta(hours=1)


def burst_name(cluster: str) -> str:
    """The name of the replica that `burst` adds to a cluster."""
    return f"{cluster}_burst"


def target_size(
    desired: DesiredState, state: StrategyState, rule: TargetSize, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredState, StrategyState]:
    """A replica of the size, whatever its name, but not the one that `burst` will remove; once it is hydrated, no others.

    With `drop_first` no others from then on, but only for a size that the target has: nothing goes for one that never comes.
    """
    by, size = StrategyType.TARGET_SIZE.value, rule.target_size
    fitting = [name for name in desired.names(size=size) if name != burst_name(cluster.name)]
    if fitting:
        state = replace(state, pending=None)
    if state.cooling(signals.now, rule.cooldown_s):
        return desired, state
    if not fitting:
        again = state.pending is not None and state.pending.size == size
        text = f"recreating the replica of size {size}, which is gone" if again else f"no replica has size {size}"
        name = _free_name(rule.replica_name or f"r_{size}", desired.target_replicas)
        pending = PendingReplica(name, size, signals.now)
        if rule.drop_first and desired.target_replicas and size in signals.sizes.credits:
            room = f"drop_first: it makes room for a replica of size {size}"
            desired = desired.without(desired.names(), by, room)
            desired = replace(desired, metadata=MappingProxyType({**desired.metadata, GAP: room}))
        return desired.with_replica(name, ReplicaSpec(size), by, text), _decided(state, signals, pending=pending)
    others = desired.target_replicas.keys() - set(fitting)
    ready = [name for name in fitting if name in signals.hydrated]
    if not others or not ready:
        return desired, state
    return desired.without(others, by, f"{ready[0]} of size {size} is hydrated"), _decided(state, signals)


def shrink_to_fit(
    desired: DesiredState, state: StrategyState, rule: ShrinkToFit, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredState, StrategyState]:
    """One replica of each size up to the largest; then the smallest that hydrates without crashing, with those below it."""
    by = StrategyType.SHRINK_TO_FIT.value
    failed = {size: at for size, at in state.failed_sizes.items() if signals.now - at < _FAILURES_COUNT_FOR}
    state = replace(state, failed_sizes=MappingProxyType(failed))
    if state.cooling(signals.now, rule.cooldown_s):
        return desired, state
    wanted = desired
    for name, spec in sorted(desired.target_replicas.items()):
        crashes = signals.crashes.get(name, NO_CRASHES)
        if crashes.total >= rule.min_crash_count or crashes.out_of_memory >= rule.min_oom_count:
            text = f"crashes in the last hour: {crashes.total}, out of memory: {crashes.out_of_memory}"
            failed[spec.size] = signals.now
            wanted = wanted.without([name], by, text)
    if not wanted.target_replicas:
        for size in signals.sizes.up_to(rule.max_replica_size):
            if size not in failed:
                name = _free_name(f"{cluster.name}_{size}", cluster.replicas)
                text = f"size {size} is tried, up to {rule.max_replica_size}"
                wanted = wanted.with_replica(name, ReplicaSpec(size), by, text)
    rank = signals.sizes.rank
    sizes = {name: rank(spec.size) for name, spec in wanted.target_replicas.items()}
    fit = min((size for name, size in sizes.items() if name in signals.hydrated), default=None)
    if fit is not None:
        larger = [name for name, size in sizes.items() if size > fit]
        wanted = wanted.without(larger, by, f"a replica of the smaller size {fit[1]} is hydrated")
    if wanted.target_replicas == desired.target_replicas:
        return desired, state
    return wanted, _decided(state, signals, failed_sizes=MappingProxyType(failed))


def burst(
    desired: DesiredState, state: StrategyState, rule: Burst, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredState, StrategyState]:
    """A large replica while no other one is hydrated."""
    by, name = StrategyType.BURST.value, burst_name(cluster.name)
    there = cluster.replicas.get(name)
    if state.cooling(signals.now, rule.cooldown_s):
        if there is None or name in desired.target_replicas:
            return desired, state
        return desired.with_replica(name, there, by, f"it stays for its cooldown of {rule.cooldown_s} s"), state
    others = [each for each in desired.names() if each != name]
    ready = [each for each in others if each in signals.hydrated]
    wanted = desired
    if name in desired.target_replicas:
        if ready:
            wanted = desired.without([name], by, f"{ready[0]} is hydrated")
    elif others and not ready and not desired.names(size=rule.burst_replica_size):
        text = f"{', '.join(others)} not hydrated"
        wanted = desired.with_replica(name, ReplicaSpec(rule.burst_replica_size), by, text)
    # A strategy before this one may have removed the replica: its cooldown counts from there all the same.
    changed = (name in wanted.target_replicas) != (there is not None)
    return wanted, _decided(state, signals) if changed else state


def idle_suspend(
    desired: DesiredState, state: StrategyState, rule: IdleSuspend, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredState, StrategyState]:
    """No replicas after so many seconds without activity. What brings them back is the strategy that wants them."""
    seen = (state.first_seen, state.woken, signals.last_activity)
    idle_s = (signals.now - max(at for at in seen if at is not None)).total_seconds()
    if not desired.target_replicas or idle_s <= rule.idle_after_s:
        return desired, state
    if cluster.replicas and state.cooling(signals.now, rule.cooldown_s):
        return desired, state
    text = f"idle for {idle_s:.0f} s, more than {rule.idle_after_s} s"
    wanted = desired.without(desired.names(), StrategyType.IDLE_SUSPEND.value, text)
    wanted = replace(wanted, metadata=MappingProxyType({**wanted.metadata, SUSPENDED: text}))
    return wanted, _decided(state, signals) if cluster.replicas else state


STRATEGIES: Mapping[StrategyType, Strategy] = MappingProxyType(
    {
        StrategyType.TARGET_SIZE: target_size,
        StrategyType.SHRINK_TO_FIT: shrink_to_fit,
        StrategyType.BURST: burst,
        StrategyType.IDLE_SUSPEND: idle_suspend,
    }
)
"""Every strategy there is."""


def _decided(state: StrategyState, signals: Signals, **changes: Any) -> StrategyState:
    return replace(state, last_decision=signals.now, **changes)


def _free_name(wanted: str, taken: Container[str]) -> str:
    """The name, or with a number behind it: a replica never changes its size, since that would drop it first."""
    candidates = (wanted if n == 1 else f"{wanted}_{n}" for n in count(1))
    return next(name for name in candidates if name not in taken)
