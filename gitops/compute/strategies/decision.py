"""Decide about the replicas of one compute cluster: run its strategies, guard what serves, and list the actions.

1. The strategies run in order of priority, each on what the one before wants. The first begins with the cluster as it is.
2. The guard, after each of them, so that the next sees what stays: no replica changes its size in place, and the last hydrated
   replica stays, unless the cluster is suspended, or `drop_first` is declared of it.
3. The limits, after each of them as well: what a strategy wants is left out as a whole where its creates would be too much.
4. Creates come first, smallest size first, then drops, by name; with `drop_first` the drops come first.
5. A strategy remembers a decision only where it leads to an action: a decision that the guard takes back starts no cooldown.

The same arguments always give the same decision. Applied, and decided again on the same signals, it gives no further action.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from gitops.cluster.model.strategy import Limits, StrategyRule, StrategyType, type_of
from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec, Signals
from gitops.cluster.targets.state import StrategyState
from gitops.compute.strategies.desired import DesiredState, Reason
from gitops.compute.strategies.rules import GAP, STRATEGIES, SUSPENDED
from gitops.core.dataclass import dataclass

__all__ = ["ActionKind", "Decision", "ReplicaAction", "decide"]

GUARD = "guard"


class ActionKind(StrEnum):
    """What is done with a replica."""

    CREATE = "create"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ReplicaAction:
    """One replica that is created or dropped, and why."""

    kind: ActionKind
    replica: str
    spec: ReplicaSpec
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a cluster shall have, the actions that lead there in their order, and what each strategy remembers if they succeed.

    `refused` says which strategies wanted more than the limits permit.
    """

    desired: DesiredState
    actions: tuple[ReplicaAction, ...]
    states: Mapping[StrategyType, StrategyState]
    refused: tuple[str, ...] = ()


def decide(
    cluster: ComputeCluster,
    rules: Iterable[StrategyRule],
    states: Mapping[StrategyType, StrategyState],
    signals: Signals,
    limits: Limits,
) -> Decision:
    """Decide by the steps above; a strategy without a state begins with one."""
    desired, after, refused = DesiredState.of(cluster), {}, list[str]()
    for rule in sorted(rules, key=lambda each: type_of(each).priority):
        kind = type_of(rule)
        state = states.get(kind) or StrategyState(kind, cluster.name, first_seen=signals.now)
        wanted, after[kind] = STRATEGIES[kind](desired, state, rule, signals, cluster)
        if wanted is desired:
            continue
        wanted = _guarded(replace(wanted, priority=kind.priority), cluster, signals)
        if (excess := _excess(wanted, cluster, signals, limits)) is None:
            desired = wanted
        else:
            after[kind] = state
            refused.append(f"{kind}: {excess}")
    actions = _actions(desired, cluster, signals)
    return Decision(desired, actions, MappingProxyType(_remembered(after, states, cluster, actions)), tuple(refused))


def _remembered(
    after: Mapping[StrategyType, StrategyState],
    before: Mapping[StrategyType, StrategyState],
    cluster: ComputeCluster,
    actions: Iterable[ReplicaAction],
) -> dict[StrategyType, StrategyState]:
    """The states without what was decided and is not done."""
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


def _guarded(desired: DesiredState, cluster: ComputeCluster, signals: Signals) -> DesiredState:
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


def _actions(desired: DesiredState, cluster: ComputeCluster, signals: Signals) -> tuple[ReplicaAction, ...]:
    wanted, there = desired.target_replicas, cluster.replicas
    created = sorted(wanted.keys() - there.keys(), key=lambda name: (signals.sizes.rank(wanted[name].size), name))
    gone = sorted(there.keys() - wanted.keys())
    creates = tuple(ReplicaAction(ActionKind.CREATE, name, wanted[name], desired.because(name)) for name in created)
    drops = tuple(ReplicaAction(ActionKind.DROP, name, there[name], desired.because(name)) for name in gone)
    return drops + creates if GAP in desired.metadata else creates + drops


def _excess(wanted: DesiredState, cluster: ComputeCluster, signals: Signals, limits: Limits) -> str | None:
    """Why there would be too much after the creates, and before the drops unless these come first; None if there would not be."""
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
