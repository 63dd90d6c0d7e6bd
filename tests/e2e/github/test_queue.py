"""The merge queue: a group is verified as it would land, and what was not reviewed does not pass."""

from __future__ import annotations

import pytest

from tests.e2e.github.stories import WITH_BODY, WITH_TAGS, good
from tests.support.forges import landing
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import CLUSTER, MAIN

pytestmark = pytest.mark.e2e

CHECKS = {"required_status_checks": [{"context": f"gitops/plan/{CLUSTER}"}]}
QUEUE = {"merge_method": "MERGE", "max_entries_to_build": 5}


def _queued(runner: Runner) -> Runner:
    """Main takes what the queue brings, and only what is verified."""
    runner.hub.world.protect("queue", "main", {"merge_queue": QUEUE, "required_status_checks": CHECKS})
    return runner


def test_a_group_is_verified_lands_and_is_applied(ready: Runner) -> None:
    hub = _queued(ready).hub
    pull = hub.world.pull(1)
    entry = landing.enqueue(hub.world, pull.number, "carol")
    (verified,) = ready.settle()
    assert (verified.job.verb, verified.code) == ("verify", 0), verified.text
    assert hub.status(entry.head, "plan").startswith("success")
    assert landing.settle_queue(hub.world) == [pull.number]
    assert hub.tip(MAIN) == entry.head
    good(ready)
    assert hub.status(entry.head, "apply").startswith("success")
    assert not hub.loop.graph("legacy").exists()


def test_a_group_on_a_changed_base_fails_when_its_digest_differs(hub: Hub, runner: Runner) -> None:
    queued = _queued(runner)
    one, two = hub.propose("alice", "one", WITH_BODY), hub.propose("bob", "two", WITH_TAGS)
    good(queued)
    first = landing.enqueue(hub.world, one.number, "carol")
    second = landing.enqueue(hub.world, two.number, "carol")
    runs = queued.settle()
    assert [run.job.verb for run in runs] == ["verify", "verify"]
    assert hub.status(first.head, "plan").startswith("success")
    assert hub.status(second.head, "plan").startswith("failure")
    assert "queue_plan_differs" in runs[-1].text
    assert landing.settle_queue(hub.world) == [one.number]
    good(queued)

    # The one in front is applied, the plan of the other has been made anew: now it is what was reviewed.
    hub.say("carol", two.number, "/gitops plan")
    good(queued)
    again = landing.enqueue(hub.world, two.number, "carol")
    good(queued)
    assert hub.status(again.head, "plan").startswith("success")
    assert landing.settle_queue(hub.world) == [two.number]


def test_a_gate_that_is_closed_keeps_a_group_out(planned: Runner) -> None:
    """Whatever the request's own status says: the group is computed anew."""
    hub, queued = planned.hub, _queued(planned)
    pull = hub.world.pull(1)
    hub.world.statuses[-1].state = "success"
    entry = landing.enqueue(hub.world, pull.number, "carol")
    (verified,) = queued.settle()
    assert verified.code != 0
    assert hub.status(entry.head, "plan").startswith("failure")
    assert landing.settle_queue(hub.world) == []
    assert hub.tip(MAIN) == entry.base


def test_a_group_that_leaves_the_cluster_alone_passes(hub: Hub, runner: Runner) -> None:
    queued = _queued(runner)
    pull = hub.propose("alice", "words", {"README.md": b"Words.\n"})
    good(queued)
    entry = landing.enqueue(hub.world, pull.number, "carol")
    good(queued)
    assert hub.status(entry.head, "plan").startswith("success")
