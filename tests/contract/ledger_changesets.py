"""What every ledger store promises about changesets: no gap in numbers, records that are their events, one active at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from ledger_samples import MakeStore, begun, code_of, entry, intent, state, together, ulid, write

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.model.changeset import (
    INTERRUPTED,
    ChangesetState,
    Committed,
    Created,
    EventDraft,
    Failed,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import EntryKind
from gitops.core.errors import ConflictError, GitopsError
from tests.support.changeset_samples import (
    AT,
    PASSING,
    RESULT,
    commit_id,
    created,
    drafts,
    first_record,
    key,
    member,
    ready,
    run_of,
    whole,
    with_run,
)


def record(store: LedgerStore, *events: EventDraft, view: LedgerView | None = None) -> LedgerView:
    """Record events alone, against the ledger as it is now."""
    view = view or store.view()
    revision = 0 if view.state is None else view.state.revision
    return store.begin(view, (), entry(EntryKind.CHANGESET, revision), events)


def check_history(store: LedgerStore) -> None:
    """Numbers are gap-free, and every record is what its events give."""
    events = store.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert store.changesets().index.seq == len(events)
    for each in store.changeset_keys():
        mine = store.events(key=each)
        assert [event for event in events if event.changeset == each] == list(mine)
        assert store.changeset(each) == replay(mine)
    newest = next(map(store.changeset, store.changeset_keys()), None)
    standing = None if newest is None else (newest.key, newest.state, newest.updated_at)
    assert store.latest_changeset() == standing


class Imported:
    """A ledger with a state."""

    @pytest.fixture
    def imported(self, make_store: MakeStore) -> LedgerStore:
        store = make_store()
        store.commit(store.view(), write(state(1)))
        return store


class ChangesetRaces(Imported):
    """Writers that meet."""

    def test_a_lost_race_gets_other_numbers(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *created(1, "a"))
        first, second = make_store(), make_store()
        view = second.view()
        record(first, *drafts(1, RuntimeUpdated(member("a"), Runtime(RuntimeState.PROVISIONING, 1, AT, AT))))
        try:
            record(second, *drafts(1, ready("a")), view=view)
        except ConflictError as lost:
            if lost.code != "state_cas_mismatch":
                raise
            record(second, *drafts(1, ready("a")))
        assert [event.seq for event in make_store().events()] == [1, 2, 3]
        check_history(make_store())

    def test_of_racing_runners_one_creates(self, make_store: MakeStore, imported: LedgerStore) -> None:
        stores = [make_store() for _ in range(4)]
        numbers = [1, 1, 2, 2]

        def attempt(each: LedgerStore, number: int) -> int:
            for _ in range(200):
                try:
                    record(each, *created(number, "a"))
                except ConflictError as error:
                    if error.code != "state_cas_mismatch":
                        raise
                else:
                    return number
            raise AssertionError("it never got through")

        results = together([partial(attempt, *pair) for pair in zip(stores, numbers, strict=True)])
        winner = make_store().changesets().index.active
        assert winner in (key(1), key(2))
        for number, result in zip(numbers, results, strict=True):
            assert result == number if key(number) == winner else isinstance(result, GitopsError)
        refused = {(r.code, r.detail) for r in results if isinstance(r, GitopsError)}
        assert {code for code, _ in refused} == {"changeset_active"}, refused
        assert len(make_store().events()) == 1


class ChangesetContract(ChangesetRaces):
    """Events, records and the index."""

    def test_a_ledger_without_changesets(self, make_store: MakeStore, imported: LedgerStore) -> None:
        for each in (imported, make_store()):
            listing = each.changesets()
            assert (listing.index.seq, listing.open, listing.problem) == (0, (), None)
            assert each.changeset(key(1)) is None
            assert each.changeset("../state") is None
            assert (each.changeset_keys(), each.changeset_of(commit_id(1)), each.events()) == ((), (), ())

    def test_a_changeset_is_followed_from_its_first_event_to_its_last(
        self, make_store: MakeStore, imported: LedgerStore
    ) -> None:
        record(imported, *created(1, "a", "b"))
        assert make_store().changesets().index.active == key(1)
        record(imported, *drafts(1, ready("a")))
        record(imported, *drafts(1, ready("b"), *PASSING[:2]))
        listing = make_store().changesets()
        assert (listing.index.active, listing.index.open) == (None, (key(1),))
        assert [each.state for each in listing.open] == [ChangesetState.COMMITTED]
        record(imported, *drafts(1, *PASSING[2:]))
        listing = make_store().changesets()
        assert (listing.index.active, listing.index.open, listing.open) == (None, (), ())
        ended = make_store().changeset(key(1))
        assert ended is not None
        assert (ended.state, ended.result) == (ChangesetState.FINALIZED, RESULT)
        assert [event.seq for event in make_store().events(after=3)] == [4, 5, 6, 7]
        check_history(make_store())

    def test_events_land_with_the_state_or_not_at_all(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *created(1, "a"), *drafts(1, ready("a"), PASSING[0]))
        stale = imported.view()
        other = make_store()
        other.commit(other.view(), write(state(2)))
        landing = replace(write(state(2, winner="a" * 64)), events=drafts(1, *PASSING[1:]))
        assert code_of(lambda: imported.commit(stale, landing)) == "state_cas_mismatch"
        found = make_store().changeset(key(1))
        assert found is not None
        assert found.state is ChangesetState.PREPARED
        check_history(make_store())
        imported.commit(imported.view(), replace(landing, state=state(3, winner="a" * 64)))
        assert make_store().view().state == state(3, winner="a" * 64)
        found = make_store().changeset(key(1))
        assert found is not None
        assert found.state is ChangesetState.FINALIZED
        check_history(make_store())

    def test_events_land_with_intents_and_with_retired_ones(self, make_store: MakeStore) -> None:
        store = make_store()
        view = begun(store, intent(1), intent(2))
        view = store.begin(view, [intent(3)], entry(EntryKind.INTENT, 1), created(1, "a"), [ulid(1)])
        store.arm(intent(3))
        assert make_store().intents().intents == (intent(2), intent(3))
        store.retire(view, [ulid(2), ulid(3)], entry(EntryKind.APPLY, 1), drafts(1, ready("a")))
        assert make_store().intents().intents == ()
        check_history(make_store())
        assert len(make_store().events()) == 2

    def test_an_event_that_may_not_happen_writes_nothing(self, make_store: MakeStore, imported: LedgerStore) -> None:
        view = record(imported, *created(1, "a"))
        bad = (*drafts(1, ready("a")), *drafts(1, Committed(2, 1, ())))
        assert code_of(lambda: record(imported, *bad, view=view)) == "changeset_state_invalid"
        assert code_of(lambda: record(imported, *drafts(2, ready("a")), view=view)) == "changeset_state_invalid"
        landing = replace(write(state(2)), events=bad)
        assert code_of(lambda: imported.commit(view, landing)) == "changeset_state_invalid"
        assert make_store().view().state == state(1)
        assert make_store().changesets().index.seq == 1
        record(imported, *drafts(1, ready("a")), view=view)
        check_history(make_store())

    def test_what_has_ended_stays_as_it_is(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *whole(1, "a"))
        known = imported.changeset(key(1))
        for further in (ready("a"), RollingBack("it failed", None), Failed("it failed"), Removed(member("a"))):
            assert code_of(partial(record, imported, *drafts(1, further))) == "changeset_state_invalid"
        assert make_store().changeset(key(1)) == known

    def test_how_a_run_went_is_written_once_with_its_last_event(
        self, make_store: MakeStore, imported: LedgerStore
    ) -> None:
        record(imported, *created(1, "a"))
        assert make_store().run_of(key(1)) is None
        record(imported, *with_run(drafts(1, ready("a"), *PASSING), run_of("a")))
        for store in (imported, make_store()):
            assert store.run_of(key(1)) == run_of("a")
        # One that is over before the changeset is, or that is of another change, is not written.
        record(imported, *with_run(created(2, "b"), run_of()), *with_run(drafts(2, ready("b"), *PASSING), run_of("a")))
        assert make_store().run_of(key(2)) is None
        assert make_store().run_of("no key") is None
        check_history(make_store())

    def test_one_is_active_at_a_time(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *created(1, "a"))
        with pytest.raises(ConflictError) as refused:
            record(make_store(), *created(2, "b"))
        assert (refused.value.code, refused.value.path) == ("changeset_active", key(1))
        assert key(1) in (refused.value.fix or "")
        record(imported, *drafts(1, RollingBack("it failed", member("a"))))
        assert code_of(lambda: record(make_store(), *created(2, "b"))) == "changeset_active"
        record(imported, *drafts(1, Failed("it failed")))
        record(make_store(), *created(2, "b"))
        assert make_store().changesets().index.active == key(2)

    def test_one_is_created_beside_all_active_ones_if_they_share_nothing(
        self, make_store: MakeStore, imported: LedgerStore
    ) -> None:
        def beside(number: int, name: str, *others: int) -> tuple[EventDraft, ...]:
            made = replace(first_record(number, name), beside=tuple(map(key, others)))
            return drafts(number, Created(made))

        record(imported, *created(1, "a"))
        record(make_store(), *beside(2, "b", 1))
        assert code_of(lambda: record(make_store(), *beside(3, "c", 1))) == "changeset_active"
        with pytest.raises(ConflictError) as refused:
            record(make_store(), *beside(3, "a", 1, 2))
        assert (refused.value.code, refused.value.path) == ("changeset_overlap", member("a"))
        record(make_store(), *beside(3, "c", 1, 2))
        listing = make_store().changesets()
        assert ([each.key for each in listing.open], listing.index.active) == ([key(1), key(2), key(3)], key(3))
        # An event of an earlier one does not change their order.
        record(make_store(), *drafts(1, ready("a"), *PASSING[:2]))
        assert [each.key for each in make_store().changesets().open] == [key(1), key(2), key(3)]
        record(make_store(), *drafts(1, *PASSING[2:]), *drafts(3, RollingBack(INTERRUPTED, None), Failed(INTERRUPTED)))
        index = make_store().changesets().index
        # The merge of the third one was not tried, so it does not count.
        assert (index.active, index.open, index.covered) == (None, (key(2),), commit_id(1))
        assert code_of(lambda: record(make_store(), *created(4, "d"))) == "changeset_active"
        record(make_store(), *drafts(2, ready("b"), *PASSING))
        assert make_store().changesets().index.covered == commit_id(2)
        check_history(make_store())

    def test_one_that_cleans_up_keeps_others_from_what_it_touches(
        self, make_store: MakeStore, imported: LedgerStore
    ) -> None:
        record(imported, *created(1, "a", removes="old"), *drafts(1, ready("a"), *PASSING[:2]))
        for touched in ("a", "old"):
            with pytest.raises(ConflictError) as refused:
                record(make_store(), *created(2, touched, "b"))
            assert (refused.value.code, refused.value.path) == ("changeset_overlap", member(touched))
            assert key(1) in (refused.value.fix or "")
        record(make_store(), *created(2, "b"), *drafts(2, ready("b"), *PASSING[:2]))
        assert [each.key for each in make_store().changesets().open] == [key(1), key(2)]
        assert make_store().changesets().index.open == (key(1), key(2))
        record(imported, *drafts(1, PASSING[2], Removed(member("old")), PASSING[3]))
        assert make_store().changesets().index.open == (key(2),)
        check_history(make_store())

    def test_the_same_changeset_is_joined(self, make_store: MakeStore, imported: LedgerStore) -> None:
        view = record(imported, *created(1, "a"))
        assert record(imported, *created(1, "a"), view=view) == view
        record(imported, *created(1, "a"), *drafts(1, ready("a")), view=view)
        record(imported, *drafts(1, *PASSING))
        known = imported.changeset(key(1))
        record(imported, *whole(1, "a"))
        assert make_store().changeset(key(1)) == known
        assert len(make_store().events()) == 6
        with pytest.raises(ConflictError) as refused:
            record(imported, *created(1, "a", plan="cd" * 32))
        assert (refused.value.code, refused.value.path) == ("changeset_conflict", key(1))
        check_history(make_store())

    def test_a_changeset_without_changes_is_one_write(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *whole(1))
        assert make_store().changeset_of(commit_id(1)) == (key(1),)
        assert [event.seq for event in make_store().events(key=key(1))] == [1, 2, 3, 4, 5]
        assert make_store().changesets().index.covered == commit_id(1)

    def test_changesets_are_found_by_the_commits_that_they_bring_in(
        self, make_store: MakeStore, imported: LedgerStore
    ) -> None:
        record(imported, *whole(1, "a"))
        several = replace(first_record(4, "a"), covers=tuple(map(commit_id, (2, 3, 4))))
        record(imported, *drafts(4, Created(several)))
        assert make_store().changesets().index.covered == commit_id(1)
        for number in (2, 3, 4):
            assert make_store().changeset_of(commit_id(number)) == (key(4),)
        record(imported, *drafts(4, RollingBack("it failed", None), Failed("it failed")))
        assert make_store().changeset_of(commit_id(3)) == (key(4),)
        assert make_store().changeset_of(commit_id(1)) == (key(1),)
        assert make_store().changeset_of(commit_id(9)) == ()
        assert make_store().changeset_keys() == (key(4), key(1))
        assert make_store().changesets().index.covered == commit_id(4)

    def test_a_merge_is_brought_in_by_its_last_part(self, make_store: MakeStore, imported: LedgerStore) -> None:
        for part, covered in (("1/2", None), ("2/2", commit_id(1))):
            record(imported, *created(1, part=part), *drafts(1, *PASSING, part=part))
            assert make_store().changesets().index.covered == covered
        assert len(make_store().changeset_of(commit_id(1))) == 2


class RetentionContract(Imported):
    """Records of long ago, for stores that write many files in little time."""

    def test_old_records_leave_and_still_answer(self, make_store: MakeStore, imported: LedgerStore) -> None:
        record(imported, *with_run(whole(1), run_of()))
        assert make_store().run_of(key(1)) == run_of()
        record(imported, *(event for number in range(2, 550) for event in whole(number)))
        record(imported, *whole(550, "a"))
        assert len(make_store().changeset_keys()) == len(make_store().events(key=None)) // 5 == 550
        first = make_store().changeset(key(1))
        record(imported, *created(551), *drafts(551, RollingBack("it failed", None), Failed("it failed")))
        for store in (imported, make_store()):
            assert len(store.changeset_keys()) == 551
            assert store.changeset_keys()[-1] == key(1)
            assert (store.changeset(key(1)), store.changeset_of(commit_id(1))) == (first, (key(1),))
            assert store.events(key=key(1)) == store.events(key=key(50)) == ()
            assert store.run_of(key(1)) is None
            assert [event.seq for event in store.events()][:1] == [251]
            assert len(store.changeset(key(550)).members) == 1  # type: ignore[union-attr]
            assert store.changeset(key(551)).error == "it failed"  # type: ignore[union-attr]
        # One that was archived is joined like every other.
        record(make_store(), *whole(1))
        assert make_store().changesets().index.seq == 550 * 5 + 1 + 3
