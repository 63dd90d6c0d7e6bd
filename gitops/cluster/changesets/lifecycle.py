"""State machine of a changeset: an event turns a record into the next record, or is refused.

A record is only the sequence of its events. A reader that replays them gets the same record, so these rules apply to
the program that runs a changeset, to one that continues it after a crash, and to everyone who verifies it later.

| from | event | to | only if |
| --- | --- | --- | --- |
| | created | preparing | the key is new |
| preparing | prepared | prepared | every staged member is ready |
| prepared | committed | committed | every member that does not wait for the commit is ready |
| committed | drained | drained | |
| drained | finalized | finalized | every member is canonical, and every removal is deleted |
| preparing, prepared | rolling back | rolling back | no pivot is done |
| rolling back | failed | failed | no pivot is done |

A changeset passes each boundary once, even without members. An ended changeset does not change. In a best-effort changeset,
members may have failed or been skipped where the table requires ready or canonical.
Source: the state tables of the design note on schema changesets, and lessons from its first implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from itertools import groupby, takewhile
from types import MappingProxyType

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetEvent,
    ChangesetState,
    Committed,
    Created,
    Drained,
    EndedChangeset,
    EventDraft,
    Failed,
    Finalized,
    Happening,
    Member,
    Prepared,
    RemovalState,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
    Staged,
)
from gitops.cluster.model.plan import RunRecord
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import BugError, ConflictError

_OF_A_MEMBER = (RuntimeUpdated, Staged)
_LEFT = frozenset({RuntimeState.FAILED, RuntimeState.SKIPPED})
_DOING = frozenset({RuntimeState.PROVISIONING, RuntimeState.READY})

# States that a member can reach before the commit, while the changeset is rolled back, and after the commit.
_PROVISIONED = frozenset(
    {RuntimeState.PROVISIONING, RuntimeState.READY, RuntimeState.FAILED, RuntimeState.SKIPPED, RuntimeState.PENDING}
)
_ALLOWED: Mapping[ChangesetState, frozenset[RuntimeState]] = MappingProxyType(
    {
        ChangesetState.PREPARING: _PROVISIONED,
        ChangesetState.PREPARED: _PROVISIONED,
        ChangesetState.ROLLING_BACK: frozenset({RuntimeState.COMPENSATED, RuntimeState.READY, RuntimeState.FAILED}),
        ChangesetState.COMMITTED: frozenset({RuntimeState.PROVISIONING, RuntimeState.CANONICAL, RuntimeState.FAILED}),
        ChangesetState.DRAINED: frozenset({RuntimeState.PROVISIONING, RuntimeState.CANONICAL, RuntimeState.FAILED}),
    }
)


def follow(record: Changeset | None, event: ChangesetEvent) -> Changeset:
    """Return the record after an event. Before the first event, `record` is None.

    Raises ConflictError `changeset_state_invalid` for an event that is not allowed now.
    """
    what = event.happening
    if isinstance(what, Created):
        if record is not None:
            raise _refusal(record, "it was created before")
        return replace(what.record, updated_at=event.at)
    if isinstance(what, _OF_A_MEMBER):
        return _follow_members(record, (event,))
    record = _going_on(record, event)
    match what:
        case Prepared():
            _expect(record, ChangesetState.PREPARING)
            _complete(record, _before_pivot(record), RuntimeState.READY)
            record = _reach(record, ChangesetState.PREPARED, event.at)
        case Committed():
            _expect(record, ChangesetState.PREPARED)
            _complete(record, _before_commit(record), RuntimeState.READY)
            record = _commit(_reach(record, ChangesetState.COMMITTED, event.at))
        case Drained():
            _expect(record, ChangesetState.COMMITTED)
            record = _reach(record, ChangesetState.DRAINED, event.at)
            record = _removals(record, {RemovalState.DRAINING: RemovalState.DEPROVISIONING})
        case Removed():
            _expect(record, ChangesetState.DRAINED)
            record = _remove(record, what)
        case Finalized():
            _expect(record, ChangesetState.DRAINED)
            _complete(record, record.members, RuntimeState.CANONICAL)
            if record.atomic and any(removal.state is not RemovalState.DELETED for removal in record.removals):
                raise _refusal(record, "what it removes is not deleted yet")
            record = _reach(record, ChangesetState.FINALIZED, event.at)
            record = replace(record, result=what.result, needs_attention=False)
        case RollingBack():
            _expect(record, ChangesetState.PREPARING, ChangesetState.PREPARED)
            if pivot_done(record):
                raise _refusal(
                    record, "a change that cannot be rolled back is done, so the changeset can only continue"
                )
            record = replace(record, state=ChangesetState.ROLLING_BACK, error=what.error)
        case Failed():
            _expect(record, ChangesetState.ROLLING_BACK)
            record = replace(record, state=ChangesetState.FAILED, orphaned=what.orphaned)
    return replace(record, updated_at=event.at)


def follow_all(record: Changeset | None, events: Iterable[ChangesetEvent]) -> Changeset:
    """Return the record after several events of one changeset, like repeated calls of `follow` but in linear time.

    Raises the errors of `follow`, also if there is neither a record nor an event.
    """
    for of_members, found in groupby(events, key=lambda event: isinstance(event.happening, _OF_A_MEMBER)):
        group = tuple(found)
        record = _follow_members(record, group) if of_members else reduce(follow, group, record)
    if record is None:
        raise ConflictError(Code.CHANGESET_STATE_INVALID, "it has no events")
    return record


def replay(events: Iterable[ChangesetEvent]) -> Changeset:
    """Return the record that these events produce, from the first to the newest. Raises the errors of `follow_all`."""
    return follow_all(None, events)


def pivot_done(record: Changeset) -> bool:
    """Return True once the changeset has made a change that cannot be rolled back.

    From then on, the changeset only goes forward.
    """
    return any(m.effect is Effect.PIVOT and m.runtime.state is RuntimeState.READY for m in record.members)


def unfinished(record: Changeset) -> tuple[Address, ...]:
    """Return the work that a committed changeset must still do: delete removed resources, then drop schema elements."""
    if record.ended or record.state in BLOCKING:
        return ()
    left = [removal.address for removal in record.removals if removal.state is not RemovalState.DELETED]
    drops = (member.address for member in record.members if member.runtime.state is not RuntimeState.CANONICAL)
    return (*left, *drops)


def _going_on(record: Changeset | None, event: ChangesetEvent) -> Changeset:
    """Return the record if it accepts further events."""
    if record is None or record.key != event.changeset:
        raise ConflictError(Code.CHANGESET_STATE_INVALID, "its first event does not create it", path=event.changeset)
    if record.ended:
        raise _refusal(record, "it has ended")
    return record


def _follow_members(record: Changeset | None, events: Sequence[ChangesetEvent]) -> Changeset:
    """Return the record after events that concern its members and don't change its state."""
    record = _going_on(record, events[0])
    members = {member.address: member for member in record.members}
    removed = {removal.address for removal in record.removals}
    attention = record.needs_attention
    for event in events:
        _going_on(record, event)
        what = event.happening
        if isinstance(what, Staged):
            _expect(record, ChangesetState.PREPARING, ChangesetState.PREPARED)
            _member(record, members, what.address)
        elif isinstance(what, RuntimeUpdated):
            failed = what.runtime.state is RuntimeState.FAILED
            late = failed and record.state not in BLOCKING
            if what.address not in removed:
                member = _member(record, members, what.address)
                _check_runtime(record, member, what.runtime.state)
                members[what.address] = replace(member, runtime=what.runtime)
            elif not late:
                raise _refusal(record, f"the removal of {what.address} cannot become {what.runtime.state}")
            attention |= late
    return replace(record, members=tuple(members.values()), needs_attention=attention, updated_at=events[-1].at)


