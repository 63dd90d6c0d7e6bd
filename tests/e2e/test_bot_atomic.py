"""A merge that fails lands nothing, people hear why and what to do, and the next merge brings in what it could not."""

from __future__ import annotations

import shutil

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.forge.events import ManualEvent, TimerEvent
from gitops.repository.results import RunResult
from tests.support.bot_stage import Stage, verdict
from tests.support.loop import CLUSTER_YAML, FILES, LEDGER, Loop, email
from tests.support.loop_data import audited, schema

pytestmark = pytest.mark.e2e

WIDER = FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    tags: [String]?")


def _declaring(graph: str) -> bytes:
    return (CLUSTER_YAML + f"  {graph}:\n    schema: legacy.pg\n").encode()


def _merged(stage: Stage, number: int) -> tuple[str, RunResult]:
    """The merge of a request and what its run came to."""
    before, tip = stage.loop.tip(), stage.land(number)
    return tip, verdict(stage.pushed(before, tip, email("carol")))


def _changesets(loop: Loop, commit: str) -> tuple[Changeset, ...]:
    local = loop.local()
    ledger = local.ledger(local.rule())
    return tuple(record for key in ledger.changeset_of(commit) if (record := ledger.changeset(key)) is not None)


def test_3_and_4_a_merge_that_fails_changes_nothing_and_the_next_one_brings_in_both(known: Loop) -> None:
    stage = Stage(known)
    before, applied, base = schema(known, "notes"), known.applied(), known.tip()
    stage.propose("alice", "extra", {"cluster/cluster.yaml": _declaring("extra"), "cluster/notes.pg": WIDER})
    # Behind the back of the control plane: the plan of the request cannot know of it.
    shutil.copytree(known.graph("legacy"), known.graph("extra"))
    failed, result = _merged(stage, 1)
    assert result is RunResult.PROBLEMS
    assert schema(known, "notes") == before
    assert known.applied().id == applied.id
    assert known.status(failed, "apply") == "failure: nothing is applied; graph_create_failed at graph.extra"
    (record,) = _changesets(known, failed)
    assert record.state is ChangesetState.FAILED
    said = f"failure: {record.key} failed, nothing of it is applied: graph.extra: graph_create_failed:"
    assert known.status(failed, "changeset").startswith(said)
    comment = known.comment(1)
    for part in (
        "failed, nothing is applied, 1 error**",
        "- **error** `graph_create_failed` at `graph.extra`: ",
        " is applied: the applied state is what it was before.",
        "- Merge a fix: the next merge applies the changes of this one, too.",
    ):
        assert part in comment
    # An event that comes again, and the sweep, do not repeat it, whatever it has announced.
    head = known.tip(LEDGER)
    assert verdict(stage.pushed(failed, failed, email("carol"))) is RunResult.WAITS
    assert verdict(stage.handle(TimerEvent())) is RunResult.WAITS
    assert known.tip(LEDGER) == head

    # By hand it is tried again, from what was applied before it.
    assert verdict(list(run_verb(stage.bot(), "apply", ManualEvent()))) is RunResult.PROBLEMS
    assert [each.source.previous_commit for each in _changesets(known, failed)] == [base, base]

    stage.propose("carol", "other-name", {"cluster/cluster.yaml": _declaring("more")}, failed)
    repaired, result = _merged(stage, 2)
    assert result is RunResult.DONE
    (landed,) = _changesets(known, repaired)
    assert (landed.covers, landed.source.previous_commit) == ((failed, repaired), base)
    assert schema(known, "notes") == WIDER
    assert known.graph("more").exists()
    assert known.status(repaired, "apply") == "success: 3 applied"
    assert known.status(repaired, "changeset").startswith("success: chs-")
    assert "`schema.notes`" in known.comment(2)
    assert audited(known).ok
