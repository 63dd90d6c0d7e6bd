"""A restore whose run died, on a ledger branch: what happened is recorded and audited, whatever is declared by then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.ledger.documents import read_intent, write_intent
from gitops.cluster.model.ledger import EntryKind, Intent
from tests.support.audited import Lie, Life, declared, saying
from tests.support.cluster import codes

RESTORING = declared("notes", "legacy") + b"restores: {notes: {version: 2, types: [Note]}}\n"
BEFORE, AFTER = "cluster_apply.before_graph_restore", "cluster_apply.after_graph_restore"
URI = "memory/notes"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Version 2 of graph `notes` has five rows, version 3 has none; that they come back is declared and approved."""
    life = Life(tmp_path)
    life.begin()
    for rows in (5, 0):
        life.engine.load(URI, rows)
    life.change("dora", {"cluster/cluster.yaml": RESTORING})
    life.apply()
    life.approve("ada", "restore.notes")
    return life


def sound(life: Life) -> bool:
    return life.audit(life.chain()[-1]).finding is None


def announced(life: Life) -> tuple[str, Intent]:
    """The intent that waits, and its file."""
    path = next(p for p in life.ledger(life.rule()).intents().intents)
    return f"__cluster/recoveries/{path.operation_id}.json", path


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("point", [AFTER, "cluster_apply.before_state_write"])
def test_a_restore_is_announced_before_it_happens_and_done_once(life: Life, point: str, atomic: bool) -> None:
    life.atomic = atomic
    life.apply(dying_at=point)
    assert announced(life)[1].kind == "graph_restore"
    outcome = life.apply()
    assert outcome.converged
    assert (life.engine.read(URI).rows, len(life.engine._graphs[URI].restores)) == (5, 1)
    assert not life.ledger(life.rule()).intents().intents
    assert sound(life)
    assert life.apply().converged


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_it_is_recorded_though_something_else_is_declared(life: Life, point: str) -> None:
    life.apply(dying_at=point)
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    outcome = life.apply()
    assert outcome.converged
    # To take the declaration out needs no approval: the used one is not mentioned.
    assert codes(outcome) == ["cluster_recovery_rolled_forward"] * (point == AFTER)
    entry = life.entry(len(life.chain()))
    assert entry.kind is EntryKind.APPLY
    assert [change.resource for change in entry.changes] == ["restore.notes"] * (point == AFTER)
    records = life.state(len(life.chain())).recovery_records.values()
    assert [record["kind"] for record in records] == ["graph_restore"] * (point == AFTER)
    assert sound(life)


def test_a_restore_that_was_never_approved_is_not_completed_by_recovery(life: Life) -> None:
    life.apply(dying_at=AFTER)
    intent_entry = len(life.chain())
    life.apply()
    lied = life.forge(intent_entry, Lie(lambda e: replace(e, approvals=(), changes=())))
    report = life.audit(life.forge(intent_entry + 1, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (intent_entry + 1, "ledger_change_unapproved")


def test_an_announcement_of_another_restore_explains_nothing(life: Life) -> None:
    life.apply(dying_at=AFTER)
    number, (path, intent) = len(life.chain()), announced(life)
    assert intent == read_intent(life.file(number, path))
    assert intent.restores is not None
    life.apply()
    other = replace(intent, restores=replace(intent.restores, version=1))
    lied = life.forge(number, Lie(files={path: write_intent(other)}))
    report = life.audit(life.forge(number + 1, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (number + 1, "ledger_state_mismatch")
