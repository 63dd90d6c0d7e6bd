"""What people say on the forge: reviews that the rules let count, verdicts, commands in comments, and who may give them."""

from __future__ import annotations

import re

import pytest

from tests.e2e.github.conftest import WithConfig
from tests.e2e.github.stories import good, retire
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import email

pytestmark = pytest.mark.e2e

VIA_FORGE = "  via_forge: [reversible, irreversible]\n"


def _digest(hub: Hub, number: int) -> str:
    """The digest of the plan that the comment shows."""
    found = re.findall(r"plan `([0-9a-f]{64})`", hub.comment(number))
    assert len(found) == 1
    return str(found[0])


def test_a_review_counts_where_the_rules_say_so_however_many_there_are(with_config: WithConfig) -> None:
    """The only yes is the last of 35, on the second page of a service that pages by thirty."""
    runner = with_config(VIA_FORGE)
    hub, pull = runner.hub, retire(runner)
    for _ in range(34):
        hub.world.review("carol", pull.number, "COMMENTED")
    runner.cancel()
    hub.world.review("bob", pull.number, "APPROVED")
    runner.settle()
    assert hub.status(pull.head, "plan").startswith("success")
    assert f"{email('bob')}" in hub.comment(pull.number)
    tip = hub.merge("carol", pull.number, "squash")
    good(runner)
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")


def test_words_on_the_forge_are_no_approval_by_default(planned: Runner) -> None:
    hub, runner = planned.hub, planned
    pull = hub.world.pull(1)
    hub.world.review("bob", pull.number, "APPROVED")
    comment = hub.say("bob", pull.number, f"/gitops approve graph.legacy {_digest(hub, pull.number)}")
    runner.settle()
    assert [r.content for r in comment.reactions] == ["-1"]
    assert hub.status(pull.head, "plan").startswith("failure")
    assert hub.approvals() == ()


@pytest.mark.parametrize("seen", [pytest.param("together", marks=pytest.mark.slow), "one after the other"])
def test_who_takes_a_yes_back_has_not_approved(with_config: WithConfig, seen: str) -> None:
    """APPROVED, then CHANGES_REQUESTED, by the same person."""
    runner = with_config(VIA_FORGE)
    hub, pull = runner.hub, retire(runner)
    hub.world.review("bob", pull.number, "APPROVED")
    if seen == "one after the other":
        runner.settle()
        assert hub.status(pull.head, "plan").startswith("success")
    hub.world.review("bob", pull.number, "CHANGES_REQUESTED")
    runner.settle()
    assert hub.status(pull.head, "plan").startswith("failure")
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()


def test_permission_is_what_it_is_now(planned: Runner) -> None:
    """Carol has left the team since she last wrote; what the event says of her does not count."""
    hub, runner = planned.hub, planned
    pull = hub.world.pull(1)
    hub.world.accounts["carol"].permission = "read"
    comment = hub.say("carol", pull.number, "/gitops plan")
    (run,) = runner.settle()
    assert [r.content for r in comment.reactions] == ["-1"]
    assert "command_refused" in run.text
    assert len(run.calls) <= 2
