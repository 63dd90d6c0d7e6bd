"""Decides about a compute cluster's replicas: runs its strategies, protects serving replicas and lists the actions.

1. The strategies run in order of priority, each on the result of the previous one. The first one starts from the
   current replicas.
2. The guard runs after each strategy, so that the next one sees the corrected replicas. No replica changes its size in
   place, and the last hydrated replica is kept, unless the cluster is suspended or declares `drop_first`.
3. The limits also apply after each strategy: its complete result is dropped if its creates would exceed them.
4. Creates come first, smallest size first, then drops, by name. With `drop_first`, drops come first.
5. A strategy remembers a decision only if it results in an action. A decision that the guard reverts does not start a
   cooldown.

The same arguments always give the same decision. If the decision is applied, deciding again on the same signals gives
no further actions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import field, replace
from datetime import timedelta
from enum import StrEnum
from itertools import count
from types import MappingProxyType
from typing import Any, TypeAlias

from gitops.cluster.model.strategy import (
    Burst,
    IdleSuspend,
    Limits,
    ShrinkToFit,
    StrategyRule,
    StrategyType,
    TargetSize,
    type_of,
)
from gitops.cluster.targets.signals import (
    NO_CRASHES,
    ComputeCluster,
    PendingReplica,
    ReplicaSpec,
    Signals,
    StrategyState,
)
from gitops.core.dataclass import dataclass

GUARD = "guard"


class ActionKind(StrEnum):
    """The kind of a replica action."""

    CREATE = "create"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ReplicaAction:
    """A replica to create or drop, with the reason."""

    kind: ActionKind
    replica: str
    spec: ReplicaSpec
    reasons: tuple[ReplicaReason, ...]


@dataclass(frozen=True, slots=True)
class StrategyDecision:
    """The desired replicas of a cluster, the actions that lead there in order, and the strategy states if all succeed.

    `refused` lists the strategies that wanted more than the limits permit.
    """

    desired: DesiredReplicas
    actions: tuple[ReplicaAction, ...]
    states: Mapping[StrategyType, StrategyState]
    refused: tuple[str, ...] = ()


def decide(
    cluster: ComputeCluster,
    rules: Iterable[StrategyRule],
    states: Mapping[StrategyType, StrategyState],
    signals: Signals,
    limits: Limits,
) -> StrategyDecision:
    """Decide by the steps in the module docstring. A strategy without a state gets an initial one."""
    desired, after, refused = DesiredReplicas.of(cluster), {}, list[str]()
    for rule in sorted(rules, key=lambda each: type_of(each).priority):
        kind = type_of(rule)
        state = states.get(kind) or StrategyState(kind, cluster.name, first_seen=signals.now)
        wanted, after[kind] = STRATEGIES[kind](desired, state, rule, signals, cluster)
        if wanted is desired:
            continue
        wanted = _guarded(wanted, cluster, signals)
        if (excess := _excess(wanted, cluster, signals, limits)) is None:
            desired = wanted
        else:
            after[kind] = state
            refused.append(f"{kind}: {excess}")
    actions = _actions(desired, cluster, signals)
    return StrategyDecision(
        desired, actions, MappingProxyType(_remembered(after, states, cluster, actions)), tuple(refused)
    )


def _remembered(
    after: Mapping[StrategyType, StrategyState],
    before: Mapping[StrategyType, StrategyState],
    cluster: ComputeCluster,
    actions: Iterable[ReplicaAction],
) -> dict[StrategyType, StrategyState]:
    """Return the states without the decisions that did not lead to an action."""
    changed = {action.replica for action in actions}
    kept = {}
    for kind, state in after.items():
        earlier = before.get(kind)
        pending, decided = state.pending, state.last_decision
        if pending is not None and pending.name not in changed:
            pending = None if earlier is None or pending.name in cluster.replicas else earlier.pending
        if not changed:
            decided = None if earlier is None else earlier.last_decision
        kept[kind] = replace(state, pending=pending, last_decision=decided)
    return kept


def _guarded(desired: DesiredReplicas, cluster: ComputeCluster, signals: Signals) -> DesiredReplicas:
    for name, spec in sorted(desired.target_replicas.items()):
        if (there := cluster.replicas.get(name, spec)) != spec:
            desired = desired.with_replica(name, there, GUARD, f"size_in_place: it keeps its size {there.size}")
    serving = cluster.replicas.keys() & signals.hydrated
    dropped = serving - desired.target_replicas.keys()
    if dropped != serving or not desired.metadata.keys().isdisjoint((SUSPENDED, GAP)):
        return desired
    for name in sorted(dropped):
        text = "last_hydrated: no other replica of the cluster is hydrated"
        desired = desired.with_replica(name, cluster.replicas[name], GUARD, text)
    return desired


def _actions(desired: DesiredReplicas, cluster: ComputeCluster, signals: Signals) -> tuple[ReplicaAction, ...]:
    wanted, there = desired.target_replicas, cluster.replicas
    created = sorted(wanted.keys() - there.keys(), key=lambda name: (signals.sizes.rank(wanted[name].size), name))
    gone = sorted(there.keys() - wanted.keys())
    creates = tuple(ReplicaAction(ActionKind.CREATE, name, wanted[name], desired.because(name)) for name in created)
    drops = tuple(ReplicaAction(ActionKind.DROP, name, there[name], desired.because(name)) for name in gone)
    return drops + creates if GAP in desired.metadata else creates + drops


def _excess(wanted: DesiredReplicas, cluster: ComputeCluster, signals: Signals, limits: Limits) -> str | None:
    """Explain which limit the creates would exceed; None if there is none.

    Creates are counted before the drops, unless the drops come first.
    """
    created = [spec for name, spec in wanted.target_replicas.items() if name not in cluster.replicas]
    if not created:
        return None
    kept = cluster.replicas.keys() & wanted.target_replicas.keys() if GAP in wanted.metadata else cluster.replicas
    specs = [*(cluster.replicas[name] for name in sorted(kept)), *created]
    if len(specs) > limits.max_replicas:
        return f"{cluster.name} would have {len(specs)} replicas, more than its {limits.max_replicas}"
    if limits.max_credits_per_hour is None:
        return None
    costs = [signals.sizes.credits.get(spec.size) for spec in specs]
    if any(cost is None for cost in costs):
        return f"the target does not list the credits of every size of {cluster.name}, which are limited"
    total = sum(cost for cost in costs if cost is not None)
    if total > limits.max_credits_per_hour:
        return f"{cluster.name} would cost {total:g} credits per hour, more than its {limits.max_credits_per_hour:g}"
    return None


# -- The desired replicas of a compute cluster, and the reasons. Each strategy derives its result from the previous one ----


@dataclass(frozen=True, slots=True)
class ReplicaReason:
    """Why a replica is wanted or not: the strategy or guard that decided this, and a sentence."""

    by: str
    replica: str
    text: str

    def __str__(self) -> str:
        return f"{self.by}: {self.text}"


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """Desired replicas by name, and all reasons so far."""

    target_replicas: Mapping[str, ReplicaSpec]
    reasons: tuple[ReplicaReason, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, cluster: ComputeCluster) -> DesiredReplicas:
        """Return the current replicas of the cluster."""
        return cls(MappingProxyType(dict(cluster.replicas)))

    @property
    def reason(self) -> str:
        """All reasons as one string."""
        return "; ".join(map(str, self.reasons))

    def names(self, *, size: str | None = None) -> list[str]:
        """Return the names of the replicas in order; with `size`, only replicas of that size."""
        return sorted(name for name, spec in self.target_replicas.items() if size is None or spec.size == size)

    def because(self, replica: str) -> tuple[ReplicaReason, ...]:
        """Return the reasons that are about one replica."""
        return tuple(reason for reason in self.reasons if reason.replica == replica)

    def with_replica(self, name: str, spec: ReplicaSpec, by: str, text: str) -> DesiredReplicas:
        """Return a copy with an additional replica."""
        replicas = MappingProxyType({**self.target_replicas, name: spec})
        return replace(self, target_replicas=replicas, reasons=(*self.reasons, ReplicaReason(by, name, text)))

    def without(self, names: Iterable[str], by: str, text: str) -> DesiredReplicas:
        """Return a copy without these replicas, all for the same reason."""
        gone = sorted(set(names) & self.target_replicas.keys())
        kept = MappingProxyType({name: spec for name, spec in self.target_replicas.items() if name not in gone})
        return replace(
            self, target_replicas=kept, reasons=(*self.reasons, *(ReplicaReason(by, name, text) for name in gone))
        )


# -- The result of each strategy, given the result of the previous ones ------------------------------------------------
#
# Every strategy is a pure function: (desired state, state, rule, signals, cluster) -> (desired state, state). During
# its cooldown, a strategy does not change what it controls: the cluster's replicas, its burst replica, or the
# suspension.


Strategy: TypeAlias = Callable[
    [DesiredReplicas, StrategyState, Any, Signals, ComputeCluster], tuple[DesiredReplicas, StrategyState]
]

SUSPENDED = "suspended"
"""Metadata key of a desired state that is empty because the cluster is idle."""
GAP = "gap"
"""Metadata key of a desired state whose replica is created only after the others are dropped, as declared."""

_FAILURES_COUNT_FOR = timedelta(hours=1)


def burst_name(cluster: str) -> str:
    """Return the name of the replica that `burst` adds to a cluster."""
    return f"{cluster}_burst"


def target_size(
    desired: DesiredReplicas, state: StrategyState, rule: TargetSize, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredReplicas, StrategyState]:
    """Request a replica of the target size, under any name except the burst replica's.

    Once it is hydrated, no other replicas are wanted. With `drop_first`, no others are wanted from the start, but only
    if the target has that size, because nothing must be dropped for a replica that cannot be created.
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
    desired: DesiredReplicas, state: StrategyState, rule: ShrinkToFit, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredReplicas, StrategyState]:
    """Request one replica of each size up to the largest.

    After that, keep the smallest size that hydrates without crashing, and the sizes below it.
    """
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
    desired: DesiredReplicas, state: StrategyState, rule: Burst, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredReplicas, StrategyState]:
    """Request a large replica while no other replica is hydrated."""
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
    # An earlier strategy may have removed the replica. Either way, the cooldown starts at that time.
    changed = (name in wanted.target_replicas) != (there is not None)
    return wanted, _decided(state, signals) if changed else state


def idle_suspend(
    desired: DesiredReplicas, state: StrategyState, rule: IdleSuspend, signals: Signals, cluster: ComputeCluster
) -> tuple[DesiredReplicas, StrategyState]:
    """Request no replicas after this many seconds without activity. The strategy that needs them recreates them."""
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
"""All strategies by type."""


def _decided(state: StrategyState, signals: Signals, **changes: Any) -> StrategyState:
    return replace(state, last_decision=signals.now, **changes)


def _free_name(wanted: str, taken: Container[str]) -> str:
    """Return the name, with a number appended if it is taken.

    Replicas never change their size, which would drop them first.
    """
    candidates = (wanted if n == 1 else f"{wanted}_{n}" for n in count(1))
    return next(name for name in candidates if name not in taken)
