"""Kill merge, gc, optimize, bulk loads and the making and removing of branches at every point: the next run converges."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.bulk import BulkPart, BulkPlan, BulkTask, plan_bulk, publish_bulk, write_part
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
from gitops.repository.wiring.system import SystemClock
from tests.fault.test_engine_kill import HERE, Cut
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import DieAt
from tests.support.histories import LATE, SCHEMA, History, person, read_rows, town
from tests.support.prefork import PYTHON, run
from tests.support.s3 import S3Place

SHARP = Retention(2, timedelta(0), timedelta(0))
EAGER = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)


def deed(uri: str, name: str, point: str) -> None:
    """What the child does."""
    DEEDS[name](later(uri, 1), DieAt(point))


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
        dead = run([*PYTHON, "-c", code, history.uri, name, point], cwd=HERE)
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


def prepare_small(uri: str) -> History:
    """Two branches with a change each, and old versions to free."""
    history = History(uri, b"node Person { name: String @key  age: I32?  mail: String? }\n")
    for age in range(3):
        history.people("main", a=age, b=age)
    create_branch(uri, "dev", history.work())
    history.put("dev", {"node:Person": [person("d", 1)]}, {"node:Person": ["b"]})
    history.people("main", a=9)
    return history


STRIDES = {"merge": 4, "gc": 6, "optimize": 11, "branch.create": 2, "branch.delete": 2}
"""How many writes lie between two deaths: all kinds of writes are hit, and not each of many alike."""


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["before", "after", "answer lost"])
@pytest.mark.parametrize("name", STRIDES)
def test_a_service_that_fails_at_any_write_is_survived(s3: S3Place, name: str, cut: str) -> None:
    whole = prepare_small(f"{s3.root}/graphs/whole.omni")
    before = images(whole)
    DEEDS[name](later(whole.uri, 1), NoFaults())
    after = images(whole)
    for left in count(0, STRIDES[name]):
        history = prepare_small(f"{s3.root}/graphs/g{left}.omni")
        fault = Cut(left, served=cut != "before", lost=cut == "answer lost")
        s3.server.fault = fault
        with contextlib.suppress(GitopsError):
            DEEDS[name](later(history.uri, 1), NoFaults())
        s3.server.forget()
        assert images(history) in (before, after)
        assert verify_graph(history.uri, deep=True).ok
        DEEDS[name](later(history.uri, 2), NoFaults())
        assert images(history) == after
        late = later(history.uri, 3)
        late.clock.advance(timedelta(hours=1))
        collect_garbage(history.uri, late.work(), SHARP)
        assert images(history) == after
        report = verify_graph(history.uri, deep=True)
        assert report.findings == (), report.to_json()
        if not fault.struck:
            return


PUBLISHING = ("before_tables", "staged", "before_publish", "after_publish")


def die_publishing(uri: str, point: str, plan: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    """What the child does."""
    work = History(uri, b"", start=100_000).work(DieAt(f"engine.load.{point}"))
    publish_bulk(BulkPlan.from_json(plan), [BulkPart.from_json(each) for each in parts], work)


def die_writing(task: dict[str, Any]) -> None:
    """Write a part, and never say so."""
    table = pa.table({"name": ["zoe"]})
    write_part(BulkTask.from_json(task), table, History("/nowhere", b"", start=200_000).ids)
    signal.raise_signal(signal.SIGKILL)


def killed(target: Callable[..., None], *arguments: Any) -> None:
    child = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("point", PUBLISHING)
def test_a_publisher_that_dies_leaves_all_or_nothing_and_may_be_called_again(tmp_path: Path, point: str) -> None:
    history = History(str(tmp_path / "g.omni"))
    history.people("main", ann=1)
    plan = plan_bulk(history.uri, history.work())
    killed(die_writing, plan.task("node:Person").to_json())
    parts = [
        write_part(plan.task("node:Person"), pa.table({"name": ["bob"], "age": [2]}), history.ids),
        write_part(plan.task("edge:Knows"), pa.table({"from": ["bob"], "to": ["ann"]}), history.ids),
    ]
    killed(die_publishing, history.uri, point, plan.to_json(), [part.to_json() for part in parts])
    assert len(history.rows("node:Person")) == 1 + len(history.rows("edge:Knows"))
    assert verify_graph(history.uri, deep=True).ok
    again = publish_bulk(plan, parts, history.work())
    assert (again.manifest_version, dict(again.rows)) == (3, {"node:Person": 1, "edge:Knows": 1})
    assert history.at().manifest.n == 3
    collect_garbage(history.uri, history.work(), Retention(1, timedelta(0), timedelta(0)))
    assert history.rows("node:Person") == [person("ann", 1), person("bob", 2)]
    assert len(history.rows("edge:Knows")) == 1
    assert verify_graph(history.uri, deep=True).ok


WRITES = 8
KEEP = Retention(2, timedelta(0), timedelta(minutes=10))


def history(uri: str, start: int) -> History:
    """The graph as a process of its own sees it: its clock tells the time of the disk, near enough."""
    return History(uri, b"", start, now=SystemClock().now())


def write(uri: str, branch: str, number: str) -> None:
    """Put rows one version at a time; a lost race is tried again."""
    mine = history(uri, 100_000 * int(number))
    for n in range(WRITES):
        while True:
            try:
                mine.put(branch, {"node:Person": [person(f"{branch}{n}", n), person("shared", n)]})
                break
            except ConflictError:
                continue


def collect(uri: str, number: str) -> None:
    """Free versions while others work."""
    mine = history(uri, 100_000 * int(number))
    for _ in range(WRITES):
        collect_garbage(uri, mine.work(), KEEP)


def read(uri: str, number: str) -> None:
    """Pin a version, and read it until the others are done with it."""
    mine = history(uri, 100_000 * int(number))
    for _ in range(WRITES):
        snapshot = mine.at("one")
        try:
            with hold_lease(snapshot, mine.work()):
                first = read_rows(snapshot, "node:Person")
                assert all(read_rows(snapshot, "node:Person") == first for _ in range(4))
        except GitopsError as gone:
            if gone.code != "graph_version_gone":
                raise


def branch_off(uri: str, number: str) -> None:
    """Make and remove branches all the time."""
    mine = history(uri, 100_000 * int(number))
    for n in range(WRITES):
        name = f"b{number}-{n}"
        create_branch(uri, name, mine.work())
        if n % 2:
            delete_branch(uri, name, mine.work())


def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
    code = f"import sys; from tests.fault.test_history_kill import {name}; {name}(*sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code, *arguments], cwd=HERE)


@pytest.mark.slow
def test_a_crowd_on_one_graph_loses_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "g.omni")
    first = History(uri, now=SystemClock().now())
    first.people("main", a=1)
    for name in ("one", "two"):
        create_branch(uri, name, first.work())
    crowd = [
        *(start("write", uri, branch, str(number)) for number, branch in enumerate(("main", "one", "two"), 1)),
        start("collect", uri, "4"),
        start("read", uri, "5"),
        *(start("branch_off", uri, str(number)) for number in (6, 7)),
    ]
    assert [process.wait() for process in crowd] == [0] * len(crowd)
    for branch in ("main", "one", "two"):
        expected = {"a": 1, "shared": WRITES - 1, **{f"{branch}{n}": n for n in range(WRITES)}}
        assert history(uri, 1).ages(branch) == expected
    kept = {f"b{number}-{n}" for number in (6, 7) for n in range(0, WRITES, 2)}
    assert {branch.name for branch in list_branches(uri)} == {"main", "one", "two"} | kept
    report = verify_graph(uri, deep=True)
    assert report.ok, report.to_json()
    for name in sorted(kept):
        delete_branch(uri, name, history(uri, 900_000).work())
    late = History(uri, b"", start=950_000)
    assert merge_branch(uri, "one", "main", late.work()).status is MergeStatus.MERGED
    collect_garbage(uri, late.work(), Retention(1, timedelta(0), timedelta(0)))
    report = verify_graph(uri, deep=True)
    assert report.findings == (), report.to_json()
