"""One suite for every ObjectStore, also those of real services."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.mirror import GraphMirror, MirrorLimits
from gitops.database.graph.read import read_rows
from gitops.database.graph.staged import WriteContext
from gitops.database.storage import local
from gitops.database.storage.copies import FileCopies
from gitops.database.storage.local import LocalStore, delete_tree
from gitops.database.storage.port import ObjectStore
from gitops.database.storage.s3 import S3Store
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.clock import FixedClock
from tests.support.histories import History
from tests.support.memory_store import MemoryStore
from tests.support.real_service import REAL_SERVICES, VERSITYGW, RealService


@pytest.fixture(params=["local", "memory", "s3", *REAL_SERVICES], ids=str)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if isinstance(request.param, RealService):
        return S3Store(request.getfixturevalue("real_root")(request.param))
    if request.param == "s3":
        return S3Store(request.getfixturevalue("s3").root)
    return LocalStore(tmp_path / "deep" / "root") if request.param == "local" else MemoryStore()


def test_absent_object_reads_as_none(store: ObjectStore) -> None:
    assert store.read("a/b/c.json") is None
    assert store.names("a") == ()
    assert store.names("") == ()
    store.delete("a")
    assert store.replace("a", b"x", expected=b"") is False
    assert store.read("a") is None


def test_create_is_only_if_absent(store: ObjectStore) -> None:
    assert store.create("a/b", b"one") is True
    assert store.create("a/b", b"two") is False
    assert store.read("a/b") == b"one"


def test_write_creates_and_overwrites(store: ObjectStore) -> None:
    store.write("x", b"one")
    store.write("x", b"")
    assert store.read("x") == b""


def test_some_bytes_are_read(store: ObjectStore) -> None:
    store.write("d/x", b"0123456789")
    assert store.read_range("d/x", 0, 3) + store.read_range("d/x", 3, 10) == b"0123456789"
    assert store.read_range("d/x", 4, 4) == b""
    for key, end in (("d/x", 11), ("d/y", 1), ("e/x", 1)):
        with pytest.raises(RemoteError):
            store.read_range(key, 0, end)


def test_replace_needs_the_expected_content(store: ObjectStore) -> None:
    store.write("s.json", b"old")
    assert store.replace("s.json", b"bad", expected=b"other") is False
    assert store.replace("s.json", b"new", expected=b"old") is True
    assert store.read("s.json") == b"new"


def test_what_is_deleted_is_gone_and_may_be_deleted_twice(store: ObjectStore) -> None:
    store.write("d/x", b"1")
    store.delete("d/x")
    store.delete("d/x")
    assert store.read("d/x") is None
    assert store.create("d/x", b"2") is True


def test_names_are_direct_children_in_code_point_order(store: ObjectStore) -> None:
    for key in ("p/b", "p/a", "p/B", "p/é", "p/deep/x", "other", "p/.visible"):
        store.write(key, b"")
    assert store.names("p") == (".visible", "B", "a", "b", "é")
    assert store.names("p/") == store.names("p")
    assert store.names("") == ("other",)


BAD_KEYS = (
    "",
    "/a",
    "a/",
    "a//b",
    "..",
    "a/../b",
    "./a",
    "a\\b",
    "a\0b",
    "a\nb",
    ".tmp-1",
    "x/.tmp-y",
    "n" * 256,
    "a/" * 600 + "b",
)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_key_that_is_no_plain_relative_path_is_refused(store: ObjectStore, key: str) -> None:
    for call in (store.read, store.delete, lambda k: store.write(k, b""), lambda k: store.create(k, b"")):
        with pytest.raises(RemoteError) as failure:
            call(key)
        assert failure.value.code == "storage_failed"


def test_folders_and_objects_do_not_mix(store: ObjectStore) -> None:
    if isinstance(store, S3Store):
        pytest.skip("an object store has no folders: a key may lie below another one")
    store.write("a/b", b"")
    for call in (
        lambda: store.read("a"),
        lambda: store.write("a", b""),
        lambda: store.read("a/b/c"),
        lambda: store.write("a/b/c", b""),
        lambda: store.create("a/b/c", b""),
        lambda: store.names("a/b"),
    ):
        with pytest.raises(RemoteError):
            call()
    assert store.read("a/b") == b""


def test_display_names_the_object(store: ObjectStore) -> None:
    assert store.display("a/b") == f"{store.location.rstrip('/')}/a/b"


def test_of_eight_racing_threads_one_creates_and_one_replaces(store: ObjectStore) -> None:
    for turn in range(10):
        key = f"race/{turn}"
        assert sum(_race(lambda i, key=key: store.create(key, b"%d" % i))) == 1
        before = store.read(key)
        assert before is not None
        assert sum(_race(lambda i, key=key, before=before: store.replace(key, b"new%d" % i, expected=before))) == 1


def _race(call) -> list[bool]:
    gate = threading.Barrier(8)
    results: list[bool] = []

    def run(number: int) -> None:
        gate.wait()
        results.append(call(number))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _contend(root: str, number: int, gate, wins) -> None:
    store = LocalStore(root)
    gate.wait()
    for turn in range(20):
        if store.create(f"k{turn}", b"%d" % number):
            wins.put(("create", turn))
        if store.replace("shared", b"%d" % (turn + 1), expected=b"%d" % turn):
            wins.put(("replace", turn))


def test_of_eight_racing_processes_one_wins(tmp_path: Path) -> None:
    LocalStore(tmp_path).write("shared", b"0")
    spawn = multiprocessing.get_context("spawn")
    gate, wins = spawn.Barrier(8), spawn.Queue()
    children = [spawn.Process(target=_contend, args=(str(tmp_path), i, gate, wins)) for i in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 8
    won = []
    while not wins.empty():
        won.append(wins.get())
    creates = sorted(turn for kind, turn in won if kind == "create")
    replaces = sorted(turn for kind, turn in won if kind == "replace")
    assert creates == list(range(20))
    assert replaces == list(range(len(replaces)))
    assert LocalStore(tmp_path).read("shared") == b"%d" % len(replaces)


_WRITER = """
import sys
from gitops.database.storage import local
from gitops.database.storage.local import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
content, turn = b"0" * 200_000, 0
while True:
    turn += 1
    new = b"%d" % (turn % 10) * 200_000
    assert store.replace("doc", new, expected=content)
    content = new
    store.create(f"made/{turn}", new)
