"""Kill merge, gc, optimize and the making and removing of branches at every point: the next run converges.

After each death the graph shows the image before or after the deed, a reader who pinned a version reads on, and verify finds
nothing wrong.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.engine import LanceEngine, plan_migration
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.preview import preview_migration
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.results import MergeStatus
from gitops.database.graph.snapshot import accept_schema
from gitops.database.graph.staged import hold_lease
from tests.fault.test_engine_kill import HERE, DyingAt
from tests.support.fault_points import FAULT_POINTS
from tests.support.histories import LATE, SCHEMA, History, person, read_rows, town
from tests.support.prefork import PYTHON

SHARP = Retention(2, timedelta(0), timedelta(0))
EAGER = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)


def deed(uri: str, name: str, point: str) -> None:
    """What the child does."""
    DEEDS[name](later(uri, 1), DyingAt(point))


def later(uri: str, days: int) -> History:
    """The graph, days after it was prepared."""
    return History(uri, b"", start=100_000 * days, now=LATE + timedelta(days=days))


def _merge(history: History, faults: Faults) -> None:
    assert merge_branch(history.uri, "dev", "main", history.work(faults)).status in (
        MergeStatus.MERGED,
        MergeStatus.UP_TO_DATE,
    )


def _gc(history: History, faults: Faults) -> None:
    collect_garbage(history.uri, history.work(faults), SHARP)


def _optimize(history: History, faults: Faults) -> None:
    optimize_tables(history.uri, history.work(faults), EAGER)


def _create(history: History, faults: Faults) -> None:
    if "new" not in {branch.name for branch in list_branches(history.uri)}:
        create_branch(history.uri, "new", history.work(faults))


def _delete(history: History, faults: Faults) -> None:
    if "dev" in {branch.name for branch in list_branches(history.uri)}:
        delete_branch(history.uri, "dev", history.work(faults))


def _preview(history: History, faults: Faults) -> None:
    preview_migration(history.uri, SCHEMA.replace(b"mail", b"post"), history.work(faults))
    assert preview_migration(history.uri, SCHEMA + b"node X {}\n", history.work(faults)).supported


DEEDS: dict[str, Callable[[History, Faults], None]] = {
    "merge": _merge,
    "gc": _gc,
    "optimize": _optimize,
    "branch.create": _create,
    "branch.delete": _delete,
    "preview": _preview,
}
UNSEEN = "engine.migrate.staged"
"""Reached by migrations of `main` alone."""

POINTS = [
    *((name, point) for name in DEEDS for point in FAULT_POINTS if point.startswith(f"engine.{name}.")),
    *(
        ("preview", point)
        for point in FAULT_POINTS
        if point.startswith(("engine.branch.", "engine.migrate.")) and point != UNSEEN
    ),
]


def prepare(uri: str) -> History:
    """Two branches with changes of their own, old versions to free, and a table that nobody has any more."""
    history = History(uri)
    for age in range(4):
        history.people("main", a=age, b=age)
    create_branch(uri, "old", history.work())
    history.people("old", **{f"x{n}": n for n in range(5)})
    delete_branch(uri, "old", history.work())
    create_branch(uri, "dev", history.work())
    history.put("dev", {"node:Person": [person("d", 1)], "node:Town": [town("t")]}, {"node:Person": ["b"]})
    history.people("main", a=9)
    at, wider = history.at("dev"), accept_schema(SCHEMA + b"node Stray {}\n")
    steps = plan_migration(at.schema(), wider).steps
    LanceEngine(history.clock, history.ids).stage_migration(at, wider, steps, None).abort()
    return history


def images(history: History) -> dict[str, object]:
    return {branch.name: history.image(branch.name) for branch in list_branches(history.uri)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, object]]:
    """The images before and after each deed when nobody dies."""
    found = {}
    for name, act in DEEDS.items():
        history = prepare(str(tmp_path_factory.mktemp("o") / "g.omni"))
        before = images(history)
        act(later(history.uri, 1), NoFaults())
        found[name] = before, images(history)
    return found


@pytest.mark.parametrize(("name", "point"), POINTS, ids=["-".join(pair) for pair in POINTS])
def test_a_death_at_a_point_is_repaired_by_the_next_run(
    tmp_path: Path, outcomes: dict[str, tuple[object, object]], name: str, point: str
) -> None:
    history = prepare(str(tmp_path / "g.omni"))
    pinned = history.at(version=3)
    with hold_lease(pinned, history.work(), timedelta(days=9)):
        seen = read_rows(pinned, "node:Person")
        code = "import sys; from tests.fault.test_history_kill import deed; deed(*sys.argv[1:])"
        dead = subprocess.run([*PYTHON, "-c", code, history.uri, name, point], cwd=HERE, check=False)
        assert dead.returncode == -signal.SIGKILL
        before, after = outcomes[name]
        assert images(history) in (before, after)
        report = verify_graph(history.uri, deep=True)
        assert report.ok, report.to_json()
        assert read_rows(pinned, "node:Person") == seen
        DEEDS[name](later(history.uri, 2), NoFaults())
        assert images(history) == after
        assert read_rows(pinned, "node:Person") == seen
        collect_garbage(history.uri, later(history.uri, 3).work(), SHARP)
        assert read_rows(pinned, "node:Person") == seen
    collect_garbage(history.uri, later(history.uri, 4).work(), SHARP)
    assert images(history) == after
    report = verify_graph(history.uri, deep=True)
    assert report.findings == (), report.to_json()
    if name == "gc":
        with pytest.raises(GitopsError):
            read_rows(pinned, "node:Person")
