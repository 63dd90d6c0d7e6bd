"""A bulk load is a load: many write, one publishes, all of it can be seen or nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database.graph import read
from gitops.database.graph.bulk import (
    BulkPart,
    BulkPlan,
    BulkTask,
    column_cells,
    discard_bulk,
    input_columns,
    plan_bulk,
    publish_bulk,
    write_part,
)
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext, read_leases
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.values import CellError, json_to_cell
from gitops.database.language.schema import PropType, Scalar
from tests.support.bulk import spread
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.histories import SCHEMA, History, lives, person, town
from tests.support.ids import SequentialIds

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
        ("parts[0].rows[1]", "part 0, row 1: key_conflict: Person 'ann' already exists")
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


CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
CELLS_SCHEMA = b"""
node P {
  k: String @key
  i: I32?  u: U64?  f: F32?  d: F64?  b: Bool?
  day: Date?  at: DateTime?  vec: Vector(2)?  doc: Blob?
  e: enum(x, in-progress)?  tags: [String]?  days: [Date]?  times: [DateTime]?
  code: String?
  @range(i, 0..10)
  @check(code, "^[a-z]+$")
}
node Free { n: I32 }
node Two { b: I32  a: String  @key(a, b) }
node Num { at: DateTime @key }
node Odd { a: Blob?  z: String @unique }
edge E: P -> P { w: I32? }
edge Way: P -> P { from: String?  to: String? }
"""


class Place:
    """A graph that takes columns."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.ids = SequentialIds()
        LanceEngine(CLOCK, self.ids).prepare_create(uri, CELLS_SCHEMA, actor=None).publish()

    def put(self, key: str, columns: Mapping[str, Any]) -> None:
        work = WriteContext(CLOCK, self.ids)
        plan = plan_bulk(self.uri, work)
        publish_bulk(plan, [write_part(plan.task(key), pa.table(dict(columns)), self.ids)], work)

    def load(self, *records: object) -> None:
        raw = "\n".join(map(json.dumps, records)).encode()
        load_records(LoadRequest(self.uri, io.BytesIO(raw), LoadMode.MERGE), WriteContext(CLOCK, self.ids))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return sorted(read.read_rows(self.uri, name, 100), key=lambda row: str(row["id"]))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "g.omni"))


NOON = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def test_every_type_becomes_what_a_record_becomes(place: Place) -> None:
    columns = {
        "k": pa.array(["é", "a"]).dictionary_encode(),
        "i": pa.array([10, None], pa.uint64()),
        "u": pa.array([2**64 - 1, None], pa.uint64()),
        "f": pa.array([0.1, None], pa.float64()),
        "d": pa.array([7, None], pa.int8()),
        "b": pa.array([False, None]),
        "day": pa.array([date(1969, 12, 31), None], pa.date64()),
        "at": pa.array([MOMENT, None], pa.timestamp("us", "Europe/Oslo")),
        "vec": pa.array([[1.5, -0.1], None], pa.large_list(pa.float64())),
        "doc": pa.array([b"\x00\x01", None], pa.large_binary()),
        "e": pa.array(["in-progress", None], pa.large_string()),
        "tags": pa.array([["x", ""], None], pa.list_(pa.large_string())),
        "days": pa.array([[date(1, 1, 1), date(9999, 12, 31)], None], pa.large_list(pa.date32())),
        "times": pa.array([[NOON], None], pa.list_(pa.timestamp("ns"))),
        "code": pa.nulls(2),
    }
    record = {
        "k": "é", "i": 10, "u": 2**64 - 1, "f": 0.1, "d": 7, "b": False, "day": "1969-12-31",
        "at": "1969-12-31T23:59:59.999Z", "vec": [1.5, -0.1], "doc": "base64:AAE=", "e": "in-progress", "tags": ["x", ""],
        "days": ["0001-01-01", "9999-12-31"], "times": ["2026-01-02T03:04:05.006Z"], "code": None,
    }  # fmt: skip
    place.put("node:P", columns)
    taken = place.rows("P")
    place.load({"type": "P", "data": record}, {"type": "P", "data": {"k": "a"}})
    assert taken == place.rows("P") == [dict.fromkeys(record) | {"k": "a", "id": "a"}, record | {"id": "é"}]


BAD = [
    ("i", pa.array(["1"]), "strict property P.i expects I32?: got string"),
    ("i", pa.array([1.0]), "expects I32?: got double"),
    ("i", pa.array([True]), "expects I32?: got bool"),
    ("i", pa.array([2**31]), "expects I32?: Integer value 2147483648 not in range"),
    ("i", pa.array([11]), "@range violation on P.i: 11 is not in 0..10"),
    ("u", pa.array([-1]), "expects U64?"),
    ("f", pa.array([1e39]), "expects F32?: a number is not finite, or too large"),
    ("d", pa.array([float("nan")]), "expects F64?: a number is not finite"),
    ("b", pa.array([1]), "expects Bool?: got int64"),
    ("day", pa.array(["2026-01-01"]), "expects Date?: got string"),
    ("day", pa.array([10**9]), "expects Date?: the time is not within the years 1 to 9999"),
    ("day", pa.array([MOMENT]), "expects Date?: got timestamp"),
    ("at", pa.array([10**18]), "expects DateTime?: the time is not within"),
    ("at", pa.array(["2026"]), "expects DateTime?: got string"),
    ("vec", pa.array([[1.0]]), "expects Vector(2)?: got 1 dimensions"),
    ("vec", pa.array([[1.0, None]]), "expects Vector(2)?: a vector holds a null"),
    ("vec", pa.array([[1.0, 1e39]]), "expects Vector(2)?: a number is not finite"),
    ("vec", pa.array([1.0]), "expects Vector(2)?: got double"),
    ("doc", pa.array(["s3://bucket/key"]), "expects Blob?: got string"),
    ("e", pa.array(["z"]), "invalid enum value 'z' for P.e (expected: in-progress, x)"),
    ("tags", pa.array(["x"]), "expects [String]?: got string"),
    ("tags", pa.array([["x", None]]), "expects [String]?: a list holds a null"),
    ("tags", pa.array([[["x"]]]), "expects [String]?: got list"),
    ("code", pa.array(["ABC"]), "@check violation on P.code"),
    ("code", pa.array([b"\xff"]).view(pa.string()), "expects String?: Invalid UTF8"),
    ("id", pa.array(["b"]), "'id' is 'b', but the key of P requires 'a'"),
    ("id", pa.array([7]), "'id' expects a text: got int64"),
    ("id", pa.array([""]), "'id' is not a valid id"),
    ("nope", pa.array([1]), "P has no property 'nope'"),
    ("src", pa.array(["a"]), "P has no property 'src'"),
]


