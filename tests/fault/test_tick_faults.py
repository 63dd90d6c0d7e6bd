"""Ticks and applies of strategies that die, or whose target fails, at each of their steps: the next ones converge."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.changeset import BLOCKING
from gitops.cluster.model.compute import owned_rows
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.wiring.stores import declared_target
from tests.fault.tick_campaign import KINDS, STORIES, TABLE, After, Campaign
from tests.support.cluster import Cluster, codes
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import Death, DoAt, EndAt
from tests.support.materialize.server_world import ServerWorld
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Ticks

# Two ticks do everything: a create in one compute cluster, two drops behind a readiness in the other, and later the rest.
_DECLARED = {
    "growing": {"target_size": {"target_size": "50cc", "replica_name": "main"}},
    "shrinking": {"target_size": {"target_size": "50cc"}},
}
_CLUSTERS = {"growing": {"main": "25cc*"}, "shrinking": {"a": "25cc*", "b": "100cc*", "r": "50cc*"}}
_ENDS = {"growing": {"main_2": "50cc"}, "shrinking": {"r": "50cc"}}
_POINTS = [point for point in FAULT_POINTS if point.startswith("tick.")]


def _bench(folder: Path) -> Ticks:
    ticks = Ticks(folder, fresh_world(**_CLUSTERS))
    ticks.apply_strategies(_DECLARED)
    return ticks


def _statements(folder: Path) -> list[str]:
    """What the first tick asks its target."""
    ticks = _bench(folder)
    ticks.tick()
    return ticks.world.log


def _check_guard(world: TargetWorld) -> None:
    served = {name: any(each.hydrated for each in held.replicas.values()) for name, held in world.clusters.items()}
    assert all(served.values()), served


def _converge(ticks: Ticks) -> None:
    """Tick until nothing is left to do; then everything is as declared, recorded, and audited once."""
    for _ in range(6):
        _check_guard(ticks.world)
        outcome = ticks.tick()
        if outcome.ok and not outcome.actions and ticks.world.replicas("growing") == _ENDS["growing"]:
            break
        ticks.pass_time(minutes=5)
    assert (outcome.ok, outcome.actions) == (True, ())
    assert {name: ticks.world.replicas(name) for name in _ENDS} == _ENDS
    assert not [each for each in ticks.changesets() if each.state in BLOCKING]
    executed = [row for row in ticks.audited if row.executed]
    assert len({row.action_id for row in ticks.audited}) == len(ticks.audited)
    assert dict(_replayed(executed_sql=[row.action_sql for row in executed])) == _ENDS
    assert len(executed) == 4, "each of the four changes of the world has one row"


def _replayed(executed_sql: list[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The replicas that the audited statements lead to; a statement that changes nothing has no row."""
    world = {name: {n: size.rstrip("*") for n, size in replicas.items()} for name, replicas in _CLUSTERS.items()}
    for line in executed_sql:
        cluster, replica = line.split('"')[1::2]
        if line.startswith("CREATE"):
            assert replica not in world[cluster], line
            world[cluster][replica] = line.split("'")[1]
        else:
            del world[cluster][replica]
    yield from world.items()


@pytest.mark.parametrize(
    "fault",
    [
        Fault.CUT_BEFORE,
        Fault.CUT_AFTER,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (Fault.ERROR, Fault.CANCELLED)),
    ],
)
def test_a_target_that_fails_at_any_statement(tmp_path: Path, fault: Fault) -> None:
    for number in range(1, len(_statements(tmp_path)) + 1):
        ticks = _bench(tmp_path)
        ticks.world.faults[number] = fault
        ticks.tick()
        _converge(ticks)


@pytest.mark.parametrize("point", _POINTS)
def test_a_tick_that_dies(tmp_path: Path, point: str) -> None:
    died = 0
    for number in range(1, 8):
        ticks = _bench(tmp_path)
        try:
            ticks.tick(EndAt(point, number))
        except Death:
            died += 1
        _converge(ticks)
    assert 1 <= died <= 6


