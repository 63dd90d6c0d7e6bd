"""A tick that dies, or whose target fails, at each of its steps: the next ticks converge, and every statement is audited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.changeset import BLOCKING
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.core.fault_points import FAULT_POINTS
from tests.support.cluster import DoAt
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Died, DieOnce, Ticks, codes

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
            ticks.tick(DieOnce(point, number))
        except Died:
            died += 1
        _converge(ticks)
    assert 1 <= died <= 6


def test_a_tick_and_the_one_after_it_die(tmp_path: Path) -> None:
    ticks = _bench(tmp_path)
    for point in ("tick.after_statement", "tick.before_audit"):
        with pytest.raises(Died):
            ticks.tick(DieOnce(point))
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
