"""The changesets of a ledger folder, whose files are written one by one: a crash between any two of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from ledger_changesets import check_history, record
from ledger_samples import code_of, lock, state, write

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger import folder as ledger_folder
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import read_archive, read_ended, read_events, read_index, read_record
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.changeset import ChangesetState, RollingBack, Runtime, RuntimeState, RuntimeUpdated
from gitops.core.errors import ConflictError
from gitops.core.faults import Faults, NoFaults
from tests.support.changeset_samples import PASSING, created, drafts, key, member, ready, whole
from tests.support.clock import FixedClock
from tests.support.memory_store import BrokenStore, MemoryStore

CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))
STORY = ((*created(1, "a"),), drafts(1, ready("a"), PASSING[0]), drafts(1, *PASSING[1:]))
"""The writes of a changeset; the last one comes with a state."""


class CrashError(Exception):
    """The process ends here."""


class CrashAt:
    """Ends the run at the n-th visit of a fault point, and remembers what was reached."""

    def __init__(self, point: str = "", visit: int = 0) -> None:
        self.reached: Counter[str] = Counter()
        self._at = (point, visit)

    def reach(self, point: str) -> None:
        self.reached[point] += 1
        if (point, self.reached[point]) == self._at:
            raise CrashError(point)


def folder(store: MemoryStore, faults: Faults | None = None) -> FolderLedger:
    return FolderLedger(store, clock=CLOCK, faults=faults or NoFaults())


def imported() -> MemoryStore:
    store = MemoryStore()
    ledger = folder(store)
    ledger.commit(ledger.view(), write(state(1)))
    return store


def go_on(ledger: FolderLedger) -> None:
    """Do what of the story is not done, as a run does that finds the record of an earlier one."""
    found = ledger.changeset(key(1))
    steps: dict[ChangesetState | None, int] = {None: 0, ChangesetState.PREPARING: 1, ChangesetState.PREPARED: 2}
    for events in STORY[steps.get(None if found is None else found.state, 3) : 2]:
        record(ledger, *events)
    view = ledger.view()
    assert view.state is not None
    if view.state.revision == 1:
        ledger.commit(view, replace(write(state(2)), events=STORY[2]))


def visits() -> Iterator[tuple[str, int]]:
    watched = CrashAt()
    go_on(folder(imported(), watched))
    yield from (
        (point, visit)
        for point, times in watched.reached.items()
        for visit in range(1, times + 1)
        if point.startswith(("ledger.changeset.", "ledger.commit."))
    )


@pytest.mark.parametrize("inline", [16_384, 0])
@pytest.mark.parametrize(("point", "visit"), sorted(visits()))
def test_a_crash_between_two_files_is_a_crash_before_or_after_a_write(
    point: str, visit: int, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_folder, "_INLINE", inline)
    store = imported()
    with pytest.raises(CrashError):
        go_on(folder(store, CrashAt(point, visit)))
    seen = folder(store)
    check_history(seen)
    # How many events there are is one of the moments between two writes, and the state agrees with them.
    assert len(seen.events()) in (0, 1, 3, 6)
    after = seen.view().state
    assert after is not None
    assert (after.revision == 2) == (len(seen.events()) == 6)
    go_on(folder(store))
    record(folder(store), *whole(2, "a"))
    check_history(folder(store))
    assert len(folder(store).events()) == 12
    for number in (1, 2):
        events = read_events(store.read(layout.events_key(key(number))) or b"")
        assert read_record(store.read(layout.record_key(key(number))) or b"") == replay(events)
        assert folder(store).changeset_of(f"{number:040x}") == (key(number),)


def test_who_holds_the_lock_keeps_what_it_read_until_it_looks_again_or_writes() -> None:
    store = imported()
    mine, other = folder(store), folder(store)
    mine.acquire(lock(1))
    assert mine.changesets().open == ()
    record(other, *STORY[0])
    assert mine.changesets().open == ()
    view = mine.view()
    assert [each.state for each in mine.changesets().open] == [ChangesetState.PREPARING]
    # What another one wrote in between decides, not what is kept.
    record(other, *STORY[1])
    assert code_of(lambda: record(mine, *STORY[1], view=view)) == "changeset_state_invalid"
    assert [each.state for each in mine.changesets().open] == [ChangesetState.PREPARED]


def test_what_another_one_records_during_a_run_does_not_keep_the_run_from_its_commit() -> None:
    store = imported()
    mine = folder(store)
    mine.acquire(lock(1))
    record(mine, *STORY[0])
    record(mine, *STORY[1])
    view = mine.view()
    record(folder(store), *drafts(1, RuntimeUpdated(member("a"), Runtime(RuntimeState.READY, attempts=2))))
    mine.commit(view, replace(write(state(2)), events=STORY[2]))
    check_history(folder(store))
    assert len(folder(store).events()) == 7


@pytest.mark.parametrize("landed", [True, False])
def test_after_a_state_whose_answer_is_lost_the_state_says_whether_its_events_happened(landed: bool) -> None:
    store = BrokenStore()
    mine = folder(store)
    mine.commit(mine.view(), write(state(1)))
    record(mine, *STORY[0])
    record(mine, *STORY[1])
    view = mine.view()
    store.broken, store.too_late = {("replace", layout.STATE)}, landed
    assert code_of(lambda: mine.commit(view, replace(write(state(2)), events=STORY[2]))) == "state_write_error"
    store.broken = set()
    # The same process goes on, as an atomic run does that takes back what it staged.
    with pytest.raises(ConflictError) if landed else contextlib.nullcontext():
        record(mine, *drafts(1, RollingBack("the commit failed", None)))
    check_history(folder(store))
    found = folder(store).changeset(key(1))
    assert found is not None
    assert found.state is (ChangesetState.FINALIZED if landed else ChangesetState.ROLLING_BACK)


def test_every_point_of_the_files_is_reached() -> None:
    assert {point for point, _ in visits() if point.startswith("ledger.changeset.")} == {
        f"ledger.changeset.{moment}_{step}"
        for step in ("record", "announce", "confirm", "file")
        for moment in ("before", "after")
    }


def test_a_state_without_events_settles_those_of_the_state_before() -> None:
    store = imported()
    with pytest.raises(CrashError):
        go_on(folder(store, CrashAt("ledger.changeset.before_confirm", 1)))
    ledger = folder(store)
    ledger.commit(ledger.view(), write(state(3)))
    check_history(folder(store))
    assert len(folder(store).events()) == 6


@pytest.mark.parametrize("visit", range(1, 6))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_second_crash_while_announced_events_are_written_loses_and_repeats_none(moment: str, visit: int) -> None:
    store = imported()
    with pytest.raises(CrashError):
        go_on(folder(store, CrashAt("ledger.changeset.before_confirm", 1)))
    with contextlib.suppress(CrashError):
        record(folder(store, CrashAt(f"ledger.changeset.{moment}_file", visit)), *whole(2, "a"))
    check_history(folder(store))
    assert len(folder(store).events(key=key(1))) == 6
    record(folder(store), *whole(3, "a"))
    check_history(folder(store))
    for number in (1, 3):
        events = read_events(store.read(layout.events_key(key(number))) or b"")
        assert read_record(store.read(layout.record_key(key(number))) or b"") == replay(events)
    assert [each.key for each in read_ended(store.read(layout.ENDED) or b"")].count(key(1)) == 1


def test_events_that_were_announced_with_another_state_never_happened() -> None:
    store = imported()
    with pytest.raises(CrashError):
        go_on(folder(store, CrashAt("ledger.changeset.after_announce", 1)))
    ledger = folder(store)
    assert read_index(store.read(layout.INDEX) or b"").committing is not None
    ledger.commit(ledger.view(), write(state(2, other="a" * 64)))
    assert read_index(store.read(layout.INDEX) or b"").committing is None
    found = folder(store).changeset(key(1))
    assert found is not None
    assert found.state is ChangesetState.PREPARED
    check_history(folder(store))


def test_an_index_that_may_have_been_written_is_looked_at_again() -> None:
    for too_late, events in ((False, 0), (True, 1)):
        store = BrokenStore()
        ledger = folder(store)
        ledger.commit(ledger.view(), write(state(1)))
        store.broken, store.too_late = {("create", layout.INDEX)}, too_late
        assert code_of(partial(record, ledger, *STORY[0])) == "state_write_error"
        store.broken = set()
        assert len(ledger.events()) == events
        go_on(ledger)
        check_history(folder(store))


def test_files_that_cannot_be_written_follow_with_the_next_write() -> None:
    store = BrokenStore()
    ledger = folder(store)
    ledger.commit(ledger.view(), write(state(1)))
    store.broken = {("create", layout.EVENTS), ("create", f"{layout.CHANGESETS}/chs-")}
    record(ledger, *STORY[0])
    assert store.read(layout.events_key(key(1))) is None
    check_history(folder(store))
    assert code_of(partial(record, ledger, *STORY[1])) == "state_write_error"
    store.broken = set()
    go_on(ledger)
    check_history(folder(store))
    assert len(read_events(store.read(layout.events_key(key(1))) or b"")) == 6


class HeldUp:
    """Holds a writer up at the first file, until others have written."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def reach(self, point: str) -> None:
        if point == "ledger.changeset.before_file" and self._meanwhile:
            self._meanwhile.pop()()


