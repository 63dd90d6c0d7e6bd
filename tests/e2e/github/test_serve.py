"""`gitops bot serve` as a process against GitHub: killed anywhere, it has done everything once when it has run again."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.cli.served import ServedRepository
from gitops.cluster.changesets.stream import FullState
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.core.cancel import Cancellation
from gitops.core.errors import UsageError
from gitops.core.faults import NoFaults
from gitops.forge.events import TimerEvent
from gitops.git.port import ZERO
from gitops.repository.wiring.system import SystemClock
from gitops.server.api import EventStream
from gitops.server.queue import EventQueue
from gitops.server.shared import StopSignal
from tests.e2e.github.stories import REWORDED, WITH_BODY, audit
from tests.support.changeset_stories import AT, created, landed, record
from tests.support.forges.hub import Hub, token_of
from tests.support.forges.records import Happening
from tests.support.forges.served import ServeHost, as_server, webhook
from tests.support.loop import CLUSTER_YAML, LEDGER, MAIN, ROOT, Loop
from tests.support.loop_data import load, schema
from tests.support.paused import Pause
from tests.support.serve_process import ServeProcess
from tests.support.serving import SECRET

pytestmark = [pytest.mark.e2e, pytest.mark.journey]


@pytest.fixture
def host(through_the_gate: Hub, tmp_path: Path) -> Iterator[ServeHost]:
    """Request 1 deletes a graph and is approved; no server has run yet."""
    with through_the_gate.copied(tmp_path / "ready") as hub:
        yield ServeHost(hub, tmp_path / "host")


def merged(hub: Hub) -> Happening:
    """Press the button; returns the push of it."""
    before = len(hub.world.happenings)
    hub.merge("carol", 1)
    pushes = [h for h in hub.world.happenings[before:] if h.name == "push" and h.payload["ref"] == MAIN]
    assert [push.payload["after"] != ZERO for push in pushes] == [True]
    return pushes[0]


def applied_once(hub: Hub) -> None:
    """The merge had all its effects, each of them once."""
    tip = hub.tip()
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")
    assert [d.sha for d in hub.world.deployments.values()] == [tip]
    assert len(hub.comments(1)) == 1
    store, applied, entry = hub.loop.store, 0, hub.tip(LEDGER)
    while entry:
        commit = store.commit(entry)
        applied += commit.message.startswith("apply(") and f"Merge-Commit: {tip}" in commit.message
        entry = commit.parents[0] if commit.parents else ""
    assert applied == 1
    assert hub.world.tip("refs/gitops/locks/brain") is None
    assert audit(hub.loop).startswith("audit good")


POINTS = [
    # The forge had no answer, and delivers again.
    pytest.param("server.queue.before_accept", None, marks=pytest.mark.slow),
    # The event is on disk, the forge does not know it.
    pytest.param("server.queue.after_accept", None),
    # EnqueueResult, and not begun, or done without a word in the queue.
    pytest.param("server.worker.before_handle", 202, marks=pytest.mark.slow),
    pytest.param("server.worker.after_handle", 202, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("point", "answer"), POINTS)
def test_killed_anywhere_it_is_done_once_in_the_end(host: ServeHost, point: str, answer: int | None) -> None:
    push = webhook(merged(host.hub))
    with host.serve(point=point) as first:
        found = first.post(push.headers, push.body)
        assert first.ended() == -signal.SIGKILL
        # An answer may have been on its way.
        assert found in (None, answer)
    with host.serve() as second:
        again = second.post(push.headers, push.body)
        assert again == (202 if point == "server.queue.before_accept" else 200)
        second.log.until(": done")
        assert second.stop() == 0
    applied_once(host.hub)
    assert host.listed() == []


@pytest.mark.slow
def test_stopped_in_an_apply_it_starts_nothing_more_and_handles_the_event_again(
    host: ServeHost, tmp_path: Path
) -> None:
    push, pause = webhook(merged(host.hub)), Pause(tmp_path / "pause")
    # The intent of the delete is published; the delete itself has not begun.
    with host.serve(point="ledger.branch.after_push", pause=pause) as first:
        assert first.post(push.headers, push.body) == 202
        pause.reached()
        first.process.send_signal(signal.SIGTERM)
        first.log.until("stopping")
        pause.go_on()
        assert first.ended() == 0
        assert first.log.until("apply_interrupted")
        assert first.log.until("released")
    assert host.hub.loop.graph("legacy").exists()
    with host.serve() as second:
        second.log.until(": done")
        assert second.stop() == 0
    assert not host.hub.loop.graph("legacy").exists()
    assert host.hub.status(host.hub.tip(), "apply").startswith("success")
    assert host.listed() == []


def test_killed_in_an_apply_it_goes_on_when_a_person_has_removed_the_lock(host: ServeHost) -> None:
    """No lock is ever broken by itself: the merged request names the one that the dead server left, and a person removes it."""
    hub = host.hub
    push = webhook(merged(hub))
    with host.serve(point="ledger.branch.after_push") as first:
        first.post(push.headers, push.body)
        assert first.ended() == -signal.SIGKILL
    assert "ready to merge" in hub.comment(1)
    with host.serve() as second:
        second.log.until(": done")
        found = re.search(r"\n(/gitops unlock [0-9A-Z]{26})\n", hub.comment(1))
        assert found is not None, hub.comment(1)
        assert "interrupted or still running" in hub.comment(1)
        assert "ready to merge" not in hub.comment(1)
        assert hub.loop.graph("legacy").exists()
        hub.say("carol", 1, found[1])
        command = webhook(hub.world.happenings[-1])
        assert second.post(command.headers, command.body) == 202
        second.log.until(": done", 2)
        assert second.stop() == 0
    applied_once(hub)
    assert host.listed() == []


def test_a_server_stops_when_it_is_asked_to(host: ServeHost) -> None:
    with host.serve() as server:
        server.port()
        assert server.stop() == 0
        assert server.log.until("stopped")
    with host.serve("--every", "1h") as server:
        server.log.until("timer")
        assert server.stop() == 0
    assert host.listed() == []


def test_what_waits_for_a_repository_that_is_not_served_any_more_is_given_up(host: ServeHost) -> None:
    queue = EventQueue(host.queue, SystemClock())
    queue.open_owned()
    queue.enqueue("github:octo/gone", TimerEvent())
    queue.close()
    with host.serve() as server:
        server.log.until("given up after 1 attempt")
        assert server.stop() == 0
    (failed,) = host.listed()
    assert failed["reason"] == "queue_event_invalid: github:octo/gone is no longer served"


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"GITOPS_TOKEN": ""}, "github", "set GITOPS_TOKEN"),
        ({}, None, "name it: --forge"),
        ({"GIT_CONFIG_GLOBAL": "/dev/null"}, "github", "user.name"),
    ],
)
def test_a_set_up_with_a_gap_is_not_served(
    host: ServeHost, change: dict[str, str], kind: str | None, words: str
) -> None:
    with pytest.raises(UsageError) as failure:
        ServedRepository(
            str(host.clone), "origin", kind, host.environ | change, StopSignal().pause, Cancellation(), NoFaults()
        )
    assert failure.value.code in ("usage_error", "actor_required")
    assert words in f"{failure.value.detail}; {failure.value.fix}"


def test_a_queue_has_one_server(host: ServeHost) -> None:
    with host.serve() as first:
        first.port()
        with host.serve() as second:
            assert second.ended() == 1
            second.log.until("queue_in_use")


def test_what_could_not_be_told_is_told_later(hub: Hub, tmp_path: Path) -> None:
    """A rate limit on comments changes no outcome; the server says it once it may, and says nothing twice."""
    with as_server(hub, tmp_path / "bot") as bot:
        hub.server.fault_next(r"(GET|POST|PATCH) .*/comments", status=403, headers={"Retry-After": "600"})
        pull = hub.propose("alice", "reword", REWORDED)
        bot.settle()
        bot.server.log.until("will be retried")
        assert hub.status(pull.head, "plan") == "success: 1 change"
        assert len(hub.comments(pull.number)) == 1
        assert bot.server.left() == ()


def test_no_secret_leaves_the_server(host: ServeHost) -> None:
    push = webhook(merged(host.hub))
    with host.serve("--metrics") as server:
        assert server.post(push.headers, push.body) == 202
        server.log.until(": done")
        assert server.stop() == 0
        said = "\n".join(server.log.lines)
    for secret in (SECRET, token_of("github-actions[bot]")):
        assert secret not in said
        assert secret.encode() not in host.queue.read_bytes()
        config = (host.clone / "config").read_text()
        assert secret not in config
    assert str(ROOT) not in said


def test_a_program_asks_for_a_merge_whose_webhook_was_lost_and_follows_it(host: ServeHost, tmp_path: Path) -> None:
    token, tokens = "w" * 32, tmp_path / "tokens"
    tokens.write_text(f"deploy write {token}\n")
    merged(host.hub)
    tip = host.hub.tip()
    with host.serve("--api-tokens", str(tokens)) as server:
        status, form = server.ask("GET", "brain/schema", token)
        assert (status, "graph.legacy" in form["resources"], form["changesets"]) == (200, True, [])
        position = form["seq"]
        with server.followed("brain/events?wait=25", token) as items:
            assert next(items)["type"] == "full_state"
            status, form = server.ask("POST", "brain/changesets", token, {"commit": tip})
            assert (status, form["created"]) == (202, True)
            (key,) = form["changesets"]
            types = {}
            while "changeset_finalized" not in types:
                item = next(items)
                types[item["type"]] = item["changeset"]
        assert set(types.values()) == {key}
        server.log.until("deploy asks for brain")
        server.log.until(": done")
        assert server.ask("POST", "brain/changesets", token, {"commit": tip})[1]["changesets"] == [key]
        status, form = server.ask("GET", f"brain/changesets/{key}", token)
        assert (status, form["changeset"]["state"]) == (200, "finalized")
        assert server.ask("GET", "brain/schema", token)[1]["seq"] > position
        assert server.ask("POST", "brain/changesets", token, {"commit": "f" * 40})[0] == 409
        assert server.ask("GET", "brian/schema", token)[0] == 404
        assert server.ask("GET", "brain/schema", "x" * 32)[0] == 401
        assert server.stop() == 0
        assert token not in "\n".join(server.log.lines)
    applied_once(host.hub)


def test_a_stream_hears_of_entries_that_another_machine_writes(host: ServeHost) -> None:
    served = ServedRepository(
        str(host.clone), "origin", "github", host.environ, StopSignal().pause, Cancellation(), NoFaults()
    )
    cluster = served.cluster("brain")
    assert cluster is not None
    stream = EventStream(cluster, lambda: AT, None, None)
    (full,) = stream.poll()
    assert isinstance(full.what, FullState)
    made = created()
    record(host.hub.loop, made, landed(made)[:3])
    assert [(each.seq - full.seq, each.changeset) for each in stream.poll()] == [(n, made.key) for n in (1, 2, 3)]
    assert stream.poll() == ()


def _declaring(graph: str) -> dict[str, bytes | None]:
    return {"cluster/cluster.yaml": (CLUSTER_YAML + f"  {graph}:\n    schema: legacy.pg\n").encode()}


class Story:
    """A hub, the machine of its server, and how far what happened on the hub has been delivered."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub, self.host = hub, ServeHost(hub, folder)
        self._seen = len(hub.world.happenings)

    def deliver(self, server: ServeProcess, *, again: int = 0) -> list[int | None]:
        """Send what has happened since the last time, or the newest events `again`, and wait until each is handled."""
        happened = self.hub.world.happenings
        new, self._seen = happened[self._seen - again :], len(happened)
        answers = []
        for sent in map(webhook, new):
            answers.append(server.post(sent.headers, sent.body))
            if answers[-1] == 202:
                server.log.when(self.host.idle)
        assert set(answers) <= {200, 202}
        return answers

    def say(self, server: ServeProcess, number: int, text: str) -> None:
        """Comment on a request as carol, and let the server answer."""
        self.hub.say("carol", number, text)
        self.deliver(server)


