"""Laws of replica strategies: whatever is declared, remembered and signalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.strategy import (
    Burst,
    IdleSuspend,
    ShrinkToFit,
    StrategyRule,
    StrategyType,
    TargetSize,
    type_of,
)
from gitops.cluster.targets.signals import (
    STATE_VERSION,
    ComputeCluster,
    Crashes,
    PendingReplica,
    ReplicaSpec,
    Signals,
    StrategyState,
    read_payload,
)
from gitops.compute.strategies.decision import GAP, SUSPENDED, ActionKind, Limits, StrategyDecision, burst_name, decide
from tests.support.strategies import NOW, SIZES, ago

FREE = Limits(max_replicas=100)

sizes = st.sampled_from((*SIZES.credits, "medium"))
names = st.sampled_from(("main", "main_2", "r_25cc", "r_50cc", "c_25cc", "c_50cc", "c_burst", "other"))
cooldowns = st.sampled_from((0, 0, 30, 600))
times = st.integers(0, 4000).map(ago)
own_names = st.none() | names.filter(lambda name: name != "c_burst")
target_sizes = st.builds(TargetSize, sizes, own_names, cooldowns, st.sampled_from((False, False, True)))
shrinks = st.builds(ShrinkToFit, sizes, st.integers(1, 3), st.integers(1, 3), cooldowns)
bursts = st.builds(Burst, sizes, cooldowns)
suspends = st.builds(IdleSuspend, st.integers(1, 2000), cooldowns)


@st.composite
def rule_sets(draw: st.DrawFn) -> list[StrategyRule]:
    """What may be declared together."""
    first = draw(st.none() | target_sizes | shrinks)
    burst = draw(st.none() | bursts.filter(lambda rule: rule.burst_replica_size != getattr(first, "target_size", None)))
    if getattr(first, "drop_first", False):
        burst = None
    return [rule for rule in (first, burst, draw(st.none() | suspends)) if rule is not None]


@st.composite
def clusters(draw: st.DrawFn) -> ComputeCluster:
    return ComputeCluster("u1", "c", draw(st.dictionaries(names, sizes.map(ReplicaSpec), max_size=5)))


@st.composite
def signals_of(draw: st.DrawFn, cluster: ComputeCluster) -> Signals:
    crashes = st.builds(Crashes, st.integers(0, 4), st.integers(0, 4))
    return Signals(
        NOW,
        SIZES,
        draw(st.none() | times),
        frozenset(draw(st.sets(st.sampled_from([*cluster.replicas, "gone"])))),
        draw(st.dictionaries(names, crashes, max_size=4)),
    )


@st.composite
def memories(draw: st.DrawFn, rules: list[StrategyRule]) -> dict[StrategyType, StrategyState]:
    pending = st.none() | st.builds(PendingReplica, names, sizes, times)
    found = {}
    for kind in map(type_of, rules):
        if draw(st.booleans()):
            found[kind] = StrategyState(
                kind,
                "c",
                draw(times),
                draw(st.none() | times),
                None,
                draw(st.none() | times),
                draw(pending) if kind is StrategyType.TARGET_SIZE else None,
                draw(st.dictionaries(sizes, times, max_size=2)) if kind is StrategyType.SHRINK_TO_FIT else {},
            )
    return found


World = tuple[ComputeCluster, list[StrategyRule], Mapping[StrategyType, StrategyState], Signals]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    cluster, rules = draw(clusters()), draw(rule_sets())
    return cluster, rules, draw(memories(rules)), draw(signals_of(cluster))


def applied(cluster: ComputeCluster, made: StrategyDecision) -> ComputeCluster:
    """The cluster after all actions."""
    dropped = {action.replica for action in made.actions if action.kind is ActionKind.DROP}
    created = {action.replica: action.spec for action in made.actions if action.kind is ActionKind.CREATE}
    kept = {name: spec for name, spec in cluster.replicas.items() if name not in dropped}
    return replace(cluster, replicas={**kept, **created})


@given(worlds())
def test_a_hydrated_replica_is_left_unless_the_cluster_is_suspended(world: World) -> None:
    cluster, rules, states, signals = world
    made = decide(cluster, rules, states, signals, FREE)
    serving = cluster.replicas.keys() & signals.hydrated
    left = applied(cluster, made).replicas
    if serving and not serving & left.keys() and left:
        assert any(isinstance(rule, TargetSize) and rule.drop_first for rule in rules)
        assert [each.kind for each in made.actions][-1] is ActionKind.CREATE
    elif serving and not serving & left.keys():
        idle = [rule for rule in rules if isinstance(rule, IdleSuspend)]
        assert idle
        assert made.desired.metadata[SUSPENDED]
        assert signals.last_activity is None or (NOW - signals.last_activity).total_seconds() > idle[0].idle_after_s
    assert all(left[name] == spec for name, spec in cluster.replicas.items() if name in left)


@given(worlds())
def test_a_decision_depends_on_its_arguments_alone_and_leaves_them_as_they_are(world: World) -> None:
    before = repr(world)
    cluster, rules, states, signals = world
    made = decide(cluster, rules, states, signals, FREE)
    assert repr(world) == before
    backwards = replace(cluster, replicas=dict(reversed(cluster.replicas.items())))
    again = decide(backwards, rules[::-1], states, signals, FREE)
    assert (again.actions, again.states) == (made.actions, made.states)


@given(worlds())
def test_a_decision_that_was_applied_asks_for_nothing_more(world: World) -> None:
    cluster, rules, states, signals = world
    made = decide(cluster, rules, states, signals, FREE)
    after = applied(cluster, made)
    # A replica that is new is neither hydrated nor has it crashed, even where its name was in use before.
    new = after.replicas.keys() - cluster.replicas.keys()
    crashes = {name: each for name, each in signals.crashes.items() if name not in new}
    seen = replace(signals, hydrated=signals.hydrated - new, crashes=crashes)
    again = decide(after, rules, made.states, seen, FREE)
    assert again.actions == ()
    assert decide(after, rules, again.states, seen, FREE).states == again.states


@given(worlds())
def test_actions_have_one_order_and_a_reason_each(world: World) -> None:
    cluster, rules, states, signals = world
    made = decide(cluster, rules, states, signals, FREE)
    actions, drops = made.actions, -1 if GAP in made.desired.metadata else 1
    keys = [
        (0, SIZES.rank(each.spec.size), each.replica)
        if each.kind is ActionKind.CREATE
        else (drops, (0, ""), each.replica)
        for each in actions
    ]
    assert keys == sorted(keys)
    assert len({each.replica for each in actions}) == len(actions)
    assert all(each.reasons for each in actions)


@given(worlds())
def test_the_memory_of_a_strategy_comes_back_from_its_row(world: World) -> None:
    cluster, rules, states, signals = world
    for kind, state in decide(cluster, rules, states, signals, FREE).states.items():
        assert state.strategy is kind
        assert read_payload(STATE_VERSION, state.payload) == state


json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8) | st.sampled_from([NOW.isoformat()]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(
    [*StrategyState(StrategyType.BURST, "c", NOW, NOW, "", NOW, PendingReplica("", "", NOW), {"": NOW}).payload]
)


@given(st.integers() | st.just(STATE_VERSION) | st.none(), st.dictionaries(keys, json) | json)
def test_a_row_that_is_not_a_memory_is_none(version: int | None, payload: object) -> None:
    found = read_payload(version, payload)
    assert found is None or read_payload(STATE_VERSION, found.payload) == found


@given(rule_sets(), st.data())
def test_cooldowns_hold_whatever_else_is_declared(rules: list[StrategyRule], data: st.DataObject) -> None:
    cluster, states, at = data.draw(clusters()), dict[StrategyType, StrategyState](), NOW
    changes: dict[StrategyType, list[float]] = {kind: [] for kind in StrategyType}
    for _ in range(data.draw(st.integers(2, 6))):
        at += timedelta(seconds=data.draw(st.sampled_from((1, 20, 40, 700))))
        drawn = data.draw(signals_of(cluster))
        ages = data.draw(st.sampled_from((1, 5000)))
        signals = replace(drawn, now=at, last_activity=at - timedelta(seconds=ages))
        made = decide(cluster, rules, states, signals, FREE)
        after = applied(cluster, made)
        second = (at - NOW).total_seconds()
        if (burst_name("c") in cluster.replicas) != (burst_name("c") in after.replicas):
            changes[StrategyType.BURST].append(second)
        if cluster.replicas and SUSPENDED in made.desired.metadata:
            changes[StrategyType.IDLE_SUSPEND].append(second)
        elif any(reason.by == StrategyType.TARGET_SIZE for each in made.actions for reason in each.reasons[:1]):
            changes[StrategyType.TARGET_SIZE].append(second)
        cluster, states = after, dict(made.states)
    for rule in rules:
        moments = changes[type_of(rule)]
        suspended = {*changes[StrategyType.IDLE_SUSPEND]}
        for earlier, later in pairwise(moments):
            # A suspension ends what every other strategy has; what it takes away is not the decision of that strategy.
            if not isinstance(rule, IdleSuspend) and {earlier, later} & suspended:
                continue
            assert later - earlier >= rule.cooldown_s
