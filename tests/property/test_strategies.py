"""Laws of strategies: their ticks, traces and rows."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, strategy_address
from gitops.cluster.model.change import Action
from gitops.cluster.model.changeset import BLOCKING
from gitops.cluster.model.compute import (
    ComputeRules,
    ComputeTarget,
    OwnedRow,
    read_strategies,
    rule_config,
    strategy_resources,
)
from gitops.cluster.model.plan import DECISION, READINESS, REPLICA, ExecNode, NodeOutcome
from gitops.cluster.model.strategy import (
    Burst,
    IdleSuspend,
    ShrinkToFit,
    StrategyRule,
    StrategyType,
    TargetSize,
    type_of,
)
from gitops.cluster.plan.layers import serial_order, validate
from gitops.cluster.targets.port import AuditRow, StrategyRow
from gitops.cluster.targets.projection import DECLARED_BY, Pair, RowChanges, row_changes
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
from gitops.compute.strategies.simulation import Activity, Scenario, SignalTrace, replay_of
from gitops.compute.strategies.simulation import simulate as simulated
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.compute.ticks.graph import TickAction, decision_id, tick_graph
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import Death, EndAt
from tests.support.simulated_runs import WORKERS, Case, Trace, simulate
from tests.support.strategies import NOW, SIZES, ago
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Ticks
from tests.support.traces import rows_of, trace_of

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


WANTED = st.lists(st.sampled_from(list(StrategyType)), min_size=1, max_size=2, unique=True)


@st.composite
def actions(draw: st.DrawFn) -> list[TickAction]:
    """The actions of a tick on two targets: in each compute cluster creates before drops, or with a gap drops before creates."""
    found = []
    for compute in ("a", "b", "c")[: draw(st.integers(0, 3))]:
        target, suspends = draw(st.sampled_from(["p", "q"])), draw(st.booleans())
        created, dropped = [ActionKind.CREATE] * draw(st.integers(0, 2)), [ActionKind.DROP] * draw(st.integers(0, 3))
        kinds = [*dropped, *created] if suspends else [*created, *dropped]
        for index, kind in enumerate(kinds, 1):
            by = tuple(each.value for each in draw(WANTED))
            reasons = tuple(f"{each}: because of {index}" for each in by)
            named = (target, compute, compute.upper(), "u1", kind, f"r{index}", "25cc", reasons, by, "digest")
            found.append(TickAction(*named, index, len(kinds), suspends))
    return draw(st.permutations(found))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[TickAction], dict[str, ExecNode], dict[str, NodeOutcome], Trace]:
    made = draw(actions())
    graph = tick_graph(made)
    ids = [node.id for node in graph.nodes]
    ending = st.sampled_from([NodeOutcome.DONE] * 5 + [NodeOutcome.FAILED])
    endings = {name: draw(ending) for name in ids}
    trace = simulate(Case(graph, {name: draw(st.integers(0, 3)) for name in ids}, endings), draw(WORKERS))
    return made, {node.id: node for node in graph.nodes}, endings, trace


@given(actions())
def test_every_action_comes_from_the_decisions_that_wanted_it(made: list[TickAction]) -> None:
    graph = tick_graph(made)
    assert validate(graph) == ()
    assert list(serial_order(graph)) == [node.id for node in graph.nodes]
    for action in made:
        wanted = {(decision_id(action.compute, StrategyType(by)), f"because of {action.index}") for by in action.by}
        edges = [each for each in graph.edges if each.after == action.address and each.reason == "replica_decision"]
        assert {(each.before, each.detail) for each in edges} == wanted
    decided = {node.id for node in graph.nodes if node.kind == DECISION}
    assert decided == {each.before for each in graph.edges if each.reason == "replica_decision"}


@given(actions())
def test_the_decisions_of_a_compute_cluster_stand_in_the_order_in_which_they_were_made(made: list[TickAction]) -> None:
    graph = tick_graph(made)
    for compute in {each.compute for each in made}:
        found = [n.id for n in graph.nodes if n.kind == DECISION and n.group.endswith(f".{compute}")]
        kinds = [kind for kind in StrategyType if any(kind in each.by for each in made if each.compute == compute)]
        assert found == [decision_id(compute, kind) for kind in kinds]
        edges = {(e.before, e.after) for e in graph.edges if e.reason == "strategy_order" and e.detail == compute}
        assert edges == set(pairwise(found))


@given(runs())
def test_what_covers_a_drop_comes_first_and_a_statement_after_all_decisions(run) -> None:
    made, nodes, endings, trace = run
    starts, ends = trace.times("start"), trace.times("end")
    for action in (each for each in made if each.address in starts):
        group = nodes[action.address].group
        near = [node for node in nodes.values() if node.group == group]
        earlier = [node.id for node in near if node.kind == DECISION]
        if action.kind is ActionKind.DROP and not action.suspends:
            earlier += [n.id for n in near if n.kind == READINESS or n.action is Action.CREATE]
            assert any(n.kind == READINESS for n in near)
        if action.kind is ActionKind.CREATE and action.suspends:
            earlier += [n.id for n in near if n.action is Action.DELETE]
        for name in earlier:
            assert ends[name] < starts[action.address]
            assert endings[name].succeeded


@given(runs())
def test_a_target_is_used_by_one_node_at_a_time_and_a_failure_ends_its_compute_cluster(run) -> None:
    made, nodes, endings, trace = run
    target = {f"{each.target}.{each.compute}": each.target for each in made}
    running: set[str] = set()
    broken: set[str] = set()
    for event, name, _ in trace.events:
        group = nodes[name].group
        if event == "start":
            assert target[group] not in running
            assert group not in broken
            running.add(target[group])
        elif event == "end":
            running.remove(target[group])
            if not endings[name].succeeded:
                broken.add(group)
    done = {name for name, outcome in trace.outcomes().items() if outcome.succeeded}
    assert done >= {name for name, node in nodes.items() if node.group not in broken}
    assert all(nodes[each.address].kind == REPLICA for each in made)


POINTS = sorted(point for point in FAULT_POINTS if point.startswith("tick."))
START = {"growing": {"main": "25cc*"}, "helped": {"main": "50cc*", "old": "100cc"}, "trying": {}}
DECLARED: dict[str, Any] = {
    "growing": {"target_size": {"target_size": "50cc", "replica_name": "main"}},
    "helped": {"target_size": {"target_size": "50cc"}, "burst": {"burst_replica_size": "800cc", "cooldown_s": 600}},
    "trying": {"shrink_to_fit": {"max_replica_size": "100cc"}},
}

weather = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.sampled_from(Fault), st.integers(0, 25)),
        st.tuples(st.just("die"), st.sampled_from(POINTS), st.integers(1, 4)),
        st.tuples(st.just("lose"), st.sampled_from(["growing", "helped"]), st.just(0)),
        st.tuples(st.just("calm"), st.just(""), st.just(0)),
    ),
    max_size=6,
)


def serving(world: TargetWorld) -> set[str]:
    """The compute clusters with a hydrated replica."""
    return {name for name, held in world.clusters.items() if any(each.hydrated for each in held.replicas.values())}


def replayed(ticks: Ticks) -> dict[str, dict[str, str]]:
    """The replicas that the rows of executed statements lead to; each of them must have been possible."""
    found = {name: {n: size.rstrip("*") for n, size in replicas.items()} for name, replicas in START.items()}
    for line in ticks.executed():
        cluster, replica = line.split('"')[1::2]
        if line.startswith("CREATE"):
            assert replica not in found[cluster], line
            found[cluster][replica] = line.split("'")[1]
        else:
            assert found[cluster].pop(replica), line
    return found


@settings(max_examples=12, deadline=None)
@given(weather)
def test_whatever_happens_ticks_converge_and_tell_the_truth(events: list[tuple[str, Any, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ticks = Ticks(Path(folder), fresh_world(**START))
        ticks.apply_strategies(DECLARED)
        for kind, what, number in events:
            if kind == "lose":
                for replica in ticks.world.clusters[what].replicas:
                    ticks.world.lose_status(what, replica)
            before = serving(ticks.world)
            if kind == "fail":
                ticks.world.fail_next(what, after=number)
            with suppress(Death):
                ticks.tick(EndAt(what, number) if kind == "die" else None)
            assert before <= serving(ticks.world), "a tick took the last replica that served"
            ticks.world.faults.clear()
            ticks.pass_time(minutes=5)
        for _ in range(8):
            ticks.tick()
            ticks.pass_time(minutes=5)
        assert not ticks.tick().actions
        assert ticks.world.replicas("growing").keys() & {"main_2", "main_3"}
        assert replayed(ticks) == {name: ticks.world.replicas(name) for name in START}
        assert len({row.action_id for row in ticks.audited}) == len(ticks.audited)
        assert not [each for each in ticks.changesets() if each.state in BLOCKING]


INTERVAL_S, LENGTH_S = 300, 24 * 3600
UNBOUND = Limits(max_replicas=100)

sizes_of_trace_laws = st.sampled_from(list(SIZES.credits))
ticks = st.integers(0, LENGTH_S // INTERVAL_S - 1).map(lambda tick: tick * INTERVAL_S)


@st.composite
def activities(draw: st.DrawFn) -> tuple[Activity, ...]:
    """Spans that begin and end at ticks, apart from each other."""
    edges = sorted(draw(st.sets(ticks, max_size=8)))
    return tuple(Activity(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=False))


@st.composite
def worlds_of_trace_laws(draw: st.DrawFn) -> Scenario:
    size = draw(sizes_of_trace_laws)
    larger = draw(sizes_of_trace_laws.filter(lambda each: each != size))
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
        UNBOUND,
        draw(st.dictionaries(st.sampled_from(("main", "other")), sizes_of_trace_laws, max_size=2)),
        {each: draw(st.sampled_from((300, 900, 1800))) for each in SIZES.credits},
        draw(activities()),
        (),
        {},
    )


@given(worlds_of_trace_laws())
def test_a_replay_begins_and_is_active_as_the_world_was(world: Scenario) -> None:
    timeline = simulated(world)
    made = replay_of(trace_of(timeline), INTERVAL_S).scenario
    assert made.replicas == world.replicas
    assert [(each.start, each.to) for each in made.activity] == [(a.start, a.to) for a in world.activity]
    again = simulated(replace(made, rules=world.rules, limits=UNBOUND))
    assert [step.active for step in again.steps] == [step.active for step in timeline.steps]


@given(worlds_of_trace_laws())
def test_what_a_drop_waited_for_is_how_long_hydration_takes(world: Scenario) -> None:
    timeline = simulated(world)
    found = replay_of(trace_of(timeline), INTERVAL_S)
    measured = {line.split()[4]: int(line.split()[-2]) for line in found.recorded if line.startswith("a replica")}
    assert measured == {size: world.hydration_s[size] for size in measured}
    scenario = found.under(world.rules, UNBOUND)
    assert {size: scenario.hydration_s[size] for size in measured} == measured
    # With the times of the sizes that no drop waited for, which are assumed, the strategies do the same again.
    again = simulated(replace(scenario, hydration_s=world.hydration_s))
    assert rows_of(again) == rows_of(timeline)


names_of_trace_laws = st.sampled_from(("main", "other", 'q"x', "c_burst"))
statements = st.one_of(
    st.builds(create_replica, st.sampled_from(("c", "d")), names_of_trace_laws, sizes_of_trace_laws | st.just("gone")),
    st.builds(drop_replica, st.just("c"), names_of_trace_laws),
    st.text(max_size=5),
)
reasons = st.lists(
    st.sampled_from(("burst: x", "target_size: main of size 25cc is hydrated", "burst: other is hydrated"))
)
contexts = st.fixed_dictionaries(
    {}, optional={"reasons": reasons | st.integers(), "size": sizes_of_trace_laws | st.none()}
)
times_of_trace_laws = st.integers(-100_000, 200_000).map(lambda second: NOW + timedelta(seconds=second))
rows = st.builds(
    AuditRow, st.text(max_size=3), st.just("u1"), statements, contexts, st.booleans(), created_at=times_of_trace_laws
)


@given(
    st.dictionaries(names_of_trace_laws, sizes_of_trace_laws.map(ReplicaSpec)),
    st.lists(rows, max_size=12).map(lambda found: sorted(found, key=lambda row: str(row.created_at))),
    st.lists(st.tuples(times_of_trace_laws, times_of_trace_laws).map(sorted).map(tuple), max_size=6).map(sorted),
    st.integers(1, 2 * LENGTH_S),
    worlds_of_trace_laws(),
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
    timeline = simulated(found.under(world.rules, UNBOUND))
    assert timeline.steps[0].at_s == 0
    assert timeline.usage.replica_hours >= 0


NAMES = ("a", "b", "c")
US, OTHERS = "us (here)", "others (there)"
Rows = dict[Pair, StrategyRow]

rules = st.lists(
    st.sampled_from((TargetSize("50cc"), TargetSize("25cc"), Burst("800cc", 60), IdleSuspend(60))),
    max_size=3,
    unique_by=type_of,
)
targets = st.builds(ComputeTarget, st.just("prod"), st.just("MZ_URL"), prune=st.booleans())
digests = st.sampled_from(("0" * 64, "1" * 64))
# Compute clusters are dropped and created again under other ids.
clusters_of_projection_laws = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(("u1", "u2", "u3")), max_size=3
).filter(lambda ids: len(set(ids.values())) == len(ids))
pairs = st.tuples(st.sampled_from(("u1", "u2", "u3", "u9")), st.sampled_from([*StrategyType, "other"]).map(str))
configs = (
    {},
    rule_config(TargetSize("50cc")),
    {**rule_config(TargetSize("50cc")), DECLARED_BY: US},
    {DECLARED_BY: US},
    {DECLARED_BY: OTHERS},
)
rows_of_projection_laws = st.dictionaries(pairs, st.sampled_from(configs))


@st.composite
def applied_of_projection_laws(draw: st.DrawFn) -> tuple[ComputeRules, ...]:
    target = draw(targets)
    keys = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return tuple(ComputeRules(key, target, key, tuple(draw(rules)), Limits()) for key in sorted(keys))


@st.composite
def recorded(draw: st.DrawFn) -> OwnedRow:
    address = strategy_address(draw(st.sampled_from(NAMES)), draw(st.sampled_from([*StrategyType])))
    known = draw(st.none() | st.sampled_from(("u1", "u2", "u3")))
    written = (None, None) if known is None else (draw(digests), draw(st.sampled_from((None, US))))
    return OwnedRow(address, draw(targets), draw(st.sampled_from(NAMES)), known, *written)


def texts_of(found: tuple[ComputeRules, ...]) -> dict[Address, str]:
    return {address: each.digest for address, each in strategy_resources(found).items()}


def changed(there: Mapping[Pair, StrategyRow], changes: RowChanges) -> Rows:
    left = {pair: row for pair, row in there.items() if pair not in changes.deleted}
    return left | {(row.cluster_id, row.strategy_type): row for row in changes.written}


@given(
    applied_of_projection_laws(), st.lists(recorded(), max_size=4), clusters_of_projection_laws, rows_of_projection_laws
)
def test_what_was_carried_out_and_recorded_asks_for_nothing_more(found, owned, ids, there):
    """After the changes the declared rows are there, what is ours and not declared is gone, and others are as they were.

    Of a compute cluster that belongs to another cluster folder nothing is written, and no row of that folder is deleted.
    """
    on_target = {name: ComputeCluster(owner, name, {}) for name, owner in ids.items()}
    before = {pair: StrategyRow(*pair, config) for pair, config in there.items()}
    changes = row_changes(found, texts_of(found), owned, on_target, before, US)
    after = changed(before, changes)
    taken = {pair[0] for pair, config in there.items() if config.get(DECLARED_BY) == OTHERS}
    assert changes.claimed == {each.key: OTHERS for each in found if ids.get(each.cluster) in taken}
    wanted = {
        (ids[each.cluster], type_of(rule).value): {**rule_config(rule), DECLARED_BY: US}
        for each in found
        for rule in each.rules
        if each.cluster in ids and ids[each.cluster] not in taken
    }
    assert {pair: after[pair].config for pair in wanted} == wanted
    assert {pair for pair in after if pair[0] not in taken} - set(wanted) == set(changes.unmanaged)
    assert all(after[pair] == before[pair] for pair in set(after) - set(wanted))
    assert all(pair in after for pair, config in there.items() if config.get(DECLARED_BY) == OTHERS)
    again = row_changes(found, texts_of(found), changes.owned, on_target, after, US)
    assert (again.written, again.deleted, again.owned) == ((), (), changes.owned)


@given(
    applied_of_projection_laws(), st.lists(recorded(), max_size=4), clusters_of_projection_laws, rows_of_projection_laws
)
def test_a_run_that_died_is_made_good(found, owned, ids, there):
    """Carried out in part and not recorded, the changes come again, and lead to the same rows."""
    on_target = {name: ComputeCluster(owner, name, {}) for name, owner in ids.items()}
    before = {pair: StrategyRow(*pair, config) for pair, config in there.items()}
    changes = row_changes(found, texts_of(found), owned, on_target, before, US)
    for half in (replace(changes, deleted=()), replace(changes, written=())):
        partly = changed(before, half)
        rest = row_changes(found, texts_of(found), owned, on_target, partly, US)
        assert changed(partly, rest) == changed(before, changes)


@given(applied_of_projection_laws())
def test_what_is_recorded_reads_back(found):
    texts = {address: each.content or b"" for address, each in strategy_resources(found).items()}
    assert read_strategies(texts) == tuple(
        replace(each, rules=tuple(sorted(each.rules, key=lambda rule: type_of(rule).priority)))
        for each in found
        if each.rules
    )