def _member(record: Changeset, members: Mapping[Address, Member], address: Address) -> Member:
    if address not in members:
        raise _refusal(record, f"{address} is not one of its members")
    return members[address]


def _check_runtime(record: Changeset, member: Member, state: RuntimeState) -> None:
    """Refuse a transition that is not allowed for a member now."""
    waits = member.effect is Effect.FINISH and record.state in BLOCKING
    allowed = frozenset({RuntimeState.SKIPPED}) if waits else _ALLOWED[record.state]
    left = member.runtime.state in _LEFT and record.state not in BLOCKING and not member.finishes
    if state not in allowed or left:
        raise _refusal(record, f"{member.address} cannot become {state}")
    if member.effect is Effect.PIVOT and record.state is ChangesetState.PREPARING and state in _DOING:
        raise _refusal(record, f"{member.address} cannot be rolled back, so it waits until everything else is prepared")


def _before_pivot(record: Changeset) -> list[Member]:
    return [member for member in record.members if member.effect is Effect.STAGE and not member.lifted]


def _before_commit(record: Changeset) -> list[Member]:
    return [member for member in record.members if member.effect in (Effect.STAGE, Effect.PIVOT)]


def _complete(record: Changeset, members: Iterable[Member], wanted: RuntimeState) -> None:
    """Refuse the next boundary unless all of these members have the required state.

    A best-effort changeset can have failed members.
    """
    accepted = {wanted} if record.atomic else {wanted, *_LEFT}
    open_ones = [member.address for member in members if member.runtime.state not in accepted]
    if open_ones:
        raise _refusal(record, f"{open_ones[0]} is not {wanted}")


def _reach(record: Changeset, state: ChangesetState, at: str) -> Changeset:
    return replace(record, state=state, barriers=replace(record.barriers, **{state.value: at}))


