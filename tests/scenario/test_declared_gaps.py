"""A compute cluster that may have one replica only keeps it, unless `drop_first` declares a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import DoAt
from tests.support.target_world import Fault, fresh_world
from tests.support.ticks import Died, DieOnce, Ticks, codes, sql

DROP = 'DROP CLUSTER REPLICA IF EXISTS "serving"."main"'
CREATE = """CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc')"""


@pytest.fixture
def ticks(tmp_path: Path) -> Ticks:
    made = Ticks(tmp_path, fresh_world(serving={"main": "25cc*"}))
    made.world.clusters["serving"].single = True
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "drop_first": True}}})
    return made


def test_without_it_the_replica_stays(ticks: Ticks) -> None:
    ticks.apply_strategies({"serving": {"target_size": {"target_size": "50cc"}}})
    assert codes(ticks.tick()) == ["single_replica_only"]
    assert ticks.world.replicas("serving") == {"main": "25cc"}


def test_the_old_replica_goes_before_the_new_one_comes(ticks: Ticks) -> None:
    outcome = ticks.tick()
    assert (codes(outcome), sql(outcome)) == ([], [DROP, CREATE])
    assert ticks.world.replicas("serving") == {"r_50cc": "50cc"}
    assert ticks.executed() == [DROP, CREATE]
    ticks.pass_time(minutes=5)
    assert ticks.until_quiet() == []


def test_a_tick_that_dies_in_the_gap_is_gone_on_with_by_the_next(ticks: Ticks) -> None:
    with pytest.raises(Died):
        ticks.tick(DieOnce("tick.after_audit"))
    assert ticks.world.replicas("serving") == {}
    outcome = ticks.tick()
    assert (outcome.ok, sql(outcome)) == (True, [CREATE])
    assert ticks.executed() == [DROP, CREATE]


def test_a_drop_that_fails_is_followed_by_no_create(ticks: Ticks) -> None:
    outcome = ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.fail_next(Fault.ERROR)))
    assert codes(outcome) == ["replica_failed"]
    assert ticks.world.replicas("serving") == {"main": "25cc"}
    assert (ticks.tick().ok, ticks.world.replicas("serving")) == (True, {"r_50cc": "50cc"})
