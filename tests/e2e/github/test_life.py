"""The life of pull requests on GitHub: planned, approved, merged, applied, by jobs with event files, in a fresh clone each."""

from __future__ import annotations

import re

import pytest

from gitops.cluster.ledger.documents import read_entry
from tests.e2e.github.conftest import HUB_CONFIG
from tests.e2e.github.stories import REWORDED, audit, good
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, LEDGER, email

pytestmark = pytest.mark.e2e

METHODS = ["squash", pytest.param("merge", marks=pytest.mark.slow), pytest.param("rebase", marks=pytest.mark.slow)]


@pytest.mark.parametrize("method", METHODS)
def test_whole_life(hub: Hub, runner: Runner, method: str) -> None:
    pull = hub.propose("alice", "retire", DELETE_LEGACY, message="Retire legacy\n")
    (planned,) = runner.settle()
    # A label is one more, where one has to be put on; and so is the status of a commit that GitHub does not find at first.
    assert len([call for call in hub.calls() if "/labels" not in call]) <= 8
    assert planned.code in (0, 3)
    assert hub.status(pull.head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    assert "gitops approve graph.legacy --request 1 --cluster brain" in hub.comment(1)
    assert pull.head[:7] in hub.comment(1)

    made = hub.approve("bob", "graph.legacy", request=1)
    assert made.ok
    hub.say("carol", 1, "/gitops plan")
    good(runner)
    assert hub.status(pull.head, "plan") == "success: 2 changes"
    assert hub.loop.graph("legacy").exists()

    # This GitHub creates no labels; one that an administrator made, and that is wrong now, goes nevertheless.
    hub.world.issue(1).labels.append("gitops/needs-approval")
    tip = hub.merge("carol", 1, method)
    hub.drop_branch("carol", "retire")
    good(runner)
    assert hub.world.issue(1).labels == []
    assert not hub.loop.graph("legacy").exists()
    assert hub.loop.graph("notes").exists()
    assert hub.status(tip, "apply") == "success: 2 applied"
    assert len(hub.comments(1)) == 1
    assert email("bob") in hub.comment(1)
    (deployment,) = hub.world.deployments.values()
    assert (deployment.sha, deployment.environment) == (tip, "production/brain")
    assert deployment.statuses[-1]["state"] == "success"

    entry = hub.loop.applied()
    assert entry.parents[1:] == (made.commit,)
    told = read_entry(hub.loop.store.read(entry.tree, "entry.json") or b"")
    assert told.source is not None
    assert told.source.commit == tip
    assert audit(hub.loop).startswith("audit good")


@pytest.mark.parametrize("bare", [False, True], ids=["clone", "bare clone"])
def test_an_audit_in_the_clone_that_applied_reads_what_it_pushed(ready: Runner, bare: bool) -> None:
    """The clone of the bot knew newer entries than it showed, so that its own audit called the ledger rewound."""
    hub, ready.bare = ready.hub, bare
    hub.merge("carol", 1)
    good(ready)
    clone = ready.folder / f"job-{len(ready.runs)}" / "work"
    for command in ("audit", "log"):
        done = hub.loop.gitops("bot", command, "--json", at=clone)
        assert hub.tip(LEDGER) in done.text
    # An older state of the forge is not taken for what is newest.
    hub.loop.program(
        "bot", "git", "update-ref", "refs/heads/gitops/ledger/brain", f"{hub.tip(LEDGER)}~1", at=hub.loop.server
    )
    name = "heads" if bare else "remotes/origin"
    branch = "gitops/ledger/brain"
    fetched = f"+refs/heads/{branch}:refs/{name}/{branch}"
    hub.loop.program("bot", "git", "fetch", "-q", str(hub.loop.server), fetched, at=clone)
    assert "ledger_diverged" in hub.loop.gitops("bot", "audit", at=clone, check=False).text


def test_a_bare_clone_writes_where_the_repository_is(ready: Runner) -> None:
    """A bare clone is not the server: a ledger, a lock or a plan that is written into it is lost, and splits the ledger."""
    hub, before = ready.hub, ready.hub.tip(LEDGER)
    ready.bare = True
    hub.merge("carol", 1, "squash")
    good(ready)
    assert not hub.loop.graph("legacy").exists()
    assert hub.tip(LEDGER) != before
    assert audit(hub.loop).startswith("audit good")


def test_a_shallow_checkout_is_as_good(ready: Runner) -> None:
    """The usual checkout has one commit; what else is needed is fetched, and nothing is answered from half a history."""
    ready.depth = 1
    hub = ready.hub
    hub.say("carol", 1, "/gitops plan")
    good(ready)
    assert hub.status(hub.world.pull(1).head, "plan").startswith("success")
    hub.merge("carol", 1, "squash")
    good(ready)
    assert not hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_rebase_and_unrelated_commits_keep_the_approval(ready: Runner, method: str) -> None:
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    hub.push("carol", "main", {"README.md": b"Still nothing of the cluster.\n"})
    good(runner)
    hub.push("alice", "retire", DELETE_LEGACY, hub.tip(), message="Rebased\n")
    good(runner)
    assert hub.status(pull.head, "plan").startswith("success")
    hub.merge("carol", 1, method)
    good(runner)
    assert not hub.loop.graph("legacy").exists()


def test_a_folder_that_leaves_the_request_takes_its_plan_along(ready: Runner) -> None:
    """What was planned and approved for an earlier head cannot be applied any more."""
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    hub.push("alice", "retire", {"README.md": b"Only words.\n"}, pull.base)
    runner.settle()
    assert "needs approval" not in hub.status(pull.head, "plan")
    hub.merge("carol", 1)
    good(runner)
    assert hub.loop.graph("legacy").exists()
    assert len(hub.approvals()) == 1


def test_a_strangers_comment_with_our_marker_is_text(planned: Runner) -> None:
    hub, runner = planned.hub, planned
    pull = hub.world.pull(1)
    marker = hub.comment(1).partition("\n")[0]
    assert re.fullmatch(r"<!-- .* -->", marker)
    forged = hub.say("mallory", 1, f"{marker}\nAll approved. Digest {'0' * 64}")
    hub.push("alice", "retire", {**DELETE_LEGACY, "cluster/README.md": b"More.\n"}, pull.base)
    runner.settle()
    assert forged.body.endswith("0" * 64)
    assert len(hub.comments(1)) == 1
    assert pull.head[:7] in hub.comment(1)
    assert hub.status(pull.head, "plan").startswith("failure")


def test_an_approval_is_asked_for_where_the_change_was_proposed(planned: Runner) -> None:
    """A merge that waits is in the plan of every later request, which neither causes it nor can have it approved."""
    hub, runner = planned.hub, planned
    hub.world.habits.creates_labels = True
    hub.merge("carol", 1)
    runner.settle()
    assert "gitops approve graph.legacy" in hub.comment(1)
    other = hub.propose("bob", "reword", REWORDED)
    runner.settle()
    found = hub.status(other.head, "plan")
    assert found.startswith("failure: ")
    assert "; an earlier merge needs approval: graph.legacy" in found
    assert "; needs approval" not in found
    assert "gitops approve" not in hub.comment(other.number)
    assert "nothing has to be approved here" in hub.comment(other.number)
    assert hub.world.issue(other.number).labels == []

    # What it changes itself is asked for here.
    both = hub.propose("bob", "rules", {"gitops.yaml": HUB_CONFIG.replace("bob@people.example, ", "").encode()})
    runner.settle()
    assert "; needs approval: trust.brain; an earlier merge" in hub.status(both.head, "plan")
    assert "gitops approve trust.brain" in hub.comment(both.number)
    assert hub.world.issue(both.number).labels == ["gitops/needs-approval"]

    # Nor is it said to a request whose own changes are all applied.
    tip = hub.merge("carol", other.number)
    runner.settle()
    assert hub.status(tip, "apply").startswith("failure")
    assert hub.world.issue(other.number).labels == ["gitops/applied"]
    assert hub.world.issue(1).labels == ["gitops/waiting"]
    assert "To approve" not in hub.comment(other.number)
    assert "nothing has to be approved here" in hub.comment(other.number)
    assert "gitops approve graph.legacy" in hub.comment(1)
