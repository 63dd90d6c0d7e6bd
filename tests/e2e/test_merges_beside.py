"""Disjoint merges are prepared side by side on a real ledger branch, and land in the order of their branch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.bot.beside import MergesBeside
from gitops.bot.dispatch import handle_event
from gitops.cluster.apply.provider import ClusterProvider
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.session.status import status
from gitops.core.faults import Faults
from gitops.forge.events import PushEvent
from gitops.render.text import to_text
from gitops.repository.results import RunResult
from gitops.repository.wiring.local import LocalRepository
from tests.support.bot_stage import QUERY, Stage, said, verdict
from tests.support.faults import Death, EndAt
from tests.support.loop import CLUSTER_YAML, FILES, MAIN
from tests.support.loop_data import audited, schema, workspace

pytestmark = pytest.mark.e2e

NOTES = FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    due: Date?")
LEGACY = FILES["cluster/legacy.pg"].replace(b"@key", b"@key\n    phone: String?")
EXTRA = {
    "cluster/cluster.yaml": (CLUSTER_YAML + "  extra:\n    schema: extra.pg\n").encode(),
    "cluster/extra.pg": b"node Thing {\n    name: String @key\n}\n",
}


@pytest.fixture
def side(stage: Stage) -> Stage:
    """A stage whose merges are prepared side by side."""
    before = stage.loop.tip()
    stage.pushed(before, stage.configure("apply: {side_by_side: disjoint}\n"))
    return stage


def _merge(stage: Stage, *changes: Mapping[str, bytes]) -> list[str]:
    """Merges of which the bot hears nothing; their commits."""
    first, found = len(stage.loop.book.requests()) + 1, []
    for number, files in enumerate(changes, start=first):
        stage.propose("alice", f"topic-{number}", dict(files), stage.loop.tip())
        found.append(stage.land(number))
    return found


def _by_merge(stage: Stage, *commits: str) -> list[list[Changeset]]:
    """The changesets of each merge, the oldest first."""
    found = list(reversed(stage.changesets()))
    return [[each for each in found if each.source.merge_commit == commit] for commit in commits]


def _require_sound(stage: Stage) -> None:
    """The ledger verifies offline, nothing is open, and nobody holds the lock."""
    ledger = stage.local.ledger(stage.local.config().cluster("brain"))
    assert audited(stage.loop).ok
    assert ledger.changesets().open == ()
    assert not ledger.observe_lock().held
    assert not ledger.intents().intents


def test_merges_that_share_nothing_are_prepared_together_and_land_in_order(side: Stage) -> None:
    before = side.loop.tip()
    one, two, three = _merge(side, {"cluster/notes.pg": NOTES}, {"cluster/legacy.pg": LEGACY}, EXTRA)
    notes = side.pushed(before, three)
    assert verdict(notes) is RunResult.DONE
    assert f"commit {two[:12]} is being prepared beside 1 earlier" in said(notes)
    (first,), (second,), (third,) = _by_merge(side, one, two, three)
    assert second.beside == (first.key,)
    assert third.beside == (first.key, second.key)
    assert {each.state for each in (first, second, third)} == {ChangesetState.FINALIZED}
    assert [each.covers for each in (first, second, third)] == [(one,), (two,), (three,)]
    assert (schema(side.loop, "notes"), schema(side.loop, "legacy")) == (NOTES, LEGACY)
    assert [side.loop.request(n).labels for n in (1, 2, 3)] == [("gitops/applied",)] * 3
    assert "prepared beside" not in side.loop.comment(1)
    assert "- prepared beside request 1\n" in side.loop.comment(2)
    _require_sound(side)


def test_a_merge_of_the_same_graph_and_what_follows_it_wait(side: Stage) -> None:
    before = side.loop.tip()
    one, two, three = _merge(
        side, {"cluster/notes.pg": NOTES}, {"cluster/notes.gq": QUERY}, {"cluster/legacy.pg": LEGACY}
    )
    assert verdict(side.pushed(before, three)) is RunResult.DONE
    assert [[each.beside for each in found] for found in _by_merge(side, one, two, three)] == [[()], [()], [()]]
    _require_sound(side)


def test_a_merge_that_arrives_meanwhile_joins(side: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job for it would find the lock held and end, because this run takes it."""
    before = side.loop.tip()
    (one,) = _merge(side, {"cluster/notes.pg": NOTES})
    arrived, shown = list[str](), list[str]()
    ready = MergesBeside.is_ready

    def look(self: MergesBeside, commit: str, seconds: float) -> bool:
        if not arrived:
            arrived.extend(_merge(side, {"cluster/legacy.pg": LEGACY}))
            assert "already running" in said(side.pushed(one, *arrived))
            return False
        shown.append(to_text(status(workspace(side.loop))))
        return ready(self, commit, seconds)

    monkeypatch.setattr(MergesBeside, "is_ready", look)
    assert verdict(side.pushed(before, one)) is RunResult.DONE
    (first,), (second,) = _by_merge(side, one, *arrived)
    assert second.beside == (first.key,)
    assert f"in progress: {first.key}, preparing, request 1\n" in shown[0]
    assert f"in progress: {second.key}, preparing, request 2, prepared beside 1 earlier\n" in shown[0]
    _require_sound(side)


