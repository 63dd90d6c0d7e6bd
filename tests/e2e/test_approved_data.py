"""What an approval is about: the graph and the rows that its approver saw, and not a name that another graph has now."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.change import Seen
from gitops.core.errors import GitopsError
from gitops.core.faults import NoFaults
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode
from gitops.database.graph.staged import WriteContext
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.stores import graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.loop import (
    APPROVALS,
    CLUSTER_YAML,
    CONFIG,
    DELETE_LEGACY,
    LEDGER,
    MAIN,
    Loop,
    codes,
    printed_command,
)
from tests.support.loop_data import applied_again, audited, given, load, refreshed, rows, schema, workspace

pytestmark = pytest.mark.e2e


def _merged(loop: Loop) -> None:
    """The delete of a graph is merged, and waits for an approval."""
    head = loop.commit("alice", DELETE_LEGACY)
    loop.move("refs/heads/retire", head)
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists()


def test_rows_that_are_loaded_after_the_approval_save_the_graph(loop: Loop) -> None:
    head = loop.commit("alice", DELETE_LEGACY)
    loop.move("refs/heads/retire", head)
    outcome = loop.sign_approval("bob", "graph.legacy", request=1)
    assert outcome.ok
    assert outcome.commit is not None
    assert loop.evidence(outcome.commit)[1].seen == _seen(loop, 0)
    load(loop, 20)
    loop.merge("carol", 1)
    assert rows(loop) == 20
    assert "approval_data_grew" in applied_again(loop)
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


@pytest.mark.parametrize("clone", [False, True], ids=["with the graph", "in a clone"])
def test_rows_that_take_the_place_of_those_that_were_seen_save_the_graph(loop: Loop, clone: bool) -> None:
    """Not one of 5 rows that were given up is left of 1,000, though the rules let the graph grow by so many."""
    load(loop, 5)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    if clone:
        # The ledger records version 1, without rows; the plan that the bot keeps has what the server read.
        loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    else:
        assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    load(loop, 1000, mode=LoadMode.OVERWRITE)
    loop.merge("carol", 1)
    assert rows(loop) == 1000
    said = {each.code: each.message for each in apply(workspace(loop)).diagnostics}["approval_data_replaced"]
    assert "of 5 rows in version 2, which its approver saw, 5 were replaced up to version 3" in said
    assert refreshed(loop) == set()
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    report = audited(loop)
    assert (report.ok, [note for note in report.notes if "saw" in note]) == (True, [])
    log = loop.gitops("bot", "log", "--cluster", "brain", "--limit", "9", at=loop.server).text
    assert "carol@people.example saw 1,000 rows in version 3; applied to 1,000 rows in version 3" in log


def _optimize(loop: Loop) -> None:
    options = OptimizeOptions(fragments=1, scalar_rows=1)
    done = optimize_tables(str(loop.graph("legacy")), WriteContext(SystemClock(), RandomIds()), options)
    assert done.tables


def _forget(loop: Loop) -> None:
    load(loop, 6)
    collect_garbage(
        str(loop.graph("legacy")), WriteContext(SystemClock(), RandomIds()), Retention(1, timedelta(0), timedelta(0))
    )


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (_optimize, None),
        (lambda loop: load(loop, 3, mode=LoadMode.MERGE), "approval_data_replaced"),
        (_forget, "approval_data_unknown"),
    ],
    ids=["tables are compacted and indexed", "rows are changed", "the version is no longer kept"],
)
def test_an_approval_is_for_the_rows_that_were_seen(
    loop: Loop, happens: Callable[[Loop], None], code: str | None
) -> None:
    load(loop, 5)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    seen = _seen(loop, 5)
    happens(loop)
    now = _seen(loop, rows(loop))
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists() is (code is not None)
    if code is not None:
        assert code in applied_again(loop)
        return
    (note,) = [note for note in audited(loop).notes if "saw" in note]
    then = f"applied to {now.held} in version {now.version}"
    assert note.endswith(f"bob@people.example saw {seen.held} in version {seen.version}; {then}")


def test_the_printed_command_covers_rows_that_only_the_server_sees(loop: Loop) -> None:
    """They were loaded after the last entry, so a clone, which has no graph, cannot know them."""
    load(loop, 20)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert "--rows 20 " in loop.comment(1)
    loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    loop.merge("carol", 1)
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


def test_a_clone_approves_the_loss_of_rows_that_only_the_server_sees(tmp_path: Path) -> None:
    """The last entry says that the graph is empty, and an empty graph would need no approval."""
    loop = Loop.build(tmp_path / "gates", f"{CONFIG}  gates: [lossy]\n  data_growth: {{percent: 10, rows: 0}}\n")
    load(loop, 3, "notes", "Note", "title")
    loop.move(
        "refs/heads/slim", loop.commit("alice", {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"})
    )
    assert "1 to approve first" in loop.gitops("bob", "plan", "--request", "1").text
    loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    assert "\n    after the commit: schema.notes: it only drops" in loop.gitops("bob", "plan", "--request", "1").text
    loop.merge("carol", 1)
    assert schema(loop, "notes") == b"node Note {\n    title: String @key\n}\n"
    assert audited(loop).ok


def _seen(loop: Loop, rows: int) -> Seen:
    reading = graph_engine(NoFaults()).read(str(loop.graph("legacy")))
    return Seen(reading.incarnation, rows, reading.manifest_version)


def test_a_left_over_approval_does_not_delete_the_graph_that_was_created_again(loop: Loop) -> None:
    _merged(loop)
    kept = loop.sign_approval("bob", "graph.legacy")
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert kept.commit is not None
    entry = loop.applied()
    assert kept.commit in entry.parents, "a good approval that was not needed is spent, too"
    back = loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()})
    loop.move(MAIN, back)
    load(loop, 3)
    again = loop.commit("alice", DELETE_LEGACY)
    loop.move(MAIN, again)
    assert rows(loop) == 3
    assert "approval_spent" in applied_again(loop)
    assert rows(loop) == 3
    assert audited(loop).ok


def test_an_approval_older_than_the_last_change_of_its_resource_does_not_count(loop: Loop) -> None:
    """Its branch arrives only after others deleted the graph and created it again: it was never spent."""
    _merged(loop)
    held = loop.sign_approval("bob", "graph.legacy")
    assert held.approval is not None
    assert held.commit is not None
    ref = APPROVALS + held.approval.approval_id
    loop.drop(ref)
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    loop.store.update_refs([RefUpdate(ref, ZERO, held.commit)])
    assert applied_again(loop) & {"approval_stale", "approval_other_graph"}
    assert loop.graph("legacy").exists()


class _Dies:
    """A run that ends at a fault point, as if its process had died."""

    def __init__(self, point: str) -> None:
        self._point = point

    def reach(self, point: str) -> None:
        if point == self._point:
            raise GitopsError("injected_failpoint", point)


@pytest.mark.parametrize("whole_storage", [False, True])
def test_a_restored_backup_is_not_deleted_again_by_the_same_approval(
    loop: Loop, tmp_path: Path, whole_storage: bool
) -> None:
    load(loop, 5)
    graphs = loop.graph("legacy").parent
    shutil.copytree(graphs, tmp_path / "backup")
    if whole_storage:
        load(loop, 5)
    _merged(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    place = workspace(loop)
    died = apply(replace(place, faults=_Dies("cluster_apply.after_graph_delete")))
    assert "injected_failpoint" in {d.code for d in died.diagnostics}
    assert not loop.graph("legacy").exists()
    if whole_storage:
        # Not even the marker beside the graph is left, but the graph is older than when the delete was announced.
        shutil.rmtree(graphs)
        shutil.copytree(tmp_path / "backup", graphs)
    else:
        shutil.copytree(tmp_path / "backup" / "legacy.omni", loop.graph("legacy"))
    assert "graph_restored" in applied_again(loop)
    assert rows(loop) == 5
    applied_again(loop)
    assert rows(loop) == 5
    assert audited(loop).ok
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


def test_a_slow_run_whose_lock_was_broken_deletes_nothing_any_more(loop: Loop) -> None:
    """It is suspended before the delete; meanwhile others break its lock, and settle its operation."""
    _merged(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    place = workspace(loop)

    class Suspended:
        def reach(self, point: str) -> None:
            if point == "cluster_apply.before_graph_delete":
                for ref in loop.store.refs("refs/gitops/locks"):
                    loop.drop(ref)
                loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
                load(loop, 2)

    outcome = apply(replace(place, faults=Suspended()))
    assert not outcome.ok
    assert rows(loop) == 2
    assert audited(loop).ok


def test_a_graph_that_vanished_is_reported_and_neither_taken_out_nor_created_again_without_approval(
    loop: Loop, tmp_path: Path
) -> None:
    load(loop, 3)
    assert refreshed(loop) == set()
    backup = shutil.copytree(loop.graph("legacy"), tmp_path / "backup")
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    assert read_entry(loop.store.read(loop.store.commit(loop.tip(LEDGER)).tree, "entry.json") or b"").vanished == (
        "graph.legacy",
    )
    assert audited(loop).ok
    applied_again(loop)
    assert not loop.graph("legacy").exists(), "it is not created again without an approval"
    applied_again(loop)
    assert refreshed(loop) == {"graph_vanished"}, "a blocked change does not make the loss forgotten"
    shutil.copytree(backup, loop.graph("legacy"))
    assert refreshed(loop) == set()
    assert rows(loop) == 3
    assert audited(loop).ok


def test_a_graph_that_vanished_is_taken_out_with_an_approval_alone(loop: Loop) -> None:
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    applied_again(loop)
    assert "graph_vanished" in refreshed(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    applied_again(loop)
    assert refreshed(loop) == set()
    assert audited(loop).ok


def test_a_graph_that_vanished_is_created_again_by_the_approval_of_anybody(loop: Loop) -> None:
    """No commit made this change, so it has no author: also the author of the declaration may approve it."""
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    swept = loop.gitops("bot", "bot", "sweep", at=loop.server, check=False)
    assert "waits for a person" in swept.text
    assert not loop.graph("legacy").exists()
    assert not codes(given(loop, "alice"))
    assert rows(loop) == 0, "the arrival of the approval starts the apply"
    assert refreshed(loop) == set()
    assert audited(loop).ok
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    applied_again(loop)
    assert not loop.graph("legacy").exists(), "the approval is spent"


def test_the_author_of_an_edited_declaration_does_not_approve_it_for_a_graph_that_vanished(loop: Loop) -> None:
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    edited = {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    mail: String?\n}\n"}
    loop.move(MAIN, loop.commit("alice", edited))
    assert "approval_self" in {d.code for d in loop.sign_approval("alice", "graph.legacy").diagnostics}
    loop.sign_approval("alice", "graph.legacy", blind=True)
    assert "approval_self" in applied_again(loop)
    assert not loop.graph("legacy").exists()
    given(loop, "bob")
    assert rows(loop) == 0
    assert audited(loop).ok
