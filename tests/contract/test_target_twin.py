"""The twin in memory and the stand-in on PostgreSQL live the same story: what stories on the twin prove holds for the adapter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.port import AuditRow, StrategyRow, StrategyTarget
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.materialize.target import MaterializeTarget
from gitops.core.errors import GitopsError
from tests.support.effort import cases
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import Fault, TargetWorld

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
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
