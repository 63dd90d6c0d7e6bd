"""Applies on a forge: clusters end at the newest merged state, whole or not at all, and merges that wait are a queue."""

from __future__ import annotations

import shlex
import shutil

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Changeset, ChangesetState, Committed, Created, Prepared, Removal
from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.forge.events import HeadEvent, IgnoredEvent, ManualEvent, PushEvent, TimerEvent
from gitops.forge.port import DeploymentState, ReviewDecision
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.changes import brings_nothing
from gitops.repository.results import RunResult
from tests.support.bot_stage import BOB, QUERY, Stage, said, take_lock, verdict
from tests.support.changeset_stories import created, failed, landed, record
from tests.support.faults import Death
from tests.support.loop import CLUSTER_YAML, DELETE_LEGACY, FILES, LEDGER, MAIN, Loop, email, printed_command
from tests.support.loop_data import audited, schema

pytestmark = pytest.mark.e2e

OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"


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
    assert said(notes).startswith("brain: a merged change is not applied yet, and waits for a person")
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
    assert "no change request gets a report: the authors are not known yet; the next run asks again" in said(notes)
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


def test_pushes_elsewhere_and_deletions_mean_nothing(stage: Stage) -> None:
    head = stage.loop.tip(LEDGER)
    for ref, new in (("refs/heads/topic", stage.loop.tip()), (MAIN, ZERO), (LEDGER, head)):
        assert "no cluster follows" in said(stage.handle(PushEvent(ref, ZERO, new)))
    assert said(stage.handle(IgnoredEvent("a star"))) == "nothing to do: a star"
    assert stage.loop.tip(LEDGER) == head


WIDER = FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    tags: [String]?")


def _declaring(graph: str) -> bytes:
    return (CLUSTER_YAML + f"  {graph}:\n    schema: legacy.pg\n").encode()


def _merged(stage: Stage, number: int) -> tuple[str, RunResult]:
    """The merge of a request and what its run came to."""
    before, tip = stage.loop.tip(), stage.land(number)
    return tip, verdict(stage.pushed(before, tip, email("carol")))


def _changesets(loop: Loop, commit: str) -> tuple[Changeset, ...]:
    local = loop.local()
    ledger = local.ledger(local.rule())
    return tuple(record for key in ledger.changeset_of(commit) if (record := ledger.changeset(key)) is not None)


def test_3_and_4_a_merge_that_fails_changes_nothing_and_the_next_one_brings_in_both(known: Loop) -> None:
    stage = Stage(known)
    before, applied, base = schema(known, "notes"), known.applied(), known.tip()
    stage.propose("alice", "extra", {"cluster/cluster.yaml": _declaring("extra"), "cluster/notes.pg": WIDER})
    # Behind the back of the control plane: the plan of the request cannot know of it.
    shutil.copytree(known.graph("legacy"), known.graph("extra"))
    failed, result = _merged(stage, 1)
    assert result is RunResult.PROBLEMS
    assert schema(known, "notes") == before
    assert known.applied().id == applied.id
    assert known.status(failed, "apply") == "failure: nothing is applied; graph_create_failed at graph.extra"
    (record,) = _changesets(known, failed)
    assert record.state is ChangesetState.FAILED
    said = f"failure: {record.key} failed, nothing of it is applied: graph.extra: graph_create_failed:"
    assert known.status(failed, "changeset").startswith(said)
    comment = known.comment(1)
    for part in (
        "failed with 1 error · nothing is applied**",
        "- **error** `graph_create_failed` at `graph.extra`: ",
        " failed and was rolled back. None of its changes was applied.",
        "- Merge a fix: the next merge also applies these changes.",
    ):
        assert part in comment
    # An event that comes again, and the sweep, do not repeat it, whatever it has announced.
    head = known.tip(LEDGER)
    assert verdict(stage.pushed(failed, failed, email("carol"))) is RunResult.WAITS
    assert verdict(stage.handle(TimerEvent())) is RunResult.WAITS
    assert known.tip(LEDGER) == head

    # By hand it is tried again, from what was applied before it.
    assert verdict(list(run_verb(stage.bot(), "apply", ManualEvent()))) is RunResult.PROBLEMS
    assert [each.source.previous_commit for each in _changesets(known, failed)] == [base, base]

    stage.propose("carol", "other-name", {"cluster/cluster.yaml": _declaring("more")}, failed)
    repaired, result = _merged(stage, 2)
    assert result is RunResult.DONE
    (landed,) = _changesets(known, repaired)
    assert (landed.covers, landed.source.previous_commit) == ((failed, repaired), base)
    assert schema(known, "notes") == WIDER
    assert known.graph("more").exists()
    assert known.status(repaired, "apply") == "success: 3 applied"
    assert known.status(repaired, "changeset").startswith("success: chs-")
    assert "`schema.notes`" in known.comment(2)
    assert audited(known).ok


