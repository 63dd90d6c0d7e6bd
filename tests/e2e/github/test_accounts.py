"""Accounts that no rule lists: their approvals do not count on the forge in use, and their pushes leave authors unknown."""

from __future__ import annotations

import pytest

from tests.support.forges.hub import JOB, Hub
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, MAIN, email

pytestmark = pytest.mark.e2e


def test_an_approver_without_a_listed_account_cannot_approve(hub: Hub, runner: Runner) -> None:
    """Pushes of carol's account would count as those of another person: the message has the line to add. Bob's is listed."""
    pull = hub.propose("alice", "retire", DELETE_LEGACY)
    hub.merge("alice", pull.number)
    hub.approve("carol", "graph.legacy")
    runner.settle()
    refused = runner.tick("sweep").text
    assert "approval_account_unknown" in refused
    assert f"add approvals.accounts: {{'github:NUMBER': {email('carol')}}}" in refused
    assert hub.loop.graph("legacy").exists()
    hub.approve("bob", "graph.legacy")
    runner.tick("sweep")
    assert not hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("branch", ["main", "topic"])
def test_a_push_with_the_token_of_a_job_shuts_the_gates(hub: Hub, runner: Runner, branch: str) -> None:
    """Whoever writes a workflow pushes as `github-actions[bot]`; no approval counts, and the message says what to do."""
    hub.push("bob", "topic", {"cluster/README.md": b"Words.\n"})
    pull = hub.world.open_pull("bob", "topic")
    old = MAIN if branch == "main" else pull.head
    head = hub.loop.commit("mallory", DELETE_LEGACY, hub.tip() if old == MAIN else old, key=None)
    hub.world.move(f"refs/heads/{branch}", head, JOB)
    if branch == "topic":
        hub.merge("carol", pull.number)
    runner.settle()
    for who in ("alice", "bob"):
        hub.approve(who, "graph.legacy")
        refused = runner.tick("sweep").text
        assert "approval_authors_unknown" in refused
        assert f"the rules name no person for github:{hub.world.accounts[JOB].id}" in refused
        assert "sign the commit, or, if one person alone uses the account, list it" in refused
    assert hub.loop.graph("legacy").exists()
