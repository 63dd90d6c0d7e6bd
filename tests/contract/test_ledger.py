"""The ledger contract on a folder (local disk, memory, object storage), and what only a folder can show."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_changesets import ChangesetContract, RetentionContract
from ledger_samples import CONTENT, QUERY, Files, MakeStore, approval, begun, code_of, intent, lock, state, ulid, write
from ledger_suite import DocumentContract, LedgerContract

from gitops.cluster.ledger import layout, served
from gitops.cluster.ledger.documents import write_lock
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.port import BlobCondition, LedgerView
from gitops.cluster.ledger.served import SERVER_REPORT, ServingReports
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport
from gitops.cluster.session.status import servers
from gitops.core.canonical import digest
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.database.storage.port import ObjectStore
from gitops.database.storage.s3 import S3Store
from tests.support.clock import FixedClock
from tests.support.memory_store import BrokenStore, MemoryStore
from tests.support.real_service import REAL_SERVICES, RealService

CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))


@dataclass
class StoreFiles:
    """The raw files behind a folder ledger."""

    store: ObjectStore

    def plant(self, key: str, data: bytes | None) -> None:
        if data is None:
            self.store.delete(key)
        else:
            self.store.write(key, data)

    def stored(self, key: str) -> bytes | None:
        return self.store.read(key)


def folder(store: ObjectStore) -> FolderLedger:
    return FolderLedger(store, clock=CLOCK, faults=NoFaults())


class TestLocalFolder(LedgerContract, DocumentContract, ChangesetContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "root"

    @pytest.fixture
    def make_store(self, root: Path) -> MakeStore:
        return lambda: folder(LocalStore(root))

    @pytest.fixture
    def files(self, root: Path) -> Files:
        return StoreFiles(LocalStore(root))


class TestMemoryFolder(LedgerContract, DocumentContract, ChangesetContract, RetentionContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def make_store(self, store: MemoryStore) -> MakeStore:
        return lambda: folder(store)

    @pytest.fixture
    def files(self, store: MemoryStore) -> Files:
        return StoreFiles(store)


class TestObjectStorage(LedgerContract, DocumentContract, ChangesetContract):
    @pytest.fixture(params=["imitation", *REAL_SERVICES], ids=str)
    def root(self, request: pytest.FixtureRequest) -> str:
        if isinstance(request.param, RealService):
            return request.getfixturevalue("real_root")(request.param)
        return request.getfixturevalue("s3").root

    @pytest.fixture
    def make_store(self, root: str) -> MakeStore:
        return lambda: folder(S3Store(root))

    @pytest.fixture
    def files(self, root: str) -> Files:
        return StoreFiles(S3Store(root))


def test_a_state_that_cannot_be_read_is_not_absent() -> None:
    store = BrokenStore(broken={("read", layout.STATE)})
    view = folder(store).view()
    assert view.found
    assert view.state is None
    assert [p.code for p in view.problems] == ["state_read_error"]


@pytest.mark.parametrize("operation", ["read", "create", "replace"])
def test_a_state_that_cannot_be_written_is_a_write_error(operation: str) -> None:
    store = BrokenStore()
    ledger = folder(store)
    view = LedgerView() if operation == "create" else ledger.commit(ledger.view(), write(state(1)))
    before = MemoryStore.read(store, layout.STATE)
    ledger.arm(intent(1))
    store.broken = {(operation, layout.STATE)}
    following = state(1) if view.state is None else state(2)
    with pytest.raises(RemoteError) as caught:
        ledger.commit(view, write(following, retire=[ulid(1)]))
    assert caught.value.code == "state_write_error"
    assert caught.value.retryable
    assert MemoryStore.read(store, layout.STATE) == before
    assert ledger.intents().intents == (intent(1),)


def test_a_lock_whose_creation_failed_half_way_is_taken_back() -> None:
    store = BrokenStore(broken={("create", layout.LOCK)}, too_late=True)
    assert code_of(lambda: folder(store).acquire(lock(1))) == "state_lock_error"
    assert store.read(layout.LOCK) is None


def test_a_failed_creation_never_removes_the_lock_of_another() -> None:
    store = BrokenStore(broken={("create", layout.LOCK)}, too_late=True)
    store.write(layout.LOCK, write_lock(lock(2)))
    assert code_of(lambda: folder(store).acquire(lock(1))) == "state_lock_error"
    assert folder(store).observe_lock().info == lock(2)


def test_a_lock_that_cannot_be_read_is_held_and_not_broken() -> None:
    store = BrokenStore()
    ledger = folder(store)
    ledger.acquire(lock(1))
    store.broken = {("read", layout.LOCK)}
    seen = ledger.observe_lock()
    assert (seen.held, seen.info, seen.problem) == (True, None, "state_lock_read_error")
    assert code_of(lambda: ledger.break_lock(ulid(1))) == "state_lock_read_error"
    assert code_of(lambda: ledger.release(ulid(1))) == "state_unlock_error"
    assert code_of(lambda: ledger.acquire(lock(2))) == "state_lock_held"


def test_a_lock_that_cannot_be_removed_stays() -> None:
    store = BrokenStore()
    ledger = folder(store)
    ledger.acquire(lock(1))
    store.broken = {("delete", layout.LOCK)}
    assert code_of(lambda: ledger.break_lock(ulid(1))) == "state_unlock_error"
    assert code_of(lambda: ledger.release(ulid(1))) == "state_unlock_error"
    assert ledger.observe_lock().info == lock(1)


def test_failing_side_documents_have_their_own_codes() -> None:
    store = BrokenStore(broken={(o, "__cluster/") for o in ("names", "create", "write", "delete")})
    ledger = folder(store)
    assert ledger.intents().problem == "the disk is on fire"
    assert ledger.approvals().problem == "the disk is on fire"
    assert code_of(lambda: ledger.arm(intent(1))) == "recovery_sidecar_write_error"
    assert code_of(lambda: ledger.amend(intent(1))) == "recovery_sidecar_write_error"
    assert code_of(lambda: ledger.record_approval(approval(1))) == "approval_write_error"
    assert code_of(lambda: ledger.put_blob(QUERY, CONTENT)) == "resource_payload_write_error"
    ledger.disarm(ulid(1))


def test_a_sidecar_that_cannot_be_read_is_unusable_and_the_others_are_not() -> None:
    store = BrokenStore()
    ledger = folder(store)
    ledger.arm(intent(1))
    ledger.arm(intent(2))
    store.broken = {("read", layout.intent_key(ulid(1)))}
    listing = ledger.intents()
    assert listing.intents == (intent(2),)
    assert [(u.name, u.code) for u in listing.unreadable] == [(f"{ulid(1)}.json", "invalid_recovery_sidecar")]


def test_what_follows_a_landed_state_may_fail_quietly() -> None:
    store = BrokenStore()
    ledger = folder(store)
    view = begun(ledger, intent(1))
    ledger.record_approval(approval(1))
    store.broken = {("delete", layout.RECOVERIES), ("write", layout.APPROVALS)}
    after = ledger.commit(view, write(state(2), retire=[ulid(1)], consumed=[approval(1)]))
    assert ledger.view() == after
    assert ledger.intents().intents == (intent(1),)
    assert ledger.approvals().documents == (approval(1),)


def test_retiring_needs_to_know_the_state() -> None:
    store = BrokenStore()
    ledger = folder(store)
    view = begun(ledger, intent(1))
    store.broken = {("read", layout.STATE)}
    assert code_of(lambda: ledger.retire(view, [ulid(1)], None)) == "state_read_error"
    assert ledger.intents().intents == (intent(1),)


def test_a_folder_where_a_file_should_be(tmp_path: Path) -> None:
    name = digest(CONTENT)
    key = layout.blob_key(QUERY, name)
    assert key is not None
    (tmp_path / key).mkdir(parents=True)
    (tmp_path / layout.STATE).mkdir()
    (tmp_path / layout.LOCK).mkdir()
    ledger = folder(LocalStore(tmp_path))
    assert ledger.blob(QUERY, name).condition is BlobCondition.MISSING
    assert code_of(lambda: ledger.put_blob(QUERY, CONTENT)) == "resource_payload_write_error"
    assert [p.code for p in ledger.view().problems] == ["state_read_error"]
    assert ledger.observe_lock().problem == "state_lock_read_error"


def test_reading_an_absent_folder_creates_nothing(tmp_path: Path) -> None:
    ledger = folder(LocalStore(tmp_path / "root"))
    ledger.view()
    ledger.intents()
    ledger.approvals()
    ledger.observe_lock()
    ledger.release(ulid(1))
    ledger.disarm(ulid(1))
    ledger.blob(QUERY, digest(CONTENT))
    with pytest.raises(ConflictError):
        ledger.break_lock(ulid(1))
    assert list(tmp_path.iterdir()) == []


def test_paths_for_people(tmp_path: Path) -> None:
    ledger = folder(LocalStore(tmp_path))
    assert ledger.state_path == str(tmp_path / "__cluster" / "state.json")
    assert ledger.lock_path == str(tmp_path / "__cluster" / "lock.json")
    assert ledger.snapshot_reads is False


def test_graph_roots_have_safe_names() -> None:
    assert layout.graph_root("catalogue") == "graphs/catalogue.omni"
    for name in ("../x", "a/b", "", "a.b"):
        with pytest.raises(ValueError, match="not a graph id"):
            layout.graph_root(name)
    assert layout.blob_key(graph_address("catalogue"), "0" * 64) is None


class CrashError(Exception):
    """The process ends here."""


@dataclass
class CrashAt:
    """Faults that end the run at one point."""

    point: str

    def reach(self, point: str) -> None:
        if point == self.point:
            raise CrashError(point)


@pytest.mark.parametrize(
    ("point", "landed", "retired"),
    [
        ("ledger.commit.before_state", False, False),
        ("ledger.commit.after_state", True, False),
        ("ledger.commit.after_retire", True, True),
    ],
)
def test_a_crash_leaves_a_state_that_the_next_run_can_settle(
    tmp_path: Path, point: str, landed: bool, retired: bool
) -> None:
    store = LocalStore(tmp_path)
    view = begun(folder(store), intent(1))
    folder(store).record_approval(approval(1))
    crashing = FolderLedger(store, clock=CLOCK, faults=CrashAt(point))
    with pytest.raises(CrashError):
        crashing.commit(view, write(state(2), retire=[ulid(1)], consumed=[approval(1)]))
    after = folder(store)
    assert after.view().state == (state(2) if landed else state(1))
    assert after.intents().intents == (() if retired else (intent(1),))
    marked = replace(approval(1), consumed_at="2026-07-02T10:00:00Z")
    assert after.approvals().documents == (marked if retired else approval(1),)
    final = after.commit(after.view(), write(state(3 if landed else 2), retire=[ulid(1)], consumed=[approval(1)]))
    assert after.intents().intents == ()
    assert after.approvals().documents == (marked,)
    assert final == after.view()


_CONTENDER = """
import sys
from datetime import UTC, datetime
from tests.support.clock import FixedClock
from gitops.core.errors import ConflictError
from gitops.core.faults import NoFaults
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.ledger import LockInfo
from gitops.database.storage.local import LocalStore

