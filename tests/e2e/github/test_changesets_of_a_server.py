"""Changesets of a server that hears of merges by webhook. The numbers are those of the scenarios of the design note."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.cluster.model.changeset import Changeset, ChangesetState
from tests.e2e.github.stories import REWORDED, WITH_BODY, audit
from tests.support.forges.hub import Hub
from tests.support.forges.served import ServeHost, webhook
from tests.support.loop import CLUSTER_YAML, FILES, LEDGER, Loop
from tests.support.loop_data import load, schema
from tests.support.paused import Pause
from tests.support.serve_process import ServeProcess

pytestmark = [pytest.mark.e2e, pytest.mark.journey, pytest.mark.slow]

TOKEN = "r" * 32
OTHER_WORDS = {"cluster/notes.gq": REWORDED["cluster/notes.gq"].replace(b"$note", b"$other")}


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


@pytest.fixture(scope="session")
def failed_once(on_github: Loop, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """Built once, never changed: a server could not apply request 1, because one of its two graphs was in the way."""
    folder = tmp_path_factory.mktemp("failed-once")
    with Hub.of(on_github.copied(folder / "loop")) as hub:
        story = Story(hub, folder / "host")
        with story.host.serve() as server:
            hub.propose("alice", "extra", {**_declaring("extra"), **WITH_BODY})
            story.deliver(server)
            # Behind the back of the control plane: the plan of the request cannot know of it.
            shutil.copytree(hub.loop.graph("legacy"), hub.loop.graph("extra"))
            hub.merge("carol", 1)
            story.deliver(server)
            assert server.stop() == 0
    return hub


@pytest.fixture
def after_failure(failed_once: Hub, tmp_path: Path) -> Iterator[Story]:
    with failed_once.copied(tmp_path / "failed") as hub:
        yield Story(hub, tmp_path / "host")


@pytest.fixture
def story(hub: Hub, tmp_path: Path) -> Story:
    return Story(hub, tmp_path / "host")


def test_3_a_merge_that_fails_changes_nothing_and_people_read_which_change_failed(after_failure: Story) -> None:
    hub = after_failure.hub
    merge, loop = hub.tip(), hub.loop
    (record,) = _changesets(loop, merge)
    assert (record.state, record.covers) == (ChangesetState.FAILED, (merge,))
    assert "graph.extra" in (record.error or "")
    local = loop.local()
    state = local.ledger(local.rule()).view().state
    assert state is not None
    assert state.applied_digest == record.base.applied_digest
    assert schema(loop, "notes") == FILES["cluster/notes.pg"]
    assert hub.status(merge, "apply") == "failure: nothing is applied; graph_create_failed at graph.extra"
    assert hub.status(merge, "changeset").startswith(f"failure: {record.key} failed, nothing of it is applied: ")
    comment = hub.comment(1)
    assert "failed, nothing is applied, 1 error**" in comment
    assert "- **error** `graph_create_failed` at `graph.extra`: " in comment
    assert "- Merge a fix: the next merge applies the changes of this one, too." in comment
    assert audit(loop).startswith("audit good")


def test_4_the_merge_of_the_fix_brings_in_both(after_failure: Story) -> None:
    hub = after_failure.hub
    failed = hub.tip()
    with after_failure.host.serve() as server:
        fix = hub.propose("bob", "other-name", _declaring("more"))
        hub.merge("carol", fix.number)
        after_failure.deliver(server)
        assert server.stop() == 0
    (record,) = _changesets(hub.loop, hub.tip())
    assert (record.state, record.covers) == (ChangesetState.FINALIZED, (failed, hub.tip()))
    assert schema(hub.loop, "notes") == WITH_BODY["cluster/notes.pg"]
    assert hub.loop.graph("more").exists()
    assert hub.status(hub.tip(), "apply") == "success: 3 applied"
    assert hub.status(hub.tip(), "changeset").startswith(f"success: {record.key} ")
    assert "`schema.notes`" in hub.comment(fix.number)
    # The newest changeset that stands for the merge that failed is the one that brought it in.
    assert [each.state for each in _changesets(hub.loop, failed)] == [ChangesetState.FINALIZED, ChangesetState.FAILED]


def test_16_a_webhook_that_comes_again_gives_no_second_changeset(after_failure: Story) -> None:
    hub = after_failure.hub
    made = _changesets(hub.loop, hub.tip())
    before = (hub.tip(LEDGER), hub.comments(1))
    events = len(hub.world.happenings)
    # The queue of this server is new, so it knows none of these events.
    with after_failure.host.serve() as server:
        assert 202 in after_failure.deliver(server, again=events)
        assert server.log.until(f"gitops changeset retry {made[0].key}")
        assert set(after_failure.deliver(server, again=events)) == {200}
        assert server.stop() == 0
    assert _changesets(hub.loop, hub.tip()) == made
    assert (hub.tip(LEDGER), hub.comments(1)) == before


def test_17_a_retry_is_a_changeset_of_its_own_and_the_failed_one_stays(after_failure: Story) -> None:
    hub = after_failure.hub
    (failed,) = _changesets(hub.loop, hub.tip())
    shutil.rmtree(hub.loop.graph("extra"))
    with after_failure.host.serve() as server:
        after_failure.say(server, 1, "/gitops retry")
        again, first = _changesets(hub.loop, hub.tip())
        assert (again.state, again.retry_of, again.attempt) == (ChangesetState.FINALIZED, failed.key, 2)
        assert first == failed
        assert hub.status(hub.tip(), "changeset").startswith(f"success: {again.key} ")
        assert ", converged**" in hub.comment(1)
        assert "- **`ADDS`** `graph.extra`\n" in hub.comment(1)
        after_failure.say(server, 1, "/gitops retry")
        assert server.log.until(
            f"nothing is left to retry: commit {hub.tip()[:12]} is applied with changeset {again.key}"
        )
        assert server.stop() == 0
    assert len(_changesets(hub.loop, hub.tip())) == 2
    assert hub.loop.graph("extra").exists()
    assert audit(hub.loop).startswith("audit good")


def test_15_a_merge_that_brings_nothing_is_answered_without_a_changeset(story: Story, tmp_path: Path) -> None:
    hub, tokens = story.hub, tmp_path / "tokens"
    tokens.write_text(f"ci read {TOKEN}\n")
    with story.host.serve("--api-tokens", str(tokens)) as server:
        for number, path in enumerate(("README.md", "cluster/README.md"), start=1):
            hub.propose("alice", f"words-{number}", {path: b"Other words.\n"})
            merge = hub.merge("carol", number)
            story.deliver(server)
            assert _changesets(hub.loop, merge) == []
            status, form = server.ask("GET", f"brain/changesets?commit={merge}", TOKEN)
            assert (status, form["no_change"], form["changesets"]) == (200, True, [])
            assert not [s for s in hub.world.statuses if s.sha == merge and "/changeset/" in s.context]
        assert server.stop() == 0
    # The second one touches the folder of the cluster, so it is applied, with nothing to do.
    assert hub.status(merge, "apply").startswith("success")


def test_18_with_coalesce_one_changeset_brings_in_all_that_was_merged_while_no_server_ran(
    story: Story, tmp_path: Path
) -> None:
    hub, tokens = story.hub, tmp_path / "tokens"
    tokens.write_text(f"ci read {TOKEN}\n")
    config = (hub.loop.file(hub.tip(), "gitops.yaml") or b"") + b"apply: {queue: coalesce}\n"
    hub.push("carol", "main", {"gitops.yaml": config})
    merges = []
    for number, files in enumerate((REWORDED, WITH_BODY, OTHER_WORDS), start=1):
        hub.propose("alice", f"topic-{number}", files)
        merges.append(hub.merge("carol", number))
    with story.host.serve("--api-tokens", str(tokens)) as server:
        story.deliver(server)
        for merge in merges:
            status, form = server.ask("GET", f"brain/changesets?commit={merge}", TOKEN)
            assert (status, len(form["changesets"])) == (200, 1)
        assert server.stop() == 0
    (record,) = _changesets(hub.loop, merges[-1])
    assert record.state is ChangesetState.FINALIZED
    assert record.covers[-3:] == tuple(merges)
    assert [_changesets(hub.loop, merge) for merge in merges] == [[record]] * 3
    assert schema(hub.loop, "notes") == WITH_BODY["cluster/notes.pg"]
    for comment in map(hub.comment, (1, 2, 3)):
        assert ", converged**" in comment
        assert "`query.notes.titles`" in comment
    assert all(hub.status(merge, "changeset").startswith(f"success: {record.key} ") for merge in merges)


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
