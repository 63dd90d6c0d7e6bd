"""Any history of changesets in a ledger, with crashes at any write and writers that meet, against a reference model.

The model knows which changesets exist and how far each is. It folds events by the rules of `cluster.changesets.lifecycle`, which
have laws of their own, and says itself who may create a changeset. After each step a reader that has just come sees:

1. at most one changeset that is preparing, prepared or rolling back, and the index names it;
2. states that follow each other as the table of states says;
3. an applied revision that moved only with a commit;
4. an applied revision that is what it was where a changeset failed;
5. finish members that begin after the commit;
6. records that never change after their end;
7. records that are what all events give, from the first on;
8. one record for a key, however often it is created;
9. numbers without gaps;
10. the text of each query that the state names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from ledger_changesets import check_history
from ledger_samples import CONTENT, QUERY, entry, state, together, write

from gitops.cluster.changesets.lifecycle import follow
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.port import BlobCondition, LedgerStore, LedgerView
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetEvent,
    ChangesetState,
    Committed,
    Created,
    EventDraft,
    Failed,
    Happening,
    Member,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import AppliedResource, EntryKind, LedgerState
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.storage.local import LocalStore
from tests.support.branch_ledger import World, make_keys
from tests.support.changeset_samples import AT, PASSING, commit_id, created, drafts, first_record, key, member
from tests.support.clock import FixedClock
from tests.support.effort import FULL
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
        crash=crashes,
    )
    def create(
        self, run: int, number: int, chosen: frozenset[str], removes: bool, other_plan: bool, crash: int | None
    ) -> None:
        new = _record(number, chosen, removes, other_plan)
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
        blocking = [each.key for each in self.records.values() if each.state in BLOCKING]
        assert (index.seq, [index.active] if index.active else []) == (self.seq, blocking)
        cleaning = {each.key for each in self.records.values() if each.state in (S.COMMITTED, S.DRAINED)}
        assert set(index.open) == cleaning
        found = reader.view().state
        assert found == self.state
        for address, resource in self.state.resources.items():
            assert reader.blob(address, resource.digest).condition is BlobCondition.OK
        for number in NUMBERS:
            assert reader.changeset_of(commit_id(number)) == ((key(number),) if key(number) in self.records else ())


def _crowded(known: dict[str, Changeset], new: Changeset) -> str:
    if any(each.state in BLOCKING for each in known.values()):
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
