"""Two cluster folders with one target: what belongs to one of them, the other one leaves alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.targets.port import TARGET_LOCK, StrategyRow
from gitops.compute.ticks.tick import Ticking, TickOutcome, Wipe, preview, tick, wake, wipe
from gitops.compute.ticks.what_if import with_what_if
from gitops.core.diagnostics import Severity
from tests.support.cluster import DoAt, codes
from tests.support.memory_target import MemoryTarget
from tests.support.projected import Projected
from tests.support.target_world import TargetWorld, fresh_world

CLAIMED = ["compute_cluster_claimed"]
SMALL = {"target": "prod", "target_size": {"target_size": "25cc"}}
LAZY = {**SMALL, "idle_suspend": {"idle_after_s": 900}}


@pytest.fixture
def world() -> TargetWorld:
    return fresh_world(serving={"main": "100cc*"}, reports={"main": "100cc*"})


@pytest.fixture
def first(tmp_path: Path, world: TargetWorld) -> Projected:
    """A folder that has applied strategies of `serving`."""
    return folder(tmp_path, "first", world)


def folder(place: Path, name: str, world: TargetWorld, *, apply: bool = True, **strategies: Any) -> Projected:
    (place / name).mkdir()
    made = Projected(place / name, name=name, world=world)
    if strategies:
        made.section["strategies"] = strategies
        made.save()
    assert made.import_().ok
    if apply:
        made.apply()
    return made


def ticked(cluster: Projected, **how: Any) -> TickOutcome:
    return tick(cluster.workspace(), Ticking(cluster.open, **how))


def test_the_second_folder_with_a_compute_cluster_gets_its_code_and_does_nothing_to_it(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, serving=LAZY, reports=SMALL)
    applied = second.apply()
    assert (codes(applied), applied.ok) == (CLAIMED, True)
    [said] = applied.diagnostics
    assert (said.severity, said.path) == (Severity.WARNING, "compute.strategies.serving")
    assert "serving on target prod belongs to the cluster folder first (" in said.message
    assert codes(second.status()) == ["projection_pending"]
    before = copy.deepcopy((world.strategy_rows, world.clusters["serving"].replicas))
    outcome = ticked(second)
    assert (codes(outcome), outcome.ok, outcome.decided) == (CLAIMED, False, ("prod/reports",))
    assert set(world.replicas("reports")) == {"main", "r_25cc"}, "the others go on"
    looked = preview(second.workspace(), Ticking(second.open))
    assert (codes(looked), looked.decided) == (CLAIMED, ("prod/reports",))
    assert (world.strategy_rows, world.clusters["serving"].replicas) == before
    assert not [row for row in world.state_rows or () if row[0] == "u1"]
    assert (codes(ticked(first)), codes(first.apply()), codes(first.status())) == ([], [], [])
    assert set(world.replicas("serving")) == {"main", "r_50cc"}


def test_a_memory_of_another_folder_is_neither_wiped_nor_woken(tmp_path, first, world):
    first.serving["idle_suspend"] = {"idle_after_s": 600}
    first.save()
    assert codes(first.apply()) == []
    assert ticked(first).ok
    second = folder(tmp_path, "second", world, serving=LAZY, reports=LAZY)
    states = list(world.state_rows or ())
    how = Ticking(second.open)
    assert codes(wake(second.workspace(), how, "serving")) == CLAIMED
    assert codes(wipe(second.workspace(), how, Wipe.CHOSEN)) == CLAIMED
    assert codes(wipe(second.workspace(), how, Wipe.ORPHANS)) == []
    assert world.state_rows == states
    assert codes(wake(second.workspace(), how, "reports")) == []


def test_rows_of_another_folder_are_neither_reported_nor_pruned(tmp_path, first, world):
    # Nor is what another program wrote beside them: who owns the compute cluster reports it.
    world.strategy_rows = [*(world.strategy_rows or ()), StrategyRow("u1", "idle_suspend", {"idle_after_s": 60})]
    rows = list(world.strategy_rows)
    second = folder(tmp_path, "second", world, reports=SMALL)
    second.section["targets"]["prod"]["prune"] = True
    second.save()
    assert codes(second.apply()) == []
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows
    assert codes(first.apply()) == ["unmanaged_strategy"]
    # Also not where the other folder declares the same compute cluster.
    second.section["strategies"]["serving"] = SMALL
    second.save()
    assert codes(second.apply()) == CLAIMED
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows
    del second.section["strategies"]["serving"]
    second.save()
    assert codes(second.apply()) == []
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows


def test_a_compute_cluster_is_free_once_its_folder_lets_go_of_it(tmp_path, first, world):
    second = folder(tmp_path, "second", world, serving=LAZY)
    del first.section["strategies"]["serving"]
    first.save()
    assert codes(first.apply()) == []
    assert not world.strategy_rows
    assert codes(ticked(second)) == []
    assert first.owners() == {"second"}
    assert codes(second.status()) == []


def test_a_folder_with_another_name_keeps_its_compute_clusters(first, world):
    first.options["metadata"] = {"name": "renamed"}
    first.save()
    assert codes(first.apply()) == []
    assert first.owners() == {"renamed"}
    assert codes(ticked(first)) == []


def test_two_ticks_of_different_folders_at_once_do_not_act_on_one_target(tmp_path, first, world):
    second = folder(tmp_path, "second", world, reports=SMALL)
    met: list[TickOutcome] = []
    meet = DoAt("tick.before_statement", lambda: met.append(ticked(second, scheduled=True)))
    assert tick(first.workspace(faults=meet), Ticking(first.open)).ok
    assert [(codes(each), each.ok, each.actions) for each in met] == [(["already_running"], True, ())]
    assert set(world.replicas("reports")) == {"main"}
    assert ticked(second).ok
    assert set(world.replicas("reports")) == {"main", "r_25cc"}


def test_an_apply_beside_a_tick_of_another_folder_leaves_its_rows_to_the_next_run(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, reports=SMALL)
    with MemoryTarget(world) as other:
        assert other.try_lock(TARGET_LOCK)
        waiting = second.apply()
        assert codes(first.apply()) == [], "nothing of it waits"
    assert (codes(waiting), waiting.ok) == (["projection_pending"], True)
    assert "another run is at work on the target" in waiting.diagnostics[0].message
    assert codes(second.apply()) == []
    assert first.owners() == {"first", "second"}


def test_folders_that_claim_a_compute_cluster_at_the_same_time_both_leave_it_alone(tmp_path, world):
    # A target without locks, and strategies of different types: no row replaces another one.
    world.without_locks()
    first = folder(tmp_path, "first", world, apply=False, serving=SMALL)
    second = folder(
        tmp_path, "second", world, apply=False, serving={"target": "prod", "burst": {"burst_replica_size": "800cc"}}
    )
    first.apply(faults=DoAt("strategies.before_write_rows", second.apply))
    assert first.owners() == {"first", "second"}
    for each in (first, second):
        assert codes(ticked(each)) == CLAIMED
    assert world.replicas("serving") == {"main": "100cc"}
    del second.section["strategies"]["serving"]
    second.save()
    assert codes(second.apply()) == []
    assert codes(ticked(first)) == []
    assert first.owners() == {"first"}


def test_a_plan_says_that_a_compute_cluster_belongs_to_another_folder_and_not_to_which(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, serving=SMALL)
    [found] = with_what_if(second.workspace(), second.plan()).what_if
    assert (found.code, found.actions) == ("compute_cluster_claimed", ())
    assert "first" not in found.said
