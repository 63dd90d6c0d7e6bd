"""What every ledger store promises, as classes to inherit from.

`LedgerContract` needs one fixture, `make_store`: a function that opens another handle of the same, initially empty ledger,
as another process would.

What holds for ledger stores whose files somebody may edit by hand.

`DocumentContract` needs the fixtures `make_store`, as `LedgerContract` does, and `files`, with `plant(key, bytes or None)`
and `stored(key)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from ledger_changesets import ChangesetRaces
from ledger_samples import (
    CONTENT,
    DOCUMENTS,
    POLICY,
    QUERY,
    Files,
    MakeStore,
    approval,
    begun,
    code_of,
    entry,
    intent,
    lock,
    state,
    together,
    ulid,
    write,
)

from gitops.cluster.approvals.documents import write_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.documents import write_intent, write_lock, write_state
from gitops.cluster.ledger.files import state_cas
from gitops.cluster.ledger.port import BlobCondition, LedgerStore, LedgerView
from gitops.cluster.model.address import Address, graph_address, query_address
from gitops.cluster.model.ledger import EntryKind, LedgerState, LockInfo
from gitops.core.canonical import digest
from gitops.core.errors import BugError, ConflictError, GitopsError


class StateContract:
    """View and commit."""

    def test_an_empty_ledger_is_not_found(self, make_store: MakeStore) -> None:
        store = make_store()
        assert store.view() == LedgerView()
        assert store.intents().intents == ()
        assert store.approvals().documents == ()
        assert not store.observe_lock().held
        assert store.state_path
        assert store.lock_path

    def test_a_commit_is_seen_by_every_handle(self, make_store: MakeStore) -> None:
        store = make_store()
        committed = store.commit(store.view(), write(state(1, catalogue="a" * 64)))
        for view in (committed, store.view(), make_store().view()):
            assert view.found
            assert view.problems == ()
            assert view.state == state(1, catalogue="a" * 64)
            assert view.cas == state_cas(write_state(state(1, catalogue="a" * 64)))

    def test_commits_follow_each_other(self, make_store: MakeStore) -> None:
        store = make_store()
        view = store.view()
        tokens = set()
        for revision in range(1, 6):
            view = store.commit(view, write(state(revision)))
            tokens.add(view.cas)
        assert store.view().state == state(5)
        assert len(tokens) == 5

    def test_a_commit_on_an_old_view_changes_nothing(self, make_store: MakeStore) -> None:
        first, second = make_store(), make_store()
        old = first.commit(first.view(), write(state(1)))
        winner = second.commit(second.view(), write(state(2, winner="a" * 64)))
        assert code_of(lambda: first.commit(old, write(state(2, loser="b" * 64)))) == "state_cas_mismatch"
        assert make_store().view().state == winner.state
        assert make_store().view().cas == winner.cas

    def test_a_second_import_does_not_overwrite_the_first(self, make_store: MakeStore) -> None:
        first, second = make_store(), make_store()
        nothing = second.view()
        first.commit(first.view(), write(state(1, first="a" * 64)))
        with pytest.raises(ConflictError) as caught:
            second.commit(nothing, write(state(1, second="b" * 64)))
        assert caught.value.code == "state_cas_mismatch"
        assert second.view().state == state(1, first="a" * 64)

    def test_one_of_racing_imports_wins(self, make_store: MakeStore) -> None:
        stores = [make_store() for _ in range(6)]
        views = [store.view() for store in stores]

        def attempt(index: int) -> Callable[[], LedgerView]:
            return lambda: stores[index].commit(views[index], write(state(1, **{f"n{index}": "a" * 64})))

        results = together([attempt(index) for index in range(6)])
        winners = [result for result in results if isinstance(result, LedgerView)]
        assert len(winners) == 1
        assert {r.code for r in results if isinstance(r, GitopsError)} == {"state_cas_mismatch"}
        assert make_store().view().state == winners[0].state

    def test_one_of_racing_commits_wins(self, make_store: MakeStore) -> None:
        base = make_store().commit(LedgerView(), write(state(1)))
        stores = [make_store() for _ in range(6)]
        views = [store.view() for store in stores]
        assert {view.cas for view in views} == {base.cas}

        def attempt(index: int) -> Callable[[], LedgerView]:
            return lambda: stores[index].commit(views[index], write(state(2, **{f"n{index}": "a" * 64})))

        results = together([attempt(index) for index in range(6)])
        winners = [result for result in results if isinstance(result, LedgerView)]
        assert len(winners) == 1
        assert make_store().view().state == winners[0].state

    def test_a_revision_moves_by_one(self, make_store: MakeStore) -> None:
        store = make_store()
        view = store.commit(store.view(), write(state(1)))
        for wrong in (0, 1, 3):
            with pytest.raises(BugError):
                store.commit(view, write(state(wrong)))
        assert make_store().view().state == state(1)

    def test_a_reader_beside_a_writer_sees_whole_states(self, make_store: MakeStore) -> None:
        writer = make_store()
        view = writer.commit(writer.view(), write(state(1)))
        done = threading.Event()
        seen: list[list[LedgerView]] = [[], []]

        def read(index: int) -> None:
            store = make_store()
            while not done.is_set():
                seen[index].append(store.view())
            seen[index].append(store.view())

        readers = [threading.Thread(target=read, args=(index,)) for index in range(2)]
        for reader in readers:
            reader.start()
        try:
            for revision in range(2, 22):
                view = writer.commit(view, write(state(revision, big="a" * 50_000)))
        finally:
            done.set()
            for reader in readers:
                reader.join()
        for views in seen:
            revisions = []
            for each in views:
                assert each.problems == ()
                assert each.state is not None
                assert each.state.config_digest == digest(str(each.state.revision).encode())
                revisions.append(each.state.revision)
            assert revisions == sorted(revisions)
            assert revisions[-1] == 21


class LockContract:
    """The exclusive lock."""

    def test_one_holder(self, make_store: MakeStore) -> None:
        first, second = make_store(), make_store()
        first.acquire(lock(1))
        seen = second.observe_lock()
        assert seen.held
        assert seen.info == lock(1)
        with pytest.raises(ConflictError) as caught:
            second.acquire(replace(lock(2, "refresh"), created_at="2026-07-02T09:01:30Z"))
        assert caught.value.code == "state_lock_held"
        assert "by apply since 2026-07-02T09:00:00Z, for 90 s (process 4242)" in caught.value.detail
        assert f"force-unlock {ulid(1)}" in caught.value.detail
        assert second.observe_lock().info == lock(1)

    def test_a_lock_can_be_taken_again_after_its_release(self, make_store: MakeStore) -> None:
        first, second = make_store(), make_store()
        first.acquire(lock(1))
        first.release(ulid(1))
        assert not second.observe_lock().held
        second.acquire(lock(2))
        assert first.observe_lock().info == lock(2)

    def test_only_the_own_lock_is_released(self, make_store: MakeStore) -> None:
        store = make_store()
        store.release(ulid(1))
        store.acquire(lock(1))
        store.release(ulid(2))
        assert store.observe_lock().info == lock(1)

    def test_a_released_lock_of_a_broken_holder_leaves_the_next_one(self, make_store: MakeStore) -> None:
        stale, fresh = make_store(), make_store()
        stale.acquire(lock(1))
        fresh.break_lock(ulid(1))
        fresh.acquire(lock(2))
        stale.release(ulid(1))
        assert fresh.observe_lock().info == lock(2)

    def test_one_of_racing_threads_gets_the_lock(self, make_store: MakeStore) -> None:
        for round_ in range(3):
            stores = [make_store() for _ in range(8)]
            numbers = [round_ * 8 + index for index in range(8)]

            def attempt(store: LedgerStore, info: LockInfo) -> Callable[[], LockInfo]:
                def run() -> LockInfo:
                    store.acquire(info)
                    return info

                return run

            pairs = zip(stores, numbers, strict=True)
            results = together([attempt(store, lock(number)) for store, number in pairs])
            winners = [result for result in results if isinstance(result, LockInfo)]
            assert len(winners) == 1
            assert {r.code for r in results if isinstance(r, GitopsError)} == {"state_lock_held"}
            assert make_store().observe_lock().info == winners[0]
            make_store().release(winners[0].lock_id)

    def test_breaking_needs_a_lock_with_exactly_this_id(self, make_store: MakeStore) -> None:
        store = make_store()
        assert code_of(lambda: store.break_lock(ulid(1))) == "state_lock_missing"
        store.acquire(lock(11))
        for wrong in (ulid(12), ulid(11).lower(), ulid(11)[:-1], ""):
            assert code_of(partial(store.break_lock, wrong)) == "state_lock_id_mismatch"
        assert make_store().observe_lock().info == lock(11)
        make_store().break_lock(ulid(11))
        assert not store.observe_lock().held

    def test_a_lock_is_broken_by_the_key_that_it_is_seen_under(self, make_store: MakeStore) -> None:
        make_store().acquire(lock(1))
        seen = make_store().observe_lock()
        assert (seen.unlock_id, seen.key in ("", ulid(1))) == (ulid(1), False)
        make_store().break_lock(seen.key)
        assert not make_store().observe_lock().held

    def test_the_lock_is_no_part_of_the_state(self, make_store: MakeStore) -> None:
        store = make_store()
        store.acquire(lock(1))
        assert not store.view().found
        view = store.commit(store.view(), write(state(1)))
        store.release(ulid(1))
        assert store.view() == view


class IntentContract:
    """Recovery sidecars."""

    def test_armed_intents_are_listed_in_the_order_of_their_ids(self, make_store: MakeStore) -> None:
        wanted = [intent(number) for number in (3, 1, 2)]
        begun(make_store(), *wanted)
        assert make_store().intents().intents == (intent(1), intent(2), intent(3))
        assert make_store().intents().unreadable == ()

    def test_an_amended_intent_replaces_the_armed_one(self, make_store: MakeStore) -> None:
        store = make_store()
        view = begun(store, intent(1), intent(2))
        known = replace(intent(1), expected_manifest_version=8)
        store.amend(known)
        found = store.intents().intents
        # A store that announced the intents durably may keep what is learned later to itself: it is forensic.
        assert found in ((known, intent(2)), (intent(1), intent(2)))
        store.commit(view, write(state(2), retire=[ulid(1), ulid(2)]))
        assert make_store().intents().intents == ()

    def test_retired_intents_leave_with_the_commit_and_others_stay(self, make_store: MakeStore) -> None:
        store = make_store()
        view = begun(store, intent(1), intent(2))
        store.commit(view, write(state(2), retire=[ulid(1)]))
        assert make_store().intents().intents == (intent(2),)

    def test_a_lost_commit_retires_nothing(self, make_store: MakeStore) -> None:
        store, other = make_store(), make_store()
        view = begun(store, intent(1))
        other.commit(other.view(), write(state(2, other="a" * 64)))
        assert code_of(lambda: store.commit(view, write(state(2), retire=[ulid(1)]))) == "state_cas_mismatch"
        assert make_store().intents().intents == (intent(1),)

    def test_intents_retire_without_a_state_write(self, make_store: MakeStore) -> None:
        store = make_store()
        view = begun(store, intent(1), intent(2))
        after = store.retire(view, [ulid(1)], entry(EntryKind.APPLY, 1))
        assert make_store().intents().intents == (intent(2),)
        assert after.state == view.state
        assert make_store().view().state == view.state
        store.commit(after, write(state(2), retire=[ulid(2)]))
        assert make_store().intents().intents == ()

    def test_a_moved_ledger_retires_nothing(self, make_store: MakeStore) -> None:
        store, other = make_store(), make_store()
        view = begun(store, intent(1))
        other.commit(other.view(), write(state(2)))
        assert code_of(lambda: store.retire(view, [ulid(1)], entry(EntryKind.APPLY, 1))) == "state_cas_mismatch"
        assert make_store().intents().intents == (intent(1),)

    def test_withdrawing_is_quiet(self, make_store: MakeStore) -> None:
        store = make_store()
        begun(store, intent(1))
        store.disarm(ulid(2))
        store.disarm("../state")
        assert make_store().intents().intents == (intent(1),)


class BlobContract:
    """Catalog blobs. A published blob is readable at the latest after the commit that needs it."""

    def test_a_blob_is_stored_by_its_digest(self, make_store: MakeStore) -> None:
        store = make_store()
        for address in (QUERY, POLICY):
            assert store.put_blob(address, CONTENT) == digest(CONTENT)
            assert store.put_blob(address, CONTENT) == digest(CONTENT)
        store.commit(store.view(), write(state(1)))
        for address in (QUERY, POLICY):
            reading = make_store().blob(address, digest(CONTENT))
            assert reading.condition is BlobCondition.OK
            assert reading.content == CONTENT

    def test_an_older_blob_stays(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put_blob(QUERY, CONTENT)
        view = store.commit(store.view(), write(state(1)))
        store.put_blob(QUERY, CONTENT + b"\n")
        store.commit(view, write(state(2)))
        assert make_store().blob(QUERY, digest(CONTENT)).content == CONTENT
        assert make_store().blob(QUERY, digest(CONTENT + b"\n")).content == CONTENT + b"\n"

    @pytest.mark.parametrize(
        ("address", "name"),
        [
            (QUERY, "0" * 64),
            (query_address("catalogue", "other"), digest(CONTENT)),
            (POLICY, digest(CONTENT)),
            (graph_address("catalogue"), digest(CONTENT)),
            (QUERY, "../../state"),
            (QUERY, ""),
            (Address("query.catalogue.../../../lock"), digest(CONTENT)),
            (Address("strange"), digest(CONTENT)),
        ],
    )
    def test_what_is_not_there_is_missing(self, make_store: MakeStore, address: Address, name: str) -> None:
        store = make_store()
        store.put_blob(QUERY, CONTENT)
        store.commit(store.view(), write(state(1)))
        reading = make_store().blob(address, name)
        assert reading.condition is BlobCondition.MISSING
        assert reading.content is None

    def test_racing_writers_of_one_blob_all_succeed(self, make_store: MakeStore) -> None:
        store = make_store()
        contents = [CONTENT, CONTENT + b"#", CONTENT, CONTENT + b"##"] * 2
        results = together([partial(store.put_blob, QUERY, content) for content in contents])
        assert results == [digest(content) for content in contents]
        store.commit(store.view(), write(state(1)))
        assert all(make_store().blob(QUERY, digest(c)).content == c for c in contents)

    @pytest.mark.parametrize(
        ("address", "content"),
        [(QUERY, b"\xff\xfe"), (graph_address("catalogue"), CONTENT), (Address("query.a.../b"), CONTENT)],
    )
    def test_what_cannot_be_a_blob_is_refused(self, make_store: MakeStore, address: Address, content: bytes) -> None:
        assert code_of(lambda: make_store().put_blob(address, content)) == "resource_payload_write_error"


class LedgerContract(StateContract, LockContract, IntentContract, BlobContract, ChangesetRaces):
    """All that holds for every store."""


class DocumentContract:
    """What holds for stores whose files a hand, a crash or another release may have left in any shape."""

    @pytest.mark.parametrize(
        ("data", "code", "path"),
        [
            (b"{", "invalid_state_json", layout.STATE),
            (b'{"version": 2}', "unsupported_state_version", "state.version"),
            (b'{"version": 1}', "invalid_state_json", layout.STATE),
            (b"[" * 10_000, "invalid_state_json", layout.STATE),
        ],
    )
    def test_an_invalid_state_is_found_and_never_written_over(
        self, make_store: MakeStore, files: Files, data: bytes, code: str, path: str
    ) -> None:
        files.plant(layout.STATE, data)
        store = make_store()
        view = store.view()
        assert view.found
        assert view.state is None
        assert view.cas == state_cas(data)
        assert [(p.code, p.path) for p in view.problems] == [(code, path)]
        with pytest.raises(BugError):
            store.commit(view, write(state(1)))
        assert code_of(lambda: store.commit(LedgerView(), write(state(1)))) == "state_cas_mismatch"
        assert files.stored(layout.STATE) == data

    def test_a_minimal_state_has_revision_zero(self, make_store: MakeStore, files: Files) -> None:
        minimal = (DOCUMENTS / "state.minimal.json").read_bytes()
        files.plant(layout.STATE, minimal)
        view = make_store().view()
        assert view.state == LedgerState()
        assert view.cas == "sha256:27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"
        assert make_store().commit(view, write(state(1))).state == state(1)

    def test_the_documents_are_the_agreed_bytes_at_the_agreed_places(self, make_store: MakeStore, files: Files) -> None:
        store = make_store()
        view = begun(store, intent(1))
        store.acquire(lock(2))
        store.record_approval(approval(3))
        store.put_blob(QUERY, CONTENT)
        store.put_blob(POLICY, CONTENT)
        assert files.stored("__cluster/state.json") == write_state(state(1)) == write_state(view.state or LedgerState())
        assert files.stored("__cluster/lock.json") == write_lock(lock(2))
        assert files.stored(f"__cluster/recoveries/{ulid(1)}.json") == write_intent(intent(1))
        assert files.stored(f"__cluster/approvals/{ulid(3)}.json") == write_approval(approval(3))
        name = digest(CONTENT)
        assert files.stored(f"__cluster/resources/query/catalogue/by_handle/{name}.gq") == CONTENT
        assert files.stored(f"__cluster/resources/policy/readers/{name}.yaml") == CONTENT

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (b"", "invalid_state_lock"),
            (b'{"version": 1}', "invalid_state_lock"),
            (b'{"version": 2}', "unsupported_state_lock_version"),
            (write_lock(lock(1))[:-1] + b', "host": "a"}', "invalid_state_lock"),
        ],
    )
    def test_a_lock_that_cannot_be_read_is_held(
        self, make_store: MakeStore, files: Files, data: bytes, code: str
    ) -> None:
        files.plant(layout.LOCK, data)
        store = make_store()
        seen = store.observe_lock()
        assert (seen.held, seen.info, seen.problem) == (True, None, code)
        assert code_of(lambda: store.acquire(lock(1))) == "state_lock_held"
        assert code_of(lambda: store.break_lock(ulid(1))) == code
        store.release(ulid(1))
        assert files.stored(layout.LOCK) == data

    def test_unusable_sidecars_are_listed_beside_the_good_ones(self, make_store: MakeStore, files: Files) -> None:
        good = write_intent(intent(5))
        files.plant(layout.intent_key(ulid(5)), good)
        files.plant(layout.intent_key(ulid(1)), b"not json")
        files.plant(layout.intent_key(ulid(2)), good.replace(b'"schema_version": 1', b'"schema_version": 2'))
        files.plant(layout.intent_key(ulid(9)), good)
        files.plant(f"{layout.RECOVERIES}/notes.txt", b"not considered")
        listing = make_store().intents()
        assert listing.problem is None
        assert listing.intents == (intent(5),)
        assert [(item.name, item.code) for item in listing.unreadable] == [
            (f"{ulid(1)}.json", "invalid_recovery_sidecar"),
            (f"{ulid(2)}.json", "unsupported_recovery_sidecar_version"),
            (f"{ulid(9)}.json", "invalid_recovery_sidecar"),
        ]
        assert files.stored(layout.intent_key(ulid(1))) == b"not json"

    def test_an_intent_is_armed_once(self, make_store: MakeStore, files: Files) -> None:
        store = make_store()
        store.arm(intent(1))
        other = replace(intent(1), graph_id="other")
        assert code_of(lambda: store.arm(other)) == "recovery_sidecar_write_error"
        assert store.intents().intents == (intent(1),)
        store.amend(replace(intent(1), expected_manifest_version=8))
        assert store.intents().intents == (replace(intent(1), expected_manifest_version=8),)
        store.disarm(ulid(1))
        assert store.intents().intents == ()

    @pytest.mark.parametrize("bad", ["", "../state", "a/b", "a.b", "x" * 65, "a\n"])
    def test_an_id_that_is_no_file_name_is_refused(self, make_store: MakeStore, bad: str) -> None:
        store = make_store()
        wrong = replace(intent(1), operation_id=bad)
        assert code_of(lambda: store.arm(wrong)) == "recovery_sidecar_write_error"
        assert code_of(lambda: store.amend(wrong)) == "recovery_sidecar_write_error"
        assert code_of(lambda: store.record_approval(replace(approval(1), approval_id=bad))) == "approval_write_error"
        store.disarm(bad)

    def test_approvals_are_listed_in_order_with_the_unusable_ones(self, make_store: MakeStore, files: Files) -> None:
        store = make_store()
        store.record_approval(approval(2))
        store.record_approval(approval(1))
        newer = write_approval(approval(3)).replace(b'"schema_version": 1', b'"schema_version": 9')
        files.plant(layout.approval_key(ulid(3)), newer)
        files.plant(layout.approval_key(ulid(4)), b"\xff")
        files.plant(layout.approval_key(ulid(5)), write_approval(approval(1)))
        listing = make_store().approvals()
        assert listing.problem is None
        assert listing.documents == (approval(1), approval(2))
        assert [item.code for item in listing.unreadable] == [
            "unsupported_approval_version",
            "invalid_approval_artifact",
            "invalid_approval_artifact",
        ]

    def test_an_approval_is_recorded_once(self, make_store: MakeStore) -> None:
        store = make_store()
        store.record_approval(approval(1))
        again = replace(approval(1), approved_by="somebody else")
        assert code_of(lambda: store.record_approval(again)) == "approval_write_error"
        assert store.approvals().documents == (approval(1),)

    def test_a_landed_commit_marks_its_approvals_as_used(self, make_store: MakeStore) -> None:
        store = make_store()
        store.record_approval(approval(1))
        store.record_approval(approval(2))
        store.commit(store.view(), write(state(1), consumed=[replace(approval(1), consumed_by_operation="apply")]))
        used, untouched = make_store().approvals().documents
        assert used == replace(approval(1), consumed_at="2026-07-02T10:00:00Z", consumed_by_operation="apply")
        assert untouched == approval(2)

    def test_a_lost_commit_uses_no_approval(self, make_store: MakeStore) -> None:
        store = make_store()
        store.record_approval(approval(1))
        stale = store.view()
        store.commit(store.view(), write(state(1)))
        assert code_of(lambda: store.commit(stale, write(state(1), consumed=[approval(1)]))) == "state_cas_mismatch"
        assert make_store().approvals().documents == (approval(1),)

    def test_a_corrupt_blob_is_seen_and_replaced(self, make_store: MakeStore, files: Files) -> None:
        store = make_store()
        store.put_blob(QUERY, CONTENT)
        key = layout.blob_key(QUERY, digest(CONTENT))
        assert key is not None
        for damaged, condition in ((b"tampered", BlobCondition.MISMATCH), (b"\xff", BlobCondition.UNREADABLE)):
            files.plant(key, damaged)
            reading = store.blob(QUERY, digest(CONTENT))
            assert (reading.condition, reading.content) == (condition, None)
        assert store.put_blob(QUERY, CONTENT) == digest(CONTENT)
        assert store.blob(QUERY, digest(CONTENT)).content == CONTENT
        files.plant(key, None)
        assert store.blob(QUERY, digest(CONTENT)).condition is BlobCondition.MISSING
