"""The port of a target of strategies, over every implementation of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.port import AuditRow, ReplicaOutcome, StrategyRow, StrategyTarget
from gitops.cluster.targets.signals import Crashes, PendingReplica, ReplicaSpec, StrategyState
from gitops.compute.materialize.target import MaterializeTarget
from gitops.core.errors import GitopsError, RemoteError
from tests.support.effort import cases
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import Fault, TargetWorld

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOSTILE = (
    "a.b",
    'say "no"',
    "it's",
    "Größe 漢字",
    "x; DROP TABLE t --",
    "percent %s %%",
    "a" * 70,
    "back\\slash",
    "🙂",
)


@pytest.fixture(params=["memory", "server"])
def world(request) -> TargetWorld | ServerWorld:
    return TargetWorld() if request.param == "memory" else request.getfixturevalue("stand_in")


@pytest.fixture
def open_target(world) -> Callable[[], StrategyTarget]:
    return lambda: MemoryTarget(world) if isinstance(world, TargetWorld) else MaterializeTarget(address(world))


@pytest.fixture
def target(open_target):
    with open_target() as opened:
        yield opened


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def state(kind: StrategyType, cluster: str = "serving", **fields) -> StrategyState:
    return StrategyState(kind, cluster, ago(days=1), **fields)


def audit(action: str, *, executed: bool = True) -> AuditRow:
    return AuditRow(
        action, "u1", "DROP", {"reasons": ["idle"], "action_index": 1}, executed, None if executed else "no"
    )


def observed(target, *, lookback=timedelta(hours=2)):
    """The signals of every compute cluster, by name."""
    clusters = target.clusters()
    signals = target.observe(clusters.values(), now=NOW, lookback=lookback)
    return {name: signals[each.cluster_id] for name, each in clusters.items()}


def test_clusters_have_their_replicas_and_those_of_tools_are_left_out(world, target):
    held = world.add_cluster("serving")
    world.add_cluster("run by the target", managed=True)
    for name in ("main", "mzclusterctl"):
        world.add_replica("serving", name, "25cc")
    found = target.clusters()
    assert set(found) == {"serving", "run by the target"}
    assert (found["serving"].cluster_id, found["serving"].managed) == (held, False)
    assert dict(found["serving"].replicas) == {"main": ReplicaSpec("25cc")}
    assert (found["run by the target"].managed, dict(found["run by the target"].replicas)) == (True, {})


def test_sizes_are_in_order_with_their_credits(world, target):
    world.add_cluster("serving")
    for table in (observed(target)["serving"].sizes, target.sizes()):
        assert list(table.credits.items()) == list(world.sizes.credits.items())


def test_activity_is_the_newest_begin_or_end_of_a_statement_of_others(world, target):
    for name in ("ended", "running", "ours", "long ago", "never"):
        world.add_cluster(name)
    world.activity("ended", ago(minutes=30), ago(minutes=10))
    world.activity("ended", ago(minutes=40), ago(minutes=20))
    world.activity("running", ago(minutes=5))
    world.activity("ours", ago(minutes=5), ago(minutes=5), application_name="cluster-gitops")
    world.activity("long ago", ago(hours=5), ago(hours=4))
    found = {name: each.last_activity for name, each in observed(target).items()}
    expected = {"ended": ago(minutes=10), "running": ago(minutes=5), "ours": None, "long ago": None, "never": None}
    assert found == expected
    assert observed(target, lookback=None)["long ago"].last_activity == ago(hours=4)


def test_a_replica_is_hydrated_once_all_its_objects_are(world, target):
    held = world.add_cluster("serving", objects=2)
    for name in ("ready", "new", "silent"):
        world.add_replica("serving", name, "25cc")
    world.hydrate("serving", "ready")
    world.hydrate("serving", "silent")
    world.lose_status("serving", "silent")
    assert observed(target)["serving"].hydrated == target.hydrated(held) == {"ready"}
    world.hydrate("serving", "new")
    assert target.hydrated(held) == {"new", "ready"}


def test_a_replica_without_objects_is_hydrated_once_it_is_online(world, target):
    held = world.add_cluster("empty", objects=0)
    for name in ("on", "off", "unheard"):
        world.add_replica("empty", name, "25cc")
    world.set_online("empty", "on", online=True)
    world.set_online("empty", "off", online=True)
    world.set_online("empty", "off", online=False)
    assert observed(target)["empty"].hydrated == target.hydrated(held) == {"on"}


def test_crashes_count_once_for_all_processes_and_for_an_hour(world, target):
    world.add_cluster("serving")
    for name in ("main", "calm"):
        world.add_replica("serving", name, "25cc")
    world.crash("serving", "main", "oom-killed", ago(minutes=5), processes=2)
    world.crash("serving", "main", "error", ago(minutes=59))
    world.crash("serving", "main", "oom-killed", ago(minutes=61))
    assert dict(observed(target)["serving"].crashes) == {"main": Crashes(2, 1)}


def test_what_a_missing_column_leaves_unread_is_named(world, target):
    world.add_cluster("serving")
    world.hide("mz_internal.mz_hydration_statuses", "hydrated")
    world.hide("mz_catalog.mz_clusters", "managed")
    with pytest.raises(RemoteError) as failure:
        target.probe()
    assert failure.value.code == "signal_unavailable"
    for name in ("mz_internal.mz_hydration_statuses(hydrated)", "mz_catalog.mz_clusters(managed)"):
        assert name in failure.value.detail
    with pytest.raises(RemoteError) as unread:
        target.clusters()
    assert unread.value.code == "signal_unavailable"


def test_a_role_without_a_privilege_is_told_what_to_grant(world, target):
    world.deny("SELECT", "mz_catalog.mz_clusters")
    with pytest.raises(RemoteError) as failure:
        target.clusters()
    assert failure.value.code == "target_denied"
    assert 'GRANT SELECT ON mz_catalog.mz_clusters TO "bot"' in (failure.value.fix or "")


def test_reading_needs_no_tables_and_makes_none(world, target):
    assert (dict(target.strategies()), dict(target.states()), target.state_owners()) == ({}, {}, frozenset())
    assert world.tables() == set()
    target.create_tables()
    target.create_tables()
    assert world.tables() == {"mz_cluster_strategies", "mz_cluster_strategy_state", "mz_cluster_strategy_actions"}


def test_the_newest_row_of_a_pair_counts_and_one_without_a_time_is_the_oldest(world, target):
    target.create_tables()
    world.insert_strategy("u1", "target_size", {"target_size": "1"}, None)
    world.insert_strategy("u1", "target_size", {"target_size": "3"}, ago(minutes=1))
    world.insert_strategy("u1", "target_size", {"target_size": "2"}, ago(minutes=2))
    world.insert_strategy("u2", "own idea", {}, None)
    found = {pair: dict(row.config) for pair, row in target.strategies().items()}
    assert found == {("u1", "target_size"): {"target_size": "3"}, ("u2", "own idea"): {}}


@pytest.mark.parametrize("fault", [None, *Fault])
@pytest.mark.parametrize("at", range(3))
def test_rows_are_replaced_without_a_moment_without_one(world, target, fault, at):
    target.create_tables()
    world.insert_strategy("u1", "burst", {"burst_replica_size": "old"}, NOW + timedelta(days=1))
    world.insert_strategy("u1", "burst", {"burst_replica_size": "older"}, None)
    world.insert_strategy("u2", "burst", {"burst_replica_size": "other"}, ago(days=1))
    wanted = [StrategyRow("u1", "burst", {"burst_replica_size": "new", "deep": [1, None, "ß'"]})]
    if fault is not None:
        world.fail_next(fault, after=at)
        with pytest.raises(RemoteError):
            target.replace_strategies(wanted, at=NOW)
        assert ("u1", "burst") in target.strategies()
    target.replace_strategies(wanted, at=NOW)
    found = target.strategies()
    assert dict(found["u1", "burst"].config) == dict(wanted[0].config)
    assert found["u2", "burst"].config == {"burst_replica_size": "other"}
    assert len(world.strategy_rows or ()) == 2


def test_deleted_strategies_take_their_states_along(world, target):
    target.create_tables()
    pairs = [("u1", "burst"), ("u1", "target_size"), ("u2", "burst")]
    target.replace_strategies([StrategyRow(owner, kind, {}) for owner, kind in pairs], at=NOW)
    for owner in ("u1", "u2"):
        target.replace_states(owner, [state(StrategyType.BURST), state(StrategyType.TARGET_SIZE)], at=NOW)
    target.delete_strategies([("u1", "burst")])
    target.delete_strategies([("u1", "burst")])
    assert set(target.strategies()) == set(pairs[1:])
    left = {owner: [each.strategy for each in states] for owner, states in target.states().items()}
    assert left == {"u1": ["target_size"], "u2": ["target_size", "burst"]}


def test_a_state_comes_back_as_it_was_written_and_the_newest_counts(world, target):
    target.create_tables()
    pending = PendingReplica('na"me', "25cc", ago(minutes=3))
    first = state(StrategyType.TARGET_SIZE, pending=pending, last_decision=ago(minutes=3), last_outcome="created")
    other = state(StrategyType.BURST, failed_sizes={"25cc": ago(minutes=1)}, woken=ago(minutes=2))
    target.replace_states("u1", [first, other], at=NOW)
    assert list(target.states()["u1"]) == [first, other]
    later = state(StrategyType.TARGET_SIZE)
    target.replace_states("u1", [later], at=NOW)
    assert list(target.states()["u1"]) == [later, other]
    assert len(world.state_rows or ()) == 2


def test_rows_of_another_version_are_no_state_and_are_wiped_all_the_same(world, target):
    target.create_tables()
    world.insert_state("u1", 1, {"last_decision_ts": "2026-06-01T11:00:00"}, NOW)
    world.insert_state("u9", 2, {"strategy_type": "burst"}, None)
    target.replace_states("u2", [state(StrategyType.BURST)], at=NOW)
    assert set(target.states()) == {"u2"}
    assert target.state_owners() == {"u1", "u2", "u9"}
    assert target.wipe_states(["u1", "u9", "u7"]) == 2
    assert target.state_owners() == {"u2"}
    target.recreate_states()
    assert target.state_owners() == frozenset()
    assert "mz_cluster_strategy_state" in world.tables()


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_an_action_is_audited_exactly_once(world, target, fault):
    target.create_tables()
    world.fail_next(fault)
    with pytest.raises(RemoteError) as failure:
        target.audit(audit("a1"))
    assert (failure.value.code, failure.value.retryable) == ("target_unreachable", True)
    target.audit(audit("a1"))
    target.audit(audit("a1", executed=False))
    target.audit(audit("a2", executed=False))
    rows = {row.action_id: replace(row, created_at=None) for row in world.audit_rows or ()}
    assert len(world.audit_rows or ()) == 2
    assert rows == {"a1": audit("a1"), "a2": audit("a2", executed=False)}
    json.dumps(rows["a1"].decision_ctx)


def test_audit_rows_are_read_back_from_a_time_on_in_their_order(world, target):
    assert target.audited(["u1"], since=ago(days=7)) == []
    target.create_tables()
    for name, age in (("late", 1), ("early", 3), ("old", 9)):
        world.insert_audit(audit(name), ago(days=age))
    world.insert_audit(replace(audit("other"), cluster_id="u2"), ago(days=1))
    found = target.audited(["u1", "u3"], since=ago(days=7))
    assert found == [replace(audit(name), created_at=ago(days=age)) for name, age in (("early", 3), ("late", 1))]
    target.audit(audit("now", executed=False))
    [written] = [row for row in target.audited(["u1"], since=ago(days=9)) if row.action_id == "now"]
    assert written.created_at is not None
    assert replace(written, created_at=None) == audit("now", executed=False)


def test_activity_is_read_back_by_minutes_without_our_own(world, target):
    owners = [world.add_cluster(name) for name in ("busy", "long", "quiet", "unasked")]
    world.activity("busy", ago(minutes=30, seconds=-10), ago(minutes=30, seconds=-40))
    world.activity("busy", ago(minutes=30, seconds=-20), ago(minutes=30, seconds=-25))
    world.activity("busy", ago(minutes=10))
    world.activity("busy", ago(minutes=20), application_name="cluster-gitops")
    world.activity("busy", ago(days=8), ago(days=8))
    world.activity("long", ago(days=8), ago(days=1))
    world.activity("unasked", ago(minutes=5))
    found = target.activity(owners[:3], since=ago(days=7))
    assert {owner: list(spans) for owner, spans in found.items()} == {
        owners[0]: [(ago(minutes=30, seconds=-10), ago(minutes=30, seconds=-40)), (ago(minutes=10), ago(minutes=10))],
        owners[1]: [(ago(days=8), ago(days=1))],
    }
    world.hide("mz_internal.mz_statement_execution_history_redacted", "began_at")
    with pytest.raises(RemoteError) as failure:
        target.activity(owners, since=ago(days=7))
    assert failure.value.code == "signal_unavailable"


def test_an_error_of_the_target_names_what_it_said(world, target):
    target.create_tables()
    world.fail_next(Fault.ERROR)
    with pytest.raises(RemoteError) as failure:
        target.audit(audit("a1"))
    assert (failure.value.code, failure.value.retryable) == ("target_failed", False)
    assert "something unexpected happened" in failure.value.detail


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_survives_create_and_drop(world, target, name):
    world.add_cluster(name)
    assert target.create_replica(name, name, "25cc").outcome is ReplicaOutcome.DONE
    assert dict(target.clusters()[name].replicas) == {name: ReplicaSpec("25cc")}
    assert world.replicas(name) == {name: "25cc"}
    assert target.drop_replica(name, name).outcome is ReplicaOutcome.DONE
    assert target.drop_replica(name, name).outcome is ReplicaOutcome.DONE
    assert world.replicas(name) == {}


def test_what_the_target_refuses_has_its_outcome(world, target):
    for name, managed, single in (("serving", False, False), ("managed", True, False), ("single", False, True)):
        world.add_cluster(name, managed=managed, single=single)
    for name in ("serving", "single"):
        world.add_replica(name, "main", "25cc")
    found = [
        target.create_replica("serving", "main", "25cc"),
        target.create_replica("serving", "other", "nonsense"),
        target.create_replica("managed", "main", "25cc"),
        target.drop_replica("managed", "main"),
        target.create_replica("single", "other", "25cc"),
        target.create_replica("nowhere", "main", "25cc"),
    ]
    expected = ["exists", "invalid_size", "managed", "managed", "single_replica", "absent"]
    assert [each.outcome for each in found] == expected, [each.message for each in found]
    assert all(each.message for each in found)
    assert world.replicas("serving") == {"main": "25cc"}


@pytest.mark.parametrize(
    ("fault", "outcome", "done"),
    [
        (Fault.CUT_BEFORE, "indeterminate", False),
        (Fault.CUT_AFTER, "indeterminate", True),
        (Fault.CANCELLED, "indeterminate", False),
        (Fault.ERROR, "failed", False),
    ],
)
def test_a_statement_that_fails_says_whether_its_effect_is_known_and_the_next_one_connects_again(
    world, target, fault, outcome, done
):
    world.add_cluster("serving")
    world.fail_next(fault)
    assert target.create_replica("serving", "main", "25cc").outcome == outcome
    assert ("main" in target.clusters()["serving"].replicas) is done
    assert target.create_replica("serving", "main", "25cc").outcome == ("exists" if done else "done")


def test_a_lock_is_held_by_one_until_it_leaves(open_target):
    with open_target() as first, open_target() as second:
        assert (first.try_lock("a"), second.try_lock("a"), second.try_lock("b")) == (True, False, True)
    with open_target() as third:
        assert third.try_lock("a") is True


def test_a_target_without_locks_says_so(world, target):
    world.without_locks()
    assert target.try_lock("a") is None


def test_a_target_that_is_down_is_unreachable(world, open_target):
    world.stop()
    with pytest.raises(RemoteError) as failure, open_target():
        raise AssertionError("it opened")
    assert (failure.value.code, failure.value.retryable) == ("target_unreachable", True)
    assert failure.value.path == "compute.targets.prod"


def test_a_target_that_goes_down_is_unreachable_and_a_statement_indeterminate(world, target):
    world.add_cluster("serving")
    world.stop()
    assert target.drop_replica("serving", "main").outcome is ReplicaOutcome.INDETERMINATE
    with pytest.raises(RemoteError, match="does not respond"):
        target.clusters()
    world.start()
    assert set(target.clusters()) == {"serving"}


def test_a_tick_reads_five_hundred_clusters_in_eight_statements(world, target):
    world.add_clusters(500)
    target.create_tables()
    before = world.statements
    target.probe()
    assert [each.hydrated for each in observed(target).values()] == [{"main"}] * 500
    target.strategies()
    target.states()
    assert world.statements - before <= 8


CLUSTERS = {"plain": {}, "managed": {"managed": True}, "single": {"single": True}, "empty": {"objects": 0}}
REPLICAS = ("main", "mzclusterctl", "o'ne.\"two")
World = TargetWorld | ServerWorld
Step = Callable[[World, StrategyTarget], Any]

# Most of a story is about one replica.
_there = st.sampled_from(["plain"] * 3 + ["empty"] * 2 + [*CLUSTERS])
_clusters = st.one_of(_there, st.just("nowhere"))
_replicas = st.sampled_from([REPLICAS[0]] * 3 + [*REPLICAS])
_ages = st.integers(0, 7200).map(lambda seconds: NOW - timedelta(seconds=seconds))
_kinds = st.sampled_from(StrategyType)


def _create(cluster: str, replica: str, size: str) -> Step:
    return lambda world, target: target.create_replica(cluster, replica, size).outcome


def _drop(cluster: str, replica: str) -> Step:
    return lambda world, target: target.drop_replica(cluster, replica).outcome


def _at_replica(cluster: str, replica: str, happen: Callable[[World], None]) -> Step:
    return lambda world, target: happen(world) if replica in world.replicas(cluster) else None


def _hydrate(cluster: str, replica: str) -> Step:
    return _at_replica(cluster, replica, lambda world: world.hydrate(cluster, replica))


def _crash(cluster: str, replica: str, reason: str, at: datetime) -> Step:
    return _at_replica(cluster, replica, lambda world: world.crash(cluster, replica, reason, at, processes=2))


def _activity(cluster: str, at: datetime, name: str) -> Step:
    return lambda world, target: world.activity(cluster, at, application_name=name)


def _owner(target: StrategyTarget, cluster: str) -> str:
    return target.clusters()[cluster].cluster_id


def _strategies(cluster: str, kinds: list[str], at: datetime) -> Step:
    def write(world: World, target: StrategyTarget) -> None:
        rows = [StrategyRow(_owner(target, cluster), kind, {"at": at.isoformat()}) for kind in kinds]
        target.replace_strategies(rows, at=at)

    return write


def _states(cluster: str, kinds: list[StrategyType], at: datetime) -> Step:
    def write(world: World, target: StrategyTarget) -> None:
        target.replace_states(_owner(target, cluster), [StrategyState(kind, cluster, at) for kind in kinds], at=at)

    return write


def _delete(cluster: str, kind: str) -> Step:
    return lambda world, target: target.delete_strategies([(_owner(target, cluster), kind)])


def _wipe(cluster: str) -> Step:
    return lambda world, target: target.wipe_states([_owner(target, cluster)])


def _audit(action: str, *, executed: bool) -> Step:
    return lambda world, target: target.audit(AuditRow(action, "u", "DROP", {"n": 1}, executed))


def _fault(fault: Fault, after: int) -> Step:
    return lambda world, target: world.fail_next(fault, after=after)


STEPS = st.one_of(
    st.builds(_create, _clusters, _replicas, st.sampled_from(["25cc", "100cc", "nonsense"])),
    st.builds(_drop, _clusters, _replicas),
    st.builds(_hydrate, _there, _replicas),
    st.builds(_crash, _there, _replicas, st.sampled_from(["oom-killed", "error"]), _ages),
    st.builds(_activity, _there, _ages, st.sampled_from(["app", "cluster-gitops"])),
    st.builds(_strategies, _there, st.lists(_kinds, unique=True, max_size=3), _ages),
    st.builds(_states, _there, st.lists(_kinds, unique=True, max_size=3), _ages),
    st.builds(_delete, _there, _kinds),
    st.builds(_wipe, _there),
    st.builds(_audit, st.sampled_from(["a1", "a2"]), executed=st.booleans()),
    st.builds(_fault, st.sampled_from(Fault), st.integers(0, 3)),
)


def live(world: World, open_target: Callable[[], StrategyTarget], steps: list[Step]) -> list[Any]:
    """What each step gave, and in the end everything that can be read; ids of clusters are given as their names."""
    for name, form in CLUSTERS.items():
        world.add_cluster(name, **form)
    found: list[Any] = []
    with open_target() as target:
        target.create_tables()
        for step in steps:
            try:
                found.append(step(world, target))
            except GitopsError as error:
                found.append(error.code)
        # A fault of the last steps that met no statement so far is not for what is read now.
        world.forget_faults()
        clusters = target.clusters()
        names = {each.cluster_id: name for name, each in clusters.items()}
        signals = target.observe(clusters.values(), now=NOW, lookback=timedelta(hours=1))
        found += [(name, dict(each.replicas), each.managed) for name, each in sorted(clusters.items())]
        found += sorted(
            (names[owner], each.last_activity, sorted(each.hydrated), sorted(each.crashes.items()))
            for owner, each in signals.items()
        )
        found += sorted((names[owner], kind, row.config["at"]) for (owner, kind), row in target.strategies().items())
        found += sorted((names[owner], list(states)) for owner, states in target.states().items())
        found += sorted(names[owner] for owner in target.state_owners())
    return [*found, sorted(row.action_id for row in world.audit_rows or ()), len(world.strategy_rows or ())]


@settings(max_examples=cases(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=12))
def test_the_twin_and_the_stand_in_live_the_same_story(stand_in, steps):
    stand_in.reset()
    memory = TargetWorld()
    there = live(stand_in, lambda: MaterializeTarget(address(stand_in)), steps)
    assert live(memory, lambda: MemoryTarget(memory), steps) == there
