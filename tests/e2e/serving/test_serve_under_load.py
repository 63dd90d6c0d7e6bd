"""`gitops serve` while workers are killed and revisions come, and over the example clusters within their policies."""

from __future__ import annotations

import http.client
import json
import os
import resource
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from gitops.cli.main import main
from gitops.core.canonical import digest
from gitops.database.language.query import CheckedQuery, QueryEffect, check_query, parse_queries
from gitops.database.language.schema import compile_schema
from tests.reference import Mode, empty, load
from tests.support.cluster import OTHER_QUERY, QUERY, Cluster, lance_engine
from tests.support.pages import ROOT
from tests.support.query_parameters import parameters
from tests.support.served_command import Served, serving

pytestmark = pytest.mark.e2e

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
                connection.request(
                    "POST", "/graphs/knowledge/queries/find_person", body, {"Content-Type": "application/json"}
                )
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


SHARED = ROOT.parent / "shared" / "examples"
ACTORS = ("act-reader", "act-analyst", "act-admin")
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({actor: f"token of {actor}" for actor in ACTORS})}
PICKS = 2


@pytest.fixture
def applied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example, applied and with its data."""
    name, graph = request.param
    if not SHARED.is_dir():
        pytest.skip("the example clusters are not beside this checkout, in ../shared/examples")
    folder = Path(shutil.copytree(SHARED / name, tmp_path / name))
    for verb in (["import"], ["apply"], ["graph", "load", graph, str(folder / "seed.jsonl")]):
        assert main([*verb, "--config", str(folder), "--quiet"]) == 0
    return folder


def asked(folder: Path) -> Iterator[tuple[CheckedQuery, dict[str, Any]]]:
    """Each stored query, with parameters out of the data."""
    schema = compile_schema((folder / "schema.pg").read_bytes())
    lines = (folder / "seed.jsonl").read_text("utf-8").splitlines()
    data = load(schema, empty(schema.catalog), lines, Mode.APPEND)
    for file in sorted((folder / "queries").glob("*.gq")):
        for declared in parse_queries(file.read_bytes()):
            query = check_query(declared, schema.catalog)
            for pick in range(PICKS):
                yield query, parameters(query, schema, data, pick)


def by_command(folder: Path, graph: str, query: str, params: dict[str, Any], capsys: Any) -> dict[str, Any] | None:
    """What the command line prints; None where it refuses."""
    file = folder / "params.json"
    file.write_text(json.dumps(params), "utf-8")
    capsys.readouterr()
    code = main(["graph", "query", graph, query, "--params", str(file), "--config", str(folder), "--json"])
    form = json.loads(capsys.readouterr().out)
    return form if code == 0 else None


def invoke(server: Served, graph: str, query: str, params: dict[str, Any], actor: str | None = None) -> Any:
    headers = {} if actor is None else {"Authorization": f"Bearer token of {actor}"}
    return server.client.post(f"/graphs/{graph}/queries/{query}", headers=headers, json={"params": params})


def agree(server: Served, folder: Path, graph: str, actor: str | None, capsys: Any) -> None:
    """Every stored read gives what the command line gives; most find something."""
    found = reads = 0
    for query, params in asked(folder):
        if query.kind is not QueryEffect.READ:
            continue
        expected, answer = (
            by_command(folder, graph, query.name, params, capsys),
            invoke(server, graph, query.name, params, actor),
        )
        reads += 1
        if expected is None:
            assert 400 <= answer.status_code < 500, (query.name, params, answer.text)
            continue
        assert answer.status_code == 200, (query.name, params, answer.text)
        assert answer.json()["rows"] == expected["rows"], (query.name, params)
        assert answer.json().get("columns", []) == expected["columns"], query.name
        found += bool(expected["rows"])
    assert found > reads // 2


@pytest.mark.slow
@pytest.mark.parametrize("applied", [("pharma-intel", "pharma")], indirect=True)
def test_a_cluster_without_policies_gives_the_same_rows_to_everybody(applied, capsys):
    with serving("--cluster", str(applied), "--quiet", "--unauthenticated") as server:
        agree(server, applied, "pharma", None, capsys)
    with serving("--cluster", str(applied), "--quiet", environ=TOKENS) as server:
        assert invoke(server, "pharma", "deals_all", {}, "act-reader").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("applied", [("industry-intel", "spike")], indirect=True)
def test_a_cluster_gives_the_same_rows_within_its_policies(applied, capsys):
    with serving("--cluster", str(applied), "--quiet", environ=TOKENS) as server:
        agree(server, applied, "spike", "act-reader", capsys)
        lists = {actor: server.client.get("/graphs", headers=bearer(actor)).status_code for actor in ACTORS}
        assert lists == {"act-reader": 403, "act-analyst": 403, "act-admin": 200}
        for query, params in asked(applied):
            if query.kind is QueryEffect.MUTATION:
                assert invoke(server, "spike", query.name, params, "act-reader").status_code == 403
                assert invoke(server, "spike", query.name, params, "act-admin").status_code == 404
        pattern = {"slug": "pat-served", "name": "Served", "kind": "disruption"}
        times = dict.fromkeys(("createdAt", "updatedAt"), "2026-01-02T03:04:05Z")
        added = invoke(server, "spike", "add_pattern", pattern | times, "act-analyst")
        assert (added.status_code, added.json()["affected_nodes"]) == (200, 1), added.text
        seen = invoke(server, "spike", "get_pattern", {"slug": "pat-served"}, "act-reader").json()
        assert seen["rows"] == by_command(applied, "spike", "get_pattern", {"slug": "pat-served"}, capsys)["rows"] != []


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token of {actor}"}
