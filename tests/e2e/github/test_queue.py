"""The merge queue: a group is verified as it would land, and what was not reviewed does not pass."""

from __future__ import annotations

import pytest

from tests.e2e.github.stories import good
from tests.support.forges import landing
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
