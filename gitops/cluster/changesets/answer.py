"""What changesets say about a merge: whether it landed, whether it failed, or whether that is still open.

Several changesets may stand for one merge: its parts, other attempts after a failure, and a later changeset that brings it in
together with others. The newest attempt counts, with all of its parts, and the worst of its parts is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from gitops.cluster.model.changeset import Changeset, ChangesetKind, ChangesetState, RuntimeState

__all__ = ["Answer", "Until", "answer", "answer_of_merge", "newest_attempt"]

_COMMITTED = frozenset({ChangesetState.COMMITTED, ChangesetState.DRAINED, ChangesetState.FINALIZED})
_OF_A_MERGE = frozenset({ChangesetKind.MERGE, ChangesetKind.RETRY})


class Answer(StrEnum):
    """What became of a changeset or a merge. NO_CHANGE: the merge has nothing for a changeset to bring in."""

    WAITING = "waiting"
    NO_CHANGE = "no_change"
    DONE = "done"
    FAILED = "failed"


class Until(StrEnum):
    """What a person waits for: that the applied state has moved, or that nothing is left to do."""

    COMMITTED = "committed"
    FINALIZED = "finalized"


def newest_attempt(records: Iterable[Changeset]) -> tuple[Changeset, ...]:
    """Of the changesets that bring a merge in, those of the newest attempt, in the order of their parts.

    Repairs of drift name the commit that they repair, and say nothing about its merge.
    """
    found = [each for each in records if each.kind in _OF_A_MERGE]
    if not found:
        return ()
    newest = max(found, key=lambda each: (each.created_at, each.attempt))
    attempt = (newest.source.merge_commit, newest.attempt)
    same = [each for each in found if (each.source.merge_commit, each.attempt) == attempt]
    return tuple(sorted(same, key=lambda each: int(each.part.partition("/")[0])))


def answer(record: Changeset, until: Until, *, require_converged: bool = False) -> Answer:
    """What became of one changeset.

    FAILED where it failed, where a member failed while the rest landed, and with `require_converged` where changes were left out.
    """
    if _failed(record, require_converged=require_converged):
        return Answer.FAILED
    good = _COMMITTED if until is Until.COMMITTED else {ChangesetState.FINALIZED}
    return Answer.DONE if record.state in good else Answer.WAITING


def answer_of_merge(parts: Sequence[Changeset], until: Until, *, require_converged: bool = False) -> Answer:
    """What became of a merge whose newest attempt these are: the worst of its parts, WAITING while one is not created yet."""
    found = {answer(each, until, require_converged=require_converged) for each in parts}
    if Answer.FAILED in found:
        return Answer.FAILED
    complete = bool(parts) and len(parts) == int(parts[0].part.partition("/")[2])
    return Answer.DONE if complete and found == {Answer.DONE} else Answer.WAITING


def _failed(record: Changeset, *, require_converged: bool) -> bool:
    if record.state is ChangesetState.FAILED:
        return True
    if record.state not in _COMMITTED:
        return False
    # What fails after the commit is tried again by later runs, until the changeset has ended.
    counted = (m for m in record.members if record.ended or not m.finishes)
    partly = bool(record.excluded) or (record.result is not None and not record.result.converged)
    lost = record.result is not None and bool(record.result.failed)
    return lost or any(m.runtime.state is RuntimeState.FAILED for m in counted) or (require_converged and partly)
