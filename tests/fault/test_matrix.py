"""The crash matrix: every verb dies at every visit of every fault point it reaches, on every kind of ledger.

Each case is one process killed by SIGKILL. Then the verb is run again, as an operator would, and after `refresh` and `apply`
everything is as if nothing had happened. `make faults` runs all of them and prints what the second run had to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault.matrix import POINTS, TABLE, VERBS, Starts, die, points, recorded, visits
from tests.fault.matrix_recovery import Recovery, look, recover, require_converged, require_no_replay
from tests.fault.matrix_stores import SCENES
from tests.support.fault_points import FAULT_POINTS

Begin = Callable[[str], Starts]


@dataclass(frozen=True)
class Case:
    """Which death."""

    store: str
    verb: str
    point: str
    visit: int = 1

    def __str__(self) -> str:
        """As the test is called."""
        return f"{self.store}-{self.verb}-{self.point}-{self.visit}"


_CASES = [
    Case(store, verb, point, visit)
    for store, verbs in recorded().items()
    for verb, reached in verbs.items()
    for point, visit in visits(reached)
]
_SAMPLE = [
    Case("folder", "apply", "ledger.commit.after_state"),
    Case("folder", "apply", "cluster_apply.after_graph_delete"),
    Case("branch", "apply", "ledger.branch.after_push", 2),
    Case("branch", "apply", "ledger.anchor.before_write", 2),
    Case("s3", "apply", "cluster_apply.after_schema_apply"),
]
_RUNS = [(store, verb) for store in SCENES for verb in VERBS]
# Writing rows and keeping a graph are no verbs of the control plane; `test_engine_campaign.py` dies there. Servers die in
# `test_serve.py`, those who take something back or countersign in `test_revocations.py`, atomic runs
# and restores in `test_atomic_matrix.py`, ticks in `test_tick_faults.py`, what brings rows of strategies in line in
# `tests/scenario/test_projection.py`.
_CLUSTER = ("engine.create.", "engine.migrate.", "engine.delete.", "engine.fence.")
_OTHERS = ("engine.", "server.", "cluster_decide.", "changeset.commit.", "tick.", "strategies.")
_RESTORES = {"cluster_apply.before_graph_restore", "cluster_apply.after_graph_restore"}
_ELSEWHERE = {name for name in FAULT_POINTS if name.startswith(_OTHERS) and not name.startswith(_CLUSTER)} | _RESTORES


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Starts]:
    place = tmp_path_factory.mktemp("starts")
    return {store: Starts(place, kind) for store, kind in SCENES.items()}


@pytest.fixture
def begin(made: dict[str, Starts], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """The starts on a kind of ledger, with the service that it needs."""

    def starts(store: str) -> Starts:
        if store == "s3":
            server = request.getfixturevalue("s3_server")
            server.forget()
            for name, value in server.environ.items():
                monkeypatch.setenv(name, value)
        return made[store]

    return starts


def test_the_matrix_has_every_store_verb_and_point():
    assert {store: set(verbs) for store, verbs in recorded().items()} == {store: set(VERBS) for store in SCENES}
    assert {case.point for case in _CASES} == set(FAULT_POINTS) - _ELSEWHERE
    assert set(_SAMPLE) <= set(_CASES)


@pytest.mark.parametrize("case", _SAMPLE, ids=str)
def test_a_sample_of_deaths(begin, tmp_path, case):
    survive(begin(case.store), tmp_path / "case", case)


@pytest.mark.slow
@pytest.mark.parametrize(("store", "verb"), _RUNS)
def test_a_verb_reaches_the_points_that_were_recorded(begin, tmp_path, store, verb):
    found, wanted = points(begin(store).copy(verb, tmp_path / "case"), verb), recorded()[store][verb]
    if store == "s3":
        # On a bucket changes are carried out at the same time, in any order.
        found, wanted = sorted(found), sorted(wanted)
    assert found == wanted, f"write {POINTS.name} again: python -m tests.fault.matrix"


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES, ids=str)
def test_death_at_a_point(begin, tmp_path, record_property, case):
    recovery = survive(begin(case.store), tmp_path / "case", case)
    record_property(TABLE, [case.store, case.verb, case.point, recovery.value])


def survive(starts: Starts, place: Path, case: Case) -> Recovery:
    """Die, recover, and look at everything; returns what the second run of the verb had to do."""
    before = starts.seen(case.verb, look)
    scene = starts.copy(case.verb, place)
    die(scene, case.verb, case.point, case.visit)
    recovery = recover(scene, case.verb, before)
    if case.verb == "import":
        scene.fill_after_import()
    require_converged(scene)
    if case.verb not in ("import", "approve"):
        require_no_replay(scene)
    return recovery
