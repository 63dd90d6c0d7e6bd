"""`apply.on_drift: block`: nothing is applied while a live graph differs from the ledger, as seen from a clone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.apply.refresh import refresh
from gitops.core.faults import NoFaults
from gitops.forge.events import ManualEvent
from gitops.forge.port import RequestState
from gitops.repository.cluster import drift_ref
from gitops.repository.wiring.stores import graph_engine
from tests.e2e.conftest import Built
from tests.support.audited import CONFIG as LIFE_RULES
from tests.support.audited import Life, declared
from tests.support.bot_stage import Stage, said
from tests.support.loop import CLUSTER, CLUSTER_YAML, CONFIG, LEDGER, MAIN, Loop
from tests.support.loop_data import applied_again, audited, given, refreshed, schema

pytestmark = pytest.mark.e2e

BLOCK = f"{CONFIG}apply: {{on_drift: block}}\n"
LIVE = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n}\n"
MORE = {"cluster/cluster.yaml": (CLUSTER_YAML + "  extra:\n    schema: legacy.pg\n").encode()}


@pytest.fixture
def blocked(built: Built, tmp_path: Path) -> Loop:
    """Somebody has changed a graph by hand; the rules say that merges wait for that."""
    loop = built(BLOCK).copied(tmp_path / "drift")
    _migrate(loop)
    return loop


def _migrate(loop: Loop, source: bytes = LIVE) -> None:
    graph_engine(NoFaults()).prepare_migration(str(loop.graph("notes")), source, actor="somebody").publish()


def _drift(loop: Loop) -> str:
    return said(list(run_verb(Stage(loop).bot(), "drift", ManualEvent())))


def test_by_default_a_merge_is_applied_while_drift_is_open(built: Built, tmp_path: Path) -> None:
    loop = built(CONFIG).copied(tmp_path / "warn")
    _migrate(loop)
    head = loop.commit("alice", MORE)
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("success: ")
    loop.merge("alice", 1)
    assert loop.graph("extra").exists()


def test_a_request_says_before_its_merge_that_it_would_wait(blocked: Loop) -> None:
    head = blocked.commit("alice", MORE)
    blocked.move("refs/heads/topic", head)
    assert blocked.status(head, "plan").startswith("failure: ")
    comment = blocked.comment(1)
    assert "schema.notes" in comment
    assert "gitops refresh --cluster brain" in comment
    refused = blocked.gitops("bob", "request", "merge", "1", check=False)
    assert "request_checks_failed" in refused.text
    # The graph that drifted is not the one that the request creates: all drift of the cluster counts.
    ledger = blocked.tip(LEDGER)
    blocked.merge("alice", 1)
    assert not blocked.graph("extra").exists()
    assert blocked.tip(LEDGER) == ledger


def test_the_refused_apply_reports_the_drift_and_a_clone_names_it(blocked: Loop) -> None:
    blocked.move("refs/heads/topic", blocked.commit("alice", MORE))
    _, lines = blocked.merge("alice", 1)
    assert any("drift_open" in line and "schema.notes" in line for line in lines)
    assert blocked.request(2).source == drift_ref(CLUSTER)
    status = blocked.gitops("bob", "status", check=False).text
    assert "drift_reported" in status
    assert "gitops request show 2" in status
    assert "in sync: no" in status
    # A clone has no graphs, and says that it cannot know.
    assert "drift_unknown" in blocked.gitops("bob", "plan", check=False).text
    assert "drift_open" in blocked.gitops("bot", "apply", "--cluster", "brain", at=blocked.server, check=False).text
    assert (
        "drift_open"
        in blocked.gitops("bot", "apply", "--dry-run", "--cluster", "brain", at=blocked.server, check=False).text
    )


def test_a_plan_that_reads_no_graphs_goes_by_the_report(blocked: Loop) -> None:
    blocked.move("refs/heads/topic", blocked.commit("alice", MORE))
    blocked.merge("alice", 1)
    settings = blocked.server / "config"
    settings.write_text(settings.read_text().replace("root = ", "unused = "))
    head = blocked.commit("alice", {"cluster/cluster.yaml": MORE["cluster/cluster.yaml"].replace(b"extra", b"other")})
    blocked.move("refs/heads/next", head)
    assert blocked.status(head, "plan").startswith("failure: ")
    assert "request 2 reports drift" in blocked.comment(3)
    assert "drift_unknown" in blocked.comment(3)


def test_requests_are_planned_again_when_drift_comes_and_goes(built: Built, tmp_path: Path) -> None:
    loop = built(BLOCK).copied(tmp_path / "again")
    graph, kept = loop.graph("notes"), tmp_path / "kept"
    shutil.copytree(graph, kept)
    head = loop.commit("alice", MORE)
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("success: ")
    _migrate(loop)
    _drift(loop)
    assert loop.status(head, "plan").startswith("failure: ")
    shutil.rmtree(graph)
    shutil.copytree(kept, graph)
    assert "request 2 is closed" in _drift(loop)
    assert loop.status(head, "plan").startswith("success: ")


def test_merging_the_report_accepts_the_drift_and_applies_what_waited(blocked: Loop) -> None:
    blocked.move("refs/heads/topic", blocked.commit("alice", MORE))
    blocked.merge("alice", 1)
    report = blocked.request(2)
    assert blocked.status(report.head, "plan").startswith("success: ")
    blocked.merge("bob", 2)
    assert blocked.request(2).state is RequestState.MERGED
    assert blocked.graph("extra").exists()
    assert schema(blocked, "notes") == LIVE
    assert "drift_" not in blocked.gitops("bob", "status").text
    assert audited(blocked).ok


def test_a_refresh_accepts_that_the_next_apply_changes_it_back(blocked: Loop) -> None:
    blocked.move(MAIN, blocked.commit("alice", MORE))
    assert "drift_open" in applied_again(blocked)
    refreshed(blocked)
    assert "drift_open" not in applied_again(blocked)
    assert schema(blocked, "notes") != LIVE
    assert blocked.graph("extra").exists()
    assert audited(blocked).ok
    status = blocked.gitops("bob", "status").text
    # The report of the drift stays open until the bot looks again.
    assert ("drift_reported" in status, "drift: none" in status) == (True, True), status


def test_recorded_drift_that_waits_for_an_approval_keeps_all_waiting(built: Built, tmp_path: Path) -> None:
    loop = built(BLOCK).copied(tmp_path / "gone")
    shutil.rmtree(loop.graph("legacy"))
    refreshed(loop)
    loop.move(MAIN, loop.commit("alice", MORE))
    assert not loop.graph("extra").exists()
    status = loop.gitops("bob", "status", check=False).text
    assert "drift_open graph.legacy" in status
    given(loop, "bob", "graph.legacy")
    assert loop.graph("legacy").exists()
    assert loop.graph("extra").exists()
    assert audited(loop).ok


def test_a_request_cannot_turn_the_rule_off_for_itself(blocked: Loop) -> None:
    head = blocked.commit("alice", {**MORE, "gitops.yaml": CONFIG.encode()})
    blocked.move("refs/heads/topic", head)
    assert "while drift is open, a merge has to" in blocked.comment(1)
    assert blocked.status(head, "plan").startswith("failure: ")
    ledger = blocked.tip(LEDGER)
    blocked.merge("alice", 1)
    assert blocked.tip(LEDGER) == ledger


def test_the_audit_finds_an_entry_that_left_recorded_drift_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, config=f"{LIFE_RULES}apply: {{on_drift: block}}\n")
    life.begin()
    life.engine = life.engine.moved("memory/legacy", "memory/elsewhere")
    assert "graph_vanished" in {each.code for each in refresh(life.workspace()).diagnostics}
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy", "extra")})
    assert "drift_open" in {each.code for each in life.apply().diagnostics}
    assert life.audit(life.chain()[-1]).ok
    # A bot of somebody's own, which does not look.
    monkeypatch.setattr("gitops.cluster.plan.drift.open_drift", lambda *_args, **_named: ())
    life.apply()
    finding = life.audit(life.chain()[-1]).finding
    assert finding is not None
    assert (finding.code, finding.detail.startswith("it applies changes while graph.legacy")) == (
        "ledger_drift_open",
        True,
    )


def test_a_graph_that_cannot_be_read_keeps_merges_waiting(built: Built, tmp_path: Path) -> None:
    loop = built(BLOCK).copied(tmp_path / "broken")
    for found in loop.graph("notes").rglob("*.json"):
        found.write_bytes(b"no graph")
    loop.move(MAIN, loop.commit("alice", MORE))
    assert not loop.graph("extra").exists()
    assert "graph_observation_error" in applied_again(loop)


def test_doctor_names_the_rule(blocked: Loop) -> None:
    assert "a merge waits while drift is open" in blocked.gitops("bob", "doctor", check=False).text
