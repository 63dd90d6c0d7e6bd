"""What the status of a merge commit says of the changesets that its apply recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gitops.bot.report import apply_status, changeset_status
from gitops.cluster.model.changeset import Changeset, ChangesetResult, Excluded, Happening
from gitops.cluster.model.outcome import ApplyOutcome, StateObservations
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.forge.port import CheckState
from gitops.repository.results import RunResult
from tests.support.changeset_stories import QUERY, after, created, failed, landed, removing

_WAITS = created(excluded=(Excluded(QUERY, "blocked", "approval_required"),))
_FIRST, _SECOND = created(part="1/2"), created(part="2/2")
_PARTLY = ChangesetResult(2, converged=False, no_change=False, counts={}, duration_ms=5, failed=(QUERY,))


def _story(record: Changeset, happenings: Sequence[Happening], **facts: object) -> Changeset:
    return replace(after(record, happenings), **facts)


def _landed(record: Changeset, **facts: object) -> Changeset:
    return _story(record, landed(record), **facts)


@pytest.mark.parametrize(
    ("parts", "state", "text"),
    [
        ([_landed(created())], CheckState.SUCCESS, " is applied"),
        ([_landed(_WAITS)], CheckState.SUCCESS, " is applied, 1 left out"),
        ([_landed(created(), result=_PARTLY)], CheckState.FAILURE, f" is applied without {QUERY}"),
        (
            [_story(created(), failed(created()))],
            CheckState.FAILURE,
            " failed, nothing of it is applied: query.brain.find: storage_failed: the disk is full",
        ),
        (
            [_story(created(), landed(created())[:3])],
            CheckState.PENDING,
            " is interrupted, the next apply goes on with it",
        ),
        (
            [_story(removing(), landed(removing())[:6])],
            CheckState.SUCCESS,
            " is applied, and what is left to do is tried again by every later apply",
        ),
        ([_landed(_FIRST), _landed(_SECOND)], CheckState.SUCCESS, ", part 2/2, is applied"),
        ([_landed(_SECOND)], CheckState.SUCCESS, ", part 2/2, is applied"),
        ([_landed(_FIRST)], CheckState.PENDING, ", part 1/2, is applied"),
        (
            [_landed(_FIRST), _story(_SECOND, failed(_SECOND))],
            CheckState.FAILURE,
            ", part 2/2, failed, nothing of it is applied: query.brain.find: storage_failed: the disk is full",
        ),
    ],
)
def test_the_status_of_a_changeset_names_the_one_that_decides(
    parts: list[Changeset], state: CheckState, text: str
) -> None:
    assert changeset_status(parts) == (state, parts[-1].key + text)


def test_the_status_of_an_apply_names_what_failed_first() -> None:
    problems = Diagnostics()
    problems.add(Code.GRAPH_CREATE_FAILED, "graph.beta", "another graph is there")
    problems.add(Code.CHANGESET_ROLLED_BACK, created().key, "nothing of it is applied")
    outcome = ApplyOutcome(config_dir=".", observations=StateObservations(), diagnostics=tuple(problems), counted=False)
    found = (
        CheckState.FAILURE,
        "0 applied; graph_create_failed at graph.beta",
        RunResult.PROBLEMS,
    )
    assert apply_status(outcome) == found
    whole = replace(outcome, changesets=(_story(created(), failed(created())),))
    assert apply_status(whole)[1] == "nothing is applied; graph_create_failed at graph.beta"