def _changesets(loop: Loop, commit: str) -> list[Changeset]:
    """Those that stand for a merge."""
    local = loop.local()
    ledger = local.ledger(local.rule())
    return [record for key in ledger.changeset_of(commit) if (record := ledger.changeset(key)) is not None]


@pytest.fixture
def story(hub: Hub, tmp_path: Path) -> Story:
    return Story(hub, tmp_path / "host")


@pytest.mark.slow
def test_21_what_could_not_be_deleted_yet_keeps_out_merges_that_touch_it_and_no_others(
    through_the_gate: Hub, tmp_path: Path
) -> None:
    with through_the_gate.copied(tmp_path / "ready") as hub:
        story, pause = Story(hub, tmp_path / "host"), Pause(tmp_path / "pause")
        deleting = hub.merge("carol", 1)
        with story.host.serve(point="changeset.commit.after_write", pause=pause) as server:
            push = webhook(next(h for h in reversed(hub.world.happenings) if h.name == "push"))
            assert server.post(push.headers, push.body) == 202
            pause.reached()
            # The approval was for the graph as it was.
            load(hub.loop, 1)
            pause.go_on()
            server.log.until(": done")
            (open_one,) = _changesets(hub.loop, deleting)
            assert (open_one.state, open_one.needs_attention) == (ChangesetState.DRAINED, True)
            assert hub.status(deleting, "changeset").startswith(f"success: {open_one.key} ")
            remedy = f"remove `{hub.loop.graph('legacy')}`, then apply again"
            assert remedy in hub.comment(1)

            story.deliver(server)
            other = hub.propose("alice", "reword", REWORDED)
            merge = hub.merge("carol", other.number)
            story.deliver(server)
            (record,) = _changesets(hub.loop, merge)
            assert record.state is ChangesetState.FINALIZED
            assert hub.status(merge, "changeset").startswith(f"success: {record.key} ")

            back = hub.propose("bob", "back", {"cluster/cluster.yaml": CLUSTER_YAML.encode()})
            refused = hub.merge("carol", back.number)
            story.deliver(server)
            assert hub.status(refused, "apply").startswith("failure")
            comment = hub.comment(back.number)
            for part in (f"changeset `{open_one.key}` is not finished", remedy, "reported for `graph.legacy`"):
                assert part in comment
            # The approver is the author of a change that needs no approval.
            assert "approval_self" not in comment
            assert _changesets(hub.loop, refused) == []
            (same,) = _changesets(hub.loop, deleting)
            assert same.state is ChangesetState.DRAINED

            # What the comment says helps.
            shutil.rmtree(hub.loop.graph("legacy"))
            story.say(server, back.number, "/gitops retry")
            assert hub.status(refused, "apply").startswith("success")
            assert server.stop() == 0
        (same,) = _changesets(hub.loop, deleting)
        assert same.state is ChangesetState.FINALIZED
        assert hub.loop.graph("legacy").exists()


