"""Changesets of a server that hears of merges by webhook. The numbers are those of the scenarios of the design note."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from gitops.cluster.model.changeset import Changeset, ChangesetState
from tests.e2e.github.stories import REWORDED, WITH_BODY, audit
from tests.support.forges.hub import Hub
from tests.support.forges.served import ServeHost, webhook
from tests.support.loop import CLUSTER_YAML, Loop
from tests.support.loop_data import load, schema
from tests.support.paused import Pause
from tests.support.serve_process import ServeProcess

pytestmark = [pytest.mark.e2e, pytest.mark.journey, pytest.mark.slow]


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
            done = sum(": done" in line for line in server.log.lines)
            answers.append(server.post(sent.headers, sent.body))
            if answers[-1] == 202:
                server.log.until(": done", done + 1)
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
        story.say(second, 1, "/gitops retry")
        assert second.stop() == 0
    (record,) = _changesets(hub.loop, merge)
    assert (record.key, record.state, record.retry_of) == (begun.key, ChangesetState.FINALIZED, None)
    assert hub.loop.graph("extra").exists()
    assert schema(hub.loop, "notes") == WITH_BODY["cluster/notes.pg"]
    assert hub.status(merge, "changeset").startswith(f"success: {record.key} ")
    assert ", converged**" in hub.comment(1)
    assert "- **`ADDS`** `graph.extra`\n" in hub.comment(1)
    assert audit(hub.loop).startswith("audit good")
