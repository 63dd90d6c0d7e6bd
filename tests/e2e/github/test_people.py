"""People on GitHub: reviews and commands that count, accounts that no rule lists, whose work a change is, and forks."""

from __future__ import annotations

import re

import pytest

from gitops.bot import apply_clusters
from gitops.repository import authors
from tests.e2e.github.conftest import HUB_CONFIG, WithConfig
from tests.e2e.github.stories import REWORDED, good, retire
from tests.support.forges.hub import JOB, Hub
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, MAIN, SIGNERS, email

pytestmark = pytest.mark.e2e

VIA_FORGE = "  via_forge: [reversible, irreversible]\n"


def _digest(hub: Hub, number: int) -> str:
    """The digest in the command that the comment shows."""
    found = re.findall(r"^gitops approve .* --plan ([0-9a-f]{64})$", hub.comment(number), re.MULTILINE)
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


def test_an_approver_without_a_listed_account_cannot_approve(hub: Hub, runner: Runner) -> None:
    """Pushes of carol's account would count as those of another person: the message has the line to add. Bob's is listed."""
    pull = hub.propose("alice", "retire", DELETE_LEGACY)
    hub.merge("alice", pull.number)
    hub.approve("carol", "graph.legacy")
    runner.settle()
    refused = runner.tick("sweep").text
    assert "approval_account_unknown" in refused
    assert f"they need approvals.accounts: {{'github:NUMBER': {email('carol')}}}" in refused
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


def _by_nobody(hub: Hub, *parents: str, message: str = "Not mine\n") -> str:
    """A commit that deletes a graph and names somebody who may nothing anyway."""
    return hub.loop.commit("mallory", DELETE_LEGACY, *(parents or (hub.tip(),)), message=message)


def test_so_is_who_pushes_there_without_a_run(hub: Hub, runner: Runner) -> None:
    hub.world.move(MAIN, _by_nobody(hub, message="Not mine [skip ci]\n"), "alice")
    assert runner.settle() == []
    hub.approve("alice", "graph.legacy")
    runner.tick("sweep")
    assert hub.loop.graph("legacy").exists()