@pytest.mark.slow
def test_10_a_server_that_dies_while_it_prepares_goes_on_with_the_same_changeset(story: Story) -> None:
    hub = story.hub
    hub.propose("alice", "extra", {**_declaring("extra"), **WITH_BODY})
    merge = hub.merge("carol", 1)
    push = webhook(next(h for h in reversed(hub.world.happenings) if h.name == "push"))
    # The graph is there, and no entry of the ledger says so.
    with story.host.serve(point="engine.create.after_publish") as first:
        first.post(push.headers, push.body)
        assert first.ended() == -signal.SIGKILL
    (begun,) = _changesets(hub.loop, merge)
    assert begun.state is ChangesetState.PREPARING
    with story.host.serve() as second:
        second.log.until(": done")
        (held,) = second.log.until("already running")
        found = re.search(r"force-unlock ([0-9A-Z]{26})", held)
        assert found is not None
        story.deliver(second)
        story.say(second, 1, f"/gitops unlock {found[1]}")
        assert second.stop() == 0
    (record,) = _changesets(hub.loop, merge)
    assert (record.key, record.state, record.retry_of) == (begun.key, ChangesetState.FINALIZED, None)
    assert hub.loop.graph("extra").exists()
    assert schema(hub.loop, "notes") == WITH_BODY["cluster/notes.pg"]
    assert hub.status(merge, "changeset").startswith(f"success: {record.key} ")
    assert " · converged**" in hub.comment(1)
    assert "- **`ADDS`** `graph.extra`\n" in hub.comment(1)
    assert audit(hub.loop).startswith("audit good")


