"""Listing, finding and watching changesets in real ledgers: in a folder, and on a branch over real git."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cluster.changesets.stream import ChangesetAnswer, FullState, StreamItem, Until
from gitops.cluster.ledger.folder import FolderChangesets, FolderLedger
from gitops.cluster.ledger.layout import INDEX
from gitops.cluster.ledger.port import LedgerReader, LedgerStore
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetState,
    Created,
    EventDraft,
    Happening,
    Member,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import EntryKind, Intent, IntentKind, LockInfo
from gitops.cluster.session.changesets import (
    BringsNothing,
    Pacing,
    Steering,
    WatchedChangeset,
    WatchRules,
    find_changesets,
    list_changesets,
    watch_changeset,
)
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from tests.support.branch_ledger import World, make_keys, written
from tests.support.changeset_stories import AT, DIGEST, MERGES, QUERY, created, failed, landed
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

NOW = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)
FIRST = created()


class Ledgers:
    """One ledger with two handles: a program that carries out changesets, and a person who reads."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.clock = FixedClock(NOW)
        self.folder = folder
        if kind == "folder":
            self.writer: LedgerStore = FolderLedger(LocalStore(folder), clock=self.clock, faults=NoFaults())
            self.reader: LedgerStore = FolderLedger(LocalStore(folder), clock=self.clock, faults=NoFaults())
        else:
            (folder / "keys").mkdir()
            world = World(folder, make_keys(folder / "keys"), str(folder / "far.git"), clock=self.clock)
            self.writer, self.reader = world.ledger("one.git"), world.ledger("two.git")
        self.writer.commit(self.writer.view(), written(1))

    def record(self, changeset: Changeset, *happenings: Happening) -> None:
        """What a run records, in one write."""
        entry = written(1).entry
        assert entry is not None
        drafts = [EventDraft(changeset.key, AT, each) for each in happenings]
        self.writer.begin(self.writer.view(), (), replace(entry, kind=EntryKind.CHANGESET), drafts)


@pytest.fixture(params=["folder", "branch"])
def ledgers(request, tmp_path: Path) -> Ledgers:
    return Ledgers(tmp_path, request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Ledgers:
    return Ledgers(tmp_path, "folder")


class Watcher:
    """A watch whose pauses let other things happen, and take no time."""

    def __init__(self, ledgers: Ledgers, *meanwhile: Callable[[], object]) -> None:
        self.clock, self.reader = ledgers.clock, ledgers.reader
        self.items: list[StreamItem] = []
        self.pauses: list[float] = []
        self._meanwhile: Iterator[Callable[[], object]] = iter(meanwhile)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))
        next(self._meanwhile, lambda: None)()

    def watch(
        self,
        wanted: WatchedChangeset,
        rules: WatchRules | None = None,
        reader: LedgerReader | None = None,
        brings_nothing: BringsNothing = lambda _: False,
    ) -> ChangesetAnswer:
        pacing = Pacing(self.clock, self._pause, lambda: 0.5)
        found, _ = watch_changeset(
            reader or self.reader,
            "brain",
            wanted,
            rules or WatchRules(),
            pacing,
            self.items.append,
            brings_nothing,
        )
        return found

    @property
    def seen(self) -> list[str]:
        """The names of the items, in order."""
        return [type(each.what).__name__ for each in self.items]


def names(happenings: list[Happening]) -> list[str]:
    return [type(each).__name__ for each in happenings]


def test_15_a_merge_that_brings_nothing_is_not_waited_for(folder):
    watcher, merge = Watcher(folder), WatchedChangeset(commit=MERGES[0])
    assert watcher.watch(merge, brings_nothing=MERGES[0].__eq__) is ChangesetAnswer.NO_CHANGE
    assert (watcher.pauses, watcher.seen) == ([], ["FullState"])
    assert find_changesets(folder.reader, merge, MERGES[0].__eq__) == ()
    # What is recorded counts, whatever git says.
    folder.record(FIRST, *failed(FIRST))
    assert watcher.watch(merge, brings_nothing=MERGES[0].__eq__) is ChangesetAnswer.FAILED


def test_a_watcher_waits_for_a_changeset_that_does_not_exist_yet(ledgers):
    def whole() -> None:
        ledgers.record(FIRST, *landed(FIRST)[:5])

    watcher = Watcher(ledgers, lambda: None, whole)
    assert watcher.watch(WatchedChangeset(commit=MERGES[0])) is ChangesetAnswer.DONE
    assert watcher.seen == ["FullState", *names(landed(FIRST)[:5])]
    assert watcher.items[0].what == FullState(1, None, {}, ())


