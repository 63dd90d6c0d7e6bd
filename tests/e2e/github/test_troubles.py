"""What goes wrong on a forge and must change nothing, or be made good later: rules, limits, lost runs, locks, races."""

from __future__ import annotations

import pytest

from gitops.cluster.model.ledger import LockInfo
from tests.e2e.github.stories import REWORDED, WITH_BODY, audit, good
from tests.support.forges.hub import JOB, Hub, token_of
from tests.support.forges.runner import Runner, jobs
from tests.support.loop import LEDGER

pytestmark = pytest.mark.e2e

LOCK_ID = "01BX5ZZKBKACTAV9WEVGEMMVS0"


def test_a_ledger_that_takes_no_push_stops_an_apply_before_any_effect(ready: Runner) -> None:
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    rules = hub.world.protect("ledger", "gitops/ledger/**", {"update": None, "non_fast_forward": None})
    entry = hub.tip(LEDGER)
    tip = hub.merge("carol", pull.number)
    (run,) = runner.settle()
    assert run.code == 1
    assert "GH013" in run.text
    assert "ledger_not_writable" in run.text
    assert hub.world.tip("refs/gitops/locks/brain") is None
    assert hub.loop.graph("legacy").exists()
    assert hub.tip(LEDGER) == entry
    assert hub.status(tip, "apply").startswith("failure")

    # With the bypass that `gitops doctor` asks for, the sweep finds what is left to do.
    rules.bypass = frozenset({JOB})
    swept = runner.tick("sweep")
    assert swept.code == 0, swept.text
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")


def test_ten_minutes_without_comments_change_no_outcome(hub: Hub, runner: Runner) -> None:
    limit = hub.server.fault_next(
        r"(GET|POST|PATCH) .*/comments", status=403, times=10_000, headers={"Retry-After": "600"}
    )
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    assert hub.status(pull.head, "plan") == "success: 1 change"
    assert hub.comments(pull.number) == []
    assert "comment" in runner.runs[-1].text
    tip = hub.merge("carol", pull.number)
    good(runner)
    assert hub.status(tip, "apply").startswith("success")
    # A job does not sit out the ten minutes.
    assert sum(runner.waited) < 600

    # What was not written is not lost, whichever run comes next: a plan that did not change gets its comment.
    one, two = (hub.propose("bob", branch, WITH_BODY) for branch in ("body", "same"))
    good(runner)
    limit.times = 0
    hub.push("alice", "main", {"README.md": b"Words.\n"})
    good(runner)
    assert [len(hub.comments(each.number)) for each in (one, two)] == [1, 1]
    limit.times = 10_000
    hub.push("bob", "body", {"cluster/README.md": b"More words.\n"}, one.head)
    good(runner)
    limit.times = 0
    assert "the forge did not take its comment" in runner.tick("sweep").text
    assert hub.tip("refs/heads/body")[:12] in hub.comment(one.number)
    assert "the forge did not take its comment" not in runner.tick("sweep").text
    hub.server.calls.clear()


def test_a_token_that_may_do_less_tells_what_it_can(hub: Hub, runner: Runner) -> None:
    """Without `contents: write` the plan is kept nowhere, without `checks: write` there is no check; the rest is as ever."""
    name = token_of(JOB)
    hub.world.lend(name, JOB, "actions", contents="read", pull_requests="write", statuses="write")
    pull = hub.propose("alice", "reword", REWORDED)
    (run,) = runner.settle()
    assert run.code == 0, run.text
    assert hub.status(pull.head, "plan").startswith("success")
    assert len(hub.comments(pull.number)) == 1
    assert hub.world.checks == {}
    assert hub.world.tip(f"refs/gitops/plans/brain/{pull.number}") is None

    hub.world.lend(name, JOB, "actions", contents="write", pull_requests="write")
    hub.push("alice", "reword", {"cluster/README.md": b"More.\n"}, pull.head)
    (run,) = runner.settle()
    assert run.code == 1
    assert "forge_refused" in run.text


def test_a_lost_answer_leaves_one_comment_and_one_deployment(hub: Hub, runner: Runner) -> None:
    for pattern in (r"^POST .*/issues/1/comments$", r"^POST .*/deployments$", r"^POST .*/statuses/"):
        hub.server.fault_next(pattern, lost=True)
    hub.server.fault_next(r"^GET .*/pulls$", status=502)
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    tip = hub.merge("carol", pull.number)
    good(runner)
    assert len(hub.comments(pull.number)) == 1
    assert [d.sha for d in hub.world.deployments.values()] == [tip]


def test_an_apply_while_another_one_runs_does_not_say_success(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    local = hub.loop.local()
    ledger = local.ledger(local.project.config().cluster(None))
    ledger.acquire(LockInfo(LOCK_ID, "apply", "2026-01-01T00:00:00Z", 1))
    tip = hub.merge("carol", pull.number)
    (run,) = runner.settle()
    assert (run.code, "already running" in run.text) == (0, True)
    contexts = {s.context for s in hub.world.statuses if s.sha == tip and s.state == "success"}
    assert "gitops/apply/brain" not in contexts
    held = runner.tick("sweep")
    assert f"/gitops unlock {LOCK_ID}" in held.text

    comment = hub.say("carol", pull.number, f"/gitops unlock {LOCK_ID}")
    good(runner)
    assert [r.content for r in comment.reactions] == ["+1"]
    assert runner.tick("sweep").code == 0
    assert hub.status(tip, "apply").startswith("success")


def test_a_merge_during_an_apply_is_applied_by_the_same_run(hub: Hub, runner: Runner) -> None:
    """Its own run may find the lock held and leave; the one that holds it goes up to the newest commit."""
    one, two = hub.propose("alice", "reword", REWORDED), hub.propose("bob", "body", WITH_BODY)
    good(runner)
    hub.merge("carol", one.number)
    (first,) = [job for event in runner.pending() for job in jobs(event)]
    hub.server.meanwhile.append(lambda: hub.merge("carol", two.number))
    before = hub.tip()
    run = runner.run(first)
    assert run.code == 0, run.text
    assert hub.tip() != before
    assert hub.status(hub.tip(), "apply").startswith("success")
    entry = hub.tip(LEDGER)
    good(runner)
    assert hub.tip(LEDGER) == entry
    assert audit(hub.loop).startswith("audit good")


def test_two_applies_at_once_leave_one_line_of_entries(hub: Hub, runner: Runner) -> None:
    """Two jobs of two merges start together, each in a process of its own."""
    pulls = [hub.propose("alice", "reword", REWORDED), hub.propose("bob", "body", WITH_BODY)]
    good(runner)
    for pull in pulls:
        hub.merge("carol", pull.number)
    wanted = [job for event in runner.pending() for job in jobs(event) if job.verb == "apply"]
    runs = runner.together(*wanted)
    assert [run.code for run in runs] == [0, 0], [run.text for run in runs]
    assert runner.tick("sweep").code == 0
    assert hub.status(hub.tip(), "apply").startswith("success")
    assert audit(hub.loop).startswith("audit good")
    assert hub.world.tip("refs/gitops/locks/brain") is None