THIRD = b"query titles() { match { $z: Note } return { $z.title } }\n"
BROKEN = b"query titles() { match { $z: Nothing } return { $z.title } }\n"


def _merge(stage: Stage, *texts: bytes) -> list[str]:
    """Merges of which the bot hears nothing, each of another text of the query; their commits."""
    first = len(stage.loop.book.requests()) + 1
    found = []
    for number, text in enumerate(texts, start=first):
        stage.propose("alice", f"topic-{number}", {"cluster/notes.gq": text}, stage.loop.tip())
        found.append(stage.land(number))
    return found


def _fail(stage: Stage, merge: str, **facts: object) -> Changeset:
    """A merge whose changeset failed, as a whole."""
    made = created(merge, atomic=True, **facts)
    record(stage.loop, made, failed(made))
    return made


def _covers(stage: Stage) -> list[tuple[str, ...]]:
    """What the changesets of a test brought in, the oldest first."""
    return [each.covers for each in reversed(stage.changesets()[:-1])]


def _report(stage: Stage) -> str:
    """The bot's comment on request 1, on which people comment as well."""
    (body,) = [
        each.body for each in stage.loop.book.comments(1) if each.body.startswith("<!-- gitops cluster=brain -->")
    ]
    return body


def test_each_merge_that_waits_gets_its_own_changeset_and_entry(stage: Stage) -> None:
    one, two, three = _merge(stage, QUERY, OTHER, THIRD)
    stage.pushed(one, three)
    assert _covers(stage) == [(one,), (two,), (three,)]
    merges = [each.source.merge_commit for each in stage.changesets()[:3]]
    assert merges == [three, two, one]
    assert [stage.loop.request(n).labels for n in (1, 2, 3)] == [("gitops/applied",)] * 3


def test_18_with_coalesce_one_changeset_brings_in_three_merges_and_each_finds_it(stage: Stage) -> None:
    stage.configure("apply: {queue: coalesce}\n")
    one, two, three = _merge(stage, QUERY, OTHER, THIRD)
    stage.pushed(one, three)
    (found,) = [each for each in stage.changesets() if three in each.covers]
    assert {one, two, three} <= set(found.covers)
    ledger = stage.local.ledger(stage.local.config().cluster("brain"))
    assert {ledger.changeset_of(commit) for commit in (one, two, three)} == {(found.key,)}


def test_what_a_later_merge_takes_back_is_never_done(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    stage.land(1)
    stage.propose("alice", "keep", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}, stage.loop.tip())
    stage.land(2)
    (third,) = _merge(stage, QUERY)
    # The delete is approved, and nobody wants it any more.
    assert verdict(stage.pushed(before, third)) is RunResult.DONE
    assert stage.loop.graph("legacy").exists()
    assert stage.changesets()[0].covers[-1] == third