def test_a_watcher_that_starts_late_gets_the_full_state_and_afterwards_no_event_twice(ledgers):
    story = landed(FIRST)
    ledgers.record(FIRST, *story[:3])
    watcher = Watcher(ledgers, lambda: ledgers.record(FIRST, *story[3:5]), lambda: ledgers.record(FIRST, *story[5:]))
    assert watcher.watch(WatchedChangeset(FIRST.key), WatchRules(Until.FINALIZED)) is ChangesetAnswer.DONE
    assert watcher.seen == ["FullState", *names(story[3:])]
    assert isinstance(watcher.items[0].what, FullState)
    assert [each.key for each in watcher.items[0].what.changesets] == [FIRST.key]
    assert [each.seq for each in watcher.items] == [3, 4, 5, 6, 7]


def test_a_watcher_that_missed_ten_commits_prints_every_transition_in_order(ledgers):
    two = created(MERGES[1])

    def ten_commits() -> None:
        for changeset, story in ((two, failed(two)), (FIRST, landed(FIRST)[:6])):
            for each in story:
                ledgers.record(changeset, each)

    watcher = Watcher(ledgers, ten_commits)
    assert watcher.watch(WatchedChangeset(FIRST.key)) is ChangesetAnswer.DONE
    assert watcher.seen == ["FullState", *names(landed(FIRST)[:6])]
    assert [each.seq for each in watcher.items] == [0, 5, 6, 7, 8, 9, 10]


def test_a_failed_changeset_ends_a_watch_with_its_error(folder):
    folder.record(FIRST, *failed(FIRST))
    watcher = Watcher(folder)
    assert watcher.watch(WatchedChangeset(FIRST.key)) is ChangesetAnswer.FAILED
    assert watcher.pauses == []


def test_pauses_grow_from_one_to_ten_seconds_begin_again_and_end_with_the_time(folder):
    quiet = [lambda: None] * 6
    watcher = Watcher(folder, *quiet, lambda: folder.record(FIRST, *landed(FIRST)[:2]))
    assert (
        watcher.watch(WatchedChangeset(FIRST.key), WatchRules(timeout=timedelta(seconds=60))) is ChangesetAnswer.WAITING
    )
    assert watcher.pauses[:8] == [1, 2, 4, 8, 10, 10, 10, 1]
    assert sum(watcher.pauses) == 60


def test_one_changeset_for_three_merges_is_found_for_each(ledgers):
    together = created(MERGES[2], covers=MERGES[:3])
    ledgers.record(together, *landed(together))
    for merge in MERGES[:3]:
        (found,) = find_changesets(ledgers.reader, WatchedChangeset(commit=merge))
        assert found.key == together.key
        assert Watcher(ledgers).watch(WatchedChangeset(commit=merge)) is ChangesetAnswer.DONE


def test_a_watch_of_a_merge_goes_on_with_the_next_attempt(folder):
    again = created(attempt=2, retry_of=FIRST.key)
    folder.record(FIRST, *failed(FIRST)[:2])
    watcher = Watcher(
        folder,
        lambda: (folder.record(FIRST, *failed(FIRST)[2:]), folder.record(again, *landed(again))),
    )
    assert watcher.watch(WatchedChangeset(commit=MERGES[0])) is ChangesetAnswer.DONE
    assert watcher.seen == ["FullState", *names(failed(FIRST)[2:]), *names(landed(again))]
    records = [folder.reader.changeset(key) for key in (FIRST.key, again.key)]
    assert [each and (each.state, each.retry_of) for each in records] == [
        (ChangesetState.FAILED, None),
        (ChangesetState.FINALIZED, FIRST.key),
    ]


def test_ended_changesets_leave_the_list_and_are_found_with_all(ledgers):
    two, three = created(MERGES[1]), created(MERGES[2])
    ledgers.record(FIRST, *landed(FIRST))
    ledgers.record(two, *failed(two))
    ledgers.record(three, *landed(three)[:2])
    reader = ledgers.reader
    assert [each.key for each in list_changesets(reader)] == [three.key]
    assert [each.key for each in list_changesets(reader, ended=True)] == [three.key, two.key, FIRST.key]
    assert [each.key for each in list_changesets(reader, ended=True, limit=2)] == [three.key, two.key]
    assert [each.key for each in list_changesets(reader, state=ChangesetState.FAILED)] == [two.key]
    assert list_changesets(reader, state=ChangesetState.PREPARED) == ()
    (newest,) = find_changesets(reader, WatchedChangeset())
    assert newest.key == three.key


def test_what_does_not_exist_is_not_found(ledgers):
    for wanted in (WatchedChangeset(FIRST.key), WatchedChangeset(commit=MERGES[0]), WatchedChangeset()):
        with pytest.raises(GitopsError) as caught:
            find_changesets(ledgers.reader, wanted)
        assert caught.value.code == Code.CHANGESET_NOT_FOUND


