"""Ledger and graphs on real object stores, where they are installed: what the imitation cannot show."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.read import read_rows
from gitops.database.graph.staged import WriteContext
from gitops.database.storage.s3 import S3Store
from gitops.repository.wiring.system import RandomIds
from tests.support.clock import FixedClock
from tests.support.real_service import REAL_SERVICES, VERSITYGW, RealService

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