ledger = FolderLedger(LocalStore(sys.argv[1]), clock=FixedClock(datetime(2026, 7, 2, tzinfo=UTC)), faults=NoFaults())
print("ready", flush=True)
for line in sys.stdin:
    name = line.strip() + sys.argv[2]
    try:
        ledger.acquire(LockInfo(name, "apply", "2026-07-02T09:00:00Z", 1))
    except ConflictError as error:
        print(error.code, flush=True)
    else:
        print(name, flush=True)
"""


def test_one_of_racing_processes_gets_the_lock(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, str(tmp_path), str(index)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for index in range(4)
    ]

    def ask(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()

    def answer(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        assert [answer(process) for process in processes] == ["ready"] * 4
        ledger = folder(LocalStore(tmp_path))
        for round_ in range(10):
            for process in processes:
                ask(process, f"{round_}-\n")
            answers = [answer(process) for process in processes]
            winners = [text for text in answers if text != "state_lock_held"]
            assert len(winners) == 1
            info = ledger.observe_lock().info
            assert info is not None
            assert info.lock_id == winners[0]
            ledger.release(winners[0])
    finally:
        for process in processes:
            process.communicate(timeout=20)


NOW = datetime(2026, 6, 11, 8, 0, tzinfo=UTC)
REVISION = RevisionIdentity("a" * 64, 41, None)
REPORT = ServerReport("web-1", "/srv/brain", Follows.WATCH, REVISION, REVISION, (), at="2026-06-11T08:00:00Z", ttl_s=60)
OTHER = replace(REPORT, replica="web-2")


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        return S3Store(request.getfixturevalue("s3").root)
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_a_report_is_replaced_and_taken_back_by_its_server_alone(store: ObjectStore) -> None:
    reports = ServingReports(lambda: store)
    assert reports.read().reports == ()
    newer = replace(REPORT, at="2026-06-11T08:00:20Z")
    for each in (REPORT, OTHER, newer):
        reports.write(each)
    assert reports.read().reports == (newer, OTHER)
    assert store.read("__cluster/serving/web-1.json") == SERVER_REPORT.write(newer)
    # A server that took the name over has reported since.
    reports.take_back(REPORT)
    reports.take_back(OTHER)
    reports.take_back(OTHER)
    assert reports.read().reports == (newer,)


def test_what_servers_left_that_died_long_ago_is_removed(store: ObjectStore) -> None:
    reports = ServingReports(lambda: store)
    for each in (REPORT, replace(OTHER, at="2026-06-11T08:10:00Z")):
        reports.write(each)
    reports.remove_old(NOW + timedelta(minutes=61))
    assert len(reports.read().reports) == 2
    reports.remove_old(NOW + timedelta(minutes=62))
    assert [each.replica for each in reports.read().reports] == ["web-2"]


HOSTILE = {
    "evil.json": b"{",
    "huge.json": b"[" * 100_000,
    "web-1.json": SERVER_REPORT.write(OTHER),
    "path.json": SERVER_REPORT.write(OTHER).replace(b"web-2", b"../x"),
    "many.json": SERVER_REPORT.write(replace(OTHER, replica="many", codes=("a",) * 17)),
    "shell.json": SERVER_REPORT.write(replace(OTHER, replica="shell", codes=("$(rm)",))),
    "long.json": SERVER_REPORT.write(replace(OTHER, replica="long", ttl_s=99_999)),
    "later.json": SERVER_REPORT.write(OTHER).replace(b'"version": 1', b'"version": 2'),
}


def test_hostile_reports_are_named_and_left_out() -> None:
    store = MemoryStore()
    for name, data in HOSTILE.items():
        store.write(f"__cluster/serving/{name}", data)
    store.write("__cluster/serving/notes.txt", b"not a report")
    reports, problems = ServingReports(lambda: store), Diagnostics()
    reports.write(OTHER)
    found = servers(reports, REVISION, NOW, problems)
    assert [each.report for each in found] == [OTHER]
    assert {each.path for each in problems} == {f"__cluster/serving/{name}" for name in HOSTILE}
    assert {(each.code, each.severity) for each in problems} == {("serving_report_invalid", Severity.WARNING)}


def test_more_reports_than_are_read_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MAX_REPORTS", 1)
    store = MemoryStore()
    reports = ServingReports(lambda: store)
    reports.write(REPORT)
    reports.write(OTHER)
    listing = reports.read()
    assert (listing.reports, [each.detail for each in listing.unread]) == ((REPORT,), ["of 2 reports only 1 are read"])


def test_a_store_that_does_not_answer_is_a_warning() -> None:
    problems = Diagnostics()
    assert servers(ServingReports(lambda: BrokenStore({("names", "")})), REVISION, NOW, problems) == ()
    assert [(each.code, each.severity) for each in problems] == [("serving_reports_unreadable", Severity.WARNING)]