def steering(ledgers: Ledgers) -> Steering:
    return Steering(ledgers.reader, ledgers.clock, SequentialIds(), "ada")


def test_a_run_at_work_finds_that_its_changeset_was_given_up_and_lands_nothing(tmp_path):
    ledgers = Ledgers(tmp_path, "branch")
    ledgers.record(FIRST, *landed(FIRST)[:3])
    ledgers.writer.acquire(LockInfo("0" * 26, "apply", AT, 1))
    seen = ledgers.writer.view()
    assert steering(ledgers).fail(FIRST.key, "the node is full").state is ChangesetState.ROLLING_BACK
    entry = written(1).entry
    assert entry is not None
    drafts = [EventDraft(FIRST.key, AT, each) for each in landed(FIRST)[3:5]]
    with pytest.raises(ConflictError) as caught:
        ledgers.writer.commit(seen, replace(written(2), events=tuple(drafts)))
    assert caught.value.code == Code.STATE_CAS_MISMATCH
    assert ledgers.writer.view().state == written(1).state
    assert ledgers.writer.observe_lock().held
    ledgers.writer.release("0" * 26)


def test_a_folder_is_left_to_the_holder_of_the_lock_while_that_commits(folder):
    folder.record(FIRST, *landed(FIRST)[:3])
    folder.writer.acquire(LockInfo("0" * 26, "apply", AT, 1))
    store = LocalStore(folder.folder)
    drafts = [EventDraft(FIRST.key, AT, each) for each in landed(FIRST)[3:5]]
    FolderChangesets(store, NoFaults()).announce(drafts, b"the next state")
    index = store.read(INDEX)
    with pytest.raises(ConflictError) as caught:
        steering(folder).fail(FIRST.key, "the node is full")
    assert caught.value.code == Code.STATE_LOCK_HELD
    assert store.read(INDEX) == index


def test_only_an_apply_is_decided_about_without_the_lock(ledgers):
    ledgers.record(FIRST, *landed(FIRST)[:3])
    ledgers.writer.acquire(LockInfo("0" * 26, "repair", AT, 1))
    for decide in (
        lambda: steering(ledgers).fail(FIRST.key, "no"),
        lambda: steering(ledgers).update(FIRST.key, RuntimeUpdated(QUERY, Runtime(RuntimeState.READY))),
    ):
        with pytest.raises(ConflictError) as caught:
            decide()
        assert caught.value.code == Code.STATE_LOCK_HELD


def test_what_is_left_behind_is_listed_and_no_later_run_goes_on_with_it(ledgers):
    graph = Address("graph.notes")
    made = created(members=(Member(graph, Action.CREATE, Effect.STAGE, None, DIGEST),))
    intent = Intent("0" * 26, AT, None, IntentKind.GRAPH_CREATE, "notes", "notes.omni", None, None, DIGEST, None, None)
    entry = written(1).entry
    assert entry is not None
    drafts = [EventDraft(made.key, AT, Created(made)), EventDraft(made.key, AT, RollingBack("it failed", graph))]
    ledgers.writer.begin(ledgers.writer.view(), [intent], replace(entry, kind=EntryKind.INTENT), drafts)
    ledgers.writer.arm(intent)
    found = steering(ledgers).fail(made.key, "given up", force=True)
    assert (found.state, found.error) == (ChangesetState.FAILED, "it failed")
    assert [each.address for each in found.orphaned] == [graph]
    assert ledgers.reader.intents().intents == ()


class Silent:
    """A ledger whose remote does not answer some of the time."""

    def __init__(self, ledger: LedgerReader, times: int, *, retryable: bool = True) -> None:
        self._ledger, self.times, self._retryable = ledger, times, retryable

    def __getattr__(self, name: str):
        if name == "view" and self.times > 0:
            self.times -= 1
            raise RemoteError(Code.GIT_REMOTE_UNAVAILABLE, "no answer", retryable=self._retryable)
        return getattr(self._ledger, name)


def test_a_remote_that_is_silent_for_a_moment_is_asked_again(folder):
    folder.record(FIRST, *landed(FIRST))
    watcher = Watcher(folder)
    assert watcher.watch(WatchedChangeset(FIRST.key), reader=Silent(folder.reader, 3)) is ChangesetAnswer.DONE
    assert watcher.pauses == [2, 4, 8]


def test_a_remote_that_stays_silent_or_refuses_is_the_reason(folder):
    for silent, seconds in ((Silent(folder.reader, 99), 60), (Silent(folder.reader, 1, retryable=False), 0)):
        watcher = Watcher(folder)
        with pytest.raises(RemoteError):
            watcher.watch(WatchedChangeset(FIRST.key), WatchRules(timeout=timedelta(seconds=60)), silent)
        assert sum(watcher.pauses) == seconds
