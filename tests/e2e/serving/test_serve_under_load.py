"""`gitops serve` while workers are killed, revisions come one after the other, and connections do nothing."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from gitops.cli.main import main
from gitops.core.canonical import digest
from tests.support.cluster import OTHER_QUERY, QUERY, Cluster, lance_engine
from tests.support.served_command import Served, serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PEOPLE = 50
# Two revisions, told apart by what the query returns.
TEXTS = {"p.handle": QUERY, "p.born": OTHER_QUERY}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster folder with one graph of people, applied."""
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.policies = {}
    cluster.save()
    cluster.converge()
    records = (json.dumps({"type": "Person", "data": {"handle": f"p{n}", "born": 1900 + n}}) for n in range(PEOPLE))
    (cluster.folder / "seed.jsonl").write_text("\n".join(records) + "\n", "utf-8")
    loading = ["graph", "load", "knowledge", str(cluster.folder / "seed.jsonl"), "--config", str(cluster.folder)]
    assert main([*loading, "--quiet"]) == 0
    return cluster.folder


class Readers:
    """Threads that ask for one person after the other, on connections that they keep."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.answers: list[tuple[int, str, int, bytes]] = []
        """The person, the revision, the status and the body of each whole answer."""
        self.failures: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def until_more(self, count: int) -> None:
        """Wait for so many further answers."""
        with self._changed:
            wanted = len(self.answers) + count
            assert self._changed.wait_for(lambda: len(self.answers) >= wanted, 60), self.failures

    def _ask(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._stop.is_set():
            number = (number + 1) % PEOPLE
            body = json.dumps({"params": {"h": f"p{number}"}})
            try:
                connection.request("POST", "/graphs/knowledge/queries/find_person", body)
                answer = connection.getresponse()
                data = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.failures[type(error).__name__] += 1
                connection.close()
                continue
            with self._changed:
                self.answers.append((number, answer.headers["omnigraph-applied-revision"], answer.status, data))
                self._changed.notify_all()
        connection.close()


def port_of(server: Served) -> int:
    return server.client.base_url.port or 0


def column(body: bytes) -> str:
    (row,) = json.loads(body)["rows"]
    (name,) = row
    return str(name)


def test_a_worker_that_is_killed_under_load_costs_connections_and_never_an_answer(folder: Path) -> None:
    with serving("--cluster", str(folder), "--unauthenticated", "--quiet", "--workers", "2") as server:
        with Readers(port_of(server), 6) as readers:
            for _ in range(3):
                readers.until_more(40)
                os.kill(server.workers[0], signal.SIGKILL)
                server.await_line("takes the place of")
            readers.until_more(40)
        assert len(server.workers) == 2
        assert server.stop() == 0
    assert {status for _, _, status, _ in readers.answers} == {200}
    assert len({revision for _, revision, _, _ in readers.answers}) == 1
    assert all(json.loads(body)["rows"] == [{"p.handle": f"p{n}"}] for n, _, _, body in readers.answers)
    # Of six connections, each breaks at most once for each worker that is killed.
    assert sum(readers.failures.values()) <= 18


def test_each_answer_is_of_one_revision_while_revisions_come_one_after_the_other(folder: Path) -> None:
    state = folder / "__cluster/state.json"
    columns = {f"sha256:{digest(state.read_bytes())}": "p.handle"}
    with serving("--cluster", str(folder), "--unauthenticated", "--workers", "2") as server:
        with drained(server), Readers(port_of(server), 4) as readers:
            for number in range(6):
                name = ("p.born", "p.handle")[number % 2]
                cluster = Cluster(folder, engine=lance_engine())
                cluster.policies = {}
                cluster.save()
                cluster.write("people.gq", TEXTS[name])
                cluster.converge()
                columns[f"sha256:{digest(state.read_bytes())}"] = name
                for _ in range(10):
                    server.process.send_signal(signal.SIGHUP)
                readers.until_more(40)
        assert server.stop() == 0
    assert {status for _, _, status, _ in readers.answers} == {200}
    assert not readers.failures
    seen = {(revision, column(body)) for _, revision, _, body in readers.answers}
    assert seen <= set(columns.items())
    assert len(seen) > 1


@contextmanager
def drained(server: Served) -> Iterator[None]:
    """Read the log of a server, so that it never waits for a reader."""
    assert server.process.stderr is not None
    reader = threading.Thread(target=server.process.stderr.read, daemon=True)
    reader.start()
    yield


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * resource.getpagesize() // 1024


def test_connections_that_do_nothing_take_bounded_memory_and_leave_the_others_alone(folder: Path) -> None:
    count = min(9990, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    with serving("--cluster", str(folder), "--unauthenticated", "--quiet") as server:
        body = {"params": {"h": "p7"}}
        ask = "/graphs/knowledge/queries/find_person"
        assert server.client.post(ask, json=body).json()["rows"] == [{"p.handle": "p7"}]
        before, opened = resident_kib(server.process.pid), []
        try:
            for _ in range(count):
                connection = socket.create_connection(("127.0.0.1", port_of(server)), timeout=30)
                # The half of a head.
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
                opened.append(connection)
            assert server.client.post(ask, json=body).json()["rows"] == [{"p.handle": "p7"}]
            assert (resident_kib(server.process.pid) - before) / count < 64
        finally:
            for connection in opened:
                connection.close()
        assert server.client.post(ask, json=body).json()["rows"] == [{"p.handle": "p7"}]
        assert server.stop() == 0
