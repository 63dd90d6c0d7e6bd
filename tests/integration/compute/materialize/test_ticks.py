"""What ticks leave on PostgreSQL behind the proxy: a world to play again, and after a process that is killed a whole one."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.compute.materialize.target import MaterializeTarget
from gitops.compute.ticks.what_if import traces
from gitops.repository.wiring.system import SystemClock
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.ticks import Ticks, codes

NAME = "o\"dd.näme 'x' %s"


@pytest.fixture
def ticks(tmp_path: Path, stand_in: ServerWorld) -> Ticks:
    """A compute cluster with one replica, whose name is to be used again with another size."""
    made = Ticks(tmp_path, stand_in)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", NAME, "25cc", hydrated=True)
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": NAME}}})
    return made


@pytest.mark.parametrize(
    ("kind", "runs", "kept"),
    [
        ("materialized-view", True, True),
        ("load-generator", True, True),
        ("postgres", False, True),
        ("sink", False, True),
        # These run on the oldest replica alone until it is dropped: to wait for them would be to wait forever.
        ("postgres", True, False),
        ("sink", True, False),
    ],
)
def test_a_replica_serves_until_the_new_one_has_hydrated_all_that_can_hydrate_there(
    ticks: Ticks, kind: str, runs: bool, kept: bool
) -> None:
    ticks.world.add_object("serving", kind)
    ticks.world.hydrate("serving", NAME, but="" if runs else kind)
    ticks.tick()
    ticks.world.hydrate("serving", f"{NAME}_2", but=kind)
    ticks.tick()
    assert (NAME in ticks.world.replicas("serving")) == kept
    ticks.world.hydrate("serving", f"{NAME}_2")
    ticks.tick()
    assert set(ticks.world.replicas("serving")) == {f"{NAME}_2"}


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
    assert (span.start, span.to) == (20 * 60, 30 * 60)


_CHILD = """\
import sys
from dataclasses import replace
from pathlib import Path

from gitops.compute.ticks.tick import Ticking, tick
from gitops.core.redact import Secret
from gitops.compute.materialize.connection import Address
from gitops.compute.materialize.target import MaterializeTarget
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
