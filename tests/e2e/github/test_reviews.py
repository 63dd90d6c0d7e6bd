"""What people say on the forge: reviews that the rules let count, verdicts, commands in comments, and who may give them."""

from __future__ import annotations

import re

import pytest

from tests.e2e.github.conftest import CAROL, WithConfig
from tests.e2e.github.stories import WITH_BODY, good, retire
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import CLUSTER_YAML, DELETE_LEGACY, email

pytestmark = pytest.mark.e2e

VIA_FORGE = "  via_forge: [reversible, irreversible]\n"
ONE_REVIEW = {
    "required_approving_review_count": 1,
    "dismiss_stale_reviews_on_push": False,
    "require_code_owner_review": True,
    "require_last_push_approval": False,
    "required_review_thread_resolution": False,
}


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


def test_a_review_of_an_earlier_head_or_of_the_author_counts_for_nothing(with_config: WithConfig) -> None:
    runner = with_config(CAROL + VIA_FORGE)
    hub = runner.hub
    pull = hub.propose("bob", "retire", DELETE_LEGACY)
    early = pull.head
    hub.push("alice", "retire", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}, early)
    mine = {**DELETE_LEGACY, "cluster/README.md": b"Mine.\n"}
    hub.push("alice", "retire", mine, hub.tip("refs/heads/retire"))
    runner.settle()
    hub.world.review("carol", pull.number, "APPROVED", commit=early)
    hub.world.review("alice", pull.number, "APPROVED")
    runner.settle()
    assert hub.status(pull.head, "plan").startswith("failure")
    hub.world.review("carol", pull.number, "APPROVED")
    runner.settle()
    assert hub.status(pull.head, "plan").startswith("success")


def test_the_verdict_of_the_forge_is_one_more_gate(with_config: WithConfig) -> None:
    """Code owners are the forge's business; their missing yes keeps an approved change from being applied."""
    runner = with_config("  forge_verdict: true\n")
    hub = runner.hub
    rules = hub.world.protect("reviews", "main", {"pull_request": ONE_REVIEW})
    pull = retire(runner)
    assert hub.approve("bob", "graph.legacy", request=pull.number).ok
    hub.say("carol", pull.number, "/gitops plan")
    runner.settle()
    assert hub.status(pull.head, "plan").startswith("failure")
    # An administrator merges past the rule.
    rules.rules.clear()
    tip = hub.merge("carol", pull.number)
    rules.rules["pull_request"] = ONE_REVIEW
    runner.settle()
    assert hub.loop.graph("legacy").exists()
    assert "forge_verdict_missing" in hub.status(tip, "apply")
    hub.world.review("carol", pull.number, "APPROVED")
    runner.cancel()
    assert runner.tick("sweep").code == 0
    assert not hub.loop.graph("legacy").exists()


def test_a_command_approves_the_very_plan_that_it_names(with_config: WithConfig) -> None:
    runner = with_config(VIA_FORGE)
    hub, pull = runner.hub, retire(runner)
    digest = _digest(hub, pull.number)
    refused = {
        "mallory": f"/gitops approve graph.legacy {digest}",
        "alice": f"/gitops approve graph.legacy {digest}",
        "carol": f"/gitops approve graph.legacy {'0' * 64}",
        "bob": f"/gitops approve graph.legacy {digest[:12]}",
    }
    for who, text in refused.items():
        comment = hub.say(who, pull.number, text)
        runner.settle()
        assert [r.content for r in comment.reactions] == ["-1"], who
        assert hub.approvals() == (), who
    assert len(hub.comments(pull.number)) == 1

    yes = hub.say("bob", pull.number, f"/gitops approve graph.legacy {digest}")
    good(runner)
    assert [r.content for r in yes.reactions] == ["+1"]
    assert hub.status(pull.head, "plan").startswith("success")
    # The same delivery again gives no second approval.
    runner.run(runner.runs[-1].job)
    assert len(hub.approvals()) == 1


def test_a_command_is_given_to_the_letter(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("alice", "body", WITH_BODY)
    good(runner)
    before = dict(hub.world.refs())
    for text in ("/gitops apply", "/gitops plan --config / $(id)"):
        comment = hub.say("carol", pull.number, text)
        (run,) = runner.settle()
        assert [r.content for r in comment.reactions] == ["-1"], text
        assert "command_invalid" in run.text
    for text in ("/gitopsplan", "> /gitops plan"):
        comment = hub.say("carol", pull.number, text)
        (run,) = runner.settle()
        assert (run.code, comment.reactions) == (0, []), text
    assert {k: v for k, v in hub.world.refs().items() if "/plans/" not in k} == {
        k: v for k, v in before.items() if "/plans/" not in k
    }
    explained = hub.say("carol", pull.number, "/gitops explain schema.notes")
    good(runner)
    assert [r.content for r in explained.reactions] == ["+1"]
    assert len(hub.comments(pull.number)) == 1


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
