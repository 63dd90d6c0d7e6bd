"""Where the bot stops asking: what was left out is said, found the next time, and never approved by whoever may be behind it."""

from __future__ import annotations

import pytest

from gitops.bot.dispatch import run_verb
from gitops.forge.events import ManualEvent
from gitops.repository.results import LogLine, RunResult
from tests.support.bot_stage import QUERY, Stage, said, verdict
from tests.support.loop import DELETE_LEGACY, Loop

pytestmark = pytest.mark.e2e

OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"
THIRD = b"query titles() { match { $z: Note } return { $z.title } }\n"


@pytest.fixture
def stage(loop: Loop) -> Stage:
    return Stage(loop)


def _sweep(stage: Stage) -> list[LogLine]:
    return list(run_verb(stage.bot(), "sweep", ManualEvent()))


COALESCE = "apply: {queue: coalesce}\n"
"""All that waits is brought in at once, so that there is more of it than is asked about."""


def _ask_about_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("bot.apply_clusters", "repository.authors"):
        monkeypatch.setattr(f"gitops.{module}.MOST_ASKED", 1)


def _landed(stage: Stage) -> str:
    """Alice's request, squashed by carol, so that nothing in the commit names alice; another merge is on top of it."""
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.land(1)
    stage.propose("bob", "words", {"README.md": b"More words.\n"}, stage.loop.tip())
    stage.land(2)
    return before


def test_whoever_was_squashed_is_asked_for(stage: Stage) -> None:
    before = _landed(stage)
    assert stage.loop.sign_approval("alice", "graph.legacy", blind=True).ok
    notes = stage.pushed(before, stage.loop.tip())
    assert "approval_self" in said(notes)
    assert "approval_authors_unknown" not in said(notes)
    assert stage.loop.graph("legacy").exists()


def test_beyond_the_bound_nobodys_approval_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_about_one(monkeypatch)
    stage.configure(COALESCE)
    before = _landed(stage)
    assert stage.loop.sign_approval("alice", "graph.legacy", blind=True).ok
    notes = stage.pushed(before, stage.loop.tip())
    assert verdict(notes) is RunResult.WAITS
    assert "approval_authors_unknown" in said(notes)
    assert stage.loop.graph("legacy").exists()
    # It stays unknown: what could not be asked for then cannot be asked for later.
    assert verdict(_sweep(stage)) is RunResult.WAITS
    assert stage.loop.graph("legacy").exists()


def test_beyond_the_bound_what_needs_no_approval_is_applied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_about_one(monkeypatch)
    stage.configure(COALESCE)
    before = stage.loop.tip()
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.land(1)
    stage.propose("bob", "words", {"README.md": b"More words.\n"}, stage.loop.tip())
    stage.land(2)
    notes = stage.pushed(before, stage.loop.tip())
    assert verdict(notes) is RunResult.DONE
    assert "approval_authors_unknown" not in said(notes)


def test_more_requests_than_are_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.apply_clusters._MOST_REPORTED", 1)
    stage.configure(COALESCE)
    before = stage.loop.tip()
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.land(1)
    stage.propose("bob", "other", {"cluster/notes.gq": OTHER}, stage.loop.tip())
    stage.land(2)
    notes = stage.pushed(before, stage.loop.tip())
    assert "1 more change requests were merged at once, and get no report" in said(notes)
    assert [len(stage.loop.book.comments(number)) for number in (1, 2)] == [0, 1]


def test_requests_that_nobody_planned_are_found_oldest_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.sweep._MOST_REQUESTS", 2)
    heads = [
        stage.propose("alice", name, {"cluster/notes.gq": text})
        for name, text in (("one", QUERY), ("two", OTHER), ("three", THIRD))
    ]
    stage.propose("bob", "words", {"README.md": b"More words.\n"})
    first = said(_sweep(stage))
    assert "request 1: no run planned its head" in first
    assert "request 2: no run planned its head" in first
    assert "1 more open change request(s) were not checked" in first
    assert stage.loop.book.statuses(heads[2]) == ()
    second = said(_sweep(stage))
    assert "request 3: no run planned its head" in second
    assert [stage.loop.status(head, "plan") for head in heads] == ["success: 1 change"] * 3
    assert "no run planned" not in said(_sweep(stage))


def test_a_plan_of_another_head_is_no_plan(stage: Stage) -> None:
    stage.propose("alice", "one", {"cluster/notes.gq": QUERY})
    _sweep(stage)
    head = stage.propose("alice", "one", {"cluster/notes.gq": OTHER})
    assert "request 1: no run planned its head" in said(_sweep(stage))
    assert stage.loop.status(head, "plan") == "success: 1 change"