def test_a_merge_lands_after_an_earlier_one_that_failed(side: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was prepared on the wrong assumption is rolled back, and the merge is applied as without it."""
    apply = ClusterProvider.apply

    def refuse(self: ClusterProvider, node: ExecNode, change: object) -> NodeResult:
        if node.id == "schema.notes":
            return NodeResult(node.id, NodeOutcome.FAILED)
        return apply(self, node, change)  # type: ignore[arg-type]

    before = side.loop.tip()
    one, two, three = _merge(side, {"cluster/notes.pg": NOTES}, {"cluster/legacy.pg": LEGACY}, EXTRA)
    with monkeypatch.context() as patched:
        patched.setattr(ClusterProvider, "apply", refuse)
        assert verdict(side.pushed(before, three)) is RunResult.PROBLEMS
    (first,), (prepared, again), (_, last) = _by_merge(side, one, two, three)
    assert first.state is ChangesetState.FAILED
    assert prepared.beside == (first.key,)
    # Each of the next ones contains the change that failed, as always.
    assert (again.state, again.covers, again.kind) == (ChangesetState.FAILED, (one, two), "merge")
    assert (last.state, last.covers, last.kind) == (ChangesetState.FAILED, (one, two, three), "merge")
    assert schema(side.loop, "legacy") == FILES["cluster/legacy.pg"]
    _require_sound(side)
    (four,) = _merge(side, {"cluster/notes.gq": QUERY})
    assert verdict(side.pushed(three, four)) is RunResult.DONE
    assert (schema(side.loop, "notes"), schema(side.loop, "legacy")) == (NOTES, LEGACY)
    _require_sound(side)


@pytest.mark.slow
@pytest.mark.parametrize("visit", [1, 3])
def test_after_a_death_anywhere_the_next_events_land_every_merge(side: Stage, tmp_path: Path, visit: int) -> None:
    """With a real branch and real graphs. The lock is given back, as a person does it after a death."""
    before = side.loop.tip()
    merges = _merge(side, {"cluster/notes.pg": NOTES}, {"cluster/legacy.pg": LEGACY}, EXTRA)
    merged = side.loop

    def run(place: str, faults: Faults) -> Stage:
        stage = replace(side, loop=merged.copied(tmp_path / place))
        local = LocalRepository(str(stage.loop.server), environ=stage.loop.environment("bot"), faults=faults)
        bot = replace(stage.bot(), repository=local, forge=local.forge())
        with suppress(Death):
            list(handle_event(bot, PushEvent(MAIN, before, merges[-1], None)))
        return stage

    whole = EndAt()
    run("whole", whole)
    points = list(dict.fromkeys(whole.reached))
    expected = {"cluster_apply.after_schema_apply", "changeset.commit.before_write", "ledger.branch.after_push"}
    assert expected.issubset(points)
    for point in points:
        stage = run(point, EndAt(point, visit))
        for _ in range(2):
            stage.pushed(before, merges[-1])
        assert (schema(stage.loop, "notes"), schema(stage.loop, "legacy")) == (NOTES, LEGACY), point
        assert stage.loop.graph("extra").exists()
        newest = [found[-1].state for found in _by_merge(stage, *merges)]
        assert newest == [ChangesetState.FINALIZED] * 3, point
        _require_sound(stage)