"""


def test_a_killed_writer_leaves_the_old_or_the_new_content(tmp_path: Path) -> None:
    store, chance = LocalStore(tmp_path), random.Random(7)  # noqa: S311 - where to kill, not a secret
    for _ in range(6):
        store.write("doc", b"0" * 200_000)
        delete_tree(tmp_path / "made")
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.03))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        objects = [store.read("doc"), *(store.read(f"made/{name}") for name in store.names("made"))]
        assert all(o is not None and len(o) == 200_000 and len(set(o)) == 1 for o in objects)
        assert store.write("doc", b"next") is None
        assert store.names("") == ("doc",)


def test_no_key_leads_through_a_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store = LocalStore(root)
    for call in (
        lambda: store.read("folder/secret"),
        lambda: store.read("file"),
        lambda: store.write("folder/new", b"x"),
        lambda: store.create("folder/new", b"x"),
        lambda: store.delete("folder/secret"),
        lambda: store.names("folder"),
    ):
        with pytest.raises(RemoteError):
            call()
    assert store.names("") == ()
    store.write("file", b"mine")
    assert (outside / "secret").read_bytes() == b"secret"
    assert [p.name for p in outside.iterdir()] == ["secret"]


def test_only_not_found_is_absent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    store = LocalStore(tmp_path)
    for key in ("file/x", "pipe"):
        with pytest.raises(RemoteError):
            store.read(key)


def test_stale_temporary_files_are_neither_listed_nor_read(tmp_path: Path) -> None:
    (tmp_path / ".tmp-1-dead").write_bytes(b"half")
    store = LocalStore(tmp_path)
    assert store.names("") == ()
    assert store.create("a", b"whole") is True
    assert store.names("") == ("a",)


def test_delete_tree_is_idempotent_and_follows_no_link(tmp_path: Path) -> None:
    root, kept = tmp_path / "g", tmp_path / "kept"
    kept.mkdir()
    (kept / "x").write_bytes(b"")
    delete_tree(root)
    LocalStore(root).write("a/b", b"")
    (root / "link").symlink_to(kept)
    (tmp_path / ".g.0123456789abcdef.deleted").mkdir()
    (tmp_path / ".g.b.0123456789abcdef.deleted").mkdir()
    delete_tree(root)
    delete_tree(root)
    assert sorted([p.name for p in tmp_path.iterdir()]) == [".g.b.0123456789abcdef.deleted", "kept"]
    root.symlink_to(kept)
    delete_tree(root)
    assert not os.path.lexists(root)
    assert [p.name for p in kept.iterdir()] == ["x"]


def test_a_folder_that_is_held_for_too_long_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOCK_WAIT_S", 0.0)
    store = LocalStore(tmp_path)
    with local.lock_folder(tmp_path):
        assert store.create("a", b"links need no lease") is True
        with pytest.raises(RemoteError) as failure:
            store.write("a", b"x")
    assert failure.value.code == "storage_failed"
    store.write("a", b"x")
    assert store.read("a") == b"x"


CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
SCHEMA = b"node Person { name: String @key }\nedge Knows: Person -> Person\n"


@pytest.fixture(params=REAL_SERVICES, ids=str)
def root(request: pytest.FixtureRequest, real_root: Callable[[RealService], str]) -> str:
    return real_root(request.param)


def test_it_decides_between_writers(root: str) -> None:
    store = S3Store(root)
    assert {(race.created, race.replaced) for race in store.race(8, 20)} == {(1, 1)}
    assert store.names("__cluster") == ()


def test_a_wrong_secret_is_named(real_root: Callable[[RealService], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other service looks at no signature."""
    place = real_root(VERSITYGW)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-4712")
    with pytest.raises(RemoteError, match="access is denied: the service answers 403 SignatureDoesNotMatch") as failure:
        S3Store(place).read("a")
    assert "AWS_SECRET_ACCESS_KEY" in (failure.value.fix or "")


