"""A bulk load is a load: many write, one publishes, all of it can be seen or nothing."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database.graph.bulk import BulkPart, BulkPlan, BulkTask, discard_bulk, plan_bulk, publish_bulk, write_part
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadError, LoadMode
from gitops.database.graph.snapshot import ReadTarget
from gitops.database.graph.staged import read_leases
from tests.support.bulk import spread
from tests.support.histories import SCHEMA, History, lives, person, town
from tests.support.s3 import S3Place

EAGER = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)


class Crash(BaseException):
    """Death at a fault point, as far as this process can play it."""


class DieAt(NoFaults):
    """Dies once."""

    def __init__(self, point: str) -> None:
        self.point: str | None = point

    def reach(self, point: str) -> None:
        if point == self.point:
            self.point = None
            raise Crash


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return History(str(tmp_path / "g.omni"))
    s3: S3Place = request.getfixturevalue("s3")
    return History(f"{s3.root}/graphs/g.omni")


@pytest.fixture
def local(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def plan_of(history: History, branch: str = "main") -> BulkPlan:
    return plan_bulk(history.uri, history.work(), branch)


def part(history: History, plan: BulkPlan, key: str, **columns: Any) -> BulkPart:
    return write_part(plan.task(key), pa.table(columns), history.ids)


def publish(history: History, plan: BulkPlan, *parts: BulkPart, mode: LoadMode = LoadMode.MERGE) -> dict[str, int]:
    return dict(publish_bulk(plan, parts, history.work(), mode).rows)


def refusals(
    history: History, plan: BulkPlan, *parts: BulkPart, mode: LoadMode = LoadMode.MERGE
) -> list[tuple[str, str]]:
    before = history.at().manifest
    with pytest.raises(LoadError) as failure:
        publish(history, plan, *parts, mode=mode)
    assert history.at().manifest == before
    return [(problem.path, problem.message) for problem in failure.value.problems]


def data_files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*/*.lance/data/*.lance")}


def test_parts_become_one_version(history: History) -> None:
    plan = plan_of(history)
    towns = part(history, plan, "node:Town", name=["oslo"])
    first = part(history, plan, "node:Person", name=["ann", "bob"], age=[1, None])
    second = part(history, plan, "node:Person", name=["cid"], mail=["c@x"])
    edges = part(history, plan, "edge:Lives", to=["oslo"], since=[2019], id=["l1"], **{"from": ["ann"]})
    assert history.at().manifest.n == 1
    assert publish(history, plan, towns, first, edges, second) == {"node:Town": 1, "node:Person": 3, "edge:Lives": 1}
    assert history.at().manifest.n == 2
    assert history.image() == {
        "edge:Knows": [],
        "edge:Lives": [lives("l1", "ann", "oslo", 2019)],
        "node:Person": [person("ann", 1), person("bob"), person("cid", mail="c@x")],
        "node:Town": [town("oslo")],
    }
    assert history.at().manifest.operation == "load"
    assert verify_graph(history.uri, deep=True).ok
    assert read_leases(history.at().store) == ()


def test_workers_in_processes_of_their_own(local: History) -> None:
    plan = plan_of(local)
    people, edges = plan.task("node:Person").to_json(), plan.task("edge:Knows").to_json()
    size = 5_000
    parts = spread([(people, n * size, size) for n in range(4)] + [(edges, n * size, size) for n in range(4)], 4)
    assert len(data_files(Path(local.uri))) == 8
    local.people("main", other=1)
    assert publish(local, plan, *parts) == {"node:Person": 4 * size, "edge:Knows": 4 * size}
    assert local.at().manifest.n == 3
    assert len(local.rows("node:Person")) == 4 * size + 1
    assert len({row["id"] for row in local.rows("edge:Knows")}) == 4 * size
    assert verify_graph(local.uri, deep=True).ok


def test_what_travels_is_json(local: History) -> None:
    plan = plan_of(local)
    assert BulkPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    task = plan.task("node:Town")
    assert BulkTask.from_json(json.loads(json.dumps(task.to_json()))) == task
    written = part(local, plan, "node:Town", name=["oslo"])
    assert BulkPart.from_json(json.loads(json.dumps(written.to_json()))) == written


# What is checked when the parts are put together.


def test_ids_clash_with_none(local: History) -> None:
    local.people("main", ann=1)
    plan = plan_of(local)
    parts = [
        part(local, plan, "node:Person", name=["bob", "cid"]),
        part(local, plan, "node:Person", name=["ann", "bob"]),
    ]
    assert refusals(local, plan, *parts) == [
        ("parts[1].rows[2]", "part 1, row 2: @unique violation on Person.name: value bob")
    ]
    assert refusals(local, plan, part(local, plan, "node:Person", name=["ann"]), mode=LoadMode.APPEND) == [
        ("parts[0].rows[1]", "part 0, row 1: key_conflict: Person 'ann' exists already")
    ]


def test_unique_groups_clash_with_none(local: History) -> None:
    local.put("main", {"node:Person": [person("ann", mail="a@x")]})
    plan = plan_of(local)
    parts = [
        part(local, plan, "node:Person", name=["bob", "cid"], mail=["b@x", None]),
        part(local, plan, "node:Person", name=["dan", "eve"], mail=["b@x", "a@x"]),
    ]
    assert refusals(local, plan, *parts) == [
        ("parts[1].rows[1]", "part 1, row 1: @unique violation on Person.mail: value b@x"),
        ("parts[1].rows[2]", "part 1, row 2: @unique violation on Person.mail: value a@x"),
    ]


def test_edges_have_their_ends(local: History) -> None:
    local.people("main", ann=1)
    plan = plan_of(local)
    parts = [
        part(local, plan, "edge:Knows", to=["ann", "bob", "nobody"], **{"from": ["ann", "ann", "bob"]}),
        part(local, plan, "node:Person", name=["bob"]),
    ]
    assert refusals(local, plan, *parts) == [
        ("parts[0].rows[3]", "part 0, row 3: edge Knows: dst 'nobody' not found in Person")
    ]


def test_an_end_that_goes_before_publishing_is_missed(local: History) -> None:
    local.people("main", ann=1)
    plan = plan_of(local)
    edges = part(local, plan, "edge:Knows", to=["ann"], **{"from": ["ann"]})
    local.put("main", {}, {"node:Person": ["ann"]})
    assert len(refusals(local, plan, edges)) == 2


def test_numbers_of_edges_are_counted_over_all_parts(local: History) -> None:
    local.put("main", {"node:Person": [person("ann")], "node:Town": [town("oslo"), town("rome")]})
    plan = plan_of(local)
    parts = [part(local, plan, "edge:Lives", to=[where], **{"from": ["ann"]}) for where in ("oslo", "rome")]
    ((path, text),) = refusals(local, plan, *parts)
    assert path == "parts[0].rows[1]"
    assert "@card" in text


@pytest.mark.parametrize("mode", list(LoadMode))
def test_modes_mean_what_they_mean_for_a_load(local: History, mode: LoadMode) -> None:
    local.people("main", ann=1, bob=2)
    plan = plan_of(local)
    parts = [part(local, plan, "node:Person", name=["bob" if mode is not LoadMode.APPEND else "cid"], age=[9])]
    publish(local, plan, *parts, mode=mode)
    expected: dict[LoadMode, dict[str, int | None]] = {
        LoadMode.MERGE: {"ann": 1, "bob": 9},
        LoadMode.APPEND: {"ann": 1, "bob": 2, "cid": 9},
        LoadMode.OVERWRITE: {"bob": 9},
    }
    assert local.ages() == expected[mode]


def test_of_edges_with_one_id_the_last_part_wins(local: History) -> None:
    local.put("main", {"node:Person": [person("ann")], "node:Town": [town("oslo"), town("rome")]})
    plan = plan_of(local)
    parts = [part(local, plan, "edge:Lives", id=["l"], to=[where], **{"from": ["ann"]}) for where in ("oslo", "rome")]
    assert publish(local, plan, *parts) == {"edge:Lives": 1}
    assert local.rows("edge:Lives") == [lives("l", "ann", "rome")]


# What happens meanwhile.


def test_other_writers_go_on(history: History) -> None:
    history.people("main", ann=1)
    plan = plan_of(history)
    written = part(history, plan, "node:Person", name=["bob"], age=[2])
    history.people("main", ann=5, cid=3)
    optimize_tables(history.uri, history.work(), options=EAGER)
    publish(history, plan, written)
    assert history.ages() == {"ann": 5, "bob": 2, "cid": 3}
    assert verify_graph(history.uri, deep=True).ok


def test_a_bulk_load_goes_to_its_branch(local: History) -> None:
    local.people("main", ann=1)
    create_branch(local.uri, "dev", local.work(), ReadTarget())
    plan = plan_of(local, "dev")
    publish(local, plan, part(local, plan, "node:Person", name=["bob"], age=[2]))
    assert (local.ages("dev"), local.ages()) == ({"ann": 1, "bob": 2}, {"ann": 1})


def test_a_change_of_the_schema_ends_it(local: History) -> None:
    people = [person("ann"), person("bob")]
    local.put(
        "main", {"node:Person": people, "node:Town": [town("oslo")], "edge:Lives": [lives("l", "bob", "oslo", 1)]}
    )
    plan = plan_of(local)
    written = part(local, plan, "edge:Lives", to=["oslo"], since=[2019], **{"from": ["ann"]})
    without = SCHEMA.replace(b" since: I32? ", b"")
    for source in (without, SCHEMA):
        LanceEngine(local.clock, local.ids).prepare_migration(local.uri, source, actor=None).publish()
    assert local.at().manifest.schema_ir == plan.schema_ir
    with pytest.raises(GitopsError) as failure:
        publish(local, plan, written)
    assert failure.value.code == "graph_conflict"


def test_another_graph_at_the_root_gets_nothing(local: History) -> None:
    plan = plan_of(local)
    written = part(local, plan, "node:Person", name=["bob"])
    LanceEngine(local.clock, local.ids).delete_tree(local.uri)
    after = History(local.uri, start=900_000)
    for call in (lambda: publish(after, plan, written), lambda: part(after, plan, "node:Person", name=["cid"])):
        with pytest.raises(GitopsError) as failure:
            call()
        assert failure.value.code == "graph_conflict"
    discard_bulk(plan, [written])
    assert after.ages() == {}


# Failures, crashes, and giving up.


@pytest.mark.parametrize("point", ["before_tables", "staged", "before_publish", "after_publish"])
def test_publishing_again_after_a_crash(history: History, point: str) -> None:
    history.people("main", ann=1)
    plan = plan_of(history)
    parts = [
        part(history, plan, "node:Person", name=["bob"], age=[2]),
        part(history, plan, "edge:Knows", to=["ann"], **{"from": ["bob"]}),
    ]
    with pytest.raises(Crash):
        publish_bulk(plan, parts, history.work(DieAt(f"engine.load.{point}")))
    assert history.ages() in ({"ann": 1}, {"ann": 1, "bob": 2})
    assert verify_graph(history.uri, deep=True).ok
    assert publish(history, plan, *parts) == {"node:Person": 1, "edge:Knows": 1}
    assert publish(history, plan, *parts) == {"node:Person": 1, "edge:Knows": 1}
    assert history.at().manifest.n == 3
    assert history.ages() == {"ann": 1, "bob": 2}
    assert len(history.rows("edge:Knows")) == 1
    collect_garbage(history.uri, history.work(), Retention(1, timedelta(0), timedelta(0)))
    assert history.ages() == {"ann": 1, "bob": 2}
    assert verify_graph(history.uri, deep=True).ok


def test_what_was_published_is_found_again_after_compaction(local: History) -> None:
    local.people("main", ann=1)
    plan = plan_of(local)
    edges = [part(local, plan, "edge:Knows", to=["ann"], **{"from": ["ann"]}) for _ in range(2)]
    with pytest.raises(Crash):
        publish_bulk(plan, edges, local.work(DieAt("engine.load.after_publish")))
    optimize_tables(local.uri, local.work(), options=EAGER)
    assert publish(local, plan, *edges) == {"edge:Knows": 2}
    assert len(local.rows("edge:Knows")) == 2
    assert local.at(commit=plan.bulk).manifest.operation == "load"


def test_a_plan_is_published_once(local: History) -> None:
    plan = plan_of(local)
    first, late = (part(local, plan, "node:Person", name=[name]) for name in ("ann", "bob"))
    publish(local, plan, first)
    with pytest.raises(UsageError):
        publish(local, plan, first, late)
    assert local.ages() == {"ann": None}


def test_what_nobody_can_tell_is_not_published_again(local: History) -> None:
    plan = plan_of(local)
    written = part(local, plan, "node:Person", name=["ann"])
    with pytest.raises(Crash):
        publish_bulk(plan, [written], local.work(DieAt("engine.load.after_publish")))
    local.people("main", bob=1)
    collect_garbage(local.uri, local.work(), Retention(1, timedelta(0), timedelta(0)))
    with pytest.raises(GitopsError) as failure:
        publish(local, plan, written)
    assert failure.value.code == "graph_version_gone"


def test_giving_up_removes_what_was_written(history: History) -> None:
    plan = plan_of(history)
    written = part(history, plan, "node:Person", name=["bob"])
    folder = history.at().folder
    names = [file.path for file in folder.files(f"{written.path}/data") if file.path.endswith(".lance")]
    assert len(names) == 1
    discard_bulk(plan, [written])
    assert [file.path for file in folder.files(f"{written.path}/data") if file.path.endswith(".lance")] == []
    assert read_leases(history.at().store) == ()
    with pytest.raises(GitopsError) as failure:
        publish(history, plan, written)
    assert failure.value.code == "graph_version_gone"


def test_giving_up_after_publishing_removes_nothing(history: History) -> None:
    plan = plan_of(history)
    written = part(history, plan, "node:Person", name=["bob"], age=[2])
    publish(history, plan, written)
    discard_bulk(plan, [written])
    assert history.ages() == {"bob": 2}


def test_a_worker_that_fails_leaves_nothing(local: History) -> None:
    plan = plan_of(local)
    before = data_files(Path(local.uri))
    with pytest.raises(LoadError) as failure:
        part(local, plan, "node:Person", name=["bob", None, "cid"], age=[1, 2, 151])
    assert [problem.message for problem in failure.value.problems] == [
        "record 2: Person.name is required",
        "record 3: @range violation on Person.age: 151 is not in 0..150",
    ]
    assert data_files(Path(local.uri)) == before


def test_gc_leaves_parts_alone_while_the_plan_stands_and_takes_them_a_week_later(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), now=_of_the_disk(tmp_path))
    history.people("main", ann=1)
    plan = plan_of(history)
    written = part(history, plan, "node:Person", name=["bob"], age=[2])
    lost = part(history, plan, "node:Person", name=["cid"])
    (left,) = (file.path for fragment in lost.staged() for file in fragment.files)
    for age in range(3):
        history.people("main", ann=age)
    sharp = Retention(1, timedelta(0), timedelta(0))
    collect_garbage(history.uri, history.work(), sharp)
    assert left in data_files(tmp_path / "g.omni")
    assert history.at(version=plan.version).manifest.n == plan.version
    publish(history, plan, written)
    _grow_old(tmp_path, timedelta(days=8))
    collect_garbage(history.uri, history.work(), sharp)
    assert left not in data_files(tmp_path / "g.omni")
    assert history.ages() == {"ann": 2, "bob": 2}
    assert verify_graph(history.uri, deep=True).ok


def _of_the_disk(folder: Path) -> datetime:
    file = folder / "now"
    file.touch()
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _grow_old(folder: Path, age: timedelta) -> None:
    """Let the files of a folder look as if they had been written that long ago."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place, name)
            then = file.stat().st_mtime - age.total_seconds()
            os.utime(file, (then, then))


