"""Requests from forks: a whole plan without any secret, and nothing that the fork says is believed by the job that may write."""

from __future__ import annotations

import re

import pytest

from tests.e2e.github.conftest import HUB_CONFIG
from tests.e2e.github.stories import REWORDED, good
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, SIGNERS, email

pytestmark = pytest.mark.e2e

DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def test_a_fork_gets_its_plan_without_any_secret(hub: Hub, runner: Runner) -> None:
    pull = hub.propose_from_fork("mallory", "reword", REWORDED)
    reader, writer = runner.settle()
    assert (reader.job.secrets, reader.code, reader.calls) == (False, 0, ())
    assert writer.job.event.name == "workflow_run"
    assert writer.code == 0
    (digest,) = set(DIGEST.findall(reader.summary))
    assert digest in hub.comment(pull.number)
    assert hub.status(pull.head, "plan") == "success: 1 change"


def test_what_a_fork_brings_is_data(hub: Hub, runner: Runner) -> None:
    """Its keys, its configuration and its hooks are those of nobody."""
    config = HUB_CONFIG.replace("alice@people.example, bob@people.example", email("mallory")).encode()
    files = {
        **DELETE_LEGACY,
        "gitops.yaml": config,
        SIGNERS: hub.loop.signers("bot", "carol", "mallory"),
        ".gitattributes": b"* filter=evil\n",
        "cluster/$(touch x) ##[error].md": b"${{ secrets.GITHUB_TOKEN }}\n::set-output name=x::y\n",
    }
    pull = hub.propose_from_fork("mallory", "rules", files)
    for run in runner.settle():
        assert not re.search(r"^\s*::", run.text, re.MULTILINE)
    assert hub.status(pull.head, "plan").startswith("failure")
    for address in ("graph.legacy", "trust.brain"):
        made = hub.approve("mallory", address, request=pull.number)
        assert [d.code for d in made.diagnostics if d.severity == "error"] == ["approval_signer_unknown"]
    assert hub.approvals() == ()


def test_a_fork_that_is_gone_is_still_planned(hub: Hub, runner: Runner) -> None:
    """Its author deleted the repository; the request has its commits all the same."""
    pull = hub.propose_from_fork("mallory", "reword", REWORDED)
    pull.repository = ""
    for run in runner.settle():
        assert run.code == 0, run.text
    assert hub.status(pull.head, "plan") == "success: 1 change"


def test_a_fork_that_is_merged_is_applied_with_its_author_known(hub: Hub, runner: Runner) -> None:
    pull = hub.propose_from_fork("alice", "retire", DELETE_LEGACY)
    runner.settle()
    own = hub.approve("alice", "graph.legacy", request=pull.number)
    assert [d.code for d in own.diagnostics if d.severity == "error"] == ["approval_self"]
    assert hub.approve("bob", "graph.legacy", request=pull.number).ok
    hub.merge("carol", pull.number, "squash")
    good(runner)
    assert not hub.loop.graph("legacy").exists()
