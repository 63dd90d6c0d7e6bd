"""Deleting a graph with rows: races, crashes, restored backups, and slow runs, on disk and in an object store."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph import tables
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.layout import IDENTITY
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.port import DeleteOrder, Existence
from gitops.database.graph.root import GraphRoot
from gitops.database.graph.snapshot import find_root
from gitops.database.storage.s3 import S3Store
from tests.support.fault_points import FAULT_POINTS
from tests.support.histories import SCHEMA, History, person
from tests.support.s3 import S3Place


class Stop(BaseException):
    """The death of the process at a fault point."""


class At:
    """Calls `act` at the first visit of a point."""

    def __init__(self, point: str, act: Callable[[], object]) -> None:
        self._point, self._act = point, act

    def reach(self, point: str) -> None:
        if point == self._point:
            self._point = ""
            self._act()


def die() -> None:
    raise Stop


@pytest.fixture(params=["disk", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('s3').root}/graphs/g.omni"
    return str(tmp_path / "graphs" / "g.omni")


@pytest.fixture
def history(uri: str) -> History:
    return History(uri)


def engine(history: History, faults: Faults | None = None) -> LanceEngine:
    return LanceEngine(history.clock, history.ids, faults or NoFaults())


def order(history: History, rows: int = 100, fence: int = 5, approvals: tuple[str, ...] = ("A",)) -> DeleteOrder:
    return DeleteOrder(engine(history).read(history.uri).incarnation, rows, fence, approvals)


def code(failure: pytest.ExceptionInfo[GitopsError]) -> str:
    return failure.value.code


def left(uri: str) -> list[str]:
    """The files of graphs at a root that is free, and beside it; the claim without an owner in a bucket is none."""
    if uri.startswith("s3:"):
        return [key for key in S3Store(uri).keys("") if key != IDENTITY]
    beside = Path(uri).parent
    return [str(path) for path in beside.rglob("*") if path.is_file() and "deleted" not in path.parent.parts]


def test_rows_are_those_of_all_branches(history: History) -> None:
    history.people("main", ann=1, bob=2)
    assert engine(history).read(history.uri).rows == 2
    create_branch(history.uri, "trial", history.work())
    assert engine(history).read(history.uri).rows == 2
    history.people("trial", cyd=3)
    assert engine(history).read(history.uri).rows == 3
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, order(history, rows=2))
    assert code(failure) == "graph_grown"
    assert history.ages("trial") == {"ann": 1, "bob": 2, "cyd": 3}


def test_rows_that_are_loaded_just_before_the_point_of_no_return_save_the_graph(history: History) -> None:
    race = At("engine.delete.before_publish", lambda: history.people("main", ann=1))
    with pytest.raises(GitopsError) as failure:
        engine(history, race).delete(history.uri, order(history, rows=0))
    assert code(failure) == "graph_grown"
    assert history.ages() == {"ann": 1}


def test_a_writer_that_began_before_the_delete_loses(history: History) -> None:
    staged = history.stage("main", {"node:Town": []})
    create_branch(history.uri, "trial", history.work())
    on_branch = history.stage("trial", {"node:Town": []})
    with pytest.raises(Stop):
        engine(history, At("engine.delete.after_publish", die)).delete(history.uri, order(history))
    for each in (staged, on_branch):
        with pytest.raises(ConflictError):
            each.publish()
    with pytest.raises(GitopsError) as failure:
        engine(history).read(history.uri)
    assert code(failure) == "graph_deleted"
    with pytest.raises(GitopsError) as failure:
        engine(history).prepare_create(history.uri, b"node P { k: String @key }", actor=None)
    assert code(failure) == "graph_exists"


@pytest.mark.parametrize("point", [name for name in FAULT_POINTS if name.startswith("engine.delete.")])
def test_after_a_crash_the_next_run_finishes_the_delete(history: History, point: str) -> None:
    asked, whole = order(history), point == "engine.delete.before_publish"
    with pytest.raises(Stop):
        engine(history, At(point, die)).delete(history.uri, asked)
    if whole:
        assert engine(history).read(history.uri).incarnation == asked.incarnation
    # Past the point of no return no further permission is asked for.
    engine(history).delete(history.uri, asked if whole else DeleteOrder(asked.incarnation, 0, 9, ("B",)))
    assert engine(history).exists(history.uri) is Existence.ABSENT
    assert engine(history).deleted_by(history.uri, asked.incarnation) == {"A"}
    assert left(history.uri) == []
    again = History(history.uri, start=5_000)
    assert again.ages() == {}


@pytest.mark.parametrize("step", ["before_files", "before_remove"])
def test_files_of_a_removal_that_died_go_with_one_that_does_not_know_its_order(history: History, step: str) -> None:
    history.people("main", ann=1)
    with pytest.raises(Stop):
        engine(history, At(f"engine.delete.{step}", die)).delete(history.uri, order(history))
    assert left(history.uri)
    engine(history).finish_delete(history.uri)
    assert left(history.uri) == []
    assert engine(history).exists(history.uri) is Existence.ABSENT


def test_create_in_a_bucket_is_over_and_its_files_are_gone_once_its_root_is_cleared(s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    slow = History(uri, b"")
    staged = engine(slow).prepare_create(uri, SCHEMA, actor=None)
    assert left(uri)
    engine(slow).finish_delete(uri)
    assert left(uri) == []
    with pytest.raises(ConflictError) as failure:
        staged.publish()
    assert code(failure) == "graph_conflict"
    assert History(uri).ages() == {}
    engine(slow).finish_delete(uri)
    assert History(uri, b"").ages() == {}


class _SlowRemoval:
    """A crash-free run that is suspended before its files are removed, while others finish its work and create a new graph."""

    def __init__(self, history: History) -> None:
        self.history = history

    def reach(self, point: str) -> None:
        if point == "engine.delete.before_remove":
            root: GraphRoot = find_root(self.history.uri)
            root.remove()
            History(self.history.uri, start=7_000).people("main", new=1)


def test_a_run_that_is_suspended_after_the_point_of_no_return_does_not_remove_a_newer_graph(history: History) -> None:
    asked = order(history)
    if history.uri.startswith("s3:"):
        with pytest.raises(ConflictError):
            engine(history, _SlowRemoval(history)).delete(history.uri, asked)
    else:
        engine(history, _SlowRemoval(history)).delete(history.uri, asked)
    assert History(history.uri, b"").ages() == {"new": 1}


def test_a_restored_backup_is_not_deleted_again_by_the_same_approvals(tmp_path: Path) -> None:
    history = History(str(tmp_path / "graphs" / "g.omni"))
    history.people("main", ann=1)
    shutil.copytree(history.uri, tmp_path / "backup")
    asked = order(history, approvals=("A", "B"))
    engine(history).delete(history.uri, asked)
    shutil.copytree(tmp_path / "backup", history.uri)
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, DeleteOrder(asked.incarnation, 100, 9, ("B", "C")))
    assert code(failure) == "graph_restored"
    assert history.ages() == {"ann": 1}
    engine(history).delete(history.uri, DeleteOrder(asked.incarnation, 100, 9, ("C",)))
    assert engine(history).deleted_by(history.uri, asked.incarnation) == {"A", "B", "C"}


def test_a_fence_survives_loads_and_the_collector(history: History) -> None:
    engine(history).fence(history.uri, 7)
    history.people("main", ann=1)
    collect_garbage(history.uri, history.work())
    with pytest.raises(ConflictError) as failure:
        engine(history).delete(history.uri, order(history, fence=6))
    assert code(failure) == "graph_fenced"
    assert history.at().manifest.fence == 7


def _load(history: History, mode: LoadMode, **ages: int | None) -> None:
    lines = [json.dumps({"type": "Person", "data": {"name": name, "age": age}}) for name, age in ages.items()]
    load_records(LoadRequest(history.uri, io.BytesIO("\n".join(lines).encode()), mode), history.work())


def _maintain(history: History) -> None:
    options = OptimizeOptions(fragments=1, scalar_rows=1)
    assert optimize_tables(history.uri, history.work(), options).tables["node:Person"][0] == "compacted"


MIGRATED = b"""node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age") @range(years, 0..150)
    more: [String]?  mail: String? @unique
}
node Town { name: String @key }
edge Lives: Human -> Town @card(0..1)
edge Knows: Human -> Human
"""

# What happens to two rows, which were loaded by two loads, after they were seen; and how many of them are replaced then.
SINCE: dict[str, tuple[Callable[[History], object], int]] = {
    "nothing": (lambda _: None, 0),
    "rows are added": (lambda h: _load(h, LoadMode.APPEND, cyd=3, dan=4), 0),
    "a row is deleted": (lambda h: h.put("main", {}, {"node:Person": ["ann"]}), 0),
    "all rows are overwritten": (lambda h: _load(h, LoadMode.OVERWRITE, x=1, y=2, z=3), 2),
    "all rows are overwritten by one": (lambda h: _load(h, LoadMode.OVERWRITE, x=1), 1),
    "a row is changed": (lambda h: _load(h, LoadMode.MERGE, ann=9), 1),
    "a row is deleted and another added": (
        lambda h: (h.put("main", {}, {"node:Person": ["ann"]}), _load(h, LoadMode.APPEND, cyd=3)),
        1,
    ),
    "tables are compacted and indexed": (_maintain, 0),
    "versions are collected": (lambda h: collect_garbage(h.uri, h.work(), Retention(1, timedelta(0))), 0),
    "columns are renamed, added and dropped": (
        lambda h: engine(h).prepare_migration(h.uri, MIGRATED, actor=None).publish(),
        0,
    ),
    "a run fences it": (lambda h: engine(h).fence(h.uri, 7), 0),
}


@pytest.mark.parametrize("since", SINCE)
def test_a_delete_takes_only_rows_that_were_there_when_its_approvals_were_checked(history: History, since: str) -> None:
    _load(history, LoadMode.APPEND, ann=1)
    _load(history, LoadMode.APPEND, bob=2)
    seen, (happens, number) = history.at().manifest.n, SINCE[since]
    happens(history)
    assert engine(history).replaced_rows(history.uri, seen) == number
    asked = replace(order(history, fence=9), version=seen)
    if not number:
        engine(history).delete(history.uri, asked)
        assert engine(history).exists(history.uri) is Existence.ABSENT
        return
    for act in (engine(history).check_delete, engine(history).delete):
        with pytest.raises(GitopsError) as failure:
            act(history.uri, asked)
        assert code(failure) == "graph_rows_replaced"
    assert engine(history).exists(history.uri) is Existence.PRESENT


def test_a_delete_is_refused_where_the_version_that_was_seen_is_no_longer_kept(history: History) -> None:
    """The rows may be the same, but this cannot be known."""
    _load(history, LoadMode.APPEND, ann=1)
    asked = replace(order(history), version=history.at().manifest.n)
    _load(history, LoadMode.APPEND, bob=2)
    collect_garbage(history.uri, history.work(), Retention(1, timedelta(0)))
    with pytest.raises(GitopsError) as failure:
        engine(history).replaced_rows(history.uri, 2)
    assert code(failure) == "graph_version_gone"
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, asked)
    assert (code(failure), "no longer kept" in failure.value.detail) == ("graph_rows_replaced", True)
    assert history.ages() == {"ann": 1, "bob": 2}


def test_rows_that_are_replaced_just_before_the_point_of_no_return_save_the_graph(history: History) -> None:
    _load(history, LoadMode.APPEND, ann=1)
    other = {"node:Person": [person("cyd")]}
    race = At("engine.delete.before_publish", lambda: history.put("main", other, {"node:Person": ["ann"]}))
    with pytest.raises(GitopsError) as failure:
        engine(history, race).delete(history.uri, replace(order(history), version=history.at().manifest.n))
    assert code(failure) == "graph_rows_replaced"
    assert history.ages() == {"cyd": None}


def test_only_what_differs_is_looked_at(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with many parts one row changes: the ids of that part are read, and no column."""
    for number in range(3):
        _load(history, LoadMode.APPEND, **{f"p{number}-{each}": each for each in range(40)})
    seen, read = history.at().manifest.n, list[int]()
    _load(history, LoadMode.MERGE, **{"p1-7": 99})
    found = tables._row_ids

    def counted(dataset: Any, fragments: Any) -> Any:
        read.append(sum(each.count_rows() for each in fragments))
        return found(dataset, fragments)

    monkeypatch.setattr(tables, "_row_ids", counted)
    assert engine(history).replaced_rows(history.uri, seen) == 1
    assert read == [40, 40]
