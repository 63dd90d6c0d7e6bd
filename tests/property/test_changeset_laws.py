"""Laws of the life of a changeset, over random sequences of events: what may happen, what never changes, what is stored.

What is allowed is held against a reference that knows the table of states and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.changesets.lifecycle import follow, follow_all, pivot_done, replay
from gitops.cluster.ledger.changesets import read_events, read_record, write_events, write_record
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    ENDED,
    Changeset,
    ChangesetEvent,
    ChangesetResult,
    ChangesetState,
    Committed,
    Created,
    Drained,
    Failed,
    Finalized,
    Happening,
    Member,
    Orphan,
    Prepared,
    Removal,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
    Staged,
)
from gitops.core.errors import ConflictError, IntegrityError
from tests.support.changeset_stories import AT, DIGEST, created
from tests.support.effort import cases as tries

NAMES = [Address(f"query.brain.q{n}") for n in range(3)]
GONE = Address("query.brain.gone")
S = ChangesetState

_PATHS = {
    Prepared: ({S.PREPARING}, S.PREPARED),
    Committed: ({S.PREPARED}, S.COMMITTED),
    Drained: ({S.COMMITTED}, S.DRAINED),
    Finalized: ({S.DRAINED}, S.FINALIZED),
    RollingBack: ({S.PREPARING, S.PREPARED}, S.ROLLING_BACK),
    Failed: ({S.ROLLING_BACK}, S.FAILED),
}
"""The whole reference: from which states an event leads to which one."""


@dataclass(frozen=True)
class Story:
    """A first record, and what is tried after it."""

    first: Changeset
    tries: list[Happening]


RESULT = ChangesetResult(2, True, False, {"applied": 1}, 5)

members = st.lists(st.sampled_from([Effect.STAGE, Effect.PIVOT, Effect.FINISH]), max_size=3).map(
    lambda effects: tuple(Member(NAMES[n], Action.UPDATE, effect, DIGEST, DIGEST) for n, effect in enumerate(effects))
)
first_records = st.builds(
    lambda found, removals, atomic: created(
        "0" * 40, members=found, removals=(Removal(GONE, DIGEST),) if removals else (), atomic=atomic
    ),
    members,
    st.booleans(),
    st.booleans(),
)
happenings: st.SearchStrategy[Happening] = st.one_of(
    st.builds(
        lambda name, state: RuntimeUpdated(name, Runtime(state, 1, AT, AT, {"blob": DIGEST})),
        st.sampled_from(NAMES),
        st.sampled_from(RuntimeState),
    ),
    st.builds(
        lambda name, state: RuntimeUpdated(name, Runtime(state, 1, AT, AT)),
        st.sampled_from(NAMES),
        st.sampled_from([RuntimeState.READY, RuntimeState.CANONICAL]),
    ),
    st.sampled_from(NAMES).map(lambda name: Staged(name, DIGEST)),
    st.sampled_from([Prepared(()), Committed(2, 1, ()), Drained(0, "nothing is served"), Finalized(RESULT)]),
    st.sampled_from([Removed(GONE), RollingBack("query.brain.q0: it failed", NAMES[0])]),
    st.just(Failed("it failed", (Orphan(NAMES[0], "kept"),))),
)
stories = st.builds(Story, first_records, st.lists(happenings, max_size=25))


def _events(story: Story) -> tuple[list[ChangesetEvent], list[Changeset]]:
    """Those events of a story that are allowed, and the record after each."""
    key = story.first.key
    events = [ChangesetEvent(1, AT, "brain", key, Created(story.first))]
    records = [follow(None, events[0])]
    for happening in story.tries:
        event = ChangesetEvent(len(events) + 1, AT, "brain", key, happening)
        before = records[-1]
        try:
            after = follow(before, event)
        except ConflictError:
            _check_refusal(before, happening)
            continue
        _check_step(before, happening, after)
        events.append(event)
        records.append(after)
    return events, records


def _check_step(before: Changeset, happening: Happening, after: Changeset) -> None:
    assert not before.ended
    if type(happening) in _PATHS:
        sources, target = _PATHS[type(happening)]
        assert before.state in sources
        assert after.state is target
    else:
        assert after.state is before.state
    if isinstance(happening, RollingBack):
        assert not pivot_done(before)
    if isinstance(happening, Committed) and before.atomic:
        assert all(m.runtime.state is RuntimeState.READY for m in before.members if m.effect is not Effect.FINISH)
    if isinstance(happening, RuntimeUpdated):
        member = next(m for m in after.members if m.address == happening.address)
        if member.effect is Effect.FINISH and before.state in BLOCKING:
            assert member.runtime.state is RuntimeState.SKIPPED
    # What a changeset is about never changes.
    told = ("key", "base", "plan", "source", "covers", "created_at", "desired_digest", "excluded", "atomic")
    assert all(getattr(before, name) == getattr(after, name) for name in told)
    assert [m.address for m in before.members] == [m.address for m in after.members]


def _check_refusal(before: Changeset, happening: Happening) -> None:
    """A boundary is refused only for a reason."""
    if type(happening) not in _PATHS or before.ended:
        return
    sources, _ = _PATHS[type(happening)]
    if before.state not in sources:
        return
    unready = any(m.runtime.state not in (RuntimeState.READY, RuntimeState.CANONICAL) for m in before.members)
    assert unready or pivot_done(before) or before.removals


@settings(max_examples=tries(300))
@given(stories)
def test_a_record_is_its_events_and_nothing_else(story: Story) -> None:
    events, records = _events(story)
    assert replay(events) == records[-1]
    assert replay(read_events(write_events(events))) == records[-1]
    assert read_record(write_record(records[-1])) == records[-1]


@settings(max_examples=tries(100))
@given(stories, happenings)
def test_what_has_ended_never_changes(story: Story, further: Happening) -> None:
    _, records = _events(story)
    if records[-1].state in ENDED:
        with pytest.raises(ConflictError, match="it has ended") as refused:
            follow(records[-1], ChangesetEvent(99, AT, "brain", story.first.key, further))
        assert refused.value.code == "changeset_state_invalid"


@settings(max_examples=tries(100))
@given(first_records)
def test_the_straight_way_is_open_to_every_atomic_changeset(first: Changeset) -> None:
    record = follow(None, ChangesetEvent(1, AT, "brain", first.key, Created(replace(first, atomic=True))))

    def go(happening: Happening) -> None:
        nonlocal record
        record = follow(record, ChangesetEvent(2, AT, "brain", first.key, happening))

    def run(effect: Effect, state: RuntimeState) -> None:
        for member in record.members:
            if member.effect is effect:
                go(RuntimeUpdated(member.address, Runtime(state, 1, AT, AT)))

    run(Effect.STAGE, RuntimeState.READY)
    go(Prepared(()))
    run(Effect.PIVOT, RuntimeState.READY)
    go(Committed(2, 1, ()))
    go(Drained(0, "nothing is served"))
    run(Effect.FINISH, RuntimeState.CANONICAL)
    for removal in record.removals:
        go(Removed(removal.address))
    go(Finalized(RESULT))
    assert record.state is S.FINALIZED
    assert record.phase == "committed"


@pytest.mark.parametrize("damage", [b"", b"{}\n", b'{"v":2}\n'])
def test_damaged_events_are_refused(damage: bytes) -> None:
    first = created()
    data = write_events([ChangesetEvent(1, AT, "brain", first.key, Created(first))])
    bad: Any = data[:-1] if not damage else data + damage
    with pytest.raises(IntegrityError) as refused:
        read_events(bad)
    assert refused.value.code == "changeset_invalid"


@settings(max_examples=tries(150))
@given(stories, st.integers(0, 30))
def test_events_followed_together_give_what_they_give_one_by_one(story: Story, cut: int) -> None:
    events, records = _events(story)
    start = min(cut, len(events) - 1)
    assert follow_all(records[start], events[start + 1 :]) == records[-1]
