"""Strategies of many compute clusters, played for a month: time per decision, and that nothing flaps and all is repeatable.

The world that is played costs as much as the decisions in it, so the decisions are timed alone as well: those of one tick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec, Signals
from gitops.compute.strategies.decision import decide
from gitops.compute.strategies.simulation import Scenario, simulate
from gitops.core.canonical import digest
from tests.bench.measure import Effort, Figure
from tests.support.compute_crowd import crowd, flapping, member

_CLUSTERS, _DAYS = 1000, 30
_TIMES, _TICK_GOAL_US = 10, 100.0
_US = 1e6


def figures(effort: Effort) -> Iterator[Figure]:
    """A month of a thousand clusters in the processes of all cores, a part of it twice; and ticks of them all."""
    clusters, days = (40, 3) if effort.quick else (_CLUSTERS, _DAYS)
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        played = list(pool.map(partial(_play, days), range(clusters), chunksize=5))
        again = pool.map(partial(_play, days), range(10))
        if [each[3] for each in again] != [each[3] for each in played[:10]]:
            raise RuntimeError("the same scenarios gave other timelines")
    ticks, spent, actions = (sum(each[column] for each in played) for column in (0, 1, 2))
    name = f"{clusters:,} compute clusters, {days} days"
    yield Figure(f"{name}: a decision and its world", "us", (spent / ticks * _US,))
    yield Figure(f"{name}: actions per cluster and day", "n", (actions / clusters / days,))
    scenarios = list(crowd(clusters, days))
    tick = tuple(_tick(scenarios) for _ in range(effort.samples))
    yield Figure("a decision in a tick", "us", tick, _TICK_GOAL_US)


def _play(days: int, number: int) -> tuple[int, float, int, str]:
    """Ticks, seconds of CPU and actions of a scenario, and the digest of its actions. Raises RuntimeError if it flaps."""
    scenario = member(number, days)
    start = time.process_time()
    timeline = simulate(scenario)
    spent = time.process_time() - start
    for each in flapping(timeline):
        raise RuntimeError(each)
    return len(timeline.steps), spent, timeline.usage.actions, digest(repr(timeline.steps).encode())


def _tick(scenarios: list[Scenario]) -> float:
    """Microseconds for a decision about each cluster as it is at its start."""
    worlds = [
        (
            ComputeCluster(
                each.cluster, each.cluster, {name: ReplicaSpec(size) for name, size in each.replicas.items()}
            ),
            each.rules,
            Signals(each.start, each.sizes, each.start, frozenset(each.replicas)),
            each.limits,
        )
        for each in scenarios
    ]
    start = time.process_time()
    for _ in range(_TIMES):
        for cluster, rules, signals, limits in worlds:
            decide(cluster, rules, {}, signals, limits)
    return (time.process_time() - start) / (_TIMES * len(worlds)) * _US