def test_a_plan_expires(local: History) -> None:
    plan = plan_of(local)
    written = part(local, plan, "node:Person", name=["bob"])
    late = History(local.uri, b"", start=700_000, now=datetime(2100, 1, 8, tzinfo=UTC))
    with pytest.raises(GitopsError) as failure:
        publish(late, plan, written)
    assert failure.value.code == "graph_version_gone"


# Parts that are not what a worker returned.


def test_parts_of_others_are_refused(local: History) -> None:
    plan, other = plan_of(local), plan_of(local)
    written = part(local, plan, "node:Person", name=["bob"])
    spoilt = [
        dataclasses.replace(written, bulk=other.bulk),
        dataclasses.replace(written, key="node:Nobody"),
        dataclasses.replace(written, path=plan.tables["node:Town"]["path"]),
        dataclasses.replace(written, rows=2),
        dataclasses.replace(written, fragments=("{}",)),
        dataclasses.replace(written, fragments=("[",)),
        dataclasses.replace(written, fragments=(written.fragments[0].replace(".lance", "/../../x.lance"),)),
    ]
    for each in [[part] for part in spoilt] + [[written, written]]:
        with pytest.raises(GitopsError) as failure:
            publish(local, plan, *each)
        assert failure.value.code in ("usage_error", "graph_unreadable")
    assert local.ages() == {}


def test_a_part_without_its_file_is_refused(local: History) -> None:
    plan = plan_of(local)
    parts = [part(local, plan, "node:Person", name=[name]) for name in ("ann", "bob")]
    (name,) = (file.path for fragment in parts[1].staged() for file in fragment.files)
    (Path(local.uri) / parts[1].path / "data" / name).unlink()
    with pytest.raises(GitopsError) as failure:
        publish(local, plan, *parts)
    assert failure.value.code == "storage_failed"
    assert local.ages() == {}


def test_no_rows_are_no_version(local: History) -> None:
    plan = plan_of(local)
    empty = part(local, plan, "node:Person", name=pa.array([], pa.string()))
    assert (empty.rows, publish(local, plan, empty), local.at().manifest.n) == (0, {}, 1)