@pytest.mark.parametrize(("name", "column", "message"), BAD)
def test_what_does_not_fit_is_named(place: Place, name: str, column: pa.Array, message: str) -> None:
    good = column if name in ("nope", "src") else pa.nulls(1, column.type)
    with pytest.raises(LoadError) as failure:
        place.put("node:P", {"k": ["good", "a"], name: pa.concat_arrays([good, column])})
    found = [problem.message for problem in failure.value.problems]
    assert any(message in text for text in found)
    assert all(text.startswith("record 2: ") == (name not in ("nope", "src")) for text in found[1:] or found)
    assert open_snapshot(place.uri).manifest.n == 1


FIRST, LAST = (datetime.fromisoformat(day) for day in ("0001-01-03", "9999-12-29"))


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.datetimes(
                FIRST,
                LAST,
                timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9))]),
            ),
        ),
        max_size=5,
    ),
    st.sampled_from(["us", "ms", "s"]),
)
@settings(max_examples=cases(100))
def test_moments_are_those_of_their_texts(moments: list[datetime | None], unit: str) -> None:
    places = {"us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    cut = [None if each is None else each.replace(microsecond=each.microsecond // places * places) for each in moments]
    kind = PropType(Scalar.DATETIME, nullable=True)
    cells = column_cells(pa.array(cut, pa.timestamp(unit, "UTC")), kind)
    expected = [None if each is None else json_to_cell(each.isoformat(), kind) for each in cut]
    assert raw_columns(pa.table({"x": cells}))["x"] == expected


@given(
    st.lists(st.one_of(st.none(), st.lists(st.floats(width=32), min_size=1, max_size=3)), max_size=6), st.integers(0, 3)
)
@settings(max_examples=cases(100))
def test_vectors_are_those_of_json(vectors: list[list[float] | None], skip: int) -> None:
    kind = PropType(Scalar.VECTOR, nullable=True, dimension=2)
    column = pa.array(vectors, pa.list_(pa.float32())).slice(skip)

    def cell(value: list[float] | None) -> Any:
        return None if value is None else json_to_cell(value, kind)

    try:
        expected = [cell(value) for value in vectors[skip:]]
    except CellError:
        with pytest.raises(CellError):
            column_cells(column, kind)
    else:
        assert column_cells(column, kind).to_pylist() == expected


def test_ids_are_those_of_records(place: Place) -> None:
    place.put("node:Two", {"a": ['"é', "x"], "b": pa.array([1, -2], pa.int16())})
    place.put("node:Num", {"at": pa.array([MOMENT], pa.timestamp("ms", "UTC"))})
    place.put("node:Free", {"n": [1, 2], "id": ["own", None]})
    taken = [place.rows(name) for name in ("Two", "Num")]
    place.load(
        {"type": "Two", "data": {"a": '"é', "b": 1}},
        {"type": "Two", "data": {"a": "x", "b": -2}},
        {"type": "Num", "data": {"at": "1969-12-31T23:59:59.999Z"}},
    )
    assert taken == [place.rows(name) for name in ("Two", "Num")]
    made, own = place.rows("Free")
    assert (own["id"], own["n"], made["n"], len(made["id"])) == ("own", 1, 2, 26)


def test_edges_name_their_ends(place: Place) -> None:
    place.put("node:P", {"k": ["a", "b"]})
    place.put("edge:E", {"id": ["1"], "from": ["a"], "to": ["b"], "w": [3]})
    place.put("edge:Way", {"id": ["1"], "src": ["a"], "dst": ["b"], "from": ["here"]})
    assert place.rows("E") == [{"id": "1", "src": "a", "dst": "b", "w": 3}]
    assert place.rows("Way") == [{"id": "1", "src": "a", "dst": "b", "from": "here", "to": None}]
    for columns, message in [
        ({"from": ["a"]}, "column 'to' of E is missing"),
        ({"from": ["a"], "to": pa.nulls(1, pa.string())}, "record 1: edge missing 'to'"),
        ({"from": ["a"], "to": [1]}, "'to' expects a text: got int64"),
    ]:
        with pytest.raises(LoadError) as failure:
            place.put("edge:E", columns)
        assert message in next(iter(failure.value.problems)).message


def test_the_columns_that_a_table_takes_can_be_asked_for(place: Place) -> None:
    catalog = open_snapshot(place.uri).schema().catalog
    assert input_columns(catalog.edges["E"]) == {"from": True, "to": True, "w": False, "id": False}
    assert input_columns(catalog.nodes["Two"]) == {"a": True, "b": True, "id": False}


def test_a_unique_property_behind_a_blob_is_refused_at_once(place: Place) -> None:
    with pytest.raises(GitopsError) as failure:
        place.put("node:Odd", {"z": ["x"]})
    assert failure.value.code == "usage_error"