def test_a_writer_that_was_held_up_does_not_undo_what_came_after_it() -> None:
    store = imported()
    late = folder(store, HeldUp(lambda: go_on(folder(store))))
    record(late, *STORY[0])
    record(folder(store), *whole(2))
    check_history(folder(store))
    found = folder(store).changeset(key(1))
    assert found is not None
    assert found.ended
    assert len(folder(store).events(key=key(1))) == 6


def test_a_document_that_cannot_be_read_is_a_problem_of_the_listing() -> None:
    store = imported()
    store.write(layout.INDEX, b"{}")
    assert folder(store).changesets().problem
    assert code_of(lambda: folder(store).changeset(key(1))) == "changeset_invalid"
    assert code_of(lambda: record(folder(store), *STORY[0])) == "changeset_invalid"


@pytest.fixture(scope="module")
def crowded() -> MemoryStore:
    """A ledger with as many ended changesets as it keeps."""
    store = imported()
    record(folder(store), *(event for number in range(1, 551) for event in whole(number)))
    return store


@pytest.mark.parametrize("visit", [3, 4, 30, 103, 104])
def test_a_crash_while_records_leave_loses_none(crowded: MemoryStore, visit: int) -> None:
    store = crowded.copy()
    with pytest.raises(CrashError):
        record(folder(store, CrashAt("ledger.changeset.after_file", visit)), *whole(551))
    for _ in range(2):
        seen = folder(store)
        assert len(set(seen.changeset_keys())) == len(seen.changeset_keys()) == 551
        for number in (1, 25, 50, 51, 551):
            found = seen.changeset(key(number))
            assert (found is not None and found.ended, seen.changeset_of(f"{number:040x}")) == (True, (key(number),))
        record(seen, *whole(551))
        seen.commit(seen.view(), write(state(2 if seen.view().state == state(1) else 3)))
    record(folder(store), *whole(552))
    archived = {each.key for each in read_archive(store.read(layout.ARCHIVE) or b"")}
    kept = {name.removesuffix(".jsonl") for name in store.names(layout.EVENTS)}
    assert len((store.read(layout.ARCHIVE) or b"").splitlines()) == len(archived)
    assert (len(archived | kept), len(archived & kept), len(kept) <= 502) == (552, 0, True)


