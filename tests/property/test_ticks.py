"""Ticks in any weather: whatever dies, fails or is lost, the audit rows tell what happened, and nothing stops serving."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.changeset import BLOCKING
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import Death, EndAt
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Ticks

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
