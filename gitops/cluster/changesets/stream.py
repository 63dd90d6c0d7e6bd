"""The stream of a cluster's changesets, for readers that poll for news.

1. A reader without a position first gets `full_state`: the applied state, and the changesets that have not ended.
2. Afterwards it gets each event once, in the order in which they were recorded, however many were recorded between two readings.
3. If a position cannot be continued, because later events were pruned or it belongs to another ledger, the reader gets
   `full_state` again and must discard its state.
4. `more` is true for all items of a first response except the last. Later items are live, and `more` is false.

The position of a reader is the `seq` of its newest reading. Source: the pull call in the design note on schema
changesets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetEvent,
    ChangesetKind,
    ChangesetState,
    Happening,
    RuntimeState,
)
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FullState:
    """`full_state`: the digests of the applied resources, and the changesets that a new reader needs."""

    state_revision: int
    config_digest: str | None
    resources: Mapping[Address, str]
    changesets: tuple[Changeset, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamReading:
    """A consistent view of a ledger: its full state after event `seq`, and the events up to that one, oldest first."""

    cluster: str
    seq: int
    at: str
    state: FullState
    events: tuple[ChangesetEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One item of a stream. A full state has no `changeset`, and its `seq` is the number of the newest event."""

    seq: int
    at: str
    cluster: str
    changeset: str | None
    what: FullState | Happening
    more: bool = False


def pull(
    reading: StreamReading, after: int | None, keys: Collection[str] | None = None, *, first: bool = False
) -> tuple[StreamItem, ...]:
    """Return the items for a reader at position `after`, which is None if the reader has no position yet.

    Its next position is `reading.seq`.

    `reading.events` are the events after its position, of all changesets; `keys` selects changesets. `first` is true
    for the reader's first request.
    """
    if after is None or not _continues(reading, after):
        return (StreamItem(reading.seq, reading.at, reading.cluster, None, reading.state),)
    new = [each for each in reading.events if each.seq > after and (keys is None or each.changeset in keys)]
    return tuple(
        StreamItem(each.seq, each.at, each.cluster, each.changeset, each.happening, more=first and number < len(new))
        for number, each in enumerate(new, start=1)
    )


def _continues(reading: StreamReading, after: int) -> bool:
    """Return True if the reading contains all events after a position. Events are numbered without gaps."""
    return [each.seq for each in reading.events if each.seq > after] == list(range(after + 1, reading.seq + 1)) and (
        after <= reading.seq
    )


# -- The result of a merge according to its changesets: landed, failed, or still open ----------------------------------
#
# A merge can have several changesets: its parts, further attempts after a failure, and a later changeset that applies
# it together with others. Only the newest attempt counts, with all its parts, and the worst part determines the result.


_COMMITTED = frozenset({ChangesetState.COMMITTED, ChangesetState.DRAINED, ChangesetState.FINALIZED})
_OF_A_MERGE = frozenset({ChangesetKind.MERGE, ChangesetKind.RETRY})


class ChangesetAnswer(StrEnum):
    """A changeset's or merge's outcome. NO_CHANGE means that the merge changes nothing that a changeset applies."""

    WAITING = "waiting"
    NO_CHANGE = "no_change"
    DONE = "done"
    FAILED = "failed"


class Until(StrEnum):
    """The state that ends a wait: the applied state has changed, or nothing is left to do."""

    COMMITTED = "committed"
    FINALIZED = "finalized"


def newest_attempt(records: Iterable[Changeset]) -> tuple[Changeset, ...]:
    """Return the changesets of a merge's newest attempt, in the order of their parts.

    Drift repairs refer to the commit that they repair, but are not part of its merge. A changeset that was prepared beside
    others and rolled back before its turn is not an attempt: the merge still waits.
    """
    found = [each for each in records if each.kind in _OF_A_MERGE and not each.untried]
    if not found:
        return ()
    newest = max(found, key=lambda each: (each.created_at, each.attempt))
    attempt = (newest.source.merge_commit, newest.attempt)
    same = [each for each in found if (each.source.merge_commit, each.attempt) == attempt]
    return tuple(sorted(same, key=lambda each: int(each.part.partition("/")[0])))


def answer(record: Changeset, until: Until, *, require_converged: bool = False) -> ChangesetAnswer:
    """Return one changeset's outcome.

    FAILED if it failed, if a member failed while the rest was applied, and with `require_converged` if changes were left
    out.
    """
    if _failed(record, require_converged=require_converged):
        return ChangesetAnswer.FAILED
    good = _COMMITTED if until is Until.COMMITTED else {ChangesetState.FINALIZED}
    return ChangesetAnswer.DONE if record.state in good else ChangesetAnswer.WAITING


def answer_of_merge(parts: Sequence[Changeset], until: Until, *, require_converged: bool = False) -> ChangesetAnswer:
    """Return a merge's outcome from its newest attempt: the worst of its parts, or WAITING if one is missing."""
    found = {answer(each, until, require_converged=require_converged) for each in parts}
    if ChangesetAnswer.FAILED in found:
        return ChangesetAnswer.FAILED
    complete = bool(parts) and len(parts) == int(parts[0].part.partition("/")[2])
    return ChangesetAnswer.DONE if complete and found == {ChangesetAnswer.DONE} else ChangesetAnswer.WAITING


def _failed(record: Changeset, *, require_converged: bool) -> bool:
    if record.state is ChangesetState.FAILED:
        return True
    if record.state not in _COMMITTED:
        return False
    # Failures after the commit are retried by later runs until the changeset has ended.
    counted = (m for m in record.members if record.ended or not m.finishes)
    partly = bool(record.excluded) or (record.result is not None and not record.result.converged)
    lost = record.result is not None and bool(record.result.failed)
    return lost or any(m.runtime.state is RuntimeState.FAILED for m in counted) or (require_converged and partly)
