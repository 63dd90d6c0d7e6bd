"""Changesets: laws, and a machine of their histories.

Any history of changesets in a ledger, with crashes at any write and writers that meet, against a reference model.

The model knows which changesets exist and how far each is. It folds events by the rules of `cluster.changesets.lifecycle`, which
have laws of their own, and says itself who may create a changeset. After each step a reader that has just come sees:

1. at most one changeset that is preparing, prepared or rolling back, except for those that it was created beside; the index
   lists the open ones in the order of their creation;
2. states that follow each other as the table of states says;
3. an applied revision that moved only with a commit;
4. an applied revision that is what it was where a changeset failed;
5. finish members that begin after the commit;
6. records that never change after their end;
7. records that are what all events give, from the first on;
8. one record for a key, however often it is created;
9. numbers without gaps;
10. the text of each query that the state names.

Laws of the life of a changeset, over random sequences of events: what may happen, what never changes, what is stored.

What is allowed is held against a reference that knows the table of states and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from ledger_changesets import check_history
from ledger_samples import CONTENT, QUERY, entry, state, together, write

from gitops.cluster.changesets.lifecycle import follow, follow_all, pivot_done, replay
from gitops.cluster.ledger.changesets import read_events, read_record, write_events, write_record
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.port import BlobCondition, LedgerStore, LedgerView
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
    EventDraft,
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
from gitops.cluster.model.ledger import AppliedResource, EntryKind, LedgerState
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.core.faults import Faults, NoFaults
from gitops.database.storage.local import LocalStore
from tests.support.branch_ledger import World, make_keys
from tests.support.changeset_samples import AT, PASSING, commit_id, created, drafts, first_record, key, member
from tests.support.changeset_stories import AT as STORY_AT
from tests.support.changeset_stories import DIGEST
from tests.support.changeset_stories import created as story_created
from tests.support.clock import FixedClock
from tests.support.effort import FULL
from tests.support.effort import cases as tries
from tests.support.memory_store import MemoryStore

Open = Callable[[Faults], LedgerStore]
S = ChangesetState
NAMES = ("a", "b", "c")
NUMBERS = (1, 2, 3)
_NEXT = {
    None: {S.PREPARING},
    S.PREPARING: {S.PREPARED, S.ROLLING_BACK},
    S.PREPARED: {S.COMMITTED, S.ROLLING_BACK},
    S.COMMITTED: {S.DRAINED},
    S.DRAINED: {S.FINALIZED},
    S.ROLLING_BACK: {S.FAILED},
}
"""The table of states: where each leads to."""


class CrashError(Exception):
    """The process ends here."""


class CrashAfter:
    """Ends the process at its n-th fault point from now on; None lets it live."""

    left: int | None = None

    def reach(self, point: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise CrashError(point)


numbers = st.sampled_from(NUMBERS)
names = st.sampled_from(NAMES)
handles = st.integers(0, 1)
crashes = st.none() | st.none() | st.integers(0, 11)
happenings: st.SearchStrategy[Happening] = st.one_of(
    st.builds(
        lambda name, runtime: RuntimeUpdated(member(name), Runtime(runtime, 1, AT, AT)),
        names,
        st.sampled_from((RuntimeState.READY, RuntimeState.READY, *RuntimeState)),
    ),
    st.sampled_from((*PASSING, *PASSING)),
    st.sampled_from([RollingBack("it failed", None), Failed("it failed"), Removed(member("old"))]),
)


def _record(number: int, chosen: frozenset[str], removes: bool, other_plan: bool) -> Changeset:
    plan = "cd" * 32 if other_plan else "ab" * 32
    record = first_record(number, *sorted(chosen), plan=plan, removes="old" if removes else "")
    late = tuple(replace(m, effect=Effect.FINISH) if m.address == member("c") else m for m in record.members)
    return replace(record, members=late)


class ChangesetMachine(RuleBasedStateMachine):
    """Two runs that share a ledger, and die now and then."""

    def __init__(self, open_ledger: Open) -> None:
        """On a ledger that is empty."""
        super().__init__()
        self.open = open_ledger
        self.faults = [CrashAfter(), CrashAfter()]
        self.runs = [open_ledger(fault) for fault in self.faults]
        self.runs[0].commit(self.runs[0].view(), write(state(1)))
        self.views: list[LedgerView | None] = [None, None]
        self.records: dict[str, Changeset] = {}
        self.order: list[str] = []
        self.seq = 0
        self.state = state(1)
        self.based_on: dict[str, LedgerState] = {}

    # What may happen.

    @rule(
        run=handles,
        number=numbers,
        chosen=st.frozensets(names, max_size=2),
        removes=st.booleans(),
        other_plan=st.sampled_from((False, False, False, True)),
        aside=st.booleans(),
        crash=crashes,
    )
    def create(
        self,
        run: int,
        number: int,
        chosen: frozenset[str],
        removes: bool,
        other_plan: bool,
        aside: bool,
        crash: int | None,
    ) -> None:
        others = tuple(each for each in self.order if aside and self.records[each].state in BLOCKING)
        new = replace(_record(number, chosen, removes, other_plan), beside=others)
        self.attempt(run, drafts(number, Created(new)), crash)

    @rule(run=handles, number=numbers, todo=st.lists(happenings, min_size=1, max_size=4), crash=crashes)
    def happen(self, run: int, number: int, todo: list[Happening], crash: int | None) -> None:
        self.attempt(run, drafts(number, *todo), crash)

    @rule(run=handles, number=numbers, crash=crashes)
    def go_on(self, run: int, number: int, crash: int | None) -> None:
        """What a run does next that everything works out for."""
        record = self.records.get(key(number))
        if record is None or record.ended:
            return
        before = record.state in BLOCKING
        todo: list[Happening] = [
            RuntimeUpdated(m.address, Runtime(RuntimeState.READY if before else RuntimeState.CANONICAL, 1, AT, AT))
            for m in record.members
            if _is_due(record, m)
        ]
        if record.state is S.DRAINED:
            todo += [Removed(each.address) for each in record.removals]
        step = {S.PREPARING: 0, S.PREPARED: 1, S.COMMITTED: 2, S.DRAINED: 3}
        todo.append(PASSING[step[record.state]] if record.state in step else Failed("it failed"))
        self.attempt(run, drafts(number, *todo), crash)

    @rule(run=handles, crash=crashes)
    def observe(self, run: int, crash: int | None) -> None:
        """A state without events, as a refresh writes it."""
        self.attempt(run, (), crash, landing=replace(self.state, revision=self.state.next_revision))

    @rule(run=handles)
    def look(self, run: int) -> None:
        """A run takes a view and keeps it for its next write."""
        self.views[run] = self.runs[run].view()

    # What a step is held to.

    def attempt(
        self, run: int, events: Sequence[EventDraft], crash: int | None, landing: LedgerState | None = None
    ) -> None:
        ledger, view = self.runs[run], self.views[run] or self.runs[run].view()
        stale, self.views[run] = self.views[run] is not None, None
        if any(isinstance(event.happening, Committed) for event in events):
            text = CONTENT + b"// " * (self.state.revision + 1)
            applied = {QUERY: AppliedResource(ledger.put_blob(QUERY, text))}
            landing = replace(self.state, revision=self.state.next_revision, resources=applied)
        if landing is not None and (view.state is None or view.state.revision != self.state.revision):
            return
        refusal, recorded, records = self.expect(events)
        self.faults[run].left = crash
        kind = EntryKind.CHANGESET if landing is None else EntryKind.APPLY
        due = entry(kind, self.state.revision if landing is None else landing.revision)
        try:
            if landing is None:
                ledger.begin(view, (), due, events)
            else:
                ledger.commit(view, replace(write(landing), entry=due, events=tuple(events)))
        except ConflictError as error:
            if error.code != refusal and not (stale and error.code == "state_cas_mismatch"):
                raise
            return
        except CrashError:
            self.faults[run] = CrashAfter()
            self.runs[run] = self.open(self.faults[run])
            reader = self.open(NoFaults())
            found = (reader.changesets().index.seq, reader.view().state)
            before, after = (self.seq, self.state), (self.seq + len(recorded), landing or self.state)
            assert found in (before, after)
            if refusal or found == before:
                return
        finally:
            self.faults[run].left = None
        assert not refusal
        for each in recorded:
            self._take_over(each.changeset, records)
            if isinstance(each.happening, Committed) and landing is not None:
                # A changeset beside this one now goes on from the state that this one left.
                self.based_on |= {name: landing for name in self.order if name != each.changeset}
        self.seq += len(recorded)
        self.records |= records
        self.state = landing or self.state

    def _take_over(self, name: str, records: dict[str, Changeset]) -> None:
        if name not in self.order:
            self.order.append(name)
            self.based_on[name] = self.state
        if records[name].state is S.FAILED:
            assert self.state.resources == self.based_on[name].resources

    def expect(self, events: Sequence[EventDraft]) -> tuple[str, list[EventDraft], dict[str, Changeset]]:
        """The code that a store refuses the events with, empty if it records them; which, and what becomes of the records."""
        records: dict[str, Changeset] = {}
        recorded: list[EventDraft] = []
        for each in events:
            known = {**self.records, **records}
            old, what = known.get(each.changeset), each.happening
            if isinstance(what, Created):
                if old is not None and old.plan.digest == what.record.plan.digest:
                    continue
                refusal = "changeset_conflict" if old is not None else _crowded(known, what.record)
                if refusal:
                    return refusal, [], {}
            try:
                event = ChangesetEvent(self.seq + len(recorded) + 1, each.at, "library", each.changeset, what)
                new = follow(old, event)
            except ConflictError as error:
                return error.code, [], {}
            assert new.state in {old and old.state, *_NEXT.get(old and old.state, set())}
            records[each.changeset] = new
            recorded.append(each)
        return "", recorded, records

    @invariant()
    def a_reader_sees_the_model(self) -> None:
        reader = self.open(NoFaults())
        check_history(reader)
        assert {each: reader.changeset(each) for each in reader.changeset_keys()} == self.records
        index = reader.changesets().index
        assert index.seq == self.seq
        opened = [each for each in self.order if not self.records[each].ended]
        assert [*index.open, *([index.active] if index.active else [])] == opened
        blocking = {each for each in opened if self.records[each].state in BLOCKING}
        newest = next((self.records[each] for each in reversed(opened) if each in blocking), None)
        assert newest is None or blocking <= {newest.key, *newest.beside}
        assert index.active == (self.order[-1] if self.order and self.order[-1] in blocking else None)
        found = reader.view().state
        assert found == self.state
        for address, resource in self.state.resources.items():
            assert reader.blob(address, resource.digest).condition is BlobCondition.OK
        for number in NUMBERS:
            assert reader.changeset_of(commit_id(number)) == ((key(number),) if key(number) in self.records else ())


def _crowded(known: dict[str, Changeset], new: Changeset) -> str:
    if any(each.state in BLOCKING and each.key not in new.beside for each in known.values()):
        return "changeset_active"
    overlap = any(not each.ended and each.addresses & new.addresses for each in known.values())
    return "changeset_overlap" if overlap else ""


def _is_due(record: Changeset, each: Member) -> bool:
    if record.state in BLOCKING:
        return record.state is not S.ROLLING_BACK and each.effect is not Effect.FINISH
    return record.state is S.DRAINED and each.effect is Effect.FINISH


def _folder(store: MemoryStore, faults: Faults) -> FolderLedger:
    return FolderLedger(store, clock=FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC)), faults=faults)


def play(make: Callable[[], Open], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: ChangesetMachine(make()),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not FULL,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def play_on_branches(tmp_path: Path, examples: int, steps: int) -> None:
    keys, places = make_keys(tmp_path), itertools.count()

    def make() -> Open:
        world = World(tmp_path / str(next(places)), keys, None)
        return lambda faults: world.ledger(faults=faults)

    play(make, examples, steps)


def race(tmp_path: Path, place: str, rounds: int) -> None:
    keys = make_keys(tmp_path)
    for round_ in range(rounds):
        world, root = World(tmp_path / str(round_), keys, None), LocalStore(tmp_path / f"{round_}-root")
        open_folder = partial(FolderLedger, root, clock=world.clock, faults=NoFaults())
        open_ledger: Callable[[], LedgerStore] = world.ledger if place == "branch" else open_folder
        first = open_ledger()
        first.commit(first.view(), write(state(1)))
        results = together([partial(_create, open_ledger(), number) for number in (1, 1, 2, 2, 3, 3, 4, 4)])
        winner = open_ledger().changesets().index.active
        assert [each for each in results if isinstance(each, str)] == [winner] * 2
        assert {each.code for each in results if isinstance(each, GitopsError)} == {"changeset_active"}
        assert len(open_ledger().events()) == 1


def test_any_history_in_a_folder() -> None:
    play(lambda: partial(_folder, MemoryStore()), 15, 25)


def test_any_history_on_a_branch(tmp_path: Path) -> None:
    play_on_branches(tmp_path, 2, 10)


@pytest.mark.parametrize("place", ["folder", "branch"])
def test_of_eight_runners_one_creates(tmp_path: Path, place: str) -> None:
    race(tmp_path, place, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_of_many_histories() -> None:
    play(lambda: partial(_folder, MemoryStore()), 1000, 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_of_many_histories_on_a_branch(tmp_path: Path) -> None:
    play_on_branches(tmp_path, 60, 20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", ["folder", "branch"])
def test_of_eight_runners_one_creates_200_times(tmp_path: Path, place: str) -> None:
    race(tmp_path, place, 200)


def _create(ledger: LedgerStore, number: int) -> str:
    """Create a changeset as a run does: who lost a race looks again."""
    while True:
        try:
            ledger.begin(ledger.view(), (), entry(EntryKind.CHANGESET, 1), created(number, "a"))
        except ConflictError as error:
            if error.code != "state_cas_mismatch":
                raise
        else:
            return key(number)


CHANGESET_LAWS_NAMES = [Address(f"query.brain.q{n}") for n in range(3)]
GONE = Address("query.brain.gone")


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
    lambda effects: tuple(
        Member(CHANGESET_LAWS_NAMES[n], Action.UPDATE, effect, DIGEST, DIGEST) for n, effect in enumerate(effects)
    )
)
first_records = st.builds(
    lambda found, removals, atomic: story_created(
        "0" * 40, members=found, removals=(Removal(GONE, DIGEST),) if removals else (), atomic=atomic
    ),
    members,
    st.booleans(),
    st.booleans(),
)
happenings_of_changeset_laws: st.SearchStrategy[Happening] = st.one_of(
    st.builds(
        lambda name, state: RuntimeUpdated(name, Runtime(state, 1, STORY_AT, STORY_AT, {"blob": DIGEST})),
        st.sampled_from(CHANGESET_LAWS_NAMES),
        st.sampled_from(RuntimeState),
    ),
    st.builds(
        lambda name, state: RuntimeUpdated(name, Runtime(state, 1, STORY_AT, STORY_AT)),
        st.sampled_from(CHANGESET_LAWS_NAMES),
        st.sampled_from([RuntimeState.READY, RuntimeState.CANONICAL]),
    ),
    st.sampled_from(CHANGESET_LAWS_NAMES).map(lambda name: Staged(name, DIGEST)),
    st.sampled_from([Prepared(()), Committed(2, 1, ()), Drained(0, "nothing is served"), Finalized(RESULT)]),
    st.sampled_from([Removed(GONE), RollingBack("query.brain.q0: it failed", CHANGESET_LAWS_NAMES[0])]),
    st.just(Failed("it failed", (Orphan(CHANGESET_LAWS_NAMES[0], "kept"),))),
)
stories = st.builds(Story, first_records, st.lists(happenings_of_changeset_laws, max_size=25))


def _events(story: Story) -> tuple[list[ChangesetEvent], list[Changeset]]:
    """Those events of a story that are allowed, and the record after each."""
    key = story.first.key
    events = [ChangesetEvent(1, STORY_AT, "brain", key, Created(story.first))]
    records = [follow(None, events[0])]
    for happening in story.tries:
        event = ChangesetEvent(len(events) + 1, STORY_AT, "brain", key, happening)
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
@given(stories, happenings_of_changeset_laws)
def test_what_has_ended_never_changes(story: Story, further: Happening) -> None:
    _, records = _events(story)
    if records[-1].state in ENDED:
        with pytest.raises(ConflictError, match="it has ended") as refused:
            follow(records[-1], ChangesetEvent(99, STORY_AT, "brain", story.first.key, further))
        assert refused.value.code == "changeset_state_invalid"


@settings(max_examples=tries(100))
@given(first_records)
def test_the_straight_way_is_open_to_every_atomic_changeset(first: Changeset) -> None:
    record = follow(None, ChangesetEvent(1, STORY_AT, "brain", first.key, Created(replace(first, atomic=True))))

    def go(happening: Happening) -> None:
        nonlocal record
        record = follow(record, ChangesetEvent(2, STORY_AT, "brain", first.key, happening))

    def run(effect: Effect, state: RuntimeState) -> None:
        for one in record.members:
            if one.effect is effect:
                go(RuntimeUpdated(one.address, Runtime(state, 1, STORY_AT, STORY_AT)))

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
    first = story_created()
    data = write_events([ChangesetEvent(1, STORY_AT, "brain", first.key, Created(first))])
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