def test_an_event_goes_before_the_plans_that_follow_from_a_merge(hub: Hub, tmp_path: Path) -> None:
    story, pause = Story(hub, tmp_path / "host"), Pause(tmp_path / "pause")
    first, second, third = (
        hub.propose("alice", name, files)
        for name, files in (("one", WITH_BODY), ("two", REWORDED), ("three", _declaring("extra")))
    )
    with story.host.serve() as server:
        story.deliver(server)
    hub.merge("carol", first.number)
    push = webhook(next(h for h in reversed(hub.world.happenings) if h.name == "push"))
    with story.host.serve(point="server.worker.after_handle", pause=pause) as server:
        server.post(push.headers, push.body)
        pause.reached()
        # The merge is applied, and none of the other two requests has been planned again.
        hub.say("carol", second.number, "/gitops plan")
        command = webhook(hub.world.happenings[-1])
        assert server.post(command.headers, command.body) == 202
        pause.go_on()
        server.log.when(story.host.idle)
    begun = [
        found[1] for line in server.log.lines if (found := re.search(r" #\d+: (push|comment \d+|replan \d+)", line))
    ]
    assert begun == ["push", f"comment {second.number}", f"replan {third.number}", f"replan {second.number}"]
    assert hub.status(third.head, "plan").startswith("success")
