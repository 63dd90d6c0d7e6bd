"""CI mode enforces exactly the rules of server mode, and a job those of hooks: each story has one set of expectations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.git.port import ZERO, RefUpdate
from tests.e2e.github.conftest import CAROL, WithConfig
from tests.e2e.github.stories import REWORDED, WITH_BODY, WITH_TAGS, audit, good
from tests.e2e.test_approvals import FORGERIES, MUCH_LATER
from tests.support.forges import landing
from tests.support.forges.hub import Hub
from tests.support.forges.served import Mode, as_server, in_jobs
from tests.support.loop import APPROVALS, CLUSTER, DELETE_LEGACY, LEDGER, MAIN, Loop, codes, email

pytestmark = pytest.mark.e2e

Open = Callable[[Hub, Path], AbstractContextManager[Mode]]


@pytest.fixture(params=[in_jobs, as_server], ids=["jobs", "server"])
def way(request: pytest.FixtureRequest) -> Open:
    """How the bot is run."""
    opened: Open = request.param
    return opened


@pytest.fixture
def mode(way: Open, hub: Hub, tmp_path: Path) -> Iterator[Mode]:
    """The cluster is applied, and nothing else has happened."""
    with way(hub, tmp_path / "bot") as bot:
        yield bot


@pytest.fixture
def planned(way: Open, at_the_gate: Hub, tmp_path: Path) -> Iterator[Mode]:
    """Request 1, by alice, deletes a graph and waits for an approval."""
    with at_the_gate.copied(tmp_path / "planned") as hub, way(hub, tmp_path / "bot") as bot:
        yield bot


@pytest.fixture
def ready(way: Open, through_the_gate: Hub, tmp_path: Path) -> Iterator[Mode]:
    """Request 1, by alice, deletes a graph and is approved by bob."""
    with through_the_gate.copied(tmp_path / "ready") as hub, way(hub, tmp_path / "bot") as bot:
        yield bot


def test_a_whole_life(mode: Mode) -> None:
    hub = mode.hub
    pull = hub.propose("alice", "retire", DELETE_LEGACY, message="Retire legacy\n")
    mode.settle()
    assert hub.status(pull.head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    assert "gitops approve graph.legacy --request 1 --cluster brain" in hub.comment(1)
    assert hub.approve("bob", "graph.legacy", request=1).ok
    comment = hub.say("carol", 1, "/gitops plan")
    mode.settle()
    assert [r.content for r in comment.reactions] == ["+1"]
    assert hub.status(pull.head, "plan") == "success: 2 changes"
    assert hub.loop.graph("legacy").exists()

    tip = hub.merge("carol", 1, "squash")
    mode.settle()
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply") == "success: 2 applied"
    assert email("bob") in hub.comment(1)
    (deployment,) = hub.world.deployments.values()
    assert (deployment.sha, deployment.statuses[-1]["state"]) == (tip, "success")
    assert audit(hub.loop).startswith("audit good")


@pytest.mark.slow
def test_a_merge_without_its_approval_waits_for_it(planned: Mode) -> None:
    hub = planned.hub
    pull = hub.world.pull(1)
    tip = hub.merge("carol", pull.number)
    planned.settle()
    assert hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("failure")
    assert hub.approve("bob", "graph.legacy").ok
    hub.say("carol", pull.number, "/gitops retry")
    planned.settle()
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")


def test_a_byte_after_the_approval_voids_it(ready: Mode) -> None:
    hub = ready.hub
    pull = hub.world.pull(1)
    hub.push("alice", "retire", {**DELETE_LEGACY, "cluster/README.md": b"What we knew!\n"}, pull.base)
    ready.settle()
    assert hub.status(pull.head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    assert "approval_stale" in hub.comment(1)
    tip = hub.merge("carol", 1)
    ready.settle()
    assert hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("failure")


def test_the_comment_of_another_request_warns_before_its_merge_voids_an_approval(planned: Mode) -> None:
    hub = planned.hub
    other = hub.propose("carol", "reword", REWORDED)
    planned.settle()
    assert "Makes other approvals stale" not in hub.comment(other.number)
    assert hub.approve("bob", "graph.legacy", request=1).ok
    hub.say("carol", 1, "/gitops plan")
    planned.settle()
    comment = hub.comment(other.number)
    assert "### Makes other approvals stale" in comment
    assert re.search(r"^- \[request 1\]\(\S+/pull/1\), .+: `graph.legacy`$", comment, re.MULTILINE), comment
    tip = hub.merge("carol", other.number)
    planned.settle()
    assert f"merge `{tip[:12]}` of request {other.number} changed the cluster folder after it was given" in hub.comment(
        1
    )


def test_nobody_approves_their_own(planned: Mode) -> None:
    hub = planned.hub
    pull = hub.world.pull(1)
    assert not hub.approve("alice", "graph.legacy", request=pull.number).ok
    hub.say("alice", pull.number, f"/gitops approve graph.legacy {'0' * 64}")
    planned.settle()
    assert hub.status(pull.head, "plan").startswith("failure")
    hub.merge("alice", pull.number)
    planned.settle()
    assert hub.loop.graph("legacy").exists()


def test_a_strangers_command_is_no_work(planned: Mode) -> None:
    hub = planned.hub
    pull = hub.world.pull(1)
    said = hub.comment(pull.number)
    comment = hub.say("mallory", pull.number, "/gitops retry")
    planned.settle()
    assert [r.content for r in comment.reactions] == ["-1"]
    assert hub.comment(pull.number) == said


def test_a_request_of_a_fork_is_planned_as_data(mode: Mode) -> None:
    hub = mode.hub
    pull = hub.propose_from_fork("mallory", "reword", REWORDED)
    mode.settle()
    assert hub.status(pull.head, "plan") == "success: 1 change"
    assert len(hub.comments(pull.number)) == 1


def test_what_comes_twice_changes_nothing(ready: Mode) -> None:
    hub = ready.hub
    pull = hub.world.pull(1)
    hub.merge("carol", pull.number)
    ready.settle()
    refs, said, deployments = dict(hub.world.refs()), hub.comment(1), len(hub.world.deployments)
    ready.again()
    ready.settle()
    assert (dict(hub.world.refs()), hub.comment(1), len(hub.world.deployments)) == (refs, said, deployments)


def test_what_never_came_is_swept_up(ready: Mode) -> None:
    hub = ready.hub
    pull = hub.world.pull(1)
    tip = hub.merge("carol", pull.number)
    ready.lose()
    ready.settle()
    assert hub.loop.graph("legacy").exists()
    ready.tick()
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")


@pytest.mark.slow
def test_two_requests_race(mode: Mode) -> None:
    hub = mode.hub
    one, two = hub.propose("alice", "one", WITH_BODY), hub.propose("bob", "two", WITH_TAGS)
    mode.settle()
    hub.merge("carol", one.number)
    hub.merge("carol", two.number)
    mode.settle()
    assert hub.status(hub.tip(), "apply").startswith("success")
    assert audit(hub.loop).startswith("audit good")


@pytest.mark.slow
def test_a_queue_lets_through_what_was_reviewed(mode: Mode) -> None:
    hub = mode.hub
    checks = {"required_status_checks": [{"context": f"gitops/plan/{CLUSTER}"}]}
    queue = {"merge_method": "MERGE", "max_entries_to_build": 5}
    hub.world.protect("queue", "main", {"merge_queue": queue, "required_status_checks": checks})
    one, two = hub.propose("alice", "one", WITH_BODY), hub.propose("bob", "two", WITH_TAGS)
    mode.settle()
    first, second = (landing.enqueue(hub.world, pull.number, "carol") for pull in (one, two))
    mode.settle()
    assert hub.status(first.head, "plan").startswith("success")
    assert hub.status(second.head, "plan").startswith("failure")
    assert landing.settle_queue(hub.world) == [one.number]
    mode.settle()
    assert hub.status(first.head, "apply").startswith("success")


def test_an_edited_comment_is_no_command(planned: Mode) -> None:
    hub = planned.hub
    pull = hub.world.pull(1)
    comment = hub.say("carol", pull.number, "What does it do?")
    planned.settle()
    hub.world.edit("carol", comment.id, "/gitops retry")
    planned.settle()
    assert comment.reactions == []


HEAD = re.compile(r"approval ([0-9a-f]{12})")


def _place(loop: Loop, commit: str) -> Mapping[str, str]:
    """Every forgery of a genuine approval under a name of its own; what each of them is, by its commit."""
    made = {}
    approval, statement = loop.evidence(commit)
    for number, (name, (_, forge)) in enumerate(FORGERIES.items()):
        told = replace(statement, expires_at=MUCH_LATER) if name == "longer than the rules allow" else statement
        forged = forge(loop, approval, told)
        loop.store.update_refs([RefUpdate(f"{APPROVALS}01BBBBBBBBBBBBBBBBBBBB{number:04}", ZERO, forged)])
        made[forged[:12]] = name
    return made


def test_every_forgery_is_refused_by_a_job_as_by_a_hook(with_config: WithConfig) -> None:
    runner = with_config(CAROL)
    hub = runner.hub
    hub.push("alice", "main", DELETE_LEGACY)
    (waiting,) = runner.settle()
    genuine = hub.approve("bob", "graph.legacy")
    (ref,) = hub.approvals()
    hub.loop.drop(ref)
    made = _place(hub.loop, genuine.commit or "")

    by_hook = hub.loop.arrived(APPROVALS + "01BBBBBBBBBBBBBBBBBBBB0000")
    again = runner.run(waiting.job)
    by_job = [line.removeprefix("gitops: ") for line in again.text.splitlines()]
    expected = {code for code, _ in FORGERIES.values()}
    assert codes(by_hook) & expected == codes(by_job) & expected == expected
    assert _told(by_hook) == _told(by_job)
    assert {made[commit]: code for code, commit in _told(by_job)} == {
        name: code for name, (code, _) in FORGERIES.items()
    }
    assert len(_told(by_job)) == len(made) == len(FORGERIES)
    assert hub.loop.graph("legacy").exists()
    assert len(hub.world.store.commit(hub.tip(LEDGER)).parents) == 1

    assert hub.approve("carol", "graph.legacy").ok
    good(runner)
    assert runner.tick("sweep").code == 0
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(hub.tip(MAIN), "apply").startswith("success")


def _told(lines: list[str]) -> set[tuple[str, str]]:
    """Code and commit of every refused approval in the lines that the bot says."""
    return {(line.split()[1], found[1]) for line in lines if (found := HEAD.search(line))}