def test_an_index_that_is_read_again_is_not_parsed_again() -> None:
    store = imported()
    go_on(folder(store))
    assert len(folder(store)._changesets().newest) > 0
    assert folder(store)._changesets().newest is folder(store)._changesets().newest


def test_a_large_write_is_beside_the_index_until_the_next_one() -> None:
    """Who asks what is open reads an index that stays small, and no reader sees a difference."""
    store, names = imported(), [f"q{number:03d}" for number in range(200)]
    large = (*created(1, *names), *drafts(1, *(ready(name) for name in names)))
    record(folder(store), *large)

    def batches() -> list[str]:
        return [name for name in store.names(layout.CHANGESETS) if name.startswith("newest-")]

    assert len(store.read(layout.INDEX) or b"") < 1_000
    assert len(batches()) == 1
    assert len(folder(store).events()) == len(large)
    record(folder(store), *drafts(1, PASSING[0]))
    assert batches() == []
    assert len(folder(store).events()) == len(large) + 1
    check_history(folder(store))


def test_a_batch_with_another_content_is_refused() -> None:
    store, names = imported(), [f"q{number:03d}" for number in range(200)]
    record(folder(store), *created(1, *names), *drafts(1, *(ready(name) for name in names)))
    (name,) = (name for name in store.names(layout.CHANGESETS) if name.startswith("newest-"))
    path = f"{layout.CHANGESETS}/{name}"
    store.write(path, (store.read(path) or b"").replace(b"q001", b"q009"))
    assert code_of(lambda: folder(store).changeset(key(1))) == "changeset_invalid"


def test_an_index_whose_events_differ_from_those_in_the_file_is_refused() -> None:
    store = imported()
    record(folder(store), *created(1, "a"), *drafts(1, ready("a")))
    path = layout.events_key(key(1))
    events = store.read(path)
    store.write(layout.INDEX, (store.read(layout.INDEX) or b"").replace(b"T09:00:00Z", b"T08:00:00Z"))
    assert code_of(lambda: record(folder(store), *drafts(1, PASSING[0]))) == "changeset_invalid"
    assert store.read(path) == events