def test_one_of_racing_runs_gets_the_lock(root: str) -> None:
    ledgers = [FolderLedger(S3Store(root), clock=CLOCK, faults=NoFaults()) for _ in range(8)]
    locks = [LockInfo(RandomIds().ulid(), "apply", "2026-01-01T00:00:00Z", 1) for _ in ledgers]
    gate, got = threading.Barrier(len(ledgers)), list[str]()

    def take(ledger: FolderLedger, info: LockInfo) -> None:
        gate.wait()
        try:
            ledger.acquire(info)
        except Exception:  # noqa: BLE001 - who does not get it is refused
            return
        got.append(info.lock_id)

    runs = [threading.Thread(target=take, args=each) for each in zip(ledgers, locks, strict=True)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(got) == 1
    ledgers[0].release(got[0])
    assert not ledgers[0].observe_lock().held


def test_a_graph_lives_there(root: str) -> None:
    uri, ids = f"{root}/graphs/g.omni", RandomIds()
    engine, context = LanceEngine(CLOCK, ids), WriteContext(CLOCK, ids)
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    for name in (b"ada", b"bob"):
        load_records(LoadRequest(uri, io.BytesIO(b'{"type": "Person", "data": {"name": "%s"}}' % name)), context)
    wider = SCHEMA.replace(b"@key }", b"@key  mail: String? }")
    engine.prepare_migration(uri, wider, actor=None).publish()
    assert engine.read(uri).schema_source == wider
    assert sorted(row["name"] for row in read_rows(uri, "Person", 10)) == ["ada", "bob"]
    collect_garbage(uri, context)
    assert verify_graph(uri, deep=True).findings == ()
    engine.delete_tree(uri)
    assert list(S3Store(uri).keys()) == []


def test_a_graph_is_copied_in_pieces_and_reads_the_same(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitops.database.storage.s3._PIECE_BYTES", 500)
    writer, copies = History(f"{root}/graphs/g.omni"), FileCopies(tmp_path)
    writer.people("main", ann=1, ben=2)
    assert copies.hold()
    mirror = GraphMirror(writer.uri, tmp_path / "g.omni", copies, MirrorLimits(2**30, SystemClock().now))
    for age in (3, 4):
        writer.people("main", ann=age)
        assert mirror.follow() == writer.at().manifest.n
        assert History(str(tmp_path / "g.omni"), schema=b"").image() == writer.image()
    assert mirror.check() == 0