def test_so_is_who_pushes_to_the_request_of_somebody_else(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.world.move("refs/heads/topic", _by_nobody(hub, pull.head), "alice")
    runner.settle()
    hub.approve("alice", "graph.legacy", request=pull.number)
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("since", [0, 55])
def test_who_is_hidden_by_a_squash_stays_an_author(hub: Hub, runner: Runner, since: int) -> None:
    """Alice's commit lands in bob's request, however many commits have come on top of it by the time of the apply."""
    mine = hub.loop.commit("alice", DELETE_LEGACY, hub.tip(), message="Mine\n")
    hub.world.move("refs/heads/topic", hub.loop.commit("bob", {"cluster/README.md": b"His.\n"}, mine), "bob")
    pull = hub.world.open_pull("bob", "topic")
    hub.merge("carol", pull.number, "squash", title="Topic [skip ci]")
    at = hub.tip()
    for number in range(since):
        at = hub.loop.commit("bob", {"README.md": b"%d" % number}, at, message="More [skip ci]\n")
    hub.world.move(MAIN, at, "bob")
    runner.cancel()
    hub.approve("alice", "graph.legacy")
    assert "approval_self" in runner.tick("sweep").text
    assert hub.loop.graph("legacy").exists()


def test_who_merged_is_not_taken_for_the_author_of_what_nobody_was_asked_about(
    hub: Hub, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forge names who pressed the button; whose work it was is in the request, and that is too far back."""
    for module in (apply_clusters, authors):
        monkeypatch.setattr(module, "MOST_ASKED", 3)
    mine = hub.loop.commit("alice", DELETE_LEGACY, hub.tip(), message="Mine\n")
    hub.world.move("refs/heads/topic", hub.loop.commit("bob", {"cluster/README.md": b"His.\n"}, mine), "bob")
    hub.merge("carol", hub.world.open_pull("bob", "topic").number, "squash", title="Topic [skip ci]")
    # All that waits is brought in at once, so that there is more of it than is asked about.
    config = (hub.loop.file(hub.tip(), "gitops.yaml") or b"") + b"apply: {queue: coalesce}\n"
    at = hub.loop.commit("bob", {"gitops.yaml": config}, message="More [skip ci]\n")
    for number in range(3):
        at = hub.loop.commit("bob", {"cluster/README.md": b"%d" % number}, at, message="More [skip ci]\n")
    hub.world.move(MAIN, at, "bob")
    runner.cancel()
    hub.approve("alice", "graph.legacy")
    assert "approval_authors_unknown" in runner.tick("sweep").text
    assert hub.loop.graph("legacy").exists()


def test_what_a_request_did_and_took_back_stays_the_work_of_who_pushed_it(hub: Hub, runner: Runner) -> None:
    """Alice's request deletes a graph and puts it back, in the name of mallory. Bob merges it, and reverts the second half.

    The merge changes nothing of the cluster, so no apply asks which request it was. Bob is not the author of what is in it.
    """
    before = hub.loop.file(hub.tip(), "cluster/cluster.yaml")
    gone = hub.loop.commit("mallory", DELETE_LEGACY, hub.tip(), key=None)
    back = hub.loop.commit("mallory", {"cluster/cluster.yaml": before}, gone, key=None)
    hub.world.move("refs/heads/topic", back, "alice")
    hub.merge("bob", hub.world.open_pull("alice", "topic").number, title="Topic [skip ci]")
    runner.settle()
    hub.push("bob", "main", DELETE_LEGACY, message="Revert the second half\n")
    runner.settle()
    hub.approve("alice", "graph.legacy")
    assert {"approval_self", "approval_authors_unknown"} & set(re.findall(r"approval_\w+", runner.tick("sweep").text))
    assert hub.loop.graph("legacy").exists()


def test_so_is_who_pushes_to_a_request_from_a_fork(hub: Hub, runner: Runner) -> None:
    pull = hub.propose_from_fork("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.push_to_fork("alice", "bob", "topic", DELETE_LEGACY, pull.head)
    runner.settle()
    hub.approve("alice", "graph.legacy", request=pull.number)
    hub.merge("carol", pull.number, "squash")
    runner.settle()
    assert "approval_self" in hub.comment(pull.number)
    assert hub.loop.graph("legacy").exists()


def test_a_list_of_pushes_with_a_gap_keeps_gates_shut(hub: Hub, runner: Runner) -> None:
    """The plan says so before the merge, and how it goes on; nothing else of the change is held up."""
    pull = hub.propose("bob", "topic", {"cluster/README.md": b"Words.\n"})
    hub.world.move("refs/heads/topic", _by_nobody(hub, pull.head), "alice")
    hub.world.activities = [a for a in hub.world.activities if a.after != pull.head]
    assert hub.approve("carol", "graph.legacy", request=pull.number).ok
    runner.settle()
    assert "approval_authors_unknown" in hub.comment(pull.number)
    assert hub.status(pull.head, "plan").startswith("failure")
    hub.merge("carol", pull.number)
    runner.settle()
    assert hub.loop.graph("legacy").exists()
    assert hub.loop.graph("notes").exists()


def test_a_push_that_is_too_new_for_the_list_waits(hub: Hub, runner: Runner) -> None:
    hub.push("bob", "main", {"README.md": b"Listed.\n"})
    runner.settle()
    known = list(hub.world.activities)
    hub.world.move(MAIN, _by_nobody(hub, message="Not mine [skip ci]\n"), "bob")
    full, hub.world.activities = hub.world.activities, known
    assert hub.approve("alice", "graph.legacy").ok
    early = runner.tick("sweep")
    assert "the forge does not list the push" in early.text
    assert [d.statuses[-1]["description"] for d in hub.world.deployments.values()][-1] == "pushers_pending"
    assert hub.loop.graph("legacy").exists()
    hub.world.activities = full
    runner.tick("sweep")
    assert not hub.loop.graph("legacy").exists()


def test_the_forge_is_asked_who_pushed_only_if_that_matters(hub: Hub, runner: Runner) -> None:
    """Where a gate is, because the plan names who may approve; once for a plan, and the budget of a plan is kept."""
    hub.world.habits.be_prompt()
    hub.propose("alice", "words", {"cluster/README.md": b"Words.\n"})
    runner.settle()
    assert not any("/activity" in call for call in hub.calls())
    pull = hub.propose("alice", "topic", DELETE_LEGACY)
    runner.settle()
    assert sum("/activity" in call for call in hub.calls()) == 1
    assert hub.approve("bob", "graph.legacy", request=pull.number).ok
    again = hub.loop.commit("alice", {"README.md": b"More.\n"}, pull.head)
    hub.calls()
    hub.world.move("refs/heads/topic", again, "alice")
    runner.settle()
    words = hub.loop.store.commit(hub.loop.tip("refs/heads/words")).id
    # The first plan with an approval also says on the other request that its merge makes the approval stale.
    made = [call for call in hub.calls() if not any(part in call for part in ("/labels", "/issues/1/", words))]
    assert sum("/activity" in call for call in made) == 1
    # One more than a plan has that no approval opens, and one for the order in which the open requests are merged.
    assert len([call for call in made if "/check-runs" not in call]) <= 7, made


def test_a_fork_gets_its_plan_without_any_secret(hub: Hub, runner: Runner) -> None:
    pull = hub.propose_from_fork("mallory", "reword", REWORDED)
    reader, writer = runner.settle()
    assert (reader.job.secrets, reader.code, reader.calls) == (False, 0, ())
    assert writer.job.event.name == "workflow_run"
    assert writer.code == 0
    (plan,) = re.findall(r"plan `([0-9a-f]{12})`", reader.summary)
    assert re.search(rf" plan={plan}[0-9a-f]{{52}} -->$", hub.comment(pull.number), re.MULTILINE)
    assert f"plan `{plan}`" in hub.comment(pull.number)
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
