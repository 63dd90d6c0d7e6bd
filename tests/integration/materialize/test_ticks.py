"""Ticks on PostgreSQL, behind the proxy that makes it a target: the same stories as on the twin, over the wire."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.apply.replays import traces
from gitops.materialize.target import MaterializeTarget
from gitops.model.plan import NodeOutcome
from gitops.strategies.port import TARGET_LOCK
from gitops.wiring.system import SystemClock
from tests.support.cluster import DoAt
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.target_world import Fault
from tests.support.ticks import Died, DieOnce, Ticks, codes, sql

NAME = "o\"dd.näme 'x' %s"


@pytest.fixture
def ticks(tmp_path: Path, stand_in: ServerWorld) -> Ticks:
    """A compute cluster with one replica, whose name is to be used again with another size."""
    made = Ticks(tmp_path, stand_in)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", NAME, "25cc", hydrated=True)
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": NAME}}})
    return made


def test_a_size_changes_under_a_reused_name(ticks: Ticks) -> None:
    assert ticks.preview().ok
    assert ticks.world.tables() == set()
    assert ticks.tick().ok
    assert ticks.world.replicas("serving") == {NAME: "25cc", f"{NAME}_2": "50cc"}
    assert not ticks.tick().actions, "nothing else is hydrated yet"
    ticks.world.hydrate("serving", f"{NAME}_2")
    assert len(ticks.tick().actions) == 1
    assert ticks.world.replicas("serving") == {f"{NAME}_2": "50cc"}
    assert [row.executed for row in ticks.audited] == [True, True]
    assert not ticks.tick().actions
    assert [row[2]["last_outcome"] for row in ticks.world.state_rows] == ["applied"]


def test_what_ticks_recorded_is_a_world_to_play_again(ticks: Ticks) -> None:
    ticks.tick()
    ticks.world.hydrate("serving", f"{NAME}_2")
    ticks.tick()
    now = SystemClock().now()
    ticks.world.activity("serving", now - timedelta(minutes=40), now - timedelta(minutes=30))
    since, until = now - timedelta(hours=1), now + timedelta(minutes=1)
    with MaterializeTarget(address(ticks.world)) as target:
        cluster = target.clusters()["serving"]
        signals = target.observe([cluster], now=now, lookback=None)
        sizes = {owner: each.sizes for owner, each in signals.items()}
        [found] = traces(target, [cluster], sizes, since, until)
    assert dict(found.scenario.replicas) == {NAME: "25cc"}
    assert found.recorded[:2] == (
        "statements about replicas that were carried out: 2",
        "times in which statements ran: 1",
    )
    [span] = found.scenario.activity
    assert (span.start_s, span.end_s) == (20 * 60, 30 * 60)


def test_of_two_ticks_one_acts(ticks: Ticks) -> None:
    with MaterializeTarget(address(ticks.world)) as other:
        assert other.try_lock(TARGET_LOCK)
        assert codes(ticks.tick()) == ["already_running"]
    assert ticks.tick().ok


def test_a_connection_that_is_cut_after_a_create(ticks: Ticks) -> None:
    outcome = ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.fail_next(Fault.CUT_AFTER)))
    assert [each.outcome for each in outcome.results] == [NodeOutcome.DONE]
    assert "its effect was found after" in ticks.audited[0].decision_ctx["execution_result"]
    assert ticks.tick().ok
    assert ticks.world.replicas("serving") == {NAME: "25cc", f"{NAME}_2": "50cc"}
    assert [row.executed for row in ticks.audited] == [True]


@pytest.mark.parametrize("point", ["tick.after_statement", "tick.after_audit"])
def test_a_tick_that_dies_is_settled_by_the_next_one(ticks: Ticks, point: str) -> None:
    with pytest.raises(Died):
        ticks.tick(DieOnce(point))
    outcome = ticks.tick()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert sql(outcome) == []
    assert [row.executed for row in ticks.audited] == [True]


_CHILD = """\
import sys
from dataclasses import replace
from pathlib import Path

from gitops.apply.tick import Ticking, tick
from gitops.core.redact import Secret
from gitops.materialize.connection import Address
from gitops.materialize.target import MaterializeTarget
from tests.support.cluster import Cluster, DieAt

folder, url, point = sys.argv[1:]
target = MaterializeTarget(Address("compute.targets.prod", Secret("PROD_URL", url), "cluster-gitops"))
tick(Cluster(Path(folder)).workspace("ada", DieAt(point)), Ticking(lambda _: target))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["tick.before_statement", "tick.after_statement", "tick.after_audit", "tick.after_memory"]
)
def test_a_process_that_is_killed_costs_neither_a_replica_nor_a_row(
    tmp_path: Path, stand_in: ServerWorld, point: str
) -> None:
    ticks = Ticks(tmp_path, stand_in, memory=False)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", "a", "25cc", hydrated=True)
    ticks.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": "main"}}})
    argv = [sys.executable, "-c", _CHILD, str(tmp_path), stand_in.url(), point]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    holder = ticks.ledger.observe_lock().info
    assert holder is not None
    assert codes(ticks.tick()) == ["state_lock_held"]
    assert ticks.cluster.unlock(holder.lock_id).ok
    assert codes(ticks.tick()) == ["cluster_recovery_rolled_forward"]
    ticks.tick()
    assert stand_in.replicas("serving") == {"a": "25cc", "main": "50cc"}
    assert [row.executed for row in ticks.audited] == [True]
