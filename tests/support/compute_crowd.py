"""Many compute clusters, each with strategies, habits and crashes of its own, and the flapping in what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from types import MappingProxyType

from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyRule, TargetSize, type_of
from gitops.cluster.targets.signals import SizeTable
from gitops.compute.strategies.decision import Limits
from gitops.compute.strategies.simulation import Activity, Crashing, Scenario, Timeline

SIZES = SizeTable({"25cc": 0.25, "50cc": 0.5, "100cc": 1.0, "200cc": 2.0, "400cc": 4.0})
_HOUR_S, _DAY_S = 3600, 24 * 3600
_INTERVAL_S = 300


def crowd(clusters: int, days: int) -> Iterator[Scenario]:
    """So many scenarios; the same arguments give the same ones."""
    return (member(number, days) for number in range(clusters))


def flapping(timeline: Timeline) -> tuple[str, ...]:
    """The decisions that came before the cooldown of the strategy that made them was over."""
    found: list[str] = []
    for rule in timeline.scenario.rules:
        kind = type_of(rule)
        # The first reason of an action is the strategy that asked for it.
        moments = [
            step.at_s
            for step in timeline.steps
            if any(reason.by == kind for action in step.actions for reason in action.reasons[:1])
        ]
        found += (
            f"{timeline.scenario.cluster} at {later} s: {kind} decided {later - earlier} s after its last decision"
            for earlier, later in pairwise(moments)
            if later - earlier < rule.cooldown_s
        )
    return tuple(found)


def member(number: int, days: int) -> Scenario:
    """The scenario with this number."""
    chance = Random(number)  # noqa: S311 - not for secrets
    sizes = list(SIZES.credits)
    target, large = chance.choice(sizes[:4]), sizes[-1]
    cooldown = chance.choice((0, 1800, 5400))
    rules: list[StrategyRule] = [
        ShrinkToFit(sizes[3], cooldown_s=cooldown)
        if chance.random() < 0.2
        else TargetSize(target, cooldown_s=chance.choice((0, 1800)))
    ]
    if chance.random() < 0.5:
        rules.append(Burst(large, cooldown_s=cooldown))
    if chance.random() < 0.7:
        rules.append(IdleSuspend(chance.choice((900, 1800, 7200)), cooldown_s=chance.choice((0, 7200))))
    begin = chance.randrange(0, 20) * _HOUR_S
    weekly = [Activity(day * _DAY_S + begin, day * _DAY_S + begin + _HOUR_S) for day in range(days) if day % 7 == 5]
    daily = Activity(begin, min(begin + chance.randrange(1, 12) * _HOUR_S, _DAY_S), daily=True)
    crashing = {sizes[0]: Crashing(chance.choice((60, 1800)), out_of_memory=True)} if chance.random() < 0.2 else {}
    return Scenario(
        f"c{number:04}",
        tuple(rules),
        SIZES,
        datetime(2026, 6, 1, tzinfo=UTC),
        days * _DAY_S,
        _INTERVAL_S,
        Limits(max_replicas=8),
        {} if chance.random() < 0.3 else {"main": chance.choice(sizes)},
        MappingProxyType({size: chance.choice((60, 400, 900)) for size in sizes}),
        (daily, *weekly),
        tuple(sorted(chance.randrange(days * _DAY_S) for _ in range(days // 3))),
        crashing,
    )
