"""An atomic run that dies anywhere: the next one goes on with it, takes it back, or finishes it.

The run dies by an exception that nothing catches, at every point that it reaches: nothing is written after that.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from gitops.changesets.lifecycle import replay
from gitops.core.faults import Faults
from gitops.graph.port import Existence
from tests.support.cluster import QUERY, SCHEMA, WIDER, Cluster

TALL = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
BARE = "node Person {\n  handle: String @key\n}\n"


class Death(BaseException):
    """The end of a process."""


class Dying:
    """Dies at one visit of a point, or only notes what is reached."""

    def __init__(self, at: tuple[str, int] | None = None) -> None:
        self._at = at
        self.visits: dict[str, int] = {}

    def reach(self, point: str) -> None:
        visit = self.visits[point] = self.visits.get(point, 0) + 1
        if self._at == (point, visit):
            raise Death


def stage_everything(cluster: Cluster) -> None:
    """Every class at once: graphs and texts, a migration that adds, one that cannot be taken back, drops, and a delete."""
    for name in ("old", "wide", "slim"):
        cluster.graphs[name] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["old"]
    cluster.graphs["fresh"] = {}
    cluster.write("wide.pg", WIDER)
    cluster.write("slim.pg", BARE)
    cluster.write("knowledge.pg", TALL)
    cluster.write("people.gq", QUERY.replace("Person", "Human"))
    cluster.save()
    assert cluster.approve("graph.old").ok


def made(folder: Path, store: str) -> Cluster:
    cluster = Cluster(folder, memory=store == "memory")
    cluster.converge()
    return cluster


def die(cluster: Cluster, faults: Faults) -> None:
    with suppress(Death):
        cluster.apply(atomic=True, faults=faults)


def require_whole(cluster: Cluster) -> None:
    """Everything is as declared, nothing is open, and every record is what its events give."""
    assert not cluster.sidecars
    assert {name: cluster.live(name) for name in ("fresh", "wide", "slim", "knowledge")} == {
        "fresh": SCHEMA,
        "wide": WIDER,
        "slim": BARE,
        "knowledge": TALL,
    }
    assert cluster.engine.exists(cluster.uri("old")) is Existence.ABSENT
    ledger = cluster.ledger()
    assert ledger.changesets().open == ()
    for key in ledger.changeset_keys():
        record = ledger.changeset(key)
        assert record is not None
        assert record.ended
        assert replay(ledger.events(key=key)) == record
    assert not cluster.plan().plan.changes  # type: ignore[union-attr]


def reached(folder: Path) -> list[tuple[str, int]]:
    cluster = made(folder, "folder")
    stage_everything(cluster)
    faults = Dying()
    die(cluster, faults)
    require_whole(cluster)
    return [(point, visit) for point, visits in faults.visits.items() for visit in range(1, visits + 1)]


@pytest.mark.parametrize("store", ["folder", "memory"])
def test_run_that_dies_anywhere_lands_whole_with_the_next_one(tmp_path: Path, store: str) -> None:
    first = tmp_path / "first"
    first.mkdir()
    for number, at in enumerate(reached(first)):
        folder = tmp_path / str(number)
        folder.mkdir()
        cluster = made(folder, store)
        stage_everything(cluster)
        die(cluster, Dying(at))
        outcome = cluster.apply(atomic=True)
        assert outcome.ok, (at, [d.message for d in outcome.diagnostics])
        assert outcome.converged, at
        require_whole(cluster)
