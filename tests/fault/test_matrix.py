"""The crash matrix: every verb dies at every visit of every fault point it reaches, on every kind of ledger.

Each case is one process killed by SIGKILL. Then the verb is run again, as an operator would, and after `refresh` and `apply`
everything is as if nothing had happened. `make faults` runs all of them and prints what the second run had to do.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault import matrix
from tests.fault.matrix import (
    DEADLINE_S,
    POINTS,
    TABLE,
    VERBS,
    Recovery,
    Seen,
    Starts,
    die,
    look,
    points,
    recorded,
    recover,
    require_converged,
    require_no_replay,
)
from tests.fault.matrix_stores import SCENES, Scene
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import visits

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
# `tests/scenario/test_projection.py`. Records of calls are in `tests/integration/serving/test_use_recorder.py`.
_CLUSTER = ("engine.create.", "engine.migrate.", "engine.delete.", "engine.fence.")
_OTHERS = ("engine.", "server.", "cluster_decide.", "changeset.commit.", "tick.", "strategies.", "use_record.")
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


@pytest.mark.slow
@pytest.mark.parametrize("store", ["folder", "branch"])
def test_ten_applies_killed_at_random_moments(begin, tmp_path, store):
    """The first run is left alone and says how long one lasts; the others die within that time, more often late."""
    starts, chance = begin(store), random.Random(7)  # noqa: S311 - when to kill, not a secret
    before, whole, killed, turn = starts.seen("apply", look), float(DEADLINE_S), 0, 0
    while killed < 10:
        turn += 1
        scene = starts.copy("apply", tmp_path / str(turn))
        process, began = matrix.begin(scene, "apply"), time.perf_counter()
        try:
            # Imports come first, and take long.
            process.wait(timeout=whole * chance.random() ** 0.25 if turn > 1 else whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        if process.wait(timeout=DEADLINE_S) == 0:
            whole = min(whole, time.perf_counter() - began)
        else:
            assert process.returncode == -signal.SIGKILL
            killed += 1
        settle(scene, "apply", before)
        shutil.rmtree(scene.home)


def survive(starts: Starts, place: Path, case: Case) -> Recovery:
    """Die, recover, and look at everything; returns what the second run of the verb had to do."""
    before = starts.seen(case.verb, look)
    scene = starts.copy(case.verb, place)
    die(scene, case.verb, case.point, case.visit)
    return settle(scene, case.verb, before)


def settle(scene: Scene, verb: str, before: Seen) -> Recovery:
    """Recover from a death, and look at everything."""
    recovery = recover(scene, verb, before)
    if verb == "import":
        scene.fill_after_import()
    require_converged(scene)
    if verb not in ("import", "approve"):
        require_no_replay(scene)
    return recovery
