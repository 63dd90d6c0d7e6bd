"""Writers of a graph are killed, disturbed by each other, or meet a disk that fails: nothing is lost or there by half."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from gitops.core.errors import RemoteError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.read import export_records
from gitops.database.graph.snapshot import open_snapshot
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.engine_campaign import OPERATIONS, TABLE, UNVERIFIED_S, Campaign, Fate, debris, grow_old, recorded
from tests.fault.engine_child import LONGEST_S, Child
from tests.fault.engine_crowd import EACH, FIRST_FREE, SCHEMA, START, Member, load, require_coherent, values
from tests.fault.engine_world import Deed, Model, begin, collect, found, perform
from tests.support.fault_points import FAULT_POINTS
from tests.support.faults import visits
from tests.support.s3 import Asked, S3Place

KILLS = 34
"""So many for each operation on disk: 510 in all."""
KILLS_S3 = 4
REFUSED = 403
WRITES = ("PUT", "POST", "DELETE")
_SAMPLE = [
    ("load_merge", "engine.load.staged"),
    ("delete", "engine.mutate.before_publish"),
    ("merge", "engine.merge.before_publish"),
    ("gc", "engine.gc.before_versions"),
]
# A graph is made and removed, and its rows are restored, by verbs of the control plane: `test_matrix.py`, `test_engine_kill.py`
# and `test_atomic_matrix.py` die there. Drivers and workers of a load over an executor die in `test_bulk_kill.py`,
# and loads with checkpoints in `test_load_kill.py`.
_CONTROLLED = (
    "engine.bulk.",
    "engine.create.",
    "engine.delete.",
    "engine.fence.",
    "engine.load.before_checkpoint",
    "engine.load.after_checkpoint",
    "engine.load.before_end",
    "engine.load.after_end",
    "engine.restore.",
)
_ELSEWHERE = {name for name in FAULT_POINTS if name.startswith(_CONTROLLED)}


@contextlib.contextmanager
def campaign(uri: str, seed: int, age: Callable[[], None] | None = None) -> Iterator[Campaign]:
    """One graph, and no process left at the end."""
    made = Campaign(uri, seed, age)
    try:
        yield made
    finally:
        made.close()


def test_the_campaign_reaches_every_point_of_the_engine() -> None:
    reached = {point for points in recorded().values() for point in points}
    assert set(recorded()) == set(OPERATIONS)
    assert reached == {name for name in FAULT_POINTS if name.startswith("engine.")} - _ELSEWHERE


def test_a_sample_of_deaths(tmp_path: Path) -> None:
    with campaign(str(tmp_path / "g.omni"), 1) as graph:
        fates = [graph.die_at(op, point, 1) for op, point in _SAMPLE]
        fates.append(graph.die_after("update", graph.chance.uniform(0, 0.05)))
    assert [fate.published for fate in fates[:3]] == [False] * 3
    assert all(fate.left for fate in fates[:3])


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("op", OPERATIONS)
def test_killed_writers_leave_a_graph_as_it_was_or_as_it_will_be(
    tmp_path: Path, op: str, record_property: Callable[[str, object], None]
) -> None:
    with campaign(str(tmp_path / "g.omni"), list(OPERATIONS).index(op)) as graph:
        told = graph.rehearse(op)
        assert sorted(set(told.reached[0])) == recorded()[op], (
            "write the points again: python -m tests.fault.engine_campaign"
        )
        deaths = visits(told.reached[0])
        for point, visit in deaths:
            record_property(TABLE, graph.die_at(op, point, visit).row("disk", "point"))
        for _ in range(KILLS - len(deaths)):
            fate = graph.die_after(op, graph.chance.uniform(0, 1.5 * told.seconds[0]))
            record_property(TABLE, fate.row("disk", "random"))


class Strike:
    """The service sees the child die before its n-th write, and does nothing of what a dead process asks for."""

    def __init__(self, child: Child, write: int) -> None:
        self._child = child
        self._left = write

    def __call__(self, asked: Asked) -> int | None:
        if asked.kind not in WRITES:
            return None
        self._left -= 1
        if self._left > 0:
            return None
        self._child.kill()
        return REFUSED


def age_bucket(s3: S3Place) -> None:
    """Let a week pass for all objects."""
    for held in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[s3.bucket].keys.values():
        held.last_modified -= timedelta(seconds=UNVERIFIED_S)


def die_at_write(s3: S3Place, graph: Campaign, op: str, write: int) -> Fate:
    """Let the child die before a write that its deeds send to the service."""

    def death(child: Child, deeds: int) -> None:
        s3.server.fault = Strike(child, write)
        child.go(deeds)
        child.wait()
        s3.server.forget()

    return graph.die_by(op, death)


def writes_of(s3: S3Place, graph: Campaign, op: str) -> int:
    """How many writes it sends."""
    asked: list[Asked] = []

    def death(child: Child, _deeds: int) -> None:
        s3.server.forget()
        child.go()
        child.acknowledged()
        asked.extend(s3.server.log)
        child.kill()

    graph.die_by(op, death)
    return sum(each.kind in WRITES for each in asked)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("op", OPERATIONS)
def test_killed_writers_to_an_object_store_do_so_too(
    s3: S3Place, op: str, record_property: Callable[[str, object], None]
) -> None:
    with campaign(f"{s3.root}/graphs/g.omni", list(OPERATIONS).index(op), partial(age_bucket, s3)) as graph:
        writes = writes_of(s3, graph, op)
        for _ in range(KILLS_S3):
            fate = die_at_write(s3, graph, op, graph.chance.randint(1, writes + 1))
            record_property(TABLE, fate.row("s3", "random"))


def test_two_writers_with_a_reader_and_a_keeper(tmp_path: Path) -> None:
    run_rounds(str(tmp_path / "g.omni"), writers=2, rounds=2)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("writers", [2, 4])
def test_fifty_rounds_of_writers(tmp_path: Path, writers: int) -> None:
    run_rounds(str(tmp_path / "g.omni"), writers, rounds=50)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize(("writers", "rounds"), [(2, 3), (4, 2)])
def test_some_rounds_of_writers_to_an_object_store(s3: S3Place, writers: int, rounds: int) -> None:
    run_rounds(f"{s3.root}/graphs/g.omni", writers, rounds)


def run_rounds(uri: str, writers: int, rounds: int) -> None:
    """Let the crowd at it, and look at everything after each round."""
    LanceEngine(SystemClock(), RandomIds()).prepare_create(uri, SCHEMA, actor=None).publish()
    load(uri, START, LoadMode.MERGE)
    done: dict[str, list[Any]] = {kind: [] for kind in EACH}
    freed = 0
    with crowd(uri, writers) as members:
        for number in range(1, rounds + 1):
            began = SystemClock().now()
            for member in members:
                member.begin(number, began)
            answers = [(member.role, member.answer()) for member in members]
            for role, answer in answers:
                if role == "writer":
                    for kind, told in answer.items():
                        done[kind] += told
            freed += sum(answer.get("freed", 0) for _, answer in answers)
            require_all(uri, done, writers, number)
    assert freed
    assert verify_graph(uri, deep=True).ok


@contextlib.contextmanager
def crowd(uri: str, writers: int) -> Iterator[Sequence[Member]]:
    """The processes; none is left at the end."""
    members: list[Member] = []
    try:
        for seed, role in enumerate(["writer"] * writers + ["keeper", "reader"], 1):
            members.append(Member(role, uri, seed))
        yield members
    finally:
        for member in members:
            member.stop()


def require_all(uri: str, done: dict[str, list[Any]], writers: int, rounds: int) -> None:
    """What the writers were told is there, all of it and once."""
    snapshot = open_snapshot(uri)
    require_coherent(snapshot)
    counted = values(snapshot)
    # No increment is lost, and none is counted twice.
    assert sorted(done["add"]) == list(range(FIRST_FREE + 1, FIRST_FREE + 1 + rounds * writers * EACH["add"]))
    assert sorted(done["add_told"]) == list(range(1, 1 + rounds * writers * EACH["add_told"]))
    assert counted == {"free": max(done["add"]), "told": max(done["add_told"])}
    rows = [json.loads(line) for line in export_records(snapshot)]
    nodes = [(row["type"], row["data"]) for row in rows if "type" in row]
    # Of those who wanted the same code or key exactly one has it, and knows it.
    for kind, name, member in (("code", "Item", "code"), ("slot", "Slot", "k")):
        wanted = sorted(f"{number}-{turn}" for number in range(1, rounds + 1) for turn in range(EACH[kind]))
        assert sorted(done[kind]) == wanted
        assert sorted(data[member] for label, data in nodes if label == name and member in data) == wanted
    loaded = sorted(n for pair in done["append"] for n in pair)
    assert sorted(data["n"] for label, data in nodes if label == "Item" and "code" not in data) == loaded
    assert [data["k"] for label, data in nodes if label == "Tally"] == ["x", "y"]
    assert {data["value"] for label, data in nodes if label == "Tally"} <= set(done["tally"])
    assert max(Counter((label, data["id"]) for label, data in nodes).values()) == 1


OPS = ("load_merge", "load_overwrite", "insert", "update", "delete")
LIMITS = [0, 256, 1024, 4096, 1 << 20]


class Failing:
    """A call of the system that fails at its n-th use, as on a disk that is full or broken."""

    def __init__(self, call: Callable[..., Any], number: int, left: int, counts: Callable[..., bool]) -> None:
        self._call = call
        self._number = number
        self._left = left
        self._counts = counts
        self.struck = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._counts(*arguments):
            self._left -= 1
            if self._left == 0:
                self.struck = True
                raise OSError(self._number, os.strerror(self._number))
        return self._call(*arguments, **options)


def _any(*_: Any) -> bool:
    return True


def _makes(_path: object, flags: int, *_: Any) -> bool:
    return bool(flags & os.O_CREAT)


CALLS = {
    "fsync": (errno.EIO, _any),
    "open": (errno.ENOSPC, _makes),
    "link": (errno.ENOSPC, _any),
}


@pytest.mark.parametrize(
    "name", [pytest.param("fsync", marks=[pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]), "open", "link"]
)
@pytest.mark.parametrize("op", ["load_merge", "delete"])
def test_a_call_of_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, name: str) -> None:
    start, uri = tmp_path / "start.omni", str(tmp_path / "g.omni")
    number, counts = CALLS[name]
    before = begin(str(start))
    deed = Deed(op, 2, target=before.branches["main"].items()[0])
    after = before.after(deed)
    made = []
    for left in range(1, 100):
        shutil.rmtree(uri, ignore_errors=True)
        shutil.copytree(start, uri)
        failing = Failing(getattr(os, name), number, left, counts)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            failure = attempt(uri, deed)
        seen = found(uri)
        assert verify_graph(uri, deep=True).ok
        if failure is None:
            # No call failed, or one without which the deed is done: what it made stays.
            assert seen == after.branches
        else:
            assert failure.code == "storage_failed"
            assert os.strerror(number) in failure.detail
            assert seen in (before.branches, after.branches)
            made.append(seen == after.branches)
            if left % 8 == 1:
                require_usable(uri, after if made[-1] else before)
        if not failing.struck:
            break
    assert not failing.struck
    assert made
    # The manifest has its name, and it is open whether it lasts: only this failure may come of what was done.
    assert sum(made) == (name == "fsync")


@contextlib.contextmanager
def file_size(limit: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("op", OPS)
def test_no_file_can_grow(tmp_path: Path, op: str) -> None:
    uri = str(tmp_path / "g.omni")
    model = begin(uri)
    failed = 0
    for number, limit in enumerate(LIMITS, 2):
        deed = Deed(op, number, target=model.branches["main"].items()[0])
        with file_size(limit):
            failure = attempt(uri, deed)
        if failure is None:
            model = model.after(deed)
        else:
            assert failure.code == "storage_failed"
            failed += 1
        assert found(uri) == model.branches
        assert verify_graph(uri, deep=True).ok
    assert 0 < failed < len(LIMITS)
    require_usable(uri, model)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("op", ["load_append", "update"])
def test_a_service_refuses_a_write(s3: S3Place, op: str) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    model = begin(uri)
    for left in range(1, 100):
        deed = Deed(op, left + 1, target=model.branches["main"].items()[0])
        s3.server.fault = refusal = Refusal(left)
        failure = attempt(uri, deed)
        s3.server.forget()
        if failure is None:
            model = model.after(deed)
        else:
            assert failure.code == "storage_failed"
        assert found(uri) == model.branches
        if not refusal.struck:
            break
    assert failure is None
    assert left > 5
    assert verify_graph(uri, deep=True).ok


class Refusal:
    """The n-th write is refused."""

    def __init__(self, left: int) -> None:
        self._left = left

    @property
    def struck(self) -> bool:
        """Whether it came to that."""
        return self._left <= 0

    def __call__(self, asked: Asked) -> int | None:
        if asked.kind not in ("PUT", "POST", "DELETE"):
            return None
        self._left -= 1
        return REFUSED if self._left == 0 else None


def attempt(uri: str, deed: Deed) -> RemoteError | None:
    """Do it; gives the failure."""
    try:
        perform(uri, deed)
    except RemoteError as error:
        return error
    return None


def require_usable(uri: str, model: Model) -> None:
    """The next writers succeed, and what failed ones left is freed."""
    for number, op in enumerate(("load_merge", "insert"), 900):
        deed = Deed(op, number)
        perform(uri, deed)
        model = model.after(deed)
    grow_old(uri)
    collect(uri)
    assert found(uri) == model.branches
    assert verify_graph(uri, deep=True).findings == ()
    assert not debris(uri).more_than()
