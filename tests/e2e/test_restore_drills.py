"""`gitops drill`: what is in the storage, or in a backup of it, is restored, checked, and recorded in the ledger."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Built
from tests.support.loop import CONFIG, LEDGER, Loop
from tests.support.loop_data import audited, load

pytestmark = pytest.mark.e2e


@pytest.fixture
def loaded(built: Built, tmp_path: Path) -> Loop:
    """A cluster whose graph has rows."""
    loop = built(CONFIG).copied(tmp_path / "loaded")
    load(loop, 40)
    loop.gitops("bot", "refresh", "--cluster", "brain", at=loop.server)
    return loop


def _drilled(loop: Loop, *more: str) -> dict[str, Any]:
    done = loop.gitops("bot", "drill", "--cluster", "brain", "--json", *more, at=loop.server, check=False)
    found: dict[str, Any] = json.loads(done.text)
    assert bool(found["ok"]) == (done.code == 0)
    return found


def test_a_drill_restores_a_root_that_can_be_served_and_records_that(loaded: Loop, tmp_path: Path) -> None:
    place = tmp_path / "restored"
    before = {each: each.read_bytes() for each in loaded.graph("legacy").rglob("*") if each.is_file()}
    done = loaded.gitops("bot", "drill", "--cluster", "brain", "--into", str(place), at=loaded.server)
    assert "Drill passed: 2 graphs with 40 rows" in done.text
    assert {each: each.read_bytes() for each in loaded.graph("legacy").rglob("*") if each.is_file()} == before
    # The restored root alone can be served.
    check = loaded.gitops(
        "bot", "serve", "--cluster", str(place), "--check", "--unauthenticated", at=tmp_path, check=False
    )
    assert check.code == 0, check.text
    # Everybody sees it in a clone, and the audit accepts it.
    shown = loaded.gitops("bob", "log", "--limit", "1").text
    assert "restored 2 graphs" in shown
    assert "last restore drill that passed" in loaded.gitops("bob", "status").text
    loaded.gitops("bob", "report", "--output", str(tmp_path / "pages"))
    assert "<dt>Last restore drill that passed</dt><dd>20" in (tmp_path / "pages/index.html").read_text()
    assert audited(loaded).ok


def test_the_audits_of_test_files_run_on_the_copy(loaded: Loop) -> None:
    tests = b"""version: 1
graph: notes
audits:
  - {id: no-notes, query: titles, expect: {count: 0}}
  - {id: some-notes, query: titles, expect: {count: {min: 1}}}
  - {id: many-notes, query: titles, expect: {count: {min: 9}}, severity: warning}
"""
    loaded.move("refs/heads/topic", loaded.commit("alice", {"cluster/notes.test.yaml": tests}))
    loaded.merge("alice", 1)
    found = _drilled(loaded)["drill"]
    assert found["findings"] == ["graph.notes: audit some-notes: expected at least 1 row, got 0"]
    load(loaded, 2, "notes", "Note", "title")
    found = _drilled(loaded)["drill"]
    assert found["findings"] == ["graph.notes: audit no-notes: expected 0 rows, got 2"]


def test_a_damaged_file_fails_the_drill_and_is_not_remembered_as_passed(loaded: Loop) -> None:
    passed = _drilled(loaded)["drill"]
    tables = sorted(loaded.graph("legacy").glob("nodes/*/data/*.lance"))
    tables[0].write_bytes(bytes(len(tables[0].read_bytes())))
    found = _drilled(loaded)
    assert {each["code"] for each in found["problems"]} == {"drill_failed"}
    assert found["recorded"] is True
    form = json.loads(loaded.gitops("bob", "status", "--json").text)
    assert form["last_entry"]["kind"] == "drill"
    assert form["last_drill"]["rows"] == 40
    assert passed["passed"] is True
    assert audited(loaded).ok


def test_a_backup_is_compared_with_the_ledger_and_dated(loaded: Loop, tmp_path: Path) -> None:
    root, backup = loaded.graph("legacy").parent.parent, tmp_path / "backup"
    shutil.copytree(root, backup)
    load(loaded, 60)
    found = _drilled(loaded, "--from", str(backup))["drill"]
    assert found["passed"] is True
    graphs = {each["graph"]: each for each in found["graphs"]}
    # The data of a graph that has a newer version is as old as the version in the backup.
    manifest = min((backup / "graphs/legacy.omni/manifests").glob("*.json"))
    written = json.loads(manifest.read_text())["ts"]
    assert (graphs["legacy"]["version"], graphs["legacy"]["as_of"]) == (2, written)
    # What the ledger recorded since then is not in the backup.
    loaded.gitops("bot", "refresh", "--cluster", "brain", at=loaded.server)
    later = _drilled(loaded, "--from", str(backup))
    assert later["ok"] is False
    assert "the ledger records" in json.dumps(later["problems"])
    assert audited(loaded).ok


def test_a_scheduled_job_drills_every_cluster(loaded: Loop) -> None:
    done = loaded.gitops("bot", "bot", "drill", at=loaded.server, check=False)
    assert done.code == 0, done.text
    assert "drill of brain: passed; 2 graphs, 40 rows" in done.text
    assert "restored 2 graphs" in loaded.gitops("bob", "log", "--limit", "1").text


def test_a_folder_with_files_is_not_written_to(loaded: Loop, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    tip = loaded.tip(LEDGER)
    done = loaded.gitops("bot", "drill", "--cluster", "brain", "--into", str(tmp_path), at=loaded.server, check=False)
    assert done.code == 2
    assert "is not an empty folder" in done.text
    assert loaded.tip(LEDGER) == tip