def _commit(record: Changeset) -> Changeset:
    """Make all ready members canonical with the commit. Later steps are unchanged."""
    members = []
    for member in record.members:
        landed = not member.finishes and member.runtime.state not in _LEFT
        runtime: Runtime = member.runtime
        members.append(replace(member, runtime=replace(runtime, state=RuntimeState.CANONICAL)) if landed else member)
    return _removals(replace(record, members=tuple(members)), {RemovalState.PLANNED: RemovalState.DRAINING})


def _removals(record: Changeset, moves: Mapping[RemovalState, RemovalState]) -> Changeset:
    moved = tuple(replace(removal, state=moves.get(removal.state, removal.state)) for removal in record.removals)
    return replace(record, removals=moved)


def _remove(record: Changeset, what: Removed) -> Changeset:
    if all(removal.address != what.address for removal in record.removals):
        raise _refusal(record, f"{what.address} is not one of its removals")
    moved = (
        replace(each, state=RemovalState.DELETED) if each.address == what.address else each for each in record.removals
    )
    return replace(record, removals=tuple(moved))


def _expect(record: Changeset, *states: ChangesetState) -> None:
    if record.state not in states:
        raise _refusal(record, f"it is {record.state}, not {' or '.join(states)}")


def _refusal(record: Changeset, why: str) -> ConflictError:
    return ConflictError(Code.CHANGESET_STATE_INVALID, why, path=record.key)


# -- The changeset of a running run: each event takes effect immediately, and waits for the next ledger write -------------


class Journal:
    """The in-memory record of a run's changeset, with the events that are not in the ledger yet."""

    def __init__(
        self, now: Callable[[], str], stored: Changeset | None = None, others: Sequence[EventDraft] = ()
    ) -> None:
        """`now` returns the time of an event as RFC 3339 text. `stored` is a record from the ledger.

        `others` are events of an earlier changeset that are written together with the first events of this one.
        """
        self._now = now
        self._stored = self._record = stored
        self._others = tuple(others)
        self._drafts: list[EventDraft] = []
        self.run: Callable[[], RunRecord] | None = None
        """The progress of the run so far, for the write that ends it. None before the run has begun."""

    @property
    def record(self) -> Changeset:
        """The record after all events so far."""
        if self._record is None:
            raise BugError("the changeset of this journal is not created")
        return self._record

    @property
    def drafts(self) -> tuple[EventDraft, ...]:
        """The events that the ledger does not contain yet, in order.

        The last event of a run includes its run record.
        """
        drafts, record = (*self._others, *self._drafts), self._record
        if self.run is None or record is None or not self._drafts or not (record.ended or record.needs_attention):
            return drafts
        return (*drafts[:-1], replace(drafts[-1], run=self.run()))

    @property
    def created(self) -> bool:
        """Whether there is a changeset."""
        return self._record is not None

    @property
    def recorded(self) -> bool:
        """Whether the ledger contains the changeset."""
        return self._stored is not None

    def add(self, *happenings: Happening) -> None:
        """Append events.

        Raises ConflictError `changeset_state_invalid` for an event that is not allowed in this state.
        """
        of = next((what.record for what in happenings if isinstance(what, Created)), None) or self.record
        # The ledger numbers the events when they are written. Their effects don't depend on the numbers.
        events = [ChangesetEvent(0, self._now(), of.cluster, of.key, what) for what in happenings]
        if events:
            self._record = follow_all(self._record, events)
            self._drafts += [EventDraft(event.changeset, event.at, event.happening) for event in events]

    def mark(self) -> tuple[Changeset | None, int]:
        """Return a mark for `back_to`, in case the following events cannot be written."""
        return self._record, len(self._drafts)

    def back_to(self, mark: tuple[Changeset | None, int]) -> None:
        """Discard the events after a mark."""
        self._record, length = mark
        del self._drafts[length:]

    def written(self) -> None:
        """Mark every event so far as recorded in the ledger."""
        self._stored, self._drafts, self._others = self._record, [], ()

    def adopt(self, stored: Changeset) -> None:
        """Continue from the ledger's record. Events that it does not contain are discarded."""
        self._stored = self._record = stored
        self._drafts = []


# -- Selects records of ended changesets for archiving: the oldest if there are many, and very old ones ----------------
#
# Their lines remain in the archive, and show how each of them ended.


KEPT_RECORDS = 500
KEPT_DAYS = 400

# Records are archived in batches, because the archive is rewritten each time.
_BATCH = 50


def outdated(ended: Sequence[EndedChangeset], at: str) -> tuple[str, ...]:
    """Return the keys of records to archive at a time (RFC 3339). `ended` has the kept records, earliest end first."""
    now = parse_timestamp(at)
    over = len(ended) - KEPT_RECORDS if len(ended) >= KEPT_RECORDS + _BATCH else 0

    def is_old(each: EndedChangeset) -> bool:
        end = parse_timestamp(each.at)
        return now is not None and end is not None and end < now - timedelta(days=KEPT_DAYS)

    old = sum(1 for _ in takewhile(is_old, ended))
    return tuple(each.key for each in ended[: max(over, old)])
