"""What is removed beside readers and writers: who comes in time reads on, who comes too late is told so in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.core.faults import NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.port import PreparedVersion
from gitops.database.graph.read import read_rows as show_rows
from gitops.database.graph.staged import WriteContext, hold_lease, read_leases
from gitops.database.graph.tables import dataset_versions
from tests.support.clock import FixedClock
from tests.support.histories import History, person, read_rows
from tests.support.s3 import S3Place

BASE = b"node Person { name: String @key  age: I32?  mail: String? }\nnode Town { name: String @key }\n"
DROPPED = b"node Person { name: String @key  age: I32? }\nnode Town { name: String @key }\n"


def hard_drop(history: History) -> PreparedVersion:
    engine = LanceEngine(history.clock, history.ids, NoFaults())
    return engine.prepare_migration(history.uri, DROPPED, actor=None, allow_data_loss=True)


def people(history: History, **ages: int) -> None:
    history.put("main", {"node:Person": [{"id": name, "name": name, "age": age} for name, age in ages.items()]})


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return History(str(tmp_path / "g.omni"), BASE)
    s3: S3Place = request.getfixturevalue("s3")
    return History(f"{s3.root}/graphs/g.omni", BASE)


def test_a_version_before_a_hard_drop_says_that_its_rows_are_gone(history: History) -> None:
    people(history, a=1)
    old = history.at()
    hard_drop(history).publish()
    with pytest.raises(GitopsError, match="dropped permanently") as failure:
        read_rows(old, "node:Person")
    assert failure.value.code == "graph_version_gone"
    with pytest.raises(GitopsError, match="dropped permanently") as failure:
        show_rows(history.uri, "Person", 9, old.manifest.n)
    assert failure.value.code == "graph_version_gone"
    assert read_rows(old, "node:Town") == []
    assert read_rows(history.at(), "node:Person") == [{"id": "a", "age": 1, "name": "a"}]


def test_a_table_that_is_lost_is_not_taken_for_a_dropped_one(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), BASE)
    people(history, a=1)
    snapshot = history.at()
    snapshot.folder.remove(snapshot.manifest.tables["node:Person"].path)
    with pytest.raises(GitopsError) as failure:
        read_rows(snapshot, "node:Person")
    assert failure.value.code == "graph_unreadable"
    assert ".rs:" not in failure.value.detail


def test_a_hard_drop_that_was_staged_before_a_branch_was_made_does_not_take_its_tables(history: History) -> None:
    people(history, a=1)
    staged = hard_drop(history)
    create_branch(history.uri, "dev", history.work())
    with pytest.raises(GitopsError, match="dev") as failure:
        staged.publish()
    assert failure.value.code == "graph_has_branches"
    assert [row["id"] for row in read_rows(history.at("dev"), "node:Person")] == ["a"]
    assert verify_graph(history.uri, deep=True).ok


def test_who_opened_the_newest_version_reads_on_for_the_grace_period(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), now=datetime(2020, 1, 1, tzinfo=UTC))
    history.people("main", a=1)
    opened = history.at()
    history.people("main", a=2)
    entry = opened.manifest.tables["node:Person"]
    made = dict(dataset_versions(opened.folder, entry.path))
    grace = timedelta(hours=1)
    # The rows that were opened have been there for the whole grace period, and what followed them has not.
    now = WriteContext(FixedClock(made[entry.version] + grace), history.ids)
    assert made[entry.version] < made[entry.version + 1]
    assert collect_garbage(history.uri, now, Retention(1, timedelta(0), grace)).manifests == 2
    assert read_rows(opened, "node:Person") == [person("a", 1)]


def test_a_lease_that_cannot_be_given_back_does_not_undo_what_was_done(s3: S3Place) -> None:
    history = History(f"{s3.root}/graphs/g.omni")
    s3.server.fault = lambda asked: 403 if asked.method == "DELETE" and "/leases/" in asked.path else None
    with hold_lease(history.at(), history.work()):
        pass
    create_branch(history.uri, "dev", history.work())
    with pytest.raises(ZeroDivisionError), hold_lease(history.at(), history.work()):
        raise ZeroDivisionError
    s3.server.fault = lambda _asked: None
    assert len(read_leases(history.at().store)) == 3


def test_gc_does_not_leave_the_graph_over_a_link(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), BASE)
    root, aside = Path(history.uri), tmp_path / "aside"
    (root / "edges").mkdir(exist_ok=True)
    (root / "edges").rename(aside)
    (aside / "mine").mkdir()
    (aside / "mine" / "kept").write_text("mine")
    (root / "edges").symlink_to(aside)
    with pytest.raises(GitopsError, match="not followed") as failure:
        collect_garbage(history.uri, history.work(), Retention(1, timedelta(0), timedelta(0)))
    assert failure.value.code == "storage_failed"
    assert (aside / "mine" / "kept").read_text() == "mine"
