"""Ticks through the adapter, on PostgreSQL in the place of a target: one life, and a fault at each statement of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.materialize.target import MaterializeTarget
from gitops.model.changeset import BLOCKING
from gitops.model.compute import ComputeTarget
from gitops.strategies.port import StrategyTarget
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.target_world import Fault
from tests.support.ticks import Ticks, codes, sql

NAME = 'it\'s "ours".ß'
QUOTED = '"it\'s ""ours"".ß_2"'
SIZED = {"target_size": {"target_size": "50cc", "replica_name": NAME}}
ASLEEP = {**SIZED, "idle_suspend": {"idle_after_s": 900}}


class ServerTicks(Ticks):
    """The bench of ticks with a stand-in as its target."""

    def open(self, target: ComputeTarget) -> StrategyTarget:
        """A new connection."""
        assert isinstance(self.world, ServerWorld)
        return MaterializeTarget(address(self.world))


def bench(folder: Path, stand_in: ServerWorld) -> ServerTicks:
    """Compute clusters with a replica of another size than will be declared, and one that the target looks after by itself."""
    for name in ("serving", "other"):
        stand_in.add_cluster(name)
        stand_in.add_replica(name, NAME, "25cc", hydrated=True)
    stand_in.add_cluster("own", managed=True)
    return ServerTicks(folder, stand_in)


def test_a_compute_cluster_grows_and_sleeps(tmp_path, stand_in):
    ticks = bench(tmp_path, stand_in)
    ticks.apply_strategies({"serving": ASLEEP})
    create = f"CREATE CLUSTER REPLICA \"serving\".{QUOTED} (SIZE '50cc')"
    assert sql(ticks.preview()) == [create]
    assert stand_in.tables() == set()
    assert (sql(ticks.tick()), sql(ticks.tick())) == ([create], [])
    ticks.pass_time(minutes=5)
    assert sql(ticks.tick()) == ['DROP CLUSTER REPLICA IF EXISTS "serving"."it\'s ""ours"".ß"']
    ticks.pass_time(minutes=16)
    assert sql(ticks.tick()) == [f'DROP CLUSTER REPLICA IF EXISTS "serving".{QUOTED}']
    assert (stand_in.replicas("serving"), stand_in.replicas("other")) == ({}, {NAME: "25cc"})
    assert [row.executed for row in ticks.audited] == [True] * 3
    assert sorted(row[2]["strategy_type"] for row in stand_in.state_rows) == ["idle_suspend", "target_size"]


def test_a_managed_compute_cluster_is_left_alone(tmp_path, stand_in):
    ticks = bench(tmp_path, stand_in)
    ticks.apply_strategies({"own": SIZED})
    assert codes(ticks.tick()) == ["compute_cluster_managed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stride"), [(Fault.CUT_AFTER, 2), (Fault.CUT_BEFORE, 3), (Fault.ERROR, 4), (Fault.CANCELLED, 5)]
)
def test_after_a_fault_at_any_statement_the_next_ticks_converge(tmp_path, stand_in, fault, stride):
    both = ("serving", "other")
    statement, left = 0, False
    while not left:
        stand_in.reset()
        folder = tmp_path / str(statement)
        folder.mkdir()
        ticks = bench(folder, stand_in)
        ticks.apply_strategies(dict.fromkeys(both, SIZED))
        stand_in.fail_next(fault, after=statement)
        for _ in range(6):
            ticks.tick()
            assert all(map(stand_in.hydrated, both)), statement
            ticks.pass_time(minutes=5)
        left = stand_in.forget_faults()
        assert {name: stand_in.replicas(name) for name in both} == {name: {f"{NAME}_2": "50cc"} for name in both}, (
            statement
        )
        assert not [each for each in ticks.changesets() if each.state in BLOCKING], statement
        executed = [row.action_sql for row in ticks.audited if row.executed]
        assert (len(executed), len(set(executed))) == (4, 4), statement
        statement += stride
    assert statement > 20
