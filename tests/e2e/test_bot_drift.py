"""Drift: seen without writing, told once per cluster, with both ways out, and both of them work."""

from __future__ import annotations

import shutil

import pytest

from gitops.bot.dispatch import run_verb
from gitops.bot.sweep import drift_ref
from gitops.core.faults import NoFaults
from gitops.forge.events import ManualEvent
from gitops.forge.port import RequestState
from gitops.forge.refs.records import RecordedIssue
from gitops.render.comment import drift_marker
from gitops.repository.results import LogLine, RunResult
from gitops.repository.wiring.stores import graph_engine
from tests.support.bot_stage import Stage, said, verdict
from tests.support.loop import CLUSTER, LEDGER, MAIN, Loop
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e

LIVE = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n}\n"
OTHER = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n    mark: String?\n}\n"


@pytest.fixture
def stage(loop: Loop) -> Stage:
    return Stage(loop)


def _look(stage: Stage) -> list[LogLine]:
    return list(run_verb(stage.bot(), "drift", ManualEvent()))


def _migrate(loop: Loop, source: bytes = LIVE) -> None:
    """Somebody changes a graph behind the back of the ledger."""
    prepared = graph_engine(NoFaults()).prepare_migration(str(loop.graph("notes")), source, actor="somebody")
    prepared.publish()


def _issues(stage: Stage) -> tuple[RecordedIssue, ...]:
    book = stage.loop.book
    return book.recorded_issues(drift_marker(CLUSTER), book.me())


def _schema(loop: Loop, commit: str) -> bytes | None:
    return loop.store.read(loop.store.commit(commit).tree, "cluster/notes.pg")


def test_nothing_differs_and_nothing_is_written(stage: Stage) -> None:
    refs = dict(stage.loop.store.refs("refs"))
    assert said(_look(stage)) == "drift of brain: none"
    found = dict(stage.loop.store.refs("refs"))
    assert found == refs


def test_another_schema_is_proposed_once_and_the_proposal_adopts_it(stage: Stage) -> None:
    _migrate(stage.loop)
    ledger = stage.loop.tip(LEDGER)
    notes = _look(stage)
    assert verdict(notes) is RunResult.WAITS
    assert "request 1 adopts it" in said(notes)
    request = stage.loop.request(1)
    assert (request.source, request.target) == (drift_ref(CLUSTER), MAIN)
    assert _schema(stage.loop, request.head) == LIVE
    assert stage.loop.status(request.head, "plan").startswith("success: 1 change")
    _look(stage)
    assert [r.number for r in stage.loop.book.requests()] == [1]
    assert stage.loop.request(1).head == request.head
    assert _issues(stage) == ()
    assert stage.loop.tip(LEDGER) == ledger
    # More drift moves the same proposal on.
    _migrate(stage.loop, OTHER)
    _look(stage)
    assert _schema(stage.loop, stage.loop.request(1).head) == OTHER
    # The way out that it offers: merge it.
    before = stage.loop.tip()
    assert verdict(stage.pushed(before, stage.land(1))) is RunResult.DONE
    assert said(_look(stage)) == "drift of brain: none"


def test_the_other_way_out_makes_it_what_is_declared(stage: Stage) -> None:
    _migrate(stage.loop)
    _look(stage)
    done = stage.loop.program("bot", *_gitops("refresh"), at=stage.loop.server)
    assert "revision" in done.text
    applied = stage.loop.program("bot", *_gitops("apply"), at=stage.loop.server, check=False)
    # Dropping a property loses data, which a migration does not do by itself: it says so and changes nothing.
    assert applied.code in (0, 1)
    assert (applied.code == 0) == ("drift of brain: none" in said(_look(stage)))


def test_a_proposal_whose_drift_has_gone_is_withdrawn(stage: Stage) -> None:
    graph = stage.loop.graph("notes")
    shutil.copytree(graph, stage.loop.folder / "before")
    _migrate(stage.loop)
    _look(stage)
    shutil.rmtree(graph)
    shutil.move(stage.loop.folder / "before", graph)
    notes = _look(stage)
    assert verdict(notes) is RunResult.DONE
    assert "request 1 is closed" in said(notes)
    assert stage.loop.request(1).state is RequestState.CLOSED
    assert said(_look(stage)) == "drift of brain: none"
    # It comes back as another proposal.
    _migrate(stage.loop)
    assert "request 2 adopts it" in said(_look(stage))


def test_a_proposal_that_cannot_be_withdrawn_stays(stage: Stage) -> None:
    graph = stage.loop.graph("notes")
    shutil.copytree(graph, stage.loop.folder / "before")
    _migrate(stage.loop)
    _look(stage)
    shutil.rmtree(graph)
    shutil.move(stage.loop.folder / "before", graph)
    stage.broken.add("withdraw")
    notes = _look(stage)
    assert verdict(notes) is RunResult.DONE
    assert "the change request of brain stays open: forge_refused" in said(notes)
    stage.broken.clear()
    assert "request 1 is closed" in said(_look(stage))


def test_a_graph_that_is_gone_is_an_issue_until_it_is_back(stage: Stage) -> None:
    shutil.move(stage.loop.graph("legacy"), stage.loop.folder / "away")
    notes = _look(stage)
    assert verdict(notes) is RunResult.WAITS
    assert "graph.legacy" in said(notes)
    _look(stage)
    (issue,) = _issues(stage)
    assert issue.open
    assert "Put the folder of each graph back" in issue.body
    assert "gitops approve graph.legacy --cluster brain" in issue.body
    assert "Return to what the target branch declares" not in issue.body
    assert stage.loop.book.requests(state=RequestState.OPEN) == ()
    shutil.move(stage.loop.folder / "away", stage.loop.graph("legacy"))
    assert said(_look(stage)) == "drift of brain: none"
    assert [i.open for i in _issues(stage)] == [False]


def test_what_cannot_be_looked_at_is_no_drift_and_no_peace(stage: Stage) -> None:
    manifests = stage.loop.graph("legacy") / "manifests"
    for file in sorted(manifests.rglob("*.json")):
        file.write_bytes(b"{")
    notes = _look(stage)
    assert verdict(notes) is RunResult.PROBLEMS
    assert "not everything could be read" in said(notes)
    assert _issues(stage) == ()


def test_a_forge_that_takes_no_proposal_gets_an_issue(stage: Stage) -> None:
    _migrate(stage.loop)
    stage.broken.add("propose")
    notes = _look(stage)
    assert "cannot be proposed" in said(notes)
    (issue,) = _issues(stage)
    assert issue.open
    stage.broken.clear()
    _look(stage)
    assert [i.open for i in _issues(stage)] == [False]


def _gitops(verb: str) -> tuple[str, ...]:
    return (*PROGRAM, verb, "--cluster", CLUSTER)
