"""What holds for ledger stores whose files somebody may edit by hand.

`DocumentContract` needs the fixtures `make_store`, as `LedgerContract` does, and `files`, with `plant(key, bytes or None)`
and `stored(key)`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
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
    intent,
    lock,
    state,
    ulid,
    write,
)

from gitops.cluster.approvals.documents import write_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.documents import write_intent, write_lock, write_state
from gitops.cluster.ledger.files import state_cas
from gitops.cluster.ledger.port import BlobCondition, LedgerView
from gitops.cluster.model.ledger import LedgerState
from gitops.core.canonical import digest
from gitops.core.errors import BugError


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
