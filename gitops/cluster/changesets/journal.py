"""The changeset of a run while it is written: each event is followed at once, and waits for the next write of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gitops.cluster.changesets.lifecycle import follow_all
from gitops.cluster.model.changeset import Changeset, ChangesetEvent, Created, EventDraft, Happening
from gitops.cluster.model.run_record import RunRecord
from gitops.core.errors import BugError


class Journal:
    """The record of one changeset as its run knows it, and the events that the ledger does not have yet."""

    def __init__(
        self, now: Callable[[], str], stored: Changeset | None = None, others: Sequence[EventDraft] = ()
    ) -> None:
        """`now` gives the time of an event as RFC 3339 text. `stored` is a record that the ledger has.

        `others` are events of an earlier changeset, which are written with the first events of this one.
        """
        self._now = now
        self._stored = self._record = stored
        self._others = tuple(others)
        self._drafts: list[EventDraft] = []
        self.run: Callable[[], RunRecord] | None = None
        """How the run went so far, for the write that ends it; None before it has begun."""

    @property
    def record(self) -> Changeset:
        """The record after all events so far."""
        if self._record is None:
            raise BugError("the changeset of this journal is not created")
        return self._record

    @property
    def drafts(self) -> tuple[EventDraft, ...]:
        """The events that the ledger does not have yet, in their order; with the last one of a run, how that went."""
        drafts, record = (*self._others, *self._drafts), self._record
        if self.run is None or record is None or not self._drafts or not (record.ended or record.needs_attention):
            return drafts
        return (*drafts[:-1], replace(drafts[-1], run=self.run()))

    @property
    def created(self) -> bool:
        """Whether there is a changeset at all."""
        return self._record is not None

    @property
    def recorded(self) -> bool:
        """Whether the ledger has the changeset."""
        return self._stored is not None

    def add(self, *happenings: Happening) -> None:
        """Follow events. Raises ConflictError `changeset_state_invalid` for one that may not happen now."""
        of = next((what.record for what in happenings if isinstance(what, Created)), None) or self.record
        # The ledger numbers the events when they are written; a number plays no part in what follows from them.
        events = [ChangesetEvent(0, self._now(), of.cluster, of.key, what) for what in happenings]
        if events:
            self._record = follow_all(self._record, events)
            self._drafts += [EventDraft(event.changeset, event.at, event.happening) for event in events]

    def mark(self) -> tuple[Changeset | None, int]:
        """The place to go back to if the events that follow cannot be written."""
        return self._record, len(self._drafts)

    def back_to(self, mark: tuple[Changeset | None, int]) -> None:
        """Forget the events after a mark."""
        self._record, length = mark
        del self._drafts[length:]

    def written(self) -> None:
        """The ledger has every event so far."""
        self._stored, self._drafts, self._others = self._record, [], ()

    def adopt(self, stored: Changeset) -> None:
        """Go on from what the ledger has; events that it does not have are forgotten."""
        self._stored = self._record = stored
        self._drafts = []
