"""Writers of a graph are killed by SIGKILL, at every fault point and at any moment, and nothing is lost or there by half.

What is looked at after each death is in `engine_campaign.py`. The slow tests are the whole campaign: `make engine-faults`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.fault.engine_campaign import OPERATIONS, Campaign, Fate, recorded
from tests.fault.engine_child import LONGEST_S, Child
from tests.fault.engine_debris import UNVERIFIED_S
from tests.fault.engine_table import TABLE
from tests.fault.matrix import visits
from tests.support.fault_points import FAULT_POINTS
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
# and `test_atomic_matrix.py` die there.
_CONTROLLED = ("engine.create.", "engine.delete.", "engine.fence.", "engine.restore.")
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


def grow_old(s3: S3Place) -> None:
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
    with campaign(f"{s3.root}/graphs/g.omni", list(OPERATIONS).index(op), partial(grow_old, s3)) as graph:
        writes = writes_of(s3, graph, op)
        for _ in range(KILLS_S3):
            fate = die_at_write(s3, graph, op, graph.chance.randint(1, writes + 1))
            record_property(TABLE, fate.row("s3", "random"))
