"""What a graph in a bucket says while its service refuses or is away, and how many of its answers are waited for at once."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gitops.cli import main as program
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.database.storage.bucket import AWAY, PERMIT
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.s3 import Asked, S3Place, S3Server

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
TYPES = [f"T{number}" for number in range(8)]
SCHEMA = "".join(f"node {name} {{ name: String @key }}\n" for name in TYPES).encode()


def records(name: str) -> io.BytesIO:
    rows = [{"type": each, "data": {"name": name}} for each in TYPES]
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


@pytest.fixture(scope="module")
def original(s3_server: S3Server) -> str:
    """The bucket of a graph of eight types with a row each: made once, never changed."""
    place, ids = S3Place(s3_server, s3_server.bucket()), SequentialIds()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environ.items():
            patch.setenv(name, value)
        uri = f"{place.root}/graphs/g.omni"
        LanceEngine(CLOCK, ids).prepare_create(uri, SCHEMA, actor=None).publish()
        load_records(LoadRequest(uri, records("ada")), WriteContext(CLOCK, ids))
    return place.bucket


@pytest.fixture
def uri(original: str, s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of the graph; a service that is away is asked once."""
    monkeypatch.setenv("GITOPS_STORAGE_RETRY", "0")
    return f"{replace(s3, bucket=s3.server.copy(original)).root}/graphs/g.omni"


def of_a_table(asked: Asked) -> bool:
    return "/nodes/" in asked.path or "nodes%2F" in asked.query


def load(uri: str) -> object:
    return load_records(LoadRequest(uri, records("bob")), WriteContext(CLOCK, SequentialIds()))


@pytest.mark.parametrize(("kind", "status"), [("LIST", 403), ("GET", 403), ("PUT", 503), ("HEAD", 503)])
def test_what_the_service_refuses_to_the_driver_is_a_failure_of_the_storage(
    s3: S3Place, uri: str, kind: str, status: int
) -> None:
    s3.server.fault = lambda asked: status if asked.kind == kind and of_a_table(asked) else None
    with pytest.raises(GitopsError) as failure:
        load(uri)
    assert failure.value.code == "storage_failed"
    assert f"the service answers {status}" in failure.value.detail
    assert "Fault" not in failure.value.detail, "nothing of the answer is quoted but its status"
    assert failure.value.fix == (PERMIT if status == 403 else AWAY)


@pytest.mark.parametrize(
    "where", [of_a_table, lambda asked: "/manifests/" in asked.path, lambda asked: "/schema/" in asked.path]
)
def test_a_service_that_is_away_is_no_damage(s3: S3Place, uri: str, where: Callable[[Asked], bool]) -> None:
    assert verify_graph(uri).findings == ()
    s3.server.fault = lambda asked: 503 if where(asked) else None
    with pytest.raises(RemoteError, match="the service answers 503"):
        verify_graph(uri)


def test_a_refused_graph_is_not_called_unreadable(s3: S3Place, uri: str) -> None:
    s3.server.fault = lambda asked: 403
    with pytest.raises(RemoteError, match="access is denied: the service answers 403") as failure:
        LanceEngine(CLOCK, SequentialIds()).read(uri)
    assert (failure.value.code, failure.value.retryable) == ("storage_failed", False)


def test_the_driver_writes_no_answer_to_standard_error(s3: S3Place, uri: str) -> None:
    """Also where the environment asks it to."""
    s3.server.fault = lambda asked: 503 if of_a_table(asked) else None
    done = subprocess.run(
        [sys.executable, "-m", "gitops", "graph", "verify", "g", "--root", uri, "--json"],
        cwd=ROOT,
        env={**os.environ, "LANCE_LOG": "debug", "RUST_LOG": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tester" not in done.stdout + done.stderr
    assert "AWS4" not in done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if "lance" in line.lower() or "retry" in line.lower()] == []


def test_json_is_printed_for_whatever_a_driver_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def driver(*_: object) -> int:
        raise OSError("Generic S3 error: <Error>Credential=tester AWS4-HMAC</Error>")

    monkeypatch.setattr(program, "_load", lambda name: driver)
    assert program.main(["status", "--json"]) == 1
    shown = capsys.readouterr()
    assert [d["code"] for d in json.loads(shown.out)["diagnostics"]] == ["storage_failed"]
    assert "AWS4" not in shown.out + shown.err


# -- at the same time: the eighth request of a sort has to arrive before the first one is answered -----------------------


def together(wanted: Callable[[Asked], bool], number: int) -> Callable[[Asked], None]:
    """A fault that holds back requests until so many have arrived, once."""
    gate, arrived = threading.Barrier(number), iter(range(number))

    def hold(asked: Asked) -> None:
        if wanted(asked) and next(arrived, None) is not None:
            gate.wait(timeout=20)

    return hold


def test_tables_are_made_at_the_same_time(s3: S3Place) -> None:
    ids = SequentialIds()
    s3.server.fault = together(lambda asked: of_a_table(asked) and asked.method == "PUT", 8)
    LanceEngine(CLOCK, ids).prepare_create(f"{s3.root}/graphs/h.omni", SCHEMA, actor=None).publish()


def test_tables_are_loaded_at_the_same_time(s3: S3Place, uri: str) -> None:
    s3.server.fault = together(lambda asked: "/data/" in asked.path and asked.method == "PUT", 8)
    load(uri)
    s3.server.fault = together(lambda asked: "/_transactions/" in asked.path and asked.method == "PUT", 8)
    load_records(LoadRequest(uri, records("cleo")), WriteContext(CLOCK, SequentialIds(9000)))


def test_tables_are_verified_and_swept_at_the_same_time(s3: S3Place, uri: str) -> None:
    s3.server.fault = together(of_a_table, 8)
    assert verify_graph(uri).findings == ()
    s3.server.fault = together(lambda asked: of_a_table(asked) and "_versions" in asked.path + asked.query, 8)
    collect_garbage(uri, WriteContext(CLOCK, SequentialIds()))
