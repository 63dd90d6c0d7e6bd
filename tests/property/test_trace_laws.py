"""Laws of traces: whatever a target recorded becomes a scenario, and a replay under the same strategies does the same again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, StrategyRule, TargetSize
from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec
from gitops.compute.strategies.simulation import Activity, Scenario, SignalTrace, replay_of, simulate
from gitops.compute.strategies.statements import create_replica, drop_replica
from tests.support.strategies import NOW, SIZES
from tests.support.traces import rows_of, trace_of

INTERVAL_S, LENGTH_S = 300, 24 * 3600
FREE = Limits(max_replicas=100)

sizes = st.sampled_from(list(SIZES.credits))
ticks = st.integers(0, LENGTH_S // INTERVAL_S - 1).map(lambda tick: tick * INTERVAL_S)


@st.composite
def activities(draw: st.DrawFn) -> tuple[Activity, ...]:
    """Spans that begin and end at ticks, apart from each other."""
    edges = sorted(draw(st.sets(ticks, max_size=8)))
    return tuple(Activity(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=False))


@st.composite
def worlds(draw: st.DrawFn) -> Scenario:
    size = draw(sizes)
    larger = draw(sizes.filter(lambda each: each != size))
    rules: list[StrategyRule | None] = [
        TargetSize(size, draw(st.none() | st.just("main"))),
        draw(st.none() | st.just(Burst(larger))),
        draw(st.none() | st.builds(IdleSuspend, st.integers(600, 7200))),
    ]
    return Scenario(
        "c",
        tuple(rule for rule in rules if rule is not None),
        SIZES,
        NOW,
        LENGTH_S,
        INTERVAL_S,
        FREE,
        draw(st.dictionaries(st.sampled_from(("main", "other")), sizes, max_size=2)),
        {each: draw(st.sampled_from((300, 900, 1800))) for each in SIZES.credits},
        draw(activities()),
        (),
        {},
    )


@given(worlds())
def test_a_replay_begins_and_is_active_as_the_world_was(world: Scenario) -> None:
    timeline = simulate(world)
    made = replay_of(trace_of(timeline), INTERVAL_S).scenario
    assert made.replicas == world.replicas
    assert [(each.start, each.to) for each in made.activity] == [(a.start, a.to) for a in world.activity]
    again = simulate(replace(made, rules=world.rules, limits=FREE))
    assert [step.active for step in again.steps] == [step.active for step in timeline.steps]


@given(worlds())
def test_what_a_drop_waited_for_is_how_long_hydration_takes(world: Scenario) -> None:
    timeline = simulate(world)
    found = replay_of(trace_of(timeline), INTERVAL_S)
    measured = {line.split()[4]: int(line.split()[-2]) for line in found.recorded if line.startswith("a replica")}
    assert measured == {size: world.hydration_s[size] for size in measured}
    scenario = found.under(world.rules, FREE)
    assert {size: scenario.hydration_s[size] for size in measured} == measured
    # With the times of the sizes that no drop waited for, which are assumed, the strategies do the same again.
    again = simulate(replace(scenario, hydration_s=world.hydration_s))
    assert rows_of(again) == rows_of(timeline)


names = st.sampled_from(("main", "other", 'q"x', "c_burst"))
statements = st.one_of(
    st.builds(create_replica, st.sampled_from(("c", "d")), names, sizes | st.just("gone")),
    st.builds(drop_replica, st.just("c"), names),
    st.text(max_size=5),
)
reasons = st.lists(
    st.sampled_from(("burst: x", "target_size: main of size 25cc is hydrated", "burst: other is hydrated"))
)
contexts = st.fixed_dictionaries({}, optional={"reasons": reasons | st.integers(), "size": sizes | st.none()})
times = st.integers(-100_000, 200_000).map(lambda second: NOW + timedelta(seconds=second))
rows = st.builds(AuditRow, st.text(max_size=3), st.just("u1"), statements, contexts, st.booleans(), created_at=times)


@given(
    st.dictionaries(names, sizes.map(ReplicaSpec)),
    st.lists(rows, max_size=12).map(lambda found: sorted(found, key=lambda row: str(row.created_at))),
    st.lists(st.tuples(times, times).map(sorted).map(tuple), max_size=6).map(sorted),
    st.integers(1, 2 * LENGTH_S),
    worlds(),
)
def test_whatever_was_recorded_can_be_played(replicas, audited, spans, length_s, world) -> None:
    trace = SignalTrace(
        ComputeCluster("u1", "c", replicas), SIZES, NOW, NOW + timedelta(seconds=length_s), audited, spans
    )
    found = replay_of(trace, INTERVAL_S)
    assert found == replay_of(trace, INTERVAL_S)
    scenario = found.scenario
    assert all(0 <= each.start <= each.to <= length_s for each in scenario.activity)
    assert all(a.to < b.start for a, b in pairwise(scenario.activity))
    assert all(seconds >= 0 for seconds in scenario.hydration_s.values())
    assert found.assumed
    timeline = simulate(found.under(world.rules, FREE))
    assert timeline.steps[0].at_s == 0
    assert timeline.usage.replica_hours >= 0
