"""Applies on a forge: whatever came of their events, clusters end at the newest merged state, and nothing stale is applied."""

from __future__ import annotations

import shlex

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.ledger.documents import read_entry
from gitops.forge.events import HeadEvent, IgnoredEvent, ManualEvent, PushEvent, TimerEvent
from gitops.forge.port import DeploymentState, ReviewDecision
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.results import RunResult
from tests.support.bot_stage import QUERY, Stage, said, verdict
from tests.support.loop import DELETE_LEGACY, LEDGER, MAIN, Loop, email, printed_command

pytestmark = pytest.mark.e2e

OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"


@pytest.fixture
def stage(known: Loop) -> Stage:
    return Stage(known)


def _source(loop: Loop) -> str:
    entry = read_entry(loop.store.read(loop.store.commit(loop.tip(LEDGER)).tree, "entry.json") or b"")
    assert entry.source is not None
    return entry.source.commit


def test_a_merge_is_applied_and_told_where_people_look(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    before = stage.loop.tip()
    tip = stage.land(1)
    assert verdict(stage.pushed(before, tip, email("carol"))) is RunResult.DONE
    assert stage.loop.status(tip, "apply") == "success: 1 applied"
    assert "1 applied" in stage.loop.comment(1)
    assert stage.loop.request(1).labels == ("gitops/applied",)
    found = stage.loop.book.deployment("production/brain")
    assert found is not None
    assert (found.commit, found.state) == (tip, DeploymentState.SUCCESS)
    # Delivered again, nothing is left to do, and nothing is written.
    head = stage.loop.tip(LEDGER)
    assert verdict(stage.pushed(before, tip)) is RunResult.DONE
    assert stage.loop.tip(LEDGER) == head


def test_an_event_of_an_old_push_brings_the_newest_state(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    before = stage.loop.tip()
    old = stage.land(1)
    stage.propose("carol", "other", {"cluster/notes.gq": OTHER}, old)
    newest = stage.land(2)
    stage.pushed(before, old)
    assert _source(stage.loop) == newest
    assert {stage.loop.request(n).labels for n in (1, 2)} == {("gitops/applied",)}
    # Each is told what became of its own merge, and each merge has its own changeset and two statuses.
    assert (stage.calls["upsert_comment"], stage.calls["set_status"]) == (2, 4)
    assert [stage.loop.status(commit, "apply")[:18] for commit in (old, newest)] == ["success: 1 applied"] * 2
    assert [record.covers for record in stage.changesets()[:2]] == [(newest,), (old,)]


def test_the_sweep_applies_what_no_event_told_of(stage: Stage) -> None:
    assert said(stage.handle(TimerEvent())).startswith("brain: nothing to do")
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    tip = stage.land(1)
    assert _source(stage.loop) != tip
    notes = stage.handle(TimerEvent())
    assert "ahead of the ledger" in said(notes)
    assert _source(stage.loop) == tip
    assert "found by the sweep" in stage.loop.comment(1)
    assert verdict(notes) is RunResult.DONE
    # A merge that changes nothing of the cluster is no reason to apply.
    stage.loop.store.update_refs([RefUpdate(MAIN, tip, stage.loop.commit("alice", {"README.md": b"x"}))])
    assert said(stage.handle(TimerEvent())).startswith("brain: nothing to do")
    # A file of the folder that declares nothing is taken note of once.
    tip = stage.loop.commit("alice", {"cluster/README.md": b"x"})
    stage.loop.store.update_refs([RefUpdate(MAIN, stage.loop.tip(), tip)])
    assert "ahead of the ledger" in said(stage.handle(TimerEvent()))
    assert _source(stage.loop) == tip
    assert said(stage.handle(TimerEvent())).startswith("brain: nothing to do")


def test_a_merge_that_waits_is_swept_again_and_stays_waiting(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    before = stage.loop.tip()
    tip = stage.land(1)
    assert verdict(stage.pushed(before, tip)) is RunResult.WAITS
    assert stage.loop.request(1).labels == ("gitops/waiting",)
    notes = list(run_verb(stage.bot(), "sweep", ManualEvent()))
    assert said(notes).startswith("brain: a merged change is not applied, and waits for a person")
    assert verdict(notes) is RunResult.WAITS
    assert stage.loop.graph("legacy").exists()
    assert stage.loop.sign_approval("bob", "graph.legacy").ok
    assert verdict(list(run_verb(stage.bot(), "sweep", ManualEvent()))) is RunResult.DONE
    assert not stage.loop.graph("legacy").exists()
    assert stage.loop.request(1).labels == ("gitops/applied",)


def test_a_later_apply_leaves_the_report_of_a_merge_that_waits(stage: Stage) -> None:
    """It names the approval that is missing; it is replaced by the news that nothing of it waits."""
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.handle(HeadEvent(stage.loop.request(1).head))
    assert stage.loop.request(1).labels == ("gitops/needs-approval",)
    before = stage.loop.tip()
    tip = stage.land(1)
    stage.pushed(before, tip)
    assert stage.loop.request(1).labels == ("gitops/waiting",)
    reported = stage.loop.comment(1)
    assert "gitops approve graph.legacy --cluster brain --rows 0 --plan " in reported
    stage.propose("carol", "query", {"cluster/notes.gq": QUERY}, tip)
    newest = stage.land(2)
    stage.pushed(tip, newest)
    assert stage.loop.comment(1) == reported
    second = stage.loop.comment(2)
    assert "`query.notes.titles`" in second
    assert stage.loop.sign_approval("bob", "graph.legacy").ok
    stage.propose("carol", "other", {"README.md": b"Other words.\n"}, newest)
    stage.pushed(newest, stage.land(3))
    assert not stage.loop.graph("legacy").exists()
    assert "request 1 waited, and is applied with commit" in stage.loop.comment(1)
    assert stage.loop.request(1).labels == ("gitops/applied",)
    assert stage.loop.comment(2) == second


def test_the_request_that_waited_hears_of_its_approval_after_a_later_merge(stage: Stage) -> None:
    """The approval alone starts the apply, of the commit that the later request merged."""
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    before = stage.loop.tip()
    tip = stage.land(1)
    stage.pushed(before, tip)
    stage.propose("carol", "query", {"cluster/notes.gq": QUERY}, tip)
    stage.pushed(tip, stage.land(2))
    reports = stage.loop.comment(1), stage.loop.comment(2)
    stage.handle(TimerEvent())
    assert (stage.loop.comment(1), stage.loop.comment(2)) == reports
    # Its command names the plan of then; the refusal shows the one of now, and its digest.
    words = shlex.split(printed_command(reports[0]))[1:]
    refused = stage.loop.gitops("bob", *words, check=False)
    assert "approval_plan_changed" in refused.text
    now = refused.text.rpartition("run the same command with its digest: ")[2].split()[0]
    assert stage.loop.gitops("bob", *words[:-1], now).code == 0
    stage.loop.arrived(stage.loop.approvals()[0])
    assert not stage.loop.graph("legacy").exists()
    assert stage.loop.request(1).labels == ("gitops/applied",)
    assert "1 approval" not in stage.loop.comment(1)
    assert "converged**" in stage.loop.comment(1)
    assert stage.loop.comment(2) == reports[1]
    assert stage.loop.status(stage.loop.tip(), "apply") == "success: 2 applied"


def test_a_merge_that_changes_nothing_gets_a_status_and_no_comment(stage: Stage) -> None:
    stage.propose("alice", "readme", {"cluster/README.md": b"Other words.\n"})
    before = stage.loop.tip()
    tip = stage.land(1)
    stage.pushed(before, tip)
    assert stage.loop.status(tip, "apply") == "success: 0 applied"
    assert stage.loop.book.comments(1) == ()
    assert stage.loop.request(1).labels == ("gitops/applied",)


@pytest.mark.parametrize("broken", ["upsert_comment", "record_deployment", "set_labels"])
def test_a_forge_that_refuses_to_tell_changes_no_outcome(stage: Stage, broken: str) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    before = stage.loop.tip()
    tip = stage.land(1)
    stage.broken.add(broken)
    notes = stage.pushed(before, tip)
    assert verdict(notes) is RunResult.DONE
    assert "forge_refused" in said(notes)
    assert stage.loop.status(tip, "apply").startswith("success")
    assert _source(stage.loop) == tip


def test_who_is_behind_a_merge_must_be_known_before_its_gates_open(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.broken.add("merged_by")
    before = stage.loop.tip()
    tip = stage.land(1)
    notes = stage.pushed(before, tip)
    assert verdict(notes) is RunResult.DONE
    assert (
        "no change request gets a report: who the authors are is not known for now, and the next run asks again"
        in said(notes)
    )
    assert _source(stage.loop) == tip
    assert stage.loop.sign_approval("bob", "graph.legacy", request=2).ok
    waits = stage.land(2)
    refused = stage.pushed(tip, waits)
    assert verdict(refused) is RunResult.PROBLEMS
    assert "forge_refused: merged_by: not now" in said(refused)
    assert (_source(stage.loop), stage.loop.graph("legacy").exists()) == (tip, True)
    stage.broken.clear()
    assert verdict(stage.handle(TimerEvent())) is RunResult.DONE
    assert (_source(stage.loop), stage.loop.graph("legacy").exists()) == (waits, False)


def test_the_others_are_planned_again_and_only_news_are_told(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    same = stage.propose(
        "carol", "same", {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    mail: String?\n}\n"}
    )
    clash = stage.propose("bob", "clash", {"cluster/notes.gq": OTHER})
    for number in (2, 3):
        list(run_verb(stage.bot(), "plan", ManualEvent((("request", str(number)),))))
    before = stage.loop.tip()
    tip = stage.land(1)
    notes = said(stage.pushed(before, tip))
    assert "request 3: plan of brain refused" in notes
    assert "request_conflict" in stage.loop.comment(3)
    assert stage.loop.status(clash, "plan") == "failure: request_conflict"
    assert stage.loop.status(same, "plan").startswith("success")
    assert "request 2: plan of brain: unchanged" in said(stage.pushed(before, tip))


def test_a_merge_waits_for_the_forges_own_verdict_where_the_rules_ask_for_it(judged: Loop) -> None:
    stage = Stage(judged)
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    before, applied = stage.loop.tip(), _source(stage.loop)
    tip = stage.land(1)
    notes = stage.pushed(before, tip)
    assert verdict(notes) is RunResult.PROBLEMS
    assert stage.loop.status(tip, "apply").removeprefix("failure: ") == "forge_verdict_missing"
    assert _source(stage.loop) == applied
    stage.verdicts[1] = ReviewDecision.APPROVED
    assert verdict(stage.handle(TimerEvent())) is RunResult.DONE
    assert _source(stage.loop) == tip


def test_a_push_without_a_request_has_no_verdict(judged: Loop) -> None:
    stage = Stage(judged)
    before, applied = stage.loop.tip(), _source(stage.loop)
    tip = stage.loop.commit("alice", {"cluster/notes.gq": QUERY})
    stage.loop.store.update_refs([RefUpdate(MAIN, before, tip)])
    assert "came with no request" in said(stage.pushed(before, tip))
    assert _source(stage.loop) == applied


def test_whoever_pushes_without_a_request_cannot_approve_it(known: Loop) -> None:
    stage = Stage(known)
    before = stage.loop.tip()
    tip = stage.loop.commit("mallory", dict(DELETE_LEGACY))
    stage.loop.store.update_refs([RefUpdate(MAIN, before, tip)])
    assert stage.loop.sign_approval("bob", "graph.legacy", blind=True).ok
    notes = stage.pushed(before, tip, "github:12")
    assert verdict(notes) is RunResult.WAITS
    assert "approval_self" in said(notes)
    assert stage.loop.graph("legacy").exists()


def test_pushes_elsewhere_and_deletions_mean_nothing(stage: Stage) -> None:
    head = stage.loop.tip(LEDGER)
    for ref, new in (("refs/heads/topic", stage.loop.tip()), (MAIN, ZERO), (LEDGER, head)):
        assert "no cluster follows" in said(stage.handle(PushEvent(ref, ZERO, new)))
    assert said(stage.handle(IgnoredEvent("a star"))) == "nothing to do: a star"
    assert stage.loop.tip(LEDGER) == head
