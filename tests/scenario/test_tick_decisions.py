"""What happens on a target between the decision of a tick and its first statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.plan import NodeOutcome, RunEvent
from gitops.compute.ticks.tick import TickOutcome, tick
from tests.support.target_world import Fault
from tests.support.ticks import Ticks, codes

SLEEPING = {"idle_suspend": {"idle_after_s": 300}}


@pytest.fixture
def ticks(make: Callable[..., Ticks]) -> Ticks:
    """Two compute clusters that are idle for longer than their strategies permit."""
    made = make({"serving": SLEEPING, "other": SLEEPING}, serving={"a": "25cc*", "b": "50cc*"}, other={"a": "25cc*"})
    assert made.tick().ok
    made.pass_time(minutes=6)
    return made


def tick_while(ticks: Ticks, happens: Callable[[], None]) -> TickOutcome:
    """A tick during which something happens when everything is decided, and nothing is carried out yet."""

    def watch(event: RunEvent) -> None:
        if event.type == "apply_started":
            happens()

    return tick(replace(ticks.cluster.workspace("ada"), on_event=watch), ticks.how())


def test_a_compute_cluster_that_is_used_again_is_not_suspended(ticks: Ticks) -> None:
    now = ticks.cluster.clock.now()
    outcome = tick_while(ticks, lambda: ticks.world.activity("serving", now))
    assert (codes(outcome), outcome.ok) == (["decision_outdated"], True)
    assert ticks.world.replicas("serving") == {"a": "25cc", "b": "50cc"}
    assert ticks.world.replicas("other") == {}
    outcomes = {each.node_id: each.outcome for each in outcome.results}
    assert outcomes["decision.serving.idle_suspend"] is NodeOutcome.FAILED
    assert outcomes["decision.other.idle_suspend"] is NodeOutcome.UNCHANGED
    (record,) = ticks.changesets()
    assert record.state is ChangesetState.FINALIZED
    assert not ticks.tick().actions, "a statement has just begun"


def test_nothing_is_done_to_a_compute_cluster_that_took_the_name_of_another_one(ticks: Ticks) -> None:
    def others_make_it_again() -> None:
        ticks.world.drop_cluster("serving")
        ticks.world.add_cluster("serving")
        ticks.world.add_replica("serving", "a", "25cc")

    outcome = tick_while(ticks, others_make_it_again)
    assert codes(outcome) == ["decision_outdated"]
    assert ticks.world.replicas("serving") == {"a": "25cc"}
    assert [row.action_sql for row in ticks.audited] == ['DROP CLUSTER REPLICA IF EXISTS "other"."a"']


def test_a_target_that_goes_away_before_the_first_statement_is_left_alone(ticks: Ticks) -> None:
    outcome = tick_while(ticks, lambda: ticks.world.fail_next(Fault.CUT_BEFORE))
    assert codes(outcome) == ["target_unreachable"]
    assert (ticks.audited, ticks.world.replicas("other"), ticks.changesets()[0].state) == (
        [],
        {"a": "25cc"},
        ChangesetState.FAILED,
    )
    assert len(ticks.tick().actions) == 3
