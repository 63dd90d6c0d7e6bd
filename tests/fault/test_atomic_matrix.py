"""Runs that land whole or not at all die in every phase, on every kind of ledger and storage.

At each death the applied state has moved wholly or not at all, and so it has after the next run: what was going on went on, or
was taken back, and its record has ended. `make faults` prints what became of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fault.atomic_matrix import (
    PROGRAM,
    STORIES,
    TABLE,
    AtomicStarts,
    Ending,
    look,
    moments,
    recover,
    require_landed,
    require_whole_or_nothing,
)
from tests.fault.matrix import die, points
from tests.fault.matrix_stores import ATOMIC_SCENES

_RUNS = [
    (store, story) for store in ATOMIC_SCENES for story in STORIES if story != "bot" or store in ("clone", "bucket")
]
_EXPECTED = {
    "whole": {Ending.RESUMED, Ending.FORWARD},
    "parts": {Ending.FORWARD},
    "resume": {Ending.RESUMED, Ending.FORWARD},
    "forward": {Ending.FORWARD},
    "finish": {Ending.FORWARD},
    "other": {Ending.BACK},
    "take-back": {Ending.RESUMED, Ending.BACK},
    "give-up": {Ending.BACK},
    "retry": {Ending.RESUMED, Ending.FORWARD},
    "bot": {Ending.RESUMED, Ending.FORWARD},
    "restore": {Ending.RESUMED},
    "withdrawn": {Ending.BACK},
}
"""What has to become of some deaths of a run."""


@pytest.fixture(scope="session")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AtomicStarts]:
    place = tmp_path_factory.mktemp("atomic")
    return {store: AtomicStarts(place, kind) for store, kind in ATOMIC_SCENES.items()}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("store", "story"), _RUNS)
def test_deaths_of_a_run(starts, request, monkeypatch, tmp_path, record_property, subtests, store, story):
    if store in ("s3", "bucket"):
        server = request.getfixturevalue("s3_server")
        server.forget()
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
    begun = starts[store]
    living = begun.copy(story, tmp_path / "living")
    reached = points(living, story, PROGRAM)
    shutil.rmtree(living.home)
    endings = set()
    for point, visit in moments(story, reached):
        with subtests.test(point=point, visit=visit):
            ending, by = Ending.UNEXPECTED, "none"
            try:
                ending, by = survive(begun, tmp_path / "case", (story, point, visit))
            finally:
                endings.add(ending)
                record_property(TABLE, [store, story, point, ending.value, by])
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
    assert endings >= _EXPECTED[story]


def survive(starts: AtomicStarts, place: Path, case: tuple[str, str, int]) -> tuple[Ending, str]:
    """Die, recover, and look at everything; returns what became of the run, and which command brought it to its end."""
    story, point, visit = case
    before = starts.seen(story, look)
    scene = starts.copy(story, place)
    die(scene, story, point, visit, PROGRAM)
    dead = look(scene)
    require_whole_or_nothing(before, dead)
    ending, by = recover(scene, story, dead)
    require_whole_or_nothing(before, look(scene))
    require_landed(scene)
    return ending, by