def test_an_approval_for_a_request_counts_for_its_merge_whatever_was_merged_after_it(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert stage.loop.sign_approval("bob", "graph.legacy", request=1).ok
    stage.land(1)
    (tip,) = _merge(stage, QUERY)
    assert verdict(stage.pushed(before, tip)) is RunResult.DONE
    assert not stage.loop.graph("legacy").exists()


def test_a_broken_merge_comes_with_its_repair_and_a_broken_head_holds_up_nothing_before_it(stage: Stage) -> None:
    good, broken = _merge(stage, QUERY, BROKEN)
    assert verdict(stage.pushed(good, broken)) is RunResult.PROBLEMS
    assert _covers(stage) == [(good,)]
    assert stage.loop.status(broken, "apply").startswith("failure")
    (repair,) = _merge(stage, THIRD)
    assert verdict(stage.pushed(broken, repair)) is RunResult.DONE
    assert _covers(stage)[-1] == (broken, repair)


def test_more_merges_than_one_run_applies_are_left_to_the_next(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops.bot.apply_clusters._MOST_ROUNDS", 1)
    one, two = _merge(stage, QUERY, OTHER)
    notes = stage.pushed(one, two)
    assert verdict(notes) is RunResult.LOST
    assert "1 more commits are waiting" in said(notes)
    assert verdict(stage.handle(TimerEvent())) is RunResult.DONE
    assert _covers(stage) == [(one,), (two,)]


def test_16_an_event_that_comes_twice_gives_no_second_changeset(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    head = stage.loop.tip(LEDGER)
    for _ in range(2):
        notes = stage.pushed(stage.loop.tip(), merge)
        assert verdict(notes) is RunResult.WAITS
        assert f"{made.key} of commit {merge[:12]} failed" in said(notes)
        assert "comment /gitops retry on request 7" in said(notes)
    assert verdict(stage.handle(TimerEvent())) is RunResult.WAITS
    assert stage.loop.tip(LEDGER) == head
    # The next merge brings it in.
    (later,) = _merge(stage, OTHER)
    assert verdict(stage.pushed(merge, later)) is RunResult.DONE
    assert stage.changesets()[0].covers == (merge, later)
    assert "is applied with commit" in stage.loop.comment(2)


def test_17_a_retry_is_the_next_attempt_of_the_merge_of_its_request(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert verdict(stage.say(BOB, 1, "/gitops retry")) is RunResult.DONE
    again, first = stage.changesets()[:2]
    assert (again.retry_of, again.attempt, again.source.merge_commit) == (made.key, 2, merge)
    assert (first.key, first.state) == (made.key, ChangesetState.FAILED)
    assert stage.loop.request(1).labels == ("gitops/applied",)
    report = _report(stage)
    for _ in range(2):
        notes = stage.say(BOB, 1, "/gitops retry")
        assert stage.reactions(1) == ["refused"]
        assert f"nothing is left to retry: commit {merge[:12]} is applied with changeset {again.key}" in said(notes)
        # The report stays, with the newest answer below it.
        found = _report(stage)
        assert (found.startswith(report.rstrip()), found.count("nothing is left to retry")) == (True, 1)


def test_17_by_hand_the_newest_merge_that_failed_is_tried_again(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert verdict(list(run_verb(stage.bot(), "apply", ManualEvent()))) is RunResult.DONE
    assert stage.changesets()[0].retry_of == made.key


def test_17_what_a_later_merge_has_taken_over_is_retried_there(stage: Stage) -> None:
    one, two = _merge(stage, QUERY, OTHER)
    _fail(stage, one)
    made = created(two, atomic=True, covers=(one, two), created_at="2026-06-11T09:00:00Z")
    record(stage.loop, made, failed(made))
    notes = stage.say(BOB, 1, "/gitops retry")
    assert verdict(notes) is RunResult.PROBLEMS
    assert f"commit {two[:12]} was merged later and includes it in changeset {made.key}" in said(notes)
    assert verdict(stage.say(BOB, 2, "/gitops retry")) is RunResult.DONE
    assert stage.changesets()[0].covers == (one, two)


def test_17_what_is_carried_out_now_is_not_tried_again(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = created(merge, atomic=True)
    record(stage.loop, made, landed(made)[:3])
    take_lock(stage.loop)
    notes = stage.say(BOB, 1, "/gitops retry")
    assert f"changeset_active: changeset {made.key} is being applied now" in said(notes)
    assert stage.changesets()[0].key == made.key


def test_21_what_is_still_cleaned_up_keeps_out_merges_that_touch_it_and_no_others(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    stage.pushed(merge, merge)
    gone = Removal(Address("graph.legacy"), "ab" * 32)
    # Nothing announced the delete, so no run may carry it out.
    made = created("7" * 40, atomic=True, members=(), removals=(gone,), covers=("7" * 40,))
    record(stage.loop, made, [Created(made), Prepared(()), Committed(2, 1, (gone.address,))])
    (other,) = _merge(stage, OTHER)
    stage.pushed(merge, other)
    states = {each.source.merge_commit: each.state for each in stage.changesets()}
    assert (states[other], states["7" * 40]) == (ChangesetState.FINALIZED, ChangesetState.DRAINED)
    schema = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"
    tip = stage.loop.commit("alice", {"cluster/legacy.pg": schema})
    stage.loop.store.update_refs([RefUpdate(MAIN, other, tip)])
    notes = stage.pushed(other, tip)
    assert verdict(notes) is RunResult.PROBLEMS
    assert f"graph.legacy: changeset {made.key} is not finished" in said(notes)
    assert "schema.legacy: cluster_recovery_pending" in said(notes)
    assert {each.source.merge_commit: each.state for each in stage.changesets()} == states


def test_a_retry_needs_the_permission_of_every_command(stage: Stage) -> None:
    (merge,) = _merge(stage, QUERY)
    made = _fail(stage, merge)
    assert "command_refused" in said(stage.say("99", 1, "/gitops retry"))
    assert stage.changesets()[0].key == made.key


def _nothing(stage: Stage, commit: str) -> bool:
    """Whether a job that waits for a commit has nothing to wait for."""
    project = stage.local
    return brings_nothing(project, project.config().cluster("brain"), commit)


def _elsewhere(stage: Stage) -> str:
    """A merge that does not touch the cluster, of which the bot hears nothing."""
    new = stage.loop.commit("carol", {"README.md": stage.loop.tip().encode()})
    stage.loop.store.update_refs([RefUpdate(MAIN, stage.loop.tip(), new)])
    return new


def test_15_a_merge_elsewhere_is_not_waited_for_while_nothing_before_it_waits(stage: Stage) -> None:
    assert _nothing(stage, first := _elsewhere(stage))
    (merge,) = _merge(stage, QUERY)
    later = _elsewhere(stage)
    # Until the merge before it has an answer, it may belong to that one, such as the last commit of a rebase.
    assert (_nothing(stage, merge), _nothing(stage, later)) == (False, False)
    made = _fail(stage, merge)
    assert (_nothing(stage, merge), _nothing(stage, later)) == (False, True)
    stage.say(BOB, 1, "/gitops retry")
    assert stage.changesets()[0].retry_of == made.key
    assert (_nothing(stage, first), _nothing(stage, later)) == (True, True)
    assert not _nothing(stage, "1" * 40)


def test_15_a_merge_with_an_empty_plan_is_answered_once_it_is_applied_and_one_that_waits_is_not(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("carol", "words", {"cluster/README.md": b"Other words.\n"})
    words = stage.land(1)
    assert not _nothing(stage, words)
    stage.pushed(before, words)
    assert _nothing(stage, words)
    stage.propose("alice", "retire", dict(DELETE_LEGACY), words)
    tip = stage.land(2)
    assert verdict(stage.pushed(words, tip)) is RunResult.WAITS
    assert (_nothing(stage, tip), _nothing(stage, _elsewhere(stage))) == (False, True)


def test_a_merge_elsewhere_gets_no_status_and_no_changeset(stage: Stage) -> None:
    before = stage.loop.tip()
    stage.propose("alice", "words", {"README.md": b"Other words.\n"})
    merge = stage.land(1)
    known = len(stage.changesets())
    notes = stage.pushed(before, merge)
    assert "does not touch the cluster" in said(notes)
    assert stage.loop.book.statuses(merge) == ()
    assert len(stage.changesets()) == known


@pytest.mark.parametrize("dies_at", ["set_status", "upsert_comment", "record_deployment", "set_labels"])
@pytest.mark.parametrize("again", ["event", "sweep"])
def test_a_death_before_the_report_leaves_it_to_the_next_run(stage: Stage, dies_at: str, again: str) -> None:
    """The ledger has the first of three merges when the run dies; the next run reports that before it goes on."""

    def die() -> None:
        raise Death(dies_at)

    before, merges = stage.loop.tip(), list[str]()
    for number, text in enumerate((QUERY, OTHER, THIRD), start=1):
        stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text}, stage.loop.tip())
        stage.handle(HeadEvent(stage.loop.request(number).head))
        merges.append(stage.land(number))
    stage.before[dies_at] = die
    with pytest.raises(Death):
        stage.pushed(before, merges[-1])
    assert _source(stage.loop) == merges[0]
    assert "gitops:plan" in stage.loop.comment(1)
    for _ in range(2):
        notes = stage.handle(PushEvent(MAIN, before, merges[-1], None) if again == "event" else TimerEvent())
    assert verdict(notes) is RunResult.DONE
    assert "has no report" not in said(notes)
    assert _source(stage.loop) == merges[-1]
    for number, merge in enumerate(merges, start=1):
        assert stage.loop.request(number).labels == ("gitops/applied",)
        assert "1 applied" in stage.loop.comment(number)
        assert f"gitops:apply head={merge}" in stage.loop.comment(number)
        assert stage.loop.status(merge, "apply") == "success: 1 applied"
        assert stage.loop.status(merge, "changeset").startswith("success")
        assert ("reported from ledger entry" in stage.loop.comment(number)) is (number == 1)


def test_a_forge_that_does_not_show_earlier_reports_keeps_nothing_from_being_applied(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, merges = stage.loop.tip(), list[str]()
    for number, text in enumerate((QUERY, OTHER), start=1):
        stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text}, stage.loop.tip())
        merges.append(stage.land(number))
        if number == 1:
            stage.pushed(before, merges[0])

    def out(*_: object) -> None:
        raise RemoteError(Code.FORGE_UNAVAILABLE, "no answer")

    monkeypatch.setattr("gitops.bot.landed._landings", out)
    assert "not known: forge_unavailable" in said(stage.pushed(merges[0], merges[1]))
    assert _source(stage.loop) == merges[1]


def test_a_report_that_was_lost_with_the_newest_merge_names_who_approved_and_what_waits(stage: Stage) -> None:
    stage.configure("forge: {labels: false}\n")
    stage.propose("alice", "retire", dict(DELETE_LEGACY), stage.loop.tip())
    stage.handle(HeadEvent(stage.loop.request(1).head))
    before = stage.loop.tip()
    tip = stage.land(1)

    def die() -> None:
        raise Death

    stage.before["upsert_comment"] = die
    with pytest.raises(Death):
        stage.pushed(before, tip)
    assert "gitops:plan" in stage.loop.comment(1)
    assert "has no report" in said(stage.handle(TimerEvent()))
    assert "gitops approve graph.legacy --cluster brain --rows 0 --plan " in stage.loop.comment(1)
    assert stage.loop.sign_approval("bob", "graph.legacy").ok
    stage.before["upsert_comment"] = die
    with pytest.raises(Death):
        stage.pushed(before, tip)
    assert not stage.loop.graph("legacy").exists()
    assert "has no report" not in said(stage.handle(TimerEvent()))
