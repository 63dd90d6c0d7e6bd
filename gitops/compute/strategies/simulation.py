"""Play strategies against a described world on a virtual clock: what they would do, and what that would cost.

A tick comes at the start and then at every interval. What it decides is done at once; a new replica is hydrated after the time
that its size takes. Nothing is left to chance: the same scenario gives the same timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from gitops.cluster.model.strategy import Limits, StrategyRule, StrategyType
from gitops.cluster.targets.signals import ComputeCluster, Crashes, ReplicaSpec, Signals, SizeTable, StrategyState
from gitops.compute.strategies.decision import ActionKind, ReplicaAction, decide
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass

HYDRATION_S = 300
"""How long a replica takes to hydrate, where nothing says it."""

_DAY_S = 24 * 3600
_CRASHES_COUNT_FOR_S = 3600


@dataclass(frozen=True, slots=True)
class Activity:
    """Statements run from one second of the scenario to another, or of each of its days."""

    start_s: int
    end_s: int
    daily: bool = False


@dataclass(frozen=True, slots=True)
class Crashing:
    """Replicas of a size never hydrate: each crashes every so many seconds."""

    every_s: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A compute cluster, its strategies, and what happens to it. Times are in seconds, from the start.

    `hydration_s` is how long replicas of a size take; at each of `rehydrate_at_s` all begin again, as for a new index. Replicas
    that are there at the start are hydrated.
    """

    cluster: str
    rules: tuple[StrategyRule, ...]
    sizes: SizeTable
    start: datetime
    length_s: int
    interval_s: int
    limits: Limits
    replicas: Mapping[str, str]
    hydration_s: Mapping[str, int]
    activity: tuple[Activity, ...]
    rehydrate_at_s: tuple[int, ...]
    crashes: Mapping[str, Crashing]


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """One interval: what the tick at its start did, and what was there until the next one.

    `problem` is why a strategy did not get what it wanted. `active` says whether statements ran at the tick.
    """

    at_s: int
    actions: tuple[ReplicaAction, ...]
    problem: str | None
    replicas: Mapping[str, str]
    hydrated: frozenset[str]
    active: bool
    credits_per_hour: float


@dataclass(frozen=True, slots=True)
class SimulatedUsage:
    """Sums over a timeline. `unserved_s` counts intervals in which statements ran and no replica was hydrated."""

    replica_hours: float
    credits: float
    unserved_s: int
    suspended_s: int
    actions: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a scenario, one for each tick."""

    scenario: Scenario
    steps: tuple[SimulatedStep, ...]

    @property
    def usage(self) -> SimulatedUsage:
        """What it adds up to."""
        scenario = self.scenario
        ends = [*(step.at_s for step in self.steps[1:]), scenario.length_s]
        spans = [(step, end - step.at_s) for step, end in zip(self.steps, ends, strict=True)]
        return SimulatedUsage(
            replica_hours=sum(len(step.replicas) * seconds for step, seconds in spans) / 3600,
            credits=sum(step.credits_per_hour * seconds for step, seconds in spans) / 3600,
            unserved_s=sum(seconds for step, seconds in spans if step.active and not step.hydrated),
            suspended_s=sum(seconds for step, seconds in spans if not step.replicas),
            actions=sum(len(step.actions) for step in self.steps),
        )


def simulate(scenario: Scenario) -> Timeline:
    """The timeline of a scenario."""
    return Timeline(scenario, tuple(_steps(scenario)))


def _steps(scenario: Scenario) -> Iterator[SimulatedStep]:
    long_ago = -max((*scenario.hydration_s.values(), _CRASHES_COUNT_FOR_S)) - 1
    since = dict.fromkeys(scenario.replicas, long_ago)
    sizes = dict(scenario.replicas)
    states: Mapping[StrategyType, StrategyState] = {}
    for at_s in range(0, scenario.length_s, scenario.interval_s):
        signals = _signals(scenario, at_s, sizes, since)
        cluster = ComputeCluster(scenario.cluster, scenario.cluster, {name: ReplicaSpec(sizes[name]) for name in sizes})
        made = decide(cluster, scenario.rules, states, signals, scenario.limits)
        states = made.states
        for action in made.actions:
            if action.kind is ActionKind.CREATE:
                sizes[action.replica], since[action.replica] = action.spec.size, at_s
            else:
                del sizes[action.replica], since[action.replica]
        yield SimulatedStep(
            at_s,
            made.actions,
            "; ".join(f"{Code.REPLICA_LIMIT_EXCEEDED}: {each}" for each in made.refused) or None,
            MappingProxyType(dict(sorted(sizes.items()))),
            signals.hydrated & sizes.keys(),
            signals.last_activity == signals.now,
            sum(scenario.sizes.credits.get(size) or 0.0 for size in sizes.values()),
        )


def _signals(scenario: Scenario, at_s: int, sizes: Mapping[str, str], since: Mapping[str, int]) -> Signals:
    """What the target would say at a second of the scenario."""
    begun = max((at for at in scenario.rehydrate_at_s if at <= at_s), default=None)
    hydrated, crashes = set(), {}
    for name, size in sizes.items():
        crashing = scenario.crashes.get(size)
        if crashing is not None:
            count = min(at_s - since[name], _CRASHES_COUNT_FOR_S) // crashing.every_s
            crashes[name] = Crashes(count, count if crashing.out_of_memory else 0)
        elif at_s - max(since[name], since[name] if begun is None else begun) >= scenario.hydration_s.get(size, 0):
            hydrated.add(name)
    last = max((end for each in scenario.activity if (end := _last(each, at_s)) is not None), default=None)
    now = scenario.start + timedelta(seconds=at_s)
    activity = None if last is None else scenario.start + timedelta(seconds=last)
    return Signals(now, scenario.sizes, activity, frozenset(hydrated), crashes)


def _last(activity: Activity, at_s: int) -> int | None:
    """The last second until now at which it went on, None where it has not begun."""
    days = at_s // _DAY_S if activity.daily else 0
    for day in (days, days - 1) if activity.daily and days else (days,):
        start, end = day * _DAY_S + activity.start_s, day * _DAY_S + activity.end_s
        if start <= at_s:
            return min(at_s, end)
    return None
