"""Kill a load of a file at every point, and continue it: its rows are published once, all of them, in the same order."""

from __future__ import annotations

import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.fault.engine_campaign import debris
from tests.support import prefork
from tests.support.clock import FixedClock
from tests.support.faults import DieAt, DoAt, visits
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK
from tests.support.pages import ROOT
from tests.support.resumed import begin, load_file, people, physical

CODE = "import sys; from tests.fault import test_load_kill as t; t.die(*map(eval, sys.argv[1:]))"
MODES = (LoadMode.MERGE, LoadMode.OVERWRITE, LoadMode.APPEND)


def die(uri: str, file: str, mode: str, resume: bool, point: str, visit: int) -> None:
    """What a child does."""
    load_file(
        uri, Path(file), LoadMode(mode), resume=resume, faults=DieAt(point, visit), start=7_000 if resume else 5_000
    )


def killed(uri: str, file: Path, mode: LoadMode, point: str, visit: int, *, resume: bool = False) -> None:
    arguments = (uri, str(file), mode.value, resume, point, visit)
    process = subprocess.run([*prefork.PYTHON, "-c", CODE, *map(repr, arguments)], cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL


def go_on(uri: str, file: Path, mode: LoadMode, before: int) -> int:
    """Continue a load as its user does, and return the version that has the rows."""
    try:
        return load_file(uri, file, mode, resume=True, start=9_000).manifest_version
    except GitopsError as error:
        if error.code != Code.LOAD_NOT_STAGED:
            raise
    newest = open_snapshot(uri).manifest.n
    return newest if newest > before else load_file(uri, file, mode, start=9_000).manifest_version


def file_of(tmp_path: Path, mode: LoadMode) -> Path:
    """Records that the mode accepts: an id twice only where the last one wins."""
    lines = people(120)
    if mode is not LoadMode.MERGE:
        lines = [line for line in lines if '"About"' not in line]
    file = tmp_path / "people.ndjson"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """The points of a whole load, without most of its checkpoints."""
    place, faults = tmp_path_factory.mktemp("whole"), DoAt()
    begin(place / "g.omni")
    load_file(str(place / "g.omni"), file_of(place, LoadMode.MERGE), LoadMode.MERGE, faults=faults)
    return [(point, visit) for point, visit in visits(faults.reached) if visit in (1, 2)]


def test_a_killed_load_is_continued_with_equal_rows(tmp_path: Path, reached: list[tuple[str, int]]) -> None:
    assert {"engine.load.after_checkpoint", "engine.load.after_publish", "engine.load.after_end"} <= {
        point for point, _ in reached
    }
    whole = {}
    for mode in MODES:
        begin(tmp_path / mode)
        load_file(str(tmp_path / mode), file_of(tmp_path, mode), mode)
        whole[mode] = physical(str(tmp_path / mode))
    for turn, (point, visit) in enumerate(reached):
        mode, uri = MODES[turn % len(MODES)], str(tmp_path / f"{turn}.omni")
        file, before = file_of(tmp_path, mode), begin(uri).version
        killed(uri, file, mode, point, visit)
        if turn % 2 and point.startswith("engine.load.after_checkpoint"):
            # The one that continues dies, too.
            killed(uri, file, mode, "engine.load.before_publish", 1, resume=True)
        assert go_on(uri, file, mode, before) == before + 1
        assert open_snapshot(uri).manifest.n == before + 1
        assert physical(uri) == whole[mode]
        assert not [each for each in verify_graph(uri, deep=True).findings if each.is_problem]


@pytest.mark.parametrize("point", ["engine.load.before_checkpoint", "engine.load.after_checkpoint"])
def test_gc_removes_a_load_that_is_not_continued(tmp_path: Path, point: str) -> None:
    uri, file = str(tmp_path / "g.omni"), file_of(tmp_path, LoadMode.MERGE)
    before = begin(uri).version
    killed(uri, file, LoadMode.MERGE, point, 2)

    def collect(after: timedelta) -> None:
        context = WriteContext(FixedClock(CLOCK.now() + after), SequentialIds(70_000))
        collect_garbage(uri, context, Retention(grace=timedelta()))

    collect(timedelta(days=2))
    assert debris(uri).files
    collect(timedelta(days=4))
    left = debris(uri)
    assert [each.name for each in (tmp_path / "g.omni" / "loads").iterdir()] == []
    # What was staged after the last checkpoint is in no document; the driver removes it after seven days.
    assert left.files <= 8
    with pytest.raises(GitopsError) as refusal:
        load_file(uri, file, LoadMode.MERGE, resume=True)
    assert refusal.value.code == Code.LOAD_NOT_STAGED
    assert load_file(uri, file, LoadMode.MERGE).manifest_version == before + 1
