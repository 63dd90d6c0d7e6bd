"""Which failed changeset keeps a merge from being applied by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest

from gitops.bot.apply_clusters import Queue, last_step
from gitops.bot.context import EventContext
from gitops.cluster.apply.recover import INTERRUPTED
from gitops.cluster.changesets.queue import WaitingCommit
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.changeset import Changeset, ChangesetState
from tests.support.changeset_samples import commit_id, first_record

MERGE = commit_id(1)
FAILED = replace(first_record(1), state=ChangesetState.FAILED, error="its schema has a type that no migration gives it")


@dataclass
class _Ledger:
    """The changesets of one merge."""

    records: tuple[Changeset, ...]

    def changeset_of(self, commit: str) -> tuple[str, ...]:
        return tuple(each.key for each in self.records if commit in each.commits)

    def changeset(self, key: str) -> Changeset:
        return next(each for each in self.records if each.key == key)


def failed_one(*records: Changeset, touches: bool = True) -> Changeset | None:
    ledger = _Ledger(records)
    context = SimpleNamespace(repository=SimpleNamespace(ledger=lambda _: ledger))
    queue = Queue((WaitingCommit(MERGE, touches),), frozenset(), MERGE, None)
    step, found = last_step(cast(EventContext, context), ClusterRule("library", "."), queue)
    assert (step.commit, step.covers) == (MERGE, (MERGE,) if touches else ())
    return found


def test_a_changeset_that_failed_waits_for_a_person() -> None:
    assert failed_one(FAILED) == FAILED


@pytest.mark.parametrize(
    "record",
    [
        replace(FAILED, error=INTERRUPTED),
        replace(FAILED, atomic=False),
        replace(FAILED, state=ChangesetState.FINALIZED, error=None),
    ],
    ids=["its run was stopped", "it is not atomic", "it landed"],
)
def test_any_other_changeset_keeps_no_merge_waiting(record: Changeset) -> None:
    assert failed_one(record) is None


def test_one_part_that_failed_counts_beside_one_whose_run_was_stopped() -> None:
    stopped = replace(FAILED, key="chs-other", part="1/2", error=INTERRUPTED)
    failed = replace(FAILED, part="2/2")
    assert failed_one(stopped, failed) == failed


def test_a_merge_that_does_not_touch_the_cluster_has_no_changeset() -> None:
    assert failed_one(FAILED, touches=False) is None