def test_a_tick_and_the_one_after_it_die(tmp_path: Path) -> None:
    ticks = _bench(tmp_path)
    for point in ("tick.after_statement", "tick.before_audit"):
        with pytest.raises(Death):
            ticks.tick(EndAt(point))
        _check_guard(ticks.world)
    _converge(ticks)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What lets the next write of the ledger fail, once."""
    errors = [GitopsError(Code.STATE_WRITE_ERROR, "the disk is full")]

    def fail_once() -> None:
        if errors:
            monkeypatch.setattr(FolderLedger, "begin", raise_it)

    def raise_it(*_: object) -> None:
        monkeypatch.undo()
        raise errors.pop()

    return fail_once


@pytest.mark.parametrize("point", ["tick.before_statement", "tick.before_memory"])
def test_a_ledger_that_refuses_to_record_the_end(tmp_path: Path, point: str, refuse: Callable[[], None]) -> None:
    ticks = _bench(tmp_path)
    assert not ticks.tick(DoAt(point, refuse)).ok
    _converge(ticks)


def test_a_ledger_that_refuses_the_changeset_keeps_the_target_as_it_is(
    tmp_path: Path, refuse: Callable[[], None]
) -> None:
    ticks = _bench(tmp_path)
    refuse()
    assert codes(ticks.tick()) == ["state_write_error"]
    assert {name: ticks.world.replicas(name).keys() for name in _CLUSTERS} == {
        n: c.keys() for n, c in _CLUSTERS.items()
    }
    _converge(ticks)


# A statement about a replica, its audit row, and the rows of strategies; and each thing that may be left to the next tick.
_SAMPLE = [
    ("first tick", "CREATE CLUSTER REPLICA", "unanswered", After.NOTHING),
    ("shrink", "DROP CLUSTER REPLICA", "too_long", After.AGAIN),
    ("create and drop", "INSERT INTO mz_cluster_strategy_actions", "error twice", After.SETTLED),
    ("owed rows", "INSERT INTO mz_cluster_strategy_actions", "cut_before", After.SETTLED),
    ("grow", "INSERT INTO mz_cluster_strategies", "cut_after", After.AGAIN),
]


@pytest.mark.parametrize(("story", "statement", "kind", "after"), _SAMPLE)
def test_a_fault_of_a_sample(
    tmp_path: Path,
    stand_in: ServerWorld,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    statement: str,
    kind: str,
    after: After,
) -> None:
    campaign = Campaign(tmp_path, stand_in, story, monkeypatch)
    [first, *_] = [at for at, text in enumerate(campaign.statements()) if text.startswith(statement)]
    assert campaign.fault_at(first, kind)[3] == after


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_every_statement(
    tmp_path: Path,
    stand_in: ServerWorld,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    kind: str,
    record_property: Callable[[str, object], None],
) -> None:
    campaign = Campaign(tmp_path, stand_in, story, monkeypatch)
    sent = campaign.statements()
    assert len(sent) >= 14
    for statement in range(len(sent)):
        record_property(TABLE, campaign.fault_at(statement, kind))


DEADLINE = 60
POINTS = [
    "ledger.commit.after_state",
    *(f"strategies.{moment}_{step}" for step in ("write_rows", "delete_rows") for moment in ("before", "after")),
    "ledger.commit.before_state",
]
APPLY_TO_THE_POINT = """
import sys
from gitops.repository.wiring.stores import folder_workspace
from gitops.cluster.apply.apply import apply
from tests.support.cluster import DieAt
apply(folder_workspace(sys.argv[1], actor="dead", faults=DieAt(sys.argv[2])))
"""


class OnServer(Cluster):
    """A cluster that declares nothing but strategies of `serving`, on PostgreSQL in the place of a target."""

    def __init__(self, folder, url):
        self.environ = {"MZ_URL": url}
        super().__init__(folder)
        self.graphs, self.policies = {}, {}
        self.declare(target_size={"target_size": "50cc"}, burst={"burst_replica_size": "800cc"})

    def declare(self, **strategies):
        targets = {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}}}
        self.options["compute"] = {"targets": targets, "strategies": {"serving": {"target": "prod", **strategies}}}
        self.save()

    def workspace(self, *given, **named):
        made = super().workspace(*given, **named)
        return replace(made, open_target=lambda target: declared_target(self.environ, target))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_an_apply_that_is_killed_around_its_rows_is_made_good_by_the_next(tmp_path, stand_in, point):
    owner = stand_in.add_cluster("serving")
    cluster = OnServer(tmp_path, stand_in.url())
    assert cluster.import_().ok
    assert codes(cluster.apply()) == []
    cluster.declare(target_size={"target_size": "100cc"})
    process = subprocess.run(
        [*PYTHON, "-c", APPLY_TO_THE_POINT, str(cluster.folder), point],
        cwd=ROOT,
        check=False,
        timeout=DEADLINE,
        env={**os.environ, **cluster.environ},
    )
    assert process.returncode == -signal.SIGKILL
    holder = cluster.status().observations.held.info
    assert holder is not None
    assert cluster.unlock(holder.lock_id).ok
    outcome = cluster.apply()
    assert outcome.converged
    rows = {(row.cluster_id, row.strategy_type): row.config["target_size"] for row in stand_in.strategy_rows}
    assert rows == {(owner, "target_size"): "100cc"}
    assert len(stand_in.strategy_rows) == 1
    (row,) = owned_rows(cluster.state.observations)
    assert (row.cluster_id, row.digest) == (owner, cluster.state.resources[row.address].digest)
    assert (codes(cluster.apply()), codes(cluster.status())) == ([], [])
