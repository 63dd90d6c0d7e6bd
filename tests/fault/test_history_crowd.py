"""Writers of several branches, a reader and gc at once, in processes of their own, on the same tables."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.results import MergeStatus
from gitops.database.graph.staged import hold_lease
from gitops.repository.wiring.system import SystemClock
from tests.fault.test_engine_kill import HERE
from tests.support.histories import History, person, read_rows

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
    code = f"import sys; from tests.fault.test_history_crowd import {name}; {name}(*sys.argv[1:])"
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
