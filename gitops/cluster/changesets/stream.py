"""The stream of a cluster's changesets: what a reader gets that asks again and again for what is new.

1. A reader without a position gets `full_state` first: the applied state, and the changesets that are not ended.
2. Afterwards it gets each event once, in the order in which they were recorded, however many were recorded between two readings.
3. A position that cannot be continued, because events after it were pruned or because it belongs to another ledger, gives
   `full_state` again: the reader has to forget what it knew.
4. `more` is true for all of a first answer but its last item. What comes later is live, and `more` is false.

The position of a reader is the `seq` of the newest reading that it got.
Source: the design note on schema changesets, its pull call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Changeset, ChangesetEvent, Happening
from gitops.core.dataclass import dataclass

__all__ = ["FullState", "StreamItem", "StreamReading", "pull"]


@dataclass(frozen=True, slots=True)
class FullState:
    """`full_state`: the applied state by the digests of its resources, and the changesets that a reader has to know."""

    state_revision: int
    config_digest: str | None
    resources: Mapping[Address, str]
    changesets: tuple[Changeset, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamReading:
    """One coherent reading of a ledger: its full state after event `seq`, and events up to that one, oldest first."""

    cluster: str
    seq: int
    at: str
    state: FullState
    events: tuple[ChangesetEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One item of a stream. `changeset` is None for a full state, whose `seq` is that of the newest event in it."""

    seq: int
    at: str
    cluster: str
    changeset: str | None
    what: FullState | Happening
    more: bool = False


def pull(
    reading: StreamReading, after: int | None, keys: Collection[str] | None = None, *, first: bool = False
) -> tuple[StreamItem, ...]:
    """What a reader gets whose position is `after`, None for one without; its next position is `reading.seq`.

    `reading.events` are those after its position, of all changesets; `keys` selects those of some. `first` says that the reader
    asks for the first time.
    """
    if after is None or not _continues(reading, after):
        return (StreamItem(reading.seq, reading.at, reading.cluster, None, reading.state),)
    new = [each for each in reading.events if each.seq > after and (keys is None or each.changeset in keys)]
    return tuple(
        StreamItem(each.seq, each.at, each.cluster, each.changeset, each.happening, more=first and number < len(new))
        for number, each in enumerate(new, start=1)
    )


def _continues(reading: StreamReading, after: int) -> bool:
    """Whether the reading has every event after a position: they are numbered without gaps."""
    return [each.seq for each in reading.events if each.seq > after] == list(range(after + 1, reading.seq + 1)) and (
        after <= reading.seq
    )
